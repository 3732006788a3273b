"""What learning reports while it goes on; progress bars, records and loggers listen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tasid.algorithms.belief_method import BatchEnded
from tasid.algorithms.tasid import EpochEnded, StepEnded

Event = EpochEnded | StepEnded | BatchEnded
Callback = Callable[[Any], None]
