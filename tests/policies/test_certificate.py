"""The certificate: bounds with known answers, honest at every moment, and what voids them."""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tasid
from mdps import quick
from probes import Probe, probe
from tasid.maps import AbstractSimulator, RobustPlan, best_case_value, robust_dp
from tasid.policies.betting import Wager, lower_bound
from tasid.policies.decoder import WIDTH
from tasid.policies.ppo_policy import PPOPolicy
from tasid.targets.streams import CERTIFICATION, EVALUATION
from tasid.targets.target import episode_keys, keys_of_phase, seed_key

# ---------------------------------------------------------------- the bound


@pytest.mark.parametrize(
    ("number", "known", "hoeffding", "maurer_pontil"),
    [(30, 0.884, 0.777, 0.703), (59, 0.939, 0.841, 0.852), (100, 0.964, 0.878, 0.913)],
)
def test_the_bound_when_every_number_is_1(number, known, hoeffding, maurer_pontil):
    """Half of the wealth on everything: ½ m⁻ⁿ = 1/δ, so m = (2/δ)^(−1/n); others add a little."""
    bound = lower_bound(np.ones(number), delta=0.05)
    assert known == pytest.approx(40 ** (-1 / number), abs=5e-4)
    assert known - 1e-3 <= bound <= known + 0.01
    assert bound > max(hoeffding, maurer_pontil)
    # No bound of level δ can be better: a mean of 0.05^(1/n) shows nothing else that often.
    assert bound < 0.05 ** (1 / number)


def slow_bound(numbers, delta):
    """By definition, in plain products: the largest m on a grid that ever lost."""
    log_odds = np.linspace(math.log(0.003), math.log(9.0), 12)
    stakes = [(0.999, 0.5)] + [(1 / (1 + math.exp(-z)), 0.5 / 12) for z in log_odds]
    best = 0.0
    for m in np.linspace(0.001, 0.999, 999):
        for n in range(1, len(numbers) + 1):
            wealth = 0.0
            for stake, share in stakes:
                for x in numbers[:n]:
                    share *= 1 + stake * (x - m) / m
                wealth += share
            if wealth >= 1 / delta:
                best = m
                break
    return best


@pytest.mark.parametrize("seed", range(4))
def test_the_bound_is_the_one_by_definition(seed):
    numbers = np.random.default_rng(seed).beta(3, 1, size=9)
    bound = lower_bound(numbers, delta=0.2)
    assert bound > 0.1
    assert slow_bound(numbers.tolist(), 0.2) <= bound < slow_bound(numbers.tolist(), 0.2) + 0.0011


DISTRIBUTIONS: dict[str, tuple[Any, float]] = {
    "always the same": (lambda rng, size: np.full(size, 0.7), 0.7),
    "mostly 1": (lambda rng, size: (rng.random(size) < 0.99) * 1.0, 0.99),
    "rarely 0": (lambda rng, size: (rng.random(size) < 0.999) * 1.0, 0.999),
    "rarely 1": (lambda rng, size: (rng.random(size) < 0.01) * 1.0, 0.01),
    "a coin": (lambda rng, size: (rng.random(size) < 0.5) * 1.0, 0.5),
    "uniform": (lambda rng, size: rng.random(size), 0.5),
    "skewed": (lambda rng, size: rng.beta(8, 0.5, size), 8 / 8.5),
    "0, ½ or 1": (lambda rng, size: rng.choice([0.0, 0.5, 1.0], size, p=[0.05, 0.15, 0.8]), 0.875),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("delta", [0.05, 0.2])
def test_stopping_at_the_worst_moment_is_wrong_no_more_often_than_promised(name, delta):
    """The bound exceeds the mean at some moment exactly if the bet on the mean itself is won."""
    draw, mean = DISTRIBUTIONS[name]
    rng, wrong = np.random.default_rng(5), 0
    for _ in range(2000):
        wager = Wager(mean, delta=delta)
        wager.watch(draw(rng, 400))
        wrong += wager.won is not None
    assert wrong / 2000 <= delta


def test_the_promise_is_not_kept_by_being_timid():
    """Of a coin with a mean of 0.9 the bound comes near what is possible at all."""
    rng = np.random.default_rng(2)
    bounds = [lower_bound((rng.random(2000) < 0.9) * 1.0, delta=0.05) for _ in range(10)]
    spread = 1.645 * math.sqrt(0.9 * 0.1 / 2000)
    assert 0.9 - 2.5 * spread < np.mean(bounds) < 0.9 - spread


unit = hnp.arrays(np.float64, st.integers(1, 40), elements=st.floats(0, 1, width=32))


@quick
@given(unit, st.integers(0, 40))
def test_more_numbers_never_take_a_bound_back(numbers, cut):
    before = lower_bound(numbers[:cut], delta=0.1)
    assert lower_bound(numbers, delta=0.1) >= before - 1e-9


@quick
@given(unit, st.floats(0, 0.3))
def test_the_bound_grows_with_the_numbers_and_with_the_risk(numbers, more):
    bound = lower_bound(numbers, delta=0.1)
    assert 0 <= bound <= numbers.max() + 1e-9
    assert lower_bound(np.minimum(numbers + more, 1), delta=0.1) >= bound - 1e-9
    assert lower_bound(numbers, delta=0.1 + more) >= bound - 1e-9


@quick
@given(unit, st.lists(st.integers(0, 40), max_size=4), st.floats(0.01, 0.99))
def test_a_wager_in_pieces_is_the_bound_passing_by(numbers, cuts, mean):
    whole, pieces = Wager(mean, delta=0.3), Wager(mean, delta=0.3)
    whole.watch(numbers)
    for piece in np.split(numbers, sorted(cuts)):
        pieces.watch(piece)
    assert pieces.won == whole.won
    if whole.won is None:
        assert lower_bound(numbers, delta=0.3) <= mean + 1e-9
    else:
        assert lower_bound(numbers[: whole.won], delta=0.3) >= mean - 1e-9
        assert lower_bound(numbers[: whole.won - 1], delta=0.3) <= mean + 1e-9


def test_ten_thousand_numbers_take_well_under_a_second():
    numbers = np.random.default_rng(0).random(10_000)
    start = time.perf_counter()
    lower_bound(numbers, delta=0.05)
    assert time.perf_counter() - start < 1.0


# ---------------------------------------------------------------- certificates of whole policies


@partial(jax.tree_util.register_dataclass, data_fields=["action"], meta_fields=[])
@dataclass(frozen=True)
class Always:
    """An actor that does one thing."""

    action: jax.Array

    def start(self, observations):
        return ()

    def act(self, carry, observations, h):
        return carry, jnp.full(observations.shape[0], self.action, jnp.int32)


@dataclass(frozen=True)
class Stubborn:
    """All that a certificate asks of a policy."""

    plan: RobustPlan
    actor: Always
    observation_shape: tuple[int, ...] = (2,)

    @property
    def num_actions(self):
        return self.plan.simulator.num_actions

    @property
    def horizon(self):
        return self.plan.simulator.horizon


PAYS = ((0.0, 0.0), (0.5, 1.5), (1.0, 1.0), (2.0, 2.0))
"""Action → what every step pays at tails and at heads."""


def coin_pay(coin, action, h):
    return np.array(PAYS)[action, coin]


def coin_map(horizon=2):
    """Two starts, equally likely, that stay what they are."""
    table = np.array(PAYS).T
    return AbstractSimulator(
        np.tile([[0], [1]], 4), table, horizon=horizon, start=[0, 1], start_probabilities=[0.5, 0.5]
    )


def stubborn(action, eta=0.25):
    return Stubborn(robust_dp(coin_map(), eta=eta), Always(jnp.int32(action)))


coin = probe(coin_pay)
loose = Probe(coin.pay, coin.turn, traceable=False)


class Few(tasid.Target):
    """A target that JAX cannot trace, with room for few; it notes the keys of its episodes."""

    traceable = False

    def __init__(self, num_envs, inner=loose):
        self._inner, self.num_envs, self.keys = inner, num_envs, []
        self.num_actions, self.horizon = inner.num_actions, inner.horizon
        self.observation_shape = inner.observation_shape

    def reset(self, keys):
        self.keys += numbers(keys)
        return self._inner.reset(keys)

    def step(self, state, actions, h, keys):
        return self._inner.step(state, jnp.asarray(actions), h, keys)


def test_what_is_held_against_what():
    """By hand: ρ always earns 4; η/4 of it, twice, may go to 0, and nothing pays more."""
    found = tasid.certify_return(stubborn(3), coin, epsilon=0.5)
    assert found.range == (0.0, 4.0)
    assert found.worst_case_value == 3.0
    assert found.best_case_value == 4.0
    assert found.smallest_epsilon == 1.0
    assert (found.mean, found.epsilon, found.attempt, found.void) == (4.0, 0.5, 1, None)
    assert found.passed
    assert found.paper_guarantee
    assert 3.5 <= found.lower_bound < 4.0
    # ½ (8/7)ⁿ ≥ 40 needs n ≥ 33; what the cautious half adds may save a few.
    assert 27 <= found.episodes <= 33


def test_the_known_answers_come_out_of_whole_episodes():
    for number, known in ((30, 0.884), (59, 0.939), (100, 0.964)):
        found = tasid.certify_return(
            stubborn(3, eta=0.0), coin, delta=0.1, epsilon=0.01, max_episodes=number
        )
        assert (found.delta, found.episodes) == (0.05, number)
        assert known - 1e-3 <= found.lower_bound / 4 <= known + 0.01
        assert not found.passed
        assert not found.paper_guarantee


@pytest.mark.parametrize(("number", "spent"), [(1, 0.05), (2, 0.1 / 6), (7, 0.1 / 56)])
def test_attempts_share_the_risk(number, spent):
    found = tasid.certify_return(stubborn(3), coin, delta=0.1, attempt=number)
    assert found.delta == pytest.approx(spent)
    assert found.attempt == number


def test_all_attempts_together_spend_delta():
    spent = [0.05 / (k * (k + 1)) for k in range(1, 10_000)]
    assert sum(spent) == pytest.approx(0.05, rel=1e-3)


def numbers(keys):
    return [tuple(key) for key in np.asarray(jax.random.key_data(keys)).tolist()]


def test_episodes_that_chose_a_policy_never_certify_it():
    keys = []
    for attempt in (1, 2):
        target = Few(16)
        tasid.certify_return(stubborn(3), target, attempt=attempt, seed=3, epsilon=0.5)
        keys.append(target.keys)
    scored = Few(16)
    tasid.evaluate(stubborn(1), scored, episodes=300, seed=3)
    keys.append(scored.keys)
    for phase in (*range(4), EVALUATION, CERTIFICATION, CERTIFICATION + 1):
        episodes = episode_keys(seed_key(3), phase, jnp.arange(300))
        if phase != EVALUATION:  # evaluated above
            keys.append(numbers(episodes))
        if phase != CERTIFICATION:  # nor may an episode be a part of another one's randomness
            keys.extend(numbers(keys_of_phase(one, jnp.arange(300))) for one in episodes[:3])
    assert min(map(len, keys)) > 30
    assert len({key for some in keys for key in some}) == sum(map(len, keys))


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 0.9])
def test_the_certificate_does_not_depend_on_how_many_run_at_a_time(epsilon):
    find = partial(
        tasid.certify_return, stubborn(1), epsilon=epsilon, seed=1, max_episodes=WIDTH + 40
    )
    compiled = find(coin)
    for target in (loose, Few(1), Few(7), Few(500)):
        assert find(target) == compiled


def test_a_target_that_costs_is_left_as_soon_as_all_is_decided():
    target = Few(4)
    found = tasid.certify_return(stubborn(3), target, epsilon=0.5)
    assert found.episodes <= len(target.keys) < found.episodes + 4


def test_more_episodes_continue_the_same_attempt():
    find = partial(tasid.certify_return, stubborn(1), coin, epsilon=1.1, seed=1)
    few, more = find(max_episodes=100), find(max_episodes=900)
    assert few.episodes == 100
    assert more.lower_bound >= few.lower_bound


def test_the_paper_guarantee_is_given_up_when_it_is_out_of_reach():
    """Action 2 earns 2 for certain: enough for 3 − 1.2, never for 4 − 1.2."""
    found = tasid.certify_return(stubborn(2), coin, epsilon=1.2)
    assert found.passed
    assert not found.paper_guarantee
    assert found.episodes < 200


def test_a_hopeless_policy_does_not_play_on():
    found = tasid.certify_return(stubborn(0), coin, epsilon=0.5)
    assert not found.passed
    assert not found.paper_guarantee
    assert found.episodes < 20
    assert found.lower_bound == 0.0


def test_policies_that_do_not_deserve_it_pass_no_more_often_than_promised():
    """The mean is 2, by coin 1 or 3, and a little more is asked for, again and again."""
    policy = stubborn(1)
    passes = sum(
        tasid.certify_return(
            policy, coin, delta=0.4, epsilon=0.999, seed=seed, max_episodes=256
        ).passed
        for seed in range(200)
    )
    assert 0 < passes / 200 <= 0.2


@pytest.mark.parametrize(("pay", "eta"), [(0.3, 0.1), (1.3, 0.1), (0.1, 0.2)])
def test_a_world_in_which_all_episodes_pay_the_same(pay, eta):
    """There is nothing to show, but the plan's value has been rounded."""
    sim = AbstractSimulator([[0] * 4], [[pay] * 4], horizon=2, start=0)
    policy = Stubborn(robust_dp(sim, eta=eta), Always(jnp.int32(1)))
    assert policy.plan.start_value > 2 * pay
    found = tasid.certify_return(policy, probe(lambda coin, action, h: pay + 0.0 * h))
    assert found.range == (2 * pay, 2 * pay)
    assert found.passed
    assert found.paper_guarantee
    assert found.lower_bound == 2 * pay


# ---------------------------------------------------------------- void


@pytest.mark.parametrize("paid", [2.01, -0.01, math.nan, math.inf])
@pytest.mark.parametrize("traceable", [True, False])
def test_a_return_off_the_map_voids_the_certificate(paid, traceable):
    def pay(coin, action, h):
        return np.where((coin == 1) & (h == 0), paid, np.where(paid < 0, 0.0, 2.0))

    find = partial(tasid.certify_return, stubborn(3), epsilon=0.5)
    found = find(probe(pay, traceable=traceable))
    assert found.void is not None
    assert "between 0 and 4" in found.void
    assert not found.passed
    assert not found.paper_guarantee
    assert found.lower_bound == -math.inf
    assert "void" in found.summary()
    assert found.void == find(Few(1, probe(pay, traceable=False))).void
    assert f"episode {found.episodes - 1} returned" in found.void
    assert json.loads(json.dumps(found.record(), allow_nan=False))["lower_bound"] is None


@pytest.mark.parametrize("sign", [1, -1])
def test_rounding_in_single_precision_voids_nothing(sign):
    """Four hundred times 0.3 in float32 is more than 120."""
    horizon, total = 400, np.float32(0)
    for _ in range(horizon):
        total += np.float32(0.3)
    assert total > 120.0004
    sim = AbstractSimulator([[0, 0]], [[0.3 * sign, 0.0]], horizon=horizon, start=0)
    policy = Stubborn(robust_dp(sim, eta=0.0), Always(jnp.int32(0)))
    target = probe(lambda coin, action, h: 0.3 * sign * (action == 0), actions=2, horizon=horizon)
    found = tasid.certify_return(policy, target)
    assert found.void is None
    assert found.passed == (sign > 0)
    assert found.mean == sign * total
    assert found.range[0] <= found.lower_bound < found.range[1]


# ---------------------------------------------------------------- a learned policy


def test_a_learned_policy_passes_both(lock, learned):
    found = tasid.certify_return(learned.policy, lock, seed=4)
    plan = learned.policy.plan
    assert found.passed
    assert found.paper_guarantee
    assert found.epsilon == pytest.approx(0.05 * (found.range[1] - found.range[0]))
    assert found.worst_case_value == plan.start_value
    assert found.best_case_value == best_case_value(plan.simulator, plan, eta=0.1)
    true = tasid.evaluate(learned.policy, lock, episodes=20_000, seed=9).mean
    assert found.lower_bound < true
    assert found.blind_value == lock.latent.blind_value()
    assert tasid.certify_return(learned.policy, lock.target, seed=4) == replace(
        found, blind_value=None
    )


def test_a_smaller_epsilon_needs_more_episodes(lock, learned):
    small, large = (
        tasid.certify_return(learned.policy, lock, epsilon=epsilon) for epsilon in (0.3, 1.0)
    )
    assert small.passed
    assert large.passed
    assert small.episodes > large.episodes


def test_the_summary_is_plain_and_says_which_passed():
    both = tasid.certify_return(stubborn(3), coin, epsilon=0.5)
    assert f"In {both.episodes} fresh episodes the policy earned 4 on average" in both.summary()
    assert "97.5 % sure" in both.summary()
    assert "This passes: at least 2.5 was asked for, 0.5 below the 3" in both.summary()
    assert "It is also within 0.5" in both.summary()
    one = tasid.certify_return(stubborn(2), coin, epsilon=1.2, attempt=2)
    assert "not shown to be within 1.2" in one.summary()
    assert "up to 4" in one.summary()
    assert "attempt 2" in one.summary()
    none = tasid.certify_return(stubborn(0), coin, epsilon=0.5)
    assert "does not pass" in none.summary()
    assert "itself is below" in none.summary()
    short = tasid.certify_return(stubborn(3), coin, epsilon=0.5, max_episodes=3)
    assert "does not pass" in short.summary()
    assert "more episodes" in short.summary()
    for blind, words in ((3.9, "does not show that the policy uses"), (1.0, "which is less")):
        assert words in replace(both, blind_value=blind).summary()
    for found in (both, one, none, short):
        assert "\n" not in found.summary()
        assert not any(word in found.summary() for word in ("ε", "η", "latent", "perturb", "delta"))


def test_the_record_holds_everything():
    found = tasid.certify_return(stubborn(3), coin, epsilon=0.5)
    record = json.loads(json.dumps(found.record(), allow_nan=False))
    assert record["passed"] is True
    assert record["paper_guarantee"] is True
    assert record["range"] == [0.0, 4.0]
    assert record["smallest_epsilon"] == 1.0
    assert record["lower_bound"] == found.lower_bound


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"delta": 0.0}, ValueError, "delta: 0.0 is not between 0 and 1"),
        ({"delta": 1.0}, ValueError, "delta: 1.0 is not between"),
        ({"delta": math.nan}, ValueError, "delta: nan"),
        ({"delta": None}, ValueError, "delta: None"),
        ({"delta": "5%"}, TypeError, "delta: '5%' is not a number"),
        ({"epsilon": -0.1}, ValueError, "epsilon: -0.1"),
        ({"epsilon": math.inf}, ValueError, "epsilon: inf"),
        ({"epsilon": math.nan}, ValueError, "epsilon: nan"),
        ({"epsilon": "little"}, TypeError, "epsilon: 'little'"),
        ({"max_episodes": 0}, ValueError, "max_episodes: 0 is below 1"),
        ({"max_episodes": 10.5}, TypeError, "max_episodes: 10.5 is not a whole number"),
        ({"attempt": 0}, ValueError, "attempt: 0 is below 1"),
        ({"attempt": 1 << 32}, ValueError, "attempt: 4294967296 is above"),
        ({"attempt": True}, TypeError, "attempt: True"),
    ],
)
def test_bad_numbers_are_refused(options, kind, message):
    with pytest.raises(kind, match=message):
        tasid.certify_return(stubborn(3), coin, **options)


def test_policies_without_a_plan_are_refused(lock):
    policy = PPOPolicy(Always(jnp.int32(0)), 5, (16,))
    with pytest.raises(TypeError, match=r"policy: a PPOPolicy follows no plan.*tasid\.evaluate"):
        tasid.certify_return(policy, lock)
    with pytest.raises(TypeError, match="policy: a NoneType follows no plan"):
        tasid.certify_return(None, lock)


def test_a_target_that_does_not_fit_is_refused(lock):
    with pytest.raises(ValueError, match="env: its horizon is 5, but the policy"):
        tasid.certify_return(stubborn(3), lock)
