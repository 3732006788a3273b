"""Does this target fit this map? Asked before an episode is spent on learning.

Every test allows for what an η-perturbation may do, and calls a fitting target unfit with
probability 0.001 at most. Nothing here looks behind the wall, but for the population limit of
environments of ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tasid.checks.dynamics import along_the_route, at_random, repeats
from tasid.checks.population import PopulationLimit, limit_of, weigh
from tasid.checks.sight import SlipRate, leaks, sight, slips
from tasid.checks.subject import Finding, Subject, fine, note, problem
from tasid.learning import METHODS
from tasid.maps import AbstractSimulator
from tasid.maps.outcomes import outcomes
from tasid.maps.planning.perturbation import checked_eta
from tasid.maps.size import check_seed
from tasid.targets import BlockMDP, Target
from tasid.targets.target import check_wrapped, for_horizon

_EPISODES = 160
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Check:
    """What was found."""

    findings: tuple[Finding, ...]
    slip_rate: SlipRate | None = None
    """How often outcomes were not the commanded ones: an estimate of η from a small sample."""
    limit: PopulationLimit | None = None
    """What perfect models would earn, where what states look like is known."""

    @property
    def problems(self) -> list[str]:
        """What does not fit, in words."""
        return [
            f"{found.name}: {found.text}" for found in self.findings if found.status == "problem"
        ]

    @property
    def ok(self) -> bool:
        """Was nothing found that does not fit?"""
        return not self.problems

    def as_json(self) -> dict[str, Any]:
        """All of it in plain values."""
        limit = self.limit
        return {
            "ok": self.ok,
            "problems": self.problems,
            "findings": [asdict(found) for found in self.findings],
            "eta_estimate": None if self.slip_rate is None else asdict(self.slip_rate),
            "population_limit": None
            if limit is None
            else {"value": limit.value, "robust_value": limit.robust_value, "loss": limit.loss},
        }


def check_target(
    env: Target,
    simulator: AbstractSimulator | None = None,
    *,
    eta: float = 0.1,
    episodes: int = _EPISODES,
    seed: int = 0,
    method: str = "belief",
    render: Callable[[Any], ArrayLike] | None = None,
) -> Check:
    """Hold a target against a map: actions, horizon, observations, rewards, ends, leaks, η.

    The population limit is what decoding two observations can earn at most: for method "paper" a
    map that fails it does not fit, for method "belief", which weighs whole episodes, it is a note.

    Args:
        env: The target.
        simulator: The map; worlds of ours bring theirs.
        eta: How often actions may slip, as the map is planned with.
        episodes: Played for each of some seven tests, most of them short.
        seed: Draws them.
        method: What the map is to be learned with, "belief" or "paper".
        render: The noiseless observation of a state by its label, for the population limit; worlds
            of ours bring it along.
    """
    eta = checked_eta(eta)
    check_seed(seed)
    check_wrapped(env)
    if method not in METHODS:
        raise ValueError(f"method: {method!r} is none of {', '.join(METHODS)}")
    if episodes < 2:
        raise ValueError(f"episodes: {episodes} is below 2")
    sim = simulator if simulator is not None else env.simulator
    if sim is None:
        raise ValueError("simulator: this target brings no map of its own; give one")
    rate: SlipRate | None = None
    target, findings = _fitted(env, sim)
    if eta >= 0.5:
        findings.append(
            problem("η to plan for", f"{eta:g}; from 0.5 on nobody can tell what happened")
        )
    findings.extend(_eta_of_the_table(env, sim, eta))
    if target is not None:
        subject = Subject(target, sim, eta, episodes, seed)
        try:
            findings.extend(repeats(subject))
            findings.extend(sight(subject))
            if len(sim.starts) == 1:
                findings.extend(along_the_route(subject))
            findings.extend(at_random(subject))
            findings.extend(leaks(subject))
            if len(sim.starts) == 1:
                rate, found = slips(subject)
                findings.append(found)
        except ValueError as error:
            findings.append(problem("episodes", str(error)))
    findings.append(_outcomes(sim))
    limit, why = limit_of(env, sim, eta=eta, render=render)
    findings.append(
        weigh(limit, method=method) if limit is not None else note("population limit", why)
    )
    return Check(tuple(findings), rate, limit)


def _fitted(env: Target, sim: AbstractSimulator) -> tuple[Target | None, list[Finding]]:
    """The target with the map's horizon, or None where there is no use in going on."""
    if env.num_actions != sim.num_actions:
        text = f"the map has {sim.num_actions}, the target {env.num_actions}"
        return None, [problem("actions", text)]
    told = [fine("actions", f"{sim.num_actions} in both")]
    try:
        target = for_horizon(env, sim.horizon)
    except ValueError as error:
        return None, [*told, problem("horizon", str(error))]
    if target.horizon != sim.horizon:
        text = f"the map has {sim.horizon} steps, the target {target.horizon}"
        return None, [*told, problem("horizon", text)]
    if len(sim.starts) > 1:
        text = f"the map has {len(sim.starts)}; tests that need to know the start are left out"
        told.append(note("starts", text))
    return target, [*told, fine("horizon", f"{sim.horizon} steps in both")]


def _eta_of_the_table(env: Target, sim: AbstractSimulator, eta: float) -> Iterator[Finding]:
    """What a toy-text environment's own table says; the sample of a few episodes says less."""
    latent = None if isinstance(env, BlockMDP) else env.latent_on(sim)
    if latent is None:
        return
    slips = latent.world.eta
    said = f"by its own table the environment slips with probability {slips:.6g} on this map"
    if slips <= eta + _ROUNDING:
        yield fine("η of the table", f"{said}; planned for: {eta:g}")
        return
    hopeless = "; from 0.5 on nobody can tell what happened" if slips >= 0.5 else ""
    yield problem("η of the table", f"{said}, more than the η = {eta:g} planned for{hopeless}")


def _outcomes(sim: AbstractSimulator) -> Finding:
    number = outcomes(sim).number
    return note(
        "outcomes on the map",
        f"{int(number.max())} at most and {float(np.mean(number)):.3g} on average for "
        f"{sim.num_actions} actions, in {sim.num_states} states",
    )
