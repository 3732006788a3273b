"""How Gymnasium observations become what a learner sees: pictures, or flat vectors of numbers.

A picture is uint8 [rows, columns, channels] and stays one. Everything else becomes one float32
vector: boxes are flattened, Discrete, MultiDiscrete and MultiBinary are one-hot, Dict and Tuple are
put one after the other in Gymnasium's order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray
from PIL import Image

from tasid.maps.size import is_whole

SMALLEST_PICTURE = 20
"""Rows and columns below this are no picture for convolutions: such boxes become vectors."""
MOST_NUMBERS = 1 << 20
"""Of a vector; one-hot vectors of large Discrete spaces have more and would take all memory."""
MOST_PIXELS = 1 << 24
_CHANNELS = (1, 3, 4)


class ObservationError(ValueError):
    """An observation that is not what its environment's space promised."""


@dataclass(frozen=True, eq=False)
class Encoding:
    """A function from raw observations to arrays of one shape and dtype."""

    space: Space[Any]
    """Where raw observations come from, after `preprocess`."""
    shape: tuple[int, ...]
    dtype: str
    preprocess: Callable[[Any], Any] | None = None
    resize: tuple[int, int] | None = None

    def __call__(self, raw: Any) -> NDArray[Any]:
        """One observation as the learner sees it; an `ObservationError` if it cannot be."""
        if self.preprocess is not None:
            raw = np.asarray(self.preprocess(raw))
        refuse_other(self.space, raw)
        if len(self.shape) == 3:
            return _picture(np.asarray(raw), self.space, self.resize)
        with np.errstate(over="ignore"):  # what float32 cannot hold is refused below
            flat = np.asarray(spaces.flatten(self.space, raw)).astype(np.float32)
        refuse_infinite(flat)
        return flat


def refuse_other(space: Space[Any], raw: Any) -> None:
    """Refuse an observation that is not one of its space."""
    trouble = _trouble(space, raw, "observation")
    if trouble is not None:
        raise ObservationError(trouble)


def refuse_infinite(flat: NDArray[Any]) -> None:
    """Refuse numbers that are not finite."""
    if not np.isfinite(flat).all():
        where = int(np.flatnonzero(~np.isfinite(flat))[0])
        raise ObservationError(f"observation: {flat[where]} at place {where}; not finite")


def encoding_of(
    space: Space[Any],
    *,
    preprocess: Callable[[Any], Any] | None = None,
    resize: int | tuple[int, int] | None = None,
) -> Encoding:
    """The encoding for a space; `preprocess` has been applied to what the space describes."""
    size = _size(resize)
    picture = _picture_shape(space)
    if picture is not None:
        rows, columns = picture[:2] if size is None else size
        if rows * columns * picture[2] > MOST_PIXELS:
            raise ValueError(
                f"env: pictures of {rows} × {columns} × {picture[2]} have more than {MOST_PIXELS} "
                "numbers; make them smaller with resize="
            )
        if min(rows, columns) >= SMALLEST_PICTURE:
            return Encoding(space, (rows, columns, picture[2]), "uint8", preprocess, size)
    if size is not None:
        raise ValueError(
            f"resize: {resize!r}, but observations ({space}) would be no pictures of at least "
            f"{SMALLEST_PICTURE} × {SMALLEST_PICTURE} pixels; render them with observe='render'?"
        )
    parts = ", ".join(_no_numbers(space, "observation"))
    if parts:
        raise ValueError(
            f"env: {parts}; such observations have no fixed size, so make an array of one shape of "
            'them with preprocess=, for instance preprocess=lambda seen: seen["image"], or take '
            'the rendered picture with observe="render"'
        )
    length = int(spaces.flatdim(space))
    if length > MOST_NUMBERS:
        raise ValueError(
            f"env: observations of {_cut(str(space))} would be vectors of {length} numbers, "
            f"more than {MOST_NUMBERS}; make them fewer with preprocess="
        )
    return Encoding(space, (length,), "float32", preprocess)


def _no_numbers(space: Space[Any], where: str) -> Iterator[str]:
    """The parts of a space that cannot be flattened."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        for name, part in _parts(space).items():
            yield from _no_numbers(part, f"{where}[{name!r}]")
    else:
        try:
            flat = space.is_np_flattenable and spaces.flatdim(space) >= 0
        except NotImplementedError:  # a space of somebody's own
            flat = False
        if not flat:
            yield f"{where} is of {type(space).__name__}"


def _parts(space: spaces.Dict | spaces.Tuple[Any]) -> dict[Any, Space[Any]]:
    """By name, or by place."""
    return dict(space.spaces if isinstance(space, spaces.Dict) else enumerate(space.spaces))


def space_of(sample: Any, name: str) -> spaces.Box:
    """The space of an array that no environment declared: of a rendering, or preprocessed."""
    array = np.asarray(sample)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{name}: gave {type(sample).__name__} ({array.dtype}), not numbers")
    if array.dtype == np.uint8:
        return spaces.Box(0, 255, array.shape, np.uint8)
    dtype = np.float64 if array.dtype.kind == "f" else np.int64
    low, high = (-np.inf, np.inf) if dtype is np.float64 else (-(1 << 62), 1 << 62)
    return spaces.Box(low, high, array.shape, dtype)


def _size(resize: Any) -> tuple[int, int] | None:
    if resize is None:
        return None
    pair = resize if isinstance(resize, (tuple, list)) else (resize, resize)
    if len(pair) != 2 or not all(map(is_whole, pair)) or min(pair) < 1:
        raise ValueError(f"resize: {resize!r} is neither a number of pixels nor (rows, columns)")
    return int(pair[0]), int(pair[1])


def _picture_shape(space: Space[Any]) -> tuple[int, int, int] | None:
    """[rows, columns, channels] if the space holds pictures: bytes, or numbers from 0 to 1."""
    if not isinstance(space, spaces.Box) or len(space.shape) not in (2, 3):
        return None
    unit = bool((space.low == 0).all() and (space.high == 1).all())
    if space.dtype != np.uint8 and not (unit and np.dtype(space.dtype).kind == "f"):
        return None
    if len(space.shape) == 2:
        return (*space.shape, 1)
    first, middle, last = space.shape
    if last in _CHANNELS:
        return (first, middle, last)
    return (middle, last, first) if first in _CHANNELS else None


def _picture(raw: NDArray[Any], space: Space[Any], size: tuple[int, int] | None) -> NDArray[Any]:
    if raw.dtype.kind == "f":
        if not np.isfinite(raw).all():
            raise ObservationError("observation: a picture with pixels that are not finite")
        raw = np.rint(255 * np.clip(raw, 0, 1))
    picture = raw.astype(np.uint8)
    if picture.ndim == 2:
        picture = picture[:, :, None]
    elif picture.shape[-1] not in _CHANNELS:
        picture = np.moveaxis(picture, 0, -1)
    if size is None or size == picture.shape[:2]:
        return picture
    channels = [
        Image.fromarray(picture[:, :, c]).resize(size[::-1], Image.Resampling.BOX)
        for c in range(picture.shape[2])
    ]
    return np.stack([np.asarray(channel) for channel in channels], axis=-1)


def _trouble(space: Space[Any], raw: Any, where: str) -> str | None:
    """What keeps an observation from being one of its space; bounds are not looked at."""
    named, listed = hasattr(raw, "keys"), isinstance(raw, (tuple, list))
    if isinstance(space, spaces.Dict) and not (named and set(raw.keys()) == set(space.spaces)):
        return f"{where}: {_shown(raw)}, not a mapping with the keys {list(space.spaces)}"
    if isinstance(space, spaces.Tuple) and not (listed and len(raw) == len(space.spaces)):
        return f"{where}: {_shown(raw)}, not {len(space.spaces)} parts"
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        parts = _parts(space).items()
        troubles = (_trouble(part, raw[name], f"{where}[{name!r}]") for name, part in parts)
        return next((trouble for trouble in troubles if trouble is not None), None)
    if not isinstance(space, spaces.Box):
        number = isinstance(space, spaces.Discrete) and np.ndim(raw) == 0
        value = raw.item() if number and isinstance(raw, np.ndarray) else raw
        return None if space.contains(value) else f"{where}: {_shown(raw)} is not in {space}"
    array = np.asarray(raw)
    if array.shape != space.shape:
        return f"{where}: shape {array.shape}, but the environment's space has {space.shape}"
    if not np.can_cast(array.dtype, np.dtype(space.dtype), "same_kind"):
        return f"{where}: dtype {array.dtype}, but the environment's space has {space.dtype}"
    return None


def _shown(raw: Any) -> str:
    return _cut(f"{type(raw).__name__} {raw!r}".replace("\n", " "))


def _cut(text: str) -> str:
    return text if len(text) < 80 else text[:77] + "..."
