#!/bin/bash
# make check: builds, then runs each part even when one before it failed, and
# repeats the closing line of every part at the end.
#     run-parts.sh "<make command>" <jobs> <part>...
set -u
make=$1 jobs=$2
shift 2
logs=${B:-build}/log
mkdir -p "$logs"
# The jobserver of the make above us is not ours to use.
unset MFLAGS
MAKEFLAGS=$(printf '%s' "${MAKEFLAGS:-}" | sed -E 's/--jobserver-[a-z]+=[^ ]+//g; s/(^| )-j[0-9]*//g')
export MAKEFLAGS

$make -j"$jobs" all || exit 1
$make -j"$jobs" FAULT=1 all unit-tests sim-tests fuzz-tests || exit 1

# What failed, and where, as cmocka and pytest say it: who sees the end of the output only has to know it, too.
why='^ *\| (\[  ERROR   \]|\[   LINE   \]|\[  FAILED  \] [a-z_0-9]+$)|^(FAILED|ERROR) [^ ]+\.py'

bad=0 lines=()
for part in "$@"; do
    echo "== $part"
    rm -f "$logs/$part.log" # may be another user's
    $make "$part" 2>&1 | tee "$logs/$part.log"
    rc=${PIPESTATUS[0]}
    last=$(grep -E "^$part: " "$logs/$part.log" | tail -n 1)
    if [ "$rc" -eq 0 ]; then
        lines+=("  ok      ${last:-$part}")
    else
        lines+=("  FAILED  ${last:-$part: exit $rc}")
        mapfile -t -O "${#lines[@]}" lines < <(grep -E "$why" "$logs/$part.log" | awk '!seen[$0]++' | sed 's/^ *| //; s/^/            /' | head -n 20)
        bad=$((bad + 1))
    fi
done
echo "== make check"
printf '%s\n' "${lines[@]}"
[ "$bad" -eq 0 ]
