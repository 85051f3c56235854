"""Runs the commands that README.md and the man pages show, as they stand there.

What is marked is run: `<!-- run -->` on the line above a fenced block, `.\\" run` on the line above .EX. With `run with manager`, `run
with store` (manager and two benefactors) or `run with mount` (and mounted on /AggregateSSDstore) that much is started before.

Each example gets a machine of its own, made of namespaces: a root file system that is an overlay over the real one, so that /etc/fpstore,
/ssd and /AggregateSSDstore are what they are in the text; a network with a host `node0`; its own processes, which end with it; programs
installed as `make install` does. So examples can neither disturb the machine nor each other, and nothing is left of them.
"""

import glob
import os
import re
import shutil
import subprocess

import pytest

from harness.daemons import BIN, SLOW
from harness.mpijob import APPS

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PREPARE = {"": 0, "manager": 1, "store": 2, "mount": 3}
SECONDS = 50

MACHINE = r"""
set -euE
trap 'exit 77' ERR # no such machine to be had here
top=$1 bin=$2 script=$3 header=$4
while read -r _ point type _; do # what other tests have mounted would stay here when they unmount it
    case $type in fuse*) umount -l "$point" || true ;; esac
done </proc/self/mounts
ip link set lo up
mount -t tmpfs none "$top"
mkdir "$top/upper" "$top/work" "$top/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$top/upper,workdir=$top/work" "$top/root"
cd "$top/root"
for d in dev sys; do mount --rbind /$d $d; done
mount -t proc proc proc
mount -t tmpfs none run
mount -t tmpfs none tmp
mkdir -p usr/local/bin usr/local/sbin ssd root home
for p in "$bin"/fp*; do cp "$p" usr/local/bin/; done
mkdir -p usr/local/lib/fpstore usr/local/include/fp
cp -r "$bin/../lib/auxapps" usr/local/lib/fpstore/
cp "$header" usr/local/include/fp/
ln -sf fp-mount usr/local/bin/fpstore
ln -sf ../bin/fp-mount usr/local/sbin/mount.fuse.fpstore
echo '127.0.0.1 localhost node0' > etc/hosts
rm -rf etc/fpstore var/lib/fpstore AggregateSSDstore root/store root/ckpt
cp "$script" tmp/example.sh
exec chroot . /usr/bin/env -i HOME=/root USER=root TERM=dumb LC_ALL=C.UTF-8 \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin bash /tmp/example.sh
"""

# What `run with …` starts. Daemons in an example are started with & and need a moment: what uses them waits by itself, but fpctl.
START = [r"""
ready() { until [ -s "/tmp/ready-$1" ]; do sleep 0.05; done; }
mkdir -p /etc/fpstore /var/lib/fpstore
(umask 077; openssl rand -hex 32 > /etc/fpstore/key)
fp-manager --dir /var/lib/fpstore/manager --ready-fd 9 9>/tmp/ready-0 &
ready 0
""", r"""
for i in 1 2; do
    fp-benefactor --manager node0:7420 --dir /ssd/$i --size 128MiB --ready-fd 9 9>/tmp/ready-$i &
done
ready 1
ready 2
""", r"""
mkdir -p /AggregateSSDstore
fp-mount --manager node0:7420 --pool 64MiB
"""]


def plain(roff):
    """The text of an .EX block as man shows it."""
    for escape, char in ((r"\-", "-"), (r"\(aq", "'"), (r"\(dq", '"'), (r"\(ha", "^"), (r"\(ti", "~"), (r"\&", ""), (r"\e", "\\")):
        roff = roff.replace(escape, char)
    return re.sub(r"\\f.", "", roff)


def examples():
    for name in ["README.md"] + sorted(glob.glob("docs/*.md", root_dir=TOP)):
        with open(os.path.join(TOP, name), encoding="utf-8") as f:
            text = f.read()
        for match in re.finditer(r"^<!-- run(?: with (\w+))? -->\n```sh\n(.*?)^```$", text, re.M | re.S):
            yield name, text[:match.start()].count("\n") + 3, match.group(1) or "", match.group(2)
    for name in sorted(glob.glob("docs/man/*.in", root_dir=TOP)):
        with open(os.path.join(TOP, name), encoding="utf-8") as f:
            text = f.read()
        for match in re.finditer(r'^\.\\" run(?: with (\w+))?\n\.EX\n(.*?)^\.EE$', text, re.M | re.S):
            yield name, text[:match.start()].count("\n") + 3, match.group(1) or "", plain(match.group(2))


EXAMPLES = list(examples())


def test_there_are_examples():
    assert {name for name, _, _, _ in EXAMPLES} >= {"README.md", "docs/man/fp-mount.8.in", "docs/man/fpctl.1.in"}
    for name, line, prepare, _ in EXAMPLES:
        assert prepare in PREPARE, f"{name}:{line}: run with {prepare}"


def script_of(prepare, commands):
    start = "".join(START[:PREPARE[prepare]])
    # Daemons of an example are alive at its end, unless it stops them; everything then ends with the namespace.
    alive = "" if " stop\n" in commands else "for job in $(jobs -p); do kill -0 $job; done"
    return f"""set -eu -o pipefail
exec 2>&1
{start}
set -x
{commands}
{{ set +x; }} 2>/dev/null
sleep 1
{alive}
"""


@pytest.mark.parametrize("name,line,prepare,commands", EXAMPLES, ids=[f"{n}:{l}" for n, l, _, _ in EXAMPLES])
def test_example(name, line, prepare, commands, tmp_path, as_root):
    for program in ("unshare", "chroot", "ip"):
        if not shutil.which(program):
            pytest.skip(f"{program} is not installed")
    machine, script, top = tmp_path / "machine.sh", tmp_path / "example.sh", tmp_path / "top"
    machine.write_text(MACHINE)
    script.write_text(script_of(prepare, commands))
    top.mkdir()
    run = subprocess.run(
        ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--propagation", "private", "bash", machine, top, BIN, script,
         os.path.join(TOP, "include/fp/auxapp.h")],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS * SLOW)
    if run.returncode == 77 or run.stdout.startswith("unshare: "):
        pytest.skip(f"a machine of its own cannot be had here: {run.stdout.strip()}")
    shown = f"{name}:{line}\n{run.stdout}"
    assert run.returncode == 0, shown
    assert not re.search(r"^fp[a-z-]*: ERROR: ", run.stdout, re.M), shown


@pytest.mark.parametrize("page", sorted(glob.glob("docs/man/*.in", root_dir=TOP)))
def test_man_page(page, tmp_path):
    """The page with its options filled in has no warnings, and an entry for each option."""
    fill = os.path.join(TOP, "docs/man/fill.sh")
    programs = APPS if page == "docs/man/fpior.1.in" else BIN # an MPI program
    text = subprocess.run([fill, programs, "1.2.3", os.path.join(TOP, page)], capture_output=True, text=True, check=True, timeout=20).stdout
    out = tmp_path / os.path.basename(page)[:-3]
    out.write_text(text)
    assert not re.search(r"^@|@version@", text, re.M), "something was not filled in"
    for program in re.findall(r"^@options (\S+)@$", open(os.path.join(TOP, page)).read(), re.M):
        listed = subprocess.run([os.path.join(programs, program), "--help"], capture_output=True, text=True, timeout=10).stdout
        for option in re.findall(r"^  (--[a-z-]+)", listed, re.M):
            assert option.replace("-", r"\-") in text, option
    lint = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", out], capture_output=True, text=True, timeout=20)
    assert not lint.stdout, lint.stdout


@pytest.mark.parametrize("program", ["fp-mount", "fp-benefactor"])
def test_fp_conf_of_the_man_page_is_understood(program, tmp_path):
    with open(os.path.join(TOP, "docs/man/fp.conf.5.in")) as f:
        example = plain(re.search(r"^\.EX\n(.*?)^\.EE$", f.read(), re.M | re.S).group(1))
    assert f"[{program[3:]}]" in example
    conf, key, place = tmp_path / "fp.conf", tmp_path / "key", tmp_path / "place"
    conf.write_text(example)
    key.write_text("0123456789abcdef" * 4 + "\n")
    key.chmod(0o600)
    place.mkdir()
    args = [place] if program == "fp-mount" else ["--dir", place, "--size=64MiB"]
    run = subprocess.run([os.path.join(BIN, program), "--config", conf, "--key", key, "--start-timeout=100ms", "--manager=127.0.0.1:1", *args],
                         capture_output=True, text=True, timeout=20 * SLOW)
    assert run.returncode == 1 and "127.0.0.1:1" in run.stderr, "not the options, but the manager, is what is wrong: " + run.stderr
