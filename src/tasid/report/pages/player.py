"""Episodes to play, pause and step through: the belief on the floor plan, beside what is seen.

A page of its own, with all it needs inside. It runs a script, which the other pages do not. Beside
the report of a building it is the only part that runs an environment, the one that was recorded.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from PIL import Image

from tasid.beliefs.features import is_picture
from tasid.files import write_bytes_atomically
from tasid.maps import AbstractSimulator, robust_dp
from tasid.maps.layout import GridLayout
from tasid.policies import BeliefPolicy, Policy
from tasid.report.figures.grid_heat import window
from tasid.report.pages.template import render_page
from tasid.runs.watch import Episode, watch_episode
from tasid.targets.registry import make
from tasid.targets.worlds.building import world as building
from tasid.targets.worlds.building.picture import plain_floor

PLAYER_NAME = "player.html"
ETAS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4)
"""The routes that the slider goes through."""
_LEAST = 0.002
"""Cells less likely than this stay white."""
_MOST_NUMBERS = 720


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


def episode_page(episodes: Sequence[Episode], path: str | Path) -> Path:
    """Write the page of a policy's episodes, on a map with a layout; the first is shown first."""
    sim, environment = episodes[0].policy.simulator, episodes[0].policy.environment
    if sim.layout is None:
        raise ValueError("html: this map does not say where its states lie, so nothing is drawn")
    if episodes[0].beliefs is None:
        raise ValueError("html: this policy keeps a single state in mind; it has no beliefs")
    seen = episodes[0].observations[0]
    looks = "picture" if _is_picture(seen) else "numbers"
    if looks == "numbers" and environment is not None and environment.get("name") == building.NAME:
        looks = "laser"
    data = _data(episodes, sim, _cut(sim.layout)) | {"looks": looks}
    # The text stands inside a script element, which only "</" could end.
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")
    page = render_page(
        "player.html",
        title="a map" if environment is None else str(environment.get("name")),
        data=Markup(text),
        names=[episode["name"] for episode in data["episodes"]],
        etas=len(ETAS) - 1,
        looks=looks,
        truth=episodes[0].truth is not None,
        angles=sim.layout.angles is not None,
    )
    return write_bytes_atomically(Path(path), page.encode(errors="replace"))


def _cut(layout: GridLayout) -> GridLayout:
    """The part of a map that has states; maps of robots often have wide unknown borders."""
    low, high = window(layout)
    behind = layout.backdrop
    if behind is not None:
        fine = behind.shape[0] // layout.cells.shape[0]
        behind = behind[low[0] * fine : high[0] * fine, low[1] * fine : high[1] * fine]
    return GridLayout(
        layout.cells[low[0] : high[0], low[1] : high[1]],
        layout.positions - low,
        headings=layout.headings,
        directions=layout.directions,
        backdrop=behind,
    )


def _data(
    episodes: Sequence[Episode], sim: AbstractSimulator, layout: GridLayout
) -> dict[str, Any]:
    rows, columns = layout.cells.shape
    return {
        "rows": rows,
        "columns": columns,
        "floor": _png(plain_floor(layout)),
        "range": _range(episodes),
        "routes": [_route(sim, layout, eta) for eta in ETAS],
        "episodes": [
            {
                "name": ("" if episode.carried_after is None else "carried away: ")
                + f"{episode.steps} steps, return {episode.total:.3g}",
                "carried": episode.carried_after,
                "steps": [_step(episode, layout, h) for h in range(episode.steps)],
            }
            for episode in episodes
        ],
    }


def _route(sim: AbstractSimulator, layout: GridLayout, eta: float) -> dict[str, Any]:
    """The plan's way for an η, from the first start."""
    index = {label: number for number, label in enumerate(sim.states)}
    plan = robust_dp(sim, eta=eta)
    way = plan.route(int(sim.starts[0]))
    points = layout.positions[[index[step.state] for step in way]].tolist()
    kept = [point for n, point in enumerate(points) if n == 0 or point != points[n - 1]]
    return {"eta": eta, "points": kept, "value": round(plan.start_value, 3)}


def _step(episode: Episode, layout: GridLayout, h: int) -> dict[str, Any]:
    assert episode.beliefs is not None
    belief = episode.beliefs[h]
    weight: dict[tuple[int, int], float] = {}
    for state, p in zip(belief.states.tolist(), belief.probabilities.tolist(), strict=True):
        row, column = layout.positions[state].tolist()
        weight[row, column] = weight.get((row, column), 0.0) + p
    return {
        "belief": [[r, c, round(p, 4)] for (r, c), p in weight.items() if p >= _LEAST],
        "held": _pose(layout, int(episode.states[h])),
        "truth": None if episode.truth is None else _pose(layout, int(episode.truth[h])),
        "action": episode.action_name(h),
        "sure": round(float(episode.confidence[h]), 3),
        "lost": bool(episode.lost[h]),
        "reward": round(float(episode.rewards[h]), 4),
        **_sight(episode.observations[h]),
    }


def _pose(layout: GridLayout, state: int) -> list[float | None]:
    row, column = layout.positions[state].tolist()
    angles = layout.angles
    return [row, column, None if angles is None else float(angles[state])]


def _sight(x: NDArray[Any]) -> dict[str, Any]:
    """A picture as it is, or numbers of a vector."""
    if _is_picture(x):
        return {"picture": _png(x)}
    return {"numbers": [float(f"{value:.4g}") for value in x.ravel()[:_MOST_NUMBERS]]}


def _is_picture(x: NDArray[Any]) -> bool:
    return is_picture(x.shape) and x.dtype == np.uint8


def _range(episodes: Sequence[Episode]) -> list[float]:
    """What bars reach from and to, 0 among it."""
    seen = np.concatenate([episode.observations[: episode.steps] for episode in episodes])
    shown = seen.reshape(len(seen), -1)[:, :_MOST_NUMBERS]
    return [min(float(shown.min()), 0.0), max(float(shown.max()), 0.0)]


def _png(pixels: NDArray[np.uint8]) -> str:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"
