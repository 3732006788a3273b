"""Simulators from Gymnasium toy-text environments, by their tables `P`.

P[s][a] lists (probability, next state, reward, ends the episode). States keep their numbers. A
state in which episodes end absorbs: nothing happens there and nothing is paid any more.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasid.maps.layout import FREE, GOAL, HAZARD, GridLayout, Origin
from tasid.maps.planning.perturbation import PerturbedMDP
from tasid.maps.simulator import AbstractSimulator
from tasid.maps.size import MapError, MapWarning
from tasid.maps.sources.by_name import GYM, make_by_id
from tasid.maps.sources.intended import Outcomes, intended, world_of

_CHOICES = ("refuse", "most-likely")


class ToyText(NamedTuple):
    """The map of a toy-text environment, and the environment's own latent MDP."""

    simulator: AbstractSimulator
    world: PerturbedMDP | None
    """The environment as a perturbation of the map; None if it is none for any η."""


def from_toy_text(
    env: Any, *, horizon: int, deterministic: str = "refuse", **options: Any
) -> ToyText:
    """The deterministic map of a toy-text environment (FrozenLake, CliffWalking, Taxi, …).

    `env` is an environment, or the id of one; `options` then go to `gymnasium.make`.
    With `deterministic="refuse"` a table with chances is an error that names the first of them.
    With "most-likely" each action leads where it most likely leads, and the η this implies is in
    `simulator.origin.implied_eta` (None, with a `MapWarning`, if the environment is no perturbation
    of that map).
    """
    if deterministic not in _CHOICES:
        raise MapError(
            f"deterministic: {deterministic!r} is none of {', '.join(map(repr, _CHOICES))}"
        )
    if isinstance(env, str):
        made = make_by_id(env.removeprefix(GYM), options, argument="env")
        try:
            return from_toy_text(made, horizon=horizon, deterministic=deterministic)
        finally:
            made.close()
    if options:
        raise MapError(f"{next(iter(options))}: only an id takes options; {env!r} is made already")
    base = getattr(env, "unwrapped", env)
    table = _read(base)
    if deterministic == "refuse":
        _refuse_chance(table)
    starts, probabilities = _starts(base, len(table))
    rows, final = _with_endings(table, starts)
    successor, reward = intended(rows)
    name = type(base).__name__
    bare = AbstractSimulator(
        successor,
        reward,
        horizon=horizon,
        start=starts,
        start_probabilities=probabilities,
        states=None if not final else [*range(len(table)), *((s, "done") for s in final)],
    )
    world, why = world_of(rows, bare)
    if world is None:
        warnings.warn(
            f"{name}: for no η is the environment an η-perturbation of this map: {why}",
            MapWarning,
            3,
        )
    eta = None if world is None else round(world.eta, 12)
    layout = _layout(base, [*range(len(table)), *final], successor)
    origin = Origin(f"toy text {name}", implied_eta=eta, layout=layout)
    simulator = bare.replaced(origin=origin)
    return ToyText(simulator, None if world is None else PerturbedMDP(simulator, world.xi))


def _read(base: Any) -> list[list[Outcomes]]:
    """P as lists of plain (probability, next state, reward, ends) for every state and action."""
    given = getattr(base, "P", None)
    if not isinstance(given, dict) or not given:
        raise MapError(
            f"env: {type(base).__name__} has no table `P`; toy-text environments with one are "
            "FrozenLake, CliffWalking and Taxi (for other maps: from_function)"
        )
    if set(given) != set(range(len(given))):
        raise MapError(f"env: the states of P are not numbered 0 … {len(given) - 1}")
    width = len(given[0])
    table = []
    for s in range(len(given)):
        if set(given[s]) != set(range(width)):
            raise MapError(f"env: the actions of P[{s}] are not numbered 0 … {width - 1}")
        table.append([_read_entry(given[s][a], s, a, len(given)) for a in range(width)])
    if getattr(base, "fickle_passenger", False):
        untold = "Taxi: a fickle passenger is not in the table P, so not on the map either"
        warnings.warn(untold, MapWarning, 4)
    return table


def _read_entry(entry: Any, s: int, a: int, size: int) -> Outcomes:
    try:
        outcomes = [(float(p), int(after), float(r), bool(ends)) for p, after, r, ends in entry]
    except (TypeError, ValueError):
        raise MapError(
            f"env: P[{s}][{a}] = {entry!r} is not a list of (probability, next state, reward, done)"
        ) from None
    outcomes = [outcome for outcome in outcomes if outcome[0] > 0]
    if abs(sum(outcome[0] for outcome in outcomes) - 1.0) > 1e-6:
        raise MapError(f"env: the probabilities of P[{s}][{a}] = {entry!r} do not sum to 1")
    if not all(0 <= outcome[1] < size for outcome in outcomes):
        raise MapError(f"env: P[{s}][{a}] = {entry!r} leads outside the states 0 … {size - 1}")
    return outcomes


def _refuse_chance(table: list[list[Outcomes]]) -> None:
    for s, row in enumerate(table):
        for a, outcomes in enumerate(row):
            if len({outcome[1:] for outcome in outcomes}) > 1:
                raise MapError(
                    f"env: P[{s}][{a}] = {outcomes} leaves it to chance where action {a} leads "
                    f"from state {s}. Make the environment deterministic (is_slippery=False, "
                    'is_rainy=False), or take the likeliest with deterministic="most-likely"'
                )


def _starts(base: Any, size: int) -> tuple[list[int], list[float]]:
    given = getattr(base, "initial_state_distrib", None)
    if given is None:
        name = type(base).__name__
        raise MapError(f"env: {name} does not say where episodes start (initial_state_distrib)")
    mu = np.asarray(given, dtype=np.float64).ravel()
    if mu.size != size or not (mu >= 0).all() or abs(mu.sum() - 1.0) > 1e-6:
        raise MapError(f"env: initial_state_distrib is no distribution over the {size} states")
    starts = np.flatnonzero(mu)
    return starts.tolist(), (mu[starts] / mu[starts].sum()).tolist()


def _with_endings(
    table: list[list[Outcomes]], starts: list[int]
) -> tuple[list[list[Outcomes]], list[int]]:
    """Absorbing endings instead of done flags; states with a second, absorbing version.

    A state that episodes both end in and pass through is doubled: the copy comes after the others.
    """
    live, over = set(starts), set[int]()
    waiting = list(starts)
    while waiting:
        for outcomes in table[waiting.pop()]:
            over.update(after for _, after, _, ends in outcomes if ends)
            new = {after for _, after, _, ends in outcomes if not ends} - live
            live |= new
            waiting.extend(new)
    for s in live & over:
        entries = [entry for outcomes in table[s] for entry in outcomes]
        if all(after == s and r == 0.0 for _, after, r, _ in entries):
            live.remove(s)  # it stays there anyway
    doubled = sorted(live & over)
    copy = {s: len(table) + place for place, s in enumerate(doubled)}

    def stay(s: int) -> list[Outcomes]:
        return [[(1.0, s, 0.0, False)] for _ in table[0]]

    rows = [
        stay(s)
        if s in over and s not in copy
        else [
            [(p, copy.get(after, after) if ends else after, r, False) for p, after, r, ends in o]
            for o in row
        ]
        for s, row in enumerate(table)
    ]
    return rows + [stay(copy[s]) for s in doubled], doubled


def _layout(base: Any, places: list[int], successor: NDArray[np.int64]) -> GridLayout | None:
    """FrozenLake draws its map in `desc`, CliffWalking knows its `shape` and cliff."""
    letters, shape = getattr(base, "desc", None), getattr(base, "shape", None)
    size = len(getattr(base, "P", ()))
    if isinstance(letters, np.ndarray) and letters.size == size and letters.ndim == 2:
        cells = np.select([letters == b"G", letters == b"H"], [GOAL, HAZARD], FREE)
    elif isinstance(shape, tuple) and len(shape) == 2 and int(np.prod(shape)) == size:
        final = (successor[:size] == np.arange(size)[:, None]).all(axis=1)
        cliff = np.asarray(getattr(base, "_cliff", np.zeros(shape, dtype=bool)))
        cells = np.select([final.reshape(shape), cliff], [GOAL, HAZARD], FREE)
    else:
        return None
    return GridLayout(cells, np.stack(np.divmod(places, cells.shape[1]), axis=1))
