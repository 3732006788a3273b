"""Several seeds at a time, a thread each: the same results as one after the other."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tasid.runs.executors.dispatch import Interrupted, Result, in_threads
from tasid.runs.record import Callback

Job = Callable[[Sequence[Callback]], Result]
"""Does its work, and tells callbacks how it goes."""


def side_by_side(jobs: Sequence[Job[Result]], callbacks: Sequence[Callback]) -> list[Result]:
    """The jobs' results in order, as many at a time as there are processors.

    One callback is called at a time. After an error or Ctrl-C, the other jobs end at their next
    event.
    """
    halt, speaking = threading.Event(), threading.Lock()

    def tell(event: Any) -> None:
        with speaking:
            if halt.is_set():
                raise Interrupted
            try:
                for callback in callbacks:
                    callback(event)
            except BaseException:
                halt.set()
                raise

    told = [partial(job, [tell]) for job in jobs]
    running = in_threads(told, workers=os.cpu_count() or 1, halt=halt.set)
    return [one.result() for one in running]
