"""What somebody gives to be filtered or smoothed, checked once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tasid.beliefs.chain import Chain
from tasid.beliefs.episodes import Episodes, payment_numbers
from tasid.maps import AbstractSimulator

LogLikelihoods = Callable[[int, NDArray[np.int32]], ArrayLike]
"""(h, states [1, E] or [N, E]) → ln p(x_h | state), of a shape that broadcasts to [N, E]."""


class BeliefInputError(ValueError):
    """Commands, likelihoods, rewards or ends that do not fit the map or each other."""


@dataclass(frozen=True, eq=False)
class Given:
    """N checked episodes."""

    episodes: Episodes
    """Commands, rewards and ends; without features."""
    ended: NDArray[np.int32]
    """[N]."""
    commands: NDArray[np.int32]
    """[N, H]; 0 after an end."""
    eta: float
    leap: float
    log_likelihoods: LogLikelihoods
    rows: NDArray[np.intp]
    """The episodes that are meant, [n]; `log_likelihoods` is always asked for all."""

    @property
    def number(self) -> int:
        """N, or how many of them are meant."""
        return int(self.rows.size)

    def live(self, h: int) -> NDArray[np.bool_]:
        """Whose observation x_h is not of after the end? [n]"""
        return h <= self.ended[self.rows]

    def seen(self, h: int, states: NDArray[np.int32]) -> NDArray[np.float64]:
        """ln p(x_h | state) for states [1, E] or [n, E], [n, E]; 0 after an end."""
        asked, total = states, self.ended.size
        if states.shape[0] != 1 and self.number != total:
            asked = np.broadcast_to(states[:1], (total, states.shape[1])).copy()
            asked[self.rows] = states
        values = np.asarray(self.log_likelihoods(h, asked), np.float64)
        shape = (total, states.shape[1])
        try:
            values = np.broadcast_to(values, shape)[self.rows]
        except ValueError:
            raise BeliefInputError(
                f"log_likelihoods: shape {values.shape} at step {h}; it must broadcast to "
                f"{shape}, episodes and states asked for"
            ) from None
        live = self.live(h)
        wrong = (np.isnan(values) | (values == np.inf)) & live[:, None]
        if wrong.any():
            n, entry = np.argwhere(wrong)[0]
            state = states[0 if states.shape[0] == 1 else n, entry]
            raise BeliefInputError(
                f"log_likelihoods: {values[n, entry]} for episode {self.rows[n]}, step {h}, "
                f"state {state}; numbers and −inf are log-likelihoods"
            )
        return np.where(live[:, None], values, 0.0)

    def only(self, rows: NDArray[np.intp]) -> Given:
        """Some of the episodes, by their place among these."""
        part = self.episodes._replace(
            features=self.episodes.features[:, rows],
            commands=self.episodes.commands[:, rows],
            paid=self.episodes.paid[:, rows],
            ended=self.episodes.ended[rows],
            own=self.episodes.own[:, rows],
            weight=self.episodes.weight[rows],
        )
        return Given(
            episodes=part,
            ended=self.ended,
            commands=self.commands,
            eta=self.eta,
            leap=self.leap,
            log_likelihoods=self.log_likelihoods,
            rows=self.rows[rows],
        )


def given(
    sim: AbstractSimulator,
    chain: Chain,
    commands: ArrayLike,
    log_likelihoods: ArrayLike | LogLikelihoods,
    *,
    eta: float,
    rewards: ArrayLike | None,
    ended: ArrayLike | None,
    leap: float,
) -> Given:
    """Check everything against the map and against each other."""
    _check_share("eta", eta, 0.5)
    _check_share("leap", leap, 1.0)
    horizon = sim.horizon
    table = _integers("commands", commands)
    if table.ndim != 2 or table.shape[1] != horizon or not len(table):
        raise BeliefInputError(
            f"commands: shape {table.shape}; one row of {horizon} commands for each episode, "
            f"(N, {horizon}), is needed"
        )
    number = len(table)
    ends = _ends(ended, number, horizon)
    during = np.arange(horizon) < ends[:, None]
    table = np.where(during, table, 0)
    _check_range("commands", table, 0, sim.num_actions - 1, "the map's actions are")
    paid = np.full((number, horizon), -1, np.int32)
    if rewards is not None:
        paid = payment_numbers(_rewards(rewards, during), np.asarray(chain.payments))
    episodes = Episodes(
        features=jnp.zeros((horizon + 1, number, 0)),
        commands=jnp.asarray(table.T, jnp.int32),
        paid=jnp.asarray(paid.T),
        ended=jnp.asarray(ends, jnp.int32),
        tells=jnp.bool_(ended is not None),
        own=jnp.ones((horizon, number)),
        weight=jnp.ones(number),
    )
    return Given(
        episodes=episodes,
        ended=ends,
        commands=table.astype(np.int32),
        eta=float(eta),
        leap=float(leap),
        log_likelihoods=_lookup(log_likelihoods, (number, horizon + 1, sim.num_states)),
        rows=np.arange(number),
    )


def _lookup(
    log_likelihoods: ArrayLike | LogLikelihoods, shape: tuple[int, int, int]
) -> LogLikelihoods:
    """Tables [N, H+1, S] as a function."""
    if callable(log_likelihoods):
        return log_likelihoods
    table = np.asarray(log_likelihoods)
    if table.dtype.kind not in "fiu":
        raise BeliefInputError(f"log_likelihoods: {table.dtype}; numbers or a function are needed")
    if table.shape != shape:
        raise BeliefInputError(
            f"log_likelihoods: shape {table.shape}; for these episodes and this map it must be "
            f"{shape}: episodes, steps 0 … H, states"
        )
    rows = np.arange(shape[0])[:, None]
    return lambda h, states: table[rows, h, states]


def _integers(name: str, values: ArrayLike) -> NDArray[np.integer]:
    table = np.asarray(values)
    if table.dtype.kind not in "iu":
        raise BeliefInputError(f"{name}: {table.dtype}; whole numbers are needed")
    return table


def _ends(ended: ArrayLike | None, number: int, horizon: int) -> NDArray[np.int32]:
    if ended is None:
        return np.full(number, horizon, np.int32)
    ends = _integers("ended", ended)
    if ends.shape != (number,):
        raise BeliefInputError(f"ended: shape {ends.shape}; one for each episode, ({number},)")
    _check_range("ended", ends, 1, horizon, "an episode ends after a number of steps in")
    return ends.astype(np.int32)


def _rewards(rewards: ArrayLike, during: NDArray[np.bool_]) -> NDArray[np.float64]:
    table = np.asarray(rewards)
    if table.dtype.kind not in "fiub":
        raise BeliefInputError(f"rewards: {table.dtype}; numbers are needed")
    if table.shape != during.shape:
        raise BeliefInputError(f"rewards: shape {table.shape}; as the commands, {during.shape}")
    table = np.where(during, table.astype(np.float64), 0.0)
    wrong = np.argwhere(~np.isfinite(table))
    if wrong.size:
        n, h = wrong[0]
        raise BeliefInputError(f"rewards: {table[n, h]} in episode {n}, step {h}")
    return table


def _check_range(name: str, table: NDArray[Any], low: int, high: int, what: str) -> None:
    wrong = np.argwhere((table < low) | (table > high))
    if wrong.size:
        place = ", ".join(str(i) for i in wrong[0])
        raise BeliefInputError(f"{name}[{place}]: {table[tuple(wrong[0])]}; {what} {low} … {high}")


def _check_share(name: str, value: float, below: float) -> None:
    if not 0 <= value < below:  # also refuses NaN
        raise BeliefInputError(f"{name}: {value!r} is outside [0, {below:g})")
