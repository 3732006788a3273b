"""Certificates: known bounds, coverage at the worst moment, and what is compared with what."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import tasid
from tasid.keys import Phase, episode_keys, uniforms
from tasid.planning import robust_dp
from tasid.policies.certify import certify_return, crossing, lower_bound
from tasid.policy import Policy
from tasid.simulator import AbstractSimulator
from tasid.targets.base import Target

# Bounds


@pytest.mark.parametrize(("n", "known"), [(30, 0.884), (59, 0.939), (100, 0.964)])
def test_the_bound_for_maximal_returns(n, known):
    """Half of the wealth staked whole: ½ m⁻ⁿ = 1/δ, so m = (2/δ)^(−1/n); the grid adds a little."""
    assert known == pytest.approx((2 / 0.05) ** (-1 / n), abs=5e-4)
    bound = lower_bound(np.ones(n), delta=0.05)
    # No valid bound exceeds δ^(1/n): with that mean, all returns are maximal so often.
    assert known - 1e-3 <= bound <= min(known + 0.01, 0.05 ** (1 / n))


def bound_by_definition(numbers, delta):
    """The largest m on a grid at which the wealth, in plain products, ever reached 1/δ."""
    odds = np.linspace(math.log(0.003), math.log(9.0), 12)
    stakes = [(0.999, 0.5)] + [(1 / (1 + math.exp(-z)), 0.5 / 12) for z in odds]
    best = 0.0
    for m in np.linspace(0.001, 0.999, 999):
        for n in range(1, len(numbers) + 1):
            wealth = sum(
                share * math.prod(1 + stake * (x / m - 1) for x in numbers[:n])
                for stake, share in stakes
            )
            if wealth >= 1 / delta:
                best = m
    return best


@pytest.mark.parametrize("seed", range(3))
def test_the_bound_is_that_of_the_definition(seed):
    numbers = np.random.default_rng(seed).beta(3, 1, size=8)
    expected = bound_by_definition(numbers.tolist(), 0.2)
    assert 0.1 < expected <= lower_bound(numbers, delta=0.2) < expected + 0.0011


@pytest.mark.parametrize(
    ("draw", "mean"),
    [
        (lambda rng: rng.random(400) < 0.99, 0.99),
        (lambda rng: rng.random(400) < 0.02, 0.02),
        (lambda rng: rng.random(400), 0.5),
        (lambda rng: rng.beta(8, 0.5, 400), 8 / 8.5),
        (lambda rng: rng.choice([0.0, 0.5, 1.0], 400, p=[0.05, 0.15, 0.8]), 0.875),
    ],
)
def test_the_bound_covers_the_mean_at_every_moment(draw, mean):
    """At some moment the bound exceeds the mean exactly if the bet on the mean itself is won."""
    rng, delta = np.random.default_rng(5), 0.1
    wrong = [crossing(draw(rng) * 1.0, mean, delta) is not None for _ in range(1000)]
    assert np.mean(wrong) <= delta


# Certificates

PAYS = np.array([[0.0, 0.0], [0.5, 1.5], [1.0, 1.0], [2.0, 2.0]])
"""Action → reward of each of two steps for tails and for heads."""


class Coin(Target):
    """A fair coin per episode, and rewards by action and coin; it records the keys it is given."""

    num_actions, horizon, observation_shape, observation_dtype = 4, 2, (1,), "float32"

    def __init__(self, num_envs=16, bonus=0.0):
        self.num_envs = self.width = num_envs
        self.bonus, self.keys = bonus, []

    def reset(self, keys):
        self.keys += [tuple(key) for key in keys.tolist()]
        coin = (uniforms(keys, 1)[:, 0, 0] < 0.5).astype(int)
        return coin, coin[:, None].astype(np.float32)

    def step(self, coin, actions, h, keys):
        rewards = PAYS[actions, coin] + self.bonus * coin * (h == 0)
        done = np.zeros(len(keys), bool)
        return coin, coin[:, None].astype(np.float32), rewards.astype(np.float32), done


class Always(Policy):
    """One action, beside the robust plan on the coin's map."""

    observation_shape, observation_dtype, method = (1,), "float32", "constant"
    num_actions, horizon = 4, 2

    def __init__(self, action, eta=0.25):
        states, chances = np.tile([[0], [1]], 4), [0.5, 0.5]
        sim = AbstractSimulator(
            states, PAYS.T, horizon=2, start=[0, 1], start_probabilities=chances
        )
        self.plan, self.action = robust_dp(sim, eta=eta), action

    def init(self, n):
        return None

    def act(self, memory, observations, h):
        return memory, np.full(len(observations), self.action, np.int32)

    def save(self, path):
        raise NotImplementedError


def test_what_is_compared_with_what():
    """By hand: ρ takes action 3; nature replaces it by 0 with probability ¼, or leaves it alone."""
    found = tasid.certify_return(Always(3), Coin(), epsilon=0.5)
    assert found.range == (0.0, 4.0)
    assert (found.worst_case_value, found.best_case_value) == (3.0, 4.0)
    assert (found.mean, found.epsilon, found.attempt, found.void) == (4.0, 0.5, 1, None)
    assert found.passed
    assert found.paper_guarantee
    assert 3.5 <= found.lower_bound < 4.0
    # ½ (8/7)ⁿ ≥ 2/δ needs n ≥ 33; the grid of stakes may save a few.
    assert 27 <= found.episodes <= 33
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["passed"] is True


def test_both_answers_end_the_attempt():
    """Action 2 earns 2: enough for 3 − 1.2, never for 4 − 1.2. Action 0 earns nothing."""
    found = certify_return(Always(2), Coin(), epsilon=1.2)
    assert (found.passed, found.paper_guarantee) == (True, False)
    assert found.episodes < 200
    found = certify_return(Always(0), Coin(), epsilon=0.5)
    assert (found.passed, found.paper_guarantee) == (False, False)
    assert found.episodes < 20
    assert found.lower_bound == 0.0


def test_policies_below_the_goal_pass_no_more_often_than_stated():
    """The mean is 2, 1 or 3 by the coin, and the goal is a little higher."""
    policy = Always(1)
    how = {"delta": 0.4, "epsilon": 0.999, "max_episodes": 128}
    found = [certify_return(policy, Coin(64), seed=seed, **how) for seed in range(120)]
    assert 0 < np.mean([certificate.passed for certificate in found]) <= 0.2


@pytest.mark.parametrize("epsilon", [0.1, 0.9])
def test_the_certificate_does_not_depend_on_the_batch(epsilon):
    results = [
        certify_return(Always(1), Coin(number), epsilon=epsilon, max_episodes=300)
        for number in (1, 7, 512)
    ]
    assert results[0] == results[1] == results[2]
    fewer = certify_return(Always(1), Coin(), epsilon=epsilon, max_episodes=100)
    assert fewer.lower_bound <= results[0].lower_bound  # more episodes continue an attempt


def test_episodes_are_fresh_and_attempts_share_delta():
    keys = []
    for attempt, spent in ((1, 0.05), (2, 0.1 / 6), (7, 0.1 / 56)):
        target = Coin(16)
        found = certify_return(Always(3), target, delta=0.1, attempt=attempt, seed=3, epsilon=0.5)
        assert found.delta == pytest.approx(spent)
        assert found.episodes <= len(target.keys) < found.episodes + 16
        keys += target.keys
    for phase in (*range(4), Phase.EVALUATION, Phase.CONTINUED, Phase.RECORDING):
        keys += [tuple(key) for key in episode_keys(3, phase, 0, 300).tolist()]
    assert len(set(keys)) == len(keys)
    assert sum(0.1 / (k * (k + 1)) for k in range(1, 10_000)) == pytest.approx(0.1, rel=1e-3)


@pytest.mark.parametrize("bonus", [2.01, -2.01, math.nan])
def test_a_return_that_the_map_excludes_voids_the_certificate(bonus):
    found = certify_return(Always(3 if bonus > 0 else 0), Coin(1, bonus), epsilon=0.5)
    assert found.void is not None
    assert (found.passed, found.paper_guarantee) == (False, False)
    assert found.lower_bound == -math.inf
    policy = Always(3 if bonus > 0 else 0)
    assert found.void == certify_return(policy, Coin(64, bonus), epsilon=0.5).void
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["lower_bound"] is None


@pytest.mark.parametrize(
    ("name", "value"), [("delta", 1.0), ("epsilon", -1.0), ("max_episodes", 0), ("attempt", 0)]
)
def test_what_cannot_be_certified_is_refused(name, value):
    with pytest.raises(ValueError, match=name):
        certify_return(Always(3), Coin(), **{name: value})
    policy = Always(3)
    policy.plan = None
    with pytest.raises(ValueError, match="policy"):
        certify_return(policy, Coin())
