"""Episodes: the one record of whole episodes, in memory, in logs, in learning and in evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Episodes:
    """N episodes of at most H steps, episodes first.

    An episode that the target ends after `lengths` steps is padded: its last observation repeats,
    rewards are 0.
    """

    observations: NDArray[Any] | None
    """x_0 … x_H, [N, H+1, …]; None if they were not kept."""
    actions: NDArray[np.int32]
    """Commanded actions a_0 … a_{H−1}, [N, H]."""
    rewards: NDArray[np.float32]
    """[N, H]."""
    lengths: NDArray[np.int32]
    """Steps until the target ended the episode, [N]; H if it did not."""
    explored: NDArray[np.bool_]
    """True where the action was imposed on the policy, say by exploration, [N, H]."""
    trace: Any = None
    """What the caller of `rollout` recorded at every step, arrays [N, H, …]."""

    def __len__(self) -> int:
        return len(self.actions)

    @property
    def horizon(self) -> int:
        """H."""
        return int(self.actions.shape[1])

    @property
    def returns(self) -> NDArray[np.float64]:
        """Sums of rewards, [N]."""
        return self.rewards.sum(axis=1, dtype=np.float64)

    @property
    def valid(self) -> NDArray[np.bool_]:
        """Which observations belong to the episode and are not padding, [N, H+1]."""
        steps = np.arange(self.horizon + 1)
        valid: NDArray[np.bool_] = steps <= self.lengths[:, None]
        return valid

    def __getitem__(self, rows: slice | NDArray[Any]) -> Episodes:
        """Some of the episodes."""
        return Episodes(*(_rows(getattr(self, field.name), rows) for field in fields(self)))

    @staticmethod
    def concatenate(parts: Sequence[Episodes]) -> Episodes:
        """All episodes one after the other."""
        if len(parts) == 1:
            return parts[0]
        columns = ([getattr(part, field.name) for part in parts] for field in fields(Episodes))
        return Episodes(*(_joined(column) for column in columns))


def _rows(table: Any, rows: Any) -> Any:
    if table is None or isinstance(table, np.ndarray):
        return None if table is None else table[rows]
    return tuple(part[rows] for part in table)


def _joined(column: list[Any]) -> Any:
    if column[0] is None or isinstance(column[0], np.ndarray):
        return None if column[0] is None else np.concatenate(column)
    return tuple(np.concatenate(parts) for parts in zip(*column, strict=True))
