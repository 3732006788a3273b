"""A robot that drives through a Doom level by the moves of a map: turns of 90°, steps of a cell.

The engine knows nothing of cells. Each move puts the player where the map says, gives or takes the
jitter of a real pose, and plays on until the engine reports that very position and angle. None of
this is in what the agent sees: the screen.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import vizdoom
from level import to_level
from numpy.typing import NDArray

from tasid import AbstractSimulator

JITTER, TURN_JITTER = 0.15, 3.0
"""Metres and degrees, to either side."""
LEAST_TURN = 360 / 65536
"""Degrees; the engine's console knows whole units of length only, and its angles are multiples."""
PATIENCE = 100
"""Tics in which the engine has to take up a pose."""


class DoomFloor(gymnasium.Env[NDArray[np.uint8], np.int64]):
    """The level at `wad`, driven by the map `sim`, whose commands slip with probability η."""

    def __init__(self, wad: Path, sim: AbstractSimulator, eta: float) -> None:
        assert sim.layout is not None
        assert sim.layout.angles is not None
        self.sim, self.eta, self.horizon = sim, eta, sim.horizon
        self.places = sim.layout.centres(np.arange(sim.num_states))
        self.angles = 90.0 - sim.layout.angles  # Doom's begin in the east and go the other way
        self.action_space = gymnasium.spaces.Discrete(sim.num_actions)
        self.observation_space = gymnasium.spaces.Box(0, 255, (120, 160, 3), np.uint8)
        self.game = _engine(wad)
        self.state = int(sim.starts[0])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.uint8], dict[str, Any]]:
        """Back to the dock."""
        super().reset(seed=seed)
        self.state = int(self.sim.starts[0])
        return self._look(), {}

    def step(self, action: np.int64) -> tuple[NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """One command, or with probability η any other."""
        if self.np_random.random() < self.eta:
            action = self.np_random.integers(self.sim.num_actions)
        reward = float(self.sim.reward_at(0)[self.state, action])
        self.state = int(self.sim.successor_at(0)[self.state, action])
        over = bool((self.sim.successor_at(0)[self.state] == self.state).all())
        return self._look(), reward, over, False, {}

    def close(self) -> None:
        """End the engine's process."""
        self.game.close()

    def _look(self) -> NDArray[np.uint8]:
        """The screen at the robot's pose, never twice the same."""
        x, y = self.places[self.state] + self.np_random.uniform(-JITTER, JITTER, 2)
        angle = self.angles[self.state] + self.np_random.uniform(-TURN_JITTER, TURN_JITTER)
        hold(self.game, *to_level(x, y), angle)
        return np.array(self.game.get_state().screen_buffer)


def hold(game: vizdoom.DoomGame, x: float, y: float, angle: float) -> None:
    """Close the loop on position and angle, to the nearest that the engine can take up."""
    x, y, angle = round(x), round(y), round(angle / LEAST_TURN) * LEAST_TURN
    game.send_game_command(f"warp {x} {y}")
    for _ in range(PATIENCE):
        at_x, at_y, at_angle = game.get_state().game_variables
        off = (at_angle - angle + 180.0) % 360.0 - 180.0
        if (at_x, at_y) == (x, y) and abs(off) < LEAST_TURN / 2:
            return
        game.make_action([off])
    raise RuntimeError(f"the engine stays at {at_x:g}, {at_y:g}, {at_angle:g}° instead of "
                       f"{x}, {y}, {angle:g}°")  # fmt: skip


def _engine(wad: Path) -> vizdoom.DoomGame:
    """The level without a window, sound, weapon or anything else on the screen."""
    game = vizdoom.DoomGame()
    game.set_doom_scenario_path(str(wad))
    game.set_doom_config_path(str(wad.with_suffix(".ini")))
    game.set_doom_map("MAP01")
    game.set_screen_resolution(vizdoom.ScreenResolution.RES_160X120)
    game.set_screen_format(vizdoom.ScreenFormat.RGB24)
    game.set_window_visible(False)
    for show in (game.set_render_hud, game.set_render_weapon, game.set_render_crosshair):
        show(False)
    game.set_available_buttons([vizdoom.Button.TURN_LEFT_RIGHT_DELTA])
    variables = vizdoom.GameVariable
    game.set_available_game_variables([variables.POSITION_X, variables.POSITION_Y, variables.ANGLE])
    game.set_episode_start_time(PATIENCE)  # until then the screen fades in
    game.set_episode_timeout(0)
    game.init()
    return game
