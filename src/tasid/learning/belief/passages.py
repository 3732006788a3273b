"""Closed doors: which passage of a building do the episodes not have, though the plan has it?

Before a closed door a robot stays where it is, and a fit may make anything of that. One that takes
it to have come through, and to stay one cell further on, even has a slip less to explain each time.
So where commands do not have their outcomes, the passages within a cell are tried one by one: the
map with that one closed, and looks fitted to it anew. The one under which the episodes are most
probable is named, if they are more probable than on the map as it is, and if closing it, by
the very same looks, is what makes them so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.beliefs.chain import Chain
from tasid.beliefs.classes import Classes
from tasid.beliefs.fitting import BeliefSetting, Chunks, fit, schedule
from tasid.beliefs.gaussian import Gaussians
from tasid.beliefs.smoother import tally
from tasid.learning.belief.findings import ALLOWANCE, Findings, findings
from tasid.learning.belief.slips import FEWEST
from tasid.learning.surprise import MapFault
from tasid.maps import AbstractSimulator
from tasid.theory.binomial import at_least

_MOST_DOORS = 3
_MOST_TRIED = 6
"""Passages tried for each door."""
_MOST_CHUNKS = 2
"""Chunks of episodes that are asked, the last ones."""
_GAIN = 30.0
"""Nats that closing a passage must gain by the same looks: about eight slips that were none."""

Passage = tuple[int, int]
"""Two cells next to each other, the smaller number first."""


@dataclass(frozen=True)
class _Explained:
    """Episodes as a map with a passage closed explains them."""

    setting: BeliefSetting
    emission: Gaussians
    score: float
    gain: float
    """What closing the passage is worth by the same looks."""


@dataclass(frozen=True)
class Passages:
    """The cells of a map's slots, and what commands lead from one to another."""

    chain: Chain
    cells: NDArray[np.int64]
    """The cell of each slot, [M]; −1 where a slot is empty."""
    leads: NDArray[np.int32]
    """The slot that each command should lead to, [M, A]."""

    @classmethod
    def of(cls, chain: Chain, sim: AbstractSimulator) -> Passages:
        """Of a map that knows where its states lie."""
        assert sim.layout is not None
        states = np.asarray(chain.states[0])
        rows, columns = sim.layout.positions[np.maximum(states, 0)].T.astype(np.int64)
        cells = np.where(states >= 0, rows * sim.layout.cells.shape[1] + columns, -1)
        successor, outcome = np.asarray(chain.successor[0]), np.asarray(chain.outcome[0])
        return cls(chain, cells, np.take_along_axis(successor, outcome, axis=1))

    def through(self, passage: Passage) -> NDArray[np.intp]:
        """All commands that lead through it, rows of (slot, action)."""
        there = np.where(self.cells[:, None] >= 0, self.cells[self.leads], -1)
        ways = np.sort(np.stack([np.broadcast_to(self.cells[:, None], there.shape), there]), axis=0)
        return np.argwhere((ways[0] == passage[0]) & (ways[1] == passage[1]))

    def around(self, slot: int, action: int) -> list[Passage]:
        """The passage that a command leads through, the one before it and the one after."""
        way = [slot, int(self.leads[slot, action])]
        way.append(int(self.leads[way[-1], action]))
        before = np.flatnonzero(self.leads[:, action] == slot)
        steps = [*pairwise(way), *((int(one), slot) for one in before)]
        cells = ((int(self.cells[a]), int(self.cells[b])) for a, b in steps)
        return [(min(pair), max(pair)) for pair in cells if pair[0] != pair[1]]

    def closed(self, passage: Passage) -> Chain | None:
        """The chain on which commands through a passage stay; None if nobody can stay there."""
        tables = self.chain.successor, self.chain.outcome, self.chain.share, self.chain.pays
        successor, outcome, share, pays = (np.array(table) for table in tables)
        for slot, action in self.through(passage):
            stays = (successor[0, slot] == slot) & (share[0, slot] > 0)
            if not stays.any():
                return None
            was, stay = outcome[0, slot, action], int(stays.argmax())
            one = share.dtype.type(1 / self.chain.num_actions)
            share[0, slot, was] = max(share[0, slot, was] - one, 0)
            share[0, slot, stay] += one
            pays[:, slot, stay] |= pays[:, slot, was]
            outcome[0, slot, action] = stay
        outcomes, shares, paying = (jnp.asarray(table) for table in (outcome, share, pays))
        return replace(self.chain, outcome=outcomes, share=shares, pays=paying)


def closed_passages(
    setting: BeliefSetting,
    classes: Classes,
    chunks: Chunks,
    sim: AbstractSimulator,
    fits: Sequence[tuple[Gaussians, Findings]],
) -> tuple[MapFault, ...]:
    """The commands through passages that are closed, by fits of places and what they found."""
    chunks = chunks[-_MOST_CHUNKS:]
    named: list[MapFault] = []
    score = max(setting.log_evidence(classes, emission, chunks) for emission, _ in fits)
    found = [one for _, one in fits]
    for _ in range(_MOST_DOORS):
        passages = Passages.of(setting.chain, sim)
        tried = _tried(passages, sim, found)
        best = _best(setting, classes, chunks, passages, tried)
        if best is None or best[1].score <= score or best[1].gain < _GAIN:
            break
        passage, explained = best
        named += _errors(explained, classes, chunks, sim, passages.through(passage))
        setting, score = explained.setting, explained.score
        found = [findings(setting, classes, explained.emission, chunks, sim)]
    return tuple(sorted(named, key=lambda error: error.p_value))


def _tried(passages: Passages, sim: AbstractSimulator, found: Sequence[Findings]) -> list[Passage]:
    """Passages near commands that did not have their outcomes, most misses first."""
    index = {label: state for state, label in enumerate(sim.states)}
    slots = {int(state): slot for slot, state in enumerate(np.asarray(passages.chain.states[0]))}
    misses: Counter[Passage] = Counter()
    for error in (error for one in found for error in one.map_errors):
        for passage in passages.around(slots[index[error.state]], error.action):
            misses[passage] += error.surprises
    return [passage for passage, _ in misses.most_common(_MOST_TRIED)]


def _best(
    setting: BeliefSetting,
    classes: Classes,
    chunks: Chunks,
    passages: Passages,
    tried: Sequence[Passage],
) -> tuple[Passage, _Explained] | None:
    """The passage that, closed, explains the episodes best."""
    chains = [(passage, passages.closed(passage)) for passage in tried]
    jobs: list[Callable[[], _Explained]] = [
        partial(_explained, setting, classes, chunks, chain) for _, chain in chains if chain
    ]
    with ThreadPoolExecutor(2) as pool:
        explained = list(pool.map(lambda job: job(), jobs))
    pairs = zip((passage for passage, chain in chains if chain), explained, strict=True)
    return max(pairs, key=lambda pair: pair[1].score, default=None)


def _explained(
    setting: BeliefSetting, classes: Classes, chunks: Chunks, chain: Chain
) -> _Explained:
    there = replace(setting, chain=chain)
    emission, _ = fit(there, classes, chunks, schedule("anneal", chain))
    score = there.log_evidence(classes, emission, chunks)
    gain = score - setting.log_evidence(classes, emission, chunks)
    return _Explained(there, emission, score, gain)


def _errors(
    explained: _Explained,
    classes: Classes,
    chunks: Chunks,
    sim: AbstractSimulator,
    commands: NDArray[np.intp],
) -> list[MapFault]:
    """The commands through a closed passage that were given often enough to say so."""
    setting = explained.setting
    chain, weights = setting.chain, setting.weights()
    parts = [tally(chain, classes, explained.emission, chunk, weights) for chunk in chunks]
    outcomes = np.sum([np.asarray(part.outcomes, np.float64) for part in parts], axis=0)[0]
    stay, states = np.asarray(chain.outcome[0]), np.asarray(chain.states[0])
    errors = []
    for slot, action in commands:
        given = round(float(outcomes[slot, action].sum()))
        stayed = round(float(outcomes[slot, action, stay[slot, action]]))
        if given >= FEWEST:
            p_value = float(at_least(stayed, given, setting.eta + ALLOWANCE))
            label = sim.states[int(states[slot])]
            errors.append(MapFault(-1, label, int(action), given, stayed, p_value))
    return errors
