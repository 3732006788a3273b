"""One whole run: build the environment, learn, score, diagnose, and put it all on disk."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from tasid.baselines.by_name import Baseline, Paused, pause_arrays, paused_from, train_baseline
from tasid.baselines.domain_randomization import FINE_TUNING
from tasid.baselines.training import Checkpoint
from tasid.checks.certify import Certify, certify_return
from tasid.checks.diagnosis import diagnose, start_purity
from tasid.checks.population import limit_of
from tasid.checks.scoring import score
from tasid.files import read_artifact, write_artifact
from tasid.learning.monitor import calibrate
from tasid.maps import AbstractSimulator
from tasid.policies import BeliefPolicy
from tasid.runs.journaled import on_record
from tasid.runs.learn import LearningResult, learn, saved_policy
from tasid.runs.record import Callback, Event, Run, versions
from tasid.runs.starts import starts_record
from tasid.runs.unfinished import RECORD, Commission, Notice, silent
from tasid.targets import BlockMDP, Target
from tasid.targets.registry import open_world
from tasid.targets.worlds.building.world import remarks

_STATE = "unfinished-run"
_KEEP_SECONDS = 10.0
"""Of a baseline's training that a kill may cost."""
Made = tuple[dict[str, Any], dict[str, Any]]
"""A summary's figures, and the arrays behind them."""


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
    code: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of the user's modules that the environment is made of."""


@dataclass(frozen=True)
class BaselineOrder:
    """What `tasid train --algorithm` was asked for; fields as those of `Order`."""

    environment: str
    options: Mapping[str, Any]
    baseline: Baseline
    seed: int
    evaluation_episodes: int = 10_000
    imports: Sequence[str] = ()
    code: Mapping[str, str] = field(default_factory=dict)


AnyOrder = Order | BaselineOrder


def train(
    order: AnyOrder,
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
    begin = None
    if isinstance(order, BaselineOrder):
        asked = _asked_of_baseline(order, world)
    else:
        if isinstance(world, BlockMDP) and notice is not silent:  # doors take seconds to find
            for remark in remarks(world):
                notice(remark)
        if order.from_policy is not None:
            begin = saved_policy(order.from_policy, order.method)
        asked = _asked(order, world, begin)
    commission = Commission(folder, asked, overwrite, resume, notice)
    if (done := commission.finished()) is not None:
        return done
    with commission.writing() as place, on_record(world, place / RECORD) as env:
        run = Run(place)
        if isinstance(order, BaselineOrder):
            summary, arrays = _baseline(order, env, run, callbacks)
        else:
            summary, arrays = _tasid(order, env, run, begin, callbacks)
        summary["policy"] = str(Path(home or folder) / run.policy_folder.name)
        run.write_evaluation(summary, arrays)
    return summary


def _tasid(
    order: Order, env: Target, run: Run, begin: BeliefPolicy | None, callbacks: Sequence[Callback]
) -> Made:
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
        record=run.folder / RECORD,
        from_policy=begin,
        callbacks=[events.append, *callbacks],
    )
    seconds = time.perf_counter() - started
    result.policy.save(run.policy_folder)
    run.write_events(events)
    summary, arrays = _scores(order, env, result)
    return summary | {"certificate": _certificate(order, env, result), "seconds": seconds}, arrays


def _scores(order: Order, env: Target, result: LearningResult) -> Made:
    policy, seed, notes = result.policy, order.seed, result.diagnostics
    scored, figures = score(policy, env, episodes=order.evaluation_episodes, seed=seed)
    summary = {
        "episodes": result.episodes,
        **figures,
        "decoder_accuracy": None,
        "calibration_error": None,
        **notes.record(),
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
        "code": dict(order.code) or None,
        "versions": versions(),
    }
    return {name: value for name, value in asked.items() if value is not None}


def _baseline(order: BaselineOrder, env: Target, run: Run, callbacks: Sequence[Callback]) -> Made:
    log, seed = _Checkpoints(run.folder / RECORD / "state"), order.seed
    started = time.perf_counter()
    trained = train_baseline(
        order.baseline,
        env,
        seed=seed,
        paused=log.paused(order, env),
        callbacks=[log, *callbacks],
    )
    seconds = time.perf_counter() - started
    trained.policy.save(run.policy_folder)
    run.write_rows("training.jsonl", log.rows)
    scored, figures = score(trained.policy, env, episodes=order.evaluation_episodes, seed=seed)
    summary = {
        "algorithm": order.baseline.algorithm,
        "episodes": trained.episodes,
        "source_episodes": order.baseline.episodes_before,
        **figures,
        "decoder_accuracy": None,
        "seconds": seconds,
    }
    return summary, {"returns": scored.returns}


class _Checkpoints:
    """A row for each of them; and the training as it was there, on disk every now and then."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept = time.monotonic()
        self.rows: list[dict[str, Any]] = []

    def paused(self, order: BaselineOrder, env: Target) -> Paused | None:
        """Where to go on, with the rows up to there; None to begin."""
        if not self._folder.exists():
            return None
        try:
            state = read_artifact(self._folder, kind=_STATE)
            stage, rows = int(state.metadata["stage"]), list(state.metadata["rows"])
            paused = paused_from(
                order.baseline, env, seed=order.seed, stage=stage, arrays=state.arrays
            )
        except (KeyError, TypeError, ValueError) as error:
            warnings.warn(f"{error}; this run starts anew", stacklevel=2)
            return None
        self.rows = rows
        return paused

    def __call__(self, here: Checkpoint) -> None:
        if here.returns.size:  # none, if resumed at its very end
            row = {
                "stage": "target" if here.stage == FINE_TUNING else "source",
                "episodes": here.episodes,
                "training": float(here.returns.mean()),
                "mean": None if here.evaluation is None else here.evaluation.mean,
                "seconds": here.seconds,
            }
            self.rows.append(row)
        if time.monotonic() - self._kept >= _KEEP_SECONDS:
            metadata = {"stage": here.stage, "rows": self.rows}
            write_artifact(self._folder, kind=_STATE, metadata=metadata, arrays=pause_arrays(here))
            self._kept = time.monotonic()


def _asked_of_baseline(order: BaselineOrder, env: Target) -> dict[str, Any]:
    return {
        "environment": {"name": order.environment, "options": dict(order.options)},
        "algorithm": order.baseline.algorithm,
        "baseline": order.baseline.describe(order.baseline.config_for(env)),
        "seed": order.seed,
        "evaluation_episodes": order.evaluation_episodes,
        **({"imports": list(order.imports)} if order.imports else {}),
        **({"code": dict(order.code)} if order.code else {}),
        "versions": versions(),
    }
