"""TASID (Algorithm 2): transfer from an abstract simulator using inverse dynamics.

Plan robustly on the map; then, step by step, learn which action really happened between two
observations, track the latent state by replaying those actions on the map, and act by the plan.

Guarantee (Theorem 2): if the target's latent MDP is an η-perturbation of the map, η < ½, and the
model class is realisable, the returned policy is ε-close to the robust one with latent access,
with a number of episodes that does not depend on the number of states.

This file is the algorithm; how a step's model is fitted, and on how many episodes, is the business
of a `Learner`: `paper_method` does what the paper does, `outcome_method` needs far fewer episodes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from tasid.algorithms.decoder import WIDTH, Decoder, Tracked
from tasid.envs.rollout import Actor, Moment, roll_keeping
from tasid.envs.target import Target, episode_keys, seed_key, stream, unfinished
from tasid.envs.waves import in_waves
from tasid.mdp import RobustPlan

EXPLORATION = 1 << 28
DETOUR = EXPLORATION + 1
FITTING = 1 << 29
"""Streams of a key, far above those that targets use for their steps."""


@dataclass(frozen=True)
class EpochEnded:
    """One pass over the training data of a step."""

    seed: int
    step: int
    epoch: int
    training_loss: float
    validation_loss: float


@dataclass(frozen=True)
class StepEnded:
    """One step's model is learned."""

    seed: int
    step: int
    steps: int
    episodes: int
    """Episodes spent on this step."""
    validation_loss: float
    epochs: int
    seconds_collecting: float
    seconds_fitting: float
    eta: tuple[float, float, float] | None = None
    """How often outcomes of the plan's actions were not the intended ones so far, and a 95 %
    interval of that; None if nobody looked."""


Event = EpochEnded | StepEnded
Callback = Callable[[Event], None]
"""Progress bars, records and loggers are functions of events."""


class Aside(NamedTuple):
    """The transitions of detours, whose commands were random as well; without one, anything."""

    x: jax.Array
    x_next: jax.Array
    states: jax.Array
    command: jax.Array
    live: jax.Array


class Explored(NamedTuple):
    """Transitions of one step, each from an episode of its own; all arrays are [G, n, …]."""

    x: jax.Array
    x_next: jax.Array
    states: jax.Array
    """ŝ_h, where the policy believed to be."""
    command: jax.Array
    """The action that was executed: the representative of a uniformly drawn label."""
    path: jax.Array
    """ŝ_0 … ŝ_{h−1} of the roll-in, [G, n, H]."""
    detour: jax.Array
    """The step of the roll-in at which a random outcome was commanded; −1 if at none."""
    live: jax.Array
    """Had the episode not ended before this step? If it had, it counts, and teaches nothing."""
    aside: Aside | None
    """What happened at the detours, where there are any."""
    cluster: jax.Array | None = None
    """φ̂(x_0), where every cluster of starts has models of its own."""
    begun: jax.Array | None = None
    """How many steps of the roll-in began before the episode ended: h, if it did not end."""


class Fitted(NamedTuple):
    """How the fit of one step went, for every seed."""

    validation_loss: Sequence[float]
    epochs: Sequence[int]
    history: Sequence[Sequence[tuple[float, float]]]
    """Training and validation loss of every epoch."""
    eta: tuple[float, float, float] | None = None
    """As in `StepEnded`."""


class Learner(Protocol):
    """Fits the steps' models; the decoder is its product, extended step by step."""

    @property
    def decoder(self) -> Decoder:
        """The decoders so far, stacked over seeds."""

    @property
    def detours(self) -> float:
        """The fraction of roll-ins that leave π for one random outcome shortly before step h."""

    def wants(self, h: int, taken: int) -> int:
        """How many (more) episodes step h needs, having had `taken`; 0 if it is done."""

    def learn(self, h: int, data: Explored) -> Fitted:
        """Fit, or refine, the model of step h and give it to the decoder."""


@dataclass(frozen=True)
class Learned:
    """What a run of the algorithm returns: plan, decoder, and how each step went."""

    seed: int
    plan: RobustPlan
    decoder: Decoder
    episodes: int
    steps: tuple[StepEnded, ...]


def tasid(
    targets: Sequence[Target],
    plans: Sequence[RobustPlan],
    learner: Learner,
    *,
    seeds: Sequence[int],
    callbacks: Sequence[Callback] = (),
) -> list[Learned]:
    """Algorithm 2 from line 4 on, for one seed or several that advance together.

    Line 1 made the `plans`; by line 3, the decoder that the `learner` starts with acts at the
    first step by the plan at the start state.
    """
    target, keys = grouped(targets), jnp.stack([seed_key(seed) for seed in seeds])
    history: list[list[StepEnded]] = [[] for _ in seeds]
    steps = plans[0].simulator.horizon - 1

    for h in range(steps):
        taken, collecting, fitting = 0, 0.0, 0.0
        fitted = None
        while more := learner.wants(h, taken):
            # Lines 5–10: roll in with π, explore one step, remember the transition.
            started = time.perf_counter()
            data = collect(
                target,
                learner.decoder,
                keys,
                h,
                first=taken,
                episodes=more,
                detours=learner.detours,
            )
            collected = time.perf_counter()
            # Lines 11–14: fit f_h; α_h, φ_{h+1} and π_{h+1} are the decoder with one model more.
            fitted = learner.learn(h, data)
            taken += more
            collecting += collected - started
            fitting += time.perf_counter() - collected
        assert fitted is not None, "every step wants episodes"
        for i, seed in enumerate(seeds):
            ended = StepEnded(
                seed=seed,
                step=h,
                steps=steps,
                episodes=taken,
                validation_loss=float(fitted.validation_loss[i]),
                epochs=int(fitted.epochs[i]),
                seconds_collecting=collecting,
                seconds_fitting=fitting,
                eta=fitted.eta,
            )
            history[i].append(ended)
            _announce(callbacks, ended, fitted.history[i])

    return [
        Learned(
            seed=seed,
            plan=plans[i],
            decoder=jax.tree.map(itemgetter(i), learner.decoder),
            episodes=sum(step.episodes for step in history[i]),
            steps=tuple(history[i]),
        )
        for i, seed in enumerate(seeds)
    ]


def collect(
    target: Any,
    decoder: Decoder,
    keys: jax.Array,
    h: int,
    *,
    first: int,
    episodes: int,
    detours: float = 0.0,
) -> Explored:
    """Fresh episodes first … first + episodes − 1 of step h, for every seed.

    `target` is what `grouped` made of the seeds' targets.
    """
    if isinstance(target, list):
        return _collect_on_host(target, decoder, keys, h, range(first, first + episodes), detours)

    def one(chunk: int) -> Explored:
        return _explore_all(target, decoder, keys, h, chunk * WIDTH, detours)

    # An episode's slot is its index modulo the width, so chunks start at multiples of it. They
    # are pure: two threads change the time and nothing else.
    chunks = range(first // WIDTH, -(-(first + episodes) // WIDTH))
    with ThreadPoolExecutor(max_workers=2) as pool:
        parts = list(pool.map(one, chunks))
    skipped = first - chunks.start * WIDTH
    return jax.tree.map(
        lambda *tables: jnp.concatenate(tables, axis=1)[:, skipped : skipped + episodes], *parts
    )


def grouped(targets: Sequence[Target]) -> Any:
    """The seeds' targets as one stacked pytree, or as a list where JAX cannot trace them."""
    return _stack(targets) if all(one.traceable for one in targets) else list(targets)


def _collect_on_host(
    targets: Sequence[Target],
    decoders: Decoder,
    keys: jax.Array,
    h: int,
    episodes: range,
    detours: float,
) -> Explored:
    """The same episodes step by step: none but those wanted run, in the slots they always have."""
    found = []
    for i, target in enumerate(targets):
        decoder = jax.tree.map(itemgetter(i), decoders)
        parts = []
        for chunk in range(episodes.start // WIDTH, -(-episodes.stop // WIDTH)):
            first = chunk * WIDTH
            explore = partial(_explore, decoder=decoder, key=keys[i], h=h, first=first)
            slots = [n - first for n in episodes if 0 <= n - first < WIDTH]
            run = partial(explore, detours=detours)
            parts.append(in_waves(target, run, rows=slots, width=WIDTH))
        found.append(jax.tree.map(lambda *tables: np.concatenate(tables), *parts))
    return jax.tree.map(lambda *tables: np.stack(tables), *found)


@partial(jax.jit, static_argnums=5)
def _explore_all(
    targets: Any,
    decoders: Decoder,
    keys: jax.Array,
    h: jax.Array,
    first: jax.Array,
    detours: float,
) -> Explored:
    explore = partial(_explore, h=h, first=first, detours=detours)
    return jax.vmap(explore)(targets, decoders, keys)


def _explore(
    target: Target,
    decoder: Decoder,
    key: jax.Array,
    *,
    h: Any,
    first: Any,
    detours: float,
) -> Explored:
    """Lines 7–9: follow π for h steps, execute a uniformly random label's command, look again."""
    keys, detour = _draw_episodes(key, h, first, detours)
    actor: Actor = _Detouring(decoder, keys, detour) if detours else decoder
    keep, at_first = partial(_keep, target, detour), partial(_at_first, aside=detours > 0)
    moment, (begun, aside) = roll_keeping(
        target, actor, keys, steps=h, keep=keep, at_first=at_first
    )
    live = unfinished(target, moment.state, WIDTH)
    states, command = _command(decoder, moment.carry, moment.observations, keys, h)
    x = moment.observations
    _, x_next, _ = target.step(moment.state, command, h, keys)
    path, cluster = moment.carry.path, moment.carry.cluster
    return Explored(x, x_next, states, command, path, detour, live, aside, cluster, begun)


def _at_first(first: Moment, *, aside: bool) -> tuple[jax.Array, Aside | None]:
    none, x, states = jnp.zeros(WIDTH, jnp.int32), first.observations, first.carry.states
    return none, Aside(x, x, states, none, jnp.zeros(WIDTH, bool)) if aside else None


def _keep(
    target: Target,
    detour: jax.Array,
    kept: tuple[jax.Array, Aside | None],
    before: Moment,
    actions: jax.Array,
    after: Moment,
    h: jax.Array,
) -> tuple[jax.Array, Aside | None]:
    """Count the steps that begin, and keep the transition of the detours that are now."""
    begun, aside = kept
    live = unfinished(target, before.state, WIDTH)
    begun = begun + jnp.asarray(live, jnp.int32)
    if aside is None:
        return begun, None
    now = Aside(before.observations, after.observations, after.carry.states, actions, live)

    def choose(new: jax.Array, old: jax.Array) -> jax.Array:
        return jnp.where((detour == h).reshape(-1, *[1] * (new.ndim - 1)), new, old)

    return begun, jax.tree.map(choose, now, aside)


@partial(jax.jit, static_argnums=3)
def _draw_episodes(
    key: jax.Array, h: jax.Array, first: jax.Array, detours: float
) -> tuple[jax.Array, jax.Array]:
    keys = episode_keys(key, h, first + jnp.arange(WIDTH))
    return keys, _draw_detours(keys, h, detours)


@jax.jit
def _command(
    decoder: Decoder, memory: Tracked, observations: jax.Array, keys: jax.Array, h: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """ŝ_h, and the command of a label drawn uniformly there."""
    states = decoder.track(memory, observations, h)
    _, command = decoder.labels.draw(stream(keys, EXPLORATION), states, h)
    return states, command


class _Detouring(NamedTuple):
    """π, but for one random outcome at an episode's detour: that is where slips lead, too."""

    decoder: Decoder
    keys: jax.Array
    detour: jax.Array

    def start(self, observations: jax.Array) -> Tracked:
        return self.decoder.start(observations)

    def act(
        self, memory: Tracked, observations: jax.Array, h: jax.Array
    ) -> tuple[Tracked, jax.Array]:
        memory, actions = self.decoder.act(memory, observations, h)
        _, command = self.decoder.labels.draw(stream(self.keys, DETOUR), memory.states, h)
        return memory, jnp.where(self.detour == h, command, actions)


def _draw_detours(keys: jax.Array, h: jax.Array, fraction: float) -> jax.Array:
    """One of the two steps before h for a fraction of the episodes, −1 for the others."""
    drawn = jax.vmap(jax.random.uniform)(stream(keys, DETOUR + 1))
    back = jnp.where(drawn < 0.5 * fraction, 1, 2)
    return jnp.where(drawn < fraction, jnp.maximum(h - back, -1), -1)


def _stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def _announce(
    callbacks: Sequence[Callback], ended: StepEnded, history: Sequence[tuple[float, float]]
) -> None:
    for epoch, (training, validation) in enumerate(history):
        for callback in callbacks:
            callback(EpochEnded(ended.seed, ended.step, epoch, training, validation))
    for callback in callbacks:
        callback(ended)
