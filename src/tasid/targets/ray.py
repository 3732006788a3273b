"""Episodes of wrapped environments played by the actors of a Ray cluster.

Every actor holds environments of its own and plays whole batches, policy included. Its only state
is what its constructor receives, so that Ray can restart it anywhere and repeat the batch that it
was playing. Episodes are functions of their keys and of the policy: results equal those of
`rollout` in this process at the same batch width.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import weakref
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tasid.episodes import Episodes
from tasid.policy import Policy
from tasid.targets.rollout import Batch, EpisodeError, play_batches

if TYPE_CHECKING:
    from tasid.targets.gymnasium_target import GymTarget

CONNECTION_SECONDS = 5.0
"""How long an address may take to answer; Ray itself would try for minutes."""


class RayError(ValueError):
    """Ray is not installed, or no cluster answers."""


def connect(address: str | None = None, *, argument: str = "cluster") -> Any:
    """The module `ray`, connected to a cluster.

    A connection that the program has already is used. Otherwise the cluster is the one at
    `address`: HOST:PORT, "auto" for the one that runs on this machine, or "local" or None to start
    a cluster here that ends with this process. That cluster listens on the loopback interface only,
    has no dashboard and reports no usage, because everybody who reaches a Ray cluster can run code
    on it. Errors name the `argument`.
    """
    address = address or "local"
    host, _, port = address.rpartition(":")
    if address not in ("local", "auto"):
        if not host or not port.isdecimal():
            raise RayError(f"{argument}: {address!r} is not HOST:PORT, 'auto' or 'local'")
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECTION_SECONDS).close()
        except (OSError, OverflowError) as error:
            raise RayError(f"{argument}: no answer from {address} ({error})") from None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray: Any = import_module("ray")
    except ImportError:
        raise RayError(f"{argument}: Ray is not installed; pip install 'tasid[ray]'") from None
    if ray.is_initialized():
        return ray
    if address == "local" or _is_loopback(host):
        # Ray would otherwise listen on the address that other machines know this one by.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        import_module("ray._private.ray_constants").ENABLE_RAY_CLUSTER = False  # type: ignore[attr-defined]
    options = {"include_dashboard": False} if address == "local" else {}
    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, **options)
    return ray


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Actors:
    """Plays batches of a wrapped target in Ray actors, which start when they are first needed.

    Parameters
    ----------
    target
        The target that every actor receives a copy of; its environments are not made yet.
    number
        How many actors.
    address
        Of the cluster, see `connect`.
    max_restarts
        How many actors may die while they play the same batch.
    """

    def __init__(
        self, target: GymTarget, number: int, address: str | None = None, *, max_restarts: int = 10
    ) -> None:
        self._target, self._number, self._address = target, number, address
        self._max_restarts = max_restarts
        self._actors: list[Any] = []

    def play_batches(
        self, target: GymTarget, policy: Policy, batches: Sequence[Batch]
    ) -> Iterator[tuple[NDArray[np.intp], Episodes]]:
        """Row numbers and whole episodes, in the order in which they finish."""
        ray = connect(self._address)
        missing = min(self._number, len(batches)) - len(self._actors)
        self._actors += [self._start(ray) for _ in range(missing)]
        # Bytes: arrays in Ray's object store are read-only, and Numba would compile for that again.
        content = ray.put(ray.cloudpickle.dumps(policy))
        waiting, idle = list(reversed(batches)), list(self._actors)
        playing: dict[Any, Any] = {}
        try:
            while waiting or playing:
                while waiting and idle:
                    actor = idle.pop()
                    playing[actor.play.remote(content, waiting.pop(), target.horizon)] = actor
                (ready,), _ = ray.wait(list(playing), num_returns=1)
                idle.append(playing.pop(ready))
                finished, error = ray.get(ready)
                yield from finished
                if error is not None:
                    raise error
        except ray.exceptions.RayError as error:
            self.close()
            raise EpisodeError(
                f"env: Ray actors cannot play a batch of episodes: {error}"
            ) from None
        except BaseException:
            self.close()  # with the batches that they are playing
            raise

    def _start(self, ray: Any) -> Any:
        actor = (
            ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=self._max_restarts)(Player)
            .options(scheduling_strategy="SPREAD")
            .remote(self._target)
        )
        weakref.finalize(self, _kill, actor)
        return actor

    def close(self) -> None:
        """End the actors and their environments; the next batches start new ones."""
        for actor in self._actors:
            _kill(actor)
        self._actors = []


def _kill(actor: Any) -> None:
    import ray

    if ray.is_initialized():
        ray.kill(actor)


class Player:
    """The actor: a target in a process of its own, and the last policy it has received."""

    def __init__(self, target: GymTarget) -> None:
        self._target = target
        self._content = b""
        self._policy: Any = None

    def play(
        self, content: bytes, batch: Batch, horizon: int
    ) -> tuple[list[tuple[NDArray[np.intp], Episodes]], Exception | None]:
        """Whole episodes of a batch, and the error that kept it from playing all of them."""
        from ray import cloudpickle

        if content != self._content:
            self._content, self._policy = content, cloudpickle.loads(content)
        finished = []
        try:
            for part in play_batches(self._target.with_horizon(horizon), self._policy, [batch]):
                finished.append(part)
        except (ValueError, TypeError) as error:
            return finished, error
        return finished, None
