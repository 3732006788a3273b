"""Where a simulator came from: facts its source knew and its tables do not say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from tasid.maps.layout import GridLayout

_LAYOUT = "simulator.layout."


class OriginError(ValueError):
    """A stored origin that does not say what it should."""


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
        """The inverse of `metadata` and `arrays`, checked."""
        if not isinstance(metadata, dict):
            raise OriginError(f"origin: {metadata!r} is stored where its fields should be")
        layout, actions = metadata.get("layout"), metadata.get("actions")
        explored, eta = metadata.get("explored"), metadata.get("implied_eta")
        for name, value, kind in (
            ("layout", layout, dict),
            ("actions", actions, list),
            ("explored", explored, int),
            ("implied_eta", eta, int | float),
        ):
            if value is not None and not isinstance(value, kind):
                raise OriginError(f"origin: {name} is stored as {value!r}")
        named = {k.removeprefix(_LAYOUT): v for k, v in arrays.items() if k.startswith(_LAYOUT)}
        return cls(
            source=str(metadata.get("source", "")),
            actions=None if actions is None else tuple(str(name) for name in actions),
            explored=explored,
            implied_eta=eta,
            layout=None if layout is None else GridLayout.from_parts(layout, named),
        )
