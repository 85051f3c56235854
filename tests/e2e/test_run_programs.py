"""The runners of tests: where CI is set, a C program with a test that is skipped is a failure, elsewhere it is not; what failed is said at the end."""

import os
import subprocess

import pytest

TESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
RUNNER, PARTS = (os.path.join(TESTS, name) for name in ("run-programs.sh", "run-parts.sh"))
SAYS = {"skipped": "[  SKIPPED ] test_that_needs_more\n[==========] 1 test(s) run.\n[  SKIPPED ] 1 test(s), listed below:\n",
        "ok": "[       OK ] test_that_runs\n"}


@pytest.mark.parametrize("ci, what, code", [("true", "skipped", 1), ("true", "ok", 0), ("", "skipped", 0), ("false", "skipped", 0)])
def test_a_skip_fails_where_ci_is_set(tmp_path, ci, what, code):
    program = tmp_path / "test_fake"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{SAYS[what]}END\n")
    program.chmod(0o755)
    run = subprocess.run([RUNNER, "fake", "10", "2", str(program)], capture_output=True, text=True, timeout=30,
                         env={**os.environ, "CI": ci})
    assert run.returncode == code, run.stdout + run.stderr
    assert ("which CI does not allow: test_that_needs_more" in run.stdout) == (code == 1)


def test_several_at_a_time_and_each_is_told(tmp_path):
    """Two that wait for each other: one after the other they would not end. A third fails, and its output is shown."""
    fakes = [("test_a", "touch a; until [ -e b ]; do sleep 0.05; done; echo '[       OK ] a'"),
             ("test_b", "touch b; until [ -e a ]; do sleep 0.05; done; echo '[       OK ] b'"), ("test_c", "echo so it is; exit 3")]
    for name, does in fakes:
        (tmp_path / name).write_text(f"#!/bin/sh\n{does}\n")
        (tmp_path / name).chmod(0o755)
    run = subprocess.run([RUNNER, "fake", "20", "2", *(f"./{name}" for name, _ in fakes)], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert run.returncode == 1, run.stdout + run.stderr
    assert "FAILED  test_c" in run.stdout and "| so it is" in run.stdout
    assert run.stdout.splitlines()[-1].startswith("fake: 2 of 3 programs passed, 2 tests, "), run.stdout


def test_make_check_closes_with_what_failed(tmp_path):
    """Whoever keeps the end of the output only has the names and the places."""
    make = tmp_path / "make"
    make.write_text(f"""#!/bin/sh
case "$*" in
*all*) exit 0 ;;
*style*) echo "style: well" ;;
*unit*) exec {RUNNER} check-unit 10 1 {tmp_path}/test_fake ;;
*e2e*) echo "FAILED tests/e2e/test_x.py::test_y[a b] - assert 0"; echo "check-e2e: 1 failed"; exit 1 ;;
esac
""")
    (tmp_path / "test_fake").write_text("#!/bin/sh\ncat <<'END'\n[  ERROR   ] --- 0x2 != 0x1\n[   LINE   ] --- test_fake.c:174: error: Failure!\n"
                                        "[  FAILED  ] test_it\n[  FAILED  ] 1 test(s), listed below:\n[  FAILED  ] test_it\nEND\nexit 1\n")
    for f in (make, tmp_path / "test_fake"):
        f.chmod(0o755)
    run = subprocess.run([PARTS, str(make), "2", "style", "check-unit", "check-e2e"], capture_output=True, text=True, timeout=60, env={**os.environ, "B": str(tmp_path)})
    assert run.returncode == 1
    closing = [line.strip() for line in run.stdout.split("== make check\n")[1].splitlines()]
    assert closing[0] == "ok      style: well" and closing[1].startswith("FAILED  check-unit: 0 of 1 programs passed")
    assert closing[2:] == ["[  ERROR   ] --- 0x2 != 0x1", "[   LINE   ] --- test_fake.c:174: error: Failure!", "[  FAILED  ] test_it",
                           "FAILED  check-e2e: 1 failed", "FAILED tests/e2e/test_x.py::test_y[a b] - assert 0"]
