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
from tasid.maps.sources.by_name import registered_id

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


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def f(:", "SyntaxError: invalid syntax (broken.py, line 1)"),
        ("import json\njsom.dumps(1)", "NameError: name 'jsom' is not defined (broken.py, line 2)"),
        ("import no_such_thing", "No module named 'no_such_thing' (broken.py, line 1)"),
        ("import json\njson.loads('{')", "(broken.py, line 2)"),
    ],
)
def test_code_that_raises_is_one_message_with_its_line(
    capsys, tmp_path, monkeypatch, stranger, code, said
):
    folder, _ = stranger
    (tmp_path / "broken.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    for given in (tmp_path / "broken.py", "broken"):
        err = run(capsys, "evaluate", folder / "policy", "--import", given, code=2).err
        assert err.startswith(f"tasid: --import: {given}: ")
        assert said in err
        assert err.count("\n") == 1
    flags = ["--env", "gym:broken:Chain-v0", "--episodes", 3]
    err = run(capsys, "evaluate", folder / "policy", *flags, code=2).err
    assert "Traceback" not in err
    assert said.partition("(")[0].strip() in err


def test_a_file_here_is_no_module_and_the_message_says_what_to_do(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine_only.py").write_text("")
    (tmp_path / "map.txt").write_text("#####\n#S.G#\n#####")
    err = run(capsys, "check", "gym:mine_only:M-v0", "--simulator", "map.txt", code=2).err
    assert "; mine_only.py is run by --import mine_only.py" in err
    err = run(capsys, "check", "gym:Mine-v0", "--simulator", "map.txt", code=2).err
    assert "or need --import FILE.py" in err


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
