#!/bin/sh
# Remakes requirements.lock and requirements-dev.lock from pyproject.toml.
# Usage: tools/lock.sh UV [compile options, such as --upgrade-package jax]
set -eu
cd "$(dirname "$0")/.."
uv=$1
shift

compile() {
    # One version of each package for all Pythons and systems (fewest forks): results
    # computed on two machines can then be compared.
    "$uv" --no-config pip compile pyproject.toml --quiet \
        --universal --python-version 3.11 --fork-strategy fewest \
        --generate-hashes --no-emit-index-url --no-emit-find-links \
        --custom-compile-command "make lock" "$@" >/dev/null
}

echo "Resolving requirements.lock ..."
compile --group build --output-file requirements.lock "$@"
echo "Resolving requirements-dev.lock ..."
# The runtime lock is a constraint: the same versions in both, dev on top.
compile --group dev --constraints requirements.lock --output-file requirements-dev.lock "$@"
