"""The public POSIX test suite pjdfstest (the Rust edition): what passes on the native file system passes here.

The program is taken from FP_PJDFSTEST, PATH, or build/deps/pjdfstest; in CI it is installed there with cargo, where cargo is
and reaches its registry. Where it cannot be had the test is skipped: test_posix_*.py cover the same ground.
"""

import os
import re
import shutil
import subprocess

import pytest

VERSION = "0.2.2"
RESULT = re.compile(r"^(\S+::\S+)\s+(ok|FAILED|skipped|expected failure)\s*$", re.M)

CONFIG = """
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utime_now = {}
utimensat = {}

[settings]
naptime = 0.02
allow_remount = false

[dummy_auth]
entries = [ ["nobody", "nogroup"], ["games", "games"] ]
"""


def install(root):
    """In the test itself: its limit is longer than that of a fixture."""
    if not os.environ.get("CI") or not shutil.which("cargo"):
        return None
    run = subprocess.run(["cargo", "install", "-q", "pjdfstest", "--version", VERSION, "--root", root],
                         capture_output=True, text=True, timeout=480)
    return os.path.join(root, "bin/pjdfstest") if run.returncode == 0 else None


def find():
    root = os.path.join(os.environ.get("FP_BUILD", "build"), "deps/pjdfstest")
    for path in (os.environ.get("FP_PJDFSTEST"), shutil.which("pjdfstest"), os.path.join(root, "bin/pjdfstest")):
        if path and os.access(path, os.X_OK):
            return path
    return install(root)


def results(program, config, path):
    # It makes its own directories, and becomes other users in them.
    os.makedirs(path, exist_ok=True)
    os.chmod(path, 0o755)
    run = subprocess.run([program, "-c", config, "-p", path], capture_output=True, text=True, timeout=200)
    found = dict(RESULT.findall(run.stdout))
    assert len(found) > 300, run.stdout[-2000:] + run.stderr[-2000:]
    return found


@pytest.mark.limit(900)
def test_passes_what_the_native_file_system_passes(as_root, d, native, tmp_path):
    pjdfstest = find()
    if not pjdfstest:
        pytest.skip("pjdfstest is not installed (cargo install pjdfstest, or FP_PJDFSTEST=path)")
    config = tmp_path / "pjdfstest.toml"
    config.write_text(CONFIG)
    there, here = results(pjdfstest, config, native), results(pjdfstest, config, d)
    worse = sorted(name for name, result in here.items() if result == "FAILED" and there.get(name) == "ok")
    assert not worse, worse
    assert sum(result == "ok" for result in here.values()) > 300
