"""A policy from a stranger: its file names an environment, and a name imports nothing."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import gymnasium
import numpy as np
import pytest

import tasid
from commands import run
from tasid.maps.sources.gym_id import registered_id

MODULE = """
import gymnasium
from pathlib import Path

Path({trace!r}).touch()


class Chain(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-9, 9, {shape}, "float32")
    action_space = gymnasium.spaces.Discrete({actions})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample() * 0, {{}}

    def step(self, action):
        return self.observation_space.sample() * 0, 1.0, False, False, {{}}


if "{id}" not in gymnasium.registry:
    gymnasium.register("{id}", Chain, max_episode_steps={horizon})
"""


@pytest.fixture
def stranger(learned, tmp_path, monkeypatch):
    """Makes a policy that records `gym:stranger:ID`, beside a module of that name."""
    name = f"Chain{tmp_path.name.replace('_', '')}-v0"
    policy = learned.policy
    text = MODULE.format(
        trace=str(tmp_path / "ran"),
        shape=policy.observation_shape,
        actions=policy.num_actions,
        horizon=policy.horizon,
        id=name,
    )
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "stranger.py").write_text(text)
    monkeypatch.setattr(sys, "path", [str(tmp_path / "code"), *sys.path])
    monkeypatch.delitem(sys.modules, "stranger", raising=False)
    environment = {"name": f"gym:stranger:{name}", "options": {}}
    replace(policy, environment=environment).save(tmp_path / "policy")
    yield tmp_path, environment["name"]
    sys.modules.pop("stranger", None)
    gymnasium.registry.pop(name, None)


@pytest.mark.parametrize("command", ["evaluate", "watch"])
def test_a_recorded_name_imports_nothing(capsys, stranger, command):
    folder, name = stranger
    said = run(capsys, command, folder / "policy", code=2).err
    assert name in said
    assert "--import" in said
    assert "Traceback" not in said
    assert not (folder / "ran").exists()


def test_advice_for_an_id_without_a_module_names_one(capsys, learned, tmp_path):
    replace(learned.policy, environment={"name": "gym:Mine-v0", "options": {}}).save(tmp_path / "p")
    assert (
        "--env gym:MODULE:Mine-v0, or --import"
        in run(capsys, "evaluate", tmp_path / "p", code=2).err
    )


def test_what_the_user_types_himself_is_imported(capsys, stranger):
    folder, name = stranger
    flags = ["--env", name, "--episodes", 3, "--json"]
    found = json.loads(run(capsys, "evaluate", folder / "policy", *flags).out)
    assert (folder / "ran").exists()
    assert found["return_mean"] == 5.0  # one a step


def test_a_file_that_the_user_names_registers_what_the_policy_recorded(capsys, stranger):
    folder, _ = stranger
    flags = ["--import", folder / "code" / "stranger.py", "--episodes", 3, "--json"]
    found = json.loads(run(capsys, "evaluate", folder / "policy", *flags).out)
    assert found["return_mean"] == 5.0


def test_imports_that_cannot_be_are_named(capsys, stranger):
    folder, _ = stranger
    for given, words in (
        (folder / "none.py", "no such file"),
        ("no_such_module_here", "no file and no module"),
        (folder / "json.py", "there is a module 'json' already"),
    ):
        (folder / "json.py").write_text("raise SystemExit(7)")
        said = run(capsys, "evaluate", folder / "policy", "--import", given, code=2).err
        assert said.startswith("tasid: --import: ")
        assert words in said
    assert sys.modules["json"] is json


@pytest.mark.parametrize(
    "environment",
    [
        {"name": "gym:GymV26Environment-v0", "options": {"env_id": "stranger:X-v0"}},
        {"name": "gym:FrozenLake-v1", "options": {"num_envs": 10**9}},
        {"name": "gym:FrozenLake-v1", "options": {"workers": True}},
        {"name": ["gym:FrozenLake-v1"], "options": {}},
        {"name": "gym:FrozenLake-v1"},
        {"name": "gym:FrozenLake-v1", "options": 7},
    ],
)
def test_recorded_environments_that_no_run_writes_are_refused(
    capsys, learned, tmp_path, environment
):
    replace(learned.policy, environment=environment).save(tmp_path / "policy")
    said = run(capsys, "evaluate", tmp_path / "policy", "--episodes", 3, code=2).err
    assert said.startswith("tasid: policy: records the environment")


def test_registered_ids_are_those_known_without_importing():
    assert registered_id("FrozenLake-v1") == "FrozenLake-v1"
    assert registered_id("anything:FrozenLake-v1") == "FrozenLake-v1"
    assert registered_id("tasid/CombinationLock-v0") == "tasid/CombinationLock-v0"
    assert registered_id("no_such_module:NoSuch-v0") is None


def test_the_folder_of_a_run_is_loaded_as_its_policy(learned, tmp_path):
    learned.policy.save(tmp_path / "run" / "policy")
    loaded = tasid.load(tmp_path / "run")
    assert np.array_equal(loaded.plan.actions, learned.policy.plan.actions)
