"""Line plots as SVG, for sweep.py: a panel for each figure, a line for each name, x by powers of two. Written here because a plotting library
is not where jobs run. Every point has its numbers with it (data-x, data-y, and a title that a browser shows)."""

from html import escape

WIDTH, HEIGHT, LEFT, TOP, PANEL_W, PANEL_H = 980, 400, 70, 50, 330, 270
COLOURS = ("#0060a8", "#d05000", "#208020", "#8030a0", "#707070")


def text(n):
    """262144 as 256k."""
    n, units = int(n), ["", "k", "m", "g", "t"]
    while n >= 1024 and n % 1024 == 0 and len(units) > 1:
        n //= 1024
        units.pop(0)
    return f"{n}{units[0]}"


def round_up(top):
    """The next of 1, 2, 5, 10, 20 ... that is not below."""
    step = 1.0
    while step * 10 < top:
        step *= 10
    while step > top:
        step /= 10
    return next(step * k for k in (1, 2, 5, 10) if step * k >= top)


class Panel:
    """Where a value is drawn."""

    def __init__(self, left, xs, top):
        self.left, self.xs, self.top = left, xs, top

    def x(self, value):
        """Values of a sweep are powers of two, or few: each has its place, at equal distances."""
        return self.left + PANEL_W * (self.xs.index(value) + 0.5) / len(self.xs)

    def y(self, value):
        return TOP + PANEL_H * (1 - value / self.top)


def axes(p, title, varies):
    bottom = TOP + PANEL_H
    yield f'<rect x="{p.left}" y="{TOP}" width="{PANEL_W}" height="{PANEL_H}" fill="none" stroke="#404040"/>'
    yield f'<text x="{p.left + PANEL_W / 2}" y="{TOP - 14}" text-anchor="middle" font-weight="bold">{escape(title)}</text>'
    yield f'<text x="{p.left + PANEL_W / 2}" y="{bottom + 42}" text-anchor="middle">{escape(varies)}</text>'
    for value in p.xs:
        yield f'<text x="{p.x(value):.1f}" y="{bottom + 18}" text-anchor="middle">{text(value)}</text>'
    for k in range(5):
        value, at = p.top * k / 4, p.y(p.top * k / 4)
        yield f'<line x1="{p.left}" x2="{p.left + PANEL_W}" y1="{at:.1f}" y2="{at:.1f}" stroke="#d0d0d0"/>'
        yield f'<text x="{p.left - 6}" y="{at + 4:.1f}" text-anchor="end">{value:g}</text>'


def line(p, name, points, colour):
    places = " ".join(f"{p.x(x):.1f},{p.y(y):.1f}" for x, y in points)
    yield f'<g class="line" data-line="{escape(name)}"><polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for x, y in points:
        yield (f'<circle cx="{p.x(x):.1f}" cy="{p.y(y):.1f}" r="4" fill="{colour}" data-x="{x}" data-y="{y:.6g}">'
               f"<title>{escape(name)}, {text(x)}: {y:.1f}</title></circle>")
    yield "</g>"


def svg(name, varies, rows, figures):
    """rows: (x, name of the line, a value for each of the figures)."""
    xs, lines = sorted({r[0] for r in rows}), list(dict.fromkeys(r[1] for r in rows))
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
           'font-family="sans-serif" font-size="12">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for i, figure in enumerate(figures):
        p = Panel(LEFT + i * (PANEL_W + 70), xs, round_up(max(r[2 + i] for r in rows)))
        out += [f'<g class="panel" data-figure="{escape(figure)}">', *axes(p, f"{name}: {figure}", varies)]
        for k, one in enumerate(lines):
            out += line(p, one, sorted((r[0], r[2 + i]) for r in rows if r[1] == one), COLOURS[k % len(COLOURS)])
        out.append("</g>")
    for k, one in enumerate(lines):
        out.append(f'<text x="{LEFT + 2 * PANEL_W + 90}" y="{TOP + 14 + 20 * k}" fill="{COLOURS[k % len(COLOURS)]}">&#9679; {escape(one)}</text>')
    return "\n".join([*out, "</svg>", ""])
