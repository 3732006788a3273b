#!/bin/sh
# venv.sh NAME: makes .venv-NAME by benchmarks/NAME/requirements.txt, or says nothing if it is there
# and up to date.
set -eu
cd "$(dirname "$0")/../.."
unset PYTHONPATH PYTHONHOME PIP_USER PIP_TARGET PIP_PREFIX
venv=.venv-$1
requirements=benchmarks/$1/requirements.txt
want="$PWD $(cksum <"$requirements")"
[ "$(cat "$venv/.state" 2>/dev/null)" != "$want" ] || exit 0
python=$(tools/find-python.sh)
echo "Creating $venv with $python (a GB or two) ..." >&2
rm -rf "$venv"
"$python" -m venv "$venv"
"$venv/bin/python" -m pip --disable-pip-version-check --no-input install --quiet -r "$requirements"
echo "$want" >"$venv/.state"
