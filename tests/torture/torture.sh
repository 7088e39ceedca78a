#!/usr/bin/env bash
# A torture run on the RabbitMQ of this machine, or with `--version 4.3` on that one in containers.
#
#     tests/torture/torture.sh [ARGUMENT...]
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
# shellcheck source=../../.ci/debian.sh
source .ci/debian.sh
# shellcheck source=../brokers/engine.sh
source tests/brokers/engine.sh

version=
previous=
for argument in "$@"; do
    case $argument in --version=*) version=${argument#*=} ;; esac
    [ "$previous" != --version ] || version=$argument
    previous=$argument
done
if [ -n "$version" ]; then
    trap leave_engine EXIT
    use_engine || exit 1
    if is_private_engine; then
        # As for the matrix: no reaper, and the broker's ports are the loopback's.
        export TESTCONTAINERS_RYUK_DISABLED=true TESTCONTAINERS_CONNECTION_MODE=docker_host
    fi
    bash tests/brokers/images.sh "$version" >&2 || exit 1
fi
# The run ends its broker and its processes itself: Ctrl-C is for it alone.
trap : INT
PYTHONPATH=tests .venv/bin/python -P -m torture "$@"
