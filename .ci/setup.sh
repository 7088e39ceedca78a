#!/usr/bin/env bash
# Makes .venv with the pinned dependencies and this package; with --broker also sees that a RabbitMQ can be had, with --java
# that Spark has a Java to run on, with --peers that what the tests use besides is there.
# A second run finds everything in its place and does nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=debian.sh
source .ci/debian.sh

newest_python() {
    local name
    for name in python3.13 python3.12 python3.11 python3 python; do
        if command -v "$name" >/dev/null && "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    return 1
}

make_environment() {
    local python
    if ! python=$(newest_python); then
        if can_install_packages; then
            install_packages python3 python3-venv python3-pip
        fi
        python=$(newest_python) || {
            echo "No Python 3.11 or newer is on PATH." >&2
            echo "Install one, for example with the system's package manager, and run this again." >&2
            return 1
        }
    fi
    rm -rf .venv
    # Debian and Ubuntu keep ensurepip in a package of its own, named after the version.
    if ! "$python" -c 'import ensurepip, venv' 2>/dev/null && can_install_packages; then
        install_packages python3-venv || true
        "$python" -c 'import ensurepip' 2>/dev/null || install_packages "$("$python" -c 'import sys; print(f"python{sys.version_info[0]}.{sys.version_info[1]}-venv")')"
    fi
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

if [ ! -x .venv/bin/uv ] || ! .venv/bin/python -c '' 2>/dev/null; then
    echo "setup: making .venv"
    make_environment
fi
if [ "$(cat .venv/.redrive 2>/dev/null)" != "$(state)" ]; then
    echo "setup: installing the pinned dependencies into .venv"
    # Copies: a cache on another file system can't be linked to, and says so for each package.
    export VIRTUAL_ENV="$PWD/.venv" UV_LINK_MODE="${UV_LINK_MODE:-copy}"
    # The system's certificates, where it has some: a company's own are among them.
    [ ! -e /etc/ssl/certs/ca-certificates.crt ] || export UV_SYSTEM_CERTS="${UV_SYSTEM_CERTS:-true}"
    .venv/bin/uv pip install --quiet --require-hashes -r constraints.txt
    .venv/bin/uv pip install --quiet --no-deps -e .
    state >.venv/.redrive
fi

wants() {
    local word
    for word in ${arguments[@]+"${arguments[@]}"}; do
        [ "$word" != "$1" ] || return 0
    done
    return 1
}
arguments=("$@")

has_java() {
    .venv/bin/python - <<'PYTHON'
import sys

from redrive.errors import ConfigurationError
from redrive.spark_reprocess.java import check_java

try:
    check_java()
except ConfigurationError as error:
    sys.exit(str(error))
PYTHON
}
if wants --java && ! problem=$(has_java 2>&1); then
    if can_install_packages && [ -z "${JAVA_HOME:-}" ]; then
        # Newer releases have a newer one.
        install_packages openjdk-17-jre-headless || install_packages openjdk-21-jre-headless
        has_java
    else
        echo "$problem" >&2
        exit 1
    fi
fi

# What the tests talk to besides a broker. Elsewhere those that need it say what is missing.
if wants --peers && can_install_packages; then
    install_packages php-cli php-amqplib default-jdk-headless librabbitmq-client-java tmux
fi

wants --broker || exit 0
# A test drives `redrive top` in it.
if ! command -v tmux >/dev/null && can_install_packages; then
    install_packages tmux
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
if ! problem=$(has_broker 2>&1); then
    # An image that was asked for by name is not replaced by something else.
    if can_install_packages && [ -z "${REDRIVE_TEST_IMAGE:-}" ]; then
        install_packages rabbitmq-server
        has_broker
    else
        echo "$problem" >&2
        exit 1
    fi
fi
