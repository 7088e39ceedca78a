# The file tree of a Debian suite, made by debootstrap: takes root on Debian or Ubuntu. Sourced, after .ci/debian.sh and engine.sh.
# shellcheck shell=bash

# The mirror that this machine's apt uses for Debian. Elsewhere nothing: debootstrap knows Debian's own.
debian_mirror() {
    command -v apt-get >/dev/null || return 0
    apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' 2>/dev/null |
        awk '$1 == "Debian" && $2 ~ /\/debian\/?$/ { print $2; exit }'
}

# unpack_suite SUITE WORK LOG: leaves the tree in WORK/root; what debootstrap says goes to LOG.
unpack_suite() {
    local suite=$1 work=$2 log=$3 scripts=/usr/share/debootstrap mirror
    install_packages debootstrap debian-archive-keyring || return 1
    export DEBIAN_FRONTEND=noninteractive LC_ALL=C
    mkdir "$work/root"
    # An older debootstrap has no script of this suite's name. Debian's are all sid's: copied beside it, the system stays as it is.
    if [ ! -e "$scripts/scripts/$suite" ]; then
        cp -a "$scripts" "$work/debootstrap"
        cp -a --dereference "$scripts/scripts/sid" "$work/debootstrap/scripts/$suite"
        scripts=$work/debootstrap
    fi
    mirror=$(debian_mirror)
    # shellcheck disable=SC2086  # no mirror: no argument
    DEBOOTSTRAP_DIR=$scripts debootstrap --variant=minbase --keyring=/usr/share/keyrings/debian-archive-keyring.gpg \
        "$suite" "$work/root" $mirror </dev/null >"$log" 2>&1
}
