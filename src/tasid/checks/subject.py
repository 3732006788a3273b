"""What is being checked, by episodes with commands fixed in advance, and what can be found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tasid.maps import AbstractSimulator, robust_dp
from tasid.maps.planning.backward import layers
from tasid.targets import Target
from tasid.targets.rollout import stepper
from tasid.targets.streams import BLIND
from tasid.targets.target import episode_keys, refuse_failures, seed_key, unfinished

_WIDTH = 128
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
class BlindEpisodes:
    """Episodes that were played, [n] or [n, T]."""

    rewards: NDArray[np.float64]
    ended: NDArray[np.int64]
    """After how many steps the episode was over; T + 1 if it was not."""
    seen: dict[int, NDArray[Any]]
    """The observations of the steps that were asked for, [n, …]."""


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

    def play(
        self, commands: ArrayLike, *, first: int = 0, keep: Iterable[int] = ()
    ) -> BlindEpisodes:
        """Play episodes number `first`, first + 1, … with the commands [n, T]."""
        table, kept = np.asarray(commands, dtype=np.int64), sorted(set(keep))
        room = _WIDTH if self.target.traceable else self.target.num_envs or _WIDTH
        parts = [
            self._wave(table[start : start + room], first + start, kept, room)
            for start in range(0, len(table), room)
        ]
        rewards, ended, seen = zip(*parts, strict=True)
        every = {h: np.concatenate([one[h] for one in seen]) for h in kept}
        return BlindEpisodes(np.concatenate(rewards), np.concatenate(ended), every)

    def _wave(
        self, commands: NDArray[np.int64], first: int, kept: list[int], room: int
    ) -> tuple[NDArray[np.float64], NDArray[np.int64], dict[int, NDArray[Any]]]:
        target = self.target
        number, steps = commands.shape
        # Compiled code has one width; elsewhere an episode may cost something.
        width = room if target.traceable else number
        filled = np.zeros((width, steps), dtype=np.int32)
        filled[:number] = commands
        keys = episode_keys(seed_key(self.seed), BLIND, first + jnp.arange(width))
        rewards, ended = np.zeros((number, steps)), np.full(number, steps + 1)
        seen, advance = {}, stepper(target)
        state, observations = target.reset(keys)
        for h in range(steps + 1):
            if h > 0:
                actions = jnp.asarray(filled[:, h - 1])
                state, observations, paid = advance(target, state, actions, jnp.int32(h - 1), keys)
                refuse_failures(target, state)
                rewards[:, h - 1] = np.asarray(paid)[:number]
            if h in kept:
                seen[h] = np.asarray(observations)[:number]
            over = ~np.asarray(unfinished(target, state, width))[:number]
            ended[over & (ended > steps)] = h
        return rewards, ended, seen
