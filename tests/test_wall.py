"""The wall: learners see observations, rewards and ends, never latent states."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tasid
from tasid.targets.block import BlockMDP, Latent

PACKAGE = Path(tasid.__file__).parent


@pytest.mark.parametrize("method", ["belief", "paper"])
def test_learners_never_touch_latent_states(monkeypatch, tmp_path, method):
    env = tasid.make("combination-lock", horizon=5, seed=2)
    arguments = {"eta": 0.1, "episodes": 48 if method == "belief" else 400, "seed": 2}

    def policy_bytes(folder):
        policy = tasid.learn(env, method=method, **arguments).policy
        return {p.name: p.read_bytes() for p in policy.save(tmp_path / folder).iterdir()}

    free = policy_bytes("free")

    def refuse(self, *_):
        raise AssertionError("a learner touched latent states")

    for name in ("latent", "latent_on"):
        monkeypatch.setattr(BlockMDP, name, property(refuse))
    for name in ("states", "robust_value", "oracle_target"):
        monkeypatch.setattr(Latent, name, refuse)
    with pytest.raises(AssertionError):
        _ = env.latent
    assert policy_bytes("walled") == free


def test_no_learner_names_the_door_to_latent_states():
    for file in (PACKAGE / "learning").rglob("*.py"):
        names = {
            node.attr for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, ast.Attribute)
        }  # fmt: skip
        assert not names & {"latent", "latent_on", "oracle_target", "_world"}, file
