"""States that do not matter are left out of sweeps, and nothing else changes: not a bit."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest

from tasid.maps import AbstractSimulator, certify, policy_value, robust_dp
from tasid.maps.planning.backward import reachable, swept
from tasid.maps.planning.thrifty import thrifty_plan
from tasid.maps.planning.window import Window, windowed


def always(*_):
    return True


@pytest.fixture(autouse=True)
def small_maps_count_as_large(monkeypatch):
    monkeypatch.setattr("tasid.maps.planning.window._MOST_PAIRS", 20_000)
    monkeypatch.setattr("tasid.maps.planning.window._PAYS", 2)
    monkeypatch.setattr("tasid.maps.planning.backward._SMALL", 0)
    for module in ("robust_dp", "evaluation"):
        monkeypatch.setattr(
            import_module(f"tasid.maps.planning.{module}"), "worth_compiling", always
        )


def field(seed, *, size=40, more=3):
    """A field with some walls and lava, its goal across, and a horizon just long enough."""
    rng = np.random.default_rng(seed)
    cells = np.where(rng.random((size, size)) < 0.1, "#", ".")
    cells[-2, -4] = "L"
    cells[0, 0], cells[-1, -1] = "S", "G"
    text = "\n".join("".join(row) for row in cells)
    shortest = AbstractSimulator.from_text_map(text).horizon // 3
    return AbstractSimulator.from_text_map(text, horizon=shortest + more)


def without(monkeypatch):
    for name in ("robust_dp", "thrifty", "evaluation"):
        module = import_module(f"tasid.maps.planning.{name}")
        monkeypatch.setattr(module, "windowed", lambda _, frontier: frontier)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("eta", [0.0, 0.1, 0.37])
def test_plans_values_and_certificates_are_the_same(monkeypatch, seed, eta):
    sim = field(seed)
    plan, frugal = robust_dp(sim, eta=eta), thrifty_plan(sim, eta=eta)
    proof, frugal_proof = certify(plan), certify(frugal)
    without(monkeypatch)
    whole, whole_frugal = robust_dp(sim, eta=eta), thrifty_plan(sim, eta=eta)
    assert swept(sim, windowed(sim, reachable(sim))) < whole.states_swept / 4
    assert plan.start_value == frugal.start_value == whole.start_value
    assert proof == frugal_proof == certify(whole)
    assert frugal.route() == whole.route()
    assert frugal.nominal_value() == policy_value(sim, whole)
    for h, rows in enumerate(reachable(sim)):
        assert (plan.actions[h][rows] == whole.actions[h][rows]).all()
    rng = np.random.default_rng(seed)
    state = sim.start
    for h in range(sim.horizon):
        assert frugal.action(h, state) == whole_frugal.action(h, state) == whole.action(h, state)
        state = int(sim.successor[state, rng.integers(4)])


def test_where_no_way_leads_back_everything_is_swept():
    """A pit that pays as every step does: who is in it is far from all that matters."""
    sim = field(0)
    successor = sim.successor.copy()
    successor[-1, 0] = sim.num_states  # the farthest, so that states stay in order of distance
    pit = np.full((1, 4), sim.num_states)
    reward = np.vstack([sim.reward, np.full((1, 4), -0.01)])
    fallen = AbstractSimulator(np.vstack([successor, pit]), reward, horizon=sim.horizon)
    assert isinstance(windowed(sim, reachable(sim)), Window)
    assert isinstance(reachable(fallen)[0], slice)
    assert not isinstance(windowed(fallen, reachable(fallen)), Window)


def test_a_long_horizon_leaves_nothing_out():
    sim = field(0, more=400)
    frontier = reachable(sim)
    assert windowed(sim, frontier) is frontier
    assert swept(sim, frontier) > 20_000
