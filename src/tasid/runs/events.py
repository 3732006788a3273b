"""What learning reports while it goes on; progress bars, records and loggers listen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tasid.learning.belief.method import BatchEnded
from tasid.learning.paper.tasid import EpochEnded, StepEnded

Event = EpochEnded | StepEnded | BatchEnded
Callback = Callable[[Any], None]
