"""The paper's baselines by name: PPO, with RND's bonus, with domain randomisation, with both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from tasid.baselines.domain_randomization import FINE_TUNING, PRE_TRAINING, EPOpt, restart
from tasid.baselines.families import Family, Randomized, family_of
from tasid.baselines.ppo import PPOConfig, PPOState, start
from tasid.baselines.rnd import RND
from tasid.baselines.training import Callback, Checkpoint, Trained, ppo, stage_key
from tasid.targets import BlockMDP, Target

BASELINES = ("ppo", "ppo+rnd", "ppo+dr", "ppo+rnd+dr")
_MINIBATCH = 32
"""The paper's batch size. It does not say of what; nor does it state GAE's λ. Here it is
transitions, and λ = 0.95; for RND without pre-training, episodes and 0.5: what did better on locks
that are in no table (docs/experiments.md). Where episodes end early it is always transitions."""
_DECAY_OF_EPISODES, _DECAY_OF_TRANSITIONS = 0.5, 0.95
_EVERY = 10_000
"""Episodes between two checkpoints of pre-training, which is not evaluated."""


@dataclass(frozen=True)
class Baseline:
    """One of them and its budget; the defaults are the paper's."""

    algorithm: str
    target_episodes: int = 500_000
    source_episodes: int = 500_000
    """Of pre-training, for domain randomisation."""
    rnd_coefficient: float = 500.0
    epopt_epsilon: float = 1.0
    """The share of the worst episodes that pre-training learns from; 1 is all."""
    every: int = 1000
    """Episodes between two evaluations."""
    evaluation_episodes: int = 2048

    def __post_init__(self) -> None:
        if self.algorithm not in BASELINES:
            raise ValueError(f"algorithm: {self.algorithm!r} is none of {', '.join(BASELINES)}")
        if not 0.0 < self.epopt_epsilon <= 1.0:
            raise ValueError(f"epopt_epsilon: {self.epopt_epsilon} is outside (0, 1]")
        if self.epopt_epsilon != 1.0 and not self.randomized:
            raise ValueError(
                f"epopt_epsilon: {self.epopt_epsilon} with {self.algorithm!r}; EPOpt filters "
                "pre-training, so use it with 'ppo+dr' or 'ppo+rnd+dr'"
            )

    @property
    def randomized(self) -> bool:
        """Does it pre-train on relatives of the target?"""
        return self.algorithm.endswith("+dr")

    @property
    def episodes_before(self) -> int:
        """Episodes in relatives of the target before the first one in the target."""
        return self.source_episodes * self.randomized

    @property
    def episodes(self) -> int:
        """All of them."""
        return self.episodes_before + self.target_episodes

    def episodes_at(self, here: Checkpoint) -> int:
        """How many of them were played when there was this checkpoint."""
        return here.episodes + self.episodes_before * (here.stage == FINE_TUNING)

    def config(self, horizon: int, *, ends: bool = False) -> PPOConfig:
        """PPO's hyper-parameters at a horizon, before which episodes may end."""
        bonus = RND(self.rnd_coefficient) if "+rnd" in self.algorithm else None
        if self.algorithm == "ppo+rnd" and not ends:
            return PPOConfig(bonus=bonus, minibatch=_MINIBATCH * horizon, decay=_DECAY_OF_EPISODES)
        return PPOConfig(bonus=bonus, minibatch=_MINIBATCH, decay=_DECAY_OF_TRANSITIONS)

    def config_for(self, target: Target) -> PPOConfig:
        """The same for a target."""
        if target.horizon < 1:
            raise ValueError("horizon: this target does not say how long an episode is; give one")
        return self.config(target.horizon, ends=target.ends_early)

    def describe(self, config: PPOConfig) -> dict[str, Any]:
        """Everything that decides the result apart from seed and target, ready for JSON."""
        fields = {**asdict(config), "hidden": list(config.hidden)}
        if fields["bonus"] is not None:
            fields["bonus"]["hidden"] = list(fields["bonus"]["hidden"])
        return {**asdict(self), "ppo": fields}


@dataclass(frozen=True, eq=False)
class Paused:
    """One seed's training between two checkpoints, to go on from."""

    stage: int
    state: PPOState


def train_baseline(
    baseline: Baseline,
    target: Target,
    *,
    seed: int,
    family: Family | None = None,
    paused: Paused | None = None,
    stop: Callable[[Checkpoint], bool] | None = None,
    callbacks: Sequence[Callback] = (),
) -> Trained:
    """Train one seed, from the start or from where it paused.

    Domain randomisation pre-trains on a family of relatives; environments of ours have one, of a
    wrapped one it has to be given (`DrawnFamily`). Callbacks see the checkpoints of both stages;
    `stop` is asked in the target only.
    """
    state, config = None, baseline.config_for(target)
    if paused is not None and paused.stage == FINE_TUNING:
        state = paused.state
    elif baseline.randomized:
        epsilon, number = baseline.epopt_epsilon, baseline.source_episodes
        before = ppo(
            Randomized(family or _relatives(baseline, target)),
            seed=seed,
            episodes=number,
            config=config if epsilon == 1.0 else replace(config, keep=EPOpt(epsilon)),
            state=None if paused is None else paused.state,
            stage=PRE_TRAINING,
            every=min(_EVERY, number),
            callbacks=callbacks,
        )
        state = restart(config, before.state, target, seed)
    trained = ppo(
        target,
        seed=seed,
        episodes=baseline.target_episodes,
        config=config,
        state=state,
        stage=FINE_TUNING,
        every=baseline.every,
        evaluation_episodes=baseline.evaluation_episodes,
        stop=stop,
        callbacks=callbacks,
    )
    policy = replace(
        trained.policy,
        method=baseline.algorithm,
        environment=target.environment,
        observation_dtype=target.observation_dtype,
    )
    return replace(trained, policy=policy)


def _relatives(baseline: Baseline, target: Target) -> Family:
    if isinstance(target, BlockMDP):
        return family_of(target)
    raise ValueError(
        f"algorithm: {baseline.algorithm!r} needs relatives of the target to pre-train on, which "
        "only you know of a wrapped environment; give them as "
        "family=tasid.baselines.DrawnFamily(…) in Python, or use 'ppo' or 'ppo+rnd'"
    )


def pause_arrays(checkpoint: Checkpoint) -> dict[str, NDArray[Any]]:
    """The state of a checkpoint as named arrays; the inverse is `paused_from`."""
    leaves = jax.tree.leaves(checkpoint.state)
    return {f"{number:02d}": np.asarray(leaf) for number, leaf in enumerate(leaves)}


def paused_from(
    baseline: Baseline,
    target: Target,
    *,
    seed: int,
    stage: int,
    arrays: Mapping[str, NDArray[Any]],
) -> Paused:
    """The training whose checkpoint gave these arrays."""
    config = baseline.config_for(target)
    shapes = jax.eval_shape(lambda: start(config, target, stage_key(seed, stage)))
    expected, structure = jax.tree.flatten(shapes)
    leaves = [arrays[name] for name in sorted(arrays)]
    if [leaf.shape for leaf in leaves] != [one.shape for one in expected]:
        raise ValueError(f"arrays: not the state of {baseline.algorithm!r} at stage {stage}")
    return Paused(stage, jax.tree.unflatten(structure, [jnp.asarray(leaf) for leaf in leaves]))
