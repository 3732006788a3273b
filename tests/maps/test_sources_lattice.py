"""Lattices over occupancy maps: beside slow geometry, corridors at any size, and lost doors."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from commands import run
from mdps import quick
from tasid.cli import main
from tasid.maps import AbstractSimulator, robust_dp
from tasid.maps.layout import FREE, HEADING_NAMES, UNKNOWN, WALL
from tasid.maps.sources import MapWarning
from tasid.maps.sources.grid import COMPASS
from tasid.maps.sources.lattice import backdrop, lattice
from tasid.maps.sources.map_server import OccupancyMap
from tasid.maps.sources.occupancy_map import lost_doors
from tasid.maps.sources.reach import components
from tasid.report import plan_picture


def picture(pixels, resolution=0.05):
    return OccupancyMap(np.asarray(pixels, np.uint8), resolution, (0.0, 0.0))


def meets(square, start, end):
    """Does a segment meet a closed unit square? Slabs, in exact fractions."""
    enter, leave = Fraction(0), Fraction(1)
    for low, a, b in zip(square, start, end, strict=True):
        if a == b:
            if not low <= a <= low + 1:
                return False
            continue
        first, last = sorted(((low - a) / (b - a), (low + 1 - a) / (b - a)))
        enter, leave = max(enter, first), min(leave, last)
    return enter <= leave


def pixels_met(pixels, start, end):
    """Kinds of all pixels that a segment meets, x to the right and y up from the lower left."""
    rows, columns = pixels.shape
    met = [
        pixels[rows - 1 - y, x]
        for y in range(rows)
        for x in range(columns)
        if meets((x, y), start, end)
    ]
    inside = all(
        0 < a < n for point in (start, end) for a, n in zip(point, (columns, rows), strict=True)
    )
    return met if inside else [*met, UNKNOWN]


@quick
@given(st.integers(1, 9), st.integers(1, 9), st.randoms(use_true_random=False))
def test_a_lattice_is_what_its_geometry_says(rows, columns, dice):
    kinds = [FREE] * 9 + [WALL, UNKNOWN]
    pixels = np.array([[dice.choice(kinds) for _ in range(columns)] for _ in range(rows)], np.uint8)
    every = Fraction(dice.randrange(8, 33), 8)
    grid = lattice(pixels, picture(pixels, 1.0), size=float(every), directions=8)
    high, wide = grid.cells.shape
    assert (high, wide) == (-(-rows // every), -(-columns // every))

    def centre(row, column):
        return (Fraction(2 * column + 1, 2) * every, Fraction(2 * (high - row) - 1, 2) * every)

    for row, column in np.ndindex(high, wide):
        here = centre(row, column)
        met = pixels_met(pixels, here, here)
        expected = WALL if WALL in met else UNKNOWN if UNKNOWN in met else FREE
        assert grid.cells[row, column] == expected
        for direction, (down, right) in enumerate(COMPASS):
            met = pixels_met(pixels, here, centre(row + down, column + right))
            assert grid.passages[row, column, direction] == (set(met) == {FREE})
    four = lattice(pixels, picture(pixels, 1.0), size=float(every))
    np.testing.assert_array_equal(four.passages, grid.passages[..., ::2])


@quick
@given(st.integers(1, 7), st.integers(1, 7), st.randoms(use_true_random=False))
def test_areas_are_what_moves_connect(rows, columns, dice):
    cells = np.array([[dice.choice((FREE, FREE, WALL)) for _ in range(columns)]
                      for _ in range(rows)], np.uint8)  # fmt: skip
    passages = np.zeros((rows, columns, 8), bool)
    for row, column in np.ndindex(rows, columns):
        for direction in range(4):
            there = row + COMPASS[direction][0], column + COMPASS[direction][1]
            if 0 <= there[0] < rows and 0 <= there[1] < columns:
                fits = cells[row, column] == cells[there] == FREE and dice.random() < 0.5
                passages[row, column, direction] = passages[(*there, direction + 4)] = fits
    areas, number = components(cells, passages)
    assert sorted(set(areas.ravel().tolist()) - {0}) == list(range(1, number + 1))
    for place in np.ndindex(rows, columns):
        reached, todo = {place}, [place]
        for row, column in todo:
            for direction in np.flatnonzero(passages[row, column]):
                there = row + COMPASS[direction][0], column + COMPASS[direction][1]
                if there not in reached:
                    reached.add(there)
                    todo.append(there)
        same = {tuple(map(int, p)) for p in np.argwhere(areas == areas[place])}
        assert (reached == same) if cells[place] == FREE else areas[place] == 0


# ---------------------------------------------------------------- a house

RESOLUTION = 0.05


@pytest.fixture
def house(tmp_path):
    """Two rooms of 4 m × 4 m in a row, a wall of 20 cm between, and a door of 80 cm in it.

    The door's middle is at y = 2.1 m: no centre of a cell of 1 m is there.
    """
    pixels = np.full((84, 168), 254, dtype=np.uint8)
    pixels[:2] = pixels[-2:] = 0
    pixels[:, :2] = pixels[:, -2:] = 0
    pixels[:, 82:86] = 0
    low, high = (round(y / RESOLUTION) for y in (1.7, 2.5))
    pixels[84 - high : 84 - low, 82:86] = 254
    Image.fromarray(pixels).save(tmp_path / "house.png")
    (tmp_path / "house.yaml").write_text(
        f"image: house.png\nresolution: {RESOLUTION}\norigin: [0, 0, 0]\nnegate: 0\n"
        "occupied_thresh: 0.65\nfree_thresh: 0.196\n"
    )
    return tmp_path / "house.yaml"


PLACES = {"start": (1.0, 1.0), "goal": (7.2, 3.2)}


def test_a_corridor_stays_connected_where_its_cells_are_not_all_free(tmp_path):
    """2.5 m wide, as in offices; a cell of 1 m with all of its pixels free need not exist."""
    pixels = np.full((60, 600), 0, dtype=np.uint8)
    pixels[5:55] = 254
    pixels[5:11:3, ::7] = pixels[52:55, ::5] = 0  # what a laser sees of walls
    pixels[42, 200:204] = 0
    Image.fromarray(pixels).save(tmp_path / "corridor.pgm")
    (tmp_path / "corridor.yaml").write_text(
        "image: corridor.pgm\nresolution: 0.05\norigin: [0, 0, 0]\nnegate: 0\n"
        "occupied_thresh: 0.65\nfree_thresh: 0.196\n"
    )
    for size in (0.3, 0.5, 0.75, 1.0, 1.25):
        sim = AbstractSimulator.from_occupancy_map(
            tmp_path / "corridor.yaml",
            start=(1.0, 1.5),
            goal=(29.0, 1.5),
            cell_size=size,
            robot_radius=0.2,
        )
        assert robust_dp(sim, eta=0.0).start_value > 0 or size < 0.5
        assert sim.horizon >= 3 * 27 / size


def test_a_lost_door_is_named_with_what_opens_it(house):
    """y = 1.5 and 2.5 miss 1.7 … 2.5; a robot of 20 cm needs its centre in 1.9 … 2.3."""
    options = {**PLACES, "cell_size": 1.0, "robot_radius": 0.2, "horizon": 40}
    with pytest.warns(MapWarning) as caught:
        AbstractSimulator.from_occupancy_map(house, **options)
    said = str(caught[0].message)
    assert "the goal cannot be reached" in said
    assert "a door 0.75 m wide at (4.28, 2.12)" in said
    assert "though the robot fits through" in said
    (door,) = lost_doors(house, cell_size=1.0, robot_radius=0.2)
    assert 4.1 <= door.x <= 4.3
    assert door.y == pytest.approx(2.1, abs=0.05)
    assert door.width == pytest.approx(0.8, abs=0.06)
    assert door.fits
    assert door.places == 12
    # Of 0.9, 0.8, 0.75, … the first with a centre (k + ½)·size in 1.9 … 2.3 is 0.9: 2.25.
    assert door.cell_size == 0.9
    assert door.robot_radius is None  # y = 1.5 and 2.5 meet the wall itself
    assert f"cell_size={door.cell_size:g}" in said
    found = AbstractSimulator.from_occupancy_map(house, **{**options, "cell_size": door.cell_size})
    assert robust_dp(found, eta=0.0).start_value > 0


def test_a_door_too_narrow_for_the_robot_opens_for_a_smaller_one(house):
    (door,) = lost_doors(house, cell_size=0.2, robot_radius=0.5)
    assert not door.fits
    assert door.cell_size is None
    assert door.robot_radius == pytest.approx(0.38)  # three quarters; 0.8 of it, 0.4, just does not
    assert "too narrow for the robot" in str(door)
    options = {**PLACES, "cell_size": 0.2, "horizon": 90}
    AbstractSimulator.from_occupancy_map(house, **options, robot_radius=door.robot_radius)
    with pytest.warns(MapWarning, match="cannot be reached.*too narrow for the robot"):
        AbstractSimulator.from_occupancy_map(house, **options, robot_radius=0.5)


def test_no_door_no_remedy(tmp_path, house):
    with Image.open(house.parent / "house.png") as image:
        pixels = np.array(image)
    pixels[:, 82:86] = 0
    Image.fromarray(pixels).save(house.parent / "house.png")
    assert lost_doors(house, cell_size=1.0, robot_radius=0.2) == []
    with pytest.warns(MapWarning, match="no way leads there on the map itself"):
        AbstractSimulator.from_occupancy_map(house, **PLACES, cell_size=1.0, horizon=40)


def test_a_door_that_is_there_is_not_lost(house):
    assert lost_doors(house, cell_size=0.2, robot_radius=0.2) == []


def test_the_plan_command_names_and_draws_it(house, capsys, tmp_path):
    flags = ["--start", "1,1", "--goal", "3,3", "--cell-size", "1", "--robot-radius", "0.2"]
    png = tmp_path / "plan.png"
    with pytest.raises(SystemExit) as stop:
        main(["plan", str(house), *flags, "--png", str(png), "--json"])
    assert not stop.value.code
    (door,) = json.loads(capsys.readouterr().out)["lost_doors"]
    assert door["cell_size"] == 0.9
    assert door["y"] == pytest.approx(2.1, abs=0.05)
    with pytest.raises(SystemExit):
        main(["plan", str(house), *flags])
    assert "a door 0.75 m wide" in capsys.readouterr().out
    with Image.open(png) as drawn:
        assert drawn.size[0] > 400


def test_a_plan_without_a_horizon_says_which_door_was_lost(house, capsys):
    flags = ["--start", "1,1", "--goal", "7,1", "--cell-size", "1", "--robot-radius", "0.2"]
    told = run(capsys, "plan", house, *flags, code=2).err
    assert told.index("a door 0.75 m wide") < told.index("horizon: none given")


def test_a_building_says_what_was_chosen_and_lost_on_a_map(house, capsys):
    asked = ["plan", "building", "--set", f"map={house}", "--set"]
    told = run(capsys, *asked, "starts=2").err
    assert "chosen, since nobody said: start=" in told
    assert " and 1 more and goal=" in told
    assert "lost on the way to cells: a door 0.75 m wide" in told
    got = run(capsys, *asked, "start=1.5,1.5,N", "--set", "goal=3.5,3.5")
    assert "route (1.5, 1.5, 'N') → " in got.out
    assert "chosen" not in got.err


# ---------------------------------------------------------------- driving


def test_driving(house):
    sim = AbstractSimulator.from_occupancy_map(
        house, start=(1.3, 1.3, "NE"), goal=(3.7, 3.7), cell_size=0.4, moves="drive", headings=8
    )
    assert sim.origin.actions == ("forward", "back", "left", "right", "stay")
    assert sim.states[sim.start] == (1.4, 1.4, "NE")
    after = [sim.states[t] for t in sim.successor[sim.start]]
    assert after == [(1.8, 1.8, "NE"), (1.0, 1.0, "NE"), (1.4, 1.4, "N"), (1.4, 1.4, "E"),
                     (1.4, 1.4, "NE")]  # fmt: skip
    assert sim.layout.directions == 8
    assert sim.layout.angles[sim.start] == 45.0
    assert HEADING_NAMES[8][int(sim.layout.headings[sim.start])] == "NE"
    # Six cells across: diagonally, five moves.
    assert robust_dp(sim, eta=0.0).start_value == pytest.approx(1 - 0.01 * 5)


def test_driving_across_a_corner_of_a_text_map():
    text = "S.\n#G"
    sim = AbstractSimulator.from_text_map(text, horizon=9, moves="drive", headings=8, heading="SE")
    assert sim.successor[sim.start, 0] == sim.start  # the wall's corner is in the way
    free = AbstractSimulator.from_text_map(
        "S.\n.G", horizon=9, moves="drive", headings=8, heading="SE"
    )
    assert free.reward[free.start, 0] == 1.0


# ---------------------------------------------------------------- what is drawn


def test_the_backdrop_shows_thin_walls_and_survives_saving(house, tmp_path):
    with pytest.warns(MapWarning):
        sim = AbstractSimulator.from_occupancy_map(house, **PLACES, cell_size=1.0, horizon=30)
    behind = sim.layout.backdrop
    assert behind.shape == (8 * sim.layout.cells.shape[0], 8 * sim.layout.cells.shape[1])
    # From the lower left corner: the wall at 4.1 … 4.3 m, an eighth of a metre per pixel.
    assert set(behind[-6, 32:35]) == {WALL}
    assert behind[-18, 33] == FREE
    assert set(behind[:6].ravel()) == {UNKNOWN}
    loaded = AbstractSimulator.load(sim.save(tmp_path / "map"))
    np.testing.assert_array_equal(loaded.layout.backdrop, behind)
    plan_picture(robust_dp(loaded, eta=0.0), tmp_path / "plan.png")


def test_no_backdrop_where_cells_are_pixels(house):
    pixels = np.zeros((3, 4), np.uint8)
    assert backdrop(picture(pixels, 0.5), lattice(pixels, picture(pixels, 0.5), size=0.5)) is None
