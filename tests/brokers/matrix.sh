#!/usr/bin/env bash
# Tests on each RabbitMQ of the matrix, in containers, with a table of the whole at the end.
#
#     tests/brokers/matrix.sh [VERSION...] [-- FOLDER... PYTEST-ARGUMENT...]
#
# By default on 3.10, 4.0 and 4.3: tests/cluster, tests/contract, tests/integration, tests/interop and tests/web.
#
# One version that fails, or that can't be had, does not keep the others from running. The last line is pytest's own.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit
# shellcheck source=../../.ci/debian.sh
source .ci/debian.sh
# shellcheck source=engine.sh
source tests/brokers/engine.sh

wanted=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    wanted+=("$1")
    shift
done
[ $# -eq 0 ] || shift
[ "${#wanted[@]}" -gt 0 ] || wanted=(3.10 4.0 4.3)
seconds_for_a_run=${REDRIVE_RUN_SECONDS:-1500}
failed=0

# Without a process group of its own, so that Ctrl-C reaches pytest; and an end that lets it close its brokers.
within_terminal() {
    if command -v timeout >/dev/null; then
        timeout --foreground --signal=INT --kill-after=30 "$@"
    else
        shift
        "$@"
    fi
}

trap leave_engine EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
use_engine || exit 1
if is_private_engine; then
    # No reaper: its image can't be pulled everywhere, and a private engine takes its containers with it.
    # And the broker's ports are the loopback's, whatever a file in / says about being in a container.
    export TESTCONTAINERS_RYUK_DISABLED=true TESTCONTAINERS_CONNECTION_MODE=docker_host
fi
if [ -z "${REDRIVE_TEST_TABLE:-}" ]; then
    REDRIVE_TEST_TABLE=$(mktemp)
    export REDRIVE_TEST_TABLE
    trap 'rm -f "$REDRIVE_TEST_TABLE"; leave_engine' EXIT
fi
unset REDRIVE_URL

# Images first: the table's last line, and so the output's, should come from a version that can run.
versions=()
for version in "${wanted[@]}"; do
    if bash tests/brokers/images.sh "$version"; then
        versions+=("$version")
    else
        failed=1
        printf 'the matrix\tRabbitMQ %s: no image can be had\n' "$version" >>"$REDRIVE_TEST_TABLE"
    fi
done

folders=()
while [ $# -gt 0 ] && [ -e "$1" ]; do
    folders+=("$1")
    shift
done
[ "${#folders[@]}" -gt 0 ] || folders=(tests/cluster tests/contract tests/integration tests/interop tests/web)
others=()
clusters=no
for folder in "${folders[@]}"; do
    if [ "$folder" = tests/cluster ]; then clusters=yes; else others+=("$folder"); fi
done
chosen=no
[ $# -eq 0 ] || chosen=yes

# run_tests LABEL PROCESSES PYTEST-ARGUMENT...
run_tests() {
    local label=$1 processes=$2 code
    shift 2
    REDRIVE_TEST_IMAGE="redrive-rabbitmq:$version" REDRIVE_TEST_LABEL="$label" \
        within_terminal "$seconds_for_a_run" \
        .venv/bin/python -P -m pytest -q -n "$processes" --dist worksteal "$@" </dev/null
    code=$?
    case $code:$chosen in
        # No test was collected: these folders have tests, so only where some were chosen that is no fault.
        0:* | 5:yes) ;;
        1:*) failed=1 ;;
        *)
            failed=1
            echo "matrix: RabbitMQ $version: pytest ended with $code" >&2
            ;;
    esac
}

for version in ${versions[@]+"${versions[@]}"}; do
    echo "matrix: RabbitMQ $version"
    # Each process has a cluster of its own.
    [ "$clusters" = no ] || run_tests "cluster" 2 tests/cluster "$@"
    [ "${#others[@]}" -eq 0 ] || run_tests "$(printf '%s, ' "${others[@]#tests/}" | sed 's/, $//')" "${REDRIVE_TEST_PROCESSES:-3}" "${others[@]}" "$@"
done
exit "$failed"
