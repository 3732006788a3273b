"""What places look like, learned from the steps before: a witness whom the map cannot mislead.

The model that decodes a step has been fitted to it, with the map's word for where commands lead.
Where the map is wrong, it learns to agree. So the map is tested by another one, which sees x'
alone, gives every place a chance, and has learned from earlier steps only. It is heard about the
places that it told rightly before.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tasid.algorithms.models import Mask
from tasid.algorithms.replay import LabelTables, Replay
from tasid.learning.ridge import Examples, fit_ridge

_GROWTH = 1.4
"""It learns again whenever there are so many times the steps; between, it is only asked."""
_PENALTY = 10.0
"""Few examples of a place must not make it sure; nothing is chosen by evidence here."""
_SURE = math.log(3.0)
"""Another place must be so many nats likelier."""
_HEARD = 50
"""So often it must have told a place, …"""
_ERRORS = 0.1
"""… and been wrong no more often than this and slips together."""


class Testimony(NamedTuple):
    """What is said about every transition of a replay, [n] each."""

    elsewhere: Mask
    """Does x' look like another place than the command should have led to?"""
    reliable: Mask
    """Was it told rightly, as a rule, where such commands led? Never where there is no choice of
    outcomes: those are ends, and who seems to have left one was not there."""


def witness(replay: Replay, tables: LabelTables, *, eta: float) -> Testimony:
    """Ask it about every step, and let it learn from the steps before now and then."""
    choices = tables.choices(replay)
    label, everywhere = choices.label, np.ones_like(choices.valid)
    # A step's own centre would hide that one place was met instead of another.
    centres, group = replay.flat.centres(by_step=False)
    half = centres.shape[1] // 2
    looks = Examples(
        replay.flat.inputs[:, half:], centres[:, half:], group, replace(choices, valid=everywhere)
    )
    weights = np.zeros((half + 1, tables.size), np.float32)
    elsewhere, reliable = np.zeros((2, label.size), bool)
    told, wrong = np.zeros((2, tables.size))
    first = 1
    while first < replay.steps:
        weights = fit_ridge(looks.only(replay.step < first), penalty=_PENALTY, start=weights)
        following = math.ceil(first * _GROWTH)
        here = (first <= replay.step) & (replay.step < following)
        scores = looks.only(here).scores(weights)
        lead = scores.max(axis=1) - scores[np.arange(len(scores)), label[here]]
        elsewhere[here] = lead > _SURE
        heard = (told >= _HEARD) & (wrong <= (eta + _ERRORS) * told)
        reliable[here] = heard[label[here]] & (choices.number[here] > 1)
        told += np.bincount(label[here], minlength=tables.size)
        wrong += np.bincount(label[here & elsewhere], minlength=tables.size)
        first = following
    return Testimony(elsewhere, reliable)
