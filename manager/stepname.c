/*
 * The time step in a name: what makes files a checkpoint set (sets.c). Loop thread; pure.
 *
 * A group of digits is a step by the word before it (chk_0007, step=1200), or because it grows from one set to the next, which setgrowth.c sees from the
 * times. Words come first, since one look at one name is enough for them. Of several groups with words the better word decides (epoch=3-step=1200), then the last;
 * of several components the one nearest to the root (checkpoint-500/global_step500/mp_rank_00.pt), since a set is all that belongs to the outer step.
 * A date (2000-01-25_12:00:00) is one group, as is a time with decimals: of WRF's and CESM's names the last number alone says nothing.
 *
 * The template is the name with the step as #, other groups as *, without a temporary beginning or ending. Of a file it ends at the step:
 * TensorFlow's model.ckpt-500.index and model.ckpt-500.data-00000-of-00001 are one set, flash_hdf5_chk_0007 and flash_hdf5_plt_cnt_0007 are two. A directory's is
 * whole and has a slash, so that chk_0007/ and chk_0007.log are not taken for one.
 *
 * Numbers without a word are steps when three have come, each as much greater than the one before, or five that grew (LAMMPS's and OpenFOAM's intervals are even; what
 * a scheduler or mkstemp numbers is not), with a pause between them in which nobody wrote.
 *
 * Rejected: one regular expression in the configuration (nobody sets it); the number that differs most in a listing (depends on the order, costs the length of the
 * directory).
 */
#include <string.h>
#include <time.h>

#include "fp/tmpname.h"
#include "manager/stepname.h"

#define DIGITS_MAX    18u
#define MATCHES_MAX   20000u /* steps of one match: patterns of many ** and * end there */
#define STEPS_EVEN    3u
#define STEPS_ANY     5u
#define DAY_NS        (INT64_C(86400) * 1000000000)
#define EXTENSION_MAX 4u     /* .h5, .nc4: what is shorter than this with its letter is no number of a file */

enum class { CLASS_PART, CLASS_STEP, CLASS_CHECKPOINT, CLASS_TIME, CLASS_NONE };

struct word { const char *word; enum class class; };

static const struct word words[] = {
    {"step", CLASS_STEP}, {"steps", CLASS_STEP}, {"iter", CLASS_STEP}, {"iteration", CLASS_STEP}, {"it", CLASS_STEP}, {"cycle", CLASS_STEP}, {"globalstep", CLASS_STEP},
    {"timestep", CLASS_STEP}, {"chk", CLASS_CHECKPOINT}, {"ckpt", CLASS_CHECKPOINT}, {"chkpt", CLASS_CHECKPOINT}, {"checkpoint", CLASS_CHECKPOINT}, {"cp", CLASS_CHECKPOINT},
    {"restart", CLASS_CHECKPOINT}, {"restore", CLASS_CHECKPOINT}, {"rst", CLASS_CHECKPOINT}, {"dump", CLASS_CHECKPOINT}, {"snap", CLASS_CHECKPOINT},
    {"snapshot", CLASS_CHECKPOINT}, {"plt", CLASS_CHECKPOINT}, {"plot", CLASS_CHECKPOINT}, {"plt_cnt", CLASS_CHECKPOINT}, {"save", CLASS_CHECKPOINT},
    {"epoch", CLASS_TIME}, {"time", CLASS_TIME}, {"t", CLASS_TIME}, {"frame", CLASS_TIME}, {NULL, CLASS_NONE}};

/* What counts parts of one step, or has nothing to do with it. */
static const struct word parts[] = {
    {"rank", CLASS_PART}, {"proc", CLASS_PART}, {"processor", CLASS_PART}, {"pe", CLASS_PART}, {"cpu", CLASS_PART}, {"core", CLASS_PART},
    {"gpu", CLASS_PART}, {"task", CLASS_PART}, {"thread", CLASS_PART}, {"worker", CLASS_PART}, {"node", CLASS_PART}, {"host", CLASS_PART},
    {"part", CLASS_PART}, {"piece", CLASS_PART}, {"file", CLASS_PART}, {"shard", CLASS_PART}, {"of", CLASS_PART}, {"layer", CLASS_PART},
    {"block", CLASS_PART}, {"grid", CLASS_PART}, {"domain", CLASS_PART}, {"mp", CLASS_PART}, {"pp", CLASS_PART}, {"tp", CLASS_PART},
    {"dp", CLASS_PART}, {"zone", CLASS_PART}, {"level", CLASS_PART}, {"expert", CLASS_PART}, {"member", CLASS_PART}, {"hdf", CLASS_PART},
    {"h", CLASS_PART}, {"run", CLASS_PART}, {"job", CLASS_PART}, {"seed", CLASS_PART}, {"version", CLASS_PART}, {"v", CLASS_PART},
    {"tmp", CLASS_PART}, {"temp", CLASS_PART}, {"pid", CLASS_PART}, {"id", CLASS_PART}, {"port", CLASS_PART}, {"slurm", CLASS_PART}, {"o", CLASS_PART}, {"e", CLASS_PART},
    {"trial", CLASS_PART}, {"attempt", CLASS_PART}, {"try", CLASS_PART}, {NULL, CLASS_NONE}};

/* A number in a name: a group of digits, a date, or a group with decimals. */
struct group {
    size_t off, len;
    size_t decimals;
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_upper(char c)
{
    return c >= 'A' && c <= 'Z';
}

/* Bytes of other alphabets are letters. */
static bool is_letter(char c)
{
    return is_upper(c) || (c >= 'a' && c <= 'z') || (unsigned char)c >= 0x80;
}

static char lower(char c)
{
    return (char)(is_upper(c) ? c + ('a' - 'A') : c);
}

static size_t digits(const char *s, size_t len)
{
    size_t n = 0;

    while (n < len && is_digit(s[n]))
        n++;
    return n;
}

/* -------------------------------------------------------------- groups */

static unsigned two(const char *s)
{
    return 10u * (unsigned)(s[0] - '0') + (unsigned)(s[1] - '0');
}

static bool is_day(const char *month, const char *day)
{
    return two(month) >= 1 && two(month) <= 12 && two(day) >= 1 && two(day) <= 31;
}

/* What follows a date: _12:00:00, -43200, T12. */
static size_t time_of_day(const char *s, size_t len)
{
    size_t n = 1, k;

    if (len < 3 || !strchr("-_T:", s[0]) || s[0] == '\0')
        return 0;
    k = digits(s + 1, len - 1);
    if (k == 5 || k == 6)
        return 1 + k;
    for (unsigned i = 0; i < 3 && len - n >= 2 && digits(s + n, len - n) == 2; i++) {
        n += 2;
        if (i == 2 || len - n < 3 || !strchr(":-_.", s[n]) || s[n] == '\0' || digits(s + n + 1, len - n - 1) != 2)
            return n;
        n++;
    }
    return 0;
}

/* Length of a date that begins here, with its time of day: 2000-01-25_12:00:00, 0001-01-02-00000, 20260101T120000; 0: none does. */
static size_t date(const char *s, size_t len)
{
    size_t n = digits(s, len);

    if (n == 4 && len >= 10 && (s[4] == '-' || s[4] == '_' || s[4] == ':') && s[7] == s[4] && digits(s + 5, len - 5) == 2 && digits(s + 8, len - 8) == 2 &&
        is_day(s + 5, s + 8))
        return 10 + time_of_day(s + 10, len - 10);
    if (n == 8 && (two(s) == 19 || two(s) == 20) && is_day(s + 4, s + 6) && len >= 15 && strchr("-_T", s[8]) && s[8] != '\0' && digits(s + 9, len - 9) == 6)
        return 15;
    return 0;
}

static bool next_group(const char *s, size_t len, size_t from, struct group *g)
{
    while (from < len && !is_digit(s[from]))
        from++;
    if (from >= len)
        return false;
    g->off = from;
    g->len = date(s + from, len - from);
    g->decimals = 0;
    if (g->len == 0)
        g->len = digits(s + from, len - from);
    return true;
}

/* False: more digits than a step may have. */
static bool number_of(const char *s, const struct group *g, uint64_t *out)
{
    uint64_t n = 0;
    unsigned seen = 0;

    for (size_t i = g->off; i < g->off + g->len; i++) {
        if (!is_digit(s[i]))
            continue;
        if (++seen > DIGITS_MAX)
            return false;
        n = 10 * n + (uint64_t)(s[i] - '0');
    }
    *out = n;
    return true;
}

/* -------------------------------------------------------------- words */

/* The word ends at `end`, and is not the end of a longer one. A capital begins a word: GlobalStep. */
static bool is_before(const char *s, size_t end, const char *word)
{
    size_t n = strlen(word), from = end - n;

    if (n > end)
        return false;
    for (size_t i = 0; i < n; i++)
        if (lower(s[from + i]) != word[i])
            return false;
    return from == 0 || !is_letter(s[from - 1]) || (is_upper(s[from]) && !is_upper(s[from - 1]));
}

static bool is_any_before(const char *s, size_t at, const struct word *list, enum class *class)
{
    bool joint = at > 0 && s[at - 1] != '\0' && strchr("-_.=", s[at - 1]) != NULL;
    bool found = false;

    *class = CLASS_NONE;
    for (const struct word *w = list; w->word && !found; w++) {
        if (!is_before(s, at - joint, w->word) || (w->word[1] == '\0' && !joint && w->class == CLASS_TIME)) /* t5 is a name like any other */
            continue;
        *class = w->class;
        found = true;
    }
    return found;
}

/* 00003-of-00008: which of how many. */
static bool is_share(const char *s, size_t len, const struct group *g)
{
    const char *p = s + g->off + g->len, *end = s + len;

    p += p < end && (*p == '-' || *p == '_' || *p == '.');
    if (end - p < 3 || lower(p[0]) != 'o' || lower(p[1]) != 'f')
        return false;
    p += 2;
    p += *p == '-' || *p == '_' || *p == '.';
    return p < end && is_digit(*p);
}

/* time=0.25: the decimals are part of the number. */
static void take_decimals(const char *s, size_t len, struct group *g)
{
    size_t end = g->off + g->len, n = end + 1 < len && s[end] == '.' ? digits(s + end + 1, len - end - 1) : 0;

    if (n == 0 || (end + 1 + n < len && is_letter(s[end + 1 + n])))
        return;
    g->len += 1 + n;
    g->decimals = n;
}

/* -------------------------------------------------------------- templates */

static void put(struct mgr_step *out, char c)
{
    out->template[out->template_len++] = c; /* each stands for at least one byte of the name, which is shorter */
}

static void put_group(struct mgr_step *out, const struct group *g, bool step)
{
    put(out, step ? '#' : '*');
    if (step && g->decimals > 0) {
        put(out, '.');
        for (size_t i = 0; i < g->decimals; i++)
            put(out, '#');
    }
}

/* len <= 255. The template of s[0 .. end), in which `step` is the step. */
static void put_template(struct mgr_step *out, const char *s, size_t end, const struct group *step, bool directory)
{
    struct group g;
    size_t at = 0;

    out->template_len = 0;
    while (at < end) {
        if (!next_group(s, end, at, &g))
            g = (struct group){.off = end};
        if (step->off >= at && step->off <= g.off)
            g = *step;
        else if (step->off > g.off && step->off < g.off + g.len) /* a pattern that takes a date apart */
            g.len = digits(s + g.off, end - g.off);
        while (at < g.off)
            put(out, s[at++]);
        if (g.len > 0)
            put_group(out, &g, g.off == step->off);
        at += g.len;
    }
    if (directory)
        put(out, '/');
}

static void found(struct mgr_step *out, enum mgr_step_how how, const struct group *g, size_t off, size_t body_len, size_t len)
{
    out->how = how;
    out->above = 0;
    out->off = (uint32_t)(off + g->off);
    out->len = (uint32_t)g->len;
    out->temporary = body_len < len;
}

/* -------------------------------------------------------------- one component */

bool mgr_step_word(const char *name, size_t len, bool directory, struct mgr_step *out)
{
    enum class best = CLASS_NONE, class;
    struct group g, step = {0};
    size_t off, n = fp_tmpname_body(name, len, &off);
    const char *s = name + off;
    uint64_t number;

    if (len >= MGR_STEP_TEMPLATE_MAX)
        return false;
    for (size_t at = 0; next_group(s, n, at, &g); at = g.off + g.len) {
        if (!is_any_before(s, g.off, words, &class))
            continue;
        if (class == CLASS_TIME)
            take_decimals(s, n, &g);
        if (class > best || !number_of(s, &g, &number))
            continue;
        best = class;
        step = g;
        out->step = number;
    }
    if (best == CLASS_NONE)
        return false;
    found(out, MGR_STEP_WORD, &step, off, n, len);
    put_template(out, s, directory ? n : step.off + step.len, &step, directory);
    return true;
}

/* .h5, .nc4, .mp4 */
static bool is_extension(const char *s, size_t len, const struct group *g)
{
    size_t dot = len;

    while (dot > 0 && s[dot - 1] != '.')
        dot--;
    return dot > 0 && g->off > dot && len - dot <= EXTENSION_MAX && g->off + g->len == len && is_letter(s[dot]);
}

#define DECIMAL_TEMPLATE "#.#/"
#define DECIMALS         6u
#define WHOLE_DIGITS     (DIGITS_MAX - DECIMALS)

bool mgr_step_is_decimal(const struct mgr_step *s)
{
    return s->template_len == strlen(DECIMAL_TEMPLATE) && memcmp(s->template, DECIMAL_TEMPLATE, s->template_len) == 0;
}

/* 0.25, 100: the name of one of OpenFOAM's directories. Its numbers have no order without their decimals, and any count of these; so the step is in millionths. */
static bool decimal(const char *s, size_t len, bool *has_decimals, uint64_t *step)
{
    size_t whole = digits(s, len), decimals = whole < len && s[whole] == '.' ? digits(s + whole + 1, len - whole - 1) : 0;

    *has_decimals = decimals > 0;
    *step = 0;
    if (whole == 0 || whole > WHOLE_DIGITS || decimals > DECIMALS || whole + (decimals ? decimals + 1 : 0) != len)
        return false;
    for (size_t i = 0; i < len; i++)
        *step = is_digit(s[i]) ? 10 * *step + (uint64_t)(s[i] - '0') : *step;
    for (size_t i = decimals; i < DECIMALS; i++)
        *step *= 10;
    return true;
}

static bool decimal_growth(size_t off, size_t n, size_t len, uint64_t step, struct mgr_step *out)
{
    found(out, MGR_STEP_GROWTH, &(struct group){.len = n}, off, n, len);
    out->step = step;
    out->template_len = strlen(DECIMAL_TEMPLATE);
    memcpy(out->template, DECIMAL_TEMPLATE, out->template_len);
    return true;
}

/*
 * A lock holds no data, and goes when it has been used: a set of which a file is removed waits for a word (sets.c). Open MPI has one beside each file that ranks
 * of several nodes share: chk_0007.h5-3221-4711.lock; and each rank tries whether locks work, with chk_0007.h5.locktest.3.
 */
bool mgr_step_is_lock(const char *name, size_t len)
{
    static const char *const ends[] = {".lock", ".lck", ".LOCK"};
    static const char test[] = ".locktest.";
    size_t n = len;

    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (len > strlen(ends[i]) && memcmp(name + len - strlen(ends[i]), ends[i], strlen(ends[i])) == 0)
            return true;
    while (n && is_digit(name[n - 1]))
        n--;
    return n < len && n > strlen(test) && memcmp(name + n - strlen(test), test, strlen(test)) == 0;
}

bool mgr_step_is_convert(const char *name, size_t len)
{
    static const char begin[] = ".fp-convert-";
    size_t n = sizeof begin - 1;

    if (len <= n || memcmp(name, begin, n) != 0)
        return false;
    while (n < len && is_letter(name[n]))
        n++;
    return n == len;
}

/* Files end at the step, directories with a slash: a dot tells the template of a result that has nothing behind its step from theirs. */
bool mgr_step_result(struct mgr_step *s, const char *rest, size_t rest_len)
{
    struct group g;
    size_t at = 0;

    s->how = MGR_STEP_CONVERTED;
    s->template_len -= s->above == 0 && s->template_len > 0 && s->template[s->template_len - 1] == '/';
    if (s->template_len + rest_len + 1 > MGR_STEP_TEMPLATE_MAX)
        return false;
    if (rest_len == 0)
        put(s, '.');
    while (at < rest_len) {
        if (!next_group(rest, rest_len, at, &g) || is_extension(rest, rest_len, &g))
            g = (struct group){.off = rest_len};
        while (at < g.off)
            put(s, rest[at++]);
        if (g.len > 0)
            put_group(s, &g, false);
        at += g.len;
    }
    return true;
}

bool mgr_step_growth(const char *name, size_t len, bool directory, unsigned nth, struct mgr_step *out)
{
    struct group g, last[MGR_STEP_NUMBERS] = {{0}}; /* the last ones, by their number modulo */
    size_t off, n = fp_tmpname_body(name, len, &off);
    const char *s = name + off;
    enum class class;
    bool decimals;
    uint64_t number;
    unsigned seen = 0;

    if (len >= MGR_STEP_TEMPLATE_MAX || (!directory && mgr_step_is_lock(name, len)))
        return false;
    if (directory && decimal(s, n, &decimals, &number) && (decimals || nth == 1))
        return (!decimals || nth == 0) && decimal_growth(off, n, len, number, out);
    for (size_t at = 0; next_group(s, n, at, &g); at = g.off + g.len)
        if (!is_any_before(s, g.off, parts, &class) && !is_share(s, n, &g) && !is_extension(s, n, &g) && number_of(s, &g, &number))
            last[seen++ % MGR_STEP_NUMBERS] = g;
    if (nth >= MGR_STEP_NUMBERS || nth >= seen)
        return false;
    g = last[(seen - 1 - nth) % MGR_STEP_NUMBERS];
    found(out, MGR_STEP_GROWTH, &g, off, n, len);
    put_template(out, s, directory ? n : g.off + g.len, &g, directory);
    return number_of(s, &g, &out->step);
}

bool mgr_step_is_bare(const char *name, size_t len)
{
    size_t n = 0;

    while (n < len && (is_digit(name[n]) || (n > 0 && name[n] != '\0' && strchr("-_.:T", name[n]))))
        n++;
    return len > 0 && n == len;
}

/* 20261123: of the day, by UTC. */
static uint64_t day_number(int64_t ns)
{
    time_t t = ns / 1000000000;
    struct tm tm;

    if (!gmtime_r(&t, &tm))
        return 0;
    return (uint64_t)(tm.tm_year + 1900) * 10000 + (uint64_t)(tm.tm_mon + 1) * 100 + (uint64_t)tm.tm_mday;
}

static bool is_near(uint64_t number, int64_t made_ns, int64_t unit_ns)
{
    int64_t at = number <= INT64_MAX / (uint64_t)unit_ns ? (int64_t)number * unit_ns : INT64_MAX;

    return at >= made_ns - DAY_NS && at <= made_ns + DAY_NS;
}

bool mgr_step_is_clock(const struct mgr_step *s, int64_t made_ns)
{
    if (is_near(s->step, made_ns, 1000000000) || is_near(s->step, made_ns, 1000000) || is_near(s->step, made_ns, 1000))
        return true;
    for (int day = -1; day <= 1; day++) { /* whatever the time zone of who made it */
        uint64_t number = day_number(made_ns + day * DAY_NS);

        if (s->step == number || s->step / 10000 == number || s->step / 100000 == number || s->step / 1000000 == number ||
            (s->len == 4 && s->step == number / 10000) || (s->len == 6 && s->step == number / 100))
            return true;
    }
    return false;
}

/* -------------------------------------------------------------- growth */

bool mgr_trail_may_grow(const struct mgr_trail *t, uint64_t step, int64_t began_ns, int64_t quiet_ns)
{
    return t->n > 0 && step > t->top && began_ns >= t->began_ns && began_ns - t->began_ns >= quiet_ns;
}

/* What came before is no step of the same: the ranks of one are side by side, a job that went back begins anew. */
static bool begin(struct mgr_trail *t, uint64_t step, int64_t began_ns)
{
    *t = (struct mgr_trail){.top = step, .began_ns = began_ns, .n = 1};
    return false;
}

bool mgr_trail_add(struct mgr_trail *t, uint64_t step, int64_t began_ns, int64_t closed_ns, int64_t quiet_ns)
{
    uint64_t stride = step - t->top;
    bool even = t->n + 1 >= STEPS_EVEN && stride == t->stride;

    if (t->n > 0 && step == t->top)
        return false;
    if (!mgr_trail_may_grow(t, step, began_ns, quiet_ns) || closed_ns <= 0 || began_ns < closed_ns || began_ns - closed_ns < quiet_ns)
        return begin(t, step, began_ns);
    *t = (struct mgr_trail){.top = step, .stride = stride, .began_ns = began_ns, .n = t->n + 1};
    return even || t->n >= STEPS_ANY;
}

bool mgr_step_of(const struct mgr_name *names, size_t n, struct mgr_step *out)
{
    if (n && mgr_step_is_lock(names[0].name, names[0].len))
        return false;
    for (size_t i = n < MGR_STEP_ABOVE + 1 ? n : MGR_STEP_ABOVE + 1; i-- > 0;) {
        if (!mgr_step_word(names[i].name, names[i].len, i > 0, out))
            continue;
        out->above = (uint32_t)i;
        return true;
    }
    return false;
}

/* -------------------------------------------------------------- patterns */

struct match {
    const char *path, *end;
    const char *step; /* its digits in path; NULL: none yet */
    uint32_t left;    /* of MATCHES_MAX */
};

static bool matches(struct match *m, const char *s, const char *p);

/* {step}: the whole group. */
static bool matches_step(struct match *m, const char *s, const char *p)
{
    size_t n = digits(s, (size_t)(m->end - s));

    if (n == 0 || n > DIGITS_MAX || (s > m->path && is_digit(s[-1])))
        return false;
    if (!matches(m, s + n, p))
        return false;
    m->step = s;
    return true;
}

/* From the longest to the shortest of what a star may be; `any`: over slashes too. */
static bool matches_star(struct match *m, const char *s, const char *p, bool any)
{
    const char *to = s;

    while (to < m->end && (any || *to != '/'))
        to++;
    for (; to >= s; to--)
        if (matches(m, to, p))
            return true;
    return false;
}

static bool matches(struct match *m, const char *s, const char *p)
{
    for (;;) {
        if (m->left == 0)
            return false;
        m->left--;
        if (*p == '\0')
            return s == m->end || *s == '/'; /* a directory: all below it */
        if (p[0] == '/' && p[1] == '\0')
            return s < m->end && *s == '/';
        if (strncmp(p, "{step}", 6) == 0)
            return matches_step(m, s, p + 6);
        if (p[0] == '*' && p[1] == '*') {
            if (p[2] == '/' && matches(m, s, p + 3)) /* a/ ** /b is a/b too */
                return true;
            return matches_star(m, s, p + 2, true);
        }
        if (*p == '*')
            return matches_star(m, s, p + 1, false);
        if (s == m->end || (*p == '?' ? *s == '/' : *p != *s))
            return false;
        s++;
        p++;
    }
}

/* The component that holds the step, and the template of it. False: its name is longer than names are. */
static bool describe(const struct match *m, struct mgr_step *out)
{
    const char *from = m->step, *to = m->step;
    struct group g = {0};
    size_t off, n;

    while (from > m->path && from[-1] != '/')
        from--;
    while (to < m->end && *to != '/')
        to++;
    if ((size_t)(to - from) >= MGR_STEP_TEMPLATE_MAX)
        return false;
    n = fp_tmpname_body(from, (size_t)(to - from), &off);
    if ((size_t)(m->step - from) < off || (size_t)(m->step - from) >= off + n) { /* the pattern says that it is no temporary name */
        off = 0;
        n = (size_t)(to - from);
    }
    g.off = (size_t)(m->step - from) - off;
    g.len = digits(m->step, (size_t)(m->end - m->step));
    if (!number_of(from + off, &g, &out->step))
        return false;
    found(out, MGR_STEP_PATTERN, &g, off, n, (size_t)(to - from));
    for (const char *c = to; c < m->end; c++)
        out->above += *c == '/';
    put_template(out, from + off, to < m->end ? n : g.off + g.len, &g, to < m->end);
    return true;
}

int mgr_step_pattern(const char *path, size_t len, const char *pattern, struct mgr_step *out)
{
    struct match m = {.path = path, .end = path + len, .left = MATCHES_MAX};
    const char *p = pattern + (*pattern == '/'), *slash = strchr(pattern, '/'), *s = path;
    bool anywhere = !slash || slash[1] == '\0', yes;

    if (*p == '\0')
        return -1;
    do {
        yes = matches(&m, s, p);
        s = anywhere && !yes ? memchr(s, '/', (size_t)(m.end - s)) : NULL;
        s = s ? s + 1 : NULL;
    } while (s);
    if (!yes)
        return -1;
    if (!m.step)
        return 0;
    return describe(&m, out) ? 1 : -1;
}
