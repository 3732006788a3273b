"""A part of the shipped office floor, twice: as a ROS map for the planner, as a level for Doom.

A level is a WAD file: a header, lumps, and a directory of them. The lump TEXTMAP holds vertices,
lines, their sides and the sectors between them, as text (UDMF). Lines run where the map's pixels
change from one kind to another, the kind of higher number on their right.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tasid.maps.layout import FREE
from tasid.targets.worlds.building.floor import RESOLUTION, office_floor

WEST, EAST = 40.0, 60.0
"""The part, in metres along the floor: dock, lobby with its stairs, goal room, a way around."""
UNITS = 3
"""Of the engine, per pixel of 5 cm: a wall of 128 is 2.1 m high, the eye at 0.7 m."""
PANEL = 40
"""Pixels after which a long wall changes its look."""
WALLS = tuple(
    "ASHWALL2 BIGBRIK1 BRICK1 BRICK7 BRONZE1 BROWN1 CEMENT1 COMPBLUE CRATE2 GRAY1 GSTONE1 "
    "ICKWALL3 MARBLE1 METAL2 PANEL4 PIPE2 REDWALL ROCKRED1 SILVER1 SPACEW2 STARTAN2 STONE2 STUCCO1 "
    "TANROCK2 TEKGREN2 WOOD1 ZIMMER5".split()
)
SOLID, ROOM, STAIRS = range(3)
"""What a pixel is; the sectors are rooms and stairs, from 0."""
SECTORS = (("FLOOR0_1", "CEIL3_5", 176), ("FLOOR1_6", "CEIL5_1", 224))
"""Floor, ceiling and light of each; nothing that moves, so that a place always looks the same."""
Line = tuple[tuple[int, int], tuple[int, int], int, int]
"""From and to, in pixels east and north; what is on its right, what on its left."""


@dataclass(frozen=True, eq=False)
class Part:
    """What stands where; metres are those of the whole floor."""

    kinds: NDArray[np.int8]
    """Of every pixel, from the south-west corner north and east."""
    dock: tuple[float, float, str]
    goal: tuple[float, float]
    hazards: tuple[tuple[float, float, float, float], ...]


def part_of_the_floor() -> Part:
    """The floor between WEST and EAST; what leads out of it ends in a wall."""
    floor = office_floor()
    free = floor.picture.pixels[::-1] == FREE
    kinds = np.where(free, ROOM, SOLID).astype(np.int8)
    for zone in floor.hazards:
        west, south, east, north = (round(edge / RESOLUTION) for edge in zone)
        inside = kinds[south:north, west:east]
        inside[inside == ROOM] = STAIRS
    kept = kinds[:, round(WEST / RESOLUTION) : round(EAST / RESOLUTION)]
    return Part(kept, floor.docks[0], floor.goals[0], floor.hazards)


def write_map(part: Part, folder: Path) -> Path:
    """The two files of `map_server`."""
    grey = np.where(part.kinds == SOLID, 0, 254).astype(np.uint8)
    Image.fromarray(grey[::-1]).save(folder / "part.pgm")
    path = folder / "part.yaml"
    path.write_text(
        f"image: part.pgm\nresolution: {RESOLUTION}\norigin: [{WEST}, 0.0, 0.0]\nnegate: 0\n"
        "occupied_thresh: 0.65\nfree_thresh: 0.196\n"
    )
    return path


def write_level(part: Part, path: Path) -> Path:
    """The WAD of the part, with a single map, MAP01."""
    text = "\n".join(_blocks(part)).encode("ascii")
    path.write_bytes(wad([("MAP01", b""), ("TEXTMAP", text), ("ENDMAP", b"")]))
    return path


def wad(lumps: list[tuple[str, bytes]]) -> bytes:
    """Header, lumps, directory."""
    body, directory, at = b"", b"", 12
    for name, data in lumps:
        directory += struct.pack("<ii8s", at, len(data), name.encode("ascii"))
        body, at = body + data, at + len(data)
    return struct.pack("<4sii", b"PWAD", len(lumps), at) + body + directory


def to_level(x: float, y: float) -> tuple[float, float]:
    """Metres of the floor as units of the level."""
    return (x - WEST) / RESOLUTION * UNITS, y / RESOLUTION * UNITS


def lines_of(kinds: NDArray[np.int8]) -> Iterator[Line]:
    """All borders between pixels of different kinds, as long as they can be up to a panel."""
    around = np.pad(kinds, 1)
    rows, columns = around.shape
    for n in range(1, rows):  # between row n−1 and row n, from west to east
        for begin, end, above, below in _runs(around[n], around[n - 1]):
            yield _turned((begin - 1, n - 1), (end - 1, n - 1), below, above)
    for n in range(1, columns):  # from south to north
        for begin, end, west, east in _runs(around[:, n - 1], around[:, n]):
            yield _turned((n - 1, begin - 1), (n - 1, end - 1), east, west)


def _runs(one: NDArray[np.int8], other: NDArray[np.int8]) -> Iterator[tuple[int, int, int, int]]:
    """Where two rows of pixels differ: from, to, and the kinds on both sides."""
    pairs = np.stack([one, other], axis=1)
    places = np.arange(1, len(pairs))
    cuts = places[(pairs[1:] != pairs[:-1]).any(axis=1) | ((places - 1) % PANEL == 0)]
    edges = [0, *cuts.tolist(), len(pairs)]
    for begin, end in pairwise(edges):
        a, b = pairs[begin].tolist()
        if a != b:
            yield begin, end, a, b


def _turned(a: tuple[int, int], b: tuple[int, int], right: int, left: int) -> Line:
    """With the higher kind on its right: a line's front side must have a sector."""
    return (a, b, right, left) if right > left else (b, a, left, right)


def _blocks(part: Part) -> Iterator[str]:
    """The text of the map, block by block."""
    yield 'namespace = "ZDoom";'
    x, y = to_level(*part.dock[:2])
    yield f"thing {{ x = {x:.1f}; y = {y:.1f}; type = 1; single = true; skill3 = true; }}"
    lines = list(lines_of(part.kinds))
    corners = sorted({corner for a, b, *_ in lines for corner in (a, b)})
    number = {corner: n for n, corner in enumerate(corners)}
    for column, row in corners:
        yield f"vertex {{ x = {column * UNITS}; y = {row * UNITS}; }}"
    sides = 0
    for a, b, right, left in lines:
        ends = f"v1 = {number[a]}; v2 = {number[b]}; sidefront = {sides};"
        if left == SOLID:
            yield f"linedef {{ {ends} blocking = true; }}"
            wall = WALLS[zlib.crc32(repr((a, b)).encode()) % len(WALLS)]
            yield f'sidedef {{ sector = {right - 1}; texturemiddle = "{wall}"; }}'
            sides += 1
        else:
            yield f"linedef {{ {ends} sideback = {sides + 1}; twosided = true; }}"
            yield f"sidedef {{ sector = {right - 1}; }}"
            yield f"sidedef {{ sector = {left - 1}; }}"
            sides += 2
    for floor, ceiling, light in SECTORS:
        yield (
            f'sector {{ texturefloor = "{floor}"; textureceiling = "{ceiling}"; '
            f"heightceiling = 128; lightlevel = {light}; }}"
        )
