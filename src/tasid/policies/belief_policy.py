"""A policy that acts on beliefs, as a value: plan, map and what states look like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tasid.beliefs.actor import BeliefActor, Carried, advantages
from tasid.beliefs.chain import Chain, at
from tasid.beliefs.classes import KINDS, Classes
from tasid.beliefs.familiar import anything
from tasid.beliefs.features import AsSeen, FeatureMap
from tasid.beliefs.filter import LEAP, BeliefFilter
from tasid.beliefs.gaussian import Gaussians
from tasid.beliefs.scaled import Differentiable, Layers, Scaled
from tasid.files import Artifact, ArtifactError, digest_of, read_artifact, write_artifact
from tasid.maps import RobustPlan
from tasid.maps.size import is_whole
from tasid.policies.sight import Looking
from tasid.policies.stored import (
    WithPlan,
    check_weights,
    checked_plan,
    checked_sight,
    share,
    stored_origin,
)
from tasid.policies.user_model import WrongModel, class_name, model_numbers, own_emission
from tasid.targets.device import on_device

KIND = "belief-policy"
_LEAST = "least"
LOST = 8.0
"""Nats of surprise, summed up, at which an agent calls itself lost."""
_STUCK = 3
"""Repetitions of an observation that say nothing yet."""


@dataclass(frozen=True, eq=False)
class BeliefPolicy(WithPlan):
    """A learned policy: immutable, and complete without the environment it was learned in."""

    plan: RobustPlan
    classes: str
    """What is expected to look alike: "place", "rank" or "action"."""
    feature_map: FeatureMap | AsSeen
    emission: Gaussians | Scaled
    eta: float
    """The share of slips that the filter expects."""
    observation_shape: tuple[int, ...]
    observation_dtype: str
    """What an observation's numbers are: float32 vectors, uint8 images."""
    environment: Mapping[str, Any] | None = None
    """Name and options of the environment it was learned in, ours or gym:ID, to build it again."""
    method: str = "belief"
    least: jax.Array | None = None
    """What an observation of a class scores at least (`tasid.beliefs.familiar`), [C]."""
    repetitions: int | None = None
    """How often in a row an observation was the one before while learning, at most."""

    @cached_property
    def actor(self) -> BeliefActor:
        """What acts on batches."""
        chain = Chain.of(self.simulator)
        classes = Classes.of(chain, self.classes, self.simulator)
        eta, leap = (on_device(x, np.float32) for x in (self.eta, LEAP))
        least = anything(classes.number) if self.least is None else self.least
        tracker = BeliefFilter(chain, classes, self.emission, eta, leap, least)
        return BeliefActor(tracker, self.feature_map, advantages(self.plan, chain))

    def agent(self) -> BeliefAgent:
        """A fresh agent that acts on one observation at a time."""
        return BeliefAgent(self)

    def save(self, path: str | Path) -> Path:
        """Write a checked artifact directory; the same policy gives the same bytes.

        Of a model of your own the file holds the parameters; `tasid.load(path, model=…)` asks for
        the model itself.
        """
        metadata, arrays = self._content()
        return write_artifact(path, kind=KIND, metadata=metadata, arrays=arrays)

    @cached_property
    def digest(self) -> str:
        """What tells this policy from all others, on disk or not."""
        metadata, arrays = self._content()
        return digest_of(kind=KIND, metadata=metadata, arrays=arrays)

    def _content(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        plan, arrays = self._stored_plan()
        sight, seen_by = self._sight()
        known = {"plan_eta": self.plan.eta, "classes": self.classes, "eta": self.eta}
        if self.least is not None:
            arrays |= {_LEAST: np.asarray(self.least)}
        if self.repetitions is not None:
            known |= {"repetitions": self.repetitions}
        return {**plan, **stored_origin(self), **known, **sight}, {**arrays, **seen_by}

    def _sight(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What the policy sees by, as metadata and arrays."""
        numbers = {
            f"emission.{n}": np.asarray(x) for n, x in emission_numbers(self.emission).items()
        }
        if isinstance(self.feature_map, AsSeen):
            assert isinstance(self.emission, Scaled)
            arrays = model_numbers(self.emission)
            return {"model": class_name(self.emission)}, {**arrays, **numbers}
        feature_map = {
            f"looks.{name}": np.asarray(getattr(self.feature_map, name))
            for name in ("centre", "components", "usual")
        }
        return {"pool": self.feature_map.pool}, {**feature_map, **numbers}


def emission_numbers(emission: Gaussians | Scaled) -> dict[str, jax.Array]:
    """All that a file needs to hold of it; the parameters of a user's model are not among it."""
    if isinstance(emission, Gaussians):
        return emission._asdict()
    weights = emission.parameters if _is_network(emission) else {}
    return {**weights, "log_prior": emission.log_prior, "trust": emission.trust}


def _is_network(emission: Scaled) -> bool:
    """Is it by a network of ours?"""
    classifier = emission.classifier
    return isinstance(classifier, Differentiable) and isinstance(classifier.model, Layers)


def load_belief_policy(path: str | Path, model: Any = None) -> BeliefPolicy:
    """Read a policy written by `BeliefPolicy.save`; every byte is verified, nothing is executed.

    `model` is the one of your own that it was learned with, if it was.
    """
    artifact = read_artifact(path, kind=KIND)
    own = artifact.metadata.get("model")
    if own is not None and model is None:
        raise ArtifactError(
            f"{path}: this policy sees by a model of your own, {own}, of which a file holds the "
            "parameters and not the code; give it: tasid.load(path, model=…)"
        )
    if own is None and model is not None:
        raise ValueError(
            f"model: {type(model).__name__} given, but the policy in {path} sees by none of your "
            "own; leave it out"
        )
    try:
        return _from(artifact, model)
    except WrongModel:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise ArtifactError(f"{path}: intact, but not a policy of this version: {error}") from error


def _from(artifact: Artifact, model: Any) -> BeliefPolicy:
    meta, arrays = artifact.metadata, artifact.arrays
    plan = checked_plan(meta, arrays, eta=meta["plan_eta"])
    shape, dtype = checked_sight(meta)
    if meta["classes"] not in KINDS:
        raise ValueError(f"classes are {meta['classes']!r}, none of {', '.join(KINDS)}")
    check_weights({n: x for n, x in arrays.items() if n.startswith(("emission.", "looks."))})
    feature_map, emission = _stored_sight(meta, arrays, shape, model)
    policy = BeliefPolicy(
        plan,
        meta["classes"],
        feature_map,
        emission,
        share("eta", meta["eta"]),
        shape,
        dtype,
        meta["environment"],
        least=on_device(arrays[_LEAST]) if _LEAST in arrays else None,
        repetitions=meta.get("repetitions"),
    )
    _check_sizes(policy)
    return policy


def _stored_sight(
    meta: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
    shape: tuple[int, ...],
    model: Any,
) -> tuple[FeatureMap | AsSeen, Gaussians | Scaled]:
    """What a stored policy sees by."""
    if model is not None:
        return AsSeen(shape), own_emission(model, arrays, shape)
    feature_map = FeatureMap(
        on_device(arrays["looks.centre"]),
        on_device(arrays["looks.components"]),
        on_device(arrays["looks.usual"]),
        shape,
        int(meta["pool"]),
    )
    return feature_map, emission_from(
        {
            name.removeprefix("emission."): on_device(array)
            for name, array in arrays.items()
            if name.startswith("emission.")
        }
    )


def emission_from(numbers: dict[str, jax.Array]) -> Gaussians | Scaled:
    """The emission of these numbers."""
    if "trust" not in numbers:
        return Gaussians(**{name: numbers[name] for name in Gaussians._fields})
    weights = {name: numbers[name] for name in ("w0", "b0", "w1", "b1")}
    size, hidden = weights["w0"].shape
    classifier = Differentiable(Layers(size, hidden))
    return Scaled(weights, numbers["log_prior"], numbers["trust"], classifier, size)


def _check_sizes(policy: BeliefPolicy) -> None:
    """Refuse arrays that do not belong to each other."""
    feature_map, emission = policy.feature_map, policy.emission
    number = policy.actor.filter.classes.number
    if isinstance(feature_map, FeatureMap) and len(feature_map.usual) not in (
        1,
        policy.horizon + 1,
    ):
        raise ValueError(
            f"looks.usual has {len(feature_map.usual)} steps, not {policy.horizon + 1}"
        )
    repeated = policy.repetitions
    if repeated is not None and not (is_whole(repeated) and 0 <= repeated <= policy.horizon):
        raise ValueError(f"repetitions is {repeated!r}, no number of steps")
    if policy.least is not None and policy.least.shape != (number,):
        raise ValueError(f"{_LEAST} has shape {policy.least.shape}, not {(number,)}")
    seen = jax.ShapeDtypeStruct((1, *policy.observation_shape), policy.observation_dtype)
    size = jax.eval_shape(feature_map, seen, np.int32(0)).shape[1]
    numbers = emission_numbers(emission)
    for name, shape in _expected_sizes(emission, number, size).items():
        if numbers[name].shape != shape:
            raise ValueError(f"emission.{name} has shape {numbers[name].shape}, not {shape}")
    if isinstance(emission, Gaussians) and np.asarray(emission.square).max(initial=0) > 0:
        raise ValueError("emission.square: positive, which no variance gives")
    if isinstance(emission, Scaled) and not (0 <= emission.trust.min() <= emission.trust.max() < 1):
        raise ValueError("emission.trust: outside [0, 1)")


def _expected_sizes(
    emission: Gaussians | Scaled, number: int, size: int
) -> dict[str, tuple[int, ...]]:
    """The shapes for so many classes and features."""
    if isinstance(emission, Scaled):
        sizes: dict[str, tuple[int, ...]] = {"log_prior": (number,), "trust": (number,)}
        if _is_network(emission):
            hidden = emission.parameters["w0"].shape[-1]
            sizes |= {
                "w0": (size, hidden),
                "b0": (hidden,),
                "w1": (hidden, number),
                "b1": (number,),
            }
        return sizes
    return Gaussians.shapes(number, size, int(emission.directions.shape[-1]))


class BeliefAgent(Looking):
    """Acts for real: one observation in (NumPy), one action out (int).

    Its beliefs are, bit by bit, those of a batched evaluation.
    """

    _policy: BeliefPolicy

    def __init__(self, policy: BeliefPolicy) -> None:
        super().__init__(policy)
        blank = np.zeros(policy.observation_shape, policy.observation_dtype)
        self._start = policy.actor.start(jnp.asarray(blank[None]))
        # Compiled now, so that the first decision takes no longer than the others.
        jax.block_until_ready(_act(policy.actor, self._start, blank, np.int32(0)))
        self.reset()

    def reset(self) -> None:
        """Begin a new episode."""
        self._step = 0
        self._memory = self._start
        self._column = np.asarray(self._policy.actor.chain.start)
        self._last: NDArray[Any] | None = None
        self._repeated = 0

    @property
    def belief(self) -> dict[int, float]:
        """Where the agent believed to be when it acted last: state index → probability.

        States with less than one in a million are left out. Before the first action, the map's
        starts.
        """
        states, weights = self._slots(), self._column
        there = (weights > 1e-6) & (states >= 0)
        return dict(zip(states[there].tolist(), weights[there].astype(float).tolist(), strict=True))

    @property
    def state(self) -> int:
        """Index of the likeliest state."""
        return int(self._slots()[self._column.argmax()])

    @property
    def confidence(self) -> float:
        """The probability of that state."""
        return float(self._column.max())

    @property
    def lost(self) -> bool:
        """Are the recent observations improbable where the agent believes to be?

        Or like nothing ever seen; or are they all the same, more often than twice as many ever were
        while it learned: a camera that hangs shows a picture that is familiar.
        """
        known = self._policy.repetitions
        stuck = known is not None and self._repeated > 2 * known + _STUCK
        return stuck or float(self._memory.doubt[0]) >= LOST

    def act(self, observation: ArrayLike) -> int:
        """Look at the observation of this step and choose the action."""
        seen, h = self._looked(observation), np.int32(self._step)
        memory, column, action = _act(self._policy.actor, self._memory, seen, h)
        belief = np.asarray(column)
        if not np.isfinite(belief).all():
            raise ValueError(
                f"observation: numbers up to {np.abs(seen).max():.3g} at step {h}, too large to be "
                "compared with anything that was learned"
            )
        same = self._last is not None and np.array_equal(seen, self._last)
        self._repeated, self._last = (self._repeated + 1 if same else 0), seen
        self._memory, self._column = memory, belief
        self._step += 1
        return int(action)

    def _slots(self) -> NDArray[np.int32]:
        return np.asarray(at(self._policy.actor.chain.states, max(self._step - 1, 0)))


@jax.jit
def _act(
    actor: BeliefActor, memory: Carried, observation: jax.Array, h: jax.Array
) -> tuple[Carried, jax.Array, jax.Array]:
    """What to remember, the belief of the one episode there is, and its action."""
    memory, actions = actor.act(memory, observation[None], h)
    return memory, memory.belief[:, 0], actions[0]
