"""What is being checked, and what a check can find."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tasid.maps import AbstractSimulator, robust_dp
from tasid.maps.planning.backward import layers
from tasid.targets import Target

LEVEL = 0.001
"""Each test calls a fitting target unfit with at most this probability."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    name: str
    status: str
    """"ok", "problem", or "note" where nothing can be said or nothing has to be."""
    text: str


def fine(name: str, text: str) -> Finding:
    """Looked at, and right."""
    return Finding(name, "ok", text)


def problem(name: str, text: str) -> Finding:
    """Looked at, and wrong."""
    return Finding(name, "problem", text)


def note(name: str, text: str) -> Finding:
    """Worth knowing."""
    return Finding(name, "note", text)


@dataclass(frozen=True, eq=False)
class Subject:
    """A target, its supposed map, and how hard to look."""

    target: Target
    sim: AbstractSimulator
    eta: float
    episodes: int
    """For each test."""
    seed: int

    @cached_property
    def route(self) -> tuple[list[int], list[int]]:
        """States and actions of the plan that trusts the map, until nothing more can happen."""
        plan = robust_dp(self.sim, eta=0.0)
        states, actions = [self.sim.start], []
        for h in range(self.sim.horizon):
            if self.absorbing(h, states[-1]):
                break
            actions.append(plan.action(h, states[-1]))
            states.append(int(self.sim.successor_at(h)[states[-1], actions[-1]]))
        return states, actions

    def absorbing(self, h: int, state: int) -> bool:
        """Does nothing happen in this state any more, whatever one does?"""
        stays = (self.sim.successor_at(h)[state] == state).all()
        return bool(stays and not self.sim.reward_at(h)[state].any())

    @cached_property
    def layers(self) -> list[NDArray[np.intp]]:
        """The states reachable at step 0, 1, …, H."""
        return layers(self.sim)

    def sites(self) -> list[tuple[int, int]]:
        """Steps and states of the route that are reached in at least half of the episodes."""
        states, actions = self.route
        return [
            (h, state)
            for h, state in enumerate(states[: len(actions)])
            if (1.0 - self.eta) ** h >= 0.5
        ]

    def name(self, action: int) -> str:
        """The action by its name, if the map has names."""
        origin = self.sim.origin
        if origin is None or origin.actions is None:
            return f"action {action}"
        return f"action {action} ({origin.actions[action]})"
