"""The public POSIX test suite pjdfstest (the Rust edition): what passes on the native file system passes here.

The program is taken from FP_PJDFSTEST, PATH, or build/deps/pjdfstest, where make deps installs it if cargo reaches its
registry. Where it cannot be had the test is skipped: test_posix_*.py cover the same ground.
"""

import os
import re
import shutil
import subprocess

import pytest

from harness.daemons import SLOW

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


def find():
    ours = os.path.join(os.environ.get("FP_DEPS", "build/deps"), "pjdfstest/bin/pjdfstest")
    for path in (os.environ.get("FP_PJDFSTEST"), shutil.which("pjdfstest"), ours):
        if path and os.access(path, os.X_OK):
            return path
    return None


def results(program, config, path):
    # It makes its own directories, and becomes other users in them.
    os.makedirs(path, exist_ok=True)
    os.chmod(path, 0o755)
    run = subprocess.run([program, "-c", config, "-p", path], capture_output=True, text=True, timeout=200 * SLOW)
    found = dict(RESULT.findall(run.stdout))
    assert len(found) > 300, run.stdout[-2000:] + run.stderr[-2000:]
    return found


@pytest.mark.limit(420)
def test_passes_what_the_native_file_system_passes(as_root, d, native, tmp_path):
    pjdfstest = find()
    if not pjdfstest:
        pytest.skip("pjdfstest is not installed (make deps, or FP_PJDFSTEST=path)")
    config = tmp_path / "pjdfstest.toml"
    config.write_text(CONFIG)
    there, here = results(pjdfstest, config, native), results(pjdfstest, config, d)
    worse = sorted(name for name, result in here.items() if result == "FAILED" and there.get(name) == "ok")
    assert not worse, worse
    assert sum(result == "ok" for result in here.values()) > 300
