"""Outcome tables and the numberings of labels, against brute force on random maps."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

import tasid
from mdps import quick, worlds
from tasid.algorithms.replay import LabelTables
from tasid.envs.target import episode_keys, seed_key
from tasid.learning.labels import MOST_PLACES, labels_for
from tasid.mdp.backward import layers
from tasid.mdp.outcomes import outcomes

KINDS = ("outcomes by rank", "outcomes by action", "outcomes by place")


def reachable(sim):
    return [(h, int(s)) for h, layer in enumerate(layers(sim)[:-1]) for s in layer]


@quick
@given(worlds())
def test_outcomes_are_the_distinct_successors(sim):
    found = outcomes(sim)
    for h in range(sim.horizon):
        at = (lambda t, h=h: t[h]) if sim.successor.ndim == 3 else (lambda t: t)
        for s in range(sim.num_states):
            row = sim.successor_at(h)[s].tolist()
            distinct = sorted(set(row))
            assert at(found.number)[s] == len(distinct)
            assert at(found.exists)[s].tolist() == [o < len(distinct) for o in range(found.most)]
            for o, to in enumerate(distinct):
                assert at(found.successor)[s, o] == to
                assert at(found.representative)[s, o] == row.index(to)
            assert [distinct[o] for o in at(found.of_action)[s]] == row


@pytest.mark.parametrize("kind", KINDS)
@quick
@given(worlds())
def test_every_numbering_names_every_outcome_once(kind, sim):
    labels = labels_for(kind, sim)
    for h, s in reachable(sim):
        tables = labels.at(h)
        valid = np.asarray(tables.valid[s])
        row = sim.successor_at(h)[s]
        led = np.asarray(tables.successor[s])[valid]
        assert sorted(led.tolist()) == sorted(set(row.tolist()))
        commands = np.asarray(tables.command[s])[valid]
        assert (row[commands] == led).all()
        assert all((row[:c] != row[c]).all() for c in commands), "the lowest action represents"


def test_places_mean_the_same_at_every_step_of_the_lock():
    sim = tasid.make("combination-lock", horizon=6, num_actions=5, seed=2).simulator
    labels = labels_for("outcomes by place", sim)
    for h, s in reachable(sim):
        for column in np.flatnonzero(np.asarray(labels.at(h).valid[s])):
            kind = sim.states[int(labels.at(h).successor[s, column])][1]
            assert column == kind - 1 or h == 0
    assert labels.num_labels == 3


def test_places_are_refused_where_there_are_too_many():
    size = MOST_PLACES + 6
    ring = np.stack([(np.arange(size) + d) % size for d in (-1, 0, 1)], axis=1)
    sim = tasid.AbstractSimulator(ring, np.zeros((size, 3)), horizon=size)
    with pytest.raises(ValueError, match=f"{size} places"):
        labels_for("outcomes by place", sim)
    few = tasid.AbstractSimulator(ring, np.zeros((size, 3)), horizon=4)
    assert labels_for("outcomes by place", few).num_labels == 9


def test_draws_are_uniform_over_outcomes_not_actions():
    """One of ten actions stays, nine lead on: outcomes are drawn half and half."""
    successor = np.ones((2, 10), int)
    successor[0, 7] = 0
    sim = tasid.AbstractSimulator(successor, np.zeros((2, 10)), horizon=3)
    keys = episode_keys(seed_key(1), 0, jnp.arange(4_000))
    for kind in KINDS:
        labels = labels_for(kind, sim)
        _, command = labels.draw(keys, jnp.zeros(4_000, jnp.int32), jnp.int32(0))
        counts = np.bincount(np.asarray(command), minlength=10)
        assert set(np.flatnonzero(counts)) == {0, 7}
        assert abs(counts[7] - 2_000) < 4.5 * np.sqrt(1_000)
        _, alone = labels.draw(keys, jnp.ones(4_000, jnp.int32), jnp.int32(0))
        assert (alone == 0).all()


def test_equal_numberings_are_noticed():
    sim = tasid.make("combination-lock", horizon=4, num_actions=4, seed=1).simulator
    tables = {kind: LabelTables(labels_for(kind, sim)) for kind in KINDS}
    states = np.unique(np.concatenate(layers(sim)))
    assert tables["outcomes by rank"].same_as(tables["outcomes by place"], states)
    assert not tables["outcomes by action"].same_as(tables["outcomes by place"], states)


def test_unknown_numbering():
    sim = tasid.make("combination-lock", horizon=2, seed=1).simulator
    with pytest.raises(ValueError, match="labels: 'by colour' is unknown"):
        labels_for("by colour", sim)
