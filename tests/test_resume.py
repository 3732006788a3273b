"""Interrupted runs: resumed, they give the same bytes and ask the environment nothing twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import tasid
from tasid.learning.belief import BatchEnded
from tasid.learning.paper import StartTested, StepEnded, TasidConfig
from tasid.learning.paper.tasid import ClusteringConfig
from tasid.runs.config import RunConfig
from tasid.runs.train import train
from tasid.simulator import AbstractSimulator
from tasid.targets.rollout import EpisodeError

HORIZON, CELLS = 5, 4


class Line(gymnasium.Env):
    """Cells in a row; actions step left and right and slip; reaching the last cell ends it."""

    observation_space = spaces.Box(-9, 9, (CELLS,), np.float32)
    action_space = spaces.Discrete(2)
    asked: ClassVar[Counter] = Counter()
    """Requests (seed, steps so far) of all environments together."""
    failure: BaseException | None = None
    limit = 10**9
    """Requests after which the failure is raised."""

    def __init__(self, starts: int = 1, horizon: int = HORIZON) -> None:
        self.starts, self.horizon = starts, horizon

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.rng, self.episode, self.steps = np.random.default_rng(seed), seed, 0
        self.cell = int(self.rng.integers(self.starts))
        return self._answer(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        action = action if self.rng.random() > 0.1 else 1 - action
        self.cell = min(max(self.cell + 2 * action - 1, 0), CELLS - 1)
        return self._answer(), float(self.cell == CELLS - 1), self.cell == CELLS - 1, False, {}

    def _answer(self) -> Any:
        if Line.failure is not None and Line.asked.total() >= Line.limit:
            raise Line.failure
        Line.asked[self.episode, self.steps] += 1
        return (np.eye(CELLS)[self.cell] + 0.1 * self.rng.normal(size=CELLS)).astype(np.float32)


def line_map(starts: int = 1) -> AbstractSimulator:
    cells = np.arange(CELLS)
    successor = np.stack([np.maximum(cells - 1, 0), np.minimum(cells + 1, CELLS - 1)], axis=1)
    successor[-1] = CELLS - 1
    reward = (successor == CELLS - 1) * (cells < CELLS - 1)[:, None] * 1.0
    return AbstractSimulator(successor, reward, horizon=HORIZON, start=list(range(starts)))


class Counts:
    """An inverse model of one table, whose maximum-likelihood member needs no gradients."""

    def init(self, key: Any, observation_shape: tuple[int, ...], num_actions: int) -> Any:
        return jnp.zeros((CELLS, CELLS, num_actions))

    def apply(self, parameters: Any, x: Any, x_next: Any) -> Any:
        return parameters[x.argmax(axis=1), x_next.argmax(axis=1)]

    def fit(self, observations: Any, actions: Any, weights: Any) -> Any:
        cells = observations.argmax(axis=2)
        counts = np.full((CELLS, CELLS, 2), 0.1)
        np.add.at(counts, (cells[:, 0], cells[:, 1], actions), weights)
        return np.log(counts)


SMALL = TasidConfig(episodes=60, model=Counts())
GROUPS = ClusteringConfig(restarts=1, steps=20)
COUNTS = {"cluster_episodes": 60, "start_episodes": 20, "test_episodes": 6}
PAPER = {"method": "paper", "config": SMALL}
STARTS = {"method": "paper", "config": replace(SMALL, clustering=GROUPS, **COUNTS)}


def interrupt_at(kind: type, number: int) -> Any:
    """A callback that raises KeyboardInterrupt at one of the events of a kind."""
    events = []

    def callback(event: Any) -> None:
        events.append(event) if isinstance(event, kind) else None
        if len(events) == number:
            raise KeyboardInterrupt

    return callback


def learn(folder: Path, starts: int = 1, **how: Any) -> Counter:
    """Learn with a run folder; returns what the environments were asked for."""
    Line.asked = asked = Counter()
    with tasid.wrap(lambda: Line(starts), num_envs=3, retries=0) as target:
        tasid.learn(target, line_map(starts), eta=0.1, seed=1, run_dir=folder, **how)
    return asked


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name != ".lock"}


@pytest.mark.parametrize(
    ("how", "starts", "event", "number"),
    [
        ({"episodes": 40}, 1, BatchEnded, 1),
        ({"episodes": 40}, 2, BatchEnded, 2),
        (PAPER, 1, StepEnded, 2),
        (STARTS, 2, StepEnded, 2),
        (STARTS, 2, StartTested, 3),
    ],
)
def test_a_run_interrupted_by_its_user(tmp_path, how, starts, event, number):
    whole = learn(tmp_path / "whole", starts, **how)
    with pytest.raises(KeyboardInterrupt):
        learn(tmp_path / "run", starts, callbacks=[interrupt_at(event, number)], **how)
    before = Line.asked
    assert 0 < before.total() < whole.total()
    after = learn(tmp_path / "run", starts, **how)
    assert before + after == whole
    assert contents(tmp_path / "run" / "policy") == contents(tmp_path / "whole" / "policy")


@pytest.mark.parametrize("how", [{"episodes": 40}, PAPER])
@pytest.mark.parametrize("failure", [KeyboardInterrupt(), RuntimeError("the robot is stuck")])
def test_a_run_interrupted_by_its_environment(tmp_path, monkeypatch, how, failure):
    """Only the episodes that were not over are asked for again, from their start."""
    whole = learn(tmp_path / "whole", **how)
    monkeypatch.setattr(Line, "failure", failure)
    monkeypatch.setattr(Line, "limit", 100)
    expected = KeyboardInterrupt if isinstance(failure, KeyboardInterrupt) else EpisodeError
    with pytest.raises(expected):
        learn(tmp_path / "run", **how)
    before = Line.asked
    monkeypatch.undo()
    after = learn(tmp_path / "run", **how)
    again = before + after - whole
    assert before.total() == 100
    assert len({episode for episode, _ in again}) <= 3  # as many as there are environments
    assert all(count == 1 for count in again.values())
    assert contents(tmp_path / "run" / "policy") == contents(tmp_path / "whole" / "policy")


def test_a_run_of_the_command_line(tmp_path):
    """Evaluation is resumed as well, and a finished run is neither repeated nor overwritten."""
    gymnasium.register("tasid-test/Line-v0", lambda: Line(), max_episode_steps=HORIZON)
    line_map().save(tmp_path / "map")
    sources = {"environment": "gym:tasid-test/Line-v0", "simulator": str(tmp_path / "map")}
    config = RunConfig(**sources, eta=0.1, episodes=32, evaluation_episodes=20)
    Line.asked = whole = Counter()
    expected = train(config, tmp_path / "whole").summary
    Line.asked = asked = Counter()
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "run", callbacks=[interrupt_at(BatchEnded, 1)])
    result = train(config, tmp_path / "run", resume=True).summary
    assert asked == whole
    assert contents(tmp_path / "run" / "policy") == contents(tmp_path / "whole" / "policy")
    assert result["return_mean"] == expected["return_mean"]
    repeated = train(config, tmp_path / "run", resume=True).summary
    assert repeated["return_mean"] == expected["return_mean"]
    with pytest.raises(ValueError, match="out"):
        train(config, tmp_path / "run")
    assert asked == whole


def test_another_run_does_not_take_over_what_a_folder_holds(tmp_path):
    """Models of another seed, map or η are learned again."""
    learner = tasid.TasidLearner(SMALL)
    learned = []
    target = tasid.wrap(Line, num_envs=3)
    for seed, eta, horizon in ((1, 0.1, 5), (1, 0.1, 5), (2, 0.1, 5), (1, 0.2, 5), (1, 0.1, 4)):
        Line.asked = asked = Counter()
        sim = line_map().replace(horizon=horizon)
        plan = tasid.robust_dp(sim, eta=eta)
        learner.run(target.with_horizon(horizon), plan, seed=seed, run_dir=tmp_path)
        learned.append(asked.total() > 0)
    assert learned == [True, False, True, True, True]
