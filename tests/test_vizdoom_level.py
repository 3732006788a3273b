"""examples/vizdoom without the engine: the level's file, lines and places; how a pose is held."""

from __future__ import annotations

import importlib.util
import re
import struct
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tasid
from tasid.maps.layout import FREE, HAZARD, WALL
from tasid.maps.sources.map_server import read_map

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def modules():
    """The example's own, by name; the engine is not there."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "vizdoom", SimpleNamespace(DoomGame=None))
        for name in ("level", "doom_floor"):
            path = ROOT / "examples" / "vizdoom" / f"{name}.py"
            spec = importlib.util.spec_from_file_location(name, path)
            found[name] = importlib.util.module_from_spec(spec)
            patch.setitem(sys.modules, name, found[name])
            spec.loader.exec_module(found[name])
    return found


@pytest.fixture(scope="module")
def level(modules):
    return modules["level"]


@pytest.fixture(scope="module")
def part(level):
    return level.part_of_the_floor()


@pytest.fixture(scope="module")
def text(level, part, tmp_path_factory):
    data = level.write_level(part, tmp_path_factory.mktemp("level") / "part.wad").read_bytes()
    kind, count, at = struct.unpack("<4sii", data[:12])
    assert (kind, count, at + 16 * count) == (b"PWAD", 3, len(data))
    entries = [struct.unpack("<ii8s", data[at + 16 * n :][:16]) for n in range(count)]
    lumps = {name.rstrip(b"\0").decode(): data[p : p + size] for p, size, name in entries}
    assert list(lumps) == ["MAP01", "TEXTMAP", "ENDMAP"]
    assert lumps["MAP01"] == lumps["ENDMAP"] == b""
    return lumps["TEXTMAP"].decode("ascii")


@pytest.fixture(scope="module")
def blocks(text):
    """Fields of all blocks, by kind and in order."""
    found = {kind: [] for kind in ("thing", "vertex", "linedef", "sidedef", "sector")}
    for kind, body in re.findall(r"^(\w+) \{(.*)\}$", text, re.M):
        found[kind].append(dict(re.findall(r'(\w+) = "?([\w.-]+)"?;', body)))
    return found


def test_lines_close_around_the_pixels_of_every_sector(level, part, blocks):
    at = [(int(v["x"]), int(v["y"])) for v in blocks["vertex"]]
    assert len(set(at)) == len(at)
    edges = {sector: [] for sector in range(len(blocks["sector"]))}
    used = Counter()
    for line in blocks["linedef"]:
        a, b = at[int(line["v1"])], at[int(line["v2"])]
        assert (a[0] == b[0]) != (a[1] == b[1])
        assert ("sideback" in line) == ("twosided" in line) != ("blocking" in line)
        for name, way in (("sidefront", (a, b)), ("sideback", (b, a))):
            if name in line:
                side = int(line[name])
                used[side] += 1
                edges[int(blocks["sidedef"][side]["sector"])].append(way)
    assert used == Counter(range(len(blocks["sidedef"])))
    for sector, ways in edges.items():
        assert Counter(a for a, _ in ways) == Counter(b for _, b in ways), "a border is open"
        twice = sum(b[0] * a[1] - a[0] * b[1] for a, b in ways)  # clockwise
        pixels = int((part.kinds == sector + 1).sum())
        assert twice == 2 * pixels * level.UNITS**2


def test_walls_differ_along_the_way_and_only_walls_have_a_look(level, blocks):
    looks = []
    for line in blocks["linedef"]:
        side = blocks["sidedef"][int(line["sidefront"])]
        assert ("texturemiddle" in side) == ("blocking" in line)
        looks += [side["texturemiddle"]] if "blocking" in line else []
    assert set(looks) == set(level.WALLS)
    assert max(Counter(looks).values()) < len(looks) / 10


@pytest.fixture(scope="module")
def sim(level, part, tmp_path_factory):
    return tasid.AbstractSimulator.from_occupancy_map(
        level.write_map(part, tmp_path_factory.mktemp("map")),
        start=part.dock,
        goal=part.goal,
        hazards=part.hazards,
        cell_size=1.0,
        robot_radius=0.2,
        moves="drive",
        step_reward=-0.005,
    )


def test_the_map_is_the_level_in_pixels(level, part, tmp_path):
    read = read_map(level.write_map(part, tmp_path))
    assert read.corner == (level.WEST, 0.0)
    expected = np.where(part.kinds == level.SOLID, WALL, FREE)
    np.testing.assert_array_equal(read.pixels[::-1], expected)


def test_poses_stand_in_the_sectors_that_they_are_said_to(level, part, sim, blocks):
    layout = sim.layout
    for s, (x, y) in enumerate(layout.centres(np.arange(sim.num_states))):
        column, row = (int(unit // level.UNITS) for unit in level.to_level(x, y))
        cell = layout.cells[tuple(layout.positions[s])]
        assert part.kinds[row, column] == (level.STAIRS if cell == HAZARD else level.ROOM)
    player = blocks["thing"][0]
    assert player["type"] == "1"
    start = layout.centres([int(sim.starts[0])])[0]
    assert level.to_level(*start) == (float(player["x"]), float(player["y"]))


def test_the_robust_way_goes_around_the_lobby(sim):
    index = {label: s for s, label in enumerate(sim.states)}

    def beside_the_stairs(eta):
        way = [index[step.state] for step in tasid.robust_dp(sim, eta=eta).route()]
        x, y = sim.layout.centres(way).T
        return bool(((x < 52) & (y > 11) & (y < 18)).any())

    assert beside_the_stairs(0.0)
    assert not beside_the_stairs(0.1)


class Engine:
    """Takes a while until it turns, knows whole units of length and 65 536 angles."""

    def __init__(self, frozen):
        self.pose, self.asked, self.frozen = [0, 0, 0], None, frozen

    def send_game_command(self, command):
        name, x, y = command.split()
        assert name == "warp"
        self.asked = [int(x), int(y)]

    def make_action(self, buttons):
        self.pose[:2], self.frozen = self.asked, self.frozen - 1
        if self.frozen < 0:
            self.pose[2] = (self.pose[2] - round(buttons[0] / 360 * 65536)) % 65536

    def get_state(self):
        x, y, angle = self.pose
        return SimpleNamespace(game_variables=np.array([x, y, angle * 360 / 65536]))


def test_the_loop_closes_on_the_nearest_pose(modules):
    hold = modules["doom_floor"].hold
    engine = Engine(frozen=18)
    poses = ((270.2, 1409.6, -92.1), (12.0, 7.0, 180.0), (12.0, 7.0, 359.9))
    for number, (x, y, angle) in enumerate(poses, 1):
        hold(engine, x, y, angle)
        assert engine.frozen == -number, "one turn is enough"
        assert engine.pose == [round(x), round(y), round(angle / 360 * 65536) % 65536]


def test_an_engine_that_does_not_move_is_told_of(modules):
    with pytest.raises(RuntimeError, match="stays at 5, 6, 0° instead of 5, 6, 90°"):
        modules["doom_floor"].hold(Engine(frozen=10**6), 5, 6, 90)
