"""Lanes side by side: Gymnasium's vector environments, with every end handled by us.

Autoreset is switched off. A lane that is over stays over until the next episodes start, all lanes
together; lanes without an episode of theirs are left alone.
"""

from __future__ import annotations

import os
import signal
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing import TimeoutError, forkserver, resource_tracker
from types import FrameType
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from numpy.typing import NDArray

from tasid.targets.gym.lane import ENDED, RAISED, REFUSED, TRUNCATED, Lane, LaneMaker, in_worker
from tasid.targets.target import Collateral

_DIED = (EOFError, BrokenPipeError, ConnectionResetError)
"""What the death of a worker process looks like from here."""
_PATIENCE = 10.0
"""Seconds that workers have to close their environments."""
_NO_TIMEOUTS: Mapping[str, float | None] = {"step": None, "reset": None}
"""Seconds that workers have for each, making the environment included; None is for ever."""


class LaneViews(NamedTuple):
    """What the lanes in use gave, [n] each."""

    observations: NDArray[Any]
    rewards: NDArray[np.float32]
    ended: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    raised: Sequence[str | None]
    """Why the environment of a lane failed, if it did."""
    refused: Sequence[str | None]
    """Why what it gave cannot be used, if so."""


class Lanes:
    """As many environments as run at a time, made when first needed."""

    def __init__(
        self,
        maker: LaneMaker,
        number: int,
        *,
        made: Sequence[gymnasium.Env[Any, Any]] = (),
        workers: bool = False,
        timeouts: Mapping[str, float | None] = _NO_TIMEOUTS,
    ) -> None:
        self.maker, self.number, self._timeouts = maker, number, timeouts
        self._made, self._workers = tuple(made), workers
        self._vector: VectorEnv[Any, Any, Any] | None = None
        self._closing: weakref.finalize[..., Any] | None = None

    def reset(self, seeds: Sequence[int]) -> LaneViews:
        """Start an episode per seed; lanes beyond them stay idle."""
        every = [*seeds, *[None] * (self.number - len(seeds))]
        return self._answer("reset", len(seeds), seed=every)

    def step(self, actions: NDArray[Any]) -> LaneViews:
        """Act in the lanes that started."""
        chosen = np.zeros(self.number, np.int64)
        chosen[: actions.size] = actions
        return self._answer("step", actions.size, actions=chosen)

    def _answer(self, doing: str, number: int, **given: Any) -> LaneViews:
        vector, timeout = self._running(), self._timeouts[doing]
        try:
            if isinstance(vector, AsyncVectorEnv):
                getattr(vector, f"{doing}_async")(**given)
                answer = getattr(vector, f"{doing}_wait")(timeout=timeout)
            else:
                answer = getattr(vector, doing)(**given)
        except TimeoutError:
            return self._all_lost(number, f"{doing}: no answer within {timeout} s")
        except _DIED as error:
            return self._all_lost(number, f"a worker process died ({type(error).__name__})")
        observations, *paid, told = answer  # a reset pays nothing
        return _seen(number, observations, paid[0] if paid else np.zeros(number), told)

    def close(self) -> None:
        """Close all environments; using the lanes again makes new ones."""
        if self._closing is not None:
            self._closing()
        for env in self._made:
            env.close()
        self._vector = self._closing = None
        self._made = ()

    def _running(self) -> VectorEnv[Any, Any, Any]:
        if self._vector is None:
            off = AutoresetMode.DISABLED
            if self._workers:
                workers = [partial(in_worker, self.maker, os.getpid())] * self.number
                with _interrupts_waiting():
                    _start_server()
                    # JAX has threads by now, and a fork would copy their locks.
                    self._vector = AsyncVectorEnv(workers, context="forkserver", autoreset_mode=off)
            else:
                made = [*self._made, *[None] * (self.number - len(self._made))]
                lanes = [partial(Lane, self.maker, env) for env in made]
                self._vector, self._made = SyncVectorEnv(lanes, autoreset_mode=off), ()
            self._closing = weakref.finalize(self, _close, self._vector)
        return self._vector

    def _all_lost(self, number: int, why: str) -> LaneViews:
        """A worker died or hangs, and the vector environment with it."""
        guilty = _guilty(self._vector)[:number]
        _bury(self._vector)
        self.close()
        shape, dtype = self.maker.encoding.shape, self.maker.encoding.dtype
        no = np.zeros(number, bool)
        blank, nothing = np.zeros((number, *shape), dtype), np.zeros(number, np.float32)
        # If nobody can be found out, all count: somebody has to, or it would never end.
        raised = [why if one or not any(guilty) else Collateral(why) for one in guilty]
        return LaneViews(blank, nothing, no, no, raised, [None] * number)


def _seen(
    number: int, observations: NDArray[Any], rewards: NDArray[Any], told: dict[str, Any]
) -> LaneViews:
    def flags(name: str) -> NDArray[np.bool_]:
        return np.asarray(told.get(name, np.zeros(number, bool)), bool)[:number]

    def words(name: str) -> Sequence[str | None]:
        return [str(word) if word else None for word in told.get(name, [None] * number)[:number]]

    return LaneViews(
        observations[:number],
        rewards[:number].astype(np.float32),
        flags(ENDED),
        flags(TRUNCATED),
        words(RAISED),
        words(REFUSED),
    )


@contextmanager
def _interrupts_waiting() -> Iterator[None]:
    """Ctrl-C comes at the end of the block: half a start leaves workers that nobody knows of.

    The second one comes at once.
    """
    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(usual):
        yield
        return
    came: list[int] = []

    def wait(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if len(came) > 1:
            usual(number, frame)

    signal.signal(signal.SIGINT, wait)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
        if len(came) == 1:
            usual(signal.SIGINT, None)


def _start_server() -> None:
    """Start what starts workers with Ctrl-C blocked, for it and for them.

    Before they come to `in_worker` they import for a second, and a terminal tells all processes.
    """
    resource_tracker.ensure_running()  # first: starting it unblocks what is blocked
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _close(vector: VectorEnv[Any, Any, Any]) -> None:
    if not vector.closed:
        vector.close(**({"timeout": _PATIENCE} if isinstance(vector, AsyncVectorEnv) else {}))


def _guilty(vector: Any) -> list[bool]:
    """Which workers are dead, or have nothing to say."""
    found = []
    for process, pipe in zip(vector.processes, vector.parent_pipes, strict=True):
        try:
            answers = process.is_alive() and pipe is not None and pipe.poll(0)
        except (OSError, EOFError):
            answers = False
        found.append(not answers)
    return found


def _bury(vector: Any) -> None:
    """End what is left of workers of which one died: they cannot be talked to any more."""
    for process in vector.processes:
        process.terminate()
    for process, pipe in zip(vector.processes, vector.parent_pipes, strict=True):
        process.join(_PATIENCE)
        if process.is_alive():
            process.kill()
            process.join()
        if pipe is not None:
            pipe.close()
    vector.closed = True
