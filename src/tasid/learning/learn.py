"""`tasid.learn`: a target and a map in, a policy and its diagnostics out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tasid.keys import seed_key
from tasid.learning.base import Callback, Learner, LearningResult
from tasid.learning.belief import BeliefConfig, BeliefLearner
from tasid.planning.perturbation import check_eta
from tasid.planning.robust_dp import robust_dp
from tasid.planning.values import simulator_problems
from tasid.policies import load
from tasid.policies.belief_policy import BeliefPolicy
from tasid.policy import Policy
from tasid.simulator import AbstractSimulator, is_integer
from tasid.targets.base import Target


def learn(
    target: Target,
    simulator: AbstractSimulator | None = None,
    *,
    eta: float,
    episodes: int | str = "auto",
    seed: int = 0,
    method: str | Learner = "belief",
    model: Any = None,
    starts: int | None = None,
    run_dir: str | Path | None = None,
    from_policy: Policy | str | Path | None = None,
    config: Any = None,
    callbacks: Sequence[Callback] = (),
) -> LearningResult:
    """Learn a robust policy in a target with the help of a map.

    Parameters
    ----------
    target
        Where to act: an environment of ours (`tasid.make`) or a wrapped one (`tasid.wrap`).
    simulator
        The map; environments of ours bring theirs.
    eta
        How often actions may slip, in [0, ½).
    episodes
        How many to learn from. "auto" lets `belief` stop when the evidence says that more would not
        help; `paper` takes what Theorem 2 asks for, given `config.log_class_size`, else 1 000
        a step. The first event tells the number before any is spent.
    seed
        Determines the episodes and everything random in learning.
    method
        "belief", "paper" (Algorithm 2), or any `Learner`, which brings its own settings.
    model
        A classifier of your own. For `belief`: of single observations, with `init(key,
        num_classes)` and `apply(parameters, x)` in JAX, or `fit(X, y)` and `predict_proba(X)`. For
        `paper`: likewise of pairs, by `init(key, observation_shape, num_actions)` and
        `apply(parameters, x, x_next)`, or by `fit` and `predict_proba` on both, flat, side by side.
    starts
        How many start states the map has, as a check.
    run_dir
        A folder for the policy and, for wrapped environments, the episode log: the same call
        continues after an interruption and asks the environment nothing twice.
    from_policy
        A policy, or its folder, that `belief` continues from: with more episodes, another η, or a
        corrected map, whose states are matched by their labels.
    config
        Hyper-parameters: a `BeliefConfig` or a `TasidConfig`.
    callbacks
        Called with every event.
    """
    if not isinstance(target, Target):
        raise TypeError(
            f"target: {type(target).__name__} is not a target; wrap a Gymnasium environment, its "
            "id, or a function that makes it with tasid.wrap(…)"
        )
    simulator = target.simulator if simulator is None else simulator
    if not isinstance(simulator, AbstractSimulator):
        raise TypeError(
            f"simulator: {type(simulator).__name__} is not a map; give a tasid.AbstractSimulator"
        )
    check_eta(eta, decodable=True)
    seed_key(seed)
    if episodes != "auto" and not (is_integer(episodes) and int(episodes) >= 1):
        raise ValueError(f"episodes: {episodes!r} is neither a positive integer nor 'auto'")
    target = target.with_horizon(simulator.horizon)
    for name in ("horizon", "num_actions"):
        ours, theirs = getattr(simulator, name), getattr(target, name)
        if ours != theirs:
            raise ValueError(
                f"simulator: its {name} is {ours}, the target's is {theirs}; give a map of this "
                "very target"
            )
    if starts is not None and starts != simulator.starts.size:
        raise ValueError(
            f"starts: {starts}, but the map has {simulator.starts.size} start states; see "
            "AbstractSimulator.with_start"
        )
    settings = {"episodes": None if episodes == "auto" else int(episodes), "model": model}
    learner = _learner(method, settings, from_policy, config)
    folder = None if run_dir is None else Path(run_dir)
    plan = robust_dp(simulator, eta=eta, keep_values=True)
    if folder is not None:
        simulator.metadata()  # labels that cannot be saved are refused before anything is learned
        target = target.with_log(folder / "episodes")
    result = learner.run(target, plan, seed=seed, callbacks=callbacks, run_dir=folder)
    if folder is not None:
        result.policy.save(folder / "policy")
    warnings = (*simulator_problems(simulator), *result.diagnostics.warnings)
    return replace(result, diagnostics=replace(result.diagnostics, warnings=warnings))


def _learner(
    method: str | Learner, settings: dict[str, Any], from_policy: Any, config: Any
) -> Learner:
    """The learner of a method, with these settings where they are not None."""
    given = {name: value for name, value in settings.items() if value is not None}
    if isinstance(method, Learner):
        for name, value in {**given, "from_policy": from_policy, "config": config}.items():
            if value is not None:
                raise ValueError(f"{name}: {value!r:.60}; give it to your learner instead")
        return method
    if method == "belief":
        policy = load(from_policy) if isinstance(from_policy, str | Path) else from_policy
        if not isinstance(policy, BeliefPolicy | None):
            raise ValueError(
                f"from_policy: {type(policy).__name__} has no emissions; give a policy that method "
                "'belief' learned"
            )
        return BeliefLearner(replace(_config(config, BeliefConfig), **given), policy)
    if method == "paper":
        from tasid.learning.paper import TasidConfig, TasidLearner

        if from_policy is not None:
            raise ValueError("from_policy: only method 'belief' continues from a policy")
        return TasidLearner(replace(_config(config, TasidConfig), **given))
    raise ValueError(f"method: {method!r} is neither 'belief' nor 'paper' nor a tasid.Learner")


def _config(config: Any, kind: type) -> Any:
    if not isinstance(config, kind | None):
        raise TypeError(f"config: {type(config).__name__} is not a {kind.__name__}")
    return kind() if config is None else config
