"""Lanes: environments in which episodes are played one after the other.

A lane never raises. An exception of the environment, `SystemExit` included, is a failure: the
episode is unusable and may be played again. A `Lane` lives in this process, a `ProcessLane` in a
process of its own, started by a forkserver because JAX's threads do not survive a fork. Processes
that die or exceed their time limit are failures, too.
"""

from __future__ import annotations

import math
import multiprocessing
import signal
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from traceback import walk_tb
from typing import Any, NamedTuple

import gymnasium
from gymnasium.vector.utils import CloudpickleWrapper
from numpy.typing import NDArray

from tasid.targets.spaces import Encoder, ObservationError

Env = gymnasium.Env[Any, Any]

CLOSING_SECONDS = 10.0
"""How long a process may take to close its environment before it is killed."""


class Reply(NamedTuple):
    """What a lane answers to `reset` or `step`."""

    observation: NDArray[Any] | None = None
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    failure: str | None = None
    """What the environment raised; the episode may be played again."""
    refusal: str | None = None
    """Why the answer is not usable; playing again would not help."""


@dataclass(eq=False)
class Lane:
    """An environment in this process."""

    factory: Callable[[], Env]
    encoder: Encoder
    first_action: int
    rendered: bool
    """Are observations pictures by `render()`?"""
    renewable: bool
    """Does the factory make new environments, or return the same one?"""
    env: Env | None = None
    """Created when first needed if None."""

    def send(self, method: str, argument: int) -> None:
        """Request `reset` with a seed or `step` with an action; `receive` answers."""
        self._request = method, argument

    def receive(self) -> Reply:
        """Execute the request."""
        method, argument = self._request
        try:
            if self.env is None:
                self.env = self.factory()
            if method == "reset":
                observation, _ = self.env.reset(seed=argument)
                reward: Any = 0.0
                terminated = truncated = False
            else:
                action = argument + self.first_action
                observation, reward, terminated, truncated, _ = self.env.step(action)
            raw = self.env.render() if self.rendered else observation
            if not math.isfinite(reward):
                raise ObservationError(f"reward: {reward!r} is not a finite number")
            return Reply(self.encoder(raw), float(reward), bool(terminated), bool(truncated))
        except ObservationError as error:
            return Reply(refusal=f"{method}: {error}")
        except (Exception, SystemExit) as error:
            if self.renewable:
                self.close()
            return Reply(failure=f"{method}: {describe(error)}")

    def close(self) -> None:
        """Close the environment; the next request creates a new one."""
        if self.env is not None:
            with suppress(Exception, SystemExit):  # it may be broken already
                self.env.close()
        self.env = None


class ProcessLane:
    """A lane in a process of its own."""

    def __init__(self, lane: Lane, timeout: float | None) -> None:
        self.lane, self.timeout = lane, timeout
        self._process: Any = None
        self._pending: str | None = None

    def send(self, method: str, argument: int) -> None:
        """Request `reset` with a seed or `step` with an action; `receive` answers."""
        if self._pending is not None:  # of an interrupted episode
            self._kill()
        if self._process is None:
            context = multiprocessing.get_context("forkserver")
            self._pipe, pipe = context.Pipe()
            make_lane: Any = CloudpickleWrapper(partial(copy, self.lane))
            self._process = context.Process(target=_serve, args=(pipe, make_lane), daemon=True)
            self._process.start()
            pipe.close()
            self._importing = True
        self._pending = method
        with suppress(OSError):  # a dead process; `receive` reports it
            self._pipe.send((method, argument))

    def receive(self) -> Reply:
        """Wait for the answer."""
        try:
            if self._importing:  # which is not subject to the time limit
                self._pipe.recv()
                self._importing = False
            if self._pipe.poll(self.timeout):
                reply: Reply = self._pipe.recv()
                self._pending = None
                return reply
            failure = f"{self._pending}: no answer within {self.timeout} s"
        except (EOFError, OSError):
            self._process.join(CLOSING_SECONDS)
            failure = f"{self._pending}: its process died (exit code {self._process.exitcode})"
        self._kill()
        return Reply(failure=failure)

    def close(self) -> None:
        """Close the environment and end the process; the next request starts a new one."""
        if self._process is not None:
            self._pipe.close()
            self._process.join(CLOSING_SECONDS)
            self._kill()

    def _kill(self) -> None:
        self._process.kill()
        self._process.join()
        self._pipe.close()
        self._process = self._pending = None


def _serve(pipe: Any, make_lane: Callable[[], Lane]) -> None:
    """Main function of a worker process, which ends when the other end of its pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the main process
    lane = make_lane()
    with suppress(EOFError, OSError):
        pipe.send("imported")
        while True:
            lane.send(*pipe.recv())
            pipe.send(lane.receive())
    lane.close()


def describe(error: BaseException) -> str:
    """Type, message and innermost line of user code of an exception."""
    message = f"{type(error).__name__}: {error}"
    for frame, line in reversed(list(walk_tb(error.__traceback__))):
        file = Path(frame.f_code.co_filename)
        library = "site-packages" in file.parts or file.is_relative_to(Path(__file__).parents[1])
        if file.is_file() and not library:
            return f"{message} ({file.name}, line {line})"
    return message
