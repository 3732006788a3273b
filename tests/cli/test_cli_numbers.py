"""Numbers that no option can mean: exit code 2, and one line that names the option."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import tasid
from tasid.cli import main

LOCK = ["combination-lock", "--horizon", "3", "--set", "num_actions=3"]
TRAIN = ["train", *LOCK, "--episodes", "200"]
HUGE = "99999999999999999999"


@pytest.fixture(scope="module")
def policy(learned, tmp_path_factory):
    return str(learned.policy.save(tmp_path_factory.mktemp("numbers") / "policy"))


def said(capsys, arguments):
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    got = capsys.readouterr()
    assert stop.value.code == 2
    assert got.out == ""
    assert got.err.count("\n") == 1, "one line"
    assert got.err.startswith("tasid: ")
    return got.err.removeprefix("tasid: ")


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        ([*TRAIN, "--seed", HUGE], "--seed"),
        ([*TRAIN, "--seed=-1"], "--seed"),
        ([*TRAIN, "--seed", 2**32], "--seed"),
        ([*TRAIN, "--env-seed=-1"], "--env-seed"),
        ([*TRAIN, "--epopt-epsilon", "nan"], "--epopt-epsilon"),
        ([*TRAIN, "--eta", "nan"], "--eta"),
        ([*TRAIN, "--horizon", HUGE], "--horizon"),
        ([*TRAIN, "--horizon", "0"], "--horizon"),
        ([*TRAIN, "--episodes", HUGE], "--episodes"),
        ([*TRAIN, "--episodes", "9" * 5000], "--episodes"),
        ([*TRAIN, "--evaluation-episodes", HUGE], "--evaluation-episodes"),
        ([*TRAIN, "--evaluation-episodes", "0"], "--evaluation-episodes"),
        ([*TRAIN, "--starts", HUGE], "--starts"),
        ([*TRAIN, "--certify", "--certify-attempt", HUGE], "--certify-attempt"),
        ([*TRAIN, "--certify", "--certify-episodes", "0"], "--certify-episodes"),
        ([*TRAIN, "--certify", "--certify-epsilon", "nan"], "--certify-epsilon"),
        ([*TRAIN, "--set", "num_actions=abc"], "num_actions"),
        ([*TRAIN, "--set", "noise=abc"], "noise"),
        ([*TRAIN, "--set", "seed=abc"], "seed"),
        ([*TRAIN, "--set", "seed=-1"], "seed"),
        ([*TRAIN, "--set", "horizon=2.5"], "horizon"),
        ([*TRAIN, "--set", "bernoulli=maybe"], "bernoulli"),
        ([*TRAIN, "--set", "num_actions=[3]"], "num_actions"),
        (["plan", *LOCK, "--eta", "nan"], "--eta"),
        (["plan", *LOCK, "--env-seed=-1"], "--env-seed"),
        (["plan", *LOCK, "--horizon", HUGE], "--horizon"),
        (["check", *LOCK, "--episodes", 10**12], "--episodes"),
        (["check", *LOCK, "--episodes", "1"], "--episodes"),
        (["check", *LOCK, "--seed=-1"], "--seed"),
        (["watch", "POLICY", "--episode", 99999999999], "--episode"),
        (["watch", "POLICY", "--episode=-1"], "--episode"),
        (["watch", "POLICY", "--frames", "0"], "--frames"),
        (["watch", "POLICY", "--seed", HUGE], "--seed"),
        (["evaluate", "POLICY", "--seed=-1"], "--seed"),
        (["evaluate", "POLICY", "--env-seed=-1"], "--env-seed"),
        (["evaluate", "POLICY", "--episodes", 10**12], "--episodes"),
        (["evaluate", "POLICY", "--episodes", "0"], "--episodes"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(map(str, value))[-30:],
)
def test_one_line_names_the_option(capsys, tmp_path, monkeypatch, policy, arguments, option):
    monkeypatch.chdir(tmp_path)
    message = said(capsys, [policy if a == "POLICY" else a for a in arguments])
    assert message.startswith(f"{option}: ")
    assert len(message) < 300
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("seed", [-1, 2**32, 10**20])
def test_seeds_are_refused_in_python_too(seed):
    with pytest.raises(ValueError, match=f"seed: {seed} is not in 0"):
        tasid.make("combination-lock", seed=seed)
    lock = tasid.make("combination-lock", horizon=3)
    with pytest.raises(ValueError, match=f"seed: {seed} is not in 0"):
        tasid.check_target(lock, seed=seed, episodes=4)


def test_the_largest_seed_works(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["check", *LOCK, "--episodes", "4", "--seed", str(2**32 - 1), "--json"])
    assert not stop.value.code


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "latin-1"])
def test_terminals_that_lack_our_signs_get_plain_ones(encoding):
    command = [sys.executable, "-m", "tasid.cli", "plan", *LOCK, "--eta", "0.3"]
    done = subprocess.run(
        command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": encoding}, check=True
    )
    out = done.stdout.decode(encoding)
    assert "horizon 3, eta = 0.3" in out
    assert "route (0, 1) -> (1, 1)" in out
    assert done.stderr == b""


def test_terminals_that_have_our_signs_get_them():
    command = [sys.executable, "-m", "tasid.cli", "plan", *LOCK, "--eta", "0.3"]
    env = {**os.environ, "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(command, capture_output=True, env=env, check=True)
    assert "η = 0.3" in done.stdout.decode()
