"""Open-loop policies: they act without observations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasid.planning.robust_dp import RobustPlan
from tasid.policy import Policy
from tasid.targets.base import Target


class OpenLoopPolicy(Policy):
    """Executes a plan in the state that its own actions lead to on the map.

    It starts in the most likely start and takes every action, also an imposed one, to have its
    intended outcome. Without a plan it takes action 0: a vehicle for imposed actions. Its memory
    is the states and the actions of the last step, [n] each.
    """

    method = "open loop"

    def __init__(self, target: Target, plan: RobustPlan | None = None) -> None:
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
