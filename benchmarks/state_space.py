"""Does the number of episodes grow with the map? A family of maps, 1 000-fold in states.

Layered maps with three outcomes per state and H = 12: a layer has W states in three colours, every
state leads to one state of each colour by two actions each, and a third of the states pays 1 on
arrival. The observation shows the colour and a random code of the state, mixed and noisy, so that
no two states look alike. W runs from 3 to 12 000; the episodes stay the same.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import tasid
from tasid.checks.scoring import score
from tasid.maps.planning.backward import layers
from tasid.targets.block import BlockMDP, block_mdp

HORIZON, ACTIONS, COLOURS, CODE = 12, 6, 3, 13


@partial(jax.tree_util.register_dataclass, data_fields=["clean", "mixing"], meta_fields=[])
@dataclass(frozen=True)
class ColourEmission:
    """Colour and code of a state, through a random rotation, with Gaussian noise."""

    clean: jax.Array
    mixing: jax.Array

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one observation."""
        return (int(self.clean.shape[-1]),)

    def __call__(self, key: jax.Array, state: jax.Array) -> jax.Array:
        """Draw x ~ q(· | state)."""
        noise = 0.1 * jax.random.normal(key, self.shape)
        return (self.clean[state] + noise) @ self.mixing


def coloured_map(width: int, *, eta: float, seed: int) -> BlockMDP:
    """One random member of the family with `width` states a layer."""
    rng = np.random.default_rng([width, seed])
    each = width // COLOURS
    size = width * (HORIZON + 1)
    layer, place = np.divmod(np.arange(size), width)
    colour = place // each
    successor = np.tile(np.arange(size)[:, None], (1, ACTIONS))
    for s in np.flatnonzero(layer < HORIZON):
        chosen = width * (layer[s] + 1) + np.arange(COLOURS) * each + rng.integers(each, size=3)
        successor[s] = rng.permutation(np.repeat(chosen, ACTIONS // COLOURS))
    pays = (rng.random(size) < 1 / 3).astype(float)
    reward = np.where((layer < HORIZON)[:, None], pays[successor], 0.0)
    sim = tasid.AbstractSimulator(successor, reward, horizon=HORIZON, start=0)
    code = rng.normal(size=(size, CODE)) / np.sqrt(CODE)
    clean = np.concatenate([np.eye(COLOURS)[colour], code], axis=1)
    mixing = np.linalg.qr(rng.normal(size=(COLOURS + CODE, COLOURS + CODE)))[0]
    emission = ColourEmission(jnp.asarray(clean, jnp.float32), jnp.asarray(mixing, jnp.float32))
    return block_mdp("coloured-map", {}, tasid.perturb(sim, eta=eta, seed=seed), emission)


def run(arguments: Sequence[str]) -> None:
    """Print a Markdown table, and draw the figure if asked."""
    options = _parse(arguments)
    print("| states a layer | reachable states | episodes | ratio median | skill median | ratios |")
    print("|---|---|---|---|---|---|")
    rows = []
    for width in options.widths:
        envs = [coloured_map(width, eta=0.1, seed=seed) for seed in options.seeds]
        reachable = int(np.median([sum(x.size for x in layers(e.simulator)) for e in envs]))
        results = tasid.learn(envs, eta=0.1, episodes=options.episodes, seeds=options.seeds)
        scores = [
            score(result.policy, env, episodes=10_000, seed=seed)[1]
            for result, env, seed in zip(results, envs, options.seeds, strict=True)
        ]
        ratios, skills = [s["ratio"] for s in scores], [s["skill"] for s in scores]
        rows.append((reachable, ratios))
        print(
            f"| {width} | {reachable} | {options.episodes} | {np.median(ratios):.3f} | "
            f"{np.median(skills):.3f} | {' '.join(f'{ratio:.3f}' for ratio in ratios)} |",
            flush=True,
        )
    if options.figure:
        _draw(rows, options.episodes, options.figure)


def _draw(rows: list[tuple[int, list[float]]], episodes: int, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.2), layout="constrained")
    axes = figure.subplots()
    states = [reachable for reachable, _ in rows]
    axes.plot(states, [np.median(ratios) for _, ratios in rows], "o-", color="#00696f")
    for reachable, ratios in rows:
        axes.plot([reachable] * len(ratios), ratios, ".", color="#00696f", alpha=0.35)
    axes.axhline(0.95, color="#999999", linewidth=0.8, linestyle="--")
    axes.set(
        xscale="log", ylim=(0, 1.05), xlabel="reachable states", ylabel="ratio to robust value"
    )
    axes.set_title(f"{episodes} episodes, whatever the map's size", fontsize=10)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks state-space", description=__doc__)
    parser.add_argument("--widths", type=int, nargs="+", default=[3, 30, 300, 3_000, 12_000])
    parser.add_argument("--episodes", type=int, default=150)
    parser.add_argument("--seeds", type=int, nargs="+", default=[100, 101, 102, 103, 104])
    parser.add_argument("--figure", type=Path, help="draw the figure to this file")
    return parser.parse_args(arguments)
