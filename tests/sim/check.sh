#!/bin/bash
# make check-sim: some seeds twice, which must do the same, then many, for some minutes.
#     check.sh <sim_store> <jobs>
# SIM_SEED, SIM_RUNS and SIM_SECONDS say where to begin, how many seeds at most, and for how long.
set -u
sim=$1 jobs=$2
seed=${SIM_SEED:-1} runs=${SIM_RUNS:-3000} seconds=${SIM_SECONDS:-180}
umask 022

bad=0 log=$(mktemp) null=$(stat -c '%a %u' /dev/null)
trap 'rm -f "$log"' EXIT
for s in 3 5 8; do
    timeout 300 "$sim" --seed $s --twice >"$log" 2>&1 || { bad=1; cat "$log"; }
done
timeout $((seconds + 400)) "$sim" --seed "$seed" --runs "$runs" --jobs "$jobs" --seconds "$seconds" >"$log" 2>&1 || bad=1
cat "$log"
grep -qE '^[0-9]+ seeds' "$log" || bad=1
if [ "$(stat -c '%a %u' /dev/null)" != "$null" ]; then # of this machine, not of the simulated ones
    echo "/dev/null was $null before, and is $(stat -c '%a %u' /dev/null)"
    bad=1
fi
echo "check-sim: $(grep -E '^[0-9]+ seeds' "$log")"
[ "$bad" -eq 0 ]
