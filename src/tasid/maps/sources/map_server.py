"""Reading the two files of a ROS map_server map: a flat YAML and a grey image.

A pixel of value v is occupied with p = (255 − v)/255, or v/255 with `negate`; it is a wall if
p > occupied_thresh, free if p < free_thresh, and otherwise unknown.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from tasid.maps.layout import FREE, UNKNOWN, WALL
from tasid.maps.size import MapError, finite

_NEEDED = ("image", "resolution", "origin", "occupied_thresh", "free_thresh", "negate")
_MOST_YAML_BYTES = 2**16
_LONGEST_NAME = 1024
_FORMATS = ("PPM", "PNG")
"""Pillow's names; its PPM reads PGM too."""


class _Plain(yaml.SafeLoader):  # type: ignore[misc]
    """YAML without aliases: nested in one another, a few lines of them stand for gigabytes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.composer.ComposerError(
                None, None, "aliases (*name) have no place in a map", mark
            )
        return super().compose_node(parent, index)


@dataclass(frozen=True, eq=False)
class OccupancyMap:
    """FREE, WALL or UNKNOWN for every pixel, row 0 on top, and where the pixels lie in metres."""

    pixels: NDArray[np.uint8]
    resolution: float
    corner: tuple[float, float]
    """x and y of the lower left corner."""


def read_map(path: str | Path) -> OccupancyMap:
    """Read a map's YAML and the image it names, which is looked for beside it."""
    file = Path(path)
    fields = _fields(file)
    missing = [name for name in _NEEDED if fields.get(name) is None]
    if missing:
        raise MapError(
            f"{file}: lacks the key {missing[0]!r}; a map has {', '.join(_NEEDED)} and mode"
        )
    mode = fields.get("mode", "trinary")
    if mode not in ("trinary", "scale"):  # they differ in shades of unknown only
        raise MapError(f"{file}: mode {mode!r} cannot be read; 'trinary' and 'scale' can")
    resolution = _number(file, fields, "resolution")
    occupied, free = (_number(file, fields, name) for name in ("occupied_thresh", "free_thresh"))
    if not resolution > 0:
        raise MapError(f"{file}: resolution {resolution:g} is not a positive number of metres")
    if not 0 <= free <= occupied <= 1:
        raise MapError(
            f"{file}: free_thresh {free:g} and occupied_thresh {occupied:g} should be "
            "0 ≤ free_thresh ≤ occupied_thresh ≤ 1"
        )
    if fields["negate"] not in (0, 1):
        raise MapError(f"{file}: negate is {fields['negate']!r}; it is 0 or 1")
    x, y = _corner(file, fields["origin"])
    value, seen = _image(file, fields["image"])
    p = value / 255.0 if fields["negate"] else (255.0 - value) / 255.0
    known = np.select([p > occupied, p < free], [WALL, FREE], UNKNOWN)
    pixels = np.where(seen, known, UNKNOWN).astype(np.uint8)
    return OccupancyMap(pixels, resolution, (x, y))


def _fields(file: Path) -> dict[str, Any]:
    if not file.is_file():
        raise MapError(f"{file}: no such file")
    data = file.read_bytes()
    if len(data) > _MOST_YAML_BYTES:
        raise MapError(f"{file}: {len(data)} bytes are no map_server YAML; give the .yaml file")
    try:
        fields = yaml.load(data, _Plain)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise MapError(f"{file}: not YAML ({' '.join(str(error).split())})") from None
    if not isinstance(fields, dict):
        raise MapError(f"{file}: holds no keys; a map has {', '.join(_NEEDED)}")
    return fields


def _number(file: Path, fields: dict[str, Any], name: str) -> float:
    given = fields[name]
    number = math.nan if isinstance(given, bool) else finite(given)  # YAML 1.1 reads 5e-2 as text
    if math.isnan(number):
        raise MapError(f"{file}: {name} is {given!r}, not a number")
    return number


def _corner(file: Path, origin: Any) -> tuple[float, float]:
    if not isinstance(origin, list) or len(origin) not in (2, 3):
        raise MapError(f"{file}: origin is {origin!r}; it should be [x, y, yaw]")
    named = dict(zip(("origin x", "origin y", "origin yaw"), [*origin, 0.0], strict=False))
    x, y, yaw = (_number(file, named, name) for name in named)
    if abs(yaw) > 1e-9:
        raise MapError(f"{file}: origin has yaw {yaw:g}; rotate the image and write 0 instead")
    return x, y


def _image(file: Path, name: Any) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Grey values 0 … 255 and which pixels are opaque."""
    if not isinstance(name, str) or len(name) > _LONGEST_NAME:
        raise MapError(f"{file}: image is {name!r:.80}; it should be the name of a file")
    path = file.parent / name
    if not path.is_file():
        raise MapError(f"{file}: its image {name!r} is not at {path}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=_FORMATS) as image:
                return _grey(image)
    except UnidentifiedImageError:
        raise MapError(f"{path}: neither a PGM nor a PNG image") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise MapError(f"{path}: too large an image ({error})") from None
    except (OSError, ValueError, SyntaxError) as error:
        raise MapError(f"{path}: a damaged image ({error})") from None


def _grey(image: Image.Image) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    if image.mode.startswith("I"):  # 16 bits
        value = np.asarray(image, dtype=np.float64) / 257.0
        return value, np.ones(value.shape, dtype=bool)
    colours = np.asarray(image.convert("RGBA"), dtype=np.float64)
    return colours[..., :3].mean(axis=-1), colours[..., 3] > 0
