"""Several start states: which first observations belong together, and where on the map that is.

The outcome method's answer (the paper's is `initial_state_test`). Episodes of random actions are
grouped by `learning.contrastive`; for every group and every start the evidence is the likelihood
of what those episodes paid and showed (`start_evidence`). Groups and starts correspond one to one,
so hypotheses are rejected together, as soon as the best assignment leads every other by enough.
Between groupings evidence decides, too. What evidence cannot settle is left to returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from tasid.algorithms.decoder import Decoder
from tasid.algorithms.start_evidence import Table, reward_evidence, transition_evidence
from tasid.algorithms.tasid import Explored, Fitted, Learner
from tasid.algorithms.wander import Wandered, wander
from tasid.envs.target import Target
from tasid.learning.clusterer import Clusterer, Glance
from tasid.learning.contrastive import Contrast, fit_groups
from tasid.mdp import AbstractSimulator, RobustPlan

ENOUGH = 10.0
"""Nats by which an assignment has to lead (odds of e^10)."""
_GAIN = 2e-3
"""A grouping that gains less on no grouping at all says nothing about what follows."""
FIRST = 48
"""Episodes per start in the first batch; then their number doubles until evidence suffices."""
_FEWEST = 256
"""Of all starts together, where they can be had: fewer may be grouped wrongly and yet convince."""
SHOWN = 512
"""First observations kept for pictures."""


@dataclass(frozen=True)
class Hypothesis:
    """A cluster and a start it might be."""

    cluster: int
    start: int
    """Index of the state."""
    accepted: bool
    nats: float | None = None
    """How far the best assignment with it is behind the best of all; None if not measured."""
    value: float | None = None
    """Mean return of a policy learned under it."""
    low: float | None = None
    high: float | None = None
    """A 95 % interval of that."""
    episodes: int = 0
    """Episodes of the cluster that were spent on it."""


@dataclass(frozen=True, eq=False)
class StartsFound:
    """φ̂, the start of every cluster, and how they were found."""

    clusterer: Clusterer
    starts: tuple[int, ...]
    """The state that each cluster is."""
    shares: tuple[float, ...]
    """The fraction of first observations in each cluster."""
    hypotheses: tuple[Hypothesis, ...]
    episodes: int
    """All episodes spent on it, before or beside learning the final policy."""
    error: float
    """Held-out squared error at telling real transitions from imposters, with clusters."""
    error_alone: float
    """The same without."""
    features: NDArray[np.float32]
    """Some first observations as the clusterer sees them, [m, d], for pictures."""
    clusters: NDArray[np.int64]
    """Their clusters, [m]."""
    unseen: tuple[int, ...] = ()
    """Starts of which no episode was seen."""
    unsettled: tuple[int, ...] = ()
    """Clusters whose start the evidence did not settle."""


class Margin(NamedTuple):
    """How differently two starts go on: Γ, on the map."""

    one: int
    other: int
    mean: float
    """The share of actions whose successors differ; the paper does not say which it means."""
    least: float
    """1 if all of them do, else 0."""


def start_margins(sim: AbstractSimulator) -> list[Margin]:
    """Γ of every pair of starts; where it is 0, nothing that follows tells them apart."""
    table = sim.successor_at(0)
    pairs = combinations((int(start) for start in sim.starts), 2)
    differ = {pair: table[pair[0]] != table[pair[1]] for pair in pairs}
    return [Margin(*pair, float(row.mean()), float(row.min())) for pair, row in differ.items()]


def find_starts(
    target: Target, plan: RobustPlan, *, seed: int, most: int, by_return: bool = False
) -> StartsFound:
    """Wander until evidence settles every cluster's start, or `most` episodes are spent.

    With `by_return` the evidence is left out: one batch, grouped by contrast alone, and nothing is
    settled.
    """
    number = plan.simulator.starts.size
    seen, least = None, FIRST * number
    if most < least:
        raise ValueError(
            f"episodes: {most} are left to tell {number} starts apart, which takes {least} or more"
        )
    wanted = min(most, max(_FEWEST, least) * (4 if by_return else 1))
    while True:
        taken = 0 if seen is None else seen.rewards.shape[0]
        more = wander(target, seed=seed, first=taken, episodes=wanted - taken)
        seen = more if seen is None else seen.then(more)
        found = _judged(plan, seen, seed, by_return)
        if by_return or not found.unsettled or wanted >= most:
            return found
        wanted = min(2 * wanted, most)


class Groupings(NamedTuple):
    """Ways to group first observations, and what they were made from."""

    glance: Glance
    x: NDArray[np.float32]
    x_next: NDArray[np.float32]
    """What the glance sees of the first two observations, [n, d] each."""
    contrast: Contrast


def groupings(sim: AbstractSimulator, seen: Wandered, seed: int) -> Groupings:
    """Group first observations by what follows them, in as many groups as there are starts."""
    number = sim.starts.size
    glance = Glance(seen.x.shape[1:], number)
    x, x_next = (np.asarray(glance.features(jnp.asarray(part))) for part in (seen.x, seen.x_next))
    action = seen.actions[:, 0]
    contrast = fit_groups(x, action, x_next, groups=number, actions=sim.num_actions, seed=seed)
    return Groupings(glance, x, x_next, contrast)


def _judged(plan: RobustPlan, seen: Wandered, seed: int, by_return: bool) -> StartsFound:
    """Group the episodes, weigh the hypotheses, and take the best."""
    sim = plan.simulator
    glance, x, x_next, contrast = groupings(sim, seen, seed)
    paid = reward_evidence(sim, seen.actions, seen.rewards, eta=plan.eta)
    if by_return:
        paid = np.zeros_like(paid)
    options = [
        _evidence(sim, glance, parameters, x, x_next, seen.actions[:, 0], paid, by_return)
        for parameters in contrast.parameters
    ]
    chosen = _best_grouping(contrast, [evidence for _, evidence in options], len(x))
    if by_return and contrast.errors[chosen] > contrast.alone - _GAIN:
        chosen = contrast.looks
    group, evidence = options[chosen]
    return _settled(
        sim, Clusterer(jnp.asarray(contrast.parameters[chosen]), glance), contrast, chosen,
        x, group, evidence, unasked=by_return,
    )  # fmt: skip


def _evidence(
    sim: AbstractSimulator,
    glance: Glance,
    parameters: NDArray[np.float32],
    x: NDArray[np.float32],
    x_next: NDArray[np.float32],
    action: NDArray[np.int32],
    paid: Table,
    by_return: bool,
) -> tuple[NDArray[np.int64], Table]:
    """The groups [n] of a grouping, and the likelihood of every (group, start), [N, N]."""
    number = sim.starts.size
    group = np.asarray(glance.dense.apply(jnp.asarray(parameters), jnp.asarray(x))).argmax(axis=1)
    table = np.stack([paid[group == k].sum(axis=0) for k in range(number)])
    if not by_return:
        table = table + transition_evidence(sim, x_next, action, group, number)
    return group, table


def _best_grouping(contrast: Contrast, tables: Sequence[Table], episodes: int) -> int:
    """The grouping that explains the episodes best: what followed, and real against imposter.

    Squared errors weigh about as nats do at probabilities near ½: −ln(½ + e) ≈ ln 2 − 2e.
    """
    totals = np.array([assign(table)[1] for table in tables])
    return int((totals - 2 * episodes * contrast.errors).argmax())


def assign(evidence: Table) -> tuple[NDArray[np.intp], float]:
    """The start of every group [N], one to one unless evidence is clearly against it; its sum.

    Where a start never appeared, its group is a part of another start's, and says so.
    """
    rows, columns = linear_sum_assignment(evidence, maximize=True)
    together, free = float(evidence[rows, columns].sum()), evidence.argmax(axis=1)
    apart = float(evidence.max(axis=1).sum())
    return (free, apart) if apart - together > ENOUGH else (columns, together)


def behind(evidence: Table) -> Table:
    """Nats by which the best assignment with k ↦ s is behind the best of all, [N, N]."""
    _, best = assign(evidence)
    out = np.zeros_like(evidence)
    forbidden = -1e12
    for k, s in np.ndindex(*evidence.shape):
        only = evidence.copy()
        only[k, np.arange(evidence.shape[1]) != s] = forbidden
        out[k, s] = best - assign(only)[1]
    return out


def _settled(
    sim: AbstractSimulator,
    clusterer: Clusterer,
    contrast: Contrast,
    chosen: int,
    x: NDArray[np.float32],
    group: NDArray[np.int64],
    evidence: Table,
    *,
    unasked: bool,
) -> StartsFound:
    number = sim.starts.size
    columns, _ = assign(evidence)
    gap = behind(evidence)
    size = np.bincount(group, minlength=number)
    rivals = (gap < ENOUGH).sum(axis=1) > 1
    present = {int(columns[k]) for k in range(number) if size[k]}
    hypotheses = tuple(
        Hypothesis(
            k,
            int(start),
            accepted=bool(columns[k] == j),
            nats=None if unasked else float(gap[k, j]),
            episodes=int(size[k]),
        )
        for k in range(number)
        for j, start in enumerate(sim.starts)
    )
    return StartsFound(
        clusterer=clusterer,
        starts=tuple(int(sim.starts[j]) for j in columns),
        shares=tuple((size / size.sum()).tolist()),
        hypotheses=hypotheses,
        episodes=int(group.size),
        error=float(contrast.errors[chosen]),
        error_alone=contrast.alone,
        features=x[:SHOWN],
        clusters=group[:SHOWN],
        unseen=tuple(int(s) for j, s in enumerate(sim.starts) if j not in present),
        unsettled=tuple(k for k in range(number) if size[k] and rivals[k]),
    )


class Placed:
    """A learner whose decoder knows the starts."""

    def __init__(self, learner: Learner, clusterer: Clusterer, starts: Sequence[int]) -> None:
        self._learner, self._clusterer, self._starts = learner, clusterer, tuple(starts)

    @property
    def decoder(self) -> Decoder:
        """The learner's, stacked over seeds, with the starts."""
        decoder = self._learner.decoder
        group = jax.tree.leaves(decoder)[0].shape[0]

        def repeated(leaf: Any) -> jax.Array:
            return jnp.broadcast_to(jnp.asarray(leaf), (group, *jnp.shape(leaf)))

        return replace(
            decoder,
            clusterer=jax.tree.map(repeated, self._clusterer),
            start_state=repeated(np.array(self._starts, np.int32)),
        )

    @property
    def detours(self) -> float:
        """As the learner wants."""
        return self._learner.detours

    def wants(self, h: int, taken: int) -> int:
        """As the learner wants."""
        return self._learner.wants(h, taken)

    def learn(self, h: int, data: Explored) -> Fitted:
        """As the learner learns."""
        return self._learner.learn(h, data)
