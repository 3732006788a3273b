"""Alarms that mean something: lost agents, map errors, kidnapped robots, the plan's worst case.

    python -m benchmarks belief-trust alarms --worlds lock room --seeds 500 501 …
    python -m benchmarks belief-trust kidnapped --worlds lava docks --seeds 300 301 …
    python -m benchmarks belief-trust worst-case --worlds lock lava --seeds 300 301 …
    python -m benchmarks belief-trust sensor --worlds lock lava --seeds 560 561 …

`alarms` learns on right maps: how often is the agent lost in episodes in which the state it tracks
is right at every step, and in how many runs is a right map or a right η called wrong? On lock and
lava it learns once more with one edge of the route leading elsewhere, which should be named.
`kidnapped` carries the robot, in mid-episode, to a place that learning has seen five times or more;
found again means that the likeliest state is the true one within 10 steps and for 3 in a row.
`sensor` breaks the sensor in mid-episode: dark, blinded, stuck at garbage, or repeating itself.
`worst-case` learns in the perturbation in which the plan earns least, beside the random one.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image

import tasid
from benchmarks.followed import final_states, follow
from benchmarks.kidnapping import kidnapped
from benchmarks.seeds import spelt
from benchmarks.trust_worlds import WORLDS, World, ours
from tasid.maps import return_range, robust_dp, worst_case
from tasid.policies.belief_policy import LOST, BeliefPolicy
from tasid.targets import BlockMDP
from tasid.targets.block import block_mdp
from tasid.targets.streams import EVALUATION
from tasid.targets.target import episode_keys, seed_key

ETA = 0.1
_EPISODES = 1_024
_GYM_EPISODES, _BROKEN_EPISODES = 100, 64
_BREAKS, _SOON = 5, 6
"""The step at which sensors break, and steps after which that should be known."""
Row = dict[str, Any]


def alarms(name: str, seed: int) -> Row:
    """False alarms on a right map; the true one on a wrong map, where that is easily made."""
    world = WORLDS[name](seed)
    result = tasid.learn(
        world.target, world.simulator, eta=world.eta, episodes=world.episodes, seed=seed
    )
    found = result.diagnostics
    assert isinstance(result.policy, BeliefPolicy)
    right, lost = _tracked(world, result.policy, seed)
    row: Row = {
        "episodes": result.episodes,
        "tracked right": float(right.mean()),
        "lost though right": float(lost[right].mean()) if right.any() else 0.0,
        "map errors": len(found.map_errors),
        "eta exceeded": int(bool(found.eta and found.eta.exceeded)),
        "warnings": list(found.warnings),
    }
    if isinstance(world.target, BlockMDP):
        row |= _with_a_wrong_edge(world, seed)
    return row


_WITH_SENSORS = {**WORLDS, "building": ours("building", 72)}


def broken_sensor(name: str, seed: int) -> Row:
    """How often the agent calls itself lost with a whole sensor, and soon after it breaks."""
    world = _WITH_SENSORS[name](seed)
    result = tasid.learn(
        world.target, world.simulator, eta=world.eta, episodes=world.episodes, seed=seed
    )
    policy = result.policy
    assert isinstance(policy, BeliefPolicy)
    right, lost = _tracked(world, policy, seed)
    row: Row = {
        "episodes": result.episodes,
        "lost though right": float(lost[right].mean()) if right.any() else 0.0,
        "lost": float(lost.mean()),
    }
    shape, kind = policy.observation_shape, np.dtype(policy.observation_dtype)
    picture = kind == np.uint8
    garbage = np.random.default_rng(seed).normal(127 if picture else 0, 40, shape)
    shown = {
        "dark": np.zeros(shape),
        "blinded": np.full(shape, 255 if picture else 1e3),
        "garbage": np.clip(garbage, 0, 255) if picture else garbage,
        "repeating": None,
    }
    stop = max(1, min(_BREAKS, policy.horizon // 3))
    for fault, what in shown.items():
        going, lost = _broken(
            world, policy, seed, stop, None if what is None else what.astype(kind)
        )
        row[fault] = float(lost[going].mean()) if going.any() else None
    return row


class _Ours:
    """One environment of ours at a time, as a user's."""

    def __init__(self, env: BlockMDP) -> None:
        self._target, self._final = env.target, final_states(env.simulator)
        self._step = jax.jit(lambda *given: self._target.step(*given))

    def reset(self, *, seed: int) -> tuple[np.ndarray, None]:
        self._keys, self._h = episode_keys(seed_key(seed), EVALUATION, jnp.arange(1)), 0
        self._state, seen = self._target.reset(self._keys)
        return np.asarray(seen[0]), None

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, None]:
        given = self._state, jnp.array([action]), jnp.int32(self._h), self._keys
        self._state, seen, paid = self._step(*given)
        self._h += 1
        return np.asarray(seen[0]), float(paid[0]), bool(self._final[self._state[0]]), False, None


def _broken(
    world: World, policy: BeliefPolicy, seed: int, stop: int, shown: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Of every episode: did it go on for so long, and was the agent lost soon after a fault?"""
    env: Any = _Ours(world.target) if world.make is None else world.make()
    agent, ended = policy.agent(), []
    for episode in range(_BROKEN_EPISODES):
        seen, _ = env.reset(seed=10_000 * (seed + 1) + episode)
        agent.reset()
        lost = False
        for h in range(stop + _SOON):
            if h < stop:
                look = seen if world.make is None else _shown(env, seen, policy)
            elif shown is not None:
                look = shown
            action = agent.act(look)
            lost |= h >= stop and agent.lost
            seen, _, over, cut, _ = env.step(action)
            if over or cut:
                break
        ended.append((h == stop + _SOON - 1, lost))
    return np.array([going for going, _ in ended]), np.array([lost for _, lost in ended])


def _tracked(world: World, policy: BeliefPolicy, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Of every episode: was the likeliest state right all the time, and was the agent lost?"""
    if world.make is None:
        followed = follow(world.target, policy.actor, episodes=_EPISODES, seed=seed)
        doubt = followed.doubt * followed.going
        return followed.right.all(axis=0), (doubt >= LOST).any(axis=0)
    assert world.place is not None
    env, agent, ended = world.make(), policy.agent(), []
    for episode in range(_GYM_EPISODES):
        seen, _ = env.reset(seed=10_000 * (seed + 1) + episode)
        agent.reset()
        right, lost = True, False
        for _ in range(policy.horizon):
            place = world.place(env)
            action = agent.act(_shown(env, seen, policy))
            right &= policy.simulator.states[agent.state] == place
            lost |= agent.lost
            seen, _, over, cut, _ = env.step(action)
            if over or cut:
                break
        ended.append((right, lost))
    return np.array([r for r, _ in ended]), np.array([x for _, x in ended])


def _shown(env: Any, seen: Any, policy: BeliefPolicy) -> np.ndarray:
    """What the wrapped target would show."""
    if len(policy.observation_shape) == 3:
        rows, columns, _ = policy.observation_shape
        picture = Image.fromarray(np.asarray(env.render()))
        return np.asarray(picture.resize((columns, rows), Image.Resampling.BOX))
    if np.ndim(seen) == 0:
        row = np.zeros(policy.observation_shape, policy.observation_dtype)
        row[int(seen)] = 1
        return row
    return np.asarray(seen)


def _with_a_wrong_edge(world: World, seed: int) -> Row:
    """Let one edge of the route lead elsewhere in the target: is the state it leaves named?"""
    env, sim = world.target, world.simulator
    plan, state, route = robust_dp(sim, eta=world.eta), int(sim.starts[0]), []
    for h in range(sim.horizon):
        action = int(plan.actions[h, state])
        route.append((state, action))
        after = int(sim.successor_at(h)[state, action])
        if after == state:
            break
        state = after
    rng = np.random.default_rng(seed)
    state, action = route[rng.integers(1, len(route) - 2)]
    leads = np.array(env.target.successor)
    intended = leads[state, action]
    others = [s for s in np.unique(leads[state]) if s != intended]
    leads[state, leads[state] == intended] = others[rng.integers(len(others))]
    target = replace(env.target, successor=jnp.asarray(leads))
    result = tasid.learn(target, sim, eta=world.eta, episodes=world.episodes, seed=seed)
    named = [error.state == sim.states[state] for error in result.diagnostics.map_errors]
    return {"wrong edge named": int(any(named)), "right edges named then": named.count(False)}


_CROSSINGS: dict[str, dict[str, Any]] = {"lava": {}, "docks": {"starts": 4}}


def carried_away(name: str, seed: int) -> Row:
    """How often a robot that was carried away knows soon where it is."""
    env = tasid.make("lava-crossing", seed=seed, **_CROSSINGS[name])
    result = tasid.learn(env, eta=ETA, episodes=400 if name == "docks" else 250, seed=seed)
    found = kidnapped(
        env,
        result,
        lambda one: one.right,
        episodes=_EPISODES,
        seed=seed,
        spare=12,
        within=10,
        in_a_row=3,
    )
    return {"episodes": result.episodes, **found}


_OURS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "lock": ("combination-lock", 128, {"horizon": 40}),
    "lava": ("lava-crossing", 250, {}),
}


def against_the_plan(name: str, seed: int) -> Row:
    """What is lost of the robust value, in shares of the range, at random and at worst."""
    kind, episodes, options = _OURS[name]
    env = tasid.make(kind, seed=seed, **options)
    plan = robust_dp(env.simulator, eta=ETA)
    nature = worst_case(env.simulator, plan.actions, eta=ETA)
    worst = block_mdp(env.name, dict(env.options), nature, env.target.emission)
    low, high = return_range(env.simulator)
    lost = {}
    for label, world in (("random", env), ("worst", worst)):
        policy = tasid.learn(world, eta=ETA, episodes=episodes, seed=seed).policy
        score = tasid.evaluate(policy, world, episodes=8_192, seed=seed)
        lost[label] = float((world.latent.robust_value(plan) - score.mean) / (high - low))
    return {
        "episodes": episodes,
        "lost at random": lost["random"],
        "lost at worst": lost["worst"],
        "more": lost["worst"] - lost["random"],
    }


MEASURES = {
    "alarms": (alarms, WORLDS),
    "kidnapped": (carried_away, _CROSSINGS),
    "sensor": (broken_sensor, _WITH_SENSORS),
    "worst-case": (against_the_plan, _OURS),
}


def run(arguments: Sequence[str]) -> None:
    """Print a Markdown table."""
    options = _parse(arguments)
    measure, names = MEASURES[options.what]
    worlds = options.worlds or list(names)
    for name in worlds:
        if name not in names:
            raise SystemExit(f"--worlds: {name!r} is none of {', '.join(names)}")
    header: list[str] | None = None
    for name in worlds:
        rows = []
        for seed in options.seeds:
            rows.append({"measure": options.what, "world": name, "seed": seed})
            rows[-1] |= measure(name, seed)
            if options.out is not None:
                with options.out.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
        keys = [key for key, value in rows[0].items() if isinstance(value, (int, float))][1:]
        if header is None or len(keys) > len(header):
            header = keys
            print("| world | seeds | " + " | ".join(f"{k}: mean (most)" for k in keys) + " |")
            print("|" + "---|" * (len(keys) + 2))
        print(_line(name, rows, keys), flush=True)


def _line(name: str, rows: Sequence[Row], keys: Sequence[str]) -> str:
    seeds = f"{spelt(rows)} ({len(rows)})"
    cells = []
    for key in keys:
        values = [row[key] for row in rows]
        cells.append(f"{np.mean(values):.3g} ({max(values):.3g})")
    return "| " + " | ".join([name, seeds, *cells]) + " |"


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks belief-trust",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=MEASURES)
    parser.add_argument("--worlds", nargs="+", help="some of them only")
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(500, 530)))
    parser.add_argument("--out", type=Path, help="append one JSON line a run to this file")
    return parser.parse_args(arguments)
