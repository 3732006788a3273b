"""Observations of any Gymnasium space become vectors or pictures, or a clear refusal."""

from __future__ import annotations

from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import tasid
from tasid.targets.gym.spaces import ObservationError, encoding_of, space_of


def box(*shape, low=-np.inf, high=np.inf, dtype=np.float32):
    return spaces.Box(low, high, shape, dtype)


@pytest.mark.parametrize(
    ("space", "raw", "seen"),
    [
        (box(2, 2), [[1, 2], [3, 4]], [1, 2, 3, 4]),
        (box(), 2.5, [2.5]),
        (box(2, dtype=np.int64, low=-9, high=9), np.array([-3, 9]), [-3, 9]),
        (box(7, 1, low=0, high=10, dtype=np.uint8), np.full((7, 1), 4, np.uint8), [4] * 7),
        (spaces.Discrete(3), 1, [0, 1, 0]),
        (spaces.Discrete(3, start=5), np.int64(7), [0, 0, 1]),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 0]), [0, 1, 1, 0, 0]),
        (spaces.MultiBinary(3), np.array([1, 0, 1], np.int8), [1, 0, 1]),
        (
            spaces.Tuple([spaces.Discrete(2), box(1)]),
            (1, np.array([0.5], np.float32)),
            [0, 1, 0.5],
        ),
        (
            spaces.Dict(b=box(1), a=spaces.Dict(c=spaces.Discrete(2))),
            {"b": [3.0], "a": {"c": 0}},
            [3, 1, 0],
        ),
    ],
)
def test_what_is_no_picture_becomes_one_vector(space, raw, seen):
    encode = encoding_of(space)
    assert encode.shape == (len(seen),)
    assert encode.dtype == "float32"
    result = encode(raw)
    assert result.dtype == np.float32
    assert result.tolist() == seen


def test_every_sample_of_every_kind_fits_and_none_are_confused():
    space = spaces.Dict(
        pair=spaces.Tuple([spaces.Discrete(3, start=-1), spaces.MultiDiscrete([2, 2])]),
        bits=spaces.MultiBinary([2, 2]),
        where=box(3, low=-1, high=1),
    )
    encode = encoding_of(space)
    space.seed(0)
    samples = [space.sample() for _ in range(50)]
    rows = np.stack([encode(sample) for sample in samples])
    assert rows.shape == (50, 3 + 4 + 4 + 3)
    assert len(np.unique(rows, axis=0)) == 50


def picture(*shape):
    return np.random.default_rng(0).integers(0, 256, shape, np.uint8)


def test_pictures_stay_bytes_with_channels_last():
    shown = picture(24, 32, 3)
    assert np.array_equal(encoding_of(space_of(shown, "x"))(shown), shown)
    first = np.moveaxis(shown, -1, 0)
    encode = encoding_of(space_of(first, "x"))
    assert encode.shape == (24, 32, 3)
    assert np.array_equal(encode(first), shown)
    grey = encoding_of(space_of(shown[..., 0], "x"))
    assert np.array_equal(grey(shown[..., 0]), shown[..., :1])
    unit = encoding_of(box(24, 32, 3, low=0, high=1))
    assert np.array_equal(unit(shown / np.float32(255)), shown)
    assert unit(shown / np.float32(255)).dtype == np.uint8


def test_resizing_averages():
    shown = np.zeros((40, 80, 3), np.uint8)
    shown[:, 40:] = 200
    encode = encoding_of(space_of(shown, "x"), resize=(20, 40))
    small = encode(shown)
    assert small.shape == encode.shape == (20, 40, 3)
    assert (small[:, :20] == 0).all()
    assert (small[:, 20:] == 200).all()
    checks = (np.indices((40, 40)).sum(axis=0) % 2 * 200).astype(np.uint8)
    assert (encoding_of(space_of(checks, "x"), resize=20)(checks) == 100).all()


def test_small_boxes_of_bytes_are_no_pictures():
    assert encoding_of(box(7, 7, 3, low=0, high=255, dtype=np.uint8)).shape == (147,)


def test_preprocessing_comes_first():
    encode = encoding_of(space_of(np.zeros(2), "x"), preprocess=lambda raw: [raw["a"], -raw["a"]])
    assert encode({"a": 3.0}).tolist() == [3.0, -3.0]


@pytest.mark.parametrize(
    ("space", "raw", "message"),
    [
        (box(2), [1.0, np.nan], "nan at place 1"),
        (box(2), [1.0, np.inf], "inf at place 1"),
        (box(2, dtype=np.float64), [1.0, 1e300], "inf at place 1"),
        (box(2), [1.0, 2.0, 3.0], r"shape \(3,\), but the environment's space has \(2,\)"),
        (box(2), ["a", "b"], "dtype <U1"),
        (box(2, low=0, high=9, dtype=np.uint8), [0.5, 1.0], "dtype float64"),
        (box(24, 24, low=0, high=1), np.full((24, 24), np.nan), "not finite"),
        (spaces.Discrete(3), 3, "is not in Discrete"),
        (spaces.Discrete(3), -1, "is not in Discrete"),
        (spaces.Discrete(3), None, "None is not in Discrete"),
        (spaces.Dict(a=box(1)), {"b": [1.0]}, r"keys \['a'\]"),
        (spaces.Dict(a=box(1)), {"a": [1.0, 2.0]}, r"observation\['a'\]: shape"),
        (spaces.Tuple([box(1)]), ([1.0], [2.0]), "not 1 parts"),
        (spaces.Tuple([spaces.MultiBinary(2)]), ([2, 0],), r"observation\[0\]"),
    ],
)
def test_an_observation_outside_its_space_is_named(space, raw, message):
    with pytest.raises(ObservationError, match=message):
        encoding_of(space)(raw)


@pytest.mark.parametrize(
    ("space", "options", "message"),
    [
        (spaces.Sequence(spaces.Discrete(2)), {}, "of Sequence; .*no fixed size.*preprocess"),
        (box(4), {"resize": 64}, "no pictures"),
        (box(64, 64, 3, low=0, high=255, dtype=np.uint8), {"resize": 0}, "resize: 0"),
        (box(64, 64, 3, low=0, high=255, dtype=np.uint8), {"resize": (1, 2, 3)}, "rows, columns"),
        (box(64, 64, 3, low=0, high=255, dtype=np.uint8), {"resize": 8}, "at least 20"),
    ],
)
def test_what_cannot_be_encoded_is_refused_at_once(space, options, message):
    with pytest.raises(ValueError, match=message):
        encoding_of(space, **options)


def test_preprocessing_must_give_numbers():
    with pytest.raises(TypeError, match="preprocess: gave SimpleNamespace"):
        space_of(SimpleNamespace(), "preprocess")


def test_text_that_nobody_can_flatten_is_named_with_what_to_do():
    """As in Minigrid, whose missions are of a space of its own."""
    pytest.importorskip("minigrid")
    room = "minigrid:MiniGrid-Empty-5x5-v0"
    with pytest.raises(ValueError, match=r"observation\['mission'\] is of MissionSpace") as caught:
        tasid.wrap(lambda: gymnasium.make(room))
    assert "preprocess=" in str(caught.value)
    assert 'observe="render"' in str(caught.value)
    seen = tasid.wrap(lambda: gymnasium.make(room), preprocess=lambda raw: raw["image"])
    assert seen.observation_shape == (7 * 7 * 3,)
