"""What planning is measured by without another package: a plain loop, plain NumPy, the machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
from numba import njit

import tasid


@njit
def _loop(successor, reward, eta, value, new, plan):
    states, actions = successor.shape
    for s in range(states):
        best = reward[s, 0] + value[successor[s, 0]]
        worst, choice = best, 0
        for a in range(1, actions):
            q = reward[s, a] + value[successor[s, a]]
            if q > best:
                best, choice = q, a
            if q < worst:
                worst = q
        new[s] = (1 - eta) * best + eta * worst
        plan[s] = choice


def numba_loop(sim: tasid.AbstractSimulator, eta: float) -> float:
    """Algorithm 1 as one would write it with Numba, on one thread."""
    plan = np.zeros((sim.horizon, sim.num_states), np.uint8)
    value, new = np.zeros((2, sim.num_states))
    for h in reversed(range(sim.horizon)):
        _loop(sim.successor, sim.reward, eta, value, new, plan[h])
        value, new = new, value
    return float(value[sim.start])


def plain_numpy(sim: tasid.AbstractSimulator, eta: float) -> float:
    """Algorithm 1 as one would write it with NumPy."""
    plan = np.zeros((sim.horizon, sim.num_states), np.uint8)
    value = np.zeros(sim.num_states)
    for h in reversed(range(sim.horizon)):
        q = sim.reward + value[sim.successor]
        plan[h] = q.argmax(axis=1)
        value = (1 - eta) * q.max(axis=1) + eta * q.min(axis=1)
    return float(value[sim.start])


@njit(nogil=True, fastmath=True)
def _read(numbers, times, first, end):
    total = 0.0
    for again in range(times):
        for i in range(first, end):
            total += numbers[i]
        total -= again
    return total


@njit(nogil=True)
def _gather(value, where, times, first, end):
    # Four sums: none waits for the others, and no compiler makes slow gather instructions of them.
    one = two = three = four = 0.0
    for _ in range(times):
        for i in range(first, end - 3, 4):
            one += value[where[i]]
            two += value[where[i + 1]]
            three += value[where[i + 2]]
            four += value[where[i + 3]]
    return one + two + three + four


def floor(sim: tasid.AbstractSimulator, now: Callable[[], float]) -> Callable[[], float]:
    """What no sweep can beat: the seconds in which all cores read what it must read, or gather.

    A step reads 12 bytes for each (s, a), and for each s a value, and writes a value and an action.
    Successors are gathered as they stand in this very table, so a local map gathers locally.
    """
    moved = sim.num_states * (12 * sim.num_actions + 17)
    stream, value = np.ones(moved // 8), np.ones(sim.num_states)
    where = sim.successor.view(np.uint32).ravel()
    cores = _cores()

    def together(pool, work, size, *arrays):
        cuts = [size * part // cores for part in range(cores + 1)]
        list(pool.map(lambda cut: work(*arrays, sim.horizon, *cut), pairwise(cuts)))

    def once() -> float:
        with ThreadPoolExecutor(cores) as pool:
            marks = [now()]
            together(pool, _read, stream.size, stream)
            marks.append(now())
            together(pool, _gather, where.size, value, where)
            marks.append(now())
        return max(b - a for a, b in pairwise(marks))

    return once


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
