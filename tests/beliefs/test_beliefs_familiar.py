"""What is like nothing ever seen is strange, wherever one may be."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tasid
from tasid.beliefs.chain import Chain
from tasid.beliefs.classes import Classes
from tasid.beliefs.familiar import anything, least_scores, strange
from tasid.beliefs.filter import LEAP, BeliefFilter
from tasid.beliefs.gaussian import flat_gaussians
from tasid.beliefs.moments import Moments, fit_gaussians
from tasid.learning.belief.episodes import Recorded
from tasid.policies.belief_policy import LOST
from tasid.runs.learn import LearningResult
from tasid.targets.streams import EVALUATION
from tasid.targets.target import episode_keys, seed_key


def test_strange_is_what_no_class_explains():
    least = jnp.array([-3.0, -1.0, jnp.inf])  # of the third class nothing is known
    scores = jnp.array([[-4.0, -2.0, -9.0], [-0.5, -2.0, -1.5], [0.0, 9.0, 9.0]])
    assert strange(scores, least).tolist() == [False, False, True]


def test_where_nothing_is_known_nothing_is_strange():
    scores = jnp.full((2, 3), -1e6)
    assert not strange(scores, jnp.full(2, jnp.inf)).any()
    assert least_scores(None, flat_gaussians(2, 4, 4), np.zeros(2), []) is None


def doubts(policy: tasid.BeliefPolicy, lock: tasid.BlockMDP, sensor) -> np.ndarray:
    """Doubt at the end of 64 episodes on a lock, through a sensor of observations and steps."""
    keys = episode_keys(seed_key(11), EVALUATION, jnp.arange(64))
    state, seen = lock.target.reset(keys)
    memory = policy.actor.start(seen)
    for h in range(lock.simulator.horizon):
        memory, actions = policy.actor.act(memory, sensor(seen, h), jnp.int32(h))
        state, seen, _ = lock.target.step(state, actions, jnp.int32(h), keys)
    return np.asarray(memory.doubt[:64])


SENSORS = {
    "dark": lambda seen, h: seen * (h < 1),
    "too loud": lambda seen, h: seen * (1 + 9 * (h > 0)),
}


@pytest.mark.parametrize("sensor", SENSORS.values(), ids=SENSORS)
def test_a_broken_sensor_is_noticed(lock, believed: LearningResult, sensor):
    assert (doubts(believed.policy, lock, sensor) >= LOST).all()


def test_a_whole_sensor_is_not_suspected(lock, believed: LearningResult):
    assert (doubts(believed.policy, lock, lambda seen, h: seen) >= LOST).mean() <= 0.02


def test_whoever_finds_everything_strange_is_lost_after_four_steps(lock, believed: LearningResult):
    """Though all he sees compares well."""
    never = replace(believed.policy, least=jnp.full_like(believed.policy.least, 1e6))
    assert (doubts(never, lock, lambda seen, h: seen) >= LOST).all()


def test_beside_each_other_places_explain_anything():
    """Why it takes more than comparing them: fifty times too loud, the right place is likeliest."""
    sim = tasid.AbstractSimulator([[0, 1], [1, 0]], np.zeros((2, 2)), horizon=2, start=0)
    chain = Chain.of(sim)
    looks = np.random.default_rng(0).normal([[1.0], [-1.0]], 0.1, (2, 200)).T
    sums, squares = looks.sum(axis=0)[:, None], (looks**2).sum(keepdims=True)
    moments = Moments(np.full(2, 200.0), sums, 400.0, sums.sum(axis=0), squares)
    emission = fit_gaussians(moments, dimensions=1)
    classes = Classes.of(chain, "place", sim)
    eta, leap = jnp.float32(0.1), jnp.float32(LEAP)
    comparing = BeliefFilter(chain, classes, emission, eta, leap, anything(2))
    knowing = replace(
        comparing, least=emission.scores(jnp.array([[1.3], [-1.3]]), jnp.arange(2)).diagonal()
    )
    features = jnp.array([[1.0], [50.0]])  # of the first place, and far beyond it
    belief, commands = jnp.array([[1.0, 1.0], [0.0, 0.0]]), jnp.zeros(2, jnp.int32)
    seen = knowing.look(features, jnp.int32(1))
    assert (comparing.step(belief, commands, seen, jnp.int32(0)).surprise < 0).all()
    assert seen.strange.tolist() == [False, True]


def test_what_taught_a_policy_is_not_strange_to_it(lock, believed: LearningResult):
    policy = believed.policy
    keys = episode_keys(seed_key(12), EVALUATION, jnp.arange(256))
    _, seen = lock.target.reset(keys)
    actor, classes = policy.actor, policy.actor.filter.classes
    scores = policy.emission.exact_scores(actor.feature_map(seen, jnp.int32(0)), classes.first)
    assert strange(scores, policy.least[classes.first]).mean() <= 0.01


def test_what_a_policy_knew_is_familiar_after_one_more_episode(lock, believed: LearningResult):
    on = tasid.learn(lock, eta=0.1, episodes=1, seed=5, from_policy=believed.policy)
    before, now = (np.isfinite(one.least) for one in (believed.policy, on.policy))
    assert now[before].all()


def test_it_is_saved(believed: LearningResult, tmp_path):
    policy = believed.policy
    assert np.isfinite(policy.least).any()
    again = tasid.load(policy.save(tmp_path / "policy"))
    assert np.array_equal(again.least, policy.least)


def test_of_another_size_it_is_refused(believed: LearningResult, tmp_path):
    wrong = replace(believed.policy, least=believed.policy.least[1:])
    with pytest.raises(ValueError, match="least has shape"):
        tasid.load(wrong.save(tmp_path / "policy"))


def test_a_sensor_that_hangs_is_noticed_unless_repeating_is_usual(lock, believed: LearningResult):
    """What it shows is familiar; only that it shows it again and again is not."""
    key = episode_keys(seed_key(13), EVALUATION, jnp.arange(1))
    hung = np.asarray(lock.target.reset(key)[1])[0]
    assert believed.policy.repetitions == 0  # every look has noise of its own
    lost = {}
    for usual in (0, 1):
        # A flat emission: nothing that is seen speaks for or against a place.
        flat = jax.tree.map(jnp.zeros_like, believed.policy.emission)
        policy = replace(believed.policy, emission=flat, least=None, repetitions=usual)
        agent = policy.agent()
        agent.reset()
        lost[usual] = []
        for _ in range(5):
            agent.act(hung)
            lost[usual].append(agent.lost)
    assert lost == {0: [False] * 4 + [True], 1: [False] * 5}


def test_the_longest_repetition_is_of_whole_observations_before_the_end():
    seen = np.array([[[1, 0], [1, 0], [1, 0], [1, 2]], [[0, 1], [2, 2], [2, 2], [2, 2]]])
    nothing = np.zeros((2, 3))
    for ended, longest in (([3, 3], 2), ([1, 1], 1), ([3, 1], 2), ([0, 2], 1)):
        assert (
            Recorded(seen, nothing, nothing, np.array(ended), nothing).longest_repetition == longest
        )


def test_a_number_of_repetitions_that_is_none_is_refused(believed: LearningResult, tmp_path):
    with pytest.raises(ValueError, match="repetitions is -1"):
        tasid.load(replace(believed.policy, repetitions=-1).save(tmp_path / "policy"))
