"""The policy of the belief method: filter the observations, act on the belief by the robust plan.

    a_h = argmax_a Σ_s b_h(s) (Q̃_h(s, a) − max_a' Q̃_h(s, a')),   Q̃ of Algorithm 1.

The robust correction of Algorithm 1 does not depend on the action, so this is QMDP (Littman et al.,
1995) with robust values. A belief that is certain of s plays ρ_h(s), ties included.

Two cumulative sums of log-likelihood ratios (CUSUM tests) tell when the policy is lost. One tests
the belief against an agent that may be anywhere on the map, the other tests the planned η against
actions that slip half of the time, as they seem to do where a sensor repeats itself or where the
agent drifts in a way that the map does not know. Before either is decisive, the confidence falls:
it is the probability of the state over 1 + (exp(sum) − 1) exp(−half_confidence).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Float32, Float64, Int32
from numpy.typing import NDArray

from tasid.hmm import kernels
from tasid.hmm.classifier import ClassifierEmission
from tasid.hmm.emissions import Emission, GaussianEmission
from tasid.hmm.features import FeatureMap
from tasid.hmm.smoother import BELIEF_FLOOR, LIKELIHOOD_FLOOR, Classes
from tasid.hmm.transitions import Array, StepInputs, TransitionGraph
from tasid.planning.robust_dp import RobustPlan, robust_dp
from tasid.policy import Estimate, Policy
from tasid.simulator import AbstractSimulator
from tasid.storage import Artifact, ArtifactError, digest, write_artifact

KIND = "belief-policy"
TIE = 1e-6
"""Actions as good as the plan's count as worse by this part of the range of Q̃."""
MAX_OBSERVATION = 1 << 26
"""Numbers in an observation of a stored policy, at most."""
_FEATURES = ("centre", "components", "step_means")
_STORED = (
    "class_kind eta observation_shape observation_dtype environment max_repeats kidnap "
    "lost_threshold half_confidence unfamiliar_surprise"
).split()


class Advantages:
    """Q̃_h(s, a) − Q̃_h(s, ρ_h(s)) by slot of a transition graph; never positive."""

    def __init__(
        self, plan: RobustPlan, graph: TransitionGraph, cache_bytes: int = 1 << 26
    ) -> None:
        if plan.values is None:
            plan = robust_dp(plan.simulator, eta=plan.eta, keep_values=True)
        self._plan, self._graph = plan, graph
        self._cached = 4 * graph.horizon * graph.num_slots * graph.num_actions <= cache_bytes
        self._tables: dict[int, NDArray[np.float32]] = {}

    def at(self, h: int) -> Float32[Array, "M A"]:
        """Advantages at step h."""
        if h in self._tables:
            return self._tables[h]
        states = np.maximum(self._graph.states_at(h), 0)
        values = self._plan.q_values(h)[states]
        chosen = self._plan.actions[h, states].astype(np.intp)[:, None]
        spread = float(np.ptp(values, axis=1).max())
        advantage = values - np.take_along_axis(values, chosen, axis=1)
        advantage = np.minimum(advantage, -TIE * max(spread, 1e-9))
        permitted = self._plan.simulator.permitted(h)
        if permitted is not None:  # no belief makes it worth driving into a hazard on purpose
            advantage = np.where(permitted[states], advantage, np.minimum(advantage, -spread))
        np.put_along_axis(advantage, chosen, 0.0, axis=1)
        table = advantage.astype(np.float32)
        if self._cached:
            self._tables[h] = table
        return table


class BeliefMemory(NamedTuple):
    """What the policy remembers of n episodes."""

    belief: Float64[Array, "n M"]
    actions: Int32[Array, " n"]
    """The last actions."""
    doubt: Float64[Array, "n 2"]
    """The two cumulative sums, never below 0."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class BeliefPolicy(Policy):
    """A robust plan, a transition graph and an emission. Immutable."""

    plan: RobustPlan
    class_kind: str
    """What shares an emission: "state", "rank" or "action" (`tasid.hmm.smoother.Classes`)."""
    features: FeatureMap
    emission: Emission
    eta: float
    """Share of slips that the filter expects."""
    observation_shape: tuple[int, ...]
    observation_dtype: str
    environment: Mapping[str, Any] | None = None
    min_log_prob: NDArray[np.float32] | None = None
    """Below this log-likelihood an observation is unlike any of a class, [C]."""
    max_repeats: int | None = None
    """How often in a row the same observation came while learning, at most."""
    kidnap: float = 1e-5
    """Probability that a step leads anywhere on the map."""
    lost_threshold: float = 8.0
    """Sum of log-likelihood ratios, in nats, at which the policy is lost."""
    half_confidence: float = 5.0
    """Sum of log-likelihood ratios, in nats, at which the confidence in the belief is halved."""
    unfamiliar_surprise: float = 2.0
    """What an observation that is unlike those of every class adds to the sum, in nats."""
    method: str = "belief"

    @property
    def horizon(self) -> int:  # type: ignore[override]
        return self.plan.simulator.horizon

    @property
    def num_actions(self) -> int:  # type: ignore[override]
        return self.plan.simulator.num_actions

    @property
    def simulator(self) -> AbstractSimulator:
        """The map."""
        return self.plan.simulator

    @cached_property
    def graph(self) -> TransitionGraph:
        """The transition model."""
        return TransitionGraph.from_simulator(self.simulator).with_classes(self.class_kind)

    @cached_property
    def classes(self) -> Classes:
        """Which observations share an emission."""
        return Classes.of(self.graph)

    @cached_property
    def advantages(self) -> Advantages:
        """Robust advantages by slot."""
        return Advantages(self.plan, self.graph)

    def init(self, n: int) -> BeliefMemory:
        belief = np.repeat(self.graph.start[None], n, axis=0)
        return BeliefMemory(belief, np.zeros(n, np.int32), np.zeros((n, 2)))

    def act(
        self, memory: BeliefMemory, observations: NDArray[Any], h: int
    ) -> tuple[BeliefMemory, NDArray[np.int32]]:
        features = self.features(observations, h)
        scores = self.classes.log_likelihoods(self.emission, features, h)
        belief, ratios = self._filter(memory, scores, h)
        if self.min_log_prob is not None:
            members = self.classes.at(h)
            missing = (self.min_log_prob[members] - scores)[:, members >= 0].min(axis=1)
            unfamiliar = (missing > 0) & np.isfinite(missing)
            ratios[unfamiliar, 0] = np.maximum(ratios[unfamiliar, 0], self.unfamiliar_surprise)
        doubt = np.clip(memory.doubt + ratios, 0.0, 2 * self.lost_threshold)
        actions = (belief @ self.advantages.at(h)).argmax(axis=1).astype(np.int32)
        return BeliefMemory(belief, actions, doubt), actions

    def _filter(
        self, memory: BeliefMemory, scores: Float[Array, "n L"], h: int
    ) -> tuple[Float64[Array, "n M"], Float64[Array, "n 2"]]:
        """The belief after the observations of step h, and log-likelihood ratios.

        ln p(x | anywhere on the map) − ln p(x | belief), and the same for an agent whose last
        action slipped with probability (1 + η) / 2.
        """
        graph, classes = self.graph, self.classes
        likelihood = np.exp(scores - scores.max(axis=1, keepdims=True)).astype(np.float64)
        likelihood += LIKELIHOOD_FLOOR
        inputs = StepInputs.of(memory.actions, self.eta)
        if by_slot := classes.by_state or h == 0:
            likelihood = classes.first_by_slot(likelihood, graph.num_slots)
            anywhere = likelihood @ graph.uniform_at(h)
        else:  # the observation is evidence about the edge
            inputs = inputs._replace(class_likelihoods=likelihood)
            anywhere, likelihood = likelihood.mean(axis=1), np.ones_like(memory.belief)
        belief, hit, total = memory.belief.copy(), None, np.empty(len(scores))
        if h > 0:
            belief = graph.predict(h - 1, memory.belief, inputs)
            intended = graph.predict(h - 1, memory.belief, inputs._replace(eta=0.0))
            hit = np.einsum("nm,nm->n", intended, likelihood)
            if by_slot:
                belief *= 1 - self.kidnap
                belief += self.kidnap * graph.uniform_at(h)
        # Less than a thousandth of what every step adds for a kidnapped agent is not kept.
        floor = max(BELIEF_FLOOR, 1e-3 * self.kidnap / graph.num_slots) if by_slot else BELIEF_FLOOR
        kernels.normalise(belief, likelihood, floor, total)
        ratios = np.zeros((len(scores), 2))
        ratios[:, 0] = np.log(anywhere) - np.log(total)
        if hit is not None:  # total = (1 − η) hit + η slipped
            slipped = np.maximum(total - (1 - self.eta) * hit, 0) / self.eta
            ratios[:, 1] = np.log((hit + slipped) / 2) - np.log(total)
        return belief, ratios

    def override(self, memory: BeliefMemory, actions: NDArray[np.int32]) -> BeliefMemory:
        return memory._replace(actions=actions)

    def estimate(self, memory: BeliefMemory, h: int) -> Estimate:
        slot = memory.belief.argmax(axis=1)
        confidence = np.take_along_axis(memory.belief, slot[:, None], axis=1)[:, 0]
        odds = np.exp(memory.doubt.max(axis=1)) - 1  # no doubt takes nothing away
        confidence = confidence / (1 + odds * math.exp(-self.half_confidence))
        state = self.graph.states_at(h)[slot].astype(np.intp)
        lost: Any = (memory.doubt >= self.lost_threshold).any(axis=1)
        return Estimate(state, confidence.astype(np.float64), lost)

    def belief(self, memory: BeliefMemory, h: int) -> NDArray[np.float64]:
        states = self.graph.states_at(h)
        exists = states >= 0
        belief = np.zeros((len(memory.belief), self.simulator.num_states))
        belief[:, states[exists]] = memory.belief[:, exists]
        return belief

    def save(self, path: str | Path) -> Path:
        """Write the policy into a folder; the same policy gives the same bytes.

        Of a user's model the folder holds the parameters; `tasid.load(path, model=…)` needs the
        model itself.
        """
        return write_artifact(path, **self._content())

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the content."""
        return digest(**self._content())

    def _content(self) -> dict[str, Any]:
        """The arguments of `write_artifact`."""
        emission, user_model = self.emission, None
        if isinstance(emission, ClassifierEmission) and self.features.components is None:
            user_model = type(emission.classifier.model).__name__
        metadata = {
            "simulator": self.simulator.metadata(),
            "plan_eta": self.plan.eta,
            "emission": type(emission).__name__,
            "user_model": user_model,
            "pool": self.features.pool,
            **{name: getattr(self, name) for name in _STORED},
        }
        arrays = dict(self.simulator.arrays())
        arrays |= {f"emission.{name}": array for name, array in emission.arrays().items()}
        if self.features.components is not None:
            arrays |= {f"features.{name}": getattr(self.features, name) for name in _FEATURES}
        if self.min_log_prob is not None:
            arrays["min_log_prob"] = self.min_log_prob
        return {"kind": KIND, "metadata": metadata, "arrays": arrays}

    @classmethod
    def from_artifact(cls, artifact: Artifact, path: str | Path, model: Any = None) -> BeliefPolicy:
        """The policy of an artifact; `model` is the user's own, if it was learned with one."""
        meta, arrays = artifact.metadata, artifact.arrays
        if ((user_model := meta.get("user_model")) is None) != (model is None):
            learned = "without a model of yours" if user_model is None else f"with a {user_model}"
            raise ArtifactError(
                f"model: {model!r:.60}, but the policy in {path} was learned {learned}; a folder "
                "holds the parameters of your model, not its code: call tasid.load(…, model=…)"
            )
        try:
            simulator = AbstractSimulator.from_parts(meta["simulator"], arrays)
            settings = {name: meta[name] for name in _STORED}
            shape = settings["observation_shape"] = tuple(meta["observation_shape"])
            if math.prod(shape) > MAX_OBSERVATION:
                raise ValueError(f"observation_shape: {shape} is too large")
            prefix = "emission."
            numbers = {k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)}
            emission: Emission
            if meta["emission"] == "GaussianEmission":
                emission = GaussianEmission.from_arrays(numbers)
            else:
                emission = ClassifierEmission.from_arrays(numbers, model, shape)
            features = FeatureMap.raw(shape)
            if user_model is None:
                parts: dict[str, Any] = {n: arrays[f"features.{n}"] for n in _FEATURES}
                features = FeatureMap(**parts, pool=meta["pool"])
            policy = cls(
                plan=robust_dp(simulator, eta=meta["plan_eta"], keep_values=True),
                features=features,
                emission=emission,
                min_log_prob=arrays.get("min_log_prob"),
                **settings,
            )
            policy._check()
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise ArtifactError(
                f"{path}: intact, but not a policy of this version: {error}"
            ) from error
        return policy

    def _check(self) -> None:
        """Refuse parts that do not belong together, by acting on blank observations."""
        size, needed = self.emission.num_classes, self.classes.number
        if size != needed:
            raise ValueError(f"emission: {size} classes where the map needs {needed}")
        for name, array in self.emission.arrays().items():
            if not np.isfinite(array).all():
                raise ValueError(f"emission.{name}: not finite")
        if not 0 < self.eta < 1:
            raise ValueError(f"eta: {self.eta} is not in (0, 1)")
        agent, blank = self.agent(), np.zeros(self.observation_shape, self.observation_dtype)
        for _ in range(min(2, self.horizon)):
            agent.act(blank)
            _ = agent.lost


def unfamiliarity_limit(
    emission: Emission,
    classes: Classes,
    counts: NDArray[np.float64],
    features: NDArray[np.float32],
    valid: NDArray[np.bool_],
    *,
    factor: float = 2.0,
) -> NDArray[np.float32] | None:
    """`min_log_prob`: what an observation of a class scores at least, [C].

    The filter compares states with each other, and the least bad of them explains anything, a dead
    sensor included. So an observation is unfamiliar if it is `factor` times as far from all classes
    as any training observation (features [N, H+1, D]) was from the nearest. None for emissions that
    only compare classes.
    """
    best = emission.least_log_prob(counts) if isinstance(emission, GaussianEmission) else None
    if not isinstance(emission, GaussianEmission) or best is None:
        return None
    # Where observations have no noise, any difference at all would be far.
    farthest = -float(emission.quadratic.min(axis=0).sum())
    for h in range(features.shape[1]):
        members = classes.at(h)
        members = members[members >= 0]
        rows = features[valid[:, h], h]
        if len(rows):
            distance = (best[members] - emission.log_prob(rows, members)).min(axis=1)
            farthest = max(farthest, distance.max(initial=0.0, where=np.isfinite(distance)))
    return best - np.float32(factor * farthest)
