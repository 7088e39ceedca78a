# Debian and Ubuntu packages without side effects: sourced by the scripts that may have to install some.
# shellcheck shell=bash

can_install_packages() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null
}

# missing_packages NAME...: prints those that are not installed, one a line.
missing_packages() {
    local name
    for name in "$@"; do
        dpkg-query --show --showformat='${db:Status-Status}\n' "$name" 2>/dev/null | grep -qx installed || echo "$name"
    done
}

has_package_lists() {
    compgen -G '/var/lib/apt/lists/*_Packages*' >/dev/null
}

# release_has NAME: whether this release of the distribution has a package. A fresh machine gets its package lists first.
release_has() {
    has_package_lists || apt-get update </dev/null >/dev/null 2>&1
    # What is only named by others is shown as well, with a note and without an error: it can't be installed.
    [ -n "$(apt-cache show "$1" 2>/dev/null)" ]
}

# install_packages NAME...: installs what is missing and starts no service, now or at the next boot.
install_packages() {
    local wanted=() name
    mapfile -t wanted < <(missing_packages "$@")
    [ "${#wanted[@]}" -gt 0 ] || return 0
    echo "setup: installing ${wanted[*]} (no service is started)"
    (
        # A subshell, so that its trap puts the policy back whatever happens in between.
        policy=/usr/sbin/policy-rc.d
        saved=
        if [ -e "$policy" ]; then
            saved=$(mktemp "$policy.saved.XXXXXX")
            mv "$policy" "$saved"
        fi
        trap 'rm -f "$policy"; [ -z "$saved" ] || mv "$saved" "$policy"' EXIT
        trap 'exit 130' INT
        trap 'exit 143' TERM
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod 755 "$policy"
        export DEBIAN_FRONTEND=noninteractive
        log=$(mktemp)
        # A mirror that fails at one file of hundreds is asked for it again.
        install() { apt-get install -y --no-install-recommends -o Dpkg::Lock::Timeout=120 -o Acquire::Retries=3 "${wanted[@]}" </dev/null >"$log" 2>&1; }
        # A fresh machine has no package lists, an old one has stale lists: both are mended by an update.
        install || { apt-get update </dev/null >>"$log" 2>&1 && install; } || { tail -n 20 "$log" >&2; rm -f "$log"; exit 1; }
        rm -f "$log"
    ) || return 1
    # The packages enable their services; nobody asked for a RabbitMQ or a Docker of the machine's own.
    if command -v systemctl >/dev/null; then
        for name in "${wanted[@]}"; do
            case $name in
                rabbitmq-server) systemctl disable rabbitmq-server.service epmd.service epmd.socket >/dev/null 2>&1 || true ;;
                docker.io) systemctl disable docker.service docker.socket containerd.service >/dev/null 2>&1 || true ;;
            esac
        done
    fi
}
