#!/bin/bash
# make fuzz: every harness with libFuzzer, FUZZ_SECONDS (600) in all, FUZZ_JOBS (2) at a time.
#     run.sh <folder of the build> <name>...
# New inputs that reach something new are kept in <folder>/corpus/<name>, from which the next run starts, beside tests/fuzz/corpus and
# tests/fuzz/regress. Prints a line per harness. A finding ends its harness: the input is kept in <folder>/found, and the command that runs
# it again is printed; the script ends with 1. Put it under tests/fuzz/regress/<name> with the mend.
set -u
out=$1
shift
here=$(cd "$(dirname "$0")" && pwd)
jobs=${FUZZ_JOBS:-2} each=$((${FUZZ_SECONDS:-600} * ${FUZZ_JOBS:-2} / $#))
[ "$each" -gt 0 ] || each=1
# A quarantine of 256 MiB is more than inputs of a kilobyte need, and makes them slow; so do long stacks of every allocation, filling it, and counting
# how rare each feature of a long input is (entropic: a third of the time).
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:quarantine_size_mb=1:thread_local_quarantine_size_kb=64:malloc_context_size=2:max_malloc_fill_size=64:allocator_may_return_null=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
mkdir -p "$out/corpus" "$out/found" "$out/log"

one() { # name
    local n=$1 log=$out/log/$1.log args=() rc
    mkdir -p "$out/corpus/$n"
    for dir in "$here/corpus/$n" "$here/regress/$n"; do
        [ ! -d "$dir" ] || args+=("$dir")
    done
    [ ! -f "$here/$n.dict" ] || args=(-dict="$here/$n.dict" "${args[@]}")
    find "$out/found" -name "$n-*" -delete
    nice timeout -k 10 $((each + 120)) "$out/tests/fuzz/fuzz_$n" -max_total_time="$each" -max_len=2048 -entropic=0 -timeout=20 -rss_limit_mb=2048 \
        -print_final_stats=1 -artifact_prefix="$out/found/$n-" "$out/corpus/$n" "${args[@]}" >"$log" 2>&1 </dev/null
    rc=$?
    local runs cov found
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    cov=$(sed -nE 's/.* cov: ([0-9]+) .*/\1/p' "$log" | tail -n 1)
    found=$(find "$out/found" -name "$n-*" -type f | head -n 1)
    if [ "$rc" -eq 0 ] && [ -z "$found" ]; then
        printf '  ok      %-12s %10s executions, %6s places reached\n' "$n" "$runs" "$cov"
        return 0
    fi
    printf '  FOUND   %-12s %s\n' "$n" "$(grep -m 1 -E 'not so:|SUMMARY:|runtime error:|\[  ERROR' "$log")"
    if [ -n "$found" ]; then
        printf '          again: %s %s\n' "$out/tests/fuzz/fuzz_$n" "$found"
    else
        printf '          no input was kept (exit %s): see %s\n' "$rc" "$log"
    fi
    return 1
}

bad=0 running=0
for name in "$@"; do
    if [ "$running" -ge "$jobs" ]; then
        wait -n || bad=$((bad + 1))
        running=$((running - 1))
    fi
    one "$name" &
    running=$((running + 1))
done
while [ "$running" -gt 0 ]; do
    wait -n || bad=$((bad + 1))
    running=$((running - 1))
done
echo "fuzz: $# harnesses, $each s each, $bad with a finding"
[ "$bad" -eq 0 ]
