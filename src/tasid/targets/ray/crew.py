"""Environments in Ray actors, on any node: whole episodes are played there, policy and all.

An episode is a function of its key and of what plays it, so it may go to whoever is free, and one
whose actor died is played again by another. What plays is put into the object store once and read
by every actor once; a finished episode comes back in one piece.
"""

from __future__ import annotations

import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tasid.targets.batches import Rollout, here
from tasid.targets.ray.session import LOCAL, connect
from tasid.targets.target import EpisodeFailed, Target

_DEATHS = 10
"""How many actors may die of one episode."""
_REMEMBERED = 8
"""Things to play with that an actor keeps."""


class _Piece(NamedTuple):
    """An episode to be played: a row of a group."""

    group: int
    place: int
    row: int


class Crew:
    """As many actors as there are environments, made when first needed."""

    def __init__(self, alone: Target, number: int) -> None:
        self._alone, self._number = alone, number
        self._ray: Any = None
        self._factory: Any = None
        self._actors: list[Any] = []
        self._leave: weakref.finalize[..., Any] | None = None

    def play(
        self,
        target: Target,
        groups: Sequence[tuple[Rollout, Sequence[int]]],
        width: int,
        perform: Callable[..., Any] = here,
        arrived: Callable[[Any], None] | None = None,
    ) -> list[list[Any]]:
        """What `perform` gives for every row of every group, one row at a time, in order.

        It is `here`, or what does more than that. `arrived` is told each of them at once, in
        whatever order they come.
        """
        ray = self._connected()
        runs = [ray.put(run) for run, _ in groups]
        how = ray.put(perform)
        found: list[list[Any]] = [[None] * len(rows) for _, rows in groups]
        waiting = deque(
            _Piece(group, place, row)
            for group, (_, rows) in enumerate(groups)
            for place, row in enumerate(rows)
        )
        self._grow(len(waiting))
        idle, deaths = deque(self._actors), Counter[_Piece]()
        playing: dict[Any, tuple[_Piece, Any]] = {}
        try:
            while waiting or playing:
                while waiting and idle:
                    piece, actor = waiting.popleft(), idle.popleft()
                    given = ([runs[piece.group], how], piece.row, width, target.horizon)
                    playing[actor.play.remote(*given)] = piece, actor
                ready, _ = ray.wait(list(playing), num_returns=1)
                piece, actor = playing.pop(ready[0])
                try:
                    one = found[piece.group][piece.place] = ray.get(ready[0])
                    if arrived is not None:
                        arrived(one)
                except ray.exceptions.RayTaskError as error:
                    raise _plain(error) from None
                except ray.exceptions.RayError as error:  # the actor, its node, or what it gave
                    deaths[piece] += 1
                    if deaths[piece] > _DEATHS:
                        raise EpisodeFailed(
                            f"env: {deaths[piece]} workers died of one episode, last {error}"
                        ) from None
                    waiting.appendleft(piece)
                    actor = self._replaced(actor)
                idle.append(actor)
        except BaseException:
            self.close()  # nobody wants what is under way
            raise
        return found

    def close(self) -> None:
        """End the actors, and their environments with them; using the crew again makes new ones."""
        if self._ray is not None and self._ray.is_initialized():
            for actor in self._actors:
                self._ray.kill(actor)
        self._actors = []

    def _connected(self) -> Any:
        if self._ray is None or not self._ray.is_initialized():
            self._ray, ours = connect(LOCAL, argument="workers")
            self._actors = []
            self._factory = self._ray.remote(num_cpus=0, max_restarts=0, max_task_retries=0)(Player)
            if ours:
                self._leave = weakref.finalize(self, self._ray.shutdown)
        return self._ray

    def _grow(self, wanted: int) -> None:
        while len(self._actors) < min(self._number, wanted):
            self._actors.append(self._new())

    def _replaced(self, dead: Any) -> Any:
        """Another actor in the place of one that may still be there after all."""
        self._ray.kill(dead)
        fresh = self._new()
        self._actors[self._actors.index(dead)] = fresh
        return fresh

    def _new(self) -> Any:
        return self._factory.options(scheduling_strategy="SPREAD").remote(self._alone)


class Player:
    """A target with one environment, in an actor of its own."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._known: OrderedDict[Any, Any] = OrderedDict()

    def play(self, references: Sequence[Any], row: int, width: int, horizon: int) -> Any:
        """One episode."""
        run, perform = (self._read(one) for one in references)
        return perform(self._target.with_horizon(horizon), run, rows=[row], width=width)

    def _read(self, reference: Any) -> Any:
        import ray

        if reference not in self._known:
            self._known[reference] = ray.get(reference)
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return self._known[reference]


def _plain(error: Any) -> Any:
    """An error of the environment as it was raised, if it is one that is documented."""
    for kind in (EpisodeFailed, ValueError, TypeError):
        if isinstance(error.cause, kind):
            return kind(str(error.cause))
    return error
