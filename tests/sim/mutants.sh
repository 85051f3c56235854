#!/bin/bash
# make check-sim-mutants: each deliberate bug must be found.
#     mutants.sh <sim_store> <jobs>
# tests/sim/mutants.txt: NAME SEEDS [--drains], a line each; SEEDS is within how many it must be.
set -u
sim=$1 jobs=$2 bad=0 n=0
list=$(dirname "$0")/mutants.txt
log=$(mktemp)
trap 'rm -f "$log"' EXIT
while read -r name seeds drains; do
    case $name in '' | '#'*) continue ;; esac
    n=$((n + 1))
    if timeout 1200 "$sim" --bug "$name" $drains --runs "$seeds" --jobs "$jobs" >"$log" 2>&1; then
        bad=$((bad + 1))
        echo "  MISSED  $name: not within $seeds seeds"
    elif grep -qE '^seed [0-9]+ FAILED' "$log"; then
        echo "  found   $name: $(grep -E '^seed' "$log" | head -n 1 | cut -c1-160)"
    else
        bad=$((bad + 1))
        echo "  FAILED  $name"
        tail -n 5 "$log"
    fi
done <"$list"
# None is in the source that is not in the list; mount-folds-at-once is no bug (sim_store.c).
for name in $(grep -rhoE 'FP_BUG\("[^"]+"\)' manager benefactor client common | cut -d'"' -f2 | sort -u); do
    grep -q "^$name " "$list" || [ "$name" = mount-folds-at-once ] || { bad=$((bad + 1)) n=$((n + 1)); echo "  NOT LISTED $name"; }
done
echo "check-sim-mutants: $((n - bad)) of $n found"
[ "$bad" -eq 0 ]
