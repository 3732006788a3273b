"""A repaired environment: no run goes on with what the broken one played."""

from __future__ import annotations

import json
import sys

import gymnasium
import numpy as np
import pytest

from commands import run
from tasid.cli.imports import code_of

ROOMS = """
import gymnasium
import numpy as np
from strength import LASTS


class Rooms(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-9, 9, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    steps = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.look(0), {}

    def step(self, action):
        Rooms.steps += 1
        if Rooms.steps > LASTS:
            raise RuntimeError("no oil")
        return self.look(int(action)), float(action), False, False, {}

    def look(self, room):
        return (np.array([room, 1 - room]) + self.np_random.normal(size=2) / 9).astype(np.float32)


gymnasium.register("Rooms-v0", Rooms, max_episode_steps=2, disable_env_checker=True)
"""


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Trains in rooms that break after so many steps; every call is a process of its own."""
    home = tmp_path / "code"
    home.mkdir()
    (home / "rooms.py").write_text(ROOMS)
    np.savez(tmp_path / "map.npz", successor=[[0, 1], [0, 1]], reward=[[0.0, 1.0], [0.0, 1.0]])
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("tasid.runs.journal._PATIENCE", 0.0)

    def forget():
        for name in ("rooms", "strength"):
            sys.modules.pop(name, None)
        gymnasium.registry.pop("Rooms-v0", None)

    def train(lasts, *flags, name="Rooms-v0", imports=True):
        forget()
        if lasts is not None:
            (home / "strength.py").write_text(f"LASTS = {lasts}\n")
        how = ["--simulator", tmp_path / "map.npz", "--horizon", 2, "--episodes", 16]
        how += ["--set", "retries=0", "--set", "num_envs=2", "--evaluation-episodes", 8]
        how += ["--import", home / "rooms.py"] if imports else []
        return ["train", f"gym:{name}", *how, "--out", tmp_path / "run", *flags]

    yield train
    forget()


def test_a_repaired_environment_begins_anew(capsys, command, tmp_path):
    said = run(capsys, *command(20), code=2).err
    assert "no oil" in said
    assert "what was learned from is on record" in said
    partial = tmp_path / ".run.partial"
    before = json.loads((partial / "run.json").read_bytes())
    assert sorted(before["code"]) == ["rooms", "strength"]
    for flags in ((), ("--resume",)):
        said = run(capsys, *command(10_000, *flags), code=2).err
        assert "an unfinished run of other code is here (strength changed since)" in said
        assert "--overwrite" in said
        assert json.loads((partial / "run.json").read_bytes()) == before
    said = run(capsys, *command(10_000, "--overwrite")).err
    assert "goes on" not in said
    after = json.loads((tmp_path / "run" / "run.json").read_bytes())
    assert after["code"]["rooms"] == before["code"]["rooms"]
    assert after["code"]["strength"] != before["code"]["strength"]


def test_the_same_code_goes_on_and_nothing_on_record_binds_nobody(capsys, command):
    run(capsys, *command(0), code=2)
    run(capsys, *command(20), code=2)
    assert (
        "an unfinished run of this order is here, and goes on"
        in run(capsys, *command(20), code=2).err
    )


def test_a_sweep_is_of_one_code(capsys, command, tmp_path):
    sweep = ("--seeds", "1-2", "--workers", 1)
    assert "no oil" in run(capsys, *command(0, *sweep), code=2).err
    run(capsys, *command(10_000, *sweep))
    said = run(capsys, *command(10_001, *sweep), code=2).err
    assert "a sweep of other code is here (strength changed since)" in said
    run(capsys, *command(10_001, *sweep, "--overwrite"))


def test_code_is_what_the_user_named_and_what_lies_beside(command, tmp_path, monkeypatch):
    command(9)
    monkeypatch.syspath_prepend(tmp_path / "code")
    assert sorted(code_of("gym:rooms:Rooms-v0", None)) == ["rooms", "strength"]
    assert sorted(code_of("gym:Rooms-v0", None)) == ["rooms", "strength"]
    for name in ("gym:FrozenLake-v1", "gym:tasid/LavaCrossing-v0", "gym:none:X-v0", "building"):
        assert code_of(name, None) == {}
    assert list(code_of("gym:FrozenLake-v1", ["json"])) == ["json"]
