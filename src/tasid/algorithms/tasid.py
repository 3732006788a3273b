"""TASID (Algorithm 2): transfer from an abstract simulator using inverse dynamics.

Plan robustly on the map; then, step by step, learn which action really happened between two
observations, track the latent state by replaying those actions on the map, and act by the plan.

Guarantee (Theorem 2): if the target's latent MDP is an η-perturbation of the map, η < ½, and the
model class is realisable, the returned policy is ε-close to the robust one with latent access,
with a number of episodes that does not depend on the number of states.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tasid.algorithms.decoder import WIDTH, Decoder
from tasid.envs.rollout import roll
from tasid.envs.target import Target, episode_keys, seed_key, stream
from tasid.learning import MLP, FitConfig, Network, Transitions, action_labels, fit
from tasid.mdp import AbstractSimulator, RobustPlan, robust_dp

_EXPLORATION = 0xE0
_FITTING = 1 << 29


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


Event = EpochEnded | StepEnded
Callback = Callable[[Event], None]
"""Progress bars, records and loggers are functions of events."""


@dataclass(frozen=True)
class Learned:
    """What a run of the algorithm returns: plan, decoder, and how each step went."""

    seed: int
    plan: RobustPlan
    decoder: Decoder
    episodes: int
    steps: tuple[StepEnded, ...]


def paper_network(target: Target) -> Network:
    """The paper's [56, 56] network for vector observations."""
    return MLP(int(np.prod(target.observation_shape)), target.num_actions)


def tasid(
    targets: Sequence[Target],
    simulators: Sequence[AbstractSimulator],
    *,
    eta: float,
    episodes: int,
    seeds: Sequence[int],
    config: FitConfig | None = None,
    callbacks: Sequence[Callback] = (),
) -> list[Learned]:
    """Algorithm 2 with the paper's procedure, for one seed or several trained together.

    `episodes` is the paper's n: every one of the H−1 models gets ⌊n/H⌋ episodes of its own.
    """
    config = config or FitConfig()
    horizon = simulators[0].horizon
    n_decode = episodes_per_step(episodes, horizon, config)
    network = paper_network(targets[0])

    # Line 1: the robust plan. Line 3: π at the first step is the plan at the start.
    plans = [robust_dp(sim, eta=eta) for sim in simulators]
    decoders = [Decoder.blank(plan, action_labels(plan.simulator), network) for plan in plans]
    group = _Group(targets, decoders, seeds)
    models = group.each(lambda key: network.init(key), stream(group.keys, _FITTING))
    history: list[list[StepEnded]] = [[] for _ in seeds]

    for h in range(horizon - 1):
        # Lines 5–10: roll in with π, explore one step, remember the transition.
        started = time.perf_counter()
        data = group.collect(h, n_decode)
        collected = time.perf_counter()
        # Line 11: the inverse-dynamics model, warm-started from the step before.
        fitted = group.fit(config, models, data, h)
        models = fitted.parameters
        # Lines 12–14: α_h, φ_{h+1} and π_{h+1} are the decoder with one model more.
        group.extend(h, models)
        seconds = (collected - started, time.perf_counter() - collected)
        for i, seed in enumerate(seeds):
            _report(callbacks, seed, h, np.asarray(fitted.history[i]))
            ended = StepEnded(
                seed,
                h,
                horizon - 1,
                n_decode,
                float(fitted.validation_loss[i]),
                int(fitted.epochs[i]),
                *seconds,
            )
            history[i].append(ended)
            for callback in callbacks:
                callback(ended)

    return [
        Learned(seed, plan, decoder, n_decode * (horizon - 1), tuple(steps))
        for seed, plan, decoder, steps in zip(seeds, plans, group.unstack(), history, strict=True)
    ]


def episodes_per_step(episodes: int, horizon: int, config: FitConfig) -> int:
    """⌊n/H⌋, or an error that says how many episodes this horizon needs at least."""
    each = episodes // horizon
    if horizon > 1 and (each < 2 or config.split(each) < 1):
        raise ValueError(
            f"episodes: {episodes} leave {each} for each of the {horizon} steps; every step needs "
            f"at least 2, one to train and one to validate: give {2 * horizon} or more"
        )
    return each


class _Group:
    """One or several seeds advanced together: the same functions, under `vmap` when several."""

    def __init__(
        self, targets: Sequence[Target], decoders: Sequence[Decoder], seeds: Sequence[int]
    ) -> None:
        self._size = len(seeds)
        self._network = decoders[0].network
        self._target = _stack(targets)
        self._decoder = _stack(decoders)
        self.keys = jnp.stack([seed_key(seed) for seed in seeds])

    def each(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """A function of one seed, applied to all."""
        return jax.vmap(function)(*arguments)

    def collect(self, h: int, episodes: int) -> Transitions:
        """Transitions of `episodes` fresh episodes a seed: [G, n, …]."""
        chunks = range(0, episodes, WIDTH)

        def one(first: int) -> Transitions:
            return _collect_chunk(self._target, self._decoder, self.keys, h, first, episodes)

        # Chunks are pure, so two threads change the time and nothing else.
        with ThreadPoolExecutor(max_workers=2) as pool:
            parts = list(pool.map(one, chunks))
        return jax.tree.map(lambda *tables: jnp.concatenate(tables, axis=1)[:, :episodes], *parts)

    def fit(self, config: FitConfig, models: jax.Array, data: Transitions, h: int) -> Any:
        """Fit step h's model of every seed."""
        keys = stream(stream(self.keys, _FITTING + 1), h)
        return jax.block_until_ready(_fit_group(self._network, config, models, data, keys))

    def extend(self, h: int, models: jax.Array) -> None:
        """Give every seed's decoder its model of step h."""
        self._decoder = jax.vmap(lambda decoder, model: decoder.with_model(h, model))(
            self._decoder, models
        )

    def unstack(self) -> list[Decoder]:
        """The seeds' decoders, one by one."""
        return [jax.tree.map(itemgetter(i), self._decoder) for i in range(self._size)]


@jax.jit
def _collect_chunk(
    targets: Any,
    decoders: Decoder,
    keys: jax.Array,
    h: jax.Array,
    first: jax.Array,
    stop: jax.Array,
) -> Transitions:
    """Episodes first … first + WIDTH − 1 of step h, for every seed."""
    return jax.vmap(partial(_explore, h=h, first=first, stop=stop))(targets, decoders, keys)


def _explore(
    target: Target,
    decoder: Decoder,
    key: jax.Array,
    *,
    h: jax.Array,
    first: jax.Array,
    stop: jax.Array,
) -> Transitions:
    """Lines 7–9: follow π for h steps, take a uniformly random label's command, look again."""
    episodes = first + jnp.arange(WIDTH)
    keys = episode_keys(key, h, episodes)
    moment = roll(target, decoder, keys, steps=h)
    states = decoder.track(moment.carry, moment.observations, h)
    label, command = decoder.labels.draw(stream(keys, _EXPLORATION), states, h)
    _, observations, _ = target.step(moment.state, command, h, keys)
    return Transitions(
        x=moment.observations,
        x_next=observations,
        label=label,
        valid=decoder.labels.at(h).valid[states],
        weight=(episodes < stop).astype(jnp.float32),
    )


@partial(jax.jit, static_argnums=(0, 1))
def _fit_group(
    network: Network, config: FitConfig, models: jax.Array, data: Transitions, keys: jax.Array
) -> Any:
    return jax.vmap(partial(fit, network, config))(models, data, keys)


def _stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def _report(callbacks: Sequence[Callback], seed: int, h: int, history: np.ndarray) -> None:
    for epoch, (training, validation) in enumerate(history):
        if np.isnan(validation):
            break
        for callback in callbacks:
            callback(EpochEnded(seed, h, epoch, float(training), float(validation)))
