"""Tiny random worlds, the strategies that draw them, and slow, obvious references.

Rewards, start probabilities and η are eighths: floats then hold every value below exactly, and
results are compared with == to rational arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from tasid.maps import AbstractSimulator, PerturbedMDP

ETAS = tuple(k / 8 for k in range(9))
etas = st.sampled_from(ETAS)
seeds = st.integers(0, 2**32 - 1)
quick = settings(max_examples=100, deadline=None)


def random_world(
    rng: np.random.Generator,
    *,
    states: int,
    actions: int,
    horizon: int,
    per_step: bool | None = None,
    several_starts: bool | None = None,
) -> AbstractSimulator:
    """Rewards in −2 … 2 by eighths, half of them by whole numbers, so that ties do occur."""
    size = (horizon, states, actions)
    per_step_successor, per_step_reward, several, coarse = rng.random(4) < 0.5
    if per_step is not None:
        per_step_successor = per_step_reward = per_step
    if several_starts is not None:
        several = several_starts
    reward = rng.integers(-16, 17, size=size if per_step_reward else size[1:]) / 8
    start, mu = int(rng.integers(states)), None
    if several and states > 1:
        start = rng.permutation(states)[:2].tolist()
        share = int(rng.integers(1, 8)) / 8
        mu = [share, 1 - share]
    return AbstractSimulator(
        rng.integers(states, size=size if per_step_successor else size[1:]),
        np.round(reward) if coarse else reward,
        horizon=horizon,
        start=start,
        start_probabilities=mu,
    )


@st.composite
def worlds(
    draw: st.DrawFn,
    *,
    states: int = 4,
    actions: int = 4,
    horizon: int = 4,
    per_step: bool | None = None,
    several_starts: bool | None = None,
) -> AbstractSimulator:
    """Random worlds up to these sizes; sizes shrink, contents come from a drawn seed."""
    return random_world(
        np.random.default_rng(draw(seeds)),
        states=draw(st.integers(1, states)),
        actions=draw(st.integers(1, actions)),
        horizon=draw(st.integers(1, horizon)),
        per_step=per_step,
        several_starts=several_starts,
    )


def random_actions(sim: AbstractSimulator, rng: np.random.Generator) -> np.ndarray:
    """A deterministic policy [H, S]."""
    return rng.integers(sim.num_actions, size=(sim.horizon, sim.num_states))


def random_probabilities(sim: AbstractSimulator, rng: np.random.Generator) -> np.ndarray:
    """A stochastic policy [H, S, A] in 64ths, some of them 0."""
    cuts = np.sort(rng.integers(65, size=(sim.horizon, sim.num_states, sim.num_actions - 1)))
    return np.diff(cuts, axis=-1, prepend=0, append=64) / 64


def per_step_tables(sim: AbstractSimulator) -> tuple[np.ndarray, np.ndarray]:
    """Writable [H, S, A] copies of both tables."""
    steps = range(sim.horizon)
    return (
        np.stack([sim.successor_at(h) for h in steps]),
        np.stack([sim.reward_at(h) for h in steps]),
    )


def rebuilt(
    sim: AbstractSimulator,
    *,
    successor: np.ndarray | None = None,
    reward: np.ndarray | None = None,
    starts: np.ndarray | None = None,
) -> AbstractSimulator:
    """The same world with some of its parts replaced."""
    return AbstractSimulator(
        sim.successor if successor is None else successor,
        sim.reward if reward is None else reward,
        horizon=sim.horizon,
        start=(sim.starts if starts is None else starts).tolist(),
        start_probabilities=sim.start_probabilities.tolist(),
    )


@dataclass(frozen=True)
class Exact:
    """A world in rational numbers: leads[h][s][a], pays[h][s][a] and (start, probability)s."""

    leads: list
    pays: list
    starts: list[tuple[int, Fraction]]

    @classmethod
    def of(cls, sim: AbstractSimulator) -> Exact:
        successor, reward = per_step_tables(sim)
        pays = [[[Fraction(r) for r in row] for row in step] for step in reward.tolist()]
        mu = [Fraction(p) for p in sim.start_probabilities.tolist()]
        return cls(successor.tolist(), pays, list(zip(sim.starts.tolist(), mu, strict=True)))

    @property
    def shape(self) -> tuple[int, int, int]:
        """H, S, A."""
        return len(self.pays), len(self.pays[0]), len(self.pays[0][0])

    def policies(self) -> Iterator[list[list[int]]]:
        """All deterministic policies [H][S]."""
        horizon, states, actions = self.shape
        yield from map(list, product(product(range(actions), repeat=states), repeat=horizon))

    def natures(self) -> Iterator[list]:
        """All extreme perturbations [H][S][A]: the action that gets η of each commanded one."""
        horizon, states, actions = self.shape
        rows = list(product(range(actions), repeat=actions))
        yield from map(list, product(product(rows, repeat=states), repeat=horizon))

    def value(self, policy: list, nature: list, eta: Fraction) -> Fraction:
        """The policy's value in one extreme perturbation, by following every branch."""

        def onward(h: int, s: int) -> Fraction:
            if h == len(self.pays):
                return Fraction(0)
            command = policy[h][s]
            return (1 - eta) * outcome(h, s, command) + eta * outcome(h, s, nature[h][s][command])

        def outcome(h: int, s: int, a: int) -> Fraction:
            return self.pays[h][s][a] + onward(h + 1, self.leads[h][s][a])

        return sum(p * onward(0, s) for s, p in self.starts)

    def least_value(self, policy: list, eta: Fraction) -> Fraction:
        """The policy's value when nature picks, state by state, the recipient that hurts most."""

        def worst(h: int, s: int, after: list[Fraction]) -> Fraction:
            q = self._lookahead(h, s, after)
            return min((1 - eta) * q[policy[h][s]] + eta * q[b] for b in range(len(q)))

        return self._at_start(self._sweep(worst)[0])

    def returns(self) -> Iterator[Fraction]:
        """What every sequence of actions pays, from every start."""
        horizon, _, actions = self.shape
        for (state, _), sequence in product(self.starts, product(range(actions), repeat=horizon)):
            paid = Fraction(0)
            for h, a in enumerate(sequence):
                paid += self.pays[h][state][a]
                state = self.leads[h][state][a]
            yield paid

    def max_min_values(self, eta: Fraction) -> list[list[Fraction]]:
        """V [H+1][S]: in every state the best command against the recipient that hurts it most."""

        def best(h: int, s: int, after: list[Fraction]) -> Fraction:
            q = self._lookahead(h, s, after)
            return max(min((1 - eta) * kept + eta * b for b in q) for kept in q)

        return self._sweep(best)

    def best_plain(self) -> Fraction:
        """Plain dynamic programming, nobody trembling."""
        return self._at_start(self._sweep(lambda h, s, v: max(self._lookahead(h, s, v)))[0])

    def first_best(self, values: list[list[Fraction]]) -> list[list[int]]:
        """[H][S]: the first action that maximises reward plus value onward."""
        horizon, states, _ = self.shape
        ahead = [
            [self._lookahead(h, s, values[h + 1]) for s in range(states)] for h in range(horizon)
        ]
        return [[q.index(max(q)) for q in step] for step in ahead]

    def _lookahead(self, h: int, s: int, after: list[Fraction]) -> list[Fraction]:
        return [r + after[t] for r, t in zip(self.pays[h][s], self.leads[h][s], strict=True)]

    def _sweep(self, combine) -> list[list[Fraction]]:
        horizon, states, _ = self.shape
        values = [[Fraction(0)] * states]
        for h in reversed(range(horizon)):
            values.insert(0, [combine(h, s, values[0]) for s in range(states)])
        return values

    def _at_start(self, values: list[Fraction]) -> Fraction:
        return sum(p * values[s] for s, p in self.starts)


def dense_value(mdp: AbstractSimulator | PerturbedMDP, probabilities: np.ndarray) -> float:
    """The value of a policy [H, S, A] by pushing the state distribution forward."""
    sim = mdp if isinstance(mdp, AbstractSimulator) else mdp.simulator
    occupancy = np.zeros(sim.num_states)
    occupancy[sim.starts] = sim.start_probabilities
    total = 0.0
    for h in range(sim.horizon):
        if isinstance(mdp, PerturbedMDP):
            transition, reward = mdp.transition_at(h), mdp.reward_at(h)
        else:
            transition = np.eye(sim.num_states)[sim.successor_at(h)]
            reward = sim.reward_at(h)
        pairs = occupancy[:, None] * probabilities[h]
        total += float((pairs * reward).sum())
        occupancy = np.tensordot(pairs, transition, axes=2)
    return total


def reachable(sim: AbstractSimulator) -> list[set[int]]:
    """The states that can be met at each step, by sets."""
    layers = [{int(s) for s in sim.starts}]
    for h in range(sim.horizon - 1):
        successor = sim.successor_at(h)
        layers.append({int(t) for s in layers[-1] for t in successor[s]})
    return layers
