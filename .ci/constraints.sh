#!/usr/bin/env bash
# Writes constraints.txt, .ci/uv.txt, .ci/lowest.txt, benchmarks/lock.txt and tests/interop/peers/python/lock.txt: every package of
# Python that make installs, by version and hash, for every platform.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=uv.sh
source .ci/uv.sh
uv=.venv/bin/uv
export UV_CUSTOM_COMPILE_COMMAND="make constraints"
compile() {
    # What is pinned stays pinned unless a new requirement or UPGRADE=1 moves it.
    "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-emit-index-url \
        ${UPGRADE:+--upgrade} "$@"
}
everything=(pyproject.toml --all-extras --group dev --no-emit-package redrive)
compile "${everything[@]}" --group mutants --group s3 --output-file constraints.txt
echo uv | compile - --output-file .ci/uv.txt
compile "${everything[@]}" --resolution lowest-direct --output-file .ci/lowest.txt
echo uv_build | compile pyproject.toml benchmarks/requirements.txt - --extra async --extra cli --extra metrics --extra testing --constraints constraints.txt \
    --override benchmarks/overrides.txt --no-emit-package redrive --output-file benchmarks/lock.txt
compile tests/interop/peers/python/requirements.txt --output-file tests/interop/peers/python/lock.txt
if grep -nE '://|--(extra-)?index-url|--find-links' constraints.txt .ci/uv.txt .ci/lowest.txt benchmarks/lock.txt tests/interop/peers/python/lock.txt; then
    echo "constraints: a file names a host; which index to use is each machine's own matter." >&2
    exit 1
fi
