#!/bin/bash
# Is what the model of sim_scale sends to the manager what real mounts send? And does a file take no more messages than it should?
#     check.sh <sim_store> <sim_scale>
# sim_store runs real mounts and benefactors, and counts by kind. Reports that come by the second are left out on both sides, and tables, whose number
# depends on time. What is closed within 5 ms is one release: of these the inodes are counted.
set -u
store=$1 scale=$2 bad=0 dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

kinds() { grep '^count ' "$1" | grep -vE 'CLIENT_STATS|KEEPALIVE|BNF_TABLE|MSG_RELEASE'; }

compare() { # nodes ranks windows
    timeout 120 "$store" --checkpoint "$1:$2:$3" >"$dir/real" || { cat "$dir/real"; bad=1; }
    timeout 120 "$scale" --nodes "$1" --ranks "$2" --windows "$3" --counts --dir "$dir" >"$dir/model" || bad=1
    kinds "$dir/real" >"$dir/real.kinds"
    kinds "$dir/model" >"$dir/model.kinds"
    if ! grep -q 'COMMIT' "$dir/real.kinds" || ! diff "$dir/real.kinds" "$dir/model.kinds" >"$dir/diff"; then
        echo "check-scale: $1 nodes, $2 ranks, $3 windows: real mounts (<) and the model (>) differ:"
        cat "$dir/diff"
        bad=1
    fi
}

shared() { # nodes ranks windows: ranks of a node that close at the same time may share a COMMIT, so there is a bound
    local commits ranks=$(($1 * $2))

    timeout 120 "$store" --checkpoint "$1:$2:$3:shared" >"$dir/real" || { cat "$dir/real"; bad=1; }
    commits=$(awk '/manager MSG_COMMIT/ { print $4 }' "$dir/real")
    if [ "${commits:-0}" -lt "$1" ] || [ "$commits" -gt "$ranks" ] ||
        [ "$(awk '/commits: slices/ { print $5 }' "$dir/real")" != $((ranks * $3)) ]; then
        echo "check-scale: one file of $1 nodes with $2 ranks: ${commits:-no} commits"
        cat "$dir/real"
        bad=1
    fi
}

compare 16 4 8
compare 2 1 600
shared 4 4 16
# 4 messages for a file, and its part of a release; a loss of benefactors must be noticed, and nothing else taken for lost.
timeout 120 "$scale" --nodes 300 --ranks 8 --windows 16 --most 4.2 --dir "$dir" >"$dir/scale" 2>&1 || { cat "$dir/scale"; bad=1; }
timeout 120 "$scale" --nodes 100 --ranks 8 --windows 16 --shared --most 4.2 --dir "$dir" >"$dir/scale" 2>&1 || { cat "$dir/scale"; bad=1; }
[ "$bad" -eq 0 ] && echo "check-scale: the model's messages are those of real mounts"
[ "$bad" -eq 0 ]
