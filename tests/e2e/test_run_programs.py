"""The runner of the C test programs: where CI is set, a test that is skipped is a failure; elsewhere it is not."""

import os
import subprocess

import pytest

RUNNER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "run-programs.sh")
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
