"""Fits that explain what was seen far worse are not asked whether the map is wrong."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

import tasid
from tasid.beliefs.classes import Classes
from tasid.beliefs.features import AsSeen
from tasid.beliefs.moments import Moments
from tasid.learning.belief.agreement import agreed_findings
from tasid.learning.belief.episodes import Recorded, as_chunks
from tasid.learning.belief.fits import BeliefFit, setting_for

ETA, SIZE, NUMBER, HORIZON, CELLS = 0.1, 8, 96, 12, 5
LEFT, RIGHT = 0, 1
LOOKS = AsSeen((SIZE,))
WRONG = (2, RIGHT)
"""On the map this leads to 3; really to where episodes begin."""


@cache
def world():
    """A corridor walked at random, and looks that tell its cells well apart."""
    cells = np.arange(CELLS)
    leads = np.stack([np.maximum(cells - 1, 0), np.minimum(cells + 1, CELLS - 1)], axis=1)
    reward = np.zeros((CELLS, 2))
    reward[-1] = 1.0
    plan = tasid.robust_dp(tasid.AbstractSimulator(leads, reward, horizon=HORIZON), eta=ETA)
    truth = leads.copy()
    truth[WRONG] = 0
    rng = np.random.default_rng(3)
    book = rng.normal(size=(CELLS, SIZE)) * 4
    state = np.zeros(NUMBER, int)
    seen, commands = [book[state]], []
    for _ in range(HORIZON):
        command = (rng.random(NUMBER) < 0.7).astype(int)
        done = np.where(rng.random(NUMBER) < ETA, 1 - command, command)
        state = truth[state, done]
        seen.append(book[state])
        commands.append(command)
    shown = np.stack(seen, 1) + rng.normal(size=(NUMBER, HORIZON + 1, SIZE))
    recorded = Recorded(
        shown.astype(np.float32),
        np.stack(commands, 1).astype(np.int32),
        np.full((NUMBER, HORIZON), 99.0, np.float32),
        np.full(NUMBER, HORIZON, np.int32),
        np.ones((NUMBER, HORIZON), bool),
    )
    setting = setting_for(plan)
    return plan.simulator, setting, as_chunks(recorded, setting.chain, LOOKS, tells=False), book


def by_looks(looks, *, name="anneal"):
    """A fit that takes cells to look like this [CELLS, SIZE]."""
    sim, setting, _, _ = world()
    classes = Classes.of(setting.chain, "place", sim)
    often = np.full(CELLS, 200.0)
    square = looks.T @ looks * 200 + np.eye(SIZE) * 200 * CELLS
    moments = Moments(often, looks * 200, 200.0 * CELLS, looks.sum(axis=0) * 200, square)
    return BeliefFit(name, classes, LOOKS, setting.gaussians(classes, moments), often)


def named(best, *others):
    sim, setting, chunks, _ = world()
    found = agreed_findings(setting, best, [best, *others], chunks, sim)
    return {(error.state, error.action) for error in found.map_errors}


def right():
    return by_looks(world()[3])


def scrambled():
    """A wrong labelling, which takes the third cell for the fourth."""
    return by_looks(world()[3][[0, 1, 3, 2, 4]], name="forward")


def test_a_fit_far_behind_has_no_veto():
    assert named(right()) == {WRONG}
    assert WRONG not in named(scrambled()), "else there is nothing to hide"
    assert named(right(), scrambled()) == {WRONG}


def test_the_best_is_always_asked_and_so_are_better_ones():
    assert WRONG not in named(scrambled(), right())


def test_a_fit_about_as_good_keeps_its_veto(monkeypatch):
    same = replace(right(), beginning="forward")
    assert named(right(), same) == {WRONG}
    _, setting, chunks, _ = world()
    behind = setting.log_evidence(right().classes, right().emission, chunks)
    behind -= setting.log_evidence(scrambled().classes, scrambled().emission, chunks)
    each = behind / (NUMBER * (HORIZON + 1))
    assert each > 1.0
    monkeypatch.setattr("tasid.learning.belief.agreement._BEHIND", each * 1.01)
    assert WRONG not in named(right(), scrambled())


def test_fits_of_other_features_or_classes_are_not_asked():
    elsewhere = replace(scrambled(), feature_map=AsSeen((SIZE,)))
    assert elsewhere.feature_map is not LOOKS
    assert named(scrambled(), replace(right(), feature_map=AsSeen((SIZE,)))) == named(scrambled())
    assert named(right(), elsewhere) == {WRONG}
