"""Driving on a floor plan, to be played beside the report: once as it is, once carried away.

The only part of a report that runs an environment, the one that the run recorded.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tasid.policies import BeliefPolicy, Policy
from tasid.report.pages.player import episode_page
from tasid.runs.watch import watch_episode
from tasid.targets.registry import make
from tasid.targets.worlds.building import world as building

PLAYER_NAME = "player.html"


@dataclass(frozen=True)
class Replay:
    """The page that plays a policy's episodes, or why there is none."""

    page: Path | None
    missing: str = ""


def replay(policy: BeliefPolicy | Policy, folder: str | Path) -> Replay | None:
    """Write `player.html` for a policy that drives by beliefs in a building; else None.

    The second episode is the first until a third of its steps; there the robot is carried away.
    """
    known = policy.environment
    if not isinstance(policy, BeliefPolicy) or known is None or known.get("name") != building.NAME:
        return None
    try:
        env = make(building.NAME, **known["options"])
        left = watch_episode(policy, env)
        third = left.steps // 3
        carried = [watch_episode(policy, env, carried_after=third)] if third else []
    except (KeyError, TypeError, ValueError, OSError) as error:
        return Replay(None, str(error))  # its map may have moved; the report does not need it
    return Replay(episode_page([left, *carried], Path(folder) / PLAYER_NAME))
