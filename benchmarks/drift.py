"""A small Gymnasium environment for other processes: it notes, dies and breaks when told so."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import gymnasium
import numpy as np

HORIZON = 4


class Drift(gymnasium.Env):
    """Two rooms, seen through noise."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, place=None, *, note=False, breaks=False, seconds=0.0, size=2):
        self.observation_space = gymnasium.spaces.Box(-9, 9, (size,), np.float32)
        self.rooms = np.eye(2, size)
        self.place = None if place is None else Path(place)
        self.note, self.breaks, self.seconds = note, breaks, seconds

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.note:
            self.write(f"episode-{seed}")
        self.room, self.steps = 0, 0
        return self.look(), {}

    def step(self, action):
        self.trouble()
        time.sleep(self.seconds)
        self.room = int(action) if self.np_random.random() < 0.9 else 1 - int(action)
        self.steps += 1
        return self.look(), float(self.room), False, False, {}

    def look(self):
        seen = self.rooms[self.room]
        return (seen + self.np_random.normal(scale=0.1, size=seen.size)).astype(np.float32)

    def trouble(self):
        if self.breaks and self.steps == 1:
            raise RuntimeError("so it breaks")
        if self.place is None:
            return
        try:
            (self.place / f"die-{self.steps}").unlink()
        except FileNotFoundError:
            return
        self.write(f"died-{self.steps}")
        os.kill(os.getpid(), signal.SIGKILL)

    def write(self, words):
        with open(self.place / "notes", "a") as file:
            file.write(f"{words}\n")
