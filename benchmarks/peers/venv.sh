#!/bin/sh
# Makes .venv-peers, or says nothing if it is there and up to date.
set -eu
cd "$(dirname "$0")/../.."
unset PYTHONPATH PYTHONHOME PIP_USER PIP_TARGET PIP_PREFIX
venv=.venv-peers
want="$PWD $(cksum <benchmarks/peers/requirements.txt)"
[ "$(cat $venv/.state 2>/dev/null)" != "$want" ] || exit 0
python=$(tools/find-python.sh)
echo "Creating $venv with $python (about 0.7 GB) ..." >&2
rm -rf $venv
"$python" -m venv $venv
$venv/bin/python -m pip --disable-pip-version-check --no-input install --quiet -r benchmarks/peers/requirements.txt
echo "$want" >$venv/.state
