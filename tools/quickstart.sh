#!/bin/bash
# make quickstart, after deps and build: the main job of fpstore, shown.
#
# Brings up a store of 4 benefactors on this machine, and runs an MPI program
# (tests/apps/heat3d) that writes checkpoints into it. The program is killed
# midway (SIGKILL of mpirun and all ranks), restarted from what is in the store,
# and has to end in the state of a run that was never killed and never saw the
# store, bit for bit: once with one shared HDF5 file per checkpoint, once with a
# file per process. The same runs in a native directory beside the store's own
# give the figures to compare with. The store stays up.
#
# It may be run again: a store that is up and made of these programs is used
# again; one of older programs is replaced, unless there are files in it that
# are not from here.
#
# Environment: FP_BIN, FP_APPS, FP_BUILD (set by make); FP_MOUNT (mountpoint),
# FP_RANKS, FP_GRID (cells in each dimension).
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin"

build=$(realpath -m "${FP_BUILD:-build}")
bin=$(realpath -m "${FP_BIN:-$build/bin}")
heat3d=$(realpath -m "${FP_APPS:-$build/apps}")/heat3d
mpi=tests/apps/heat3d/mpi.sh
ranks=${FP_RANKS:-4}
grid=${FP_GRID:-192}
steps=160 every=20 kill_after=80 keep=4
limit_s=240 # for what hangs: a run takes 10 s, on a machine with a load of 20 more than 40

work=$build/quickstart # everything of ours is in here
store=$work/store native=$work/native logs=$work/log
mnt=${FP_MOUNT:-}
job='' victims=() segments=() log='' store_at=() scratch='' start_s=$SECONDS

# --- telling and failing ------------------------------------------------------

quickstart=quickstart step_count=8
. tools/quickstart-tell.sh
log_of() { echo "$logs/${1// /-}.log"; }

# bounded WHAT LIMIT_S COMMAND...: what it prints goes to the log of that name.
bounded() {
    local what=$1 limit_s=$2 rc=0
    shift 2
    timeout -k 5 "$limit_s" "$@" </dev/null >"$(log_of "$what")" 2>&1 || rc=$?
    case $rc in
    0) ;;
    124 | 137) fail "$what: no end within $limit_s s" "$(log_of "$what")" ;;
    *) fail "$what: exit $rc" "$(log_of "$what")" ;;
    esac
}

# --- the store ----------------------------------------------------------------

down_line() { echo "$(short "$bin")/fp-store down --dir $(short "$store") --mount $mnt"; }
ours_is_up() { timeout 5 "$bin/fp-store" status "${store_at[@]}" >/dev/null 2>&1; }
mounted() { awk -v m="$mnt" '$2 == m { found = 1 } END { exit !found }' /proc/self/mounts; }
answers() { timeout 5 stat -f "$mnt" >/dev/null 2>&1; }
programs_sum() { cat "$bin"/fp-* | cksum; }

check_machine() {
    local p free_kb
    for p in "$bin"/fp-{store,manager,benefactor,mount} "$bin/fpctl" "$heat3d"; do
        [ -x "$p" ] || fail "$(short "$p") is not built: make all"
    done
    type -P mpirun >/dev/null || fail "mpirun is missing: make deps"
    [ -c /dev/fuse ] || fail "/dev/fuse is missing: modprobe fuse; in a container: --device /dev/fuse --cap-add SYS_ADMIN"
    free_kb=$(df -Pk "$work" | awk 'NR == 2 { print $4 }')
    [ "$free_kb" -gt 6000000 ] || fail "$work needs 6 GB of free space, there are $((free_kb / 1000)) MB"
}

choose_mount() {
    if [ -z "$mnt" ]; then
        mnt=/AggregateSSDstore
        [ "$(id -u)" = 0 ] || [ -O $mnt ] || mnt=${HOME:-/tmp}/tmp/AggregateSSDstore
    fi
    case $mnt in /*) ;; *) mnt=$PWD/$mnt ;; esac
    # What a crash left mounted cannot be looked at, so not even mkdir -p would do.
    mounted || mkdir -p "$mnt" || fail "the mountpoint $mnt cannot be made: set FP_MOUNT=DIR"
    store_at=(--dir "$store" --mount "$mnt")
}

# True when the store that is up can be used; ends with an error when it must
# not be touched.
reuse() {
    mounted && answers || return 1
    ours_is_up || fail "$mnt is in use by something else: unmount it, or set FP_MOUNT=DIR"
    if [ "$(cat "$work/programs" 2>/dev/null)" = "$(programs_sum)" ]; then return 0; fi
    if [ -n "$(find "$mnt" -mindepth 1 -maxdepth 1 ! -name heat3d | head -n 1)" ]; then
        fail "the store in $mnt runs older programs and has files that are not from here: save them, then $(down_line)"
    fi
    return 1
}

store_up() {
    if reuse; then
        say "the store of the last quickstart is up: used again"
        return
    fi
    if mounted || ours_is_up; then
        say "taking down a store of older or dead programs"
        bounded 'store down' 60 "$bin/fp-store" down "${store_at[@]}"
        if mounted; then fusermount3 -uz "$mnt" || fail "the dead mount $mnt cannot be removed: fusermount3 -uz $mnt"; fi
    fi
    rm -rf "$store"
    local t0=${EPOCHREALTIME/./}
    bounded 'store up' 60 "$bin/fp-store" up --benefactors 4 --size 1GiB "${store_at[@]}"
    mounted || fail "nothing is mounted on $mnt, though fp-store reports success" "$(log_of 'store up')"
    say "$mnt usable after $(((${EPOCHREALTIME/./} - t0) / 1000)) ms"
    programs_sum >"$work/programs"
}

# --- heat3d -------------------------------------------------------------------

# start WHAT DIR ARG...: sets job (mpirun's process) and log.
start() {
    local dir=$2
    log=$(log_of "$1")
    shift 2
    : >"$log" # it is there when run looks into it, however late the job opens it
    "$mpi" "$ranks" "$heat3d" --n "$grid" --steps "$steps" --checkpoint-every "$every" --keep "$keep" --progress \
        --dir "$dir" --final "$dir/final.raw" "$@" >"$log" 2>&1 </dev/null &
    job=$!
}

# run WHAT DIR ARG...: to its end, its output shown. Ranks that hang in a file
# system may outlive mpirun, so the output is followed in the log, not in a pipe.
run() {
    local what=$1 rc=0
    start "$@"
    timeout $limit_s tail -n +1 -s 0.1 -f --pid=$job "$log" 2>/dev/null | indent || true
    if kill -0 $job 2>/dev/null; then
        find_victims
        kill_victims
        fail "$what: no end within $limit_s s" "$log"
    fi
    wait $job || rc=$?
    job=''
    [ $rc -eq 0 ] || fail "$what: exit $rc" "$log"
}

descendants() {
    local pid
    for pid in $(pgrep -P "$1"); do
        echo "$pid"
        descendants "$pid"
    done
}

# Zombies are not alive: in a container nobody may reap them.
alive() { ps -o stat= -p "$(IFS=, && echo "$*")" | grep -qv '^Z'; }

# Who is to be killed, and what they have in shared memory: looked up first, so
# that the kill itself is one system call away.
find_victims() {
    local pid
    segments=()
    mapfile -t victims < <(descendants "$job")
    for pid in "${victims[@]}"; do
        mapfile -t -O "${#segments[@]}" segments < <(awk '$6 ~ "^/dev/shm/" { print $6 }' "/proc/$pid/maps" 2>/dev/null)
    done
    victims+=("$job")
}

# Kills mpirun and its ranks at once, and removes what they can't any more.
kill_victims() {
    kill -KILL "${victims[@]}" 2>/dev/null || true
    wait "$job" 2>/dev/null || true
    job=''
    if [ "${#segments[@]}" -gt 0 ]; then rm -f "${segments[@]}"; fi
}

# wait_for WHAT CONDITION...: while the job runs.
wait_for() {
    local what=$1 until_s=$((SECONDS + limit_s))
    shift
    until "$@"; do
        kill -0 $job 2>/dev/null || fail "$what: ended before it was to be killed" "$log"
        [ $SECONDS -lt $until_s ] || fail "$what: no checkpoint of step $kill_after within $limit_s s" "$log"
        sleep 0.01
    done
}

# True while the job writes a checkpoint; or has written it, if we were too slow.
in_checkpoint() {
    compgen -G "$1/chk_*.tmp" >/dev/null || grep -q "step $((kill_after + every)) of" "$log"
}

# run_and_kill WHAT DIR ARG...: killed in the checkpoint after that of $kill_after.
run_and_kill() {
    local what=$1 dir=$2 until_s
    start "$@"
    wait_for "$what" grep -q "step $kill_after of" "$log"
    find_victims
    wait_for "$what" in_checkpoint "$dir"
    kill_victims
    indent <"$log"
    until_s=$((SECONDS + 60))
    while alive "${victims[@]}"; do
        [ $SECONDS -lt $until_s ] || fail "$what: ranks do not die (stuck in the file system?): ${victims[*]}"
        sleep 0.05
    done
    say "SIGKILL to mpirun and $((${#victims[@]} - 1)) ranks; they left:" \
        "$(find "$dir" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort | xargs)"
}

# equal DIR: its final state is that of the reference.
equal() {
    cmp "$native/shared/final.raw" "$1/final.raw" >&2 || fail "$1: the final state differs from the reference"
    say "equal: the final state of $1 ($(stat -c %s "$1/final.raw") bytes), bit for bit"
}

# restart WHAT DIR ARG...: from the newest checkpoint in DIR, to the end.
restart() {
    run "$@" --restart
    grep -q 'restarted from .* step [1-9]' "$log" || fail "$1: it did not restart from a checkpoint" "$log"
}

# --- the report ---------------------------------------------------------------

# The median MB/s of the checkpoints of a run.
median_rate() {
    sed -n 's/.*: chk_.*, \([0-9.]*\) MB in \([0-9.]*\) s$/\1 \2/p' "$(log_of "$1")" |
        awk '$2 > 0 { print $1 / $2 }' | sort -n | awk '{ v[NR] = $1 } END { printf "%.0f", NR ? v[int((NR + 1) / 2)] : 0 }'
}

restart_rate() { sed -n 's/.*restart: .*MB\/s=\([0-9]*\).*/\1/p' "$(log_of "$1")"; }

# row TEXT NATIVE OURS
row() { awk -v t="$1" -v n="$2" -v o="$3" 'BEGIN { printf "      %-34s %8d %8d %7.2f\n", t, n, o, n ? o / n : 0 }'; }

report_figures() {
    local fs
    fs=$(df --output=fstype "$native" | tail -n 1)
    printf '      %-34s %8s %8s %7s\n' 'MB/s, medians' "$fs" store ratio
    row 'checkpoint, one shared file' "$(median_rate 'native shared')" "$(median_rate 'store shared')"
    row 'checkpoint, file per process' "$(median_rate 'native own')" "$(median_rate 'store own')"
    row 'restart, one shared file' "$(restart_rate 'native shared restarted')" "$(restart_rate 'store shared restarted')"
    row 'restart, file per process' "$(restart_rate 'native own restarted')" "$(restart_rate 'store own restarted')"
    say 'Checkpoints are synced on both sides. A native restart reads the page cache.'
    say 'One run each, to give an idea: the shared file varies by a third on any file system; make bench measures.'
}

# The newest checkpoint of a directory.
newest() { find "$1" -maxdepth 1 -name 'chk_*' ! -name '*.tmp' | sort | tail -n 1; }

show_some() {
    local what=$1 lines
    shift
    bounded "$what" 60 "$@"
    lines=$(wc -l <"$(log_of "$what")")
    say "\$ $(short "$1") ${*:2}"
    head -n 16 "$(log_of "$what")" | indent
    if [ "$lines" -gt 16 ]; then say "... $((lines - 16)) more lines"; fi
}

clean_up() {
    local rc=$?
    trap - EXIT
    if [ -n "$job" ]; then
        find_victims
        kill_victims
    fi
    rm -rf "$scratch" "$native"
    if [ $rc -ne 0 ] && [ -n "$mnt" ] && mounted; then
        echo "quickstart: the store is left as it is; to stop it: $(down_line)" >&2
    fi
    exit $rc
}

# --- what is shown ------------------------------------------------------------

mkdir -p "$work" "$logs"
trap clean_up EXIT
trap 'exit 130' INT TERM
# mpirun's session files: removed at the end, as a killed mpirun can't.
scratch=$(mktemp -d /tmp/fp-quickstart.XXXXXX)
export TMPDIR=$scratch

step "a store of 4 benefactors"
check_machine
choose_mount
store_up
there=$mnt/heat3d
rm -rf "$native" "$there" "$logs"/{native,store}-{shared,own}*.log
mkdir -p "$native" "$there"

step "the reference: heat3d, $ranks ranks, $grid^3 cells, on the native file system ($(short "$native"))"
run 'native shared' "$native/shared"
restart 'native shared restarted' "$native/shared" >/dev/null
say 'the same with a file per process'
run 'native own' "$native/own" --file-per-process
restart 'native own restarted' "$native/own" --file-per-process >/dev/null

step "the same on the store ($there)"
run 'store shared' "$there/shared"
equal "$there/shared"
run 'store own' "$there/own" --file-per-process
equal "$there/own"

step "killed in a checkpoint after step $kill_after: one shared file per checkpoint"
rm -rf "${there:?}"/*
run_and_kill 'store shared killed' "$there/shared"
step "restarted from the newest checkpoint in the store"
restart 'store shared restarted' "$there/shared"
equal "$there/shared"

step "killed and restarted: a file per process"
run_and_kill 'store own killed' "$there/own" --file-per-process
restart 'store own restarted' "$there/own" --file-per-process
equal "$there/own"

step "sizes and bandwidth"
du -h --max-depth=1 "$there" | indent
report_figures

step "where the chunks lie"
show_some 'fpctl benefactors' "$bin/fpctl" benefactors "$mnt"
show_some 'fpctl stat' "$bin/fpctl" stat "$(newest "$there/shared")"

cat <<END

quickstart: all equal, in $((SECONDS - start_s)) s. The store is up at $mnt.
  look around   ls -lR $mnt; $(short "$bin")/fpctl status $mnt; $(short "$bin")/fpctl stat $(newest "$there/shared")
  stop it       $(down_line)
END
