"""A run on disk: what was asked, how learning went, the policy, and how it scored.

    run.json       what was asked: environment, method, budget, seeds, versions
    epochs.jsonl   one row per epoch of every step
    steps.jsonl    one row per step
    batches.jsonl  one row per batch of the belief method
    policy/        the policy (artifact)
    evaluation/    returns and accuracies as arrays, the summary as metadata (artifact)
    result.json    the summary once more, for people and scripts

Figures and pages are made from these files alone.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tasid import __version__
from tasid.files import (
    Artifact,
    ArtifactError,
    read_artifact,
    write_artifact,
    write_bytes_atomically,
)
from tasid.learning.belief.method import BatchEnded
from tasid.learning.paper.tasid import EpochEnded, StepEnded
from tasid.policies.stored import refuse_several
from tasid.runs.unfinished import ASKED, SUMMARY, json_bytes

_FILES = {
    EpochEnded: "epochs.jsonl",
    StepEnded: "steps.jsonl",
    BatchEnded: "batches.jsonl",
}
_EVALUATION = "evaluation"
Event = EpochEnded | StepEnded | BatchEnded
"""What learning reports while it goes on; progress bars, records and loggers listen."""
Callback = Callable[[Any], None]


class Run:
    """The folder of one run; every file in it appears whole or not at all."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @property
    def policy_folder(self) -> Path:
        """Where the policy is."""
        return self.folder / "policy"

    def write_events(self, events: Sequence[Event]) -> None:
        """All events of the learning, one row each, a file for each kind."""
        for kind, name in _FILES.items():
            self.write_rows(name, (_row(event) for event in events if isinstance(event, kind)))

    def write_rows(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """One JSON object a line."""
        text = "".join(f"{json.dumps(row, allow_nan=False)}\n" for row in rows)
        write_bytes_atomically(self.folder / name, text.encode())

    def write_evaluation(
        self, summary: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]
    ) -> None:
        """The scores: arrays and summary."""
        write_artifact(self.folder / _EVALUATION, kind=_EVALUATION, metadata=summary, arrays=arrays)
        self.write_summary(summary)

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """The figures alone, where nothing was scored."""
        write_bytes_atomically(self.folder / SUMMARY, json_bytes(summary))

    def asked(self) -> dict[str, Any]:
        """run.json."""
        path = self.folder / ASKED
        try:
            loaded = json.loads(path.read_text())
        except FileNotFoundError:
            refuse_several(self.folder)
            raise ArtifactError(
                f"{self.folder}: no run here (run.json is missing); give a folder that "
                "'tasid train --out' or 'tasid reproduce --out' wrote"
            ) from None
        except (ValueError, RecursionError) as error:
            raise ArtifactError(f"{path}: not valid JSON ({error})") from None
        if not isinstance(loaded, dict):
            raise ArtifactError(f"{path}: not a JSON object")
        return loaded

    def rows(self, kind: type[Event]) -> list[Any]:
        """The recorded events of one kind."""
        return self._lines(_FILES[kind], lambda fields: kind(**fields))

    def training(self) -> list[dict[str, Any]]:
        """The rows of a baseline's training."""
        return self._lines("training.jsonl", dict)

    def _lines(self, name: str, read: Callable[[Any], Any]) -> list[Any]:
        path = self.folder / name
        if not path.exists():
            raise ArtifactError(f"{path}: missing; the run did not finish")
        rows = []
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            try:
                rows.append(read(json.loads(line)))
            except (TypeError, ValueError, RecursionError) as error:
                raise ArtifactError(f"{path}, line {number}: not a record ({error})") from None
        return rows

    def evaluation(self) -> Artifact:
        """The scores, verified."""
        if "from" in self.asked():
            raise ArtifactError(
                f"{self.folder}: learned from a log, so nothing was scored; 'tasid evaluate' "
                "scores its policy where there is a target"
            )
        return read_artifact(self.folder / _EVALUATION, kind=_EVALUATION)


def _row(event: Event) -> dict[str, Any]:
    """An event ready for JSON; a loss that is not finite becomes null."""
    return {
        name: None if isinstance(value, float) and not isfinite(value) else value
        for name, value in asdict(event).items()
    }


def versions() -> dict[str, str]:
    """Of what decides the figures."""
    return {
        "tasid": __version__,
        "python": platform.python_version(),
        "jax": version("jax"),
        "numpy": version("numpy"),
    }
