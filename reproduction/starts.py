"""Several starts (Algorithms 3 and 4): locks with N starts, and starts that no plane separates.

`layer0` has N states of type 1 at layer 0 in one lock, `copies` N separate locks. In `xor`, two
copies, the code of the start is replaced by two signs u and v whose product is the start: the
groups of first observations are not linearly separable, and all first successors differ.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tasid
from reproduction.pages import Page, spread
from reproduction.records import Experiment, Job, Outcome, Record
from tasid.learning.paper import ClusteringConfig
from tasid.policies.evaluate import tracking_accuracy
from tasid.report.page import Section, Table, number

ETA = 0.1
SIGN_STREAM = 5
"""Under the key of an observation: the sign u."""


@dataclass(frozen=True)
class StartsSize:
    """What a size of the experiment has."""

    seeds: tuple[int, ...]
    horizons: tuple[int, ...]
    starts: tuple[int, ...]
    start_episodes: tuple[int, ...]
    """n_l: episodes of Algorithm 2 for each group and each start it may be."""
    cluster_episodes: int = 4_000
    """n₀."""
    test_episodes: int = 1_000
    """n_t."""
    belief_episodes: int = 256
    evaluation_episodes: int = 10_000


SIZES = {
    "smoke": StartsSize((0,), (3,), (2,), (60,), 200, 16, 16, 128),
    "quick": StartsSize((0, 1), (5,), (2,), (10_000,)),
    "full": StartsSize((100, 101, 102, 103, 104), (5, 10), (2, 4), (10_000, 20_000, 50_000)),
}
LAYOUTS = ("layer0", "copies")
PROTOTYPES = (1, 4)
"""Hidden units per start of φ̂ in `xor`: with 1, groups are separated by planes."""


def jobs(size: str) -> list[Job]:
    """The paper's method at every n_l, the belief method beside it, and `xor`."""
    what = SIZES[size]
    settings = [
        (layout, starts, horizon, 4)
        for horizon in what.horizons
        for starts in what.starts
        for layout in LAYOUTS
    ]
    settings += [("xor", 2, what.horizons[0], prototypes) for prototypes in PROTOTYPES]
    planned = []
    for layout, starts, horizon, prototypes in settings:
        shared = {
            "layout": layout,
            "starts": starts,
            "horizon": horizon,
            "eta": ETA,
            "evaluation_episodes": what.evaluation_episodes,
        }
        name = f"{layout}-N{starts}-H{horizon}"
        variant = f"-prototypes{prototypes}" if layout == "xor" else ""
        for seed in what.seeds:
            for n in what.start_episodes if layout != "xor" else what.start_episodes[:1]:
                paper = {
                    "method": "paper",
                    "start_episodes": n,
                    "cluster_episodes": what.cluster_episodes,
                    "test_episodes": what.test_episodes,
                    "prototypes": prototypes,
                }
                planned.append(Job(f"paper-{name}-n{n}{variant}", seed, {**shared, **paper}))
            belief = {"method": "belief", "episodes": what.belief_episodes}
            planned.append(Job(f"belief-{name}", seed, {**shared, **belief}))
    return list({job.name: job for job in planned}.values())


def run(job: Job, folder: Path) -> Outcome:
    """Learn, evaluate, and count how often the start is recognised."""
    asked = job.configuration
    layout = "copies" if asked["layout"] == "xor" else asked["layout"]
    options = {name: asked[name] for name in ("horizon", "eta", "starts")}
    env = tasid.make("combination-lock", seed=job.seed, layout=layout, **options)
    if asked["layout"] == "xor":
        env = xor_starts(env)
    plan = tasid.robust_dp(env.simulator, eta=ETA)
    started = time.perf_counter()
    if asked["method"] == "paper":
        names = ("start_episodes", "cluster_episodes", "test_episodes")
        clustering = ClusteringConfig(prototypes=asked["prototypes"])
        config = tasid.TasidConfig(clustering=clustering, **{name: asked[name] for name in names})
        learned = tasid.TasidLearner(config).run(env, plan, seed=job.seed, run_dir=folder)
    else:
        learned = tasid.learn(env, eta=ETA, episodes=asked["episodes"], seed=job.seed)
    seconds = time.perf_counter() - started
    score = tasid.evaluate(
        learned.policy, env, episodes=asked["evaluation_episodes"], seed=job.seed
    )
    value = env.latent.robust_value(plan)
    recognised = tracking_accuracy(learned.policy, env, seed=job.seed)[0]
    return Outcome(
        {
            "episodes": learned.episodes,
            "mean": score.mean,
            "half": (score.ci95[1] - score.ci95[0]) / 2,
            "ratio": score.mean / value,
            "robust": value,
            "recognised": float(recognised),
            "warnings": list(learned.diagnostics.warnings),
            "seconds": round(seconds, 2),
        }
    )


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["emission", "starts", "directions"],
    meta_fields=[],
)
@dataclass(frozen=True)
class XorEmission:
    """The emission of a lock with two copies, but for its two start states.

    There x = q(· | first start) + u d₁ + v d₂ with a random sign u and v = u in the first start,
    v = −u in the second.
    """

    emission: Any
    starts: jax.Array
    """[2]."""
    directions: jax.Array
    """d₁ and d₂, [2, d]."""
    dtype = "float32"

    @property
    def shape(self) -> tuple[int, ...]:
        """[d]."""
        return tuple(self.emission.shape)

    @property
    def bounds(self) -> tuple[float, float]:
        """Of the lock's emission and two more entries of the code."""
        low, high = self.emission.bounds
        return low - 2.0, high + 2.0

    def __call__(self, keys: jax.Array, states: jax.Array, circumstances: Any) -> jax.Array:
        plain = self.emission(keys, states, circumstances)
        first = self.emission(keys, jnp.full_like(states, self.starts[0]), circumstances)
        sign_keys = jax.vmap(jax.random.fold_in, (0, None))(keys, SIGN_STREAM)
        u = 2.0 * jax.vmap(jax.random.bernoulli)(sign_keys) - 1.0
        v = jnp.where(states == self.starts[0], u, -u)
        xor = first + u[:, None] * self.directions[0] + v[:, None] * self.directions[1]
        return jnp.where(jnp.isin(states, self.starts)[:, None], xor, plain)


def xor_starts(env: tasid.BlockMDP) -> tasid.BlockMDP:
    """The lock with two copies whose first observations are not linearly separable."""
    lock: Any = env.emission
    emission = XorEmission(lock, jnp.asarray(env.simulator.starts, jnp.int32), lock.mixing[-2:])
    return tasid.BlockMDP(env.latent.world, emission, name=env.name, options=env.options)


def page(size: str, records: list[Record]) -> Page:
    """One table."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.setting, []).append(record)
    shown = Page()
    for setting, members in sorted(groups.items(), key=lambda group: _order(group[1])):
        ratios = [float(record.result["ratio"]) for record in members]
        shown.table.append(
            {
                "setting": setting,
                "method": members[0].method,
                "seeds": [record.seed for record in members],
                "episodes": int(np.median([record.result["episodes"] for record in members])),
                "ratio": ratios,
                "ratio_median": float(np.median(ratios)),
                "recognised": [record.result["recognised"] for record in members],
                "seconds": float(np.median([record.result["seconds"] for record in members])),
            }
        )
    columns = ("setting", "seeds", "episodes", "return / robust", "start recognised", "seconds")
    rows = [
        (
            row["setting"],
            len(row["seeds"]),
            number(row["episodes"]),
            spread(row["ratio"]),
            spread(row["recognised"]),
            f"{row['seconds']:.0f}",
        )
        for row in shown.table
    ]
    text = (
        "n is n_l, the episodes of Algorithm 2 for each group of first observations and each start "
        "it may be; N² policies are learned. Return over robust value and the share of episodes "
        "whose start is recognised: median seed (lowest … highest).",
        "In xor the start is the product of two signs in the first observation. With one prototype "
        "per start, φ̂ separates groups by planes and cannot tell the starts apart. Nor can the "
        "belief method's Gaussian emissions, whose belief is right from the next observation on.",
    )
    shown.sections.append(
        Section("Locks with several starts", paragraphs=text, tables=[Table(columns, rows)])
    )
    return shown


def _order(records: Sequence[Record]) -> tuple[Any, ...]:
    asked = records[0].configuration
    return asked["layout"], asked["horizon"], asked["starts"], records[0].method, records[0].setting


EXPERIMENT = Experiment("starts", "Several starts: Algorithms 3 and 4", jobs, run, page)
