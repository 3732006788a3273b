#!/bin/sh
# Stable-Baselines3 on our Gymnasium ids, its PPO beside ours on CartPole, and the example that learns
# in ViZDoom, in an environment of their own (.venv-compat).
# On Linux, the usual torch brings CUDA along; an index with its CPU wheels (PIP_EXTRA_INDEX_URL) makes
# this much smaller.
set -eu
cd "$(dirname "$0")/.."
unset PYTHONPATH PYTHONHOME PIP_USER PIP_TARGET PIP_PREFIX
venv=.venv-compat
want="$PWD $(cat requirements.lock pyproject.toml compat/requirements.txt examples/vizdoom/requirements.txt | cksum)"

if [ "$(cat $venv/.state 2>/dev/null)" != "$want" ]; then
    python=$(tools/find-python.sh)
    echo "Creating $venv with $python (torch included: up to some GB) ..."
    rm -rf $venv
    "$python" -m venv $venv
    pip() { $venv/bin/python -m pip --disable-pip-version-check --no-input install --quiet "$@"; }
    pip --require-hashes -r requirements.lock
    pip -r compat/requirements.txt -r examples/vizdoom/requirements.txt
    pip --no-build-isolation --no-deps -e .
    echo "$want" >$venv/.state
fi
$venv/bin/python compat/stable_baselines3_ppo.py "$@"
$venv/bin/python compat/ppo_cartpole.py
exec $venv/bin/python examples/vizdoom/drive.py --small
