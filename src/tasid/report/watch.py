"""One episode of a policy as pictures: a GIF, or a page with a player.

A frame shows the observation, the map with the belief and the estimated state, the chosen action,
the confidence, whether the policy calls itself lost, and the return. In environments of ours it
also shows the true state, marked as such: the policy never sees it.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from PIL import Image

from tasid.hmm.transitions import TransitionGraph
from tasid.keys import Keys, Phase, episode_keys
from tasid.policies.evaluate import matching
from tasid.policy import Policy
from tasid.report.figures import PALETTE, style
from tasid.report.maps import MapView, action_name, map_view, state_name
from tasid.simulator import AbstractSimulator
from tasid.storage import write_bytes_atomically
from tasid.targets.base import State, Target
from tasid.targets.rollout import rollout

Look = dict[str, Any]
ESTIMATE: Look = {"color": PALETTE["learned"], "markersize": 9, "markeredgecolor": "white"}
ESTIMATE |= {"linestyle": "none", "zorder": 8, "label": "estimate"}
TRUTH: Look = {"color": "none", "markersize": 15, "markeredgecolor": PALETTE["nominal"]}
TRUTH |= {"linestyle": "none", "zorder": 9, "markeredgewidth": 1.8}
TRUTH |= {"label": "true state (the policy does not see it)"}
ESTIMATE_LINE: Look = {"color": PALETTE["learned"], "linewidth": 1.6, "zorder": 6}
TRUE_LINE: Look = {"color": "#efc3a6", "linewidth": 4.5, "zorder": 5}
PLANNED_LINE: Look = {"color": "#8d8a80", "linewidth": 1.4, "linestyle": "--", "zorder": 4}
PLANNED_LINE |= {"label": "planned route"}


class KidnappedTarget(Target):
    """A block MDP whose episodes are moved to state `to`, one or [n], before step `at`."""

    def __init__(self, target: Any, at: int, to: int | NDArray[Any]) -> None:
        self.target, self.at, self.to = target, at, to
        self.__dict__.update({name: getattr(target, name) for name in Target.__annotations__})

    def reset(self, keys: Keys) -> tuple[State, NDArray[Any]]:
        return self.target.reset(keys)

    def step(
        self, state: State, actions: NDArray[np.int32], h: int, keys: Keys
    ) -> tuple[State, NDArray[Any], NDArray[np.float32], NDArray[np.bool_]]:
        state, observations, rewards, done = self.target.step(state, actions, h, keys)
        if h + 1 == self.at:
            state, observations = self.target.place(self.to, keys)
        return state, observations, rewards, done


@dataclass(frozen=True, eq=False)
class WatchedEpisode:
    """One episode, step by step. What the policy or the target does not tell is None."""

    policy: Policy
    simulator: AbstractSimulator | None
    """The policy's map."""
    observations: NDArray[Any]
    """x_0 … x_{T−1}, [T, …]."""
    actions: NDArray[np.int32]
    rewards: NDArray[np.float32]
    states: NDArray[np.intp] | None
    """Estimated states ŝ_h when acting, [T]."""
    confidence: NDArray[np.float64] | None
    """Probability of ŝ_h, [T]."""
    lost: NDArray[np.bool_] | None
    beliefs: NDArray[np.float64] | None
    """Probabilities of the map's states when acting, [T, S]."""
    true_states: NDArray[np.intp] | None
    """s_h, [T], in environments of ours."""
    kidnapped_at: int | None = None
    """The robot was moved to another state before this step."""

    @property
    def total(self) -> float:
        """The return."""
        return float(self.rewards.sum())

    @cached_property
    def steps(self) -> int:
        """Steps until the last move or reward, by the true state if it is known; at least 1."""
        states = self.states if self.true_states is None else self.true_states
        if states is None:
            return len(self.actions)
        active = self.rewards != 0
        active[:-1] |= states[1:] != states[:-1]
        return int(np.flatnonzero(active).max(initial=0)) + 1

    @property
    def num_frames(self) -> int:
        """One frame more than `steps`, if there is one, shows where the episode ended."""
        return min(self.steps + 1, len(self.actions))

    def summary(self) -> dict[str, Any]:
        """The episode as JSON values."""
        known: dict[str, Any] = {
            name: None if column is None else column[: self.steps].tolist()
            for name in ("actions", "states", "confidence", "lost", "true_states")
            for column in [getattr(self, name)]
        }
        return known | {"return": self.total, "steps": self.steps, "horizon": self.policy.horizon}

    def headline(self, h: int) -> tuple[str, str, str]:
        """Text above the frame of step h: action and reward, estimate, whether it is right."""
        moved = "kidnapped before it · " if h == self.kidnapped_at else ""
        first = f"step {h} · {moved}{action_name(self.simulator, int(self.actions[h]))} · "
        first += f"reward {_signed(float(self.rewards[h]))}"
        total = f"return after this step {_signed(float(self.rewards[: h + 1].sum()))}"
        if self.simulator is None or self.states is None or self.confidence is None:
            return first, total, ""
        estimated, status = int(self.states[h]), []
        second = f"estimated state {state_name(self.simulator, estimated)}, confidence "
        second += f"{self.confidence[h]:.2f} · {total}"
        right = self.true_states is not None and estimated == self.true_states[h]
        if self.true_states is not None:
            true = state_name(self.simulator, int(self.true_states[h]))
            status.append("estimate correct" if right else f"estimate wrong, true state {true}")
        if self.lost is not None and self.lost[h]:  # an estimate may be right again at once
            status.append("" if right else "lost")
            status.append("recent observations contradict the estimated path")
        return first, second, " · ".join(text for text in status if text)

    def frames(self, steps: Iterable[int] | None = None) -> Iterator[Image.Image]:
        """Pictures of these steps, or of all `num_frames`."""
        view, sim, plan = None, self.simulator, self.policy.plan
        if sim is not None:
            known = [s for s in (self.true_states, self.states) if s is not None]
            states = [int(state) for column in known for state in column]
            if plan is not None and states:
                states += plan.path(states[:1])[:, 0].tolist()
            if self.beliefs is not None:
                states += np.flatnonzero(self.beliefs.max(axis=0) > 0.05).tolist()
            view = map_view(sim, states)
        for h in range(self.num_frames) if steps is None else steps:
            yield _frame(self, view, h)

    def save_gif(self, path: str | Path, *, milliseconds: int = 450, pause: int = 2500) -> Path:
        """An animation; the last frame stays for `pause` milliseconds."""
        if Path(path).suffix.lower() != ".gif":
            raise ValueError(f"path: {str(path)!r} should end in .gif")
        first, *others = self.frames()
        buffer = io.BytesIO()
        durations = [milliseconds] * len(others) + [pause]
        first.save(buffer, "GIF", save_all=True, append_images=others, duration=durations, loop=0)
        return write_bytes_atomically(path, buffer.getvalue())

    def save_html(self, path: str | Path) -> Path:
        """A self-contained page that plays the episode."""
        from tasid.report.page import Section, render_page

        name = (self.policy.environment or {}).get("name", "episode")
        text = f"{self.steps} steps, return {_signed(self.total)}."
        section = Section("", paragraphs=(text,), player=self.player())
        page = render_page(f"One episode: {name}", [section])
        return write_bytes_atomically(path, page.encode())

    def player(self, most: int = 1_000) -> tuple[bytes, ...]:
        """At most this many frames as PNG files, evenly spread, for a section of a page."""
        steps = np.linspace(0, self.num_frames - 1, min(most, self.num_frames)).round()
        files = []
        for frame in self.frames(np.unique(steps).astype(int).tolist()):
            buffer = io.BytesIO()
            frame.save(buffer, "PNG", optimize=True)
            files.append(buffer.getvalue())
        return tuple(files)


def watch(
    policy: Policy,
    env: Target,
    *,
    seed: int = 0,
    episode: int = 0,
    kidnap_at: int | None = None,
) -> WatchedEpisode:
    """Follow a policy through one episode.

    Parameters
    ----------
    policy, env
        The policy and the target in which it acts.
    seed, episode
        The episode that `tasid.evaluate` draws under this seed and number.
    kidnap_at
        Before this step, 1 … H−1, move the robot to a random state in which it can be then and
        which is neither absorbing nor a hazard; in environments of ours.
    """
    target = matching(policy, env)
    sim = target.simulator if policy.plan is None else policy.plan.simulator
    latent = None if sim is None else target.latent_on(sim)
    if kidnap_at is not None:
        if sim is None or latent is None or not hasattr(target, "place"):
            raise ValueError("kidnap_at: only the robot of an environment of ours can be moved")
        if not 0 < kidnap_at < target.horizon:
            raise ValueError(f"kidnap_at: {kidnap_at} is not in 1 … {target.horizon - 1}")
        possible = TransitionGraph.from_simulator(sim).states_at(kidnap_at)
        kept = ~sim.absorbing(kidnap_at) & (True if sim.hazards is None else ~sim.hazards)
        states = [state for state in possible.tolist() if state >= 0 and kept[state]]
        to = int(np.random.default_rng((seed, episode)).choice(states))
        target = KidnappedTarget(target, kidnap_at, to)

    unknown = np.zeros((1, 0))

    def trace(state: State, memory: Any, h: int) -> tuple[Any, ...]:
        estimate, belief = policy.estimate(memory, h), policy.belief(memory, h)
        return (
            *((unknown,) * 3 if estimate is None else estimate),
            unknown if belief is None else belief,
            unknown if latent is None else latent.states(state),
        )

    keys = episode_keys(seed, Phase.EVALUATION, episode, 1)
    played = rollout(target, policy, keys, trace=trace, width=1)
    length = int(played.lengths[0])
    columns = (played.observations, played.actions, played.rewards, *played.trace)
    names = "observations actions rewards states confidence lost beliefs true_states".split()
    parts: dict[str, Any] = {
        name: column[0, :length] if column[0].size else None
        for name, column in zip(names, columns, strict=True)
    }
    return WatchedEpisode(policy, sim, **parts, kidnapped_at=kidnap_at)


@style()
def _frame(episode: WatchedEpisode, view: MapView | None, h: int) -> Image.Image:
    """Picture of step h: text, the observation beside the map, the confidence so far."""
    panel = 3.3  # inches
    map_width = 0.0 if view is None else float(np.clip(panel * view.aspect, 1.8, 5.4))
    width, height = max(panel + map_width + 1.3, 6.8), panel + 2.65
    figure = Figure(figsize=(width, height), dpi=100)

    def axes_at(left: float, bottom: float, wide: float, high: float, title: str) -> Axes:
        axes = figure.add_axes((left / width, bottom / height, wide / width, high / height))
        axes.set_title(title, fontsize=9, loc="left", color=PALETTE["muted"], pad=3)
        axes.set_anchor("NW")
        axes.tick_params(labelsize=8)
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        return axes

    lost = episode.lost is not None and episode.lost[h]
    status = ("alarm", 9.5, "bold") if lost else ("muted", 9.5, "normal")
    styles = (("ink", 13.0, "bold"), ("muted", 9.5, "normal"), status)
    for row, (text, (colour, size, weight)) in enumerate(
        zip(episode.headline(h), styles, strict=True)
    ):
        place = (0.02, 1 - (0.12 + 0.24 * row) / height)
        figure.text(*place, text, va="top", size=size, color=PALETTE[colour], weight=weight)
    _draw_observation(axes_at(0.45, 1.6, panel - 0.35, panel, "observation"), episode, h)
    handles: list[Any] = []
    if view is not None:
        axes = axes_at(width - map_width - 0.2, 1.6, map_width, panel, "map")
        handles = _draw_map(axes, episode, view, h)
    if episode.confidence is not None:
        axes = axes_at(0.45, 0.6, width - 0.65, 0.45, "confidence at each step")
        _draw_confidence(axes, episode, episode.confidence, h)
    figure.legend(handles=handles, loc="lower left", ncols=5, fontsize=8.5)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return Image.open(buffer).convert("RGB").quantize(256, Image.Quantize.MEDIANCUT)


def _draw_observation(axes: Axes, episode: WatchedEpisode, h: int) -> None:
    """An image as it is, a laser scan as points, everything else as bars."""
    every = episode.observations
    if every.ndim == 4 and min(every.shape[1:3]) > 1 and every.shape[3] in (1, 3, 4):
        axes.imshow(every[h], cmap="gray", vmin=every.min(), vmax=every.max())
        axes.set_axis_off()
        return
    flat = every.reshape(len(every), -1).astype(float)
    if (episode.policy.environment or {}).get("name") == "building":
        _draw_scan(axes, flat[h], 1.05 * float(flat.max()))
        return
    axes.bar(np.arange(flat.shape[1]), flat[h], width=0.8, color=PALETTE["muted"])
    low, high = min(flat.min(), 0.0), max(flat.max(), 0.0)
    axes.set_ylim(low - 0.04 * (high - low), high + 0.04 * (high - low) + 1e-9)
    axes.grid(visible=False, axis="x")


def _draw_scan(axes: Axes, ranges: NDArray[np.float64], reach: float) -> None:
    """Ends of laser beams around the robot; beams run counter-clockwise from straight ahead."""
    turn = np.pi / 2 + np.linspace(0, 2 * np.pi, len(ranges), endpoint=False)
    ends = ranges[:, None] * np.stack([np.cos(turn), np.sin(turn)], axis=1)
    beams = np.stack([np.zeros_like(ends), ends], axis=1)
    axes.plot(*beams.transpose(2, 1, 0), color=PALETTE["line"], linewidth=0.8, zorder=1)
    axes.plot(*ends[ranges > 0].T, ".", color=PALETTE["learned"], markersize=5)  # 0: no echo
    axes.plot(0, 0, marker="^", color=PALETTE["ink"], markersize=8, zorder=3)
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    axes.set_xlabel("laser ranges (m), ahead is up", fontsize=8.5)
    axes.grid(visible=False)


def _draw_map(axes: Axes, episode: WatchedEpisode, view: MapView, h: int) -> list[Any]:
    """The map with belief, states and planned route; returns handles for the legend."""
    sim, plan = episode.simulator, episode.policy.plan
    handles: list[Any] = []
    assert sim is not None
    view.draw(axes)
    if episode.beliefs is not None:
        likely = np.flatnonzero(episode.beliefs[h] > 1e-4)
        weight = episode.beliefs[h, likely].clip(0, 1)
        look: Look = {"marker": "s", "s": 40, "linewidths": 0, "zorder": 3}
        places = view.places(h, likely).T
        axes.scatter(*places, color=PALETTE["learned"], alpha=0.1 + 0.5 * np.sqrt(weight), **look)
        handles.append(Patch(facecolor=PALETTE["learned"], alpha=0.4, label="belief"))
    axes.set_aspect("auto" if sim.layout is None else "equal")
    if plan is not None and episode.states is not None:
        route = plan.path(episode.states[[h]], h)[:, 0]
        axes.plot(*view.places(np.arange(h, h + len(route)), route).T, **PLANNED_LINE)
        handles.append(Line2D([], [], **PLANNED_LINE))
    for states, line, mark in (
        (episode.states, ESTIMATE_LINE, ESTIMATE),
        (episode.true_states, TRUE_LINE, TRUTH),
    ):
        if states is not None:
            trail = view.places(np.arange(h + 1), states[: h + 1]).repeat(2, axis=0)
            for step, (state, after) in enumerate(pairwise(states[: h + 1].tolist())):
                if after not in sim.successor_at(step)[state]:  # a gap: the map has no such step
                    trail[2 * step + 1] = np.nan
            axes.plot(*trail.T, **line)
            axes.plot(*view.places([h], states[[h]]).T, marker=view.marker(int(states[h])), **mark)
            handles.append(Line2D([], [], marker="o", **mark))
    return handles


def _draw_confidence(
    axes: Axes, episode: WatchedEpisode, confidence: NDArray[np.float64], h: int
) -> None:
    """Confidence until step h, red where the policy calls itself lost."""
    steps, moved = np.arange(h + 1), episode.kidnapped_at
    lost = np.zeros(h + 1, bool) if episode.lost is None else episode.lost[: h + 1]
    colours = [PALETTE["alarm"] if alarm else PALETTE["learned"] for alarm in lost]
    axes.bar(steps, confidence[: h + 1], width=0.92, color=colours)
    axes.set(xlim=(-0.6, episode.num_frames - 0.4), ylim=(0, 1.02), yticks=[0, 1])
    axes.grid(visible=False)
    if moved is not None and h >= moved:
        axes.axvline(moved - 0.5, color=PALETTE["ink"], linewidth=1.6)
        axes.set_title("| kidnapped", loc="right", fontsize=9, pad=3)


def _signed(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")
