"""Events of a learning run as TensorBoard scalars: `pip install tasid[tensorboard]`."""

from __future__ import annotations

from pathlib import Path

from tasid.learning.belief.method import BatchEnded
from tasid.learning.paper.tasid import EpochEnded
from tasid.runs.events import Event


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
        name = f"seed-{event.seed}"
        if isinstance(event, EpochEnded):
            count = self._epochs[event.seed] = self._epochs.get(event.seed, -1) + 1
            self._writer.add_scalar(f"{name}/epoch/training_loss", event.training_loss, count)
            self._writer.add_scalar(f"{name}/epoch/validation_loss", event.validation_loss, count)
            return
        if isinstance(event, BatchEnded):
            for field in ("return_mean", "foresight", "regret", "evidence"):
                value = getattr(event, field)
                self._writer.add_scalar(f"{name}/batch/{field}", value, event.episodes)
            return
        for field in ("validation_loss", "episodes", "seconds_collecting", "seconds_fitting"):
            self._writer.add_scalar(f"{name}/step/{field}", getattr(event, field), event.step)

    def close(self) -> None:
        """Flush to disk; nothing can be written afterwards."""
        self._writer.close()
