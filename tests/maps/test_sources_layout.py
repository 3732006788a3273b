"""What a source knows beside the tables: it survives saving, and is optional."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tasid.maps import AbstractSimulator, SimulatorError
from tasid.maps.layout import GridLayout, LayoutError, Origin

MAP = "S..\n.L.\n..G"


def drawn(**options):
    return AbstractSimulator.from_text_map(MAP, horizon=6, **options)


@pytest.mark.parametrize("moves", ["compass", "turn"])
def test_the_layout_survives_saving(tmp_path, moves):
    sim = drawn(moves=moves)
    loaded = AbstractSimulator.load(sim.save(tmp_path / "map"))
    assert loaded.states == sim.states
    for name in ("cells", "positions", "headings"):
        before, after = getattr(sim.layout, name), getattr(loaded.layout, name)
        assert (before is None) == (after is None) == (moves == "compass" and name == "headings")
        if before is not None:
            assert after.tolist() == before.tolist()
            assert not after.flags.writeable
    for name in ("source", "actions", "explored", "implied_eta"):
        assert getattr(loaded.origin, name) == getattr(sim.origin, name)
    assert loaded.origin.actions == sim.origin.actions


def test_metres_and_eta_survive_saving(tmp_path):
    layout = GridLayout([[0, 3]], [[0, 0], [0, 1]], cell_size=0.25, corner=(-1.5, 2.0))
    origin = Origin("a map", ("a",), explored=2, implied_eta=0.125, layout=layout)
    sim = AbstractSimulator([[1], [1]], [[1.0], [0.0]], horizon=2, origin=origin)
    loaded = AbstractSimulator.load(sim.save(tmp_path / "map"))
    assert (loaded.layout.cell_size, loaded.layout.corner) == (0.25, (-1.5, 2.0))
    assert (loaded.origin.explored, loaded.origin.implied_eta) == (2, 0.125)
    assert loaded.layout.centres([1, 0]).tolist() == [[-1.125, 2.125], [-1.375, 2.125]]


def test_a_simulator_without_an_origin_is_stored_as_before(tmp_path):
    sim = AbstractSimulator([[0]], [[1.0]], horizon=2)
    assert sim.origin is None
    assert sim.layout is None
    assert set(sim.metadata()) == {"horizon", "states"}
    assert not any("layout" in name for name in sim.arrays())
    assert AbstractSimulator.load(sim.save(tmp_path / "map")).origin is None


def test_a_layout_for_other_states_is_refused():
    layout = GridLayout([[0, 0]], [[0, 0], [0, 1]])
    with pytest.raises(SimulatorError, match="origin: a layout of 2 states for 1 states"):
        AbstractSimulator([[0]], [[1.0]], horizon=2, origin=Origin("x", layout=layout))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 1], [[0, 0]]), "cells: shape (2,) of int64 is not a grid of integers"),
        (([[0.5]], [[0, 0]]), "cells: shape (1, 1) of float64 is not a grid of integers"),
        (([[7]], [[0, 0]]), "cells: values run 0 … 4, not to 7"),
        (([[0]], [0, 0]), "positions: shape (2,) is not [S, 2] of integers"),
        (([[0]], [[0, 0], [0, 1]]), "positions: state 1 is at (0, 1), outside the 1 × 1 cells"),
        (([[0]], [[-1, 0]]), "positions: state 0 is at (-1, 0), outside the 1 × 1 cells"),
    ],
)
def test_bad_layouts_are_named(arguments, message):
    with pytest.raises(LayoutError, match="^" + re.escape(message)):
        GridLayout(*arguments)
    with pytest.raises(LayoutError, match=r"^headings: shape \(1,\)"):
        GridLayout([[0]], [[0, 0]], headings=[4])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"origin": 3}, "origin: 3 is stored where its fields should be"),
        ({"origin": {"explored": "far"}}, "origin: explored is stored as 'far'"),
        ({"origin": {"actions": "go"}}, "origin: actions is stored as 'go'"),
        ({"origin": {"layout": {}}}, "layout: the stored one is incomplete (KeyError('corner'))"),
    ],
)
def test_stored_origins_are_checked(change, message):
    sim = drawn()
    with pytest.raises(LayoutError, match="^" + re.escape(message)):
        AbstractSimulator.from_parts({**sim.metadata(), **change}, sim.arrays())


def test_stored_layouts_are_checked():
    sim = drawn()
    arrays = sim.arrays()
    arrays["simulator.layout.positions"] = np.full_like(sim.layout.positions, 9)
    with pytest.raises(LayoutError, match=r"state 0 is at \(9, 9\), outside the 3 × 3 cells"):
        AbstractSimulator.from_parts(sim.metadata(), arrays)
    del arrays["simulator.layout.positions"]
    with pytest.raises(LayoutError, match="incomplete"):
        AbstractSimulator.from_parts(sim.metadata(), arrays)
