"""Closed doors are told from those next to them, and from none at all."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest

import tasid
from tasid.beliefs.classes import Classes
from tasid.beliefs.features import AsSeen
from tasid.beliefs.fitting import fit, schedule
from tasid.learning.belief.episodes import Recorded, as_chunks
from tasid.learning.belief.findings import findings
from tasid.learning.belief.fits import setting_for
from tasid.learning.belief.passages import Passages, closed_passages
from tasid.learning.surprise import MapFault

ETA, SIZE, NUMBER = 0.1, 6, 64
RING = """\
########
#S.....#
#.####.#
#.####.#
#.....G#
########"""


@cache
def plan():
    return tasid.robust_dp(tasid.make("building", map=RING, seed=1).simulator, eta=ETA)


def cell(sim, row, column):
    """The number that passages give a cell."""
    return row * sim.layout.cells.shape[1] + column


def walked(truth, *, seed=0):
    """Episodes by the plan with the true pose, a third of them at random, and noisy looks."""
    rng = np.random.default_rng(seed)
    sim = plan().simulator
    book = rng.normal(size=(sim.num_states, SIZE)) * 4
    state = np.full(NUMBER, sim.starts[0])
    seen, commands = [book[state]], []
    for h in range(sim.horizon):
        random = rng.integers(sim.num_actions, size=(2, NUMBER))
        command = np.where(rng.random(NUMBER) < 0.3, random[0], plan().actions[h, state])
        done = np.where(rng.random(NUMBER) < ETA, random[1], command)
        state = truth[state, done]
        seen.append(book[state])
        commands.append(command)
    shown = np.stack(seen, 1) + rng.normal(size=(NUMBER, sim.horizon + 1, SIZE))
    shape = NUMBER, sim.horizon
    return Recorded(
        shown.astype(np.float32),
        np.stack(commands, 1).astype(np.int32),
        np.full(shape, 99.0, np.float32),
        np.full(NUMBER, sim.horizon, np.int32),
        np.ones(shape, bool),
    )


def named(truth, suspected=()):
    sim, setting = plan().simulator, setting_for(plan())
    classes = Classes.of(setting.chain, "place", sim)
    chunks = as_chunks(walked(truth), setting.chain, AsSeen((SIZE,)), tells=False)
    emission, _ = fit(setting, classes, chunks, schedule("anneal", setting.chain))
    found = findings(setting, classes, emission, chunks, sim)
    found = replace(found, map_errors=(*found.map_errors, *suspected))
    return closed_passages(setting, classes, chunks, sim, [(emission, found)])


@pytest.mark.parametrize("columns", [(3, 4), (4, 5)])
def test_the_closed_passage_is_named_and_no_other(columns):
    sim, setting = plan().simulator, setting_for(plan())
    passages = Passages.of(setting.chain, sim)
    through = passages.through((cell(sim, 1, columns[0]), cell(sim, 1, columns[1])))
    states = np.asarray(setting.chain.states[0])
    wrong = {(int(states[slot]), int(action)) for slot, action in through}
    assert len(wrong) == 4, "forward and back, from either side"
    truth = sim.successor.copy()
    for state, action in wrong:
        truth[state, action] = state
    errors = named(truth)
    assert errors
    index = {label: i for i, label in enumerate(sim.states)}
    assert {(index[one.state], one.action) for one in errors} <= wrong
    assert all(one.surprises > 0.8 * one.visits for one in errors)


def test_an_open_passage_is_not_named_whoever_suspects_it():
    sim = plan().simulator
    step = plan().route()[2]
    suspicion = MapFault(-1, step.state, step.action, visits=60, surprises=50, p_value=0.0)
    assert named(sim.successor, [suspicion]) == ()


def test_a_closed_chain_stays_where_the_passage_was():
    sim, setting = plan().simulator, setting_for(plan())
    passages = Passages.of(setting.chain, sim)
    passage = cell(sim, 1, 2), cell(sim, 1, 3)
    chain = passages.closed(passage)
    assert chain is not None
    shut = Passages.of(chain, sim)
    assert not len(shut.through(passage))
    stays = passages.through(passage)
    assert (shut.leads[stays[:, 0], stays[:, 1]] == stays[:, 0]).all()
    others = np.ones(shut.leads.shape, bool)
    others[tuple(stays.T)] = False
    assert (shut.leads == passages.leads)[others].all()
    assert np.asarray(chain.share).sum(-1) == pytest.approx(np.asarray(setting.chain.share).sum(-1))
    assert bool(jnp.all(chain.share >= 0))
