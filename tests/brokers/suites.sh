#!/usr/bin/env bash
# `make test` from nothing, as root, on other releases of Debian: in a container of each, with the RabbitMQ and the Python of that release.
#
#     tests/brokers/suites.sh [SUITE...] [-- PYTEST-ARGUMENT...]       default: bookworm trixie forky
#
# A suite with a colon in it, such as ubuntu:24.04, is the name of an image. The containers use the network of this machine, its
# certificates, its settings of apt, pip and uv, and its niceness. Packages from PyPI stay in the volume redrive-uv for the next run.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
# shellcheck source=../../.ci/debian.sh
source .ci/debian.sh
# shellcheck source=engine.sh
source tests/brokers/engine.sh
# shellcheck source=debootstrap.sh
source tests/brokers/debootstrap.sh

suites=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    suites+=("$1")
    shift
done
[ $# -eq 0 ] || shift
[ "${#suites[@]}" -gt 0 ] || suites=(bookworm trixie forky)
work=$(mktemp -d)
container=redrive-suite-$$
failed=0
clean_up() {
    docker rm --force --volumes "$container" >/dev/null 2>&1
    rm -rf --one-file-system "$work"
    leave_engine
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
use_engine || exit 1

has_image() {
    docker image inspect "$1" >/dev/null 2>&1
}

make_image() {
    can_install_packages || { echo "suites: the image debian:$1 can't be pulled, and only root on Debian or Ubuntu can make one." >&2; return 1; }
    local folder=$cache/suite-$1.$$
    mkdir -p "$folder"
    if unpack_suite "$1" "$folder" "$folder/log"; then
        tar --one-file-system -C "$folder/root" --exclude=./var/cache/apt/archives/*.deb --exclude=./proc/* --exclude=./sys/* -c . |
            docker import - "redrive-debian:$1" >>"$folder/log" 2>&1
    fi
    has_image "redrive-debian:$1" || tail -n 15 "$folder/log" >&2
    rm -rf --one-file-system "$folder"
}

# image_of SUITE: leaves its image's name in $image: from the engine's cache, pulled, or made.
image_of() {
    case $1 in
        *:*) image=$1; return ;;
    esac
    image=redrive-debian:$1
    has_image "$image" && return
    if has_image "debian:$1" || within "${REDRIVE_PULL_SECONDS:-45}" docker pull --quiet "debian:$1" >/dev/null 2>&1; then
        image=debian:$1
        return
    fi
    echo "suites: making an image of Debian $1"
    make_image "$1"
    has_image "$image"
}

# What this machine's apt is told of proxies and of a mirror's dates.
machines_apt() {
    command -v apt-config >/dev/null || return 0
    apt-config dump | grep -E '^Acquire::(Check-|https?::[Pp]roxy)'
}

# As the README says: make, and nothing else. What it needs to reach a mirror and an index at all is this machine's.
inside='
cd /redrive && tar --extract --no-same-owner && exec </dev/null || exit
export DEBIAN_FRONTEND=noninteractive
{ apt-get update && apt-get install -y --no-install-recommends ca-certificates make; } >/tmp/apt.log 2>&1 || { tail /tmp/apt.log; exit 1; }
nice -n "$NICENESS" make test "PROCESSES=$PROCESSES" "ARGS=$ARGS"
code=$?
exit "$code" # and no exec: the first process of a container has to wait for the orphans
'

run_suite() {
    local options=(--rm --interactive --network host --workdir /redrive --name "$container" --volume redrive-uv:/cache --env UV_CACHE_DIR=/cache) file name
    for file in /usr/local/share/ca-certificates /etc/pip.conf /etc/uv/uv.toml; do
        [ ! -e "$file" ] || options+=(--volume "$file:$file:ro")
    done
    machines_apt >"$work/apt.conf"
    options+=(--volume "$work/apt.conf:/etc/apt/apt.conf.d/99machine:ro")
    for name in $(compgen -e | grep -E '^(PIP|UV)_|^(https?|no|HTTPS?|NO)_(proxy|PROXY)$|^CI$'); do
        options+=(--env "$name")
    done
    options+=(--env "NICENESS=$(nice)" --env "PROCESSES=${REDRIVE_TEST_PROCESSES:-3}" --env "ARGS=$arguments")
    git ls-files -z --cached --others --exclude-standard | tar --null --files-from - --create |
        docker run "${options[@]}" --entrypoint bash "$1" -c "$inside"
}

arguments=
[ $# -eq 0 ] || arguments=$(printf '%q ' "$@") # make and its shell read them once more
for suite in "${suites[@]}"; do
    if ! image_of "$suite"; then
        echo "suites: $suite: no image can be had" >>"$work/table"
        failed=1
        continue
    fi
    echo "suites: $suite: make test"
    run_suite "$image" 2>&1 | tee "$work/log"
    code=${PIPESTATUS[0]}
    [ "$code" = 0 ] || failed=1
    echo "suites: $suite: make test ended with $code: $(grep -E '^(=+ )?[0-9]+ (passed|failed).* in ' "$work/log" | tail -n 1)" >>"$work/table"
done
cat "$work/table"
exit "$failed"
