#!/bin/bash
# Runs C test programs, some at a time, each with a time limit, and closes with
# one line that counts tests. Called by make check-unit and check-fuzz:
#     run-programs.sh <name> <seconds> <jobs> <program>...
# The output of a program is shown only when it fails (V=1: always). With CI=true
# a test that is skipped fails its program: what does not run is not green.
set -u
name=$1 limit_s=$2 jobs=$3
shift 3
umask 022

root=$(cd "$(dirname "$0")/.." && pwd)
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:abort_on_error=0}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-suppressions=$root/tests/tsan.supp:halt_on_error=0:second_deadlock_stack=1}

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
ok=0 bad=0 tests=0 failed=() start_s=$SECONDS

# TSan of gcc 12 cannot start under the address randomisation of new kernels.
run=(timeout -k 10 "$limit_s")
if [[ "$*" == */tsan/* ]] && setarch -R true 2>/dev/null; then
    run=(setarch -R "${run[@]}")
fi

# Leaves exit code and seconds beside the log of the program.
run_one() { # program
    local t_s=$SECONDS log=$logs/${1##*/}
    "${run[@]}" "$1" >"$log" 2>&1 </dev/null
    echo "$? $((SECONDS - t_s))" >"$log.end"
}

# One line of a program that has ended, and its output if it failed.
tell() { # program
    local prog=${1##*/} log=$logs/${1##*/} rc took_s n why skipped
    read -r rc took_s <"$log.end"
    n=$(grep -cE '^\[ +OK +\]' "$log")
    tests=$((tests + n))
    why="exit $rc"
    [ "$rc" -eq 124 ] && why="no end within ${limit_s} s"
    if [ "$rc" -eq 0 ] && grep -qE 'WARNING: ThreadSanitizer|ERROR: AddressSanitizer|runtime error:' "$log"; then
        rc=1 why="sanitizer report"
    fi
    skipped=$(sed -nE 's/^\[ +SKIPPED +\] ([^ ]+)$/\1/p' "$log" | sort -u | tr '\n' ' ')
    if [ "$rc" -eq 0 ] && [ -n "$skipped" ] && [ "${CI:-false}" != false ] && [ "${CI:-0}" != 0 ]; then
        rc=1 why="skipped, which CI does not allow: ${skipped% }"
    fi
    if [ "$rc" -eq 0 ]; then
        ok=$((ok + 1))
        printf '  ok      %-32s %4d tests %3d s\n' "$prog" "$n" "$took_s"
        if [ -n "${V:-}" ]; then cat "$log"; fi
    else
        bad=$((bad + 1)) failed+=("$prog")
        printf '  FAILED  %-32s %s\n' "$prog" "$why"
        sed 's/^/    | /' "$log" | tail -n 200
    fi
}

# In the order of their ends.
tell_ended() {
    local prog left=()
    for prog in "${running[@]}"; do
        if [ -e "$logs/${prog##*/}.end" ]; then tell "$prog"; else left+=("$prog"); fi
    done
    running=("${left[@]}")
}

running=()
for prog in "$@"; do
    while [ "${#running[@]}" -ge "$jobs" ]; do
        wait -n
        tell_ended
    done
    run_one "$prog" &
    running+=("$prog")
done
wait
tell_ended

line="$name: $ok of $((ok + bad)) programs passed, $tests tests, $((SECONDS - start_s)) s"
[ "$bad" -gt 0 ] && line+="; failed: ${failed[*]}"
echo "$line"
[ "$bad" -eq 0 ]
