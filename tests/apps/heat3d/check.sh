#!/bin/bash
# Runs heat3d in every way it can be interrupted, in a directory of any file
# system, and compares each final state bit for bit with the uninterrupted one:
#     check.sh HEAT3D DIR
# DIR/heat3d-check is made for it and removed. Takes about 15 s; one line per
# case; exit 1 with the job's output when one fails.
set -euo pipefail
heat3d=$(realpath "$1")
mpi=$(dirname "$(realpath "$0")")/mpi.sh
top=$(realpath "$2")/heat3d-check
log=$(mktemp)
rm -rf "$top"
mkdir "$top"
trap 'rm -rf "$log" "$top"' EXIT

fail() {
    echo "FAILED  $case: $*"
    sed 's/^/    | /' "$log"
    exit 1
}

# run RANKS ARG...: all runs compute the same; cells divide by nothing.
run() {
    local ranks=$1
    shift
    timeout -k 5 60 "$mpi" "$ranks" "$heat3d" --n 50,41,37 --steps 60 --progress "$@" >"$log" 2>&1 </dev/null
}

good() { run "$@" || fail "exit $?: $*"; }
dies() { if run "$@"; then fail "was not killed: $*"; fi; }
says() { grep -q -- "$1" "$log" || fail "does not say '$1'"; }
same() {
    cmp "$top/whole.raw" "$top/$case.raw" >>"$log" 2>&1 || fail "the final state differs"
    echo "ok      $case"
}

# flip FILE OFFSET: inverts one byte.
flip() {
    local byte
    byte=$(od -An -tu1 -j "$2" -N1 "$1")
    # shellcheck disable=SC2059  # the format is the byte
    printf "\\x$(printf %x $((byte ^ 255)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

case=whole
good 1 --checkpoint-every 0 --final "$top/whole.raw" --verify
echo "ok      $case"

for kind in shared own; do
    how=()
    if [ $kind = own ]; then how=(--file-per-process); fi

    case=$kind-uninterrupted dir=$top/$kind-uninterrupted
    good 4 --dir "$dir" "${how[@]}" --final "$top/$case.raw" --verify
    same

    for at in 35 30:checkpoint; do
        case=$kind-killed-${at/:/-} dir=$top/$case
        dies 4 --dir "$dir" "${how[@]}" --kill-at-step $at
        good 4 --dir "$dir" "${how[@]}" --restart --final "$top/$case.raw" --verify
        if [ $at = 35 ]; then says 'restarted from .*, step 30,'; else says 'restarted from .*, step 20,'; fi
        same
    done

    for ranks in 1 3 6; do
        case=$kind-restarted-on-$ranks
        name=chk_0030
        if [ $kind = shared ]; then name=chk_0030.h5; fi
        good $ranks --dir "$top/$case" --restart "$top/$kind-uninterrupted/$name" --final "$top/$case.raw"
        says 'written by 4 ranks'
        same
    done

    case=$kind-damaged dir=$top/$kind-uninterrupted
    a=$dir/chk_0060.h5 b=$dir/chk_0050.h5 c=$dir/chk_0040.h5
    if [ $kind = own ]; then a=$dir/chk_0060/rank_2.h5 b=$dir/chk_0050/rank_3.h5 c=$dir/chk_0040/rank_0.h5; fi
    flip "$a" $(($(stat -c %s "$a") - 8888))
    truncate -s 100 "$b"
    flip "$c" "$(grep -obUa rank_sums "$c" | head -n 1 | cut -d: -f1)"
    good 4 --dir "$dir" "${how[@]}" --restart --final "$top/$case.raw"
    says 'chk_0060.* is damaged (check-sum)'
    says 'chk_0050.* is damaged'
    says 'chk_0040.* is damaged (attributes)'
    says 'restarted from .*, step 30,'
    same

    case=$kind-keep
    good 2 --dir "$top/$case" "${how[@]}" --keep 2 --final "$top/$case.raw"
    if [ "$(find "$top/$case" -mindepth 1 -maxdepth 1 | wc -l)" != 2 ]; then fail "does not keep 2"; fi
    same
done
