#!/bin/bash
# Builds libfuse from the newest Debian source package that apt reaches, as a
# static library in $DEPS/libfuse. Called by tools/deps.sh.
#
# The machine's apt sources are read through `apt-get indextargets` (which
# understands every format they may have) to learn its mirrors; sources of
# newer suites go into a list of our own, with lists and cache in a temporary
# folder. Nothing of the system's configuration changes, and no root is needed.
# Trust is unchanged too: apt checks the archive's signature with the Debian
# keyring that is installed, and the hashes of what it fetches.
#
# Static, so that programs find it wherever they are installed; symbol versions
# off, since they mean nothing there. bindir names where the library looks for
# fusermount3, which has to be the system's own, setuid one. With custom I/O, where
# that is an option (3.18): fp-mount reads from the device into its pool by it.
#
# Environment: DEPS, FUSE_MIN.
set -u
cd "$(dirname "$0")/.."
mkdir -p "${DEPS:=build/deps}/log"
DEPS=$(cd "$DEPS" && pwd)
FUSE_MIN=${FUSE_MIN:-3.17.2}
SUITES="unstable testing stable"
KEYRING=/usr/share/keyrings/debian-archive-keyring.gpg
LOG=$DEPS/log/libfuse.log
export LC_ALL=C
unset CFLAGS LDFLAGS MAKEFLAGS PKG_CONFIG_PATH

say() { echo "deps: $*"; }

die() {
    say "libfuse: $*"
    say "output is in $LOG"
    exit 1
}

# Mirrors that carry Debian itself (not its security updates, not others).
mirrors() {
    # shellcheck disable=SC2016
    apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
        awk -F'|' '$1 == "Debian" && $2 == "Debian" {print $3}' | sort -u
}

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
chmod 755 "$tmp"
mkdir -p "$tmp/lists/partial" "$tmp/cache/archives/partial" "$tmp/src"

apt_here() { # apt program, arguments
    local program=$1
    shift
    "$program" -o Dir::Etc::sourcelist="$tmp/sources.list" -o Dir::Etc::sourceparts=/dev/null \
        -o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null \
        -o Dir::State::lists="$tmp/lists" -o Dir::Cache="$tmp/cache" \
        -o Acquire::AllowInsecureRepositories=false -o Acquire::Retries=3 \
        -o APT::Get::AllowUnauthenticated=false -o APT::Sandbox::User="$(id -un)" "$@"
}

write_sources() {
    local mirror suite
    for mirror in $(mirrors); do
        for suite in $SUITES; do
            echo "deb-src [signed-by=$KEYRING] $mirror $suite main"
        done
    done
}

# Versions of the source package, newest first, upstream part new enough.
versions() {
    local all=() version i
    while read -r version; do
        dpkg --compare-versions "$version" ge "$FUSE_MIN" || continue
        for ((i = 0; i < ${#all[@]}; i++)); do
            dpkg --compare-versions "$version" gt "${all[i]}" && break
        done
        all=("${all[@]:0:i}" "$version" "${all[@]:i}")
    done < <(apt_here apt-cache showsrc --only-source fuse3 2>/dev/null | awk '/^Version:/ {print $2}' | sort -u)
    printf '%s\n' "${all[@]}"
}

build() { # version
    local work=$tmp/src/$1 new=$DEPS/libfuse.new custom=()
    rm -rf "$work" "$new"
    mkdir -p "$work" && cd "$work" &&
        apt_here apt-get -q source --download-only "fuse3=$1" &&
        dpkg-source -x fuse3_*.dsc tree || return 1
    grep -qs enable-custom-io tree/meson_options.txt && custom=(-Denable-custom-io=true)
    meson setup out tree --prefix="$new" --libdir=lib --bindir=/usr/bin \
            -Ddefault_library=static -Dutils=false -Dexamples=false -Dtests=false \
            -Duseroot=false -Ddisable-libc-symbol-version=true -Dpkgconfig.relocatable=true "${custom[@]}" &&
        ninja -C out &&
        meson install -C out --no-rebuild &&
        cp tree/LICENSE "$new/LICENSE" &&
        cp tree/LGPL2.txt "$new/LICENSE.LGPL2" &&
        # The library's license wants its source to be at hand where it is linked statically.
        mkdir -p "$new/source" && cp fuse3_* "$new/source/" &&
        rm -rf "$DEPS/libfuse" && mv "$new" "$DEPS/libfuse"
}

[ -r "$KEYRING" ] || die "no $KEYRING: install debian-archive-keyring"
if [ -z "$(mirrors)" ]; then
    # apt has no lists yet, and only they say whose a mirror is.
    if [ "$(id -u)" -eq 0 ]; then apt-get -qq update; else sudo apt-get -qq update; fi >"$LOG" 2>&1 </dev/null
fi
write_sources >"$tmp/sources.list"
[ -s "$tmp/sources.list" ] || die "apt's sources name no Debian mirror"

say "libfuse $FUSE_MIN or newer is not in this system: building it from Debian's newest source package"
# A suite that a mirror does not carry is no error as long as another one is there.
apt_here apt-get -q update >"$LOG" 2>&1 </dev/null
sed -n 's/^E: /deps: passed over: /p' "$LOG"
found=$(versions)
[ -n "$found" ] || die "no source package fuse3 >= $FUSE_MIN on $(mirrors | tr '\n' ' ')"

for version in $found; do
    if (build "$version") >>"$LOG" 2>&1 </dev/null; then
        say "libfuse $version built in $DEPS/libfuse"
        exit 0
    fi
    say "libfuse $version does not build here, trying the next older one"
done
tail -n 20 "$LOG"
die "could not be built"
