#!/bin/bash
# Installs pjdfstest, the public POSIX test suite (the Rust edition), in $DEPS/pjdfstest for
# tests/e2e/test_pjdfstest.py, by cargo from its registry. Called by tools/deps.sh.
#
# A fixed version, with the libraries that its authors released it with (--locked): newer ones need newer compilers
# than Debian has, and a test suite that changes by itself proves nothing. --debug takes half the time to build, and is as quick here.
#
# Environment: DEPS.
set -u
cd "$(dirname "$0")/.."
DEPS=${DEPS:-build/deps}
VERSION=0.2.2
LOG=$DEPS/log/pjdfstest.log

mkdir -p "$DEPS/log"
echo "deps: installing pjdfstest $VERSION by cargo"
rm -rf "$DEPS/pjdfstest.new"
if ! timeout -k 10 600 cargo install --debug --locked pjdfstest --version "$VERSION" --root "$DEPS/pjdfstest.new" \
    >"$LOG" 2>&1 </dev/null; then
    tail -n 5 "$LOG"
    echo "deps: pjdfstest could not be installed; output is in $LOG"
    exit 1
fi
rm -rf "$DEPS/pjdfstest" && mv "$DEPS/pjdfstest.new" "$DEPS/pjdfstest"
