# shellcheck shell=bash
# What make quickstart and make quickstart-convert say, and how they fail: sourced by both.
#
# Set before: quickstart (the name that fails), step_count (steps in all). In PWD: the top of the source.

step_number=0

step() {
    step_number=$((step_number + 1))
    printf '[%d/%d] %s\n' "$step_number" "$step_count" "$*"
}
say() { printf '      %s\n' "$*"; }
indent() { sed -u 's/^/      /'; }
# A path as one would type it here.
short() { echo "${1#"$PWD"/}"; }

# fail TEXT [LOG]
fail() {
    printf '%s: FAILED: %s\n' "$quickstart" "$1" >&2
    if [ -s "${2:-}" ]; then
        tail -n 25 "$2" | sed 's/^/    | /' >&2
        echo "    all of it: $2" >&2
    fi
    exit 1
}
