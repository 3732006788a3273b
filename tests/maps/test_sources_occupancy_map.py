"""Occupancy maps: geometry by hand, thresholds, growing walls, hazards, and what is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from mdps import quick
from tasid.maps import AbstractSimulator, SimulatorError, robust_dp
from tasid.maps.layout import FREE, GOAL, HAZARD, UNKNOWN, WALL
from tasid.maps.sources import MapError, MapWarning
from tasid.maps.sources.lattice import grown
from tasid.maps.sources.map_server import read_map

FIELDS = {
    "image": "map.pgm",
    "resolution": "0.5",
    "origin": "[-1.0, 2.0, 0.0]",
    "negate": "0",
    "occupied_thresh": "0.65",
    "free_thresh": "0.196",
}
OPEN, BLOCKED, GREY = 254, 0, 205
ROOM = np.full((4, 6), OPEN, dtype=np.uint8)


def written(folder, pixels=ROOM, **fields):
    """A map of 6 × 4 pixels of half a metre: x from −1 to 2, y from 2 to 4."""
    fields = {**FIELDS, **fields}
    if pixels is not None:
        Image.fromarray(np.asarray(pixels)).save(folder / fields["image"])
    lines = [f"{key}: {value}" for key, value in fields.items() if value is not None]
    (folder / "map.yaml").write_text("\n".join(lines))
    return folder / "map.yaml"


def load(path, **options):
    given = {"start": (-0.75, 2.25), "goal": (1.75, 3.75), **options}
    return AbstractSimulator.from_occupancy_map(path, **given)


# ---------------------------------------------------------------- geometry


def test_north_is_up_and_x_grows_to_the_right(tmp_path):
    sim = load(written(tmp_path), horizon=8)
    assert sim.num_states == 24
    assert sim.states[sim.start] == (-0.75, 2.25)  # the lower left pixel
    after = [sim.states[t] for t in sim.successor[sim.start]]
    assert after == [(-0.75, 2.75), (-0.25, 2.25), (-0.75, 2.25), (-0.75, 2.25)]
    assert sim.layout.cells[0, 5] == GOAL  # the upper right one
    assert sim.layout.positions[sim.start].tolist() == [3, 0]
    assert sim.layout.extent == (-1.0, 2.0, 2.0, 4.0)
    assert robust_dp(sim, eta=0.0).start_value == pytest.approx(1 - 0.07)


def test_a_wall_in_the_picture_is_where_it_is_drawn(tmp_path):
    pixels = ROOM.copy()
    pixels[3, 1] = BLOCKED  # in the bottom row, beside the start
    sim = load(written(tmp_path, pixels), horizon=10)
    at = sim.states.index((-0.75, 2.25))
    assert sim.states[sim.successor[at, 1]] == (-0.75, 2.25)
    assert (-0.25, 2.25) not in sim.states


def test_cells_are_counted_from_the_lower_left_corner(tmp_path):
    pixels = np.full((5, 7), OPEN, dtype=np.uint8)
    pixels[0] = pixels[:, 6] = OPEN  # a row and a column that make no whole cell
    pixels[1, 5] = BLOCKED
    sim = load(written(tmp_path, pixels), cell_size=1.0, start=(-0.5, 2.5), goal=(1.5, 2.5))
    assert sim.layout.cells.tolist() == [
        [UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN],
        [FREE, FREE, WALL, UNKNOWN],
        [FREE, FREE, GOAL, UNKNOWN],
    ]
    assert (sim.layout.cell_size, sim.layout.corner) == (1.0, (-1.0, 2.0))
    assert sorted(sim.states) == [(-0.5, 2.5), (-0.5, 3.5), (0.5, 2.5), (0.5, 3.5), (1.5, 2.5)]


def test_headings_and_turns(tmp_path):
    sim = load(written(tmp_path), moves="turn", start=(-0.75, 2.25, "N"), horizon=20)
    assert sim.states[sim.start] == (-0.75, 2.25, "N")
    assert sim.states[sim.successor[sim.start, 0]] == (-0.75, 2.75, "N")
    assert sim.states[sim.successor[sim.start, 4]] == (-0.25, 2.25, "E")
    assert load(written(tmp_path), moves="turn").states[0][2] == "E"


def test_several_goals(tmp_path):
    sim = load(written(tmp_path), goal=[(1.75, 3.75), (-0.75, 3.25)])
    assert sim.horizon == 6  # three times the two steps to the nearer
    assert (sim.layout.cells == GOAL).sum() == 2


# ---------------------------------------------------------------- pixels


@pytest.mark.parametrize(("negate", "shades"), [("0", (80, 100, 210)), ("1", (175, 155, 45))])
def test_shades_by_the_thresholds(tmp_path, negate, shades):
    # p = (255 − v)/255: 80 → 0.686 occupied, 100 → 0.608 unknown, 210 → 0.176 free
    pixels = np.array([shades], dtype=np.uint8)
    assert read_map(written(tmp_path, pixels, negate=negate)).pixels.tolist() == [
        [WALL, UNKNOWN, FREE]
    ]


def test_values_on_a_threshold_are_unknown(tmp_path):
    pixels = np.array([[0, 128, 255]], dtype=np.uint8)  # p = 1, about ½, 0
    for occupied, free, kinds in (
        ("1.0", "0.0", [UNKNOWN, UNKNOWN, UNKNOWN]),
        ("0.99", "0.01", [WALL, UNKNOWN, FREE]),
        ("1.0", "1.0", [UNKNOWN, FREE, FREE]),
    ):
        path = written(tmp_path, pixels, occupied_thresh=occupied, free_thresh=free)
        assert read_map(path).pixels.tolist() == [kinds]


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "1", "I;16", "LA"])
def test_images_of_every_kind_say_the_same(tmp_path, mode):
    grey = Image.fromarray(np.array([[255, 0], [0, 255]], dtype=np.uint8))
    if mode == "I;16":
        image = Image.fromarray(np.array([[65535, 0], [0, 65535]], dtype=np.uint16))
    else:
        image = grey.convert(mode)
    path = written(tmp_path, None, image="map.png")
    image.save(tmp_path / "map.png")
    assert read_map(path).pixels.tolist() == [[FREE, WALL], [WALL, FREE]]


def test_what_is_transparent_is_unknown(tmp_path):
    path = written(tmp_path, None, image="map.png")
    Image.fromarray(np.array([[[255, 255, 255, 0], [255, 255, 255, 255]]], np.uint8)).save(
        tmp_path / "map.png"
    )
    assert read_map(path).pixels.tolist() == [[UNKNOWN, FREE]]


def test_plain_pgm_with_comments(tmp_path):
    path = written(tmp_path, None)
    (tmp_path / "map.pgm").write_text("P2\n# CREATOR: a robot 0.050 m/pix\n2 1\n255\n254 0\n")
    assert read_map(path).pixels.tolist() == [[FREE, WALL]]


def test_unknown_pixels_are_walls_unless_said_otherwise(tmp_path):
    pixels = ROOM.copy()
    pixels[:, 3] = GREY
    with pytest.warns(MapWarning, match="cannot be reached"):
        assert load(written(tmp_path, pixels), horizon=9).num_states == 12
    assert load(written(tmp_path, pixels), horizon=9, unknown="free").num_states == 24


def test_yaml_as_tools_write_it(tmp_path):
    path = written(tmp_path, resolution="5e-1", mode="trinary")
    path.write_text(path.read_text().replace("origin: [-1.0, 2.0, 0.0]", "origin:\n- -1\n- 2\n- 0"))
    read = read_map(path)
    assert (read.resolution, read.corner) == (0.5, (-1.0, 2.0))


# ---------------------------------------------------------------- the robot's size


@quick
@given(st.integers(1, 9), st.integers(1, 9), st.randoms(use_true_random=False))
def test_walls_grow_by_the_radius(rows, columns, dice):
    radius = dice.randrange(33) / 8
    kinds = [FREE] * 6 + [WALL, UNKNOWN]
    pixels = np.array([[dice.choice(kinds) for _ in range(columns)] for _ in range(rows)], np.uint8)
    wide = grown(pixels, radius)
    walls = np.argwhere(pixels == WALL)
    for place in np.ndindex(rows, columns):
        near = any(np.hypot(*(wall - place)) <= radius for wall in walls)
        assert wide[place] == (WALL if near else pixels[place])


def test_a_wide_robot_does_not_fit_through_a_door(tmp_path):
    pixels = np.full((9, 9), OPEN, dtype=np.uint8)
    pixels[:, 4] = BLOCKED
    pixels[3:6, 4] = OPEN
    path = written(tmp_path, pixels, resolution="0.1", origin="[0, 0, 0]")
    places = {"start": (0.05, 0.45), "goal": (0.85, 0.45), "horizon": 40}
    assert load(path, **places, robot_radius=0.1).num_states > 40
    with pytest.warns(MapWarning, match="cannot be reached"):
        load(path, **places, robot_radius=0.2)


def test_unknown_pixels_do_not_grow(tmp_path):
    pixels = ROOM.copy()
    pixels[0, 0] = GREY
    assert load(written(tmp_path, pixels), robot_radius=2.0, horizon=9).num_states == 23


# ---------------------------------------------------------------- hazards


def hazards_of(sim):
    return {(int(r), int(c)) for r, c in np.argwhere(sim.layout.cells == HAZARD)}


def test_circles_and_rectangles_touch_whole_cells(tmp_path):
    path = written(tmp_path)
    assert hazards_of(load(path, hazards=[(0.25, 3.25, 0.1)])) == {(1, 2)}
    assert hazards_of(load(path, hazards=[(0.25, 3.25, 0.3)])) == {
        (1, 2), (0, 2), (2, 2), (1, 1), (1, 3)
    }  # fmt: skip
    round_and_wide = load(path, hazards=[(0.25, 3.25, 0.1)], robot_radius=0.2)
    assert hazards_of(round_and_wide) == {(1, 2), (0, 2), (2, 2), (1, 1), (1, 3)}
    # A corner of a rectangle in either order, and the robot's radius around it.
    assert hazards_of(load(path, hazards=[(0.9, 3.4, 0.1, 3.1)])) == {(1, 2), (1, 3)}
    assert hazards_of(load(path, hazards=[(0.0, 3.0, 0.5, 3.5)])) == {(1, 2)}  # edges only meet
    beside = {(1, 2), (0, 2), (2, 2), (1, 1), (1, 3)}
    small = (0.1, 3.1, 0.4, 3.4)  # 0.1 m from the next cells, 0.141 m from those across a corner
    assert hazards_of(load(path, hazards=[small], robot_radius=0.09)) == {(1, 2)}
    assert hazards_of(load(path, hazards=[small], robot_radius=0.12)) == beside
    across = {(0, 1), (0, 3), (2, 1), (2, 3)}
    assert hazards_of(load(path, hazards=[small], robot_radius=0.15)) == beside | across


def test_hazards_end_the_episode(tmp_path):
    sim = load(written(tmp_path), hazards=[(-0.25, 2.25, 0.1)], hazard_reward=-4.0)
    trap = sim.states.index((-0.25, 2.25))
    assert sim.reward[sim.start, 1] == -4.0
    assert (sim.successor[trap] == trap).all()
    assert not sim.reward[trap].any()


def test_the_robust_plan_keeps_clear_of_a_hazard(tmp_path):
    pixels = np.full((7, 15), OPEN, dtype=np.uint8)
    path = written(tmp_path, pixels, resolution="1.0", origin="[0, 0, 0]")
    sim = load(path, start=(0.5, 3.5), goal=(14.5, 3.5), hazards=[(4, 4, 11, 5)], horizon=60)

    def nearest(eta):
        return min(abs(4.5 - s.state[1]) for s in robust_dp(sim, eta=eta).route()
                   if 4 <= s.state[0] <= 11)  # fmt: skip

    assert nearest(0.0) == 1.0
    assert nearest(0.1) >= 2.0


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize("key", ["image", "resolution", "origin", "occupied_thresh", "free_thresh",
                                 "negate"])  # fmt: skip
def test_a_missing_key_is_named(tmp_path, key):
    path = written(tmp_path)
    path.write_text("\n".join(x for x in path.read_text().split("\n") if not x.startswith(key)))
    with pytest.raises(MapError, match=rf"map\.yaml: lacks the key '{key}'; a map has image"):
        load(path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"resolution": "wide"}, "resolution is 'wide', not a number"),
        ({"resolution": "-0.1"}, "resolution -0.1 is not a positive number of metres"),
        ({"resolution": ".nan"}, "resolution is nan, not a number"),
        ({"resolution": "true"}, "resolution is True, not a number"),
        ({"origin": "3"}, "origin is 3; it should be [x, y, yaw]"),
        ({"origin": "[1, x, 0]"}, "origin y is 'x', not a number"),
        ({"origin": "[1, 2, 0.3]"}, "origin has yaw 0.3; rotate the image"),
        ({"negate": "2"}, "negate is 2; it is 0 or 1"),
        ({"occupied_thresh": "0.1"}, "free_thresh 0.196 and occupied_thresh 0.1 should be"),
        ({"occupied_thresh": "65"}, "free_thresh 0.196 and occupied_thresh 65 should be"),
        ({"mode": "raw"}, "mode 'raw' cannot be read"),
        ({"image": "[a]"}, "image is ['a']; it should be the name of a file"),
        ({"image": "a.pgm"}, "is not at"),
    ],
)
def test_bad_fields_are_named(tmp_path, fields, message):
    image = Image.fromarray(ROOM)
    image.save(tmp_path / "map.pgm")
    with pytest.raises(MapError, match=re.escape(message)):
        load(written(tmp_path, None, **fields))


def test_a_missing_image_is_named(tmp_path):
    with pytest.raises(MapError, match=r"map\.yaml: its image 'map\.pgm' is not at .*map\.pgm"):
        load(written(tmp_path, None))
    with pytest.raises(MapError, match=r"nowhere\.yaml: no such file"):
        load(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize("kind", ["JPEG", "GIF", "BMP"])
def test_other_kinds_of_image_are_refused(tmp_path, kind):
    Image.fromarray(ROOM).save(tmp_path / "map.pgm", format=kind)
    with pytest.raises(MapError, match=r"map\.pgm: neither a PGM nor a PNG image"):
        load(written(tmp_path, None))


def test_damaged_files_are_refused(tmp_path):
    path = written(tmp_path)
    data = (tmp_path / "map.pgm").read_bytes()
    (tmp_path / "map.pgm").write_bytes(data[:-5])
    with pytest.raises(MapError, match=r"map\.pgm: a damaged image"):
        load(path)
    (tmp_path / "map.pgm").write_bytes(b"not an image")
    with pytest.raises(MapError, match="neither a PGM nor a PNG"):
        load(path)
    for text in ("image: [", "[1, 2]", "", "!!python/object/apply:os.system ['true']", "a" * 99999):
        path.write_text(text)
        with pytest.raises(MapError, match=r"map\.yaml: "):
            load(path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"start": (0.25, 3.25)}, "start: (0.25, 3.25) lies in a wall or within the robot's radius "
         "of one; the nearest free cell is at (0.25, 3.75)"),
        ({"start": (-0.75, 3.75)}, "start: (-0.75, 3.75) lies in unknown territory; the nearest"),
        ({"goal": (0.25, 3.25)}, "goal: (0.25, 3.25) lies in a wall"),
        ({"start": (-1.1, 2.0)}, "start: (-1.1, 2.0) lies outside the map, whose x runs -1 … 2 "
         "and y 2 … 4 (metres)"),
        ({"goal": (0.0, 4.0)}, "goal: (0.0, 4.0) lies outside the map"),
        ({"goal": (-0.6, 2.4)}, "goal: (-0.6, 2.4) lies in the cell of the start, (-0.75, 2.25)"),
        ({"start": (1,)}, "start: (1,) is neither (x, y) nor (x, y, heading)"),
        ({"start": "here"}, "start: 'here' is neither (x, y) nor (x, y, heading)"),
        ({"start": ("a", 2)}, "start: 'a' is not a number of metres"),
        ({"start": (0, 2, "up")}, "heading: 'up' is none of N, E, S, W"),
        ({"goal": (1, 2, 3)}, "goal: (1, 2, 3) is neither a point (x, y) nor several of them"),
        ({"goal": (float("nan"), 2)}, "goal: nan is not a number of metres"),
        ({"hazards": [(1, 2)]}, "hazards: (1, 2) is neither a circle (x, y, radius) nor a rect"),
        ({"hazards": [(-0.75, 2.25, 0.1)]}, "start: (-0.75, 2.25) lies in a hazard"),
        ({"hazards": [(1.75, 3.75, 0.1)]}, "goal: (1.75, 3.75) lies in a hazard"),
        ({"cell_size": 0.1}, "cell_size: 0.1 m is less than a pixel of the map, 0.5 m"),
        ({"cell_size": -1.0}, "cell_size: -1 m is less than a pixel of the map"),
        ({"cell_size": float("inf")}, "cell_size: inf m is less than a pixel of the map, 0.5"),
        ({"headings": 6}, "headings: 6 is neither 4 nor 8"),
        ({"headings": 8}, "headings: 8 with 'compass' moves; there are 4, or 8 with moves that"),
        ({"robot_radius": -1.0}, "robot_radius: -1.0 is below 0"),
        ({"robot_radius": 9.0}, "start: (-0.75, 2.25) lies in a wall or within the robot's radius "
         "of one; the map has no free cell (is the robot's radius too large?)"),
        ({"unknown": "maybe"}, "unknown: 'maybe' is neither 'wall' nor 'free'"),
        ({"moves": "swim"}, "moves: 'swim' is none of 'compass', 'turn', 'drive'"),
        ({"horizon": -1}, "horizon: -1 is below 1"),
    ],
)  # fmt: skip
def test_bad_places_and_options_are_named(tmp_path, options, message):
    pixels = ROOM.copy()
    pixels[1, 2], pixels[0, 0] = BLOCKED, GREY
    with pytest.raises(SimulatorError, match="^" + re.escape(message)):
        load(written(tmp_path, pixels), **options)


# ---------------------------------------------------------------- size


def test_a_large_map_holds_only_what_the_horizon_reaches(tmp_path):
    """In an open field the states are the diamond |x| + |y| ≤ H: 2H(H + 1) + 1 cells."""
    pixels = np.full((1000, 1000), OPEN, dtype=np.uint8)
    path = written(tmp_path, pixels, resolution="0.05", origin="[0, 0, 0]")
    sim = load(path, start=(25.01, 25.01), goal=(29.01, 28.51), horizon=200)
    behind = 50  # a goal absorbs, so the few cells in its shadow take longer
    assert 2 * 200 * 201 + 1 - behind <= sim.num_states <= 2 * 200 * 201 + 1
    plan = robust_dp(sim, eta=0.0)
    assert plan.start_value == pytest.approx(1 - 0.01 * 149)
    assert robust_dp(sim, eta=0.1).start_value < plan.start_value
