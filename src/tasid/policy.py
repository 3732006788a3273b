"""Policies, functions of a memory and an observation: the base class, and the open-loop policy."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tasid.planning.robust_dp import RobustPlan
    from tasid.policies.agent import Agent

Memory = Any
"""What a policy remembers of a batch of episodes; episodes first, so that rows are episodes."""


class Estimate(NamedTuple):
    """Where a policy takes its episodes to be."""

    state: NDArray[np.intp]
    """Index of the most likely state on the map, [n]."""
    confidence: NDArray[np.float64]
    """Its probability, [n]."""
    lost: NDArray[np.bool_]
    """Do the observations contradict the estimate? [n]"""


class Policy(abc.ABC):
    """Acts on batches of episodes. It runs on the host and needs no environment."""

    observation_shape: tuple[int, ...]
    observation_dtype: str
    horizon: int
    num_actions: int
    method: str
    """Name of the learning method."""
    environment: Mapping[str, Any] | None = None
    """Name and options of the environment it was learned in, to build it again."""
    plan: RobustPlan | None = None
    """The robust plan it executes, if it has one."""

    def __repr__(self) -> str:
        where = (self.environment or {}).get("name")
        return f"{type(self).__name__}(environment={where!r}, horizon={self.horizon})"

    def view(self, target: Any) -> Any:
        """The target as this policy observes it; an oracle observes true states."""
        return target

    @abc.abstractmethod
    def init(self, n: int) -> Memory:
        """Memory of n episodes before their first observation."""

    @abc.abstractmethod
    def act(
        self, memory: Memory, observations: NDArray[Any], h: int
    ) -> tuple[Memory, NDArray[np.int32]]:
        """Take in the observations [n, …] of step h and choose actions [n]."""

    def override(self, memory: Memory, actions: NDArray[np.int32]) -> Memory:
        """Memory when `actions` [n] are executed instead of the chosen ones."""
        return memory

    def estimate(self, memory: Memory, h: int) -> Estimate | None:
        """Where the episodes are after `act` at step h; None for policies without a map."""
        return None

    def belief(self, memory: Memory, h: int) -> NDArray[np.float64] | None:
        """Probabilities of the map's states, [n, S], if the policy maintains them."""
        return None

    @abc.abstractmethod
    def save(self, path: str | Path) -> Path:
        """Write the policy into a folder; `tasid.load` reads it."""

    def agent(self) -> Agent:
        """A fresh agent that acts on one observation at a time."""
        from tasid.policies.agent import Agent

        return Agent(self)


class OpenLoopPolicy(Policy):
    """Executes a plan in the state that its own actions lead to on the map.

    It starts in the most likely start and takes every action, also an imposed one, to have its
    intended outcome. Without a plan it takes action 0: a vehicle for imposed actions. Its memory
    is the states and the actions of the last step, [n] each. It has the shapes of `target`.
    """

    method = "open loop"

    def __init__(self, target: Any, plan: RobustPlan | None = None) -> None:
        for name in ("observation_shape", "observation_dtype", "num_actions", "horizon"):
            setattr(self, name, getattr(target, name))
        self.plan = plan

    def init(self, n: int) -> Any:
        sim = None if self.plan is None else self.plan.simulator
        start = 0 if sim is None else int(sim.starts[sim.start_probabilities.argmax()])
        return np.full(n, start), np.zeros(n, np.int32)

    def act(self, memory: Any, observations: NDArray[Any], h: int) -> tuple[Any, NDArray[np.int32]]:
        if self.plan is None:
            return memory, np.zeros(len(observations), np.int32)
        states, actions = memory
        if h > 0:
            states = self.plan.simulator.intended(h - 1)[states, actions]
        actions = self.plan.actions[h, states].astype(np.int32)
        return (states, actions), actions

    def override(self, memory: Any, actions: NDArray[np.int32]) -> Any:
        return memory[0], actions

    def save(self, path: str | Path) -> Path:
        raise TypeError("an open-loop policy follows from its plan and is not stored")
