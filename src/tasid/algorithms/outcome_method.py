"""The outcome method: the map tells which actions cannot be told apart, so learn only the rest.

Given the tracked state, actions with one successor are one outcome. Explore uniformly over
outcomes (by their representatives), predict the outcome from (x, ŝ, x') — ŝ enters as the set of
outcomes that exist there — with one model for all steps, refitted on every randomised transition
so far, and keep a snapshot per step. How outcomes are numbered, how inputs are centred and which
model class is used is decided by held-out evidence, simple first. See docs/outcome-classes.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import softmax

from tasid.algorithms.budget import Judgement, Quota
from tasid.algorithms.candidates import Candidate
from tasid.algorithms.decoder import Decoder
from tasid.algorithms.looks import witness
from tasid.algorithms.models import (
    Mask,
    Model,
    NetworkModel,
    PairModel,
    PictureModel,
    PlacesModel,
    RidgeModel,
    own_model,
    scores_of,
)
from tasid.algorithms.replay import LabelTables, Replay
from tasid.algorithms.surprise import EtaEstimate, Surprises
from tasid.algorithms.tasid import FITTING, Aside, Explored, Fitted
from tasid.envs.target import Target, seed_key
from tasid.learning.choices import Floats
from tasid.learning.labels import labels_for
from tasid.learning.own import Own
from tasid.learning.pictures import GridCNN, Patches, is_picture
from tasid.mdp import RobustPlan
from tasid.mdp.backward import layers
from tasid.mdp.outcomes import outcomes

MEANINGFUL = ("outcomes by place", "outcomes by action")
NUMBERINGS = (*MEANINGFUL, "outcomes by rank")
"""A rank means something else in every state. It may do where models are cheap and evidence soon
tells; with images, a lead of chance in the first steps would be paid for in all the others."""
HIDDEN = (56, 56)
DETOURS = 0.5
"""Half of the roll-ins visit, by a random outcome, what slips visit rarely; it costs a factor 2 in
the bound (w = ½) and is what makes recovery from slips learnable where η is small."""
ELSEWHERE = 5.0
"""Nats against places that are no outcomes of ŝ, while a linear model of places learns. Were they
ruled out, it would never learn how they look, and could not tell later that ŝ must be wrong."""
_BEHIND = 10.0
_SLACK = 0.1
"""Nats above the perfect decoder's level at which a richer model class is tried."""
_FEWEST = 8
"""Held-out transitions of one step before it is called indistinct."""
_MET = 0.1
"""The share of a step's episodes that must meet an outcome before it is waited for."""
_MOST_ETA = 0.4
"""Above it, majorities take forever."""
_JUDGED = 30
"""Held-out transitions before a model class is judged."""
_AGAIN = 2
"""How often vectors must come back, on average, for places to be known by their looks."""

RollIns = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]
"""Tracked states of roll-ins [n, h+1], where each had its detour and how many steps it began [n].

Those that ended are among them: what survives a step is not a fair sample of where it led."""


class OutcomeLearner:
    """Fits the outcome method's models, for one seed."""

    detours = DETOURS

    def __init__(
        self,
        target: Target,
        plan: RobustPlan,
        *,
        quota: Quota,
        seed: int,
        labels: str | None = None,
        model: Own | None = None,
    ) -> None:
        self._plan, self._quota, self._own = plan, quota, model
        self._shape = target.observation_shape
        self._key = jax.random.fold_in(seed_key(seed), FITTING)
        self._number = outcomes(plan.simulator).number
        self._replay = Replay(_patches(self._shape) if model is None else None)
        self._taken: Counter[int] = Counter()
        """Episodes of every step, those included that had ended before it."""
        self._paths: list[RollIns] = []
        self._surprised = np.zeros(2, np.int64)
        """Surprises in the roll-ins so far, and transitions."""
        self._candidates: list[Candidate] = []
        self._decoders: dict[Candidate, Decoder] = {}
        for candidate in self._first_candidates(labels):
            self._enter(candidate)
        self._best = self._candidates[0]

    @property
    def decoder(self) -> Decoder:
        """The best candidate's decoder, stacked as a group of one."""
        return jax.tree.map(lambda leaf: leaf[None], self._decoders[self._best])

    @property
    def model(self) -> str:
        """The way of modelling that has won so far."""
        return self._best.name

    @property
    def evidence(self) -> dict[str, float]:
        """Nats lost on held-out transitions by each way still in the race."""
        return {candidate.name: candidate.evidence for candidate in self._candidates}

    def wants(self, h: int, taken: int) -> int:
        """As the quota says; it may look at the evidence."""
        return self._quota.wants(h, taken, self)

    def learn(self, h: int, data: Explored) -> Fitted:
        """Refit all candidates still in the race; the best one's model becomes the step's."""
        one = jax.tree.map(lambda leaf: np.asarray(leaf[0]), data)
        if not self._taken and self._come_back(one.x_next[one.live]):
            self._try_looks()
        self._taken[h] += one.live.size
        self._remember(h, one.live, one)
        if one.aside is not None:
            for earlier in np.unique(one.detour[one.detour >= 0]):
                here = (one.detour == earlier) & one.aside.live
                self._remember(int(earlier), here, one.aside)
        path = np.concatenate([one.path[:, :h], one.states[:, None]], axis=1)
        self._paths.append((path, one.detour, one.begun))
        self._surprised += self._on_the_way(self._paths[-1:]).counts
        for candidate in self._candidates:
            self._refit(candidate, h)
        self._judge(h)
        judged = self._best.judged.get(h)
        loss = float(judged.losses.mean()) if judged else math.nan
        so_far = EtaEstimate.of(*self._surprised.tolist(), planned=self._plan.eta)
        return Fitted([loss], [1], [[]], (so_far.rate, so_far.low, so_far.high))

    def _come_back(self, seen: NDArray[Any]) -> bool:
        """Are these vectors that are seen again and again, to the last bit?"""
        if self._own is not None or is_picture(self._shape):
            return False
        different = len(np.unique(seen.reshape(len(seen), -1), axis=0))
        return different * _AGAIN <= len(seen)

    def _try_looks(self) -> None:
        """Places by their looks, beside the linear models of places."""
        for tables in {one.tables: None for one in self._candidates}:
            if tables.labels.name_places:
                model = PlacesModel(self._size, tables.size, eta=self._plan.eta)
                self._enter(Candidate(tables, model))

    def _remember(self, h: int, rows: Mask, seen: Explored | Aside) -> None:
        pairs = np.stack([seen.x[rows], seen.x_next[rows]], axis=1)
        self._replay.add(h, pairs, np.asarray(seen.states)[rows], np.asarray(seen.command)[rows])

    def finish(self) -> Decoder:
        """The decoder in hindsight, with its temperature set on all held-out transitions.

        The last model has seen every step, so it serves all of them if held-out evidence says so.
        """
        best = self._best
        if self._replay.steps and best.hindsight(self._replay):
            self._decoders[best] = self._decoders[best].with_models(best.model.models(self._replay))
        temperature = jnp.float32(_temperature(best))
        self._decoders[best] = replace(self._decoders[best], temperature=temperature)
        return self._decoders[best]

    def surprises(self) -> Surprises:
        """How often outcomes differed from the intended ones, by place; from all episodes."""
        seen, replay = self._on_the_way(self._paths), self._replay
        for h in range(replay.steps):
            here = replay.step == h
            seen.add(h, replay.states[here], replay.command[here], *self._decoded(h, here))
        if replay.steps > 1 and (places := self._places()) is not None:
            told = witness(replay, places, eta=self._plan.eta)
            seen.add_testimony(replay.step, replay.states, replay.command, told)
        return seen

    def _on_the_way(self, paths: Sequence[RollIns]) -> Surprises:
        """Those of roll-ins alone."""
        seen = Surprises(self._plan, self._number)
        for path in paths:
            seen.add_path(*path)
        return seen

    def _places(self) -> LabelTables | None:
        """Outcomes by place, if there are vectors and few enough places."""
        if is_picture(self._shape):
            return None
        try:
            return LabelTables(labels_for("outcomes by place", self._plan.simulator))
        except ValueError:
            return None

    def indistinct(self) -> list[int]:
        """Steps whose held-out loss is near that of guessing."""
        found = []
        for h, (_, choices, losses) in self._best.judged.items():
            number = choices.number
            if losses.size < _FEWEST:
                continue
            excess = losses - fano_level(number, self._plan.eta)
            surely = excess.mean() > 3 * excess.std() / math.sqrt(losses.size)
            if surely and losses.mean() > 0.8 * np.log(number).mean():
                found.append(h)
        return found

    def judged(self, h: int) -> Judgement:
        """What the held-out transitions of step h say about its model."""
        if h not in self._best.judged:
            return Judgement(0, 0, 0.0)
        scores, choices, losses = self._best.judged[h]
        number, eta = choices.number, self._plan.eta
        f = np.sort(np.exp(choices.log_probabilities(scores)), axis=1)
        lead = (1 - 2 * eta) / (1 + (number - 2) * eta)
        unclear = int((f[:, -1] - f[:, -2] < 0.5 * lead).sum())
        return Judgement(number.size, unclear, float((losses - fano_level(number, eta)).sum()))

    def doubt(self, h: int) -> float:
        """Could slips outvote the rarest label, of those that one in ten of step h's episodes has?

        Commanded n times in all steps together, it is in the minority there with a probability of
        at most e^(−2 n (½−η)²), by Hoeffding's inequality.
        """
        choices = self._best.tables.choices(self._replay)
        there = choices.number > 1
        commanded = np.bincount(choices.label[there], minlength=choices.valid.shape[1])
        met = choices.valid[there & (self._replay.step == h)].sum(axis=0) >= _MET * self._taken[h]
        margin = 0.5 - min(self._plan.eta, _MOST_ETA)
        return math.exp(-2 * int(commanded[met].min()) * margin**2) if met.any() else 0.0

    def _first_candidates(self, labels: str | None) -> list[Candidate]:
        """Every numbering that fits the map, with the simplest models for what is observed."""
        return [
            Candidate(table, model)
            for number, table in enumerate(self._numberings(labels))
            for model in self._simple_models(table, jax.random.fold_in(self._key, number))
        ]

    def _numberings(self, labels: str | None) -> list[LabelTables]:
        """The one asked for, or all that fit the map and differ."""
        sim = self._plan.simulator
        tables: list[LabelTables] = []
        reachable = np.unique(np.concatenate(layers(sim)))
        if labels is not None and labels not in NUMBERINGS:
            raise ValueError(f"labels: {labels!r} is none of {', '.join(NUMBERINGS)}")
        usual = MEANINGFUL if is_picture(self._shape) else NUMBERINGS
        for kind in usual if labels is None else [labels]:
            try:
                table = LabelTables(labels_for(kind, sim))
            except ValueError:
                if labels is not None:
                    raise
                continue  # too many places to number
            if not any(table.same_as(other, reachable) for other in tables):
                tables.append(table)
        return tables

    def _simple_models(self, table: LabelTables, key: jax.Array) -> list[Model]:
        if self._own is not None:
            return [own_model(self._own, self._shape, table.size, key)]
        if (patches := self._replay.patches) is not None:
            grid, labels = patches.grid, table.size
            heads: list[Model] = [PairModel(GridCNN(grid, labels), "convolutions", key)]
            if table.labels.name_places:
                heads.append(PlacesModel(math.prod(grid), labels, eta=self._plan.eta))
            return [PictureModel(head, patches) for head in heads]
        aversion = ELSEWHERE if table.labels.name_places else math.inf
        return [
            RidgeModel(self._size, table.size, by_step=by_step, aversion=aversion)
            for by_step in (False, True)
        ]

    @property
    def _size(self) -> int:
        return int(np.prod(self._shape))

    def _enter(self, candidate: Candidate) -> None:
        self._candidates.append(candidate)
        self._decoders[candidate] = self._blank(candidate)

    def _blank(self, candidate: Candidate) -> Decoder:
        return Decoder.blank(self._plan, candidate.tables.labels, candidate.model.network)

    def _refit(self, candidate: Candidate, h: int) -> None:
        candidate.learn(h, self._replay)
        model = jnp.asarray(candidate.model.models(self._replay)[h])
        self._decoders[candidate] = self._decoders[candidate].with_model(h, model)

    def _judge(self, h: int) -> None:
        """Take the best, give up on the hopeless, and try networks where linear cannot do."""
        self._best = min(self._candidates, key=lambda candidate: candidate.rank)
        self._candidates = [
            candidate
            for candidate in self._candidates
            if candidate.rank <= self._best.rank + _BEHIND
        ]
        self._decoders = {c: self._decoders[c] for c in self._candidates}
        if h == 0 or not any(isinstance(one.model, RidgeModel) for one in self._candidates):
            return
        if any(one.model.remembers for one in self._candidates):
            return  # networks are there
        judged = list(self._best.judged.values())
        losses = np.concatenate([np.zeros(0), *(step.losses for step in judged)])
        if losses.size < _JUDGED:
            return
        number = np.concatenate([step.choices.number for step in judged])
        excess = losses - fano_level(number, self._plan.eta)
        if excess.mean() - 2 * excess.std() / math.sqrt(losses.size) > _SLACK:
            self._try_networks(h)

    def _try_networks(self, h: int) -> None:
        """A network beside every linear candidate left, from the same evidence up to now."""
        linear = [one for one in self._candidates if isinstance(one.model, RidgeModel)]
        for number, simple in enumerate(linear):
            key = jax.random.fold_in(self._key, number)
            by_step = simple.model.centring == "step centre"
            model = NetworkModel(self._size, simple.tables.size, HIDDEN, key, by_step=by_step)
            rich = Candidate(simple.tables, model)
            rich.judged.update({s: x for s, x in simple.judged.items() if s != h})
            rich.learn(h, self._replay)
            blank = self._blank(rich)
            models = blank.models.at[: h + 1].set(rich.model.models(self._replay))
            self._decoders[rich] = blank.with_models(models)
            self._candidates.append(rich)
        self._best = min(self._candidates, key=lambda candidate: candidate.rank)

    def _decoded(self, h: int, rows: Mask) -> tuple[NDArray[np.int32], Floats | None]:
        """Where the final model of step h thinks its explored transitions led.

        If it is one that learns what other places look like, also how far it believes in the
        outcomes on the map, were all labels possible.
        """
        decoder, tables = self._decoders[self._best], self._best.tables
        states, model = self._replay.states[rows], np.asarray(decoder.models[h])
        scores = scores_of(decoder.network, model, self._replay.pairs[rows])
        explained = None
        if tables.labels.name_places and isinstance(self._best.model, RidgeModel):
            belief = softmax(scores / float(decoder.temperature), axis=1)
            explained = (belief * tables.valid_at(h, states)).sum(axis=1)
        return tables.decoded(h, states, scores), explained


def _patches(shape: tuple[int, ...]) -> Patches | None:
    """The layer for observations of this shape, if they are pictures."""
    if not is_picture(shape):
        return None
    rows, columns, channels = shape
    return Patches((rows, columns, channels))


def fano_level(number: NDArray[np.int64], eta: float) -> NDArray[np.float64]:
    """The most nats a perfect decoder can lose on a uniformly drawn one of k outcomes.

    H(o | x, x') ≤ h(η) + η ln(k−1): Fano's inequality, because the outcome that happened is the
    commanded one with probability at least 1−η.
    """
    entropy = 0.0 if eta == 0 else -eta * math.log(eta) - (1 - eta) * math.log(1 - eta)
    return entropy + eta * np.log(np.maximum(number - 1, 1))


def _temperature(candidate: Candidate) -> float:
    """The one number that makes held-out probabilities honest."""
    judged = list(candidate.judged.values())
    if not judged:
        return 1.0

    def loss(log_temperature: float) -> float:
        scale = math.exp(-log_temperature)
        return float(sum(step.choices.losses(scale * step.scores).sum() for step in judged))

    return math.exp(float(minimize_scalar(loss, bounds=(-3.0, 3.0), method="bounded").x))
