"""How a run learned by beliefs, read from its folder and checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasid.files import ArtifactError
from tasid.learning.belief.method import BatchEnded
from tasid.report.pages.diagnostics import is_number, optional_text
from tasid.runs.record import Run

_NUMBERS = (
    "episodes return_mean foresight regret regret_error evidence seconds_playing seconds_fitting"
)


@dataclass(frozen=True, eq=False)
class BeliefBatches:
    """What was recorded about learning, batch by batch; None or NaN where nobody could know."""

    batches: tuple[BatchEnded, ...]
    stopped: str | None
    """Why no more episodes were played."""
    tracking_accuracy: NDArray[np.float64] | None
    """How often the likeliest state was the true one, [H]."""
    visits: NDArray[np.float64] | None
    """How often the learning episodes were believed to be in each state, [S]."""

    @property
    def ends(self) -> NDArray[np.int64]:
        """Episodes so far at the end of every batch."""
        return np.array([batch.episodes for batch in self.batches], dtype=np.int64)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """New episodes of every batch."""
        return np.diff(self.ends, prepend=0)

    @property
    def has_regret(self) -> bool:
        """Could it be told what is lost? Not by a single batch, which has no new episodes."""
        return bool(np.isfinite(self.column("regret")).any())

    def column(self, name: str) -> NDArray[np.float64]:
        """A number of every batch; NaN where it was recorded as null."""
        values = (getattr(batch, name) for batch in self.batches)
        return np.array([math.nan if value is None else value for value in values], dtype=float)


def read_beliefs(
    run: Run, summary: Mapping[str, Any], arrays: Mapping[str, NDArray[np.float64]]
) -> BeliefBatches:
    """The batches of a run by the belief method."""
    where = run.folder / "batches.jsonl"
    found = BeliefBatches(
        batches=tuple(run.rows(BatchEnded)),
        stopped=optional_text(summary.get("stopped"), f"{run.folder / 'evaluation'}: stopped"),
        tracking_accuracy=arrays.get("tracking_accuracy"),
        visits=arrays.get("visits"),
    )
    for number, batch in enumerate(found.batches):
        row = {name: getattr(batch, name) for name in (*_NUMBERS.split(), "best")}
        best, fine = row.pop("best"), all(one is None or is_number(one) for one in row.values())
        if not fine or row["episodes"] is None or not isinstance(best, str):
            raise ArtifactError(f"{where}, line {number + 1}: no row of a run ({batch})")
    if not found.batches or (found.sizes <= 0).any():
        raise ArtifactError(f"{where}: its rows are not the batches of one run")
    if summary.get("episodes") not in (None, found.ends[-1]):
        raise ArtifactError(
            f"{where}: {found.ends[-1]} episodes, but the run spent {summary['episodes']}; it "
            "belongs to another run or was edited"
        )
    return found
