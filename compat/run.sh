#!/bin/sh
# Stable-Baselines3 on our Gymnasium environments, in an environment of its own (.venv-compat).
# torch brings CUDA along on Linux; PIP_EXTRA_INDEX_URL may name an index of its CPU wheels.
set -eu
cd "$(dirname "$0")/.."
unset PYTHONPATH PYTHONHOME PIP_USER PIP_TARGET PIP_PREFIX
venv=.venv-compat
want=$(cat requirements.lock pyproject.toml compat/requirements.txt | cksum)
if [ "$(cat $venv/.state 2>/dev/null)" != "$want" ]; then
    rm -rf $venv
    "$(tools/find-python.sh)" -m venv $venv
    $venv/bin/python -m pip install --quiet --require-hashes -r requirements.lock
    $venv/bin/python -m pip install --quiet -r compat/requirements.txt
    $venv/bin/python -m pip install --quiet --no-build-isolation --no-deps -e .
    echo "$want" >$venv/.state
fi
exec $venv/bin/python compat/ppo.py
