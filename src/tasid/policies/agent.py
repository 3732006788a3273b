"""An agent: a policy that acts on one observation at a time."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from tasid.policy import Estimate, Policy


class Agent:
    """Acts for real: one observation in, one action out.

    After `act`, `state`, `confidence`, `belief` and `lost` describe where the agent takes itself to
    be.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.reset()

    def __repr__(self) -> str:
        return f"Agent({self.policy!r}, step={self.step})"

    def reset(self) -> None:
        """Begin a new episode."""
        self._memory = self.policy.init(1)
        self._last = np.zeros(0)
        self._repeats = 0
        self.step = 0
        """How many actions the agent has taken in this episode."""

    def act(self, observation: ArrayLike) -> int:
        """Take in the observation of this step and choose the action."""
        policy, step = self.policy, self.step
        if step >= policy.horizon:
            raise ValueError(f"act: the episode is over after {policy.horizon} steps; call reset()")
        array = np.asarray(observation)
        if array.shape != policy.observation_shape or array.dtype.kind not in "biuf":
            raise ValueError(
                f"observation: {array.dtype} of shape {array.shape} at step {step}, the policy "
                f"expects {policy.observation_dtype} of shape {policy.observation_shape}; raw "
                "ones of a wrapped environment are encoded by target.observe(…)"
            )
        with np.errstate(over="ignore"):
            array = array.astype(policy.observation_dtype)
        if not np.isfinite(array).all():
            raise ValueError(f"observation: not finite at step {step}")
        self._memory, actions = policy.act(self._memory, array[None], step)
        self._repeats = self._repeats + 1 if np.array_equal(array, self._last) else 0
        self._last = array
        self.step += 1
        return int(actions[0])

    @property
    def state(self) -> int:
        """Index of the most likely state on the map."""
        return int(self._estimate().state[0])

    @property
    def confidence(self) -> float:
        """Probability of that state; less where recent observations speak against the belief."""
        return float(self._estimate().confidence[0])

    @property
    def belief(self) -> dict[int, float]:
        """State index → probability, states below one in a million left out."""
        belief = self.policy.belief(self._memory, max(self.step - 1, 0))
        if belief is None:
            return {self.state: self.confidence}
        return {int(s): float(belief[0, s]) for s in np.flatnonzero(belief[0] > 1e-6)}

    @property
    def lost(self) -> bool:
        """Do recent observations contradict the estimate, or repeat as from a frozen sensor?"""
        usual = getattr(self.policy, "max_repeats", None)
        frozen = usual is not None and self._repeats > 2 * usual + 3
        return frozen or bool(self._estimate().lost[0])

    def _estimate(self) -> Estimate:
        estimate = self.policy.estimate(self._memory, max(self.step - 1, 0))
        if estimate is None:
            raise ValueError(f"a policy of method {self.policy.method!r} estimates no state")
        return estimate
