"""make install: what it puts below DESTDIR works there, and has no need of the tree it was built in."""

import json
import os
import re
import subprocess

import pytest

from harness.daemons import SLOW, is_mounted, unmount
from harness.files import assert_same, content, read_file, write_file

TOP = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
PREFIX = "/opt/fpstore"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder that PREFIX is below DESTDIR."""
    dest = tmp_path_factory.mktemp("install")
    places = [f"{name}={os.path.relpath(os.environ[var], TOP)}" for name, var in (("B", "FP_BUILD"), ("DEPS", "FP_DEPS"))
              if var in os.environ]
    run = subprocess.run(["make", "-C", TOP, "install", f"DESTDIR={dest}", f"PREFIX={PREFIX}", *places],
                         stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=50 * SLOW)
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    return f"{dest}{PREFIX}"


def run(*args, check=True):
    """From elsewhere, and with nothing in the environment that points anywhere."""
    got = subprocess.run(args, cwd="/", env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/"}, stdin=subprocess.DEVNULL,
                         capture_output=True, text=True, timeout=30 * SLOW)
    assert not check or got.returncode == 0, f"{args}: exit {got.returncode}: {got.stdout} {got.stderr}"
    return got.stdout


def test_installed_programs_run_a_store(installed, native):
    mnt, other = f"{native}/mnt", f"{native}/other"
    place = [f"--dir={native}/store", f"--mount={mnt}"]
    os.mkdir(other)
    try:
        assert os.path.samefile(f"{installed}/bin/fp-task-prolog", f"{installed}/bin/fp-job")
        assert os.path.samefile(f"{installed}/bin/fp-enter", f"{installed}/bin/fp-job")
        run(f"{installed}/bin/fp-store", "up", "--benefactors=2", "--size=256MiB", "--pool=32MiB", *place)
        status = json.loads(run(f"{installed}/bin/fp-store", "status", "--json", *place))
        for p in status["processes"]:
            assert os.readlink(f"/proc/{p['pid']}/exe").startswith(f"{installed}/bin/")
        write_file(f"{mnt}/f", content(1, 0, 3 << 20), sync=True)
        store = json.loads(run(f"{installed}/bin/fpctl", "status", mnt, "--json"))
        run(f"{installed}/sbin/mount.fuse.fpstore", store["manager"]["address"], other, "-o",
            f"rw,pool=16MiB,key={native}/store/key")
        assert_same(read_file(f"{other}/f"), content(1, 0, 3 << 20))
        run("fusermount3", "-u", other)
        run(f"{installed}/bin/fp-mount", f"--manager={store['manager']['address']}", f"--key={native}/store/key", "--pool=16MiB",
            "--auxapp=dedup", "--auxapp=compress", f"--auxapp={installed}/lib/fpstore/auxapps/examples/rot13.so", other)
        write_file(f"{other}/g", b"by aux-apps " * 100000, sync=True)
        assert_same(read_file(f"{other}/g"), b"by aux-apps " * 100000)
        run("fusermount3", "-u", other)
    finally:
        if is_mounted(other):
            unmount(other)
        run(f"{installed}/bin/fp-store", "down", *place, check=False)
    assert not is_mounted(mnt)
    assert os.listdir(native) == ["other"]


def test_an_aux_app_is_built_with_what_is_installed(installed, tmp_path):
    """With PREFIX below DESTDIR as the place where it was installed: pkg-config's sysroot."""
    env = {"PATH": f"{installed}/bin:/usr/bin:/bin", "HOME": "/", "PKG_CONFIG_PATH": f"{installed}/lib/pkgconfig",
           "PKG_CONFIG_SYSROOT_DIR": installed[:-len(PREFIX)]}
    for command in (["fpctl", "auxapp", "new", "mine"], ["make", "-C", "mine", "check"]):
        got = subprocess.run(command, cwd=tmp_path, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=50 * SLOW)
        assert got.returncode == 0, got.stdout + got.stderr
    assert " 0 failed" in got.stdout


def test_what_sites_take_names_what_is_installed(installed):
    with open(f"{installed}/share/fpstore/slurm/burst_buffer.lua") as f:
        program, = re.findall(r'FP_JOB = "(.*)"', f.read())
    assert program == f"{PREFIX}/bin/fp-job" and os.access(installed + program[len(PREFIX):], os.X_OK)


CMAKE = """
cmake_minimum_required(VERSION 3.18)
project(mine C)
find_package(fp-auxapp %s REQUIRED)
fp_add_auxapp(mine mine/mine.c)
"""


def test_an_aux_app_is_built_by_cmake(installed, tmp_path):
    """find_package finds it below its prefix, and a version that is not there is not found."""
    env = {"PATH": f"{installed}/bin:/usr/bin:/bin", "HOME": "/"}

    def cmake(version, *commands):
        (tmp_path / "CMakeLists.txt").write_text(CMAKE % version)
        for command in commands:
            got = subprocess.run(command, cwd=tmp_path, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=50 * SLOW)
            if got.returncode != 0:
                break
        return got

    configure = ["cmake", "-S.", "-Bout", f"-DCMAKE_PREFIX_PATH={installed}"]
    got = cmake("0.1", ["fpctl", "auxapp", "new", "mine"], configure, ["cmake", "--build", "out"],
                ["fp-auxtest", "out/mine.so", "--rounds", "8"])
    assert got.returncode == 0, got.stdout + got.stderr
    assert " 0 failed" in got.stdout
    symbols = subprocess.run(["nm", "-D", "--defined-only", tmp_path / "out" / "mine.so"], capture_output=True, text=True).stdout.split()
    assert symbols[2::3] == ["fp_aux_app"], "one exported entry"
    got = cmake("99", configure)
    assert got.returncode != 0 and "99" in got.stderr


FPDUMP_C = """
#include <fpdump.h>
int main(void)
{
    struct fpdump *f;
    double v = 2.5;
    if (fpdump_open("x.fpd", 0, &f) != 0)
        return 1;
    fpdump_begin(f, 0);
    fpdump_put(f, "v", FPDUMP_FLOAT64, 0, 0, 0, 0, &v);
    return fpdump_close(f) != 0;
}
"""


def test_installed_fpdump_is_all_that_its_users_need(installed, tmp_path):
    share = f"{installed}/share/fpstore/fpdump"
    (tmp_path / "x.c").write_text(FPDUMP_C)
    for command in (["gcc", "-std=c99", "-pedantic-errors", f"-I{installed}/include", "x.c", f"-L{installed}/lib", "-lfpdump", "-o", "x"], ["./x"],
                    ["g++", "-fsyntax-only", "-x", "c++", f"{installed}/include/fpdump.h"], ["gfortran", "-c", f"{share}/fpdump.f90"],
                    ["/usr/bin/python3", "-B", "-c", f"import sys; sys.path.insert(0, '{share}'); import fpdump; fpdump.Writer('y.fpd').close()"]):
        subprocess.run(command, cwd=tmp_path, check=True, timeout=50 * SLOW)
    for name in ("x.fpd", "y.fpd"):
        data = (tmp_path / name).read_bytes()
        assert data.startswith(b"FPDUMP1\n") and data[-64:].startswith(b"FPDUMPE\n")


def test_installed_files_do_not_name_the_tree(installed):
    named = []
    for folder, _, names in os.walk(installed):
        for name in names:
            with open(os.path.join(folder, name), "rb") as f:
                if TOP.encode() in f.read():
                    named.append(os.path.join(folder, name))
    assert not named


def test_every_installed_program_has_its_page(installed):
    man = f"{installed}/share/man"
    pages = {name[:-2] for folder in os.listdir(man) for name in os.listdir(f"{man}/{folder}")}
    programs = set(os.listdir(f"{installed}/bin")) | set(os.listdir(f"{installed}/sbin"))
    # Not typed by anybody: what mount(8) calls where it finds no mount.fuse.fpstore, and what Slurm calls before a task.
    assert programs - pages <= {"fpstore", "fp-task-prolog"}
    text = subprocess.run(["mandoc", "man8/mount.fuse.fpstore.8"], cwd=man, capture_output=True, text=True, timeout=20 * SLOW).stdout
    assert "fp-mount" in text
