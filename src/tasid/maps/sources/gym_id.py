"""Gymnasium's environments by id: made, or refused with what would be right."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from tasid.maps.sources.trouble import MapError

GYM = "gym:"
"""Names of Gymnasium environments begin with this where other names may stand, too."""
_NEAREST = 3
_RELAYS = ("GymV21Environment", "GymV26Environment")


def make_by_id(name: str, options: Mapping[str, Any], *, argument: str) -> Any:
    """The environment of an id, or of module:id; `argument` is what a message names."""
    import gymnasium

    try:
        return gymnasium.make(name, **options)
    except gymnasium.error.UnregisteredEnv:
        raise MapError(
            f"{argument}: Gymnasium makes no {name!r} of this: no such id{_nearest(name)}"
        ) from None
    except (gymnasium.error.Error, TypeError, ValueError, ImportError) as error:
        raise MapError(f"{argument}: Gymnasium makes no {name!r} of this ({error})") from None


def check_id(name: str, *, argument: str) -> None:
    """Refuse an id that nobody registered; module:id may register itself when it is made."""
    import gymnasium

    if ":" in name or name in gymnasium.registry:
        return
    try:
        gymnasium.spec(name)
    except gymnasium.error.UnregisteredEnv:
        raise MapError(f"{argument}: {name!r}: no such id{_nearest(name)}") from None
    except gymnasium.error.Error as error:
        raise MapError(f"{argument}: {name!r}: no such id ({error})") from None


def _nearest(name: str) -> str:
    """Ids that look like this one, and where Minigrid's are."""
    import gymnasium

    bare = name.rpartition(":")[2]
    if bare.startswith("MiniGrid-") and importlib.util.find_spec("minigrid"):
        return f"; Minigrid's are known once it is imported: minigrid:{bare}"
    folded = {known.casefold(): known for known in gymnasium.registry}
    near = get_close_matches(bare.casefold(), folded, n=_NEAREST, cutoff=0.5)
    if near:
        return f"; nearest: {', '.join(folded[one] for one in near)}"
    return "; ids that a module registers are written module:id"


def registered_id(name: str) -> str | None:
    """The id, if it is registered already: nothing is imported to find out.

    Of module:id the id alone counts. Ids that make others by their names are left out.
    """
    import gymnasium

    bare = name.rpartition(":")[2]
    return bare if bare in gymnasium.registry and not bare.startswith(_RELAYS) else None
