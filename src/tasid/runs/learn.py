"""Learning as a user asks for it: an environment and a map in, a policy and its records out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import overload

from tasid.algorithms import Policy
from tasid.algorithms.paper_method import PaperLearner
from tasid.algorithms.tasid import Callback, Learned, StepEnded, tasid
from tasid.envs import BlockMDP, Target
from tasid.mdp import AbstractSimulator, robust_dp

METHODS = ("paper",)


@dataclass(frozen=True)
class Diagnostics:
    """How learning went."""

    steps: tuple[StepEnded, ...]


@dataclass(frozen=True)
class LearningResult:
    """A learned policy and what it cost."""

    policy: Policy
    episodes: int
    """All episodes spent on learning."""
    diagnostics: Diagnostics


World = BlockMDP | Target


@overload
def learn(
    target: World,
    simulator: AbstractSimulator | None = None,
    *,
    eta: float,
    episodes: int,
    seed: int = 0,
    method: str = "paper",
    run_dir: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
) -> LearningResult: ...
@overload
def learn(
    target: World | Sequence[World],
    simulator: AbstractSimulator | Sequence[AbstractSimulator] | None = None,
    *,
    eta: float,
    episodes: int,
    seeds: Sequence[int],
    method: str = "paper",
    run_dir: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
) -> list[LearningResult]: ...
def learn(
    target: World | Sequence[World],
    simulator: AbstractSimulator | Sequence[AbstractSimulator] | None = None,
    *,
    eta: float,
    episodes: int,
    seed: int = 0,
    seeds: Sequence[int] | None = None,
    method: str = "paper",
    run_dir: str | Path | None = None,
    callbacks: Sequence[Callback] = (),
) -> LearningResult | list[LearningResult]:
    """Learn a robust policy in a target with the help of its map.

    `simulator` may be left out for environments of ours, which bring theirs. With `seeds`, the
    seeds train together under `vmap` (and `target` may be one environment per seed): one result
    per seed comes back. They draw the episodes a lone run would draw, but float32 rounds otherwise
    under `vmap`, so that parameters differ and early stopping may choose another epoch. With
    `run_dir`, the policy is saved in its `policy` folder.
    """
    if method not in METHODS:
        raise ValueError(f"method: {method!r} is none of {', '.join(METHODS)}")
    if not 0 <= eta < 0.5:
        raise ValueError(f"eta: {eta} is outside [0, 0.5), where actions can be decoded")
    group = [seed] if seeds is None else list(seeds)
    if not group or len(set(group)) != len(group):
        raise ValueError(f"seeds: {group} should name at least one seed, and each once")
    worlds = _one_each("target", target, len(group))
    maps = [
        _map_of(world, given)
        for world, given in zip(worlds, _one_each("simulator", simulator, len(group)), strict=True)
    ]
    targets = [world.target if isinstance(world, BlockMDP) else world for world in worlds]
    for one, sim in zip(targets, maps, strict=True):
        _check_match(one, sim)
    # Line 1 of Algorithm 2: the robust plan.
    plans = [robust_dp(sim, eta=eta) for sim in maps]
    learner = PaperLearner(targets, plans, episodes=episodes, seeds=group)
    learned = tasid(targets, plans, learner, seeds=group, callbacks=callbacks)
    results = [
        _result(run, world, one, method)
        for run, world, one in zip(learned, worlds, targets, strict=True)
    ]
    if run_dir is not None:
        for result, number in zip(results, group, strict=True):
            folder = Path(run_dir) if seeds is None else Path(run_dir) / f"seed-{number}"
            result.policy.save(folder / "policy")
    return results[0] if seeds is None else results


def _one_each(name: str, given: object, number: int) -> list:  # type: ignore[type-arg]
    if not isinstance(given, (list, tuple)):
        return [given] * number
    if len(given) != number:
        raise ValueError(f"{name}: {len(given)} given for {number} seeds; give one, or one each")
    return list(given)


def _map_of(world: World, given: AbstractSimulator | None) -> AbstractSimulator:
    if given is not None:
        return given
    if isinstance(world, BlockMDP):
        return world.simulator
    raise ValueError("simulator: this target brings no map of its own; give one")


def _check_match(target: Target, sim: AbstractSimulator) -> None:
    if target.num_actions != sim.num_actions:
        raise ValueError(
            f"simulator: {sim.num_actions} actions on the map, {target.num_actions} in the target"
        )
    if target.horizon != sim.horizon:
        raise ValueError(
            f"simulator: horizon {sim.horizon} on the map, {target.horizon} in the target"
        )
    if len(sim.starts) > 1:
        raise ValueError(
            f"simulator: {len(sim.starts)} start states; this version learns with exactly one"
        )


def _result(run: Learned, world: World, target: Target, method: str) -> LearningResult:
    environment = (
        {"name": world.name, "options": dict(world.options)}
        if isinstance(world, BlockMDP)
        else None
    )
    policy = Policy(run.plan, run.decoder, target.observation_shape, method, environment)
    return LearningResult(policy, run.episodes, Diagnostics(run.steps))
