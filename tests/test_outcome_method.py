"""The outcome method: it learns with few episodes, chooses by evidence, and keeps its budget."""

from __future__ import annotations

import math
from itertools import product

import jax
import numpy as np
import pytest

import tasid
from tasid.algorithms.budget import EvidenceQuota, FixedQuota, Judgement
from tasid.algorithms.candidates import Candidate, Judged
from tasid.algorithms.models import NetworkModel, PlacesModel, RidgeModel
from tasid.algorithms.outcome_method import OutcomeLearner, fano_level
from tasid.algorithms.tasid import tasid as run_tasid
from tasid.runs.diagnosis import diagnose


@pytest.fixture(scope="module")
def lock20():
    return tasid.make("combination-lock", horizon=20, seed=7)


@pytest.fixture(scope="module")
def result(lock20):
    return tasid.learn(lock20, eta=0.1, episodes=1_500, seed=7)


def test_thirty_times_fewer_episodes_than_the_paper(lock20, result):
    score = tasid.evaluate(result.policy, lock20, episodes=10_000, seed=1)
    exact = lock20.latent.robust_value(result.policy.plan)
    assert result.episodes <= 1_500
    assert score.mean > 0.95 * exact
    assert diagnose(result.policy, lock20).decoder_accuracy.mean() > 0.99


def test_says_what_it_chose_and_what_it_saw(result):
    seen = result.diagnostics
    assert seen.model.startswith("linear, outcomes by place")
    assert min(seen.evidence, key=seen.evidence.get) == seen.model
    assert seen.eta.low < 0.1 < 2 * seen.eta.high
    assert not seen.eta.exceeded
    assert seen.map_errors == ()
    assert seen.warnings == ()


def test_a_saved_policy_is_the_same_policy(lock20, result, tmp_path):
    again = tasid.load(result.policy.save(tmp_path / "policy"))
    assert float(again.decoder.temperature) == float(result.policy.decoder.temperature)
    assert again.decoder.labels.kind == result.policy.decoder.labels.kind
    one = tasid.evaluate(result.policy, lock20, episodes=300, seed=2)
    two = tasid.evaluate(again, lock20, episodes=300, seed=2)
    assert (one.returns == two.returns).all()


def test_same_seed_same_bytes(lock20, tmp_path):
    for name in ("one", "two"):
        tasid.learn(lock20, eta=0.1, episodes=300, seed=3).policy.save(tmp_path / name)
    one, two = (
        {f.name: f.read_bytes() for f in (tmp_path / name).iterdir()} for name in ("one", "two")
    )
    assert one == two


def test_automatic_budget():
    env = tasid.make("combination-lock", horizon=8, num_actions=5, seed=9)
    result = tasid.learn(env, eta=0.1, episodes="auto", seed=9)
    exact = env.latent.robust_value(result.policy.plan)
    assert tasid.evaluate(result.policy, env, seed=1).mean > 0.95 * exact
    assert result.episodes < 2_000
    assert all(step.episodes >= 47 for step in result.diagnostics.steps)


def test_grids_number_outcomes_by_action():
    """A corridor seen through a window: 'right' looks alike everywhere, places do not."""
    from probes import one_hot
    from tasid.envs.block import block_mdp

    cells = 5
    successor = np.clip(np.arange(cells)[:, None] + [-1, 0, 1], 0, cells - 1)
    sim = tasid.AbstractSimulator(
        successor, (successor == cells - 1).astype(float), horizon=8, start=2
    )
    env = block_mdp("corridor", {}, tasid.perturb(sim, eta=0.1, seed=1), one_hot(cells))
    result = tasid.learn(env, eta=0.1, episodes=1_500, seed=0)
    exact = env.latent.robust_value(result.policy.plan)
    assert tasid.evaluate(result.policy, env, seed=1).mean > 0.97 * exact


def test_climbs_to_a_network_where_a_line_cannot_do():
    """Outcomes told apart only by a product of two inputs (exclusive or)."""
    env = xor_world()
    result = tasid.learn(env, eta=0.05, episodes=4_000, seed=0)
    assert result.diagnostics.model.startswith("network")
    exact = env.latent.robust_value(result.policy.plan)
    assert tasid.evaluate(result.policy, env, seed=1).mean > 0.93 * exact


def xor_world():
    from dataclasses import dataclass
    from functools import partial

    import jax
    import jax.numpy as jnp

    from tasid.envs.block import block_mdp

    @partial(jax.tree_util.register_dataclass, data_fields=["sign"], meta_fields=[])
    @dataclass(frozen=True)
    class Product:
        sign: jax.Array

        @property
        def shape(self):
            return (2,)

        def __call__(self, key, state):
            flip = jnp.where(jax.random.bernoulli(key), 1.0, -1.0)
            noise = 0.1 * jax.random.normal(jax.random.fold_in(key, 1), (2,))
            return jnp.stack([flip, flip * self.sign[state]]) + noise

    # Two rails: stay or switch; the reward is on one of them, and swaps places with time.
    horizon = 4
    successor = np.array([[0, 1], [1, 0]])
    reward = np.zeros((horizon, 2, 2))
    for h in range(horizon):
        reward[h, :, :] = successor == h % 2
    sim = tasid.AbstractSimulator(successor, reward, horizon=horizon)
    world = tasid.perturb(sim, eta=0.05, seed=3)
    return block_mdp("rails", {}, world, Product(jnp.array([1.0, -1.0])))


@pytest.mark.parametrize(
    ("horizon", "episodes", "first", "later"),
    [
        (2, 40, 40, 0),
        (3, 80, 40, 0),
        (10, 600, 5 + 555 * 8 / 23, 5 + 555 / 23),
        (40, 2_000, 5 + 1805 * 8 / 53, 5 + 1805 / 53),
        (5, 97, 5 + 77 * 8 / 18, 5 + 77 / 18),
        (36, 20_000, 5 + 400 + (20_000 - 5 * 35 - 800) / 35, 5 + (20_000 - 5 * 35 - 800) / 35),
    ],
)
def test_fixed_quota_spends_what_it_is_given(horizon, episodes, first, later):
    """Five for every step, then shares: eight for each of the first two, at most 400 on top."""
    quota = FixedQuota(episodes, (1.0,) * (horizon - 1))
    spent = [quota.wants(h, 0, None) for h in range(horizon - 1)]
    assert sum(spent) == episodes
    assert spent[:2] == pytest.approx([first] * min(2, horizon - 1), abs=1)
    assert spent[2:] == pytest.approx([later] * max(0, horizon - 3), abs=1)
    assert all(quota.wants(h, 1, None) == 0 for h in range(horizon - 1))


def test_steps_that_rarely_meet_a_choice_get_fewer_episodes():
    quota = FixedQuota(4_000, (1.0, 1.0, 1.0, 0.5, 0.02))
    spent = [quota.wants(h, 0, None) for h in range(5)]
    assert sum(spent) == 4_000
    assert spent[3] - 5 == pytest.approx((spent[2] - 5) / 2, abs=1)
    assert spent[4] - 5 == pytest.approx((spent[2] - 5) / 10, abs=1), "at least a tenth"


def test_too_few_episodes_are_refused(lock20):
    with pytest.raises(ValueError, match="episodes: 100 are too few for a horizon of 20; give 165"):
        tasid.learn(lock20, eta=0.1, episodes=100)
    with pytest.raises(ValueError, match="neither a whole number nor 'auto'"):
        tasid.learn(lock20, eta=0.1, episodes="some")
    with pytest.raises(ValueError, match="method 'paper', which needs a number or 'auto'"):
        tasid.learn(lock20, eta=0.1, episodes=EvidenceQuota(), method="paper")


def test_the_user_may_fix_the_numbering(lock20):
    result = tasid.learn(lock20, eta=0.1, episodes=300, seed=3, labels="outcomes by action")
    assert "outcomes by action" in result.diagnostics.model
    with pytest.raises(ValueError, match="labels: 'by colour' is none of outcomes by place"):
        tasid.learn(lock20, eta=0.1, episodes=300, labels="by colour")
    with pytest.raises(ValueError, match="method 'paper', whose labels are actions"):
        tasid.learn(lock20, eta=0.1, episodes=300, method="paper", labels="outcomes by rank")


def test_the_user_may_fix_epsilon_and_delta():
    env = tasid.make("combination-lock", horizon=4, num_actions=4, seed=2)
    result = tasid.learn(env, eta=0.1, episodes=EvidenceQuota(epsilon=0.1, delta=0.2), seed=2)
    assert all(step.episodes >= 17 for step in result.diagnostics.steps)


class Told:
    def __init__(self, *steps, doubts=(0.0, 0.0)):
        self.steps, self.doubts = steps, doubts

    def judged(self, h):
        return self.steps[h]

    def doubt(self, h):
        return self.doubts[h]


def test_evidence_quota_stops_and_goes_on():
    quota = EvidenceQuota(epsilon=0.05, delta=0.1)
    assert quota.batch == math.ceil(math.log(10) / 0.05) == 47
    assert quota.wants(0, 0, Told()) == 4 * 47
    clear, unclear = Judgement(40, 0, -3.0), Judgement(40, 9, -3.0)
    lossy, none = Judgement(40, 0, 12.0), Judgement(0, 0, 0.0)
    assert quota.wants(0, 188, Told(clear)) == 0
    assert quota.wants(0, 188, Told(unclear)) == 94
    assert quota.wants(0, 188, Told(lossy)) == 94
    assert quota.wants(0, 188, Told(clear, doubts=[0.06])) == 94, "slips might outvote it"
    assert quota.wants(1, 47, Told(clear, clear, doubts=[1.0, 0.0])) == 0, "its own step counts"
    hidden, behind = Judgement(8, 4, 0.0), Judgement(190, 0, 0.0)
    assert quota.wants(1, 47, Told(behind, hidden)) == 47, "a good step before it hides nothing"
    assert quota.wants(1, 47, Told(behind, Judgement(2, 0, 12.5))) == 47
    assert quota.wants(1, 47, Told(behind, Judgement(8, 2, 6.0))) == 0, "that may be chance"
    assert quota.wants(0, 188, Told(none)) == 0, "no choice of outcomes: nothing to learn"
    assert quota.wants(0, 4_096, Told(unclear)) == 0, "given up"
    for bad in ({"epsilon": 0}, {"delta": 1.0}):
        with pytest.raises(ValueError, match="is not in"):
            EvidenceQuota(**bad)


@pytest.mark.parametrize("eta", [0.0, 0.1, 0.3])
def test_a_perfect_decoder_never_exceeds_the_fano_level(eta):
    """Every extreme ξ over three outcomes: H(command | outcome) against the bound."""
    worst = 0.0
    for sends in product(range(3), repeat=3):
        joint = np.zeros((3, 3))
        for o, to in enumerate(sends):
            joint[o, o] += (1 - eta) / 3
            joint[o, to] += eta / 3
        posterior = joint / joint.sum(axis=0, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            worst = max(worst, -np.nansum(joint * np.log(posterior)))
    level = float(fano_level(np.array([3]), eta)[0])
    assert worst <= level + 1e-12


def test_detours_and_plan_roll_ins(lock20):
    """Half of the roll-ins leave the plan once, at one of the two steps before; never earlier."""
    seen = {}

    class Spy(OutcomeLearner):
        def learn(self, h, data):
            seen[h] = np.asarray(data.detour[0])
            return super().learn(h, data)

    plan = tasid.robust_dp(lock20.simulator, eta=0.1)
    learner = Spy(lock20.target, plan, quota=FixedQuota(2_000, (1.0,) * 19), seed=1)
    run_tasid([lock20.target], [plan], learner, seeds=[1])
    assert (seen[0] == -1).all()
    for h, detour in seen.items():
        assert set(detour.tolist()) <= {-1, h - 1, h - 2}
    late = np.concatenate([seen[h] >= 0 for h in range(2, 19)])
    assert abs(late.mean() - 0.5) < 4.5 * 0.5 / math.sqrt(late.size)


def test_a_richer_model_has_to_be_worth_it():
    """By ten nats: less may be chance."""

    def candidate(model, loss):
        found = Candidate(None, model)
        found.judged[0] = Judged(None, None, np.array([loss]))
        return found

    for simple, rich in ((PlacesModel, RidgeModel), (RidgeModel, NetworkModel)):
        here = candidate(simple, 50.0)
        assert here.rank < candidate(rich, 40.5).rank
        assert here.rank > candidate(rich, 39.5).rank
        assert here.rank > candidate(simple, 49.5).rank


def corridor(emission):
    """Seven places in a row; every action moves left or right, one in four times the other way."""
    from tasid.envs.block import block_mdp

    places = np.arange(7)
    successor = np.stack([np.maximum(places - 1, 0), np.minimum(places + 1, 6)], axis=1)
    reward = np.tile((places == 6)[:, None].astype(float), 2)
    sim = tasid.AbstractSimulator(successor, reward, horizon=9, start=3)
    return block_mdp("corridor", {}, tasid.perturb(sim, eta=0.25, seed=0), emission)


def test_what_comes_back_exactly_is_known_by_its_looks():
    """And what is never the same twice is not asked to be."""
    from probes import one_hot

    env = corridor(one_hot(7))
    result = tasid.learn(env, eta=0.25, episodes=400, seed=1)
    assert result.diagnostics.model == "places by their looks, outcomes by place, shared centre"
    score = tasid.evaluate(result.policy, env, episodes=4_000, seed=2)
    plan = tasid.robust_dp(env.simulator, eta=0.25)
    assert score.mean > 0.97 * env.latent.robust_value(plan)
    lock = tasid.make("combination-lock", horizon=5, seed=1)
    assert not any(map(by_looks, tasid.learn(lock, eta=0.1, episodes=200).diagnostics.evidence))


def by_looks(name):
    return name.startswith("places by their looks")


def test_doubt_is_about_the_rarest_outcome_that_is_met():
    """Three doors from one room; nothing is left to choose behind them."""
    from probes import one_hot
    from tasid.envs.block import block_mdp

    successor = [[1, 2, 3], *([s] * 3 for s in (1, 2, 3))]
    sim = tasid.AbstractSimulator(successor, np.zeros((4, 3)), horizon=3)
    env = block_mdp("doors", {}, tasid.perturb(sim, eta=0.0, seed=0), one_hot(4))
    seen = []

    class Spy(OutcomeLearner):
        def learn(self, h, data):
            fitted = super().learn(h, data)
            seen.append((np.bincount(np.asarray(data.command[0]), minlength=3), self.doubt(h)))
            return fitted

    plan = tasid.robust_dp(sim, eta=0.1)
    quota = FixedQuota(90, (1.0, 0.0))
    run_tasid([env.target], [plan], Spy(env.target, plan, quota=quota, seed=0), seeds=[0])
    commanded, doubt = seen[0]
    assert commanded.max() > commanded.min() > 0
    assert doubt == pytest.approx(math.exp(-2 * commanded.min() * 0.4**2))
    assert seen[1][1] == 0.0


def test_a_network_may_be_asked_about_no_row_at_all(lock20):
    """As in a step where every state has one outcome."""
    from tasid.algorithms.models import NetworkModel
    from tasid.algorithms.replay import LabelTables, Replay
    from tasid.learning.labels import labels_for

    replay, rng = Replay(), np.random.default_rng(0)
    pairs = rng.normal(size=(40, 2, 6)).astype(np.float32)
    replay.add(0, pairs, np.zeros(40, np.int32), rng.integers(0, 10, 40).astype(np.int32))
    tables = LabelTables(labels_for("outcomes by place", lock20.simulator))
    model = NetworkModel(6, tables.size, (8,), jax.random.key(0), by_step=True)
    nothing, choices = np.zeros(40, bool), tables.choices(replay)
    asked = model.fit(0, replay, choices, trained=~nothing, judged=nothing)
    assert asked.shape == (0, tables.size)


def test_auto_is_a_number_for_pictures_and_evidence_for_vectors(lock20):
    from tasid.runs.learn import _quota

    grid = tasid.make("lava-crossing", horizon=9)
    plans = [tasid.robust_dp(env.simulator, eta=0.1) for env in (grid, lock20)]
    assert _quota("auto", plans[0], grid.target).episodes == 9_000
    assert isinstance(_quota("auto", plans[1], lock20.target), EvidenceQuota)
    own = EvidenceQuota(epsilon=0.02)
    assert _quota(own, plans[0], grid.target) is own
