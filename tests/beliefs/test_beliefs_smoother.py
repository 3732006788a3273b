"""The learner's smoother and the policy's filter against all paths, for all kinds of classes."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdps import seeds
from paths import REWARDS, Episode, Paths, a_world
from tasid.beliefs.chain import Chain, at
from tasid.beliefs.classes import KINDS, Classes
from tasid.beliefs.episodes import Episodes, payment_numbers
from tasid.beliefs.familiar import anything
from tasid.beliefs.filter import BeliefFilter
from tasid.beliefs.smoother import Weights, expect, smoothed, tally
from tasid.maps import AbstractSimulator

few = settings(max_examples=12, deadline=None)
kinds = st.sampled_from(KINDS)
NUMBER, PADDED, MOST_CLASSES = 2, 3, 6


class Shown(NamedTuple):
    """An emission whose features are the log-likelihoods of all classes."""

    nothing: jax.Array

    def scores(self, features: jax.Array, members: jax.Array) -> jax.Array:
        return features[:, members].T

    exact_scores = scores


class Case(NamedTuple):
    """A map, two episodes with a row of padding, and their likelihoods, for both sides."""

    sim: AbstractSimulator
    chain: Chain
    classes: Classes
    paths: Paths
    episodes: list[Episode]
    arrays: Episodes
    logs: np.ndarray

    def smoother(self, **weights):
        return self.chain, self.classes, Shown(jnp.zeros(())), self.arrays, Weights(**weights)

    def look(self, n: int, temper: float = 1.0) -> np.ndarray:
        return np.exp(temper * self.logs[n])

    def slot(self, h: int, state: int) -> int:
        return np.asarray(at(self.chain.states, h)).tolist().index(state)

    def by_slot(self, h: int, belief: np.ndarray) -> np.ndarray:
        """A belief over states as one over slots."""
        table = np.zeros(self.chain.num_slots)
        for state in np.flatnonzero(belief):
            table[self.slot(h, state)] = belief[state]
        return table


def a_case(seed: int, kind: str, *, leap: float = 0.0, told: bool = True) -> Case:
    rng = np.random.default_rng(seed)
    sim = a_world(rng, mixed=False)
    horizon, chain = sim.horizon, Chain.of(sim)
    classes = Classes.of(chain, kind, sim)
    layered = chain.states.shape[0] > 1
    rows = [np.asarray(chain.states)[h + 1 if layered else 0] for h in range(horizon)]
    anywhere = tuple(tuple(row[row >= 0].tolist()) for row in rows)
    paths = Paths(sim, 0.2, leap, kind, anywhere)
    assert classes.number == paths.num_classes
    commands = rng.integers(3, size=(NUMBER, horizon))
    rewards = rng.choice([*REWARDS, 99.0], size=(NUMBER, horizon))
    ended = rng.integers(1, horizon + 1, size=NUMBER)
    if not told:
        rewards[:], ended[:] = 99.0, horizon
    episodes = [
        Episode(tuple(c), tuple(r), int(e) if told else None)
        for c, r, e in zip(commands.tolist(), rewards.tolist(), ended, strict=True)
    ]
    logs = rng.normal(size=(NUMBER, horizon + 1, MOST_CLASSES))
    return Case(
        sim,
        chain,
        classes,
        paths,
        episodes,
        _arrays(chain, commands, rewards, ended, told, logs),
        logs,
    )


def _arrays(chain, commands, rewards, ended, told, logs) -> Episodes:
    def padded(table, dtype):
        blank = np.zeros((PADDED - NUMBER, *table.shape[1:]))
        return jnp.asarray(
            np.moveaxis(np.concatenate([table, blank]), 0, min(1, table.ndim - 1)), dtype
        )

    paid = payment_numbers(rewards, np.asarray(chain.payments))
    return Episodes(
        features=padded(logs, jnp.float32),
        commands=padded(commands, jnp.int32),
        paid=padded(paid, jnp.int32),
        ended=padded(ended, jnp.int32),
        tells=jnp.bool_(told),
        own=jnp.ones((chain.horizon, PADDED)),
        weight=padded(np.ones(NUMBER), jnp.float32),
    )


@few
@given(seeds, kinds, st.booleans())
def test_filter_and_smoother_are_those_of_all_paths(seed, kind, told):
    case = a_case(seed, kind, told=told)
    found = smoothed(*case.smoother(eta=0.2))
    forward, beliefs = np.asarray(found.before), np.asarray(found.after)
    evidence = np.asarray(found.expected.evidence)
    for n, episode in enumerate(case.episodes):
        whole = case.paths.found(episode, case.look(n))
        assert evidence[n] == pytest.approx(np.log(whole.total), abs=1e-4)
        live = 3 if episode.ended is None else episode.ended
        for h in range(4):
            belief = case.by_slot(h, whole.belief(h, 4))
            np.testing.assert_allclose(beliefs[h, :, n], belief, atol=1e-5)
        for h in range(live + 1):
            so_far = case.paths.found(episode, case.look(n), upto=h).belief(h, 4)
            np.testing.assert_allclose(forward[h, :, n], case.by_slot(h, so_far), atol=1e-5)


@few
@given(seeds)
def test_leaps_land_where_they_look_right(seed):
    case = a_case(seed, "place", leap=0.3)
    weights = {"eta": 0.2, "leap": 0.3}
    found = smoothed(*case.smoother(**weights))
    beliefs, evidence = np.asarray(found.after), np.asarray(found.expected.evidence)
    counted = tally(*case.smoother(**weights))
    expected = np.zeros(counted.leaps.shape)
    for n, episode in enumerate(case.episodes):
        whole = case.paths.found(episode, case.look(n))
        assert evidence[n] == pytest.approx(np.log(whole.total), abs=1e-4)
        for h in range(4):
            belief = case.by_slot(h, whole.belief(h, 4))
            np.testing.assert_allclose(beliefs[h, :, n], belief, atol=1e-5)
        for (h, state, command), weight in whole.leaps.items():
            if h < episode.ended:
                t = h if len(expected) > 1 else 0
                expected[t, case.slot(h, state), command] += weight / whole.total
    np.testing.assert_allclose(np.asarray(counted.leaps), expected, atol=1e-5)


@few
@given(seeds, kinds, st.booleans())
def test_counts_of_commands_and_looks_are_those_of_all_paths(seed, kind, told):
    case = a_case(seed, kind, told=told)
    advantage = -np.random.default_rng(seed).random((3, case.chain.num_slots, 3))
    counted = tally(*case.smoother(eta=0.2))
    shown = 2 * case.arrays.features
    found = expect(*case.smoother(eta=0.2), jnp.asarray(advantage, jnp.float32), shown)
    outcomes, counts = np.zeros(counted.outcomes.shape), np.zeros(case.classes.number)
    sums = np.zeros((case.classes.number, MOST_CLASSES))
    for n, episode in enumerate(case.episodes):
        whole = case.paths.found(episode, case.look(n))
        live = 3 if episode.ended is None else episode.ended
        for (h, state, command, lands), weight in whole.moves.items():
            if h < live:
                row = case.sim.successor_at(h)[state].tolist()
                t = h if len(outcomes) > 1 else 0
                place = (t, case.slot(h, state), command, sorted(set(row)).index(lands))
                outcomes[place] += weight / whole.total
        for (h, look), weight in whole.arrivals.items():
            if h <= live:
                counts[look] += weight / whole.total
                sums[look] += weight / whole.total * 2 * case.logs[n, h]
        regret = sum(
            -advantage[h, case.slot(h, s), episode.commands[h]] * weight
            for (h, s), weight in whole.visits.items()
            if h < 3
        )
        assert float(found.regret[n]) == pytest.approx(regret / whole.total, abs=1e-4)
    np.testing.assert_allclose(np.asarray(counted.outcomes), outcomes, atol=1e-5)
    np.testing.assert_allclose(np.asarray(found.counts), counts, atol=1e-5)
    np.testing.assert_allclose(np.asarray(found.sums), sums, atol=1e-4)


@few
@given(seeds, kinds, st.sampled_from([0.3, 1.0]), st.integers(0, 4))
def test_tempered_and_shortened_looks(seed, kind, temper, upto):
    """What is looked at dimly counts for a power; what is not looked at, for nothing."""
    case = a_case(seed, kind)
    found = smoothed(*case.smoother(eta=0.2, temper=temper, upto=upto))
    for n, episode in enumerate(case.episodes):
        look = case.look(n, temper)
        look[upto:] = 1.0
        whole = case.paths.found(episode, look)
        assert float(found.expected.evidence[n]) == pytest.approx(np.log(whole.total), abs=1e-4)
        belief = case.by_slot(2, whole.belief(2, 4))
        np.testing.assert_allclose(np.asarray(found.after[2, :, n]), belief, atol=1e-5)


@few
@given(seeds, kinds)
def test_not_listening_to_rewards_and_ends(seed, kind):
    case = a_case(seed, kind)
    found = smoothed(*case.smoother(eta=0.2, told=0.0)).expected.evidence
    for n, episode in enumerate(case.episodes):
        look = case.look(n)
        look[episode.ended + 1 :] = 1.0
        whole = case.paths.found(Episode(episode.commands), look)
        assert float(found[n]) == pytest.approx(np.log(whole.total), abs=1e-4)


_look, _first, _step = map(jax.jit, (BeliefFilter.look, BeliefFilter.first, BeliefFilter.step))


@few
@given(seeds, kinds)
def test_the_policys_filter_is_that_of_all_paths(seed, kind):
    """Step by step, with leaps where places have looks of their own, without rewards and ends.

    Scores are lowered by what all classes share, which must not matter.
    """
    leap = 0.1 if kind == "place" else 0.0
    case = a_case(seed, kind, leap=leap, told=False)
    eta, least = jnp.float32(0.2), anything(case.classes.number)
    emission = Shown(jnp.zeros(()))
    tracker = BeliefFilter(case.chain, case.classes, emission, eta, jnp.float32(leap), least)
    seen = [_look(tracker, case.arrays.features[h] - 60.0, h) for h in range(4)]
    belief = _first(tracker, seen[0]).belief
    for h in range(4):
        if h:
            belief = _step(tracker, belief, case.arrays.commands[h - 1], seen[h], h - 1).belief
        for n, episode in enumerate(case.episodes):
            bare = Episode(episode.commands)
            so_far = case.paths.found(bare, case.look(n), upto=h).belief(h, 4)
            np.testing.assert_allclose(belief[:, n], case.by_slot(h, so_far), atol=1e-5)


def test_an_odd_look_is_not_final():
    """Likelihoods are floored beside the largest: what looks impossible may still be."""
    leads = np.array([[0, 1], [1, 1]])
    sim = AbstractSimulator(leads, np.zeros((2, 2)), horizon=2)
    chain = Chain.of(sim)
    classes = Classes.of(chain, "place", sim)
    logs = np.zeros((NUMBER, 3, 2))
    logs[:, 1], logs[:, 2] = [0.0, -200.0], [-200.0, 0.0]
    arrays = _arrays(
        chain, np.zeros((2, 2), int), np.full((2, 2), 99.0), np.array([2, 2]), False, logs
    )
    forward = smoothed(chain, classes, Shown(jnp.zeros(())), arrays, Weights(eta=0.0)).before
    assert np.isfinite(np.asarray(forward)).all()
    np.testing.assert_allclose(np.asarray(forward)[:, 0, 0], 1, atol=1e-6)


def test_ends_are_said_once_and_the_horizon_says_nothing():
    """However many steps follow, an end that the map has not counts for the same."""
    evidence = []
    for horizon in (4, 20):
        leads = np.array([[0, 0], [1, 1]])
        reward = np.array([[1.0, 1.0], [0.0, 0.0]])
        sim = AbstractSimulator(
            leads, reward, horizon=horizon, start=[0, 1], start_probabilities=[0.5, 0.5]
        )
        chain = Chain.of(sim)
        classes = Classes.of(chain, "place", sim)
        nothing = np.zeros((NUMBER, horizon + 1, 2))
        commands = np.zeros((NUMBER, horizon), int)
        silent = np.full((NUMBER, horizon), 99.0)
        arrays = _arrays(chain, commands, silent, np.array([1, horizon]), True, nothing)
        parts = chain, classes, Shown(jnp.zeros(())), arrays
        beliefs = smoothed(*parts, Weights(eta=0.0)).after
        evidence.append(np.asarray(beliefs[0, :, :NUMBER]))
        # The second episode met no end in horizon − 1 steps; its last step says nothing.
        assert evidence[-1][1, 1] == pytest.approx(0.05 ** (horizon - 1), rel=1e-3, abs=1e-9)
    np.testing.assert_allclose(evidence[0][:, 0], [0.05 / 1.05, 1 / 1.05], rtol=1e-5)
    np.testing.assert_allclose(evidence[1][:, 0], evidence[0][:, 0], rtol=1e-5)
