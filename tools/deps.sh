#!/bin/bash
# Set-up of a build machine: make deps. Fast when nothing is missing, harmless
# to repeat. Knows Debian 12 and later; elsewhere it says what is missing.
#
# One table decides: each line is a thing the build or the tests look for, and
# the Debian package that has it. What is not found is installed by apt (as
# root, or through sudo), and looked for again. A libfuse that is too old is
# built by tools/libfuse.sh into DEPS, which needs no root; the apt sources of
# the machine are only read.
#
#     deps.sh [tests|fuzz]    "tests": also what only make check wants, pjdfstest, GlusterFS, Slurm and sshd; "fuzz": also clang, for make fuzz
#
# Environment: DEPS (folder for libfuse), FUSE_MIN (version).
set -u
cd "$(dirname "$0")/.."
DEPS=${DEPS:-build/deps}
FUSE_MIN=${FUSE_MIN:-3.17.2}
export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin"

# kind   what                          Debian package
table='
cmd      gcc                           build-essential
cmd      make                          build-essential
cmd      dpkg-source                   dpkg-dev
cmd      pkg-config                    pkg-config
cmd      git                           git
cmd      protoc-c                      protobuf-c-compiler
pc       libuv                         libuv1-dev
pc       openssl>=3.0                  libssl-dev
pc       libprotobuf-c                 libprotobuf-c-dev
pc       sqlite3                       libsqlite3-dev
pc       libxxhash                     libxxhash-dev
pc       jansson                       libjansson-dev
pc       hwloc                         libhwloc-dev
pc       libzstd                       libzstd-dev
pc       liblz4                        liblz4-dev
pc       yaml-0.1                      libyaml-dev
pc       zlib                          zlib1g-dev
pc       cmocka                        libcmocka-dev
cmd      sqlite3                       sqlite3
cmd      openssl                       openssl
cmd      fusermount3                   fuse3
cmd      mount.fuse3                   fuse3
file     /usr/bin/python3              python3
python   pytest                        python3-pytest
python   xdist                         python3-pytest-xdist
cmd      mpicc                         libopenmpi-dev
cmd      mpirun                        openmpi-bin
cmd      h5pcc                         libhdf5-openmpi-dev
pc       pnetcdf                       libpnetcdf-dev
pc       netcdf-mpi                    libnetcdf-mpi-dev
cmd      gfortran                      gfortran
python   mpi4py                        python3-mpi4py
file     /usr/lib/python3/dist-packages/h5py/_debian_h5py_mpi  python3-h5py-mpi
file     /usr/lib/python3/dist-packages/h5py/__init__.py       python3-h5py
cmd      h5dump                        hdf5-tools
cmd      setfattr                      attr
cmd      ip                            iproute2
cmd      mount                         mount
cmd      unshare                       util-linux
cmd      ps                            procps
cmd      mandoc                        mandoc
cmd      ctags                         universal-ctags
cmd      dmsetup                       dmsetup
cmd      cmake                         cmake
cmd      mkfs.ext4                     e2fsprogs
'

# pjdfstest is in no distribution: tools/pjdfstest.sh builds it with a cargo of at least this version. Debian 12
# has a newer one beside its own, for browsers.
CARGO_MIN=1.85

# Wanted only by make check: a parallel file system that tests drain to, a batch system whose jobs tests run, and sshd for nodes without one. Not in each Debian; without
# them those tests are skipped, which only CI takes for a failure.
table_tests='
cmd      glusterd                      glusterfs-server
cmd      slurmctld                     slurmctld
cmd      slurmd                        slurmd
cmd      srun                          slurm-client
file     /usr/include/slurm/spank.h    libslurm-dev
cmd      munged                        munge
cmd      sshd                          openssh-server
cmd      ssh-keygen                    openssh-client
cmd      systemd-analyze               systemd
python   pip                           python3-pip
python   netCDF4                       python3-netcdf4
'

# Wanted only where libfuse has to be built.
table_libfuse='
cmd      meson                         meson
cmd      ninja                         ninja-build
pc       liburing                      liburing-dev
pc       numa                          libnuma-dev
'

# Wanted only by make fuzz: clang with libFuzzer and the sanitizers.
table_fuzz='
cmd      clang                         clang
file     /usr/share/doc/libclang-rt-dev libclang-rt-dev
'

say() { echo "deps: $*"; }

have() { # kind what
    case $1 in
    cmd) command -v "$2" >/dev/null ;;
    file) [ -e "$2" ] ;;
    pc) pkg-config --exists "${2/>=/ >= }" 2>/dev/null ;;
    python) /usr/bin/python3 -c "import importlib.util as u, sys; sys.exit(not u.find_spec('$2'))" 2>/dev/null ;;
    esac
}

missing() { # table: prints its lines that are not satisfied
    local kind what package
    while read -r kind what package; do
        [ -z "$kind" ] || have "$kind" "$what" || echo "$kind $what $package"
    done <<<"$1"
}

# Asks the system's libfuse only: pkg-config without our own folder.
system_fuse_ok() { PKG_CONFIG_PATH='' pkg-config --exists "fuse3 >= $FUSE_MIN" 2>/dev/null; }
own_fuse_ok() { PKG_CONFIG_PATH=$DEPS/libfuse/lib/pkgconfig pkg-config --exists "fuse3 >= $FUSE_MIN" 2>/dev/null; }

# One of our own, from before it was built with custom I/O (tools/libfuse.sh). Its absence is an error message in the library.
own_fuse_old() { grep -qs 'custom io is not enabled' "$DEPS/libfuse/lib/libfuse3.a"; }

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

apt() {
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y \
        -o DPkg::Lock::Timeout=600 -o Dpkg::Use-Pty=0 "$@" </dev/null
}

candidate() { # package: the version that apt would install
    apt-cache policy "$1" 2>/dev/null | awk '/Candidate:/ && $2 != "(none)" {print $2}'
}

cargo_ok() {
    local version
    version=$(cargo --version 2>/dev/null | awk '{print $2}')
    [ "$(printf '%s\n' "$CARGO_MIN" "${version:-0}" | sort -V | head -n 1)" = "$CARGO_MIN" ]
}

# Without it one test of make check has nothing to run; everything else works. So this never fails.
install_pjdfstest() {
    local package version
    [ ! -x "$DEPS/pjdfstest/bin/pjdfstest" ] || return 0
    if ! cargo_ok && ! command -v cargo >/dev/null; then
        for package in cargo cargo-web; do
            version=$(candidate $package)
            [ -n "$version" ] && dpkg --compare-versions "$version" ge "$CARGO_MIN" || continue
            install_packages $package && break
        done
    fi
    if ! cargo_ok; then
        say "pjdfstest is not installed: it needs cargo $CARGO_MIN or newer"
        return 0
    fi
    DEPS=$DEPS tools/pjdfstest.sh || true
}

# ADIOS2, of which Debian 12 has no package: PyPI's has the C library that fp-convert loads. Tests of from=adios alone.
ADIOS2_PY=2.12.1.1001
install_adios2() {
    local to=$DEPS/adios2
    if [ -d "$to/adios2" ] || have python adios2; then return 0; fi
    say "installing adios2 $ADIOS2_PY from PyPI"
    mkdir -p "$DEPS/log"
    /usr/bin/python3 -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --only-binary :all: --target "$to.new" \
        "adios2==$ADIOS2_PY" >"$DEPS/log/adios2.log" 2>&1 </dev/null && rm -rf "$to" && mv "$to.new" "$to" && return 0
    rm -rf "$to.new"
    say "adios2 is not installed: its log is in $DEPS/log/adios2.log"
}

install_tests() {
    local kind what package
    while read -r kind what package; do
        if [ -z "$(candidate "$package")" ] || ! install_packages "$package"; then
            say "$package is not installed: tests that need $what are skipped"
        fi
    done < <(missing "$table_tests")
}

explain() { # lines of missing
    local kind what package
    while read -r kind what package; do
        case $kind in
        cmd) say "  command $what" ;;
        pc) say "  library $what (pkg-config module, with headers)" ;;
        python) say "  module $what for /usr/bin/python3" ;;
        file) say "  file $what" ;;
        esac
    done <<<"$1"
}

is_debian() {
    local ID='' VERSION_ID=''
    [ -r /etc/os-release ] && . /etc/os-release
    # Testing and unstable have no VERSION_ID.
    [ "$ID" = debian ] && [ "${VERSION_ID:-99}" -ge 12 ]
}

install_packages() { # package...
    local log=$DEPS/log/apt.log
    if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
        say "neither root nor sudo; run this as root, then make deps again:"
        say "  apt-get install --no-install-recommends $*"
        return 1
    fi
    mkdir -p "$DEPS/log"
    say "installing $# packages by apt: $*"
    # A list that is there may be old: one more try after an update.
    if ! apt install --no-install-recommends "$@" >"$log" 2>&1; then
        if ! apt update >>"$log" 2>&1 ||
            ! apt install --no-install-recommends "$@" >>"$log" 2>&1; then
            tail -n 20 "$log"
            say "apt could not install everything; its output is in $log"
            return 1
        fi
    fi
}

main() {
    local left packages version
    [ "${1:-}" != fuzz ] || table+=$table_fuzz
    left=$(missing "$table")
    if ! is_debian; then
        system_fuse_ok || own_fuse_ok || left+=$'\n'"pc fuse3>=$FUSE_MIN -"
        left=$(sed '/^$/d' <<<"$left")
        if [ -n "$left" ]; then
            say "this is not Debian 12 or later; please install what is missing:"
            explain "$left"
            return 1
        fi
    fi
    if [ -n "$left" ]; then
        packages=$(awk '{print $3}' <<<"$left" | sort -u)
        # shellcheck disable=SC2086
        install_packages $packages || return 1
    fi

    # The system's libfuse, where the distribution has one that is new enough.
    if ! system_fuse_ok && ! own_fuse_ok; then
        version=$(candidate libfuse3-dev)
        if [ -n "$version" ] && dpkg --compare-versions "$version" ge "$FUSE_MIN"; then
            install_packages libfuse3-dev || return 1
        fi
    fi
    if ! system_fuse_ok && ! own_fuse_ok; then
        left=$(missing "$table_libfuse")
        if [ -n "$left" ]; then
            packages=$(awk '{print $3}' <<<"$left" | sort -u)
            # shellcheck disable=SC2086
            install_packages $packages || return 1
        fi
        DEPS=$DEPS FUSE_MIN=$FUSE_MIN tools/libfuse.sh || return 1
    fi

    # Writing is slower without, and nothing else: so it is no error if that can't be had now.
    if ! system_fuse_ok && own_fuse_old; then
        say "libfuse is built once more, so that writing takes a copy less"
        DEPS=$DEPS FUSE_MIN=$FUSE_MIN tools/libfuse.sh || say "libfuse stays as it is"
    fi

    left=$(missing "$table")
    system_fuse_ok || own_fuse_ok || left+=$'\n'"pc fuse3>=$FUSE_MIN -"
    left=$(sed '/^$/d' <<<"$left")
    if [ -n "$left" ]; then
        say "still missing:"
        explain "$left"
        return 1
    fi
    if [ "${1:-}" = tests ]; then
        install_tests
        install_pjdfstest
        install_adios2
    fi
    say "all there (libfuse $(PKG_CONFIG_PATH=$DEPS/libfuse/lib/pkgconfig pkg-config --modversion fuse3))"
}

# Two runs at the same time would install the same things: the second waits.
mkdir -p "$DEPS"
for own in "$DEPS" "$DEPS/lock"; do
    [ ! -e "$own" ] || [ -w "$own" ] || {
        say "$own belongs to $(stat -c %U "$own"), who ran make here before:"
        say "  sudo chown -R $(id -un) $DEPS, and the build folder, or take them away"
        exit 1
    }
done
exec 9>"$DEPS/lock"
command -v flock >/dev/null && ! flock -w 1800 9 && { say "another make deps holds $DEPS/lock"; exit 1; }
main "$@"
