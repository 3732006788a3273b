"""One whole run: build the environment, learn, score, diagnose, and put it all on disk."""

from __future__ import annotations

import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from tasid import __version__
from tasid.algorithms.monitor import calibrate
from tasid.algorithms.tasid import Callback, Event
from tasid.envs import BlockMDP, make
from tasid.runs.diagnosis import diagnose
from tasid.runs.learn import Diagnostics, LearningResult, learn
from tasid.runs.record import Run
from tasid.runs.scoring import score


@dataclass(frozen=True)
class Order:
    """What `tasid train` was asked for."""

    environment: str
    options: Mapping[str, Any]
    """Options of the environment, its instance seed included."""
    eta: float
    episodes: int | Literal["auto"]
    seed: int
    method: str = "outcome"
    evaluation_episodes: int = 10_000


def train(
    order: Order, folder: str | Path, *, overwrite: bool = False, callbacks: Sequence[Callback] = ()
) -> dict[str, Any]:
    """Carry out the order; the folder holds everything, the returned summary the figures."""
    env = make(order.environment, **order.options)
    with Run.writing(folder, _asked(order, env), overwrite=overwrite) as run:
        events: list[Event] = []
        started = time.perf_counter()
        result = learn(
            env,
            eta=order.eta,
            episodes=order.episodes,
            seed=order.seed,
            method=order.method,
            callbacks=[events.append, *callbacks],
        )
        seconds = time.perf_counter() - started
        result.policy.save(run.policy_folder)
        run.write_events(events)
        summary, arrays = _scores(order, env, result)
        summary.update(seconds=seconds, policy=str(Path(folder) / run.policy_folder.name))
        run.write_evaluation(summary, arrays)
    return summary


def _scores(
    order: Order, env: BlockMDP, result: LearningResult
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The summary's figures, and the arrays behind them."""
    scored, figures = score(result.policy, env, episodes=order.evaluation_episodes, seed=order.seed)
    diagnosis = diagnose(result.policy, env, seed=order.seed)
    accuracy = diagnosis.decoder_accuracy
    calibration = calibrate(result.policy, env, seed=order.seed)
    summary = {
        "episodes": result.episodes,
        **figures,
        "decoder_accuracy": float(accuracy.mean()) if accuracy.size else None,
        "calibration_error": calibration.expected_error if calibration.correct.size else None,
        **_noticed(result.diagnostics),
    }
    arrays = {
        "returns": scored.returns,
        "decoder_accuracy": accuracy,
        "tracking_accuracy": diagnosis.tracking_accuracy,
        "calibration.confidence": calibration.confidence,
        "calibration.correct": calibration.correct,
    }
    return summary, arrays


def _noticed(diagnostics: Diagnostics) -> dict[str, Any]:
    """What learning noticed about the model, the perturbation and the map, ready for JSON."""
    estimate = diagnostics.eta
    return {
        "model": diagnostics.model,
        "evidence": dict(diagnostics.evidence),
        "eta_estimate": None if estimate is None else asdict(estimate),
        "map_errors": [asdict(error) for error in diagnostics.map_errors],
        "warnings": list(diagnostics.warnings),
    }


def _asked(order: Order, env: BlockMDP) -> dict[str, Any]:
    return {
        "environment": {"name": env.name, "options": dict(env.options)},
        "eta": order.eta,
        "episodes": order.episodes,
        "seed": order.seed,
        "method": order.method,
        "evaluation_episodes": order.evaluation_episodes,
        "versions": {
            "tasid": __version__,
            "python": platform.python_version(),
            "jax": version("jax"),
            "numpy": version("numpy"),
        },
    }
