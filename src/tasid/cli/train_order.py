"""What `tasid train` was asked for, from its arguments to an order for one seed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

import typer

from tasid.cli import ranges
from tasid.cli.arguments import eta_for, map_for, refuse_given, world_options

if TYPE_CHECKING:
    from tasid.checks.certify import Certify
    from tasid.runs.baseline_run import BaselineOrder
    from tasid.runs.train import Order


def order_of(context: typer.Context, seed: int) -> Order | BaselineOrder:
    """The order of this command for a seed."""
    from tasid.runs.train import Order

    given = SimpleNamespace(**context.params)
    ours = not given.env.startswith("gym:")
    options = _options(given, seed, ours)
    usual = 10_000 if ours else 1_000
    number = usual if given.evaluation_episodes is None else given.evaluation_episodes
    episodes, imports = _episodes(given.episodes), tuple(given.imports or ())
    if given.algorithm != "tasid":
        from tasid.cli.baseline import OF_TASID, baseline_of
        from tasid.runs.baseline_run import BaselineOrder

        flags = OF_TASID if ours else (*OF_TASID, "starts", "eta")
        refuse_given(context, flags, "with a baseline; only --algorithm tasid has it")
        if not ours and given.horizon is not None:
            options.setdefault("horizon", given.horizon)
        baseline = baseline_of(given.algorithm, episodes, given.epopt_epsilon)
        return BaselineOrder(given.env, options, baseline, seed, number, imports)
    if given.epopt_epsilon is not None:
        raise ValueError(
            f"--epopt-epsilon: {given.epopt_epsilon} with --algorithm tasid; it is for ppo+dr and "
            "ppo+rnd+dr, and filters their pre-training"
        )
    sim, source = map_for(
        given.env,
        options,
        given.simulator,
        given.map_settings,
        given.horizon,
        given.start_state,
    )
    return Order(
        environment=given.env,
        options=options,
        eta=eta_for(given.eta, sim),
        episodes=episodes,
        seed=seed,
        method=given.method,
        evaluation_episodes=number,
        simulator=sim,
        source=source,
        starts=given.starts,
        classes=given.classes,
        certify=_certify(given),
        from_policy=None if given.from_policy is None else str(given.from_policy),
        imports=imports,
    )


def _options(given: SimpleNamespace, seed: int, ours: bool) -> dict[str, Any]:
    """Options of the environment, the instance's seed included."""
    env, starts, sensor = given.env, given.starts, given.sensor
    options = world_options(
        env,
        given.settings,
        given.reset,
        seed=seed,
        env_seed=given.env_seed,
        horizon=given.horizon,
        eta=given.eta,
        sensor=sensor,
    )
    if ours and starts is not None and options.setdefault("starts", starts) != starts:
        raise ValueError(f"--starts: {starts}, but --set says starts={options['starts']}")
    return options


def _certify(asked: SimpleNamespace) -> Certify | None:
    from tasid.checks.certify import Certify

    numbers = {
        name: getattr(asked, f"certify_{name}") for name in ("epsilon", "episodes", "attempt")
    }
    given = {name: number for name, number in numbers.items() if number is not None}
    if asked.certify:
        return Certify(**given)
    for name, number in given.items():
        raise ValueError(f"--certify-{name}: {number} without --certify")
    return None


def _episodes(text: str) -> int | Literal["auto"]:
    if text == "auto":
        return "auto"
    try:
        number = int(text)
    except ValueError:
        raise ValueError(f"--episodes: {text!r:.80} is neither a whole number nor 'auto'") from None
    if number > ranges.MOST_EPISODES:
        raise ValueError(f"--episodes: {text:.80} is more than {ranges.MOST_EPISODES}")
    return number
