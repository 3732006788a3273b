"""Backward sweeps of large maps: one compiled loop over states, on all cores.

NumPy passes over memory once for every operation; here everything about a state happens while its
row of the tables is at hand. Numba compiles the loops on their first use, which takes about half a
second, so small maps stay with `backward`. Both do the same operations in the same order and give
the same bits; every state is computed by itself, so the number of threads changes nothing.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasid.maps.planning.backward import Frontier, count, swept
from tasid.maps.planning.window import Window
from tasid.maps.simulator import AbstractSimulator

Step = Callable[..., None]
"""(successor, reward, rows, V_{h+1}, V_h, *others, first, end): writes V_h of some states.

They are the states `rows[first:end]`, or first … end−1 if `rows` is None. Loops are compiled for
one number of actions each, which lets the compiler unroll them.
"""

_WORTH_COMPILING = 100_000_000
"""So many (h, s, a) take NumPy about as long as Numba takes to compile."""
_done: Counter[Any] = Counter()
"""How many (h, s, a) of each kind were swept; decides when to compile, and nothing else."""
_BLOCK = np.uintp(64)
"""States whose successors' values fit into the fastest cache, for a few η."""
_LINE = 64
"""Bytes that a processor fetches at once."""
_FEWEST_ROWS = 32_768
"""Fewer are done before another thread has woken up."""


@dataclass(frozen=True)
class Programme:
    """A dynamic programme: its step, that step's other arguments at h, and V's shape beyond [S]."""

    step: Step
    others: Callable[[int], tuple[Any, ...]]
    shape: tuple[int, ...] = ()


def worth_compiling(
    make: Callable[[int], Step], sim: AbstractSimulator, frontier: Frontier | None, sweeps: int = 1
) -> bool:
    """Whether these sweeps, and those of their kind before, take longer than compiling their step.

    So whoever plans once on a small map never waits, and who plans again and again waits once.
    """
    picked = frontier is not None and not isinstance(frontier[0], slice)
    kind = make, sim.num_actions, picked
    _done[kind] += sweeps * swept(sim, frontier) * sim.num_actions
    return _done[kind] >= _WORTH_COMPILING


@cache
def max_min_step(actions: int) -> Step:
    """Algorithm 1; others: η, and ρ_h [S], which it writes."""

    def step(successor, reward, rows, after, value, eta, plan, first, end):  # type: ignore[no-untyped-def]
        for i in range(first, end):
            s = i if rows is None else rows[i]
            best = worst = reward[s, 0] + after[successor[s, 0]]
            choice = 0
            for a in range(1, actions):
                q = reward[s, a] + after[successor[s, a]]
                choice = a if q > best else choice
                best = q if q > best else best
                worst = q if q < worst else worst
            value[s] = (1.0 - eta) * best + eta * worst
            plan[s] = choice

    return _compiled(step)


@cache
def max_min_steps(actions: int) -> Step:
    """Algorithm 1 for several η, V being [S, K]; others: η [K], and ρ_h [K, S], which it writes.

    A row of the tables is fetched once for all of them, and so is what follows a state.
    """

    def step(successor, reward, rows, after, value, etas, plans, first, end):  # type: ignore[no-untyped-def]
        for i in range(first, end):
            s = i if rows is None else rows[i]
            for k in range(etas.size):
                best = worst = reward[s, 0] + after[successor[s, 0], k]
                choice = 0
                for a in range(1, actions):
                    q = reward[s, a] + after[successor[s, a], k]
                    choice = a if q > best else choice
                    best = q if q > best else best
                    worst = q if q < worst else worst
                value[s, k] = (1.0 - etas[k]) * best + etas[k] * worst
                plans[k, s] = choice

    return _compiled(step)


@cache
def far_max_min_steps(actions: int) -> Step:
    """The same where states lead far away, to values that are in no cache.

    For a block of states they are touched first: a processor waits for many rows at once if nothing
    else is to be done between them.
    """
    steps = max_min_steps(actions)

    def step(successor, reward, rows, after, value, etas, plans, first, end):  # type: ignore[no-untyped-def]
        for block in range(first, end, _BLOCK):
            stop = min(block + _BLOCK, end)
            for i in range(block, stop):
                s = i if rows is None else rows[i]
                touched = 0.0
                for a in range(actions):
                    touched += after[successor[s, a], 0]
                value[s, 0] = touched  # or the compiler would leave it out
            steps(successor, reward, rows, after, value, etas, plans, block, stop)

    return _compiled(step)


@cache
def nature_step(actions: int) -> Step:
    """A policy in its worst case; others: η, ψ_h [S], and nature's choices [S], which it writes."""

    def step(successor, reward, rows, after, value, eta, policy, nature, first, end):  # type: ignore[no-untyped-def]
        for i in range(first, end):
            s = i if rows is None else rows[i]
            worst = reward[s, 0] + after[successor[s, 0]]
            choice = 0
            for a in range(1, actions):
                q = reward[s, a] + after[successor[s, a]]
                choice = a if q < worst else choice
                worst = q if q < worst else worst
            a = policy[s]
            value[s] = (1.0 - eta) * (reward[s, a] + after[successor[s, a]]) + eta * worst
            nature[s] = choice

    return _compiled(step)


@cache
def best_response_step(actions: int) -> Step:
    """The best agent where nature's choices are known; others: η and those choices [S]."""

    def step(successor, reward, rows, after, value, eta, nature, first, end):  # type: ignore[no-untyped-def]
        for i in range(first, end):
            s = i if rows is None else rows[i]
            best = reward[s, 0] + after[successor[s, 0]]
            for a in range(1, actions):
                q = reward[s, a] + after[successor[s, a]]
                best = q if q > best else best
            a = nature[s]
            value[s] = (1.0 - eta) * best + eta * (reward[s, a] + after[successor[s, a]])

    return _compiled(step)


def _compiled(step: Step) -> Step:
    # Imported here because it takes a while, and most uses of this package never need it.
    from numba import njit

    return njit(nogil=True)(step)


def fused_backward(
    sim: AbstractSimulator,
    programmes: Sequence[Programme],
    *,
    frontier: Frontier | None = None,
    keep: bool = False,
    steps: range | None = None,
    final: Sequence[NDArray[np.float64]] | None = None,
    threads: int | None = None,
) -> list[tuple[NDArray[np.float64], NDArray[np.float64] | None]]:
    """Sweep h = H−1 … 0 once for all programmes: V_0 of each and, if `keep`, V for all h.

    In a state the first programme comes first: the others may read what it has written there. With
    a `frontier` only those states are touched; kept values are NaN elsewhere. With `steps` only
    those, after which V is `final`. With a `Window`, V_0 of all states that it leaves out is known.
    """
    threads = threads or _cores()
    shapes = [(sim.num_states, *p.shape) for p in programmes]
    spare, value = ([_zeros(shape) for shape in shapes] for _ in range(2))
    after = spare if final is None else list(final)
    kept = [np.full((sim.horizon + 1, *shape), np.nan) for shape in shapes] if keep else []
    for table in kept:
        table[-1] = 0.0
    steps = steps or range(sim.horizon)
    tables, everybody = _tables(sim), slice(sim.num_states)
    window = frontier if isinstance(frontier, Window) else None
    worth = [[] if window is None else window.worth(p.others(steps[0])[0]) for p in programmes]
    with ThreadPoolExecutor(threads) as pool:
        for h in reversed(steps):
            rows = everybody if frontier is None else frontier[h]
            picked = None if isinstance(rows, slice) else rows.view(np.uintp)
            if window is not None and (h + 1 < steps.stop or final is None):
                for old, values in zip(after, worth, strict=True):
                    old[window.edge(h)] = values[h + 1]
            calls = [
                (p.step, (*tables(h), picked, old, new, *p.others(h)))
                for p, old, new in zip(programmes, after, value, strict=True)
            ]
            _in_parts(calls, count(rows), pool, threads)
            for k, table in enumerate(kept):
                table[h, rows] = value[k][rows]
            after, value, spare = value, spare, value  # what was given as final is never written
    if window is not None:
        for old, values in zip(after, worth, strict=True):
            old[window.outside(steps[0])] = values[steps[0]]
    return [(start, kept[k] if keep else None) for k, start in enumerate(after)]


def _zeros(shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Beginning where a cache line does: a row of eight values is then one line, not two."""
    size = math.prod(shape)
    room = np.zeros(size + _LINE // 8)
    first = -room.__array_interface__["data"][0] % _LINE // 8
    return room[first : first + size].reshape(shape)


def _tables(sim: AbstractSimulator) -> Callable[[int], tuple[NDArray[Any], NDArray[np.float64]]]:
    """Successors and rewards of a step.

    All indices are unsigned, those of rows, too: then none is asked whether it counts from the end,
    which takes up to a quarter of the time.
    """
    if sim.successor.ndim == sim.reward.ndim == 2:
        both = sim.successor.view(np.uint32), sim.reward
        return lambda h: both
    return lambda h: (sim.successor_at(h).view(np.uint32), sim.reward_at(h))


def _in_parts(
    calls: list[tuple[Step, tuple[Any, ...]]], number: int, pool: Executor, threads: int
) -> None:
    parts = min(threads, number // _FEWEST_ROWS)
    if parts <= 1:
        _work(calls, np.uintp(0), np.uintp(number))
        return
    cuts = [np.uintp(number * part // parts) for part in range(parts + 1)]
    waiting = [pool.submit(_work, calls, first, end) for first, end in pairwise(cuts[1:])]
    _work(calls, cuts[0], cuts[1])
    for part in waiting:
        part.result()


def _work(calls: list[tuple[Step, tuple[Any, ...]]], first: np.uintp, end: np.uintp) -> None:
    for step, arguments in calls:
        step(*arguments, first, end)


def _cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
