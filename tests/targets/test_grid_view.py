"""The agent's pictures against Farama Minigrid's own, pixel by pixel, for every pose."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from minigrid.core.grid import Grid
from minigrid.core.mission import MissionSpace
from minigrid.core.world_object import Goal, Lava, Wall
from minigrid.minigrid_env import MiniGridEnv
from minigrid.wrappers import RGBImgPartialObsWrapper

from tasid.maps import AbstractSimulator
from tasid.maps.layout import FREE, GOAL, HAZARD, HEADINGS, WALL, GridLayout
from tasid.maps.sources.text_map import parse
from tasid.targets.worlds.grid_view import agent_pictures, background, poses_of, view
from tasid.targets.worlds.lava_crossing import lava_map

OBJECTS = {WALL: Wall, HAZARD: Lava, GOAL: Goal}
EAST, SOUTH, WEST, NORTH = range(4)  # as Minigrid counts
DIRECTION = {"N": NORTH, "E": EAST, "S": SOUTH, "W": WEST}


class Plain(MiniGridEnv):
    """Minigrid with given cells and nothing else of ours."""

    def __init__(self, cells, see_through_walls):
        self.cells = cells
        rows, columns = cells.shape
        super().__init__(
            MissionSpace(mission_func=lambda: ""),
            width=columns,
            height=rows,
            see_through_walls=see_through_walls,
        )

    def _gen_grid(self, width, height):
        self.grid = Grid(width, height)
        for (row, column), content in np.ndenumerate(self.cells):
            if content != FREE:
                self.grid.set(column, row, OBJECTS[int(content)]())
        put(self, valid_poses(self.cells)[0])


def minigrid(cells, see_through_walls):
    env = RGBImgPartialObsWrapper(Plain(cells, see_through_walls), tile_size=8)
    env.reset()
    return env


def put(env, pose):
    row, column, heading = (int(part) for part in pose)
    env.unwrapped.agent_pos = (column, row)
    env.unwrapped.agent_dir = DIRECTION[HEADINGS[heading]]


def random_cells(seed, shape=(9, 8)):
    """Scattered walls, lava and goals, also at the edge, where the view leaves the map."""
    rng = np.random.default_rng(seed)
    return rng.choice([FREE, WALL, HAZARD, GOAL], shape, p=[0.55, 0.3, 0.1, 0.05]).astype(np.uint8)


def valid_poses(cells):
    rows, columns = np.nonzero(cells != WALL)
    return np.array([(r, c, h) for r, c in zip(rows, columns, strict=True) for h in range(4)])


CELLS = {
    **{f"lava {h}": parse(lava_map(height=h))[0] for h in (10, 11, 20)},
    **{f"random {seed}": random_cells(seed) for seed in range(3)},
}


@pytest.mark.parametrize("see_through_walls", [False, True])
@pytest.mark.parametrize("name", CELLS)
def test_every_pose_is_drawn_as_minigrid_draws_it(name, see_through_walls):
    cells = CELLS[name]
    poses = valid_poses(cells)
    pictures = agent_pictures(cells, poses, see_through_walls=see_through_walls)
    blank = background(cells, poses, see_through_walls=see_through_walls)
    assert pictures.shape == (len(poses), 56, 56, 3)
    assert pictures.dtype == np.uint8
    env = minigrid(cells, see_through_walls)
    for pose, picture, pixels in zip(poses, pictures, blank, strict=True):
        put(env, pose)
        np.testing.assert_array_equal(picture, env.observation({})["image"], str(pose))
        np.testing.assert_array_equal(pixels, minigrid_background(env.unwrapped), str(pose))


def minigrid_background(env):
    """Where Minigrid's own sub-grid has nothing: unseen, or empty, or beside the agent."""
    grid, _ = env.gen_obs_grid()
    found = np.zeros((7, 8, 7, 8), dtype=bool)
    for row, column in product(range(7), range(7)):
        found[row, :, column] = grid.get(column, row) is None
    red, green, blue = env.get_frame(tile_size=8, agent_pov=True)[-8:, 24:32].transpose(2, 0, 1)
    found[-1, :, 3] = (red == green) & (green == blue)
    return found.reshape(56, 56)


def test_a_view_by_hand():
    """Looking north from the middle of a corridor whose left wall has one opening."""
    cells, _ = parse("#####\n##G##\n##.##\nL..##\n##S##\n#####")
    seen = view(cells, [(4, 2, HEADINGS.index("N"))])
    assert seen.contents.shape == (1, 7, 7)
    contents, visible = seen.contents[0], seen.visible[0]
    assert contents[6, 3] == FREE  # the agent stands at the middle of the lower edge
    assert contents[3, 3] == GOAL
    assert (contents[:2] == WALL).all(), "beyond the map there is wall"
    assert contents[5, 1] == HAZARD
    assert visible[5, :3].all(), "lava hides nothing, and the wall behind it is seen"
    assert visible[6, 2]
    assert not visible[6, :2].any(), "what the walls hide is not seen"
    assert visible[2, 3]
    assert not visible[1].any()
    # Looking east, the same cells lie on the agent's left.
    turned = view(cells, [(3, 1, HEADINGS.index("E"))], see_through_walls=True)
    assert turned.contents[0, 6, 3] == FREE
    assert turned.contents[0, 5, 1] == GOAL
    assert turned.visible.all()


def test_poses_are_those_of_the_states():
    sim = AbstractSimulator.from_text_map("#####\n#S.G#\n#####", horizon=5, moves="turn")
    poses = poses_of(sim.layout)
    assert [(x, y, HEADINGS[h]) for y, x, h in poses.tolist()] == list(sim.states)
    compass = AbstractSimulator.from_text_map("#####\n#S.G#\n#####", horizon=5)
    with pytest.raises(ValueError, match="layout: its states have no heading"):
        poses_of(compass.layout)
    assert isinstance(sim.layout, GridLayout)
