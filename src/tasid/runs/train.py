"""One whole run: build the environment, learn, score, diagnose, and put it all on disk."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from tasid.checks.certify import Certify, certify_return
from tasid.checks.diagnosis import diagnose, start_purity
from tasid.checks.population import limit_of
from tasid.checks.scoring import score
from tasid.learning.monitor import calibrate
from tasid.maps import AbstractSimulator
from tasid.policies import BeliefPolicy
from tasid.runs.events import Callback, Event
from tasid.runs.journaled import on_record
from tasid.runs.learn import Diagnostics, LearningResult, learn, saved_policy
from tasid.runs.record import Run, versions
from tasid.runs.starts import starts_record
from tasid.runs.unfinished import RECORD, Commission, Notice, silent
from tasid.targets import BlockMDP, Target
from tasid.targets.registry import open_world
from tasid.targets.worlds.building.world import remarks

_SLIPS = 8
"""Estimates of what commands come to that go on record."""


@dataclass(frozen=True)
class Order:
    """What `tasid train` was asked for."""

    environment: str
    options: Mapping[str, Any]
    """Options of the environment, its instance seed included."""
    eta: float
    episodes: int | Literal["auto"]
    seed: int
    method: str = "belief"
    evaluation_episodes: int = 10_000
    simulator: AbstractSimulator | None = None
    """The map; environments of ours bring their own."""
    source: Mapping[str, Any] | None = None
    """Where that map came from: a name and options, for the record."""
    starts: int | None = None
    """How many start states there should be; None does not ask."""
    classes: str | None = None
    """What is expected to look alike: place, rank or action; None lets evidence decide."""
    certify: Certify | None = None
    """The certificate asked for; None asks for none."""
    from_policy: str | None = None
    """The folder of the policy to go on from; None begins anew."""
    imports: Sequence[str] = ()
    """Files and modules of the user's that were run first, for the record."""


def train(
    order: Order,
    folder: str | Path,
    *,
    home: str | Path | None = None,
    overwrite: bool = False,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    notice: Notice = silent,
) -> dict[str, Any]:
    """Carry out the order; the folder holds everything, the returned summary the figures.

    A run of the same order that stopped early goes on (`tasid.runs.unfinished`); with `resume`
    nothing else will do, and a complete one is not made again. `home` is the folder that the
    summary names, for a run that will be moved there.
    """
    world = open_world(order.environment, **order.options)
    if isinstance(world, BlockMDP) and notice is not silent:  # doors take seconds to find
        for remark in remarks(world):
            notice(remark)
    begin = None if order.from_policy is None else saved_policy(order.from_policy, order.method)
    asked = _asked(order, world, begin)
    commission = Commission(folder, asked, overwrite, resume, notice)
    if (done := commission.finished()) is not None:
        return done
    with commission.writing() as place, on_record(world, place / RECORD) as env:
        run = Run(place)
        events: list[Event] = []
        started = time.perf_counter()
        result = learn(
            env,
            order.simulator,
            eta=order.eta,
            episodes=order.episodes,
            seed=order.seed,
            method=order.method,
            classes=order.classes,
            starts=order.starts,
            record=place / RECORD,
            from_policy=begin,
            callbacks=[events.append, *callbacks],
        )
        seconds = time.perf_counter() - started
        result.policy.save(run.policy_folder)
        run.write_events(events)
        summary, arrays = _scores(order, env, result)
        summary.update(
            certificate=_certificate(order, env, result),
            seconds=seconds,
            policy=str(Path(home or folder) / run.policy_folder.name),
        )
        run.write_evaluation(summary, arrays)
    return summary


def _scores(
    order: Order, env: Target, result: LearningResult
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The summary's figures, and the arrays behind them."""
    policy, seed, notes = result.policy, order.seed, result.diagnostics
    scored, figures = score(policy, env, episodes=order.evaluation_episodes, seed=seed)
    summary = {
        "episodes": result.episodes,
        **figures,
        "decoder_accuracy": None,
        "calibration_error": None,
        **reliability(notes),
    }
    arrays: dict[str, Any] = {"returns": scored.returns}
    if notes.visits is not None:
        arrays["visits"] = notes.visits
    known: dict[str, float | None] = {}
    # The latent states of others are nobody's to see, and more episodes may cost something.
    if isinstance(env, BlockMDP):
        diagnosis = diagnose(policy, env, seed=seed)
        accuracy, calibration = diagnosis.decoder_accuracy, calibrate(policy, env, seed=seed)
        if accuracy.size:
            summary["decoder_accuracy"] = float(accuracy.mean())
        if calibration.correct.size:
            summary["calibration_error"] = calibration.expected_error
        summary["population_value"] = _population_value(order, env, result)
        arrays |= {
            "decoder_accuracy": accuracy,
            "tracking_accuracy": diagnosis.tracking_accuracy,
            "calibration.confidence": calibration.confidence,
            "calibration.correct": calibration.correct,
        }
        known["accuracy"] = float(diagnosis.tracking_accuracy[0])
        known["purity"] = start_purity(policy, env, seed=seed)
    if notes.starts is not None:
        summary["starts"], drawn = starts_record(policy.simulator, notes.starts, **known)
        arrays |= drawn
    return summary, arrays


def _certificate(order: Order, env: Target, result: LearningResult) -> dict[str, Any] | None:
    """What fresh episodes show about the policy, which they had no part in choosing."""
    if order.certify is None:
        return None
    return certify_return(
        result.policy,
        env,
        epsilon=order.certify.epsilon,
        max_episodes=order.certify.episodes,
        attempt=order.certify.attempt,
        seed=order.seed,
    ).record()


def _population_value(order: Order, env: BlockMDP, result: LearningResult) -> float | None:
    """What perfect two-picture models would earn; beliefs are not bound by that."""
    policy = result.policy
    if isinstance(policy, BeliefPolicy):
        return None
    limit, _ = limit_of(env, policy.simulator, eta=order.eta, plan=policy.plan)
    return None if limit is None else limit.value


def reliability(diagnostics: Diagnostics) -> dict[str, Any]:
    """What learning noticed about the model, the perturbation and the map, ready for JSON."""
    estimate = diagnostics.eta
    return {
        "model": diagnostics.model,
        "stopped": diagnostics.stopped,
        "evidence": dict(diagnostics.evidence),
        "eta_estimate": None if estimate is None else asdict(estimate),
        "map_errors": [asdict(error) for error in diagnostics.map_errors],
        "slips": [asdict(slip) for slip in diagnostics.slips[:_SLIPS]],
        "warnings": list(diagnostics.warnings),
        "symmetric_starts": [[str(s) for s in pair] for pair in diagnostics.symmetric_starts],
    }


def _asked(order: Order, env: Target, begin: BeliefPolicy | None) -> dict[str, Any]:
    """What the order says; what it leaves to be decided is left out."""
    options = env.options if isinstance(env, BlockMDP) else order.options
    # A folder may hold another policy tomorrow: its digest says which one it was.
    came = None if begin is None else {"folder": order.from_policy, "digest": begin.digest}
    asked = {
        "environment": {"name": order.environment, "options": dict(options)},
        "simulator": None if order.source is None else dict(order.source),
        "eta": order.eta,
        "episodes": order.episodes,
        "seed": order.seed,
        "method": order.method,
        "starts": order.starts,
        "classes": order.classes,
        "evaluation_episodes": order.evaluation_episodes,
        "certify": None if order.certify is None else asdict(order.certify),
        "from_policy": came,
        "imports": list(order.imports) or None,
        "versions": versions(),
    }
    return {name: value for name, value in asked.items() if value is not None}
