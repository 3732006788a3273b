"""Training by PPO: iterations by the thousand, checkpoints between them, several seeds at once.

A seed's training is a pure function of the seed and what it is given: the same alone or beside
others, in one go or continued from a checkpoint. Only seeds that share one vectorised computation
(`together`) differ from that, by float32 rounding.
"""

from __future__ import annotations

import os
import threading
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
from numpy.typing import NDArray

from tasid.baselines.ppo import Fixed, PPOConfig, PPOState, TargetSource, iterate, start
from tasid.policies.decoder import WIDTH
from tasid.policies.evaluate import Score
from tasid.policies.ppo_policy import Greedy, PPOPolicy
from tasid.targets.batches import in_batches
from tasid.targets.rollout import roll
from tasid.targets.streams import EVALUATION, SCORING, STAGES
from tasid.targets.target import Target, episode_keys, seed_key


@dataclass(frozen=True)
class Evaluation:
    """The greedy policy's score at one point of the training."""

    episodes: int
    """Training episodes so far."""
    mean: float
    ci95: tuple[float, float]


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """One seed between two iterations: an event, and all that is needed to go on from here."""

    seed: int
    stage: int
    episodes: int
    """Training episodes of this stage so far."""
    returns: NDArray[np.float32]
    """Returns of the training episodes since the last checkpoint, which the drawing policy made."""
    evaluation: Evaluation | None
    state: PPOState
    seconds: float
    """How long it took since the last checkpoint."""


Callback = Callable[[Checkpoint], None]
"""Progress bars, records and loggers are functions of checkpoints; one is called at a time."""


@dataclass(frozen=True, eq=False)
class Trained:
    """What training gave for one seed."""

    seed: int
    policy: PPOPolicy
    episodes: int
    """Training episodes in all, those before the state it continued from included."""
    returns: NDArray[np.float32]
    """The return of every training episode of this call."""
    evaluations: tuple[Evaluation, ...]
    state: PPOState
    stopped: bool
    """Did `stop` end it?"""


@dataclass(frozen=True)
class _Plan:
    """What every seed does."""

    config: PPOConfig
    stage: int
    episodes: int
    every: int
    evaluation_episodes: int
    stop: Callable[[Checkpoint], bool] | None
    callbacks: tuple[Callback, ...]


def ppo(
    sources: Sequence[Target | TargetSource],
    *,
    seeds: Sequence[int],
    episodes: int,
    config: PPOConfig | None = None,
    states: Sequence[PPOState] | None = None,
    stage: int = 0,
    every: int = 1000,
    evaluation_episodes: int = 512,
    evaluation_targets: Sequence[Target] | None = None,
    stop: Callable[[Checkpoint], bool] | None = None,
    callbacks: Sequence[Callback] = (),
    together: bool | None = None,
) -> list[Trained]:
    """Train a policy for every seed on the targets of its source, for so many episodes in all.

    `states` continues earlier training; stages of one seed draw different episodes. Every so many
    episodes there is a checkpoint, with an evaluation on the seed's evaluation target (by default
    its own target, if that is always the same) unless `evaluation_episodes` is 0, and `stop` may
    end the seed's training there. Seeds run in threads; `together`, the default on accelerators,
    makes them one vectorised computation instead.
    """
    plan = _Plan(
        config=config or PPOConfig(),
        stage=stage,
        episodes=episodes,
        every=every,
        evaluation_episodes=evaluation_episodes,
        stop=stop,
        callbacks=tuple(callbacks),
    )
    _check(plan, sources, seeds, states, evaluation_targets)
    given = [Fixed(one) if isinstance(one, Target) else one for one in sources]
    if evaluation_targets is None and all(isinstance(one, Fixed) for one in given):
        evaluation_targets = [one.only for one in given if isinstance(one, Fixed)]
    keys = [stage_key(seed, stage) for seed in seeds]
    if states is None:
        states = [
            start(plan.config, one.target(key, jnp.int32(0)), key)
            for one, key in zip(given, keys, strict=True)
        ]
    traceable = all(one.traceable for one in given)
    if together and not traceable:
        raise ValueError("together: True, but not every source can be traced by JAX; leave it out")
    if together is None:
        together = traceable and jax.default_backend() != "cpu"
    every_one = range(len(seeds))
    groups = [
        _Group(
            plan,
            [seeds[i] for i in members],
            [given[i] for i in members],
            [states[i] for i in members],
            [keys[i] for i in members],
            None if evaluation_targets is None else [evaluation_targets[i] for i in members],
        )
        for members in ([list(every_one)] if together else [[i] for i in every_one])
    ]
    return _run(groups)


def _run(groups: Sequence[_Group]) -> list[Trained]:
    """All groups, as many at a time as there are processors."""
    halt, speaking = threading.Event(), threading.Lock()
    workers = min(len(groups), os.cpu_count() or 1)
    with ThreadPoolExecutor(max_workers=workers) as pool:
        try:
            running = [pool.submit(group.train, halt, speaking) for group in groups]
            return [trained for one in running for trained in one.result()]
        finally:
            halt.set()  # after an error or Ctrl-C, the others end at their next checkpoint


class _Group:
    """Seeds that advance together: a single one, or several under `vmap`."""

    def __init__(
        self,
        plan: _Plan,
        seeds: Sequence[int],
        sources: Sequence[Any],
        states: Sequence[PPOState],
        keys: Sequence[jax.Array],
        evaluation_targets: Sequence[Any] | None,
    ) -> None:
        self._plan = plan
        self._seeds = seeds
        self._sources = sources
        self._targets = evaluation_targets
        self._states = _stack(states)
        self._keys = jnp.stack(keys)
        shown = sources[0].target(keys[0], jnp.int32(0))
        self._network = plan.config.networks(shown)[0]
        self._shape, self._horizon = shown.observation_shape, shown.horizon
        self._compiled = all(one.traceable for one in sources)

    def train(self, halt: threading.Event, speaking: threading.Lock) -> list[Trained]:
        """Advance from checkpoint to checkpoint until all seeds are done."""
        plan, batch = self._plan, self._plan.config.batch
        done: dict[int, Trained] = {}
        returns: list[list[NDArray[np.float32]]] = [[] for _ in self._seeds]
        evaluations: list[list[Evaluation]] = [[] for _ in self._seeds]
        episodes = int(self._states.batches[0]) * batch
        while len(done) < len(self._seeds) and not halt.is_set():
            started = time.perf_counter()
            chunk = min(plan.every - episodes % plan.every, plan.episodes - episodes)
            earned = self._advance(chunk // batch) if chunk > 0 else None
            episodes += max(chunk, 0)
            scores = self._evaluate(episodes)
            seconds = time.perf_counter() - started
            for i, seed in enumerate(self._seeds):
                if i in done:  # under vmap it is computed until the others end, and ignored
                    continue
                here = Checkpoint(
                    seed=seed,
                    stage=plan.stage,
                    episodes=episodes,
                    returns=np.empty(0, np.float32) if earned is None else earned[i],
                    evaluation=None if scores is None else scores[i],
                    state=jax.tree.map(itemgetter(i), self._states),
                    seconds=seconds,
                )
                returns[i].append(here.returns)
                evaluations[i] += [here.evaluation] if here.evaluation is not None else []
                with speaking:
                    for callback in plan.callbacks:
                        callback(here)
                    stopped = plan.stop is not None and plan.stop(here)
                if stopped or episodes >= plan.episodes:
                    done[i] = self._trained(here, returns[i], evaluations[i], stopped)
        return [done[i] for i in sorted(done)]

    def _trained(
        self,
        last: Checkpoint,
        returns: Sequence[NDArray[np.float32]],
        evaluations: Sequence[Evaluation],
        stopped: bool,
    ) -> Trained:
        actor = Greedy(last.state.policy.parameters, self._network)
        policy = PPOPolicy(actor, self._horizon, self._shape)
        earned = np.concatenate(returns)
        return Trained(
            last.seed, policy, last.episodes, earned, tuple(evaluations), last.state, stopped
        )

    def _advance(self, batches: int) -> NDArray[np.float32]:
        """So many iterations of every seed; returns [G, n]."""
        config, parts = self._plan.config, []
        if self._compiled:
            sources = _stack(self._sources)
            for _ in range(batches):
                self._states, returns = _iterate(config, sources, self._states, self._keys)
                parts.append(returns)
            return np.concatenate(parts, axis=1)
        state = jax.tree.map(itemgetter(0), self._states)
        for _ in range(batches):
            state, returns = iterate(config, self._sources[0], state, self._keys[0])
            parts.append(returns)
        self._states = _stack([state])
        return np.concatenate(parts)[None]

    def _evaluate(self, episodes: int) -> list[Evaluation] | None:
        """Fresh evaluation episodes of every seed."""
        number = self._plan.evaluation_episodes
        if self._targets is None or number == 0:
            return None
        policies, keys = self._states.policy.parameters, _fold(self._keys, SCORING)
        keys = _fold(keys, episodes)
        widths = range(0, number, WIDTH)
        if all(target.traceable for target in self._targets):
            target = _stack(self._targets)
            parts = [_score(self._network, target, policies, keys, first) for first in widths]
        else:
            actor = Greedy(policies[0], self._network)
            parts = [
                in_batches(
                    self._targets[0],
                    partial(roll_once, actor=actor, key=keys[0], first=first),
                    rows=range(min(WIDTH, number - first)),
                    width=WIDTH,
                )[None]
                for first in widths
            ]
        returns = np.concatenate([np.asarray(part, np.float64) for part in parts], axis=1)
        scores = [Score(row[:number]) for row in returns]
        return [Evaluation(episodes, score.mean, score.ci95) for score in scores]


@partial(jax.jit, static_argnums=0)
def _iterate(
    config: PPOConfig, sources: Any, states: PPOState, keys: jax.Array
) -> tuple[PPOState, jax.Array]:
    """One iteration of every seed: compiled once, whatever their number."""
    return _each(partial(iterate, config), sources, states, keys)


@partial(jax.jit, static_argnums=0)
def _score(
    network: Any, targets: Any, policies: jax.Array, keys: jax.Array, first: jax.Array
) -> jax.Array:
    def one(target: Any, policy: jax.Array, key: jax.Array) -> jax.Array:
        return roll_once(target, Greedy(policy, network), key, first)

    return _each(one, targets, policies, keys)


def roll_once(target: Any, actor: Greedy, key: jax.Array, first: Any) -> jax.Array:
    """Returns of WIDTH whole episodes."""
    keys = episode_keys(key, EVALUATION, first + jnp.arange(WIDTH))
    return roll(target, actor, keys, steps=target.horizon).returns


def _each(function: Callable[..., Any], *stacked: Any) -> Any:
    """A function of one seed, for all; a single seed is spared `vmap`, which changes rounding."""
    if jax.tree.leaves(stacked)[0].shape[0] > 1:
        return jax.vmap(function)(*stacked)
    result = function(*jax.tree.map(itemgetter(0), stacked))
    return jax.tree.map(lambda leaf: leaf[None], result)


def _stack(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def _fold(keys: jax.Array, number: int) -> jax.Array:
    return jax.vmap(jax.random.fold_in, in_axes=(0, None))(keys, number)


def stage_key(seed: int, stage: int) -> jax.Array:
    """The key of all that one stage of a seed's training draws."""
    return jax.random.fold_in(jax.random.fold_in(seed_key(seed), STAGES), stage)


def _check(
    plan: _Plan,
    sources: Sequence[Any],
    seeds: Sequence[int],
    states: Sequence[PPOState] | None,
    evaluation_targets: Sequence[Target] | None,
) -> None:
    batch = plan.config.batch
    if not seeds or len(set(seeds)) != len(seeds):
        raise ValueError(f"seeds: {list(seeds)} are not one or more different numbers")
    for name, given in (
        ("sources", sources),
        ("states", states),
        ("evaluation_targets", evaluation_targets),
    ):
        if given is not None and len(given) != len(seeds):
            raise ValueError(f"{name}: {len(given)} given for {len(seeds)} seeds")
    for name, number in (("episodes", plan.episodes), ("every", plan.every)):
        if number < batch or number % batch:
            raise ValueError(f"{name}: {number} is no multiple of the {batch} episodes in a batch")
    if plan.evaluation_episodes < 0:
        raise ValueError(f"evaluation_episodes: {plan.evaluation_episodes} is below 0")
