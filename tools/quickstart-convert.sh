#!/bin/bash
# make quickstart-convert, after deps and build: format conversion in transit, shown.
#
# An MPI program (tests/apps/heat3d) dumps the arrays of its ranks as they lie in memory, into a store whose mount has the aux-app convert. While it computes on, one HDF5
# file is made of each dump, with an XDMF file beside it for ParaView and VisIt. The last one is compared with what the program itself wrote as its final state,
# element by element and by another reader than ours (h5py), and a slice of it is drawn. Then the same program writes parallel HDF5 by itself, for the time that takes.
#
# Everything lies below build/quickstart-convert; the store is taken down at the end, the last HDF5 file and the picture stay. docs/CONVERT.md explains what is seen here.
#
# Environment: FP_BIN, FP_APPS, FP_BUILD (set by make); FP_RANKS, FP_GRID (cells in each dimension).
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin"

build=$(realpath -m "${FP_BUILD:-build}")
bin=$(realpath -m "${FP_BIN:-$build/bin}")
heat3d=$(realpath -m "${FP_APPS:-$build/apps}")/heat3d
mpi=tests/apps/heat3d/mpi.sh
python=/usr/bin/python3
ranks=${FP_RANKS:-4} grid=${FP_GRID:-128}
steps=80 every=20 limit_s=240

work=$build/quickstart-convert
store=$work/store mnt=$work/mnt out=$work/out logs=$work/log
run=$mnt/heat3d
schema=$work/heat3d.yaml
scratch='' start_s=$SECONDS

quickstart=quickstart-convert step_count=7
. tools/quickstart-tell.sh

# bounded WHAT COMMAND...: within limit_s; what it prints goes to the log of that name.
bounded() {
    local what=$1 rc=0
    shift
    timeout -k 5 $limit_s "$@" </dev/null >"$logs/$what.log" 2>&1 || rc=$?
    [ $rc = 0 ] || fail "$what: exit $rc (124: no end within $limit_s s)" "$logs/$what.log"
}

# shown COMMAND...: with what it prints.
shown() {
    say "\$ $(short "$1") ${*:2}"
    bounded shown "$@"
    indent <"$logs/shown.log"
}

down() { "$bin/fp-store" down --dir "$store" --mount "$mnt" >"$logs/down.log" 2>&1; }

clean_up() {
    local rc=$?
    trap - EXIT
    if [ -d "$store" ]; then down || rc=1; fi
    rm -rf "$scratch"
    exit $rc
}

rm -rf "$logs" "$out"
mkdir -p "$work" "$logs" "$out"
if [ -d "$store" ]; then down || fail "the store of an earlier run can't be taken down" "$logs/down.log"; fi
trap clean_up EXIT
trap 'exit 130' INT TERM
scratch=$(mktemp -d /tmp/fp-quickstart.XXXXXX)
export TMPDIR=$scratch # of mpirun's session

heat3d() { # WHAT ARG...
    local what=$1
    shift
    bounded "$what" "$mpi" "$ranks" "$heat3d" --n "$grid" --steps $steps --progress "$@"
}

step "what the dumps are: a schema, which the program prints (yours is written by hand, once)"
bounded schema "$mpi" "$ranks" "$heat3d" --n "$grid" --schema
cp "$logs/schema.log" "$schema"
indent <"$schema"
shown "$bin/fpctl" schema check "$(short "$schema")"

step "a store whose mount converts"
say "--auxapp 'convert from=raw to=hdf5 schema=$(short "$schema") pattern=heat3d/dump_*/rank_*.raw'"
mkdir -p "$mnt"
bounded up "$bin/fp-store" up --benefactors 2 --size 1GiB --pool 128MiB --dir "$store" --mount "$mnt" \
    --auxapp "convert from=raw to=hdf5 schema=$schema pattern=heat3d/dump_*/rank_*.raw xdmf=on"
mkdir "$run"

step "heat3d on $ranks ranks dumps $grid^3 cells every $every steps, and goes on"
heat3d dumps --checkpoint-every 0 --dump-every $every --dir "$run" --final "$out/final.raw"
grep -v 'compute:' "$logs/dumps.log" | indent

step "one HDF5 file of each dump"
shown "$bin/fpctl" conversions "$mnt" --wait --timeout=${limit_s}s
shown "$bin/fpctl" checkpoints "$run"
last=$run/dump_$(printf %04d $steps).h5
[ -s "$last" ] || fail "there is no $last" "$logs/shown.log"
shown h5ls -v "$last/temperature"

step "compared with the state that the program ended with, by h5py"
$python - "$last" "$out/final.raw" "$grid" <<'PY' | indent
import sys
import h5py, numpy
path, raw, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
with h5py.File(path, "r") as f:
    ours = f["temperature"][...]
theirs = numpy.fromfile(raw).reshape(n, n, n)
if ours.tobytes() != theirs.tobytes():
    sys.exit(f"{int((ours != theirs).sum())} of {theirs.size} elements differ")
print(f"equal: {theirs.size} elements of {path.rsplit('/', 1)[1]}, bit for bit")
PY

step "a slice of it"
cp "$last" "${last%.h5}.xmf" "$out/"
shown $python tools/h5slice.py "$out/$(basename "$last")" temperature "$out/slice.png" --scale 4

step "how long the program was held"
heat3d direct --checkpoint-every $every --dir "$run/direct"
seconds() { sed -n "s/.*heat3d: $1: .*seconds=\([0-9.]*\) MB.*/\1/p" "$logs/$2.log"; }
say "dumped, converted in transit: $(seconds dumps dumps) s for $((steps / every)) dumps"
say "parallel HDF5 by the program: $(seconds checkpoints direct) s for as many, on the same store, synced"

cat <<END

quickstart-convert: equal, in $((SECONDS - start_s)) s. What was made is in $(short "$out"):
  $(cd "$out" && echo *)
END
