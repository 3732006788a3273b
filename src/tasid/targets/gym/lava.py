"""Lava crossing as a Gymnasium environment on top of Farama Minigrid itself.

Minigrid moves the agent and draws the pictures; the map, the perturbation and the noise's places
are those of the native environment with the same options.
"""

from __future__ import annotations

from typing import Any, SupportsFloat

import numpy as np
from gymnasium import spaces
from minigrid.core.actions import Actions
from minigrid.core.grid import Grid
from minigrid.core.mission import MissionSpace
from minigrid.core.world_object import Goal, Lava, Wall
from minigrid.minigrid_env import MiniGridEnv
from numpy.typing import NDArray

from tasid.maps.layout import GOAL, HAZARD, HEADINGS, WALL
from tasid.targets.worlds.grid_view import PICTURE, TILE, background, poses_of
from tasid.targets.worlds.lava_crossing import DARKEST, LIGHTEST, lava_crossing
from tasid.targets.worlds.route import layout_of

_OBJECTS = {WALL: Wall, HAZARD: Lava, GOAL: Goal}
_MOVES = (
    (0, Actions.forward),
    (0, Actions.left),
    (0, Actions.right),
    (-1, Actions.forward),
    (1, Actions.forward),
)
"""For each of the five actions: quarter turns to the right first, then what Minigrid executes."""
_EAST = HEADINGS.index("E")
"""Minigrid counts headings from the east, we count from the north; both go clockwise."""


class MinigridLavaEnv(MiniGridEnv):
    """The lava crossing of `tasid.make("lava-crossing", **options)` behind Gymnasium's interface.

    Observations are the noisy pictures, uint8 [56, 56, 3]; actions are forward, left, right, left
    and forward, right and forward; goal and lava terminate, the horizon truncates. The instance is
    fixed by `options` (their `seed` draws the perturbation), episodes by `reset(seed=…)`.
    """

    def __init__(self, *, render_mode: str | None = None, **options: Any) -> None:
        block = lava_crossing(**options)
        sim = self._simulator = block.simulator
        layout = self._layout = layout_of(sim)
        self._xi = block.latent.world.xi_at
        self._noise = bool(block.options["noise"])
        through = bool(block.options["see_through_walls"])
        self._poses = poses_of(layout)
        self._state_at = {tuple(pose): s for s, pose in enumerate(self._poses.tolist())}
        self._blank = background(layout.cells, self._poses, see_through_walls=through)
        rows, columns = layout.cells.shape
        super().__init__(
            MissionSpace(mission_func=lambda: "reach the goal, keep out of the lava"),
            width=columns,
            height=rows,
            max_steps=sim.horizon,
            see_through_walls=through,
            render_mode=render_mode,
        )
        self.action_space = spaces.Discrete(len(_MOVES))
        self.observation_space = spaces.Box(0, 255, PICTURE, np.uint8)

    @property
    def horizon(self) -> int:
        """How many actions an episode takes at most."""
        return self._simulator.horizon

    @property
    def pose(self) -> tuple[int, int, int]:
        """Row, column and heading of the agent."""
        column, row = self.agent_pos
        return int(row), int(column), int(self.agent_dir + _EAST) % 4

    @pose.setter
    def pose(self, pose: tuple[int, int, int]) -> None:
        row, column, heading = (int(part) for part in pose)
        self.agent_pos, self.agent_dir = (column, row), (heading - _EAST) % 4

    def _gen_grid(self, width: int, height: int) -> None:
        self.grid = Grid(width, height)
        for (row, column), content in np.ndenumerate(self._layout.cells):
            if content in _OBJECTS:
                self.grid.set(column, row, _OBJECTS[int(content)]())
        sim = self._simulator
        start = sim.starts[0]
        if len(sim.starts) > 1:
            start = self.np_random.choice(sim.starts, p=sim.start_probabilities)
        self.pose = self._poses[start]

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take an action, or what the perturbation makes of it."""
        chances = self._xi(self.step_count)[self._state_at[self.pose], int(action)]
        happened = int(self.np_random.choice(len(_MOVES), p=chances))
        return self.execute(happened)

    def execute(self, action: int) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take an action as it is, without perturbation."""
        turn, move = _MOVES[action]
        self.agent_dir = (self.agent_dir + turn) % 4
        picture, won, terminated, truncated, info = super().step(move)
        reward = (1.0 if float(won) > 0 else -1.0) if terminated else -0.01
        return picture, reward, terminated, truncated and not terminated, info

    def gen_obs(self) -> NDArray[np.uint8]:
        """What the agent sees: Minigrid's picture, with noise where it shows nothing."""
        picture: NDArray[np.uint8] = self.get_frame(tile_size=TILE, agent_pov=True)
        if self._noise:
            blank = self._blank[self._state_at[self.pose]]
            drawn = (int(blank.sum()), PICTURE[-1])
            picture[blank] = self.np_random.integers(DARKEST, LIGHTEST + 1, drawn, np.uint8)
        return picture
