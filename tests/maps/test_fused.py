"""The compiled sweeps against those in NumPy, bit by bit, and when they are used."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from mdps import random_actions
from tasid.maps import (
    AbstractSimulator,
    certify,
    robust_dp,
    robust_plans,
    worst_case,
    worst_case_value,
)
from tasid.maps.planning import fused as fused_module
from tasid.maps.planning.fused import Programme, fused_backward, max_min_step, worth_compiling

robust_module = sys.modules[robust_dp.__module__]


def any_world(states, actions, horizon, *, per_step=False, seed=0):
    """Rewards that floats do not hold exactly, with ties among them."""
    rng = np.random.default_rng([states, actions, horizon, seed])
    size = (horizon, states, actions) if per_step else (states, actions)
    return AbstractSimulator(
        rng.integers(states, size=size),
        rng.integers(-5, 6, size=size) * 0.1,
        horizon=horizon,
        start=[0, states - 1],
        start_probabilities=[0.3, 0.7],
    )


WORLDS = [
    any_world(700, 3, 6),
    any_world(700, 3, 6, per_step=True),
    any_world(50, 1, 4),
    any_world(400, 5, 12, seed=1),
    any_world(30, 300, 3),
]


@pytest.fixture
def compiled(monkeypatch):
    """Every sweep is worth compiling, and every step is cut into parts."""
    monkeypatch.setattr(fused_module, "_WORTH_COMPILING", 0)
    monkeypatch.setattr(fused_module, "_FEWEST_ROWS", 7)


@pytest.fixture(params=[0, 1 << 62], ids=["far", "near"])
def shared(compiled, monkeypatch, request):
    """Several η always share one sweep, of a map that leads far or not."""
    monkeypatch.setattr(robust_module, "_LARGE", 0)
    monkeypatch.setattr(robust_module, "_NEAR", request.param)


def same_bits(one, other):
    return (
        one.start_value == other.start_value
        and one.actions.dtype == other.actions.dtype
        and np.array_equal(one.actions, other.actions)
        and np.array_equal(one.values, other.values, equal_nan=True)
        and one.states_swept == other.states_swept
    )


def plans(sim, etas, **options):
    return robust_plans(sim, etas=etas, keep_values=True, **options)


ETAS = [0.0, 0.1, 1 / 3, 1.0]


def in_numpy(monkeypatch, sim, **options):
    """The plans by the slow, obvious sweep."""
    with monkeypatch.context() as never:
        never.setattr(fused_module, "_WORTH_COMPILING", float("inf"))
        return plans(sim, ETAS, **options)


@pytest.mark.parametrize("reach", [True, False])
@pytest.mark.parametrize("number", range(len(WORLDS)))
def test_the_compiled_sweep_gives_the_bits_of_the_numpy_sweep(compiled, monkeypatch, number, reach):
    sim = WORLDS[number]
    slow = in_numpy(monkeypatch, sim, reachable_only=reach)
    for eta, expected in zip(ETAS, slow, strict=True):
        plan = robust_dp(sim, eta=eta, keep_values=True, reachable_only=reach)
        assert same_bits(plan, expected)
        assert robust_dp(sim, eta=eta).values is None


@pytest.mark.parametrize("reach", [True, False])
@pytest.mark.parametrize("number", range(len(WORLDS)))
def test_several_etas_in_one_sweep_are_each_of_them_alone(shared, monkeypatch, number, reach):
    slow = in_numpy(monkeypatch, WORLDS[number], reachable_only=reach)
    together = plans(WORLDS[number], ETAS, reachable_only=reach)
    assert [plan.eta for plan in together] == ETAS
    for plan, expected in zip(together, slow, strict=True):
        assert same_bits(plan, expected)


def test_no_eta_no_plan_and_a_bad_eta_is_named():
    assert robust_plans(WORLDS[0], etas=[]) == ()
    with pytest.raises(ValueError, match=r"eta: 1\.5 is outside"):
        robust_plans(WORLDS[0], etas=[0.1, 1.5])


def test_the_number_of_threads_changes_no_bit(compiled):
    sim = WORLDS[0]

    def swept(threads):
        plan = np.zeros((sim.horizon, sim.num_states), np.uint8)
        programme = Programme(max_min_step(sim.num_actions), lambda h: (0.1, plan[h]))
        [(value, kept)] = fused_backward(sim, [programme], keep=True, threads=threads)
        return value.tobytes() + kept.tobytes() + plan.tobytes()

    assert len({swept(threads) for threads in (1, 2, 3, 8)}) == 1


@pytest.mark.parametrize("number", range(len(WORLDS)))
def test_worst_cases_and_certificates_are_those_of_the_numpy_sweep(number, monkeypatch):
    sim, rng = WORLDS[number], np.random.default_rng(number)
    anything = random_actions(sim, rng)

    def found():
        world = worst_case(sim, anything, eta=0.1)
        return (
            worst_case_value(sim, anything, eta=0.1),
            worst_case_value(sim, anything[0], eta=1 / 3),
            [world.xi_at(h).tobytes() for h in range(sim.horizon)],
            certify(robust_dp(sim, eta=0.1)),
        )

    monkeypatch.setattr(fused_module, "_WORTH_COMPILING", float("inf"))
    expected = found()
    monkeypatch.setattr(fused_module, "_WORTH_COMPILING", 0)
    monkeypatch.setattr(fused_module, "_FEWEST_ROWS", 7)
    assert found() == expected


def test_a_random_map_leads_far_and_a_ring_does_not():
    size = 600_000
    ring = (np.arange(size)[:, None] + [1, -1]) % size
    anywhere = np.random.default_rng(0).integers(size, size=(size, 2))
    for successor, far in ((ring, False), (anywhere, True)):
        sim = AbstractSimulator(successor, np.zeros(successor.shape), horizon=2)
        assert robust_module._leads_far(sim) is far


def test_rows_of_eight_values_are_cache_lines():
    for shape in ((5, 8), (1_000_003,), (3, 1)):
        zeros = fused_module._zeros(shape)
        assert zeros.ctypes.data % 64 == 0
        assert zeros.shape == shape
        assert not zeros.any()


def test_who_plans_again_and_again_gets_the_compiled_step(monkeypatch):
    sim, other = any_world(10, 2, 5), any_world(10, 3, 5)
    monkeypatch.setattr(fused_module, "_done", Counter())
    monkeypatch.setattr(fused_module, "_WORTH_COMPILING", 250)
    answers = [worth_compiling(max_min_step, sim, None) for _ in range(4)]
    assert answers == [False, False, True, True]  # 100 (h, s, a) each
    assert worth_compiling(max_min_step, any_world(30, 2, 5), None)
    assert not worth_compiling(max_min_step, other, None)
    assert not worth_compiling(max_min_step, sim, [np.arange(10)] * 5)
    assert worth_compiling(max_min_step, sim, [slice(0, 10)] * 5)


def test_small_maps_do_not_wait_for_a_compiler():
    code = """
        import sys, tasid
        sim = tasid.AbstractSimulator([[0, 1], [1, 1]], [[0, 0], [1, 0.5]], horizon=4)
        plan = tasid.robust_dp(sim, eta=0.1)
        tasid.certify(plan), tasid.worst_case_value(sim, plan, eta=0.2)
        assert "numba" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", "\n".join(map(str.strip, code.split("\n")))], check=True)
