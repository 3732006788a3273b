"""Fixtures that several test files share: what takes seconds to learn is learned once."""

from __future__ import annotations

import pytest

import tasid


@pytest.fixture(scope="session")
def lock():
    """A combination lock of 10 steps, a block MDP with its map."""
    return tasid.make("combination-lock", horizon=10, seed=1)


@pytest.fixture(scope="session")
def lock_run(tmp_path_factory):
    """The folder of a finished run on `lock`, to be read only."""
    from tasid.runs.config import RunConfig
    from tasid.runs.train import train

    folder = tmp_path_factory.mktemp("runs") / "lock"
    options = {"horizon": 10, "seed": 1}
    config = RunConfig(
        environment="combination-lock",
        options=options,
        episodes=96,
        seed=1,
        evaluation_episodes=512,
    )
    train(config, folder)
    return folder


@pytest.fixture(scope="session")
def lock_policy(lock_run):
    """The belief policy of that run, as loaded."""
    return tasid.load(lock_run)
