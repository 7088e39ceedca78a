#!/usr/bin/env bash
# Says what these targets have left outside of this folder, where other checkouts use it, too.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=uv.sh
source .ci/uv.sh
kept() {
    [ ! -d "$1" ] || printf '  %s  %s\n' "$1" "$2"
}
folders=$(
    kept "$(uv_cache)" "what uv has downloaded and built, for all projects of this user"
    kept "${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/redrive" "images of RabbitMQ and of Debian, and the container engine of make matrix and make suites"
)
[ -z "$folders" ] || printf 'Kept, since other checkouts use it (rm -r deletes it):\n%s\n' "$folders"
