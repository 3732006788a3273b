"""What the plan says one can see, and what that makes one expect of places never seen."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.stats import multivariate_normal

from tasid.beliefs.described import expected, sharpness
from tasid.beliefs.moments import Moments, fit_gaussians
from tasid.maps.layout import FREE, WALL, GridLayout
from tasid.maps.views import FARTHEST, RAYS, views


def _room(rows: int, columns: int, pixels: int = 1) -> GridLayout:
    """A room without furniture, a wall of one cell around it, all poses in it."""
    cells = np.full((rows + 2, columns + 2), WALL, np.uint8)
    cells[1:-1, 1:-1] = FREE
    where = np.argwhere(cells == FREE)
    return GridLayout(
        cells,
        where.repeat(4, axis=0),
        headings=np.tile(np.arange(4), len(where)),
        backdrop=cells.repeat(pixels, axis=0).repeat(pixels, axis=1),
        corner=(0.0, 0.0),
    )


def test_walls_are_as_far_as_they_are() -> None:
    layout = _room(5, 7, pixels=20)
    seen = views(layout)
    assert seen is not None
    row, column = layout.positions.T - 1
    north, east, south, west = row + 0.5, 6.5 - column, 4.5 - row, column + 0.5
    around = np.stack([north, east, south, west])
    for turn in range(4):  # ahead, left, behind, right: a quarter of the rays each
        wall = around[(layout.headings - turn) % 4, np.arange(len(row))]
        assert seen[:, turn * RAYS // 4] == pytest.approx(wall, abs=0.1)


def test_turning_turns_what_is_seen() -> None:
    seen = views(_room(4, 6, pixels=16))
    assert seen is not None
    poses = seen.reshape(-1, 4, RAYS)
    for turn in range(4):
        turned = np.roll(poses[:, 0], turn * RAYS // 4, axis=-1)
        assert poses[:, turn] == pytest.approx(turned, abs=0.15)


def test_thin_walls_stop_a_view_and_long_views_have_an_end() -> None:
    layout = _room(1, 40, pixels=10)
    picture = layout.backdrop
    assert picture is not None
    walled = picture.copy()
    walled[:, 205] = WALL
    seen = views(
        GridLayout(
            layout.cells,
            layout.positions,
            headings=layout.headings,
            backdrop=walled,
            corner=(0.0, 0.0),
        )
    )
    assert seen is not None
    east = seen[1::4, 0]
    assert east[18] == pytest.approx(20.5 - 19.5, abs=0.15)
    assert east[20] == FARTHEST


def test_states_that_look_nowhere_have_no_view() -> None:
    assert views(GridLayout([[FREE, FREE]], [[0, 0], [0, 1]])) is None


def _seen(rng: np.random.Generator, slope: float) -> tuple[np.ndarray, ...]:
    """Classes with a mean that follows from their description, if `slope` is not 0."""
    described = np.column_stack([np.ones(80), rng.normal(size=(80, 4))])
    truth = slope * described[:, 1] + rng.normal(size=80) * 0.3
    counts = rng.integers(0, 6, 80).astype(float)
    counts[40:] = 0
    sums = counts * truth + np.sqrt(counts) * rng.normal(size=80)
    return described, counts, sums, truth


def test_expectations_are_those_of_the_most_probable_gaussian_process() -> None:
    described, counts, sums, _ = _seen(np.random.default_rng(0), slope=2.0)
    spread = 0.09
    mean, variance = expected(described, counts, sums[:, None], np.array([spread]))
    met = counts > 0
    rows, target = described[met], (sums / np.maximum(counts, 1))[met]
    noise = np.diag(spread + 1 / counts[met])

    def unlikely(log_strength: float) -> float:
        covariance = np.exp(log_strength) * rows @ rows.T + noise
        return -float(multivariate_normal(cov=covariance).logpdf(target))

    strength = np.exp(minimize_scalar(unlikely, bounds=(-8, 8), method="bounded").x)
    gain = strength * described @ rows.T @ np.linalg.inv(strength * rows @ rows.T + noise)
    assert mean[:, 0] == pytest.approx(gain @ target, abs=0.01)
    doubt = strength * (described**2).sum(axis=1) - strength * (gain * (described @ rows.T)).sum(1)
    assert variance[:, 0] == pytest.approx(doubt, rel=0.05, abs=0.01)


def test_descriptions_that_tell_nothing_make_nobody_expect_anything() -> None:
    found = {}
    for slope in (0.0, 2.0):
        described, counts, sums, _ = _seen(np.random.default_rng(1), slope)
        mean, _ = expected(described, counts, sums[:, None], np.array([0.09]))
        found[slope] = np.abs(mean[40:]).max()
    assert found[0.0] < 0.3
    assert found[2.0] > 2


def test_a_place_never_seen_is_known_by_its_description() -> None:
    rng = np.random.default_rng(2)
    described = np.column_stack([np.ones(60), rng.normal(size=(60, 3))])
    looks = described[:, 1:] @ rng.normal(size=(3, 6)) * 5
    often = np.where(np.arange(60) < 50, 8, 0)
    rows = looks.repeat(often, axis=0) + rng.normal(size=(often.sum(), 6))
    which = np.arange(60).repeat(often)
    sums = np.zeros((60, 6))
    np.add.at(sums, which, rows)
    moments = Moments(often.astype(float), sums, float(len(rows)), rows.sum(axis=0), rows.T @ rows)
    never = np.arange(50, 60)
    right = []
    for told in (described, None):
        emission = fit_gaussians(moments, dimensions=6, described=told)
        scores = np.asarray(emission.scores(looks[never].astype(np.float32), never))
        right.append(float((scores.argmax(axis=0) == np.arange(10)).mean()))
    assert right[0] == 1.0
    assert right[1] <= 0.2


def test_many_features_of_a_look_count_as_a_dozen() -> None:
    assert sharpness(None, 64) == 1.0
    assert sharpness(np.ones((1, 1)), 6) == 1.0
    assert 64 * sharpness(np.ones((1, 1)), 64) == pytest.approx(12)
