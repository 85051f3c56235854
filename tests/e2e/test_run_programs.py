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
    run = subprocess.run([RUNNER, "fake", "10", str(program)], capture_output=True, text=True, timeout=30,
                         env={**os.environ, "CI": ci})
    assert run.returncode == code, run.stdout + run.stderr
    assert ("which CI does not allow: test_that_needs_more" in run.stdout) == (code == 1)
