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
def _read(numbers, first, end):
    total = 0.0
    for i in range(first, end):
        total += numbers[i]
    return total


@njit(nogil=True, fastmath=True)
def _gather(value, where, first, end):
    total = 0.0
    for i in range(first, end):
        total += value[where[i]]
    return total


def floor(sim: tasid.AbstractSimulator) -> Callable[[], float]:
    """What no sweep can beat: the seconds in which all cores read what it must read, or gather.

    A step reads 12 bytes for each (s, a), and for each s a value, and writes a value and an action.
    Successors are gathered as they stand in this very table, so a local map gathers locally.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    moved = sim.num_states * (12 * sim.num_actions + 17)
    stream = np.ones(moved // 8)
    where = sim.successor.view(np.uint32).ravel()
    value = np.ones(sim.num_states)

    def together(pool, work, size, *arrays):
        cuts = [size * part // cores for part in range(cores + 1)]
        list(pool.map(lambda cut: work(*arrays, *cut), pairwise(cuts)))

    def once() -> float:
        from time import perf_counter

        with ThreadPoolExecutor(cores) as pool:
            marks = [perf_counter()]
            together(pool, _read, stream.size, stream)
            marks.append(perf_counter())
            together(pool, _gather, where.size, value, where)
            marks.append(perf_counter())
        return sim.horizon * max(b - a for a, b in pairwise(marks))

    return once
