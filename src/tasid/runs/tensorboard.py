"""Events of a learning run as TensorBoard scalars: `pip install tasid[tensorboard]`."""

from __future__ import annotations

from pathlib import Path

from tasid.learning.belief.method import BatchEnded
from tasid.learning.paper.tasid import EpochEnded, StepEnded
from tasid.runs.record import Event

_SCALARS = {
    EpochEnded: ("epoch", ("training_loss", "validation_loss")),
    BatchEnded: ("batch", ("return_mean", "foresight", "regret", "evidence")),
    StepEnded: ("step", ("validation_loss", "episodes", "seconds_collecting", "seconds_fitting")),
}


class TensorBoard:
    """A callback that writes losses, episodes and seconds, seed by seed, below `folder`."""

    def __init__(self, folder: str | Path) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise ValueError(
                "TensorBoard: the package tensorboardX is missing; install tasid[tensorboard]"
            ) from None
        self._writer = SummaryWriter(str(folder))
        self._epochs: dict[int, int] = {}

    def __call__(self, event: Event) -> None:
        """Write one event; epochs are counted through all steps of a seed."""
        if isinstance(event, EpochEnded):
            when = self._epochs[event.seed] = self._epochs.get(event.seed, -1) + 1
        else:
            when = event.episodes if isinstance(event, BatchEnded) else event.step
        kind, fields = _SCALARS[type(event)]
        for name in fields:
            self._writer.add_scalar(f"seed-{event.seed}/{kind}/{name}", getattr(event, name), when)

    def close(self) -> None:
        """Flush to disk; nothing can be written afterwards."""
        self._writer.close()
