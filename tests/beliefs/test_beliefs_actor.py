"""Acting on beliefs: the same bits whatever the batch, and the plan itself where one is certain."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

import tasid
from compiling import AS_USERS
from mdps import etas, quick, worlds
from tasid.beliefs.actor import BeliefActor, Carried, advantages
from tasid.beliefs.chain import Chain, at
from tasid.beliefs.classes import Classes
from tasid.beliefs.features import fit_features
from tasid.beliefs.gaussian import Gaussians
from tasid.maps import AbstractSimulator, robust_dp
from tasid.policies import belief_policy
from tasid.policies.belief_policy import BeliefPolicy
from tasid.targets.target import episode_keys, seed_key

NEAR = 1e-5


def a_policy(env: tasid.BlockMDP, observations: np.ndarray, seed: int) -> BeliefPolicy:
    """One that never learned: looks are drawn at random, so that its beliefs stay undecided."""
    plan = robust_dp(env.simulator, eta=0.1)
    looks = fit_features(observations)
    chain = Chain.of(env.simulator)
    number, size = Classes.of(chain, "place", env.simulator).number, looks.components.shape[1]
    rng, kept = np.random.default_rng(seed), min(size, 16)
    means = 0.7 * rng.normal(size=(number, kept))
    means[rng.random(number) < 0.5] = means[0]  # half of the places look the same
    single = partial(jnp.asarray, dtype=jnp.float32)
    emission = Gaussians(
        centre=jnp.zeros(size),
        directions=single(rng.normal(size=(size, kept)) / np.sqrt(size)),
        linear=single(means),
        square=jnp.full((number, kept), -0.5),
        constant=single(-0.5 * (means**2).sum(axis=1)),
        spread=jnp.ones(kept),
        log_volume=jnp.zeros(()),
        whitening=jnp.eye(size),
    )
    shape, dtype = observations.shape[1:], observations.dtype.name
    return BeliefPolicy(plan, "place", looks, emission, 0.1, shape, dtype)


def of_width(actor: BeliefActor, observations: jax.Array, horizon: int) -> tuple:
    """Whole episodes [W, H, …] side by side: actions and beliefs [H, …] and how near ties were."""

    def step(carry: Carried, inputs: tuple) -> tuple:
        seen, h = inputs
        carry, actions = actor.act(carry, seen, h)
        rows = actions.shape[0]
        worth = jnp.einsum("mn,ma->na", carry.belief[:, :rows], actor.advantage[h])
        best, second = jax.lax.top_k(worth, 2)[0].T
        return carry, (actions, carry.belief[:, :rows], carry.doubt[:rows], best - second)

    first = actor.start(observations[:, 0])
    steps = jnp.swapaxes(observations[:, :horizon], 0, 1), jnp.arange(horizon)
    return jax.lax.scan(step, first, steps)[1]


@partial(jax.jit, static_argnames="horizon", compiler_options=AS_USERS)
def in_batches(actor: BeliefActor, observations: jax.Array, horizon: int) -> tuple:
    """The same for batches [B, W, H, …] one after the other."""
    return jax.lax.map(lambda batch: of_width(actor, batch, horizon), observations)


@partial(jax.jit, static_argnames="number", compiler_options=AS_USERS)
def wandering(target: tasid.Target, number: int) -> jax.Array:
    """What is seen at every step of random walks, [H, N, …]."""
    keys = episode_keys(seed_key(5), 0, jnp.arange(number))

    def step(carry: tuple, h: jax.Array) -> tuple:
        state, seen = carry
        actions = jax.random.randint(jax.random.fold_in(seed_key(6), h), (number,), 0, 2)
        after, later, _ = target.step(state, actions, h, keys)
        return (after, later), seen

    return jax.lax.scan(step, target.reset(keys), jnp.arange(target.horizon))[1]


def blended(env: tasid.BlockMDP, number: int, distinct: int) -> np.ndarray:
    """Episodes [N, H, …]: the walks, and mixtures of two of them, which look like neither."""
    walks = np.swapaxes(np.asarray(wandering(env.target, distinct)), 0, 1)
    rng = np.random.default_rng(7)
    one, two = rng.integers(distinct, size=(2, number))
    share = rng.choice(np.float32([0.0, 0.5, 0.5]), size=(number, *[1] * (walks.ndim - 1)))
    return ((1 - share) * walks[one] + share * walks[two]).astype(walks.dtype)


def check_widths(policy: BeliefPolicy, observations: np.ndarray) -> float:
    """Compare widths 1, 7 and 128 bit by bit; the share of decisions that were nearly ties."""
    number = len(observations)
    results = []
    for width in (1, 7, 128):
        batches = -(-number // width)
        rows = np.resize(np.arange(number), batches * width)
        shaped = observations[rows].reshape(batches, width, *observations.shape[1:])
        tables = in_batches(policy.actor, jnp.asarray(shaped), policy.horizon)
        merged = [np.moveaxis(np.asarray(t), -1, 1) for t in tables]
        results.append([t.reshape(-1, *t.shape[2:])[:number] for t in merged])
    for other in results[1:]:
        for name, one, two in zip(
            ("actions", "beliefs", "doubts"), results[0], other, strict=False
        ):
            assert one.dtype == two.dtype
            assert one.tobytes() == two.tobytes(), name
    scale = max(float(-policy.actor.advantage.min()), 1e-9)
    return float((results[0][3] < NEAR * scale).mean())


@pytest.mark.slow
def test_a_lock_is_played_alike_at_any_width():
    env = tasid.make("combination-lock", horizon=20, seed=71)
    seen = blended(env, 5000, 512)
    assert check_widths(a_policy(env, seen[:, 3], seed=1), seen) > 0.001


@pytest.mark.slow
def test_a_lava_crossing_is_played_alike_at_any_width():
    env = tasid.make("lava-crossing", seed=72)
    number = -(-10_000 // env.simulator.horizon)
    seen = blended(env, number, 64)
    assert check_widths(a_policy(env, seen[:, 3], seed=2), seen) > 0.001


def test_a_lone_agent_has_the_beliefs_of_a_batch():
    """In a process of its own, because an agent is compiled like everything else there."""
    done = subprocess.run(
        [sys.executable, "-c", "import test_beliefs_actor as t; t.compare_a_lone_agent()"],
        cwd=Path(__file__).parent,
        env={**os.environ, "XLA_FLAGS": "", "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def compare_a_lone_agent() -> None:
    """Actions and beliefs of an agent, bit by bit those of 128 episodes side by side."""
    env = tasid.make("combination-lock", horizon=6, seed=73)
    seen = blended(env, 128, 64)
    policy = a_policy(env, seen[:, 2], seed=3)
    tables = in_batches(policy.actor, jnp.asarray(seen)[None], policy.horizon)
    actions, beliefs = (np.asarray(table)[0] for table in tables[:2])
    agent = policy.agent()
    for n in range(40):
        agent.reset()
        for h in range(policy.horizon):
            assert agent.act(seen[n, h]) == actions[h, n]
            states = np.asarray(at(policy.actor.chain.states, h))
            for state, weight in agent.belief.items():
                assert np.float32(weight) == beliefs[h, states == state, n][0]


ACTING = """
import json, sys
import numpy as np
import tasid
agent = tasid.load(sys.argv[1]).agent()
actions = [agent.act(seen) for seen in np.load(sys.argv[2])]
heavy = {"optax", "scipy", "matplotlib", "gymnasium", "numba"} & set(sys.modules)
print(json.dumps({"actions": actions, "heavy": sorted(heavy)}))
"""


def test_a_process_that_only_acts_imports_little(tmp_path: Path):
    env = tasid.make("combination-lock", horizon=5, seed=74)
    seen = blended(env, 4, 4)
    policy = a_policy(env, seen[:, 2], seed=3)
    policy.save(tmp_path / "policy")
    np.save(tmp_path / "seen.npy", seen[0])
    done = subprocess.run(
        [sys.executable, "-c", ACTING, tmp_path / "policy", tmp_path / "seen.npy"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    agent = policy.agent()
    expected = [agent.act(one) for one in seen[0]]
    assert json.loads(done.stdout) == {"actions": expected, "heavy": []}


def test_an_agent_is_compiled_when_it_is_made():
    env = tasid.make("combination-lock", horizon=7, seed=75)  # a size that no other test has
    seen = blended(env, 4, 4)
    agent = a_policy(env, seen[:, 2], seed=4).agent()
    compiled = belief_policy._act._cache_size()
    for one in seen[0]:
        agent.act(one)
    assert belief_policy._act._cache_size() == compiled


def check_certain(sim: AbstractSimulator, eta: float) -> int:
    """A belief certain of s plays ρ_h(s), for all h and s; how many of them had ties."""
    plan, chain = robust_dp(sim, eta=eta), Chain.of(sim)
    actor = BeliefActor(None, None, advantages(plan, chain))
    ties = 0
    for h in range(sim.horizon):
        states = np.asarray(at(chain.states, h))
        there = states >= 0
        chosen = np.asarray(_choose(actor, jnp.eye(chain.num_slots), h))
        np.testing.assert_array_equal(chosen[there], plan.actions[h, states[there]])
        best = np.asarray(actor.advantage[h] > -1e-5 * max(1.0, np.abs(sim.reward).max()))
        ties += int((best.sum(axis=1) > 1)[there].sum())
    return ties


_choose = jax.jit(BeliefActor.choose)


@quick
@given(worlds(), etas)
def test_who_is_certain_plays_the_plan(sim, eta):
    check_certain(sim, min(eta, 0.375))


@pytest.mark.parametrize(
    "sim",
    [
        tasid.make("combination-lock", horizon=20, seed=1).simulator,
        tasid.make("lava-crossing", seed=1).simulator,
        AbstractSimulator.from_text_map("S....\n.....\n.....\n....G", horizon=20),
        AbstractSimulator(np.zeros((3, 5), int), np.zeros((3, 5)), horizon=4, start=[0, 1, 2]),
        AbstractSimulator(np.zeros((3, 5), int), np.full((3, 5), -0.1), horizon=7, start=[0, 1, 2]),
    ],
    ids=["lock", "lava", "open grid", "nothing matters", "nothing matters and costs"],
)
def test_who_is_certain_plays_the_plan_among_ties(sim):
    assert check_certain(sim, 0.1) > 0


def test_nearly_certain_is_certain_enough():
    """What is left elsewhere, one in ten million, does not turn a tie."""
    sim = AbstractSimulator.from_text_map("S....\n.....\n.....\n....G", horizon=20)
    plan, chain = robust_dp(sim, eta=0.1), Chain.of(sim)
    actor = BeliefActor(None, None, advantages(plan, chain))
    number = chain.num_slots
    belief = jnp.eye(number) + 1e-7 / number
    for h in range(sim.horizon):
        chosen = np.asarray(_choose(actor, belief, h))
        np.testing.assert_array_equal(chosen, plan.actions[h, np.asarray(chain.states[0])])
