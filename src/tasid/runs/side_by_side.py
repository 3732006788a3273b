"""Several seeds at a time, a thread each: the same results as one after the other."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from tasid.runs.events import Callback

Result = TypeVar("Result")
Job = Callable[[Sequence[Callback]], Result]
"""Does its work, and tells callbacks how it goes."""


class _Halted(Exception):
    """Another job failed, or somebody interrupted them all."""


def side_by_side(jobs: Sequence[Job[Result]], callbacks: Sequence[Callback]) -> list[Result]:
    """The jobs' results in order, as many at a time as there are processors.

    One callback is called at a time. After an error or Ctrl-C, the other jobs end at their next
    event.
    """
    halt, speaking = threading.Event(), threading.Lock()

    def tell(event: Any) -> None:
        with speaking:
            if halt.is_set():
                raise _Halted
            try:
                for callback in callbacks:
                    callback(event)
            except BaseException:
                halt.set()
                raise

    with ThreadPoolExecutor(min(len(jobs), os.cpu_count() or 1)) as pool:
        running = [pool.submit(job, [tell]) for job in jobs]
        try:
            wait(running, return_when=FIRST_EXCEPTION)
        finally:
            halt.set()
            pool.shutdown(cancel_futures=True)
    troubles = [one.exception() for one in running if not one.cancelled()]
    for trouble in troubles:
        if trouble is not None and not isinstance(trouble, _Halted):
            raise trouble
    return [one.result() for one in running]
