"""Learning that goes on from a saved policy: more episodes, another η, a corrected map."""

from __future__ import annotations

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tasid
from probes import OneHot
from tasid.beliefs.moments import Moments, fit_gaussians, moments_of
from tasid.beliefs.scaled import Differentiable, Layers, Scaled
from tasid.policies.belief_policy import emission_numbers
from tasid.report.text.command import rerun_command
from tasid.runs.train import Order, train
from tasid.targets.block import block_mdp

OPEN = """
S.....
...L..
.L....
....L.
..L...
.....G
"""
SHUT = OPEN.replace(".L....", ".L.#..")


class Killed(BaseException):
    """Like SIGKILL, but for the process."""


def rooms(text, *, size=8):
    """A target on a drawn map whose cells look the same on every map that has them, dimly."""
    sim = tasid.AbstractSimulator.from_text_map(text.strip(), horizon=14)
    cells = [np.random.default_rng([row, column]) for row, column in sim.states]
    looks = jnp.asarray(np.stack([cell.normal(size=size) for cell in cells]), jnp.float32)
    return block_mdp("rooms", {}, tasid.perturb(sim, eta=0.2, seed=1), OneHot(looks, 0.9))


@pytest.fixture(scope="module")
def learnt():
    return tasid.learn(rooms(OPEN), eta=0.2, episodes=128, seed=0)


@pytest.fixture(scope="module")
def saved(believed, tmp_path_factory):
    return str(believed.policy.save(tmp_path_factory.mktemp("saved") / "policy"))


def earned(env, episodes, *, eta=0.2, **how):
    policy = tasid.learn(env, eta=eta, episodes=episodes, seed=1, **how).policy
    return tasid.evaluate(policy, env, episodes=4_000, seed=1).mean


@pytest.mark.parametrize("eta", [0.2, 0.1])
def test_one_more_episode_and_another_eta(learnt, eta):
    """After one episode it earns what many taught; one alone teaches next to nothing."""
    env = rooms(OPEN)
    promised = env.latent.robust_value(tasid.robust_dp(env.simulator, eta=eta))
    assert earned(env, 1, eta=eta, from_policy=learnt.policy) > promised - 0.08
    assert earned(env, 1, eta=eta) < promised - 0.5


def test_a_corrected_map_keeps_what_cells_look_like(learnt):
    """A cell is shut: it is gone, those after it have other numbers, and looks are theirs."""
    env = rooms(SHUT)
    assert env.simulator.num_states == learnt.policy.simulator.num_states - 1
    promised = env.latent.robust_value(tasid.robust_dp(env.simulator, eta=0.2))
    assert earned(env, 1, from_policy=learnt.policy) > promised - 0.12


def test_learning_that_goes_on_ends_sooner(lock, believed):
    new = tasid.learn(lock, eta=0.1, seed=7)
    on = tasid.learn(lock, eta=0.1, seed=7, from_policy=believed.policy)
    assert on.episodes < new.episodes
    assert on.diagnostics.batches[0].best == "saved, by place"


def test_what_is_known_is_not_lost_to_a_few_episodes(learnt):
    """One more batch sees little; places that it does not meet are known as well as before."""
    env = rooms(OPEN)
    on = tasid.learn(env, eta=0.2, episodes=1, seed=5, from_policy=learnt.policy)
    new = tasid.learn(env, eta=0.2, episodes=1, seed=5)
    places = jnp.repeat(jnp.arange(env.simulator.num_states), 20)
    seen = jax.vmap(env.target.emission)(jax.random.split(jax.random.key(0), places.size), places)

    def known(policy):
        features = policy.actor.feature_map(seen, jnp.int32(0))
        scores = policy.emission.scores(features, jnp.arange(policy.emission.num_classes))
        return float((scores.argmax(axis=0) == places).mean())

    assert known(on.policy) > known(learnt.policy) - 0.03
    assert known(new.policy) < known(learnt.policy) - 0.2


def test_a_network_stays_as_it_is_until_there_is_enough_to_teach_another(lock, believed):
    policy = believed.policy
    number, size = policy.emission.num_classes, policy.emission.centre.size
    layers = Layers(size)
    weights = layers.init(jax.random.key(0), number)
    even = jnp.full(number, -jnp.log(number)), jnp.full(number, 0.9)
    taught = replace(policy, emission=Scaled(weights, *even, Differentiable(layers), size))
    on = tasid.learn(lock, eta=0.1, episodes=16, seed=7, from_policy=taught).policy
    for name, numbers in emission_numbers(taught.emission).items():
        assert (emission_numbers(on.emission)[name] == numbers).all(), name


def test_the_episodes_are_others(lock, believed, monkeypatch):
    """Those of the seed taught the policy already, and those of another policy another one."""
    keys = set()

    def play(target, actor, key, **_):
        keys.add(np.asarray(jax.random.key_data(key)).tobytes())
        raise Killed

    monkeypatch.setattr("tasid.learning.belief.method.play", play)
    for policy in (None, believed.policy, replace(believed.policy, eta=0.05)):
        with pytest.raises(Killed):
            tasid.learn(lock, eta=0.1, episodes=16, seed=7, from_policy=policy)
    assert len(keys) == 3


def test_an_emission_tells_what_it_was_fitted_to():
    rng = np.random.default_rng(1)
    means, label = rng.normal(size=(5, 3)) * 3, rng.integers(0, 4, 60)
    x = means[label] + rng.normal(size=(60, 3)) + 7
    one = np.eye(5)[label]
    given = Moments(one.sum(axis=0), one.T @ x, 60.0, x.sum(axis=0), x.T @ x)
    emission = fit_gaussians(given, dimensions=3)
    found = moments_of(emission, None)
    assert found.counts == pytest.approx(given.counts, rel=0.01)
    assert found.sums == pytest.approx(given.sums, rel=0.02)
    again = fit_gaussians(found, dimensions=3)
    points, members = jnp.asarray(x, jnp.float32), jnp.arange(5)
    scores = [np.asarray(each.scores(points, members)) for each in (emission, again)]
    assert (scores[0].argmax(axis=0) == scores[1].argmax(axis=0)).all()


def test_a_run_that_stopped_goes_on_from_the_same_policy_only(tmp_path, monkeypatch, lock, saved):
    monkeypatch.setattr(
        "tasid.runs.train._scores", lambda *_: ({"episodes": 48}, {"returns": np.zeros(1)})
    )
    order = Order("combination-lock", lock.options, 0.1, 48, 7, "belief", 10, from_policy=saved)

    def kill(event):
        if event.batch == 1:
            raise Killed

    train(order, tmp_path / "whole")
    with pytest.raises(Killed):
        train(order, tmp_path / "broken", callbacks=[kill])
    kept = tasid.load(saved)
    replace(kept, eta=0.05).save(saved)
    with pytest.raises(FileExistsError, match=r"another order .*from_policy: .*digest"):
        train(order, tmp_path / "broken")
    kept.save(saved)
    train(order, tmp_path / "broken", resume=True)
    for name in ("run.json", "policy/manifest.json"):
        assert (tmp_path / "broken" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    asked = json.loads((tmp_path / "whole" / "run.json").read_bytes())
    assert asked["from_policy"] == {"folder": saved, "digest": kept.digest}
    assert f"--from-policy {saved}" in rerun_command(asked).replace(" \\\n  ", " ")


@pytest.mark.parametrize(
    ("change", "how", "words"),
    [
        ({"observation_shape": (9,)}, {}, r"from_policy: observes float32 \[9\], .* float32 \["),
        ({"observation_dtype": "uint8"}, {}, "from_policy: observes uint8 .* shows float32"),
        ({"plan": {"actions": 3}}, {}, "from_policy: has 3 actions, the map has 4"),
        (
            {"plan": {"states": 9}},
            {},
            "from_policy: its map has 9 states, this one 18, and without",
        ),
        ({"steps": 4}, {}, "from_policy: knows the looks of each of 3 steps, the map's .* is 5"),
        ({}, {"method": "paper"}, "from_policy: with method 'paper'"),
        ({}, {"classes": "rank"}, "classes: 'rank', but from_policy tells apart by 'place'"),
        ({}, {"from_policy": object()}, "from_policy: object knows nothing of what states"),
    ],
)
def test_policies_that_cannot_go_on_are_refused(lock, believed, change, how, words):
    policy = believed.policy
    if "plan" in change:
        size = {"states": lock.simulator.num_states, "actions": 4, **change["plan"]}
        change = {"plan": tasid.robust_dp(nowhere(**size), eta=0.1)}
    if "steps" in change:
        features = policy.feature_map
        change = {"feature_map": replace(features, usual=features.usual[: change["steps"]])}
    with pytest.raises(ValueError, match=words):
        tasid.learn(lock, **{"eta": 0.1, "from_policy": replace(policy, **change), **how})


def nowhere(states, actions):
    tables = np.zeros((states, actions), int), np.zeros((states, actions))
    return tasid.AbstractSimulator(*tables, horizon=5)


def test_another_map_is_refused(lock, believed):
    """As many states, but of other names."""
    sim = believed.policy.simulator
    renamed = tasid.AbstractSimulator(
        sim.successor, sim.reward, horizon=5, start=sim.start, states=[f"n{s}" for s in sim.states]
    )
    with pytest.raises(ValueError, match=r"from_policy: was learned on .* of which 0 are on this"):
        tasid.learn(lock, renamed, eta=0.1, from_policy=believed.policy)
