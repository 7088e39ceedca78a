#!/usr/bin/env bash
# Puts an image redrive-rabbitmq:<version> into the engine that DOCKER_HOST names, for each version given (default: all).
#
# From the engine's cache; else pulled, where a registry answers in time; else made from the Debian suite that has this version.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../../.ci/debian.sh
source "$here/../../.ci/debian.sh"
# shellcheck source=engine.sh
source "$here/engine.sh"
# shellcheck source=debootstrap.sh
source "$here/debootstrap.sh"

all_versions=(3.10 4.0 4.3)
pull_seconds=${REDRIVE_PULL_SECONDS:-45}
build_seconds=${REDRIVE_BUILD_SECONDS:-600}

suite_of() {
    case $1 in
        3.10) echo bookworm ;;
        4.0) echo trixie ;;
        4.3) echo forky ;;
        *) echo "images: no Debian suite is known to have RabbitMQ $1; there are ${all_versions[*]}." >&2; return 1 ;;
    esac
}

has_image() {
    docker image inspect "$1" >/dev/null 2>&1
}

pull_image() {
    within "$pull_seconds" docker pull --quiet "rabbitmq:$1-management" >/dev/null 2>&1
}

make_image() (
    version=$1 suite=$(suite_of "$1")
    can_install_packages || { echo "images: only root on Debian or Ubuntu can make RabbitMQ $version from $suite." >&2; exit 1; }
    # Not under /tmp: a tmpfs there may be too small, or mounted so that nothing in it can run.
    work=$(mktemp -d "${cache:?}/make-$version.XXXXXX")
    trap 'rm -rf --one-file-system "$work"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    root=$work/root log=$work/log
    started=$SECONDS
    fail() {
        echo "images: RabbitMQ $version could not be made from $suite:" >&2
        tail -n 15 "$log" >&2
        exit 1
    }
    echo "images: RabbitMQ $version: unpacking Debian $suite"
    unpack_suite "$suite" "$work" "$log" || fail
    echo "images: RabbitMQ $version: installing rabbitmq-server ($((SECONDS - started)) s)"
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod 755 "$root/usr/sbin/policy-rc.d"
    chroot "$root" apt-get install -y --no-install-recommends -o Acquire::Retries=3 rabbitmq-server </dev/null >>"$log" 2>&1 || fail
    install -m 755 "$here/docker-entrypoint.sh" "$root/usr/local/bin/docker-entrypoint.sh"
    # The same two files as in the official image, so that one way of starting does for both.
    mkdir -p "$root/etc/rabbitmq/conf.d"
    echo 'loopback_users.guest = false' >"$root/etc/rabbitmq/conf.d/10-defaults.conf"
    echo '[rabbitmq_management].' >"$root/etc/rabbitmq/enabled_plugins"
    # The package's first start would give every container of this image the same cookie and node.
    rm -rf "$root"/var/lib/rabbitmq/.erlang.cookie "$root"/var/lib/rabbitmq/mnesia
    echo "images: RabbitMQ $version: importing ($((SECONDS - started)) s)"
    tar --one-file-system -C "$root" --exclude=./var/cache/apt --exclude=./var/lib/apt/lists --exclude=./usr/share/doc \
        --exclude=./usr/share/locale --exclude=./usr/share/man --exclude=./proc/* --exclude=./sys/* -c . |
        docker import --change 'ENTRYPOINT ["docker-entrypoint.sh"]' --change 'CMD ["rabbitmq-server"]' \
            --change 'EXPOSE 5672 15672' - "redrive-rabbitmq:$version" >>"$log" 2>&1 || fail
    echo "images: RabbitMQ $version: made from Debian $suite in $((SECONDS - started)) s"
)

# Called twice: a mirror may fail at one file of hundreds.
made_image() {
    # In the background, so that this script hears Ctrl-C meanwhile and can pass it on.
    within "$build_seconds" bash "$0" --make "$1" &
    making=$!
    trap 'kill "$making"; wait "$making"; exit 130' INT TERM
    wait "$making"
}

provide_image() {
    local version=$1
    if has_image "redrive-rabbitmq:$version"; then
        echo "images: RabbitMQ $version: in the engine's cache"
    elif has_image "rabbitmq:$version-management" || pull_image "$version"; then
        docker tag "rabbitmq:$version-management" "redrive-rabbitmq:$version"
        echo "images: RabbitMQ $version: the official image"
    else
        made_image "$version" || made_image "$version"
    fi
}

mkdir -p "$cache"
if [ "${1:-}" = --make ]; then
    make_image "$2"
    exit
fi
[ $# -gt 0 ] || set -- "${all_versions[@]}"
failed=0
for version in "$@"; do
    provide_image "$version" || { echo "images: RabbitMQ $version: can't be had" >&2; failed=1; }
done
exit "$failed"
