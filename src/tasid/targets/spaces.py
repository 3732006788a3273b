"""Observations of Gymnasium spaces as arrays of one shape: pictures, or vectors of numbers.

A picture is uint8 [rows, columns, channels]. Everything else becomes one float32 vector: boxes are
flattened, Discrete and MultiDiscrete spaces are one-hot, the parts of Dict and Tuple spaces follow
each other in Gymnasium's order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import Space, spaces
from numpy.typing import NDArray

MIN_PICTURE = 20
"""Boxes of bytes with fewer rows or columns, say Minigrid's 7 × 7 × 3, are vectors."""
MAX_ENTRIES = 1 << 24
"""Largest observation: one-hot vectors of large spaces would take all memory."""
CHANNELS = (1, 3, 4)


class ObservationError(ValueError):
    """An observation that is not in its environment's space."""


@dataclass(frozen=True, eq=False)
class Encoder:
    """Maps raw observations to arrays."""

    space: Space[Any]
    """Space of raw observations, after `preprocess`."""
    shape: tuple[int, ...]
    dtype: str
    """uint8 for pictures, float32 for vectors."""
    preprocess: Callable[[Any], Any] | None = None
    """Applied to the raw observation first."""
    resize: tuple[int, int] | None = None
    """Rows and columns to which pictures are scaled by averaging."""

    def __call__(self, raw: Any) -> NDArray[Any]:
        if self.preprocess is not None:
            raw = np.asarray(self.preprocess(raw))
        with np.errstate(over="ignore"):  # what float32 cannot hold is refused below
            leaves = [leaf.astype(np.float32) for leaf in _leaves(self.space, raw)]
        flat = np.concatenate(leaves)
        if not np.isfinite(flat).all():
            place = int(np.argmin(np.isfinite(flat)))
            raise ObservationError(f"observation: {flat[place]} at place {place} is not finite")
        return self._picture(np.asarray(raw)) if len(self.shape) == 3 else flat

    def _picture(self, raw: NDArray[Any]) -> NDArray[np.uint8]:
        if raw.dtype.kind == "f":
            raw = np.rint(255 * np.clip(raw, 0, 1))
        picture = raw.astype(np.uint8)
        if picture.ndim == 2:
            picture = picture[:, :, None]
        elif picture.shape[-1] not in CHANNELS:
            picture = np.moveaxis(picture, 0, -1)
        if self.resize is None or self.resize == picture.shape[:2]:
            return picture
        from PIL import Image

        channels = (Image.fromarray(channel) for channel in np.moveaxis(picture, -1, 0))
        small = (channel.resize(self.resize[::-1], Image.Resampling.BOX) for channel in channels)
        return np.stack([np.asarray(channel) for channel in small], axis=-1)


def encoder(
    space: Space[Any],
    *,
    preprocess: Callable[[Any], Any] | None = None,
    resize: int | Sequence[int] | None = None,
) -> Encoder:
    """The encoder of a space; `preprocess` has been applied to what the space describes."""
    size: Any = (resize, resize) if isinstance(resize, int) else resize and tuple(resize)
    if size is not None and (len(size) != 2 or min(size) < MIN_PICTURE):
        raise ValueError(
            f"resize: {resize!r} is neither a number of pixels nor (rows, columns), {MIN_PICTURE} "
            "or more"
        )
    picture = _picture_shape(space)
    if picture is not None and min(picture[:2]) >= MIN_PICTURE:
        shape: tuple[int, ...] = (*(size or picture[:2]), picture[2])
    elif size is not None:
        raise ValueError(
            f"resize: {resize!r}, but observations ({space}) are not pictures of at least "
            f"{MIN_PICTURE} × {MIN_PICTURE} pixels; render them with observe='render'?"
        )
    else:
        shape = (_flat_size(space),)
    if np.prod(shape) > MAX_ENTRIES:
        raise ValueError(
            f"env: observations of shape {shape} have more than {MAX_ENTRIES} entries; reduce them "
            "with resize= or preprocess="
        )
    return Encoder(space, shape, "uint8" if len(shape) == 3 else "float32", preprocess, size)


def sample_space(sample: Any, argument: str) -> spaces.Box:
    """The space of an array that the environment does not declare: rendered or preprocessed."""
    array = np.asarray(sample)
    if array.dtype.kind not in "biuf":
        raise TypeError(f"{argument}: gave {type(sample).__name__} ({array.dtype}), not numbers")
    if array.dtype == np.uint8:
        return spaces.Box(0, 255, array.shape, np.uint8)
    return spaces.Box(-np.inf, np.inf, array.shape, np.float64)


def _picture_shape(space: Space[Any]) -> tuple[int, int, int] | None:
    """(rows, columns, channels) of spaces of pictures: bytes, or floats from 0 to 1."""
    if not isinstance(space, spaces.Box) or len(space.shape) not in (2, 3):
        return None
    unit = bool((space.low == 0).all() and (space.high == 1).all())
    if space.dtype != np.uint8 and not (unit and np.dtype(space.dtype).kind == "f"):
        return None
    first, middle, last = (*space.shape, 1)[:3]
    if last in CHANNELS:
        return first, middle, last
    return (middle, last, first) if first in CHANNELS else None


def _flat_size(space: Space[Any]) -> int:
    try:
        if space.is_np_flattenable:
            return int(spaces.flatdim(space))
    except NotImplementedError:  # spaces that Gymnasium does not know
        pass
    raise ValueError(
        f"env: observations of {space!s:.200} have no fixed size; make arrays of one shape of "
        'them, for instance with preprocess=lambda raw: raw["image"], or take pictures with '
        'observe="render"'
    )


def _leaves(space: Space[Any], raw: Any) -> Iterator[NDArray[Any]]:
    """Flat arrays of the parts of an observation; bounds of boxes are not checked."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts: Any = space.spaces
        for name in parts if isinstance(parts, dict) else range(len(parts)):
            try:
                part = raw[name]
            except (KeyError, IndexError, TypeError):
                raise ObservationError(f"observation: {raw!r:.80} has no part {name!r}") from None
            yield from _leaves(parts[name], part)
    elif isinstance(space, spaces.Box):
        array = np.asarray(raw)
        if array.shape != space.shape or not np.can_cast(array.dtype, space.dtype, "same_kind"):
            raise ObservationError(
                f"observation: {array.dtype} of shape {array.shape}, but the environment's space "
                f"has {space.dtype} of shape {space.shape}"
            )
        yield array.ravel()
    else:
        value = raw.item() if isinstance(raw, np.ndarray) and raw.ndim == 0 else raw
        if not space.contains(value):
            raise ObservationError(f"observation: {raw!r:.80} is not in {space}")
        yield np.asarray(spaces.flatten(space, value))
