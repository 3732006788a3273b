"""What the belief method reaches, setting by setting, on seeds that nothing was tuned on.

Every setting is learned with a given number of episodes and once more with `episodes="auto"`. A
ratio is the return over the exact value, in that very target, of the robust plan for an oracle.

Coloured maps ask whether episodes grow with the number of states: layered maps in which a layer has
W states of three colours, every state leads to one state of each colour by two actions each, and a
third of the states pay 1 on arrival. An observation shows colour and a random code of the state,
rotated and noisy, so that no two states look alike.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

import tasid
from reproduction.pages import Line, Page, chart, editions, spread
from reproduction.records import Experiment, Job, Outcome, Record
from tasid.policies.evaluate import summary, yardsticks
from tasid.report.page import Section, Table, number

LAYERS, ACTIONS, COLOURS, CODE = 12, 6, 3, 13
"""Of coloured maps: steps, actions, colours and entries of a state's code."""
STANDARD_ERROR = 0.005
"""Of a ratio, which evaluations aim for."""
FEWEST, MOST = 2_048, 65_536
"""Episodes of an evaluation."""
LAKES: dict[str, dict[str, Any]] = {
    "lake-4x4-pictures": {"horizon": 20, "observe": "render", "success_rate": 0.8},
    "lake-8x8-numbers": {"horizon": 40, "observe": "observation", "success_rate": 0.8}
    | {"map_name": "8x8"},
}


@dataclass(frozen=True)
class Setting:
    """A world with its options, its η, and a number of episodes."""

    world: str
    options: Mapping[str, Any]
    eta: float
    episodes: int


def settings() -> dict[str, Setting]:
    """All of them by name."""
    lock, lava = partial(Setting, "combination-lock"), partial(Setting, "lava-crossing")
    named = {
        f"lock-H{h}": lock({"horizon": h}, 0.1, n)
        for h, n in ((10, 64), (20, 96), (40, 128), (100, 400))
    }
    named["lock-H400"] = lock({"horizon": 400}, 0.02, 1_000)
    named["lock-A4"] = lock({"horizon": 40, "num_actions": 4}, 0.1, 192)
    named["lock-A25"] = lock({"horizon": 40, "num_actions": 25}, 0.1, 192)
    named["lock-eta0.3"] = lock({"horizon": 20}, 0.3, 192)
    named["lock-bernoulli"] = lock({"horizon": 40, "bernoulli": True}, 0.1, 192)
    named["lock-depth2"] = lock({"horizon": 20, "depth": 2}, 0.1, 192)
    for starts in (2, 4, 8):
        for h in (10, 20):
            for layout, n in (("layer0", 256), ("copies", 128 * starts)):
                options = {"horizon": h, "starts": starts, "layout": layout}
                named[f"lock-{layout}-N{starts}-H{h}"] = lock(options, 0.1, n)
    for eta, n in ((0.1, 250), (0.2, 400), (0.3, 500), (0.4, 1_000)):
        named[f"lava-eta{eta}"] = lava({}, eta, n)
    for height in (10, 20, 50, 100):
        named[f"lava-height{height}"] = lava({"height": height}, 0.1, 400)
    for height in (20, 50, 100):  # distant rows look alike
        options = {"height": height, "landmarks": "repeating"}
        named[f"lava-repeating{height}"] = lava(options, 0.1, 400)
    named["lava-width16"] = lava({"width": 16}, 0.1, 400)
    named["lava-docks4"] = lava({"starts": 4}, 0.1, 400)
    for width in (3, 30, 300, 3_000, 12_000):
        named[f"coloured-{width}"] = Setting("coloured-map", {"width": width}, 0.1, 150)
    for name, options in LAKES.items():
        named[name] = Setting("FrozenLake-v1", options, 0.2, 400)
    return named


SIZES: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = {
    "smoke": ((0,), ("lock-H10",)),
    "quick": ((200, 201), ("lock-H10", "lock-H40", "lava-eta0.1", "coloured-300", *LAKES)),
    "full": (tuple(range(300, 310)), tuple(settings())),
}
"""Seeds and settings of each size."""


def jobs(size: str) -> list[Job]:
    """Every setting with its number of episodes, then all of them with "auto"."""
    seeds, names = SIZES[size]
    known = settings()
    return [
        Job(
            f"{name}-auto" if auto else name,
            seed,
            {
                "method": "belief",
                "world": known[name].world,
                "options": dict(known[name].options),
                "eta": known[name].eta,
                "episodes": "auto" if auto else known[name].episodes,
            },
        )
        for auto in (False, True)
        for name in names
        for seed in seeds
    ]


def run(job: Job, folder: Path) -> Outcome:
    """Learn once and evaluate on as many episodes as the standard error asks for."""
    asked = job.configuration
    env, sim = build(asked["world"], asked["options"], asked["eta"], job.seed)
    started = time.perf_counter()
    learned = tasid.learn(env, sim, eta=asked["eta"], episodes=asked["episodes"], seed=job.seed)
    seconds = time.perf_counter() - started
    exact = yardsticks(learned.policy, env)
    assert exact is not None, "all these settings have exact values"
    score = tasid.evaluate(learned.policy, env, episodes=FEWEST, seed=job.seed)
    error = float(score.returns.std()) / exact.robust_value
    needed = math.ceil((error / STANDARD_ERROR) ** 2 / FEWEST) * FEWEST
    if needed > FEWEST:
        score = tasid.evaluate(learned.policy, env, episodes=min(needed, MOST), seed=job.seed)
    return Outcome(
        {
            "episodes": learned.episodes,
            **summary(score, exact),
            "error": error / math.sqrt(score.returns.size),
            "states": learned.policy.plan.simulator.num_states,
            "stopped": learned.diagnostics.stopped,
            "map_errors": len(learned.diagnostics.map_errors),
            "warnings": list(learned.diagnostics.warnings),
            "seconds": round(seconds, 2),
        }
    )


def build(
    world: str, options: Mapping[str, Any], eta: float, seed: int
) -> tuple[tasid.Target, tasid.AbstractSimulator | None]:
    """A target, and its map unless it brings its own."""
    if world == "coloured-map":
        return coloured_map(**options, eta=eta, seed=seed), None
    if world != "FrozenLake-v1":
        return tasid.make(world, seed=seed, eta=eta, **options), None
    lake = {k: v for k, v in options.items() if k not in ("horizon", "observe")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a step limit that is longer than the horizon
        sim = tasid.AbstractSimulator.from_toy_text(
            gymnasium.make(world, **lake),
            horizon=options["horizon"],
            deterministic="most-likely",
        )
    return tasid.wrap(world, num_envs=32, observe=options["observe"], **lake), sim


@partial(jax.tree_util.register_dataclass, data_fields=["clean", "rotation"], meta_fields=[])
@dataclass(frozen=True)
class ColourEmission:
    """Colour and code of a state with Gaussian noise, rotated."""

    clean: jax.Array
    """[S, d]."""
    rotation: jax.Array
    """[d, d]."""
    dtype = "float32"
    bounds = (-np.inf, np.inf)

    @property
    def shape(self) -> tuple[int, ...]:
        """[d]."""
        return (int(self.clean.shape[-1]),)

    def __call__(self, keys: jax.Array, states: jax.Array, circumstances: Any) -> jax.Array:
        noise = jax.vmap(lambda key: jax.random.normal(key, self.shape))(keys)
        return (self.clean[states] + 0.1 * noise) @ self.rotation


def coloured_map(width: int, *, eta: float, seed: int) -> tasid.BlockMDP:
    """A random coloured map with `width` states per layer."""
    rng = np.random.default_rng([width, seed])
    each, size = width // COLOURS, width * (LAYERS + 1)
    layer, place = np.divmod(np.arange(size), width)
    successor = np.tile(np.arange(size)[:, None], (1, ACTIONS))
    for s in np.flatnonzero(layer < LAYERS):
        chosen = width * (layer[s] + 1) + np.arange(COLOURS) * each + rng.integers(each, size=3)
        successor[s] = rng.permutation(np.repeat(chosen, ACTIONS // COLOURS))
    pays = (rng.random(size) < 1 / 3).astype(float)
    reward = np.where((layer < LAYERS)[:, None], pays[successor], 0.0)
    sim = tasid.AbstractSimulator(successor, reward, horizon=LAYERS, start=0)
    code = rng.normal(size=(size, CODE)) / np.sqrt(CODE)
    clean = np.concatenate([np.eye(COLOURS)[place // each], code], axis=1)
    rotation = np.linalg.qr(rng.normal(size=(COLOURS + CODE, COLOURS + CODE)))[0]
    emission = ColourEmission(jnp.asarray(clean, jnp.float32), jnp.asarray(rotation, jnp.float32))
    world = tasid.perturb(sim, eta=eta, seed=seed)
    return tasid.BlockMDP(world, emission, name="coloured-map", options={"eta": eta})


def page(size: str, records: Sequence[Record]) -> Page:
    """A table of settings, one of settings with "auto", and ratios against the number of states."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.setting, []).append(record)
    shown, order = Page(), list(settings())
    columns = (
        "setting", "seeds", "episodes", "ratio", "≥ 0.95", "skill", "seconds", "tasid",
    )  # fmt: skip
    for suffix, heading in (("", "Given numbers of episodes"), ("-auto", "Episodes by evidence")):
        rows = []
        for name in (name for name in order if name + suffix in groups):
            members = groups[name + suffix]
            every = {key: _all(members, key) for key in ("episodes", "ratio", "skill", "seconds")}
            rows.append(
                (
                    name,
                    str(len(members)),
                    _range(every["episodes"]),
                    spread(every["ratio"]),
                    str(sum(ratio >= 0.95 for ratio in every["ratio"])),
                    f"{np.median(every['skill']):.3f}" if every["skill"] else "–",
                    f"{np.median(every['seconds']):.0f}",
                    editions(members),
                )
            )
            row = {"setting": name + suffix, "seeds": [record.seed for record in members]}
            shown.table.append(row | every)
        shown.sections.append(Section(heading, tables=[Table(columns, rows)] if rows else []))
    states = {
        int(name.removeprefix("coloured-")) * (LAYERS + 1): groups[name]
        for name in order
        if name.startswith("coloured-") and name in groups
    }
    if len(states) > 1:
        ratios = [_all(members, "ratio") for members in states.values()]
        means, deviations = [np.mean(r) for r in ratios], [np.std(r) for r in ratios]
        line = Line("tasid-belief", "return / robust", list(states), means, deviations, True)
        drawing = chart([line], xlabel="states", ylabel="ratio", log=True, reference=("robust", 1))
        caption = "Coloured maps, 150 episodes each; a standard deviation over seeds."
        figure = shown.draw("states", drawing, caption)
        shown.sections.append(Section("Episodes do not grow with the map", figures=[figure]))
    return shown


def _all(records: Sequence[Record], name: str) -> list[float]:
    return [float(r.result[name]) for r in records if r.result.get(name) is not None]


def _range(values: Sequence[float]) -> str:
    """One number, or the median and the range."""
    if len(set(values)) == 1:
        return number(int(values[0]))
    low, middle, high = (number(int(of(values))) for of in (min, np.median, max))
    return f"{middle} ({low} … {high})"


EXPERIMENT = Experiment(
    "belief", "What the belief method reaches, setting by setting", jobs, run, page
)
