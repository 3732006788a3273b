"""The paper's baselines by name: PPO, with RND's bonus, with domain randomisation, with both.

With domain randomisation, training has two stages: `source_episodes` on relatives of the target, a
new relative for every batch, then `target_episodes` in the target. EPOpt is domain randomisation
that learns from the worst share ε of every batch of the first stage.

A training is a function of seed, configuration and target. It saves its state now and then and
continues from there with the same result.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from reproduction.domain_randomization import relative
from reproduction.networks import jax_key
from reproduction.ppo import PPO, PPOConfig, TrainState
from reproduction.ppo_policy import PPOPolicy
from reproduction.rnd import RND
from tasid import Target
from tasid.keys import Phase, episode_keys, fold_in, seed_key
from tasid.storage import ArtifactError, read_artifact, write_artifact
from tasid.targets.rollout import rollout

ALGORITHMS = ("ppo", "ppo-rnd", "ppo-dr", "ppo-rnd-dr", "epopt")
PRE_TRAINING, CHECKPOINTS = Phase.EVALUATION + 16, Phase.EVALUATION + 17
"""Phases of episodes: in relatives of the target, and of the evaluations during training."""
KIND = "baseline-checkpoint"


@dataclass(frozen=True)
class BaselineConfig:
    """An algorithm, its budget and how the paper's table is read; the defaults are ours."""

    algorithm: str = "ppo"
    target_episodes: int = 500_000
    source_episodes: int = 500_000
    """Of pre-training, with domain randomisation."""
    rnd_coefficient: float = 500.0
    epopt_epsilon: float = 1.0
    """Share of the worst episodes of a batch that pre-training learns from."""
    evaluate_every: int = 1000
    """Episodes in the target between two evaluations."""
    evaluation_episodes: int = 2048
    stop_when_solved: bool = True
    """End at the first evaluation that solves the target?"""
    keep_rnd: bool = False
    """Continue fine-tuning with RND's networks and moments of pre-training, or with fresh ones?"""
    keep_optimisers: bool = False
    """Likewise the Adam states of policy and critic."""
    updates_are: str = "passes"
    """See `PPOConfig`."""
    minibatch_of: str | None = None
    gae_lambda: float | None = None
    """See `PPOConfig`. None: "transitions" and 0.95; for RND without pre-training "episodes" and
    0.5, which did better on locks that are in no table."""

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise ValueError(f"algorithm: {self.algorithm!r} is not one of {', '.join(ALGORITHMS)}")
        if not 0.0 < self.epopt_epsilon <= 1.0:
            raise ValueError(f"epopt_epsilon: {self.epopt_epsilon} is not in (0, 1]")
        if self.epopt_epsilon < 1.0 and not self.randomized:
            raise ValueError(
                f"epopt_epsilon: {self.epopt_epsilon} with {self.algorithm!r}; EPOpt selects "
                "episodes of pre-training, which ppo-dr, ppo-rnd-dr and epopt have"
            )
        batch = PPOConfig.batch_episodes
        for name in ("target_episodes", "source_episodes", "evaluate_every"):
            if getattr(self, name) < batch or getattr(self, name) % batch:
                raise ValueError(
                    f"{name}: {getattr(self, name)} is not a multiple of {batch}, the episodes of "
                    "a batch"
                )

    @property
    def randomized(self) -> bool:
        """Does it pre-train on relatives of the target?"""
        return self.algorithm.endswith("dr") or self.algorithm == "epopt"

    def ppo(self) -> PPOConfig:
        """PPO's hyper-parameters in the target."""
        rnd = "rnd" in self.algorithm
        alone = rnd and not self.randomized
        of = self.minibatch_of or ("episodes" if alone else "transitions")
        decay = self.gae_lambda if self.gae_lambda is not None else (0.5 if alone else 0.95)
        return PPOConfig(
            updates_are=self.updates_are,
            minibatch_of=of,
            gae_lambda=decay,
            rnd=RND(self.rnd_coefficient) if rnd else None,
        )


@dataclass(frozen=True)
class Stage:
    """One stage of training: PPO on the targets that `target(iteration)` gives."""

    name: str
    """"source" or "target"."""
    phase: int
    ppo: PPO
    target: Callable[[int], Target]
    episodes: int
    every: int
    """Episodes between two rows."""


@dataclass(frozen=True, eq=False)
class Trained:
    """What training gave."""

    policy: PPOPolicy
    episodes: int
    """In the target."""
    solved_after: int | None
    """Episodes in the target at the first evaluation that solved it."""
    rows: tuple[dict[str, Any], ...]
    """One per checkpoint: stage, episodes, mean return of training episodes, evaluation."""


def train_baseline(
    config: BaselineConfig,
    target: Target,
    *,
    seed: int,
    threshold: float | None = None,
    checkpoint: Path | None = None,
    checkpoint_seconds: float = 60.0,
    report: Callable[[dict[str, Any]], None] | None = None,
) -> Trained:
    """Train one seed, from the beginning or from its checkpoint.

    Parameters
    ----------
    config
        Algorithm and budget.
    target
        Domain randomisation needs an environment made by `tasid.make`.
    threshold
        An evaluation of at least this mean return solves the target.
    checkpoint
        A folder to continue from and to save the state in; it is removed at the end.
    checkpoint_seconds
        Time between two saved states.
    report
        Called with every row.
    """
    stages = _stages(config, target, seed)
    position, state = 0, None
    rows: list[dict[str, Any]] = []
    if checkpoint is not None:
        position, rows, state = _read_checkpoint(checkpoint, stages, config, seed)
    saved, solved_after = time.monotonic(), _solved_after(rows, threshold)
    for number, stage in enumerate(stages[position:], start=position):
        if state is None or number > position:
            state = _initial(config, stage, state, seed)
        while (done := int(state.iteration) * stage.ppo.config.batch_episodes) < stage.episodes:
            state, row = _advance(stage, state, seed, min(stage.every, stage.episodes - done))
            if stage.name == "target":
                row |= _evaluate(config, stage, state, seed)
            rows.append(row)
            if report is not None:
                report(row)
            solved_after = solved_after or _solved_after(rows[-1:], threshold)
            if solved_after is not None and config.stop_when_solved:
                break
            if checkpoint is not None and time.monotonic() - saved > checkpoint_seconds:
                _write_checkpoint(checkpoint, number, rows, state, config, seed)
                saved = time.monotonic()
    if checkpoint is not None:
        shutil.rmtree(checkpoint, ignore_errors=True)
    assert state is not None
    policy = _policy(config, stages[-1], state)
    return Trained(policy, int(rows[-1]["episodes"]), solved_after, tuple(rows))


def _stages(config: BaselineConfig, target: Target, seed: int) -> list[Stage]:
    ppo = config.ppo()
    fine = Stage(
        "target",
        Phase.LEARNING,
        PPO.of(ppo, target),
        lambda iteration: target,
        config.target_episodes,
        config.evaluate_every,
    )
    if not config.randomized:
        return [fine]
    import tasid

    if not isinstance(target, tasid.BlockMDP):
        raise ValueError(
            f"algorithm: {config.algorithm!r} trains on relatives of the target, which exist for "
            "the environments of tasid.make only; use ppo or ppo-rnd"
        )
    env, domains = target, fold_in(seed_key(seed), PRE_TRAINING)
    return [
        Stage(
            "source",
            PRE_TRAINING,
            PPO.of(replace(ppo, epopt_epsilon=config.epopt_epsilon), target),
            lambda iteration: relative(env, int(fold_in(domains, iteration)[0])),
            config.source_episodes,
            min(10_000, config.source_episodes),
        ),
        fine,
    ]


def _initial(
    config: BaselineConfig, stage: Stage, previous: TrainState | None, seed: int
) -> TrainState:
    """Fresh networks; after pre-training its policy and critic, and what `config` keeps."""
    key = jax_key(fold_in(fold_in(seed_key(seed), Phase.NETWORKS), stage.phase))
    state = stage.ppo.init(key)
    if previous is None:
        return state
    networks = previous.policy, previous.critic
    if not config.keep_optimisers:
        adam = stage.ppo.config.adam
        networks = adam.init(networks[0].parameters), adam.init(networks[1].parameters)
    rnd = previous.rnd if config.keep_rnd else state.rnd
    return TrainState(state.iteration, *networks, rnd)


def _advance(
    stage: Stage, state: TrainState, seed: int, episodes: int
) -> tuple[TrainState, dict[str, Any]]:
    """Iterations on so many episodes, and their row."""
    started, batch = time.perf_counter(), stage.ppo.config.batch_episodes
    shuffles = fold_in(fold_in(seed_key(seed), Phase.NETWORKS + 1), stage.phase)
    returns = []
    for iteration in range(int(state.iteration), int(state.iteration) + episodes // batch):
        keys = episode_keys(seed, stage.phase, iteration * batch, batch)
        shuffle_key = jax_key(fold_in(shuffles, iteration))
        state, earned = stage.ppo.iterate(state, stage.target(iteration), keys, shuffle_key)
        returns.append(earned)
    row = {
        "stage": stage.name,
        "episodes": int(state.iteration) * batch,
        "training": round(float(np.mean(returns)), 4),
        "mean": None,
        "half": None,
        "seconds": round(time.perf_counter() - started, 3),
    }
    return state, row


def _evaluate(
    config: BaselineConfig, stage: Stage, state: TrainState, seed: int
) -> dict[str, float]:
    """Mean return of the greedy policy on fresh episodes, and half its 95 % interval."""
    number, target = config.evaluation_episodes, stage.target(0)
    batch = int(state.iteration) * stage.ppo.config.batch_episodes // config.evaluate_every
    keys = episode_keys(seed, CHECKPOINTS, batch * number, number)
    width = number if target.pads_batches else None
    policy = _policy(config, stage, state)
    returns = rollout(target, policy, keys, keep_from=target.horizon + 1, width=width).returns
    half = 1.96 * returns.std(ddof=1) / np.sqrt(number)
    return {"mean": round(float(returns.mean()), 4), "half": round(float(half), 4)}


def _solved_after(rows: list[dict[str, Any]], threshold: float | None) -> int | None:
    reached = (
        int(row["episodes"])
        for row in rows
        if threshold is not None and row["mean"] is not None and row["mean"] >= threshold
    )
    return next(reached, None)


def _policy(config: BaselineConfig, stage: Stage, state: TrainState) -> PPOPolicy:
    target = stage.target(0)
    return PPOPolicy(
        np.asarray(state.policy.parameters),
        hidden=stage.ppo.config.hidden,
        observation_shape=target.observation_shape,
        observation_dtype=target.observation_dtype,
        num_actions=target.num_actions,
        horizon=target.horizon,
        method=config.algorithm,
        environment=target.environment,
    )


def _write_checkpoint(
    folder: Path,
    position: int,
    rows: list[dict[str, Any]],
    state: TrainState,
    config: BaselineConfig,
    seed: int,
) -> None:
    leaves = jax.tree.leaves(state)
    write_artifact(
        folder,
        kind=KIND,
        metadata={"position": position, "rows": rows, "config": vars(config), "seed": seed},
        arrays={f"{number:03d}": np.asarray(leaf) for number, leaf in enumerate(leaves)},
    )


def _read_checkpoint(
    folder: Path, stages: list[Stage], config: BaselineConfig, seed: int
) -> tuple[int, list[dict[str, Any]], TrainState | None]:
    """Stage, rows and state to continue from; the beginning if there is no such checkpoint."""
    try:
        artifact = read_artifact(folder, kind=KIND)
    except ArtifactError:
        return 0, [], None
    metadata = artifact.metadata
    if metadata["config"] != vars(config) or metadata["seed"] != seed:
        return 0, [], None
    position = int(metadata["position"])
    shapes = jax.eval_shape(lambda: stages[position].ppo.init(jax.random.key(0)))
    leaves = [jnp.asarray(artifact.arrays[name]) for name in sorted(artifact.arrays)]
    return position, list(metadata["rows"]), jax.tree.unflatten(jax.tree.structure(shapes), leaves)
