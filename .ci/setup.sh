#!/usr/bin/env bash
# Makes .venv with this package and a set of the pinned dependencies: demo, spark, test, or dev, which is everything and the default.
# With tools it has nothing but uv, which is enough to write the pins themselves.
# A .venv that has less is given what it lacks.
#
#     .ci/setup.sh [SET] [--broker] [--java] [--peers]
#
# --broker sees that a RabbitMQ can be had, --java that Spark has a Java to run on, --peers that what the tests use besides is there.
# What is missing, or will be installed, is said at once and before anything is downloaded.
# A second run finds everything in its place and does nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=debian.sh
source .ci/debian.sh
# shellcheck source=uv.sh
source .ci/uv.sh
set_wanted=dev
case ${1:-} in
    "" | --*) ;;
    *)
        set_wanted=$1
        shift
        ;;
esac
what_is "$set_wanted" >/dev/null
arguments=("$@")

wants() {
    local word
    for word in ${arguments[@]+"${arguments[@]}"}; do
        [ "$word" != "$1" ] || return 0
    done
    return 1
}

newest_python() {
    local name
    for name in python3.14 python3.13 python3.12 python3.11 python3 python; do
        if command -v "$name" >/dev/null && "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    return 1
}

has_environment() {
    [ -x .venv/bin/uv ] && .venv/bin/python -c '' 2>/dev/null
}

# Whether a broker may be had; for sure it is known once .venv is there.
may_have_broker() {
    local host=${DOCKER_HOST:-unix:///var/run/docker.sock}
    [ -n "${REDRIVE_URL:-}${REDRIVE_TEST_IMAGE:-}" ] || PATH="$PATH:/usr/sbin:/usr/local/sbin" command -v rabbitmq-server >/dev/null ||
        [ "${host#unix://}" = "$host" ] || [ -S "${host#unix://}" ] || [ -e "${HOME:-}/.testcontainers.properties" ]
}

java_package() {
    local name
    command -v apt-cache >/dev/null || return 1
    for name in openjdk-17-jre-headless openjdk-21-jre-headless; do
        if release_has "$name"; then
            echo "$name"
            return
        fi
    done
    return 1
}

# What has to be there and is not: in words for people, and as packages.
missing=()
packages=()
need() {
    missing+=("$1")
    shift
    packages+=("$@")
}

look_around() {
    local python
    if ! has_environment; then
        if ! python=$(newest_python); then
            need "Python 3.11 or newer, with its venv module" python3 python3-venv
        # Debian and Ubuntu keep ensurepip in a package of its own, named after the version.
        elif ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
            need "the venv module of $python" "$("$python" -c 'import sys; print("python{}.{}-venv".format(*sys.version_info))')"
        fi
    fi
    if wants --broker && ! may_have_broker; then
        need "a RabbitMQ: Docker or Podman, or an installed rabbitmq-server" rabbitmq-server
    fi
    if wants --java && [ -z "${JAVA_HOME:-}" ] && ! command -v java >/dev/null; then
        need "Java 17 or newer" "$(java_package || echo openjdk-17-jre-headless)"
    fi
}

# What the tests talk to besides a broker; each is of use as a whole. The Node of Playwright, which drives Chromium, needs libatomic.
peers=("tmux" "php-cli php-amqplib" "default-jdk-headless librabbitmq-client-java" "chromium libatomic1")
# A Node that others have installed brings its npm with it, and Debian's would take that away.
command -v npm >/dev/null || peers+=("nodejs npm")

# lacking PEER...: prints those of its packages that this release does not have.
lacking() {
    local name
    for name in $(missing_packages "$@"); do
        release_has "$name" || echo "$name"
    done
}

announce() {
    local peer
    if [ "${#missing[@]}" -gt 0 ] && ! can_install_packages; then
        {
            echo "These are missing, and nothing was downloaded:"
            printf '  %s\n' "${missing[@]}"
            echo "Install them and run this again. On Debian and Ubuntu: apt-get install ${packages[*]}, or run this as root."
        } >&2
        return 1
    fi
    local wanted=(${packages[@]+"${packages[@]}"})
    if wants --peers && can_install_packages; then
        for peer in "${peers[@]}"; do
            # shellcheck disable=SC2046,SC2086,SC2206,SC2207  # lists of names
            [ -n "$(lacking $peer)" ] || wanted+=($(missing_packages $peer))
        done
    fi
    [ "${#wanted[@]}" -eq 0 ] || echo "setup: to be installed as packages: ${wanted[*]}"
    has_set "$set_wanted" || echo "setup: to be installed into .venv: $(what_is "$set_wanted"); what is downloaded stays in $(uv_cache)"
}

make_environment() {
    local python
    python=$(newest_python) || {
        echo "No Python 3.11 or newer is on PATH: this release has none." >&2
        echo "Install one, and run this again." >&2
        return 1
    }
    rm -rf .venv
    "$python" -m venv .venv || {
        echo "$python can't make a virtual environment." >&2
        echo "Install its venv module (python3-venv on Debian and Ubuntu) and run this again." >&2
        return 1
    }
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r .ci/uv.txt
}

# The pins, this project's metadata and the interpreter: when none of them has changed, .venv is as it should be.
state() {
    cat constraints.txt pyproject.toml .ci/uv.txt | cksum
    .venv/bin/python -c 'import sys; print(sys.version)'
}

# has_set SET: whether .venv has this set as it is pinned now, or a larger one.
has_set() {
    local larger now
    has_environment || return 1
    [ "$1" != tools ] || return 0
    now=$(state)
    case $1 in
        demo) larger="test spark dev" ;;
        *) larger=dev ;;
    esac
    for larger in "$1" $larger; do
        [ "$(cat ".venv/.redrive-$larger" 2>/dev/null)" != "$now" ] || return 0
    done
    return 1
}

have_set() {
    ! has_set "$1" || return 0
    echo "setup: installing into .venv $(what_is "$1")"
    (
        export VIRTUAL_ENV="$PWD/.venv"
        install_pinned "$1" constraints.txt --compile-bytecode
    )
    state >".venv/.redrive-$1"
}

look_around
announce
[ "${#packages[@]}" -eq 0 ] || install_packages "${packages[@]}"
if ! has_environment; then
    echo "setup: making .venv"
    make_environment
fi
[ "$set_wanted" != tools ] || exit 0
# With it a broker and a Java can be looked for: what else there is to install may be in vain without them.
have_set demo

has_java() {
    .venv/bin/python - <<'PYTHON'
import sys

from redrive.errors import ConfigurationError
from redrive.spark_reprocess.prerequisites import check_java

try:
    check_java()
except ConfigurationError as error:
    sys.exit(str(error))
PYTHON
}
if wants --java && ! problem=$(has_java 2>&1); then
    # There is one, and it is too old.
    if can_install_packages && [ -z "${JAVA_HOME:-}" ] && package=$(java_package); then
        install_packages "$package"
        has_java
    else
        echo "$problem" >&2
        exit 1
    fi
fi

has_broker() {
    .venv/bin/python - <<'PYTHON'
import sys

from redrive.errors import ConfigurationError
from redrive.testing import private_broker

try:
    private_broker()
except ConfigurationError as error:
    sys.exit(str(error))
PYTHON
}
if wants --broker && ! problem=$(has_broker 2>&1); then
    # An image that was asked for by name is not replaced by something else.
    if can_install_packages && [ -z "${REDRIVE_TEST_IMAGE:-}" ]; then
        install_packages rabbitmq-server
        has_broker
    else
        echo "$problem" >&2
        exit 1
    fi
fi

have_set "$set_wanted"

# A peer that can't be had is said here, and by the tests that need it.
if wants --peers && can_install_packages; then
    for peer in "${peers[@]}"; do
        # shellcheck disable=SC2086  # lists of names
        if lacks=$(lacking $peer) && [ -n "$lacks" ]; then
            echo "setup: can't be had here:" $lacks"; the tests that need it are skipped"
        else
            install_packages $peer || echo "setup: could not be installed: $peer; the tests that need it are skipped" >&2
        fi
    done
fi

# The frameworks whose services the tests run: those of Python in an environment of their own, since they need other versions of
# what redrive needs, too.
have_python_peers() {
    local pins=tests/interop/peers/python/lock.txt folder=.cache/peers now
    now=$(cksum "$pins"; state)
    [ "$(cat "$folder/.redrive-peers" 2>/dev/null)" != "$now" ] || return 0
    echo "setup: installing into $folder the frameworks whose services the tests run: about 60 MB"
    .venv/bin/uv venv --quiet --clear --python .venv/bin/python "$folder" &&
        VIRTUAL_ENV="$PWD/$folder" .venv/bin/uv pip install --quiet --require-hashes --no-deps -r "$pins" &&
        echo "$now" >"$folder/.redrive-peers"
}

have_node_peers() {
    local folder=tests/interop/peers/node now
    if ! command -v npm >/dev/null; then
        echo "setup: there is no npm here; the tests that need a framework of Node are skipped"
        return
    fi
    now=$(cksum "$folder/package-lock.json"; node --version)
    [ "$(cat "$folder/node_modules/.redrive-peers" 2>/dev/null)" != "$now" ] || return 0
    echo "setup: installing into $folder the frameworks of Node whose services the tests run: about 50 MB"
    (cd "$folder" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) && echo "$now" >"$folder/node_modules/.redrive-peers"
}

# What the tests of the console in a browser ask about accessibility.
have_browser_tools() {
    local folder=tests/web/browser now
    command -v npm >/dev/null || return 0
    now=$(cksum "$folder/package-lock.json")
    [ "$(cat "$folder/node_modules/.redrive-peers" 2>/dev/null)" != "$now" ] || return 0
    echo "setup: installing into $folder what the tests of the console in a browser need: about 3 MB"
    (cd "$folder" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error) && echo "$now" >"$folder/node_modules/.redrive-peers"
}
if wants --peers; then
    have_python_peers || exit
    have_browser_tools || echo "setup: what the tests of the console in a browser need could not be installed; they are skipped" >&2
    have_node_peers || echo "setup: the frameworks of Node could not be installed; the tests that need them are skipped" >&2
fi
