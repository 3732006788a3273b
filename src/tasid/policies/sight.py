"""How agents look: one observation in (NumPy), checked, and counted as a step of the episode."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike


class Looking:
    """What agents of all policies have in common."""

    def __init__(self, policy: Any) -> None:
        self._policy = policy
        self._step = 0

    @property
    def step(self) -> int:
        """How many actions this episode has had."""
        return self._step

    def _looked(self, observation: ArrayLike) -> np.ndarray:
        """The observation of this step as a policy takes it, or an error that says what is wrong.

        A failed look is no step: whoever calls this counts it when there is an action.
        """
        policy, step = self._policy, self._step
        if step >= policy.horizon:
            raise ValueError(
                f"act: the episode is over, its horizon is {policy.horizon} steps; call reset() "
                "first"
            )
        array = np.asarray(observation)
        if array.shape != policy.observation_shape:
            raise ValueError(
                f"observation: shape {array.shape} at step {step}, but the policy was "
                f"learned on {policy.observation_shape}"
            )
        if array.dtype.kind not in "biuf":
            raise TypeError(f"observation: dtype {array.dtype} at step {step} is no number")
        with np.errstate(over="ignore"):
            seen = array.astype(policy.observation_dtype)
        if not (np.isfinite(array).all() and np.isfinite(seen).all()):
            raise ValueError(f"observation: not finite at step {step}")
        return seen


class LookingInSlot(Looking):
    """The same in one row of a batch of fixed width, in which compiled evaluation runs, too."""

    def __init__(self, policy: Any, slot: int, *, width: int) -> None:
        if not 0 <= slot < width:
            raise ValueError(f"slot: {slot} is not in 0 … {width - 1}")
        super().__init__(policy)
        self._slot = slot
        self._batch = np.zeros((width, *policy.observation_shape), policy.observation_dtype)

    def _looked(self, observation: ArrayLike) -> np.ndarray:
        """The whole batch with the observation in its row."""
        self._batch[self._slot] = super()._looked(observation)
        return self._batch
