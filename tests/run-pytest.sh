#!/bin/bash
# Runs one folder of pytest tests and closes with one line of our own:
#     run-pytest.sh <python> <name> <folder> [pytest arguments]
# The Makefile sets FP_BIN (programs under test), FP_APPS (MPI programs),
# FP_BUILD and FP_TEST_JOBS (how many tests run at a time). No test in the folder is a pass: the tree may be partly there.
#
# Some tests need root (network namespaces, disks of their own, other users). A user who has sudo gets them in a
# second run, as root; all others run as the user.
#
# Where CI is set, and no more than AGAIN tests have failed, these are run again, one after the other. One that passes then is named in the closing
# line, and fails nothing: other users of the machine may stop a process, or its disk, for longer than a test can allow for. One that fails twice has failed.
set -u
AGAIN=3
python=$1 name=$2 folder=$3
shift 3

if ! compgen -G "$folder/test_*.py" >/dev/null; then
    echo "$name: no tests in $folder"
    exit 0
fi

root=$(cd "$(dirname "$0")/.." && pwd)
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:abort_on_error=0}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-suppressions=$root/tests/tsan.supp:halt_on_error=0:second_deadlock_stack=1}
export PYTHONDONTWRITEBYTECODE=1

run=()
if [[ "${FP_BIN:-}" == */tsan/* ]] && setarch -R true 2>/dev/null; then
    run=(setarch -R)
fi

# A debugger and -s need one process: TEST_JOBS=1.
several=()
[ "${FP_TEST_JOBS:-1}" -gt 1 ] && several=(-n "$FP_TEST_JOBS")

log=$(mktemp) failed=$(mktemp)
trap 'rm -f "$log" "$failed"' EXIT
export FP_FAILED_TESTS=$failed
line=$name: bad=0

# The whole folder has a limit too; each test has its own, shorter one. SIGINT
# lets pytest take its fixtures down, so that no mount or daemon is left.
run_pytest() { # words before the command... -- pytest arguments...
    local before=()
    while [ "$1" != -- ]; do
        before+=("$1")
        shift
    done
    shift
    : >"$failed"
    call_pytest "${several[@]}" "$folder" "$@"
    local rc=$?
    line+=" $(tail -n 1 "$log" | tr -d '=' | sed 's/^ *//; s/ *$//')"
    [ "$rc" -ne 1 ] || ! run_again "$@" || rc=0
    [ "$rc" -eq 0 ] || [ "$rc" -eq 5 ] || bad=$rc # 5: nothing was selected
}

call_pytest() { # pytest arguments...; `before` and `run` stand before it
    "${before[@]}" "${run[@]}" timeout --foreground -s INT -k 60 "${FP_PYTEST_SECONDS:-2400}" \
        "$python" -m pytest -q -p no:cacheprovider --color=no "$@" </dev/null 2>&1 | tee "$log"
    return "${PIPESTATUS[0]}"
}

# 0: those that have failed were few, and all of them pass now.
run_again() { # pytest arguments of before...
    local tests
    mapfile -t tests < <(sort -u "$failed")
    [ -n "${CI:-}" ] && [ "${#tests[@]}" -gt 0 ] && [ "${#tests[@]}" -le "$AGAIN" ] || return 1
    case "${FP_BIN:-} $* " in
    */asan/* | */tsan/* | *" -x "* | *" --exitfirst "* | *" --maxfail"*) return 1 ;; # a race is seen once in a hundred runs; not all tests have run
    esac
    echo "-- again, alone: ${tests[*]##*/}"
    call_pytest "${tests[@]}" || return 1
    line+="; passed when run again, alone: ${tests[*]##*/}"
}

if [ "$(id -u)" -ne 0 ] && sudo -n true 2>/dev/null; then
    run_pytest env FP_ROOT_TESTS=no -- "$@"
    echo "-- as root:"
    line+="; as root:"
    vars=("PATH=$PATH" FP_ROOT_TESTS=only)
    for v in CI PYTHONDONTWRITEBYTECODE "${!FP_@}" "${!ASAN_@}" "${!UBSAN_@}" "${!TSAN_@}"; do
        [ -z "${!v+x}" ] || vars+=("$v=${!v}")
    done
    run_pytest sudo -n env "${vars[@]}" -- "$@"
else
    [ "$(id -u)" -eq 0 ] || echo "-- without root: sudo asks for a password, or is not there (sudo -v, then again): tests that need root are skipped"
    run_pytest -- "$@"
fi
echo "$line"
exit "$bad"
