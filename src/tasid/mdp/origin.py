"""Where a simulator came from: facts its source knew and its tables do not say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from tasid.mdp.layout import GridLayout

_LAYOUT = "simulator.layout."


@dataclass(frozen=True, eq=False)
class Origin:
    """All optional; saved with the simulator, used by pictures and reports."""

    source: str
    """What it was made from, in a few words."""
    actions: tuple[str, ...] | None = None
    """Names of the actions, in index order."""
    explored: int | None = None
    """The tables hold all states within so many steps of the start, no more; None: all states."""
    implied_eta: float | None = None
    """The smallest η for which the world it was made from is an η-perturbation of the map."""
    layout: GridLayout | None = None

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The named arrays that, with `metadata`, make up the origin on disk."""
        if self.layout is None:
            return {}
        return {_LAYOUT + name: array for name, array in self.layout.arrays().items()}

    def metadata(self) -> dict[str, Any]:
        """The JSON part of the origin on disk."""
        return {
            "source": self.source,
            "actions": None if self.actions is None else list(self.actions),
            "explored": self.explored,
            "implied_eta": self.implied_eta,
            "layout": None if self.layout is None else self.layout.metadata(),
        }

    @classmethod
    def from_parts(cls, metadata: dict[str, Any], arrays: dict[str, Any]) -> Origin:
        """The inverse of `metadata` and `arrays`."""
        layout, actions = metadata.get("layout"), metadata.get("actions")
        named = {k.removeprefix(_LAYOUT): v for k, v in arrays.items() if k.startswith(_LAYOUT)}
        return cls(
            source=str(metadata.get("source", "")),
            actions=None if actions is None else tuple(str(name) for name in actions),
            explored=metadata.get("explored"),
            implied_eta=metadata.get("implied_eta"),
            layout=None if layout is None else GridLayout.from_parts(layout, named),
        )
