"""The map as the transition model of a hidden Markov model.

A state s has K distinct successors s'(s, k) over all actions. On the map action a leads to the k-th
of them with probability P[s, a, k]. In the target a commanded action has its intended effect with
probability at least 1 − η; what happens otherwise is unknown and spread over all actions alike:

    p(k | s, a) = (1 − η) P[s, a, k] + η · mean_a' P[s, a', k].

Rewards and ends are evidence about edges (s, k): an edge that contradicts the reward or the end of
a step keeps the weight `contradiction`, not 0, because a target may pay averages.

Only reachable states are kept. Where every step reaches few states (a lock, a tree), each step has
tables of its own over its own *slots*; otherwise one table over all reachable states serves all
steps. Arrays over batches have episodes first.

A transition model for the smoother is any object with `predict`, its adjoint `backward`, and
`expected_counts`.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Float64, Int, Int32
from numpy.typing import NDArray

from tasid.hmm import kernels
from tasid.simulator import AbstractSimulator

Array = NDArray[Any]
MAX_REWARD_VALUES = 31
"""Rewards are compared as bits of an int32; maps with more distinct rewards ignore them."""
MAX_TABLE_ENTRIES = 1 << 24
"""Maps whose per-step tables would be larger share one table among the steps."""


class StepInputs(NamedTuple):
    """Commands of one step, and evidence about its transitions, for a batch of n episodes."""

    commands: Int32[Array, " n"]
    eta: float
    reward_ids: Int32[Array, " n"]
    """Index of the reward among `reward_values`; −1 where it says nothing."""
    ended: Bool[Array, " n"]
    """Has the episode ended by the end of this step?"""
    ends_known: Bool[Array, " n"]
    """Does `ended` mean anything at this step?"""
    contradiction: float
    """Weight of edges that contradict the evidence."""
    class_likelihoods: Float[Array, "n L"] = np.zeros((0, 0))
    """Likelihood of the next observation by edge class; [0, 0] where classes are states."""

    @staticmethod
    def of(commands: Int32[Array, " n"], eta: float) -> StepInputs:
        """Commands without evidence."""
        silent = np.zeros(len(commands), bool)
        return StepInputs(commands, eta, np.full(len(commands), -1, np.int32), silent, silent, 1.0)


class Transition(abc.ABC):
    """A transition model over M slots and H steps: all that filter and smoother need to know."""

    horizon: int
    """H."""
    start: Float64[Array, " M"]
    """Distribution of the first state."""

    @property
    def num_slots(self) -> int:
        """M."""
        return self.start.size

    @abc.abstractmethod
    def uniform_at(self, h: int) -> Float64[Array, " M"]:
        """The distribution of an agent that may be anywhere at step h."""

    @abc.abstractmethod
    def predict(
        self, h: int, belief: Float[Array, "n M"], inputs: StepInputs
    ) -> Float[Array, "n M"]:
        """Σ_s belief(s) p(s' | s, command) · weight of the edge."""

    @abc.abstractmethod
    def backward(
        self,
        h: int,
        belief: Float[Array, "n M"],
        message: Float[Array, "n M"],
        inputs: StepInputs,
    ) -> tuple[Float[Array, "n M"], Float[Array, " n"], Float[Array, "n L"]]:
        """The adjoint of `predict`, applied to a message of step h+1.

        Returns
        -------
        earlier
            Σ_s' p(s' | s, command) · weight · message(s') where `belief` is positive.
        agreeing
            The part of Σ_s belief(s) earlier(s) that agrees with rewards and ends.
        of_class
            The parts of it by edge class; L is 0 where classes are states.
        """

    @abc.abstractmethod
    def expected_counts(
        self,
        h: int,
        belief: Float[Array, "n M"],
        message: Float[Array, "n M"],
        inputs: StepInputs,
        counts: Float[Array, "M A K"],
    ) -> None:
        """Add belief(s) p(s' | s, a) · weight · message(s') to counts."""


@dataclass(frozen=True, eq=False)
class TransitionGraph(Transition):
    """Transitions between slots; T is 1, or H where every step has its own tables."""

    states: Int32[Array, "layers M"]
    """Map state of each slot, of one layer or H+1; −1 where the slot is empty."""
    successor: Int32[Array, "T M K"]
    """Slot of the k-th successor."""
    probability: Float32[Array, "T M A K"]
    """P[s, a, k]."""
    share: Float32[Array, "T M K"]
    """mean_a P[s, a, k]; 0 where there is no k-th successor."""
    start: Float64[Array, " M"]
    """Distribution of the first state."""
    reward_bits: Int32[Array, "_ M K"]
    """Bit set of the rewards that an edge may give, for T or H steps."""
    reward_values: Float64[Array, " R"]
    """The distinct rewards of the map, sorted; empty where there are too many."""
    terminal: Bool[Array, "layers M"]
    """States that are never left and give no reward."""
    horizon: int
    class_kind: str = "state"
    """What observations are classed by: "state", or "rank" or "action" (`with_classes`)."""
    edge_class: Int32[Array, "T M K"] | None = None
    """Class of the observation after an edge; None: the class is the successor."""
    num_edge_classes: int = 0

    @classmethod
    def from_simulator(cls, sim: AbstractSimulator) -> TransitionGraph:
        """The graph of the states that the starts reach within the horizon."""
        layers = _states_by_step(sim)
        width, steps = max(layer.size for layer in layers), max(1, len(layers) - 1)
        edges = [_edges(sim, h, layers[h]) for h in range(steps)]
        most = max(successors.shape[1] for successors, _, _ in edges)
        states = np.full((len(layers), width), -1, np.int32)
        for h, layer in enumerate(layers):
            states[h, : layer.size] = layer
        successor = np.zeros((steps, width, most), np.int32)
        probability = np.zeros((steps, width, sim.num_actions, most), np.float32)
        for h, (leads, chances, _) in enumerate(edges):
            following = layers[min(h + 1, len(layers) - 1)]
            n, k = leads.shape
            slots = np.minimum(np.searchsorted(following, leads), following.size - 1)
            # What lies beyond the horizon has no slot: the outermost states are not left.
            inside = following[slots] == leads
            successor[h, :n, :k] = np.where(inside, slots, np.arange(n)[:, None])
            probability[h, :n, :, :k] = chances
        values = np.unique(np.round(sim.reward, 6))
        values = values if values.size <= MAX_REWARD_VALUES else values[:0]
        bits = np.zeros((sim.horizon if sim.rewards_vary else steps, width, most), np.int32)
        for h in range(len(bits) if values.size else 0):
            ranks, here = edges[min(h, steps - 1)][2], layers[min(h, len(layers) - 1)]
            rewards = sim.transition_reward_at(h)[here].reshape(ranks.shape)
            index = np.searchsorted(values, np.round(rewards, 6)).astype(np.int32)
            np.bitwise_or.at(bits[h], (np.arange(len(ranks))[:, None], ranks), np.int32(1) << index)
        start = np.zeros(width)
        start[np.searchsorted(layers[0], sim.starts)] = sim.start_probabilities
        return cls(
            states=states,
            successor=successor,
            probability=probability,
            share=probability.mean(axis=2),
            start=start,
            reward_bits=bits,
            reward_values=values,
            terminal=_terminal(sim)[np.maximum(states, 0)] & (states >= 0),
            horizon=sim.horizon,
        )

    @property
    def layered(self) -> bool:
        """Does every step have its own slots?"""
        return len(self.states) > 1

    @property
    def num_actions(self) -> int:
        """|A|."""
        return int(self.probability.shape[2])

    @cached_property
    def places(self) -> Int32[Array, " C"]:
        """Distinct map states of all slots, sorted."""
        return np.unique(self.states[self.states >= 0])

    @cached_property
    def intended(self) -> Int[Array, "T M A"]:
        """The most likely successor k of each command."""
        return self.probability.argmax(axis=-1)

    def states_at(self, h: int) -> Int32[Array, " M"]:
        """Map states of the slots at step h."""
        return self.states[min(h, len(self.states) - 1)]

    def uniform_at(self, h: int) -> Float64[Array, " M"]:
        """The distribution of an agent that may be anywhere at step h."""
        exists = self.states_at(h) >= 0
        return exists / exists.sum()

    def predict(
        self, h: int, belief: Float[Array, "n M"], inputs: StepInputs
    ) -> Float[Array, "n M"]:
        predicted = np.zeros_like(belief)
        kernels.predict(self._edges_at(h), inputs, belief, predicted)
        return predicted

    def backward(
        self,
        h: int,
        belief: Float[Array, "n M"],
        message: Float[Array, "n M"],
        inputs: StepInputs,
    ) -> tuple[Float[Array, "n M"], Float[Array, " n"], Float[Array, "n L"]]:
        earlier, agreeing = np.zeros_like(belief), np.zeros(len(belief))
        of_class = np.zeros((len(belief), self.num_edge_classes))
        edges = self._edges_at(h)
        kernels.backward(edges, inputs, belief, message, earlier, agreeing, of_class)
        return earlier, agreeing, of_class

    def expected_counts(
        self,
        h: int,
        belief: Float[Array, "n M"],
        message: Float[Array, "n M"],
        inputs: StepInputs,
        counts: Float[Array, "M A K"],
    ) -> None:
        kernels.expected_counts(self._edges_at(h), inputs, belief, message, counts)

    def _edges_at(self, h: int) -> kernels.Edges:
        t = h if len(self.successor) > 1 else 0
        return kernels.Edges(
            self.successor[t],
            self.probability[t],
            self.share[t],
            self.reward_bits[h if len(self.reward_bits) > 1 else 0],
            self.terminal[min(h + 1, len(self.terminal) - 1)],
            np.zeros((0, 0), np.int32) if self.edge_class is None else self.edge_class[t],
        )

    def reward_ids(self, rewards: Float[Array, "*shape"]) -> Int32[Array, "*shape"]:
        """Index of each reward among `reward_values`; −1 where none is that close."""
        values = self.reward_values
        if not values.size:
            return np.full(rewards.shape, -1, np.int32)
        nearest = np.abs(rewards[..., None] - values).argmin(axis=-1)
        tolerance = max(1e-6, 1e-3 * float(np.ptp(values)))
        close = np.abs(rewards - values[nearest]) <= tolerance
        return np.where(close, nearest, -1).astype(np.int32)

    def restricted(self, slots: Int[Array, " kept"]) -> TransitionGraph:
        """The graph of some slots; transitions out of them stay where they are."""
        position = np.full(self.num_slots, -1)
        position[slots] = np.arange(slots.size)
        successor = position[self.successor[0][slots]]
        successor = np.where(successor >= 0, successor, np.arange(slots.size)[:, None])
        names = ("states", "probability", "share", "reward_bits", "terminal")
        tables: dict[str, Any] = {n: np.take(getattr(self, n), slots, axis=1) for n in names}
        tables |= {"successor": successor[None].astype(np.int32), "start": self.start[slots]}
        return replace(self, **tables)

    def with_classes(self, kind: str) -> TransitionGraph:
        """Observations classed by state, or by the edge that led to them.

        By "rank": the order of its successor; by "action": the lowest action that intends it. On
        maps where states are rarely visited twice, only such classes can be learned.
        """
        if kind == "state":
            return replace(self, class_kind=kind, edge_class=None, num_edge_classes=0)
        number = self.num_actions if kind == "action" else self.successor.shape[2]
        classes = (self.probability > 0).argmax(axis=2)
        if kind == "rank":
            classes = np.broadcast_to(np.arange(number), self.successor.shape)
        classes = np.ascontiguousarray(classes, np.int32)
        return replace(self, class_kind=kind, edge_class=classes, num_edge_classes=number)


def _states_by_step(sim: AbstractSimulator) -> list[NDArray[np.intp]]:
    """Reachable states of each step; a single list where some step reaches most of them."""
    everywhere = None if sim.successors_vary else _reachable(sim)
    layers = [np.unique(sim.starts).astype(np.intp)]
    width = layers[0].size
    for h in range(sim.horizon):
        layers.append(np.unique(sim.successor_at(h)[layers[-1]]).astype(np.intp))
        width = max(width, layers[-1].size)
        large = width * sim.horizon * sim.num_actions > MAX_TABLE_ENTRIES
        if everywhere is not None and (large or 2 * width > everywhere.size):
            return [everywhere]
    return layers


def _reachable(sim: AbstractSimulator) -> NDArray[np.intp]:
    """States within the horizon of the starts, on a map with one table."""
    successor = sim.successor_at(0).reshape(sim.num_states, -1)
    known = np.zeros(sim.num_states, bool)
    frontier = np.unique(sim.starts)
    for _ in range(sim.horizon):
        known[frontier] = True
        following = np.unique(successor[frontier])
        frontier = following[~known[following]]
    known[frontier] = True
    return np.flatnonzero(known)


def _edges(
    sim: AbstractSimulator, h: int, states: NDArray[np.intp]
) -> tuple[Int[Array, "n K"], Float[Array, "n A K"], Int[Array, "n AB"]]:
    """Distinct successors in ascending order, P, and the rank k of each entry of the map."""
    tables = [table[states] for table in sim.transitions_at(h)]
    n, actions, most = tables[0].shape
    leads, weights = (table.reshape(n, -1) for table in tables)
    # Where rows of the map are padded, they repeat a successor with probability 0.
    order = np.argsort(leads, axis=1, kind="stable")
    ascending = np.take_along_axis(leads, order, axis=1)
    opens = np.ones(leads.shape, bool)
    opens[:, 1:] = ascending[:, 1:] != ascending[:, :-1]
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, np.cumsum(opens, axis=1) - 1, axis=1)
    successors = np.repeat(ascending[:, -1:], ranks.max() + 1, axis=1)
    np.put_along_axis(successors, ranks, leads, axis=1)
    probability = np.zeros((n, actions, successors.shape[1]))
    action = np.repeat(np.arange(actions), most)
    np.add.at(probability, (np.arange(n)[:, None], action, ranks), weights)
    return successors, probability, ranks


def _terminal(sim: AbstractSimulator) -> NDArray[np.bool_]:
    """States that every action keeps, without reward, at every step."""
    own = np.arange(sim.num_states)[:, None, None]
    terminal = np.ones(sim.num_states, bool)
    for h in range(sim.horizon if sim.time_varying else 1):
        successor, chances = sim.transitions_at(h)
        silent = sim.transition_reward_at(h).reshape(successor.shape) == 0
        terminal &= ((silent & (successor == own)) | (chances == 0)).all(axis=(1, 2))
    return terminal
