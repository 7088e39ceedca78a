#!/usr/bin/env bash
# Runs pytest with the oldest dependencies that pyproject.toml allows, in an environment of its own.
#
#     .ci/lowest.sh PYTEST-ARGUMENT...
#     .ci/lowest.sh --python              prints the Python that it takes, or fails if there is none
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=uv.sh
source .ci/uv.sh
environment=.cache/lowest

# The oldest dependencies have no wheels for a newer Python: pydantic 2.7, for one, has none from 3.13 on.
fitting_python() {
    local name
    for name in python3.11 python3.12 python3; do
        if command -v "$name" >/dev/null && "$name" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' 2>/dev/null; then
            command -v "$name"
            return
        fi
    done
    echo "The oldest dependencies have no wheels for Python 3.13 or newer, and no Python 3.11 or 3.12 is on PATH." >&2
    echo "Install one, or use a machine that has one: Debian 12 has 3.11, Ubuntu 24.04 has 3.12." >&2
    return 1
}

if [ "${1:-}" = --python ]; then
    fitting_python
    exit
fi
python=$(fitting_python)
state="$(cat .ci/lowest.txt pyproject.toml | cksum) $("$python" -c 'import sys; print(sys.version)')"
if [ "$(cat "$environment/.redrive" 2>/dev/null)" != "$state" ]; then
    echo "lowest: installing into $environment the oldest that pyproject.toml allows of $(what_is test)"
    .venv/bin/uv venv --quiet --clear --python "$python" "$environment"
    (
        export VIRTUAL_ENV="$PWD/$environment"
        install_pinned test .ci/lowest.txt
    )
    echo "$state" >"$environment/.redrive"
fi
exec "$environment/bin/python" -P -m pytest "$@"
