"""Shared fixtures: one small lock, learned once by each method."""

from __future__ import annotations

import jax
import pytest

import tasid
from tasid.runs.learn import LearningResult

jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(scope="session")
def lock() -> tasid.BlockMDP:
    """A small lock; its seed is used by no reported result."""
    return tasid.make("combination-lock", horizon=5, num_actions=4, seed=7)


@pytest.fixture(scope="session")
def learned(lock: tasid.BlockMDP) -> LearningResult:
    """The paper's TASID on the small lock."""
    return tasid.learn(lock, eta=0.1, episodes=4_000, seed=7, method="paper")


@pytest.fixture(scope="session")
def believed(lock: tasid.BlockMDP) -> LearningResult:
    """The belief method on the small lock."""
    return tasid.learn(lock, eta=0.1, episodes=64, seed=7)
