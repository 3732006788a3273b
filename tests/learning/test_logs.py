"""Recorded episodes: files, arrays as users have them, and learning without the target."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

import tasid
from probes import Cliff
from tasid.beliefs.classes import Classes
from tasid.beliefs.episodes import Episodes
from tasid.beliefs.fitting import by_episode
from tasid.beliefs.moments import Moments, fit_gaussians
from tasid.beliefs.nearby import is_large
from tasid.cli import main
from tasid.files import ArtifactError, write_artifact
from tasid.learning.belief import logs as belief_logs
from tasid.learning.belief.episodes import Recorded
from tasid.learning.belief.fits import BeliefFit, setting_for
from tasid.learning.belief.log_coverage import coverage
from tasid.learning.belief.logs import Judged, Measure, Undecided, decided, unseen
from tasid.maps.views import views
from tasid.runs import episode_log
from tasid.runs.episode_arrays import log_of_arrays
from tasid.runs.episode_log import EpisodeLog
from tasid.runs.recording import eyes_shut, record_episodes

H, A = 3, 2


def columns(**changed):
    """Four episodes of three steps, two numbers to be seen, as lists that tests may break."""
    rng = np.random.default_rng(0)
    given = {
        "observations": list(rng.normal(size=(4, H + 1, 2)).astype(np.float32)),
        "commands": [np.array([0, 1, 0]) for _ in range(4)],
        "rewards": [np.array([0.0, 0.0, 1.0]) for _ in range(4)],
    }
    return {**given, **changed}


def log(**changed):
    return log_of_arrays(columns(**changed), horizon=H, num_actions=A)


def put(column, i, value):
    """A column with another entry for episode i."""
    return [value if j == i else one for j, one in enumerate(column)]


# --- files ---


def test_a_log_comes_back_as_it_went_and_the_same_log_has_the_same_bytes(tmp_path):
    made = replace(log(), environment={"name": "combination-lock", "options": {"seed": 1}})
    made.save(tmp_path / "a")
    made.save(tmp_path / "b")
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()
    back = EpisodeLog.load(tmp_path / "a")
    for before, after in zip(made.recorded, back.recorded, strict=True):
        assert before.dtype == after.dtype
        np.testing.assert_array_equal(before, after)
    assert (back.num_actions, back.tells_ends) == (A, False)
    assert back.environment == made.environment


def parts(made):
    """What `save` writes, to be spoilt."""
    metadata = {
        "horizon": H,
        "num_actions": A,
        "observation_shape": [2],
        "observation_dtype": "float32",
        "tells_ends": True,
        "environment": None,
    }
    return metadata, {name: array.copy() for name, array in made.recorded._asdict().items()}


def test_flags_of_own_commands_may_be_missing(tmp_path):
    metadata, arrays = parts(log())
    del arrays["own"]
    write_artifact(tmp_path, kind="episodes", metadata=metadata, arrays=arrays)
    assert EpisodeLog.load(tmp_path).recorded.own.all()


def spoil(name, place, value):
    def change(metadata, arrays):
        arrays[name][place] = value

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (spoil("commands", (1, 2), 2), r"episode 1, step 2: command 2, .* actions 0 … 1"),
        (spoil("commands", (1, 2), -1), r"episode 1, step 2: command -1"),
        (spoil("rewards", (3, 0), np.nan), r"episode 3, step 0: reward nan"),
        (spoil("observations", (2, 3, 1), np.inf), r"episode 2, observation 3: not finite"),
        (spoil("ended", 1, 0), r"episode 1: ended after 0 steps, must be 1 … 3"),
        (spoil("ended", 1, 4), r"episode 1: ended after 4 steps"),
        (spoil("ended", 1, 2), r"episode 1, step 2: reward 1.0, but it ended after 2 steps"),
        (lambda m, a: m.update(horizon=4), r"observations: is .*\(4, 4, 2\).* must be .*\(4, 5, 2"),
        (lambda m, a: m.update(horizon=True), "horizon: True is no positive whole number"),
        (lambda m, a: m.update(num_actions=0), "num_actions: 0 is no positive"),
        (lambda m, a: m.update(observation_dtype="float64"), "observation_dtype: 'float64'"),
        (lambda m, a: m.update(observation_shape=[-2]), r"observation_shape: \[-2\]"),
        (lambda m, a: m.update(tells_ends=1), "tells_ends: 1 is neither"),
        (lambda m, a: m.update(environment={"name": 3}), "environment: .* is no name"),
        (lambda m, a: m.pop("horizon"), "metadata has the keys"),
        (lambda m, a: a.pop("rewards"), "rewards: is None"),
        (lambda m, a: a.pop("commands"), "no episodes that this version can use: 'commands'"),
        (lambda m, a: a.update(more=np.zeros(3)), "more: is .*, must be None"),
        (lambda m, a: a.update(ended=a["ended"].astype(np.int64)), "ended: is .*int64"),
    ],
)
def test_a_file_that_says_nonsense_is_refused_with_the_place(tmp_path, change, words):
    metadata, arrays = parts(log())
    change(metadata, arrays)
    write_artifact(tmp_path, kind="episodes", metadata=metadata, arrays=arrays)
    with pytest.raises(ArtifactError, match=words):
        EpisodeLog.load(tmp_path)


def test_a_file_that_tells_an_end_which_its_target_would_not_tell(tmp_path):
    metadata, arrays = parts(log(rewards=[np.zeros(H)] * 4))
    arrays["ended"][2], metadata["tells_ends"] = 1, False
    write_artifact(tmp_path, kind="episodes", metadata=metadata, arrays=arrays)
    with pytest.raises(ArtifactError, match="episode 2: ended after 1 of 3 steps, in a log of a"):
        EpisodeLog.load(tmp_path)


def test_a_log_that_is_too_large_is_refused_before_its_arrays_are_read(tmp_path, monkeypatch):
    log().save(tmp_path)
    next(tmp_path.glob("arrays-*")).unlink()  # whoever looks for it finds nothing
    monkeypatch.setattr(episode_log, "MOST_BYTES", 4 * (H + 1) * 2 * 4 - 1)
    with pytest.raises(ArtifactError, match=r"4 episodes of 4 observations .* more than"):
        EpisodeLog.load(tmp_path)


def test_a_damaged_log_is_refused(tmp_path):
    log().save(tmp_path)
    file = next(tmp_path.glob("arrays-*"))
    data = file.read_bytes()
    file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(ArtifactError, match="SHA-256"):
        EpisodeLog.load(tmp_path)


# --- arrays as users have them ---


def test_an_episode_that_ended_repeats_its_last_observation_and_is_paid_nothing_more():
    given = columns(ended=[False, True, False, False])
    given["observations"][1] = given["observations"][1][:2]
    given["commands"][1], given["rewards"][1] = np.array([1]), np.array([5])
    made = log_of_arrays(given, horizon=H, num_actions=A)
    seen, commands, rewards, ended, _ = made.recorded
    assert ended.tolist() == [3, 1, 3, 3]
    assert made.tells_ends
    np.testing.assert_array_equal(seen[1, 1:], np.repeat(given["observations"][1][1:], 3, axis=0))
    assert commands[1].tolist() == [1, 0, 0]
    assert rewards[1].tolist() == [5, 0, 0]
    np.testing.assert_array_equal(seen[0], given["observations"][0])


def test_the_same_episodes_in_any_of_their_forms_are_the_same_log():
    ragged = columns(ended=[True, True, False, True])
    ragged["observations"][1] = ragged["observations"][1][:3]
    ragged["commands"][1], ragged["rewards"][1] = np.array([0, 1]), np.array([0.0, 0.0])
    rows = [{name: column[i] for name, column in ragged.items()} for i in range(4)]
    rows = [{"actions": row.pop("commands"), **row} for row in rows]
    whole = columns()
    whole["rewards"][1] = np.array([0.0, 0.0, np.nan])  # padding may be anything
    full = {name: np.stack(column) for name, column in whole.items()}
    full["ended"] = np.array([3, 2, 3, 3])
    full["observations"][1, 3] = np.nan
    logs = [log_of_arrays(one, horizon=H, num_actions=A) for one in (ragged, rows, full)]
    for other in logs[1:]:
        for a, b in zip(logs[0].recorded[1:], other.recorded[1:], strict=True):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(logs[0].recorded.observations, logs[1].recorded.observations)


def test_pictures_stay_bytes_and_other_numbers_become_float32():
    pictures = [np.full((H + 1, 2, 2, 3), i, np.uint8) for i in range(4)]
    assert log(observations=pictures).observation_dtype == "uint8"
    whole = [np.arange((H + 1) * 2).reshape(H + 1, 2) for _ in range(4)]
    made = log(observations=whole)
    assert made.observation_dtype == "float32"
    np.testing.assert_array_equal(made.recorded.observations[0], whole[0])


C = columns()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"commands": put(C["commands"], 2, np.array([0, 7, 0]))}, "episode 2, step 1: command 7"),
        ({"commands": put(C["commands"], 2, np.array([0, 1 << 40, 0]))}, "episode 2, step 1: comm"),
        ({"commands": put(C["commands"], 2, np.array([0, 0.5, 0]))}, "episode 2, step 1: .* 0.5"),
        ({"commands": put(C["commands"], 2, [])}, "episode 2 has 0 commands"),
        ({"commands": put(C["commands"], 0, np.array("abc"))}, "episode 0: commands of <U3"),
        (
            {"commands": put(C["commands"], 1, np.zeros(H + 1, int))},
            "episode 1 has 4 commands, the horizon is 3",
        ),
        (
            {
                "commands": put(C["commands"], 1, np.zeros(2, int)),
                "rewards": put(C["rewards"], 1, np.zeros(2)),
                "observations": put(C["observations"], 1, np.zeros((3, 2))),
            },
            "episode 1 has 2 of 3 steps and no flag that it ended",
        ),
        ({"rewards": put(C["rewards"], 3, np.array([0, np.nan, 0]))}, "episode 3, step 1: reward"),
        ({"rewards": put(C["rewards"], 3, np.zeros(2))}, "episode 3 has 2 rewards for 3 commands"),
        ({"rewards": C["rewards"][:3]}, "rewards of 3 episodes, but commands of 4"),
        (
            {"observations": put(C["observations"], 0, np.zeros((H, 2)))},
            "episode 0 has 3 observations for 3 commands, must be 4: the last",
        ),
        (
            {"observations": put(C["observations"], 2, np.zeros((H + 1, 3)))},
            r"episode 2 has observations of shape \(3,\), episode 0 of \(2,\)",
        ),
        (
            {"observations": put(C["observations"], 2, np.full((H + 1, 2), np.nan))},
            "episode 2, observation 0: not finite",
        ),
        (
            {"observations": put(C["observations"], 2, [[1], [1, 2]])},
            "episode 2: observations of un",
        ),
        ({"ended": [True, 2, False, 4]}, "episode 1, step 2: a reward, but .* ended after 2"),
        ({"ended": [True, 3, False, 4]}, "episode 3 ended after 4 steps, but has 3 of 3"),
        ({"ended": [True, "yes", False, 3]}, "episode 1: ended is 'yes'"),
        ({"done": [True] * 4}, "'done' is none of observations"),
        ({"actions": C["commands"]}, "'actions' is another name for 'commands'"),
        ({"commands": []}, "of 4 episodes, but commands of 0"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_with_the_place(changed, words):
    with pytest.raises((ValueError, TypeError), match=f"^episodes: .*{words}"):
        log(**changed)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "there are none"),
        (3, "int is neither a path"),
        ([{"observations": [1]}], "episode 0: no 'commands'"),
        ([{**{n: c[0] for n, c in C.items()}}, 7], "episode 1 is of type int"),
        ({"observations": []}, "no 'commands'"),
        ({}, "no 'observations' among nothing"),
    ],
)
def test_what_are_no_episodes_at_all_is_refused(given, words):
    with pytest.raises((ValueError, TypeError), match=words):
        log_of_arrays(given, horizon=H, num_actions=A)


# --- recording ---


@pytest.mark.parametrize("traceable", [True, False])
def test_what_is_recorded_is_what_happened(traceable):
    """On the cliff every step says what it was: action 1 goes on and pays 1, action 0 ends."""
    made = record_episodes(Cliff(traceable=traceable), None, episodes=40, seed=3)
    seen, commands, rewards, ended, own = made.recorded
    assert made.tells_ends
    assert not own.any()
    went = np.cumprod(commands, axis=1)
    np.testing.assert_array_equal(rewards, went)
    np.testing.assert_array_equal(seen[:, 1:, 0], np.cumsum(went, axis=1))
    np.testing.assert_array_equal(ended, np.minimum(went.sum(axis=1) + 1, 4))
    assert len(set(ended.tolist())) == 4
    fewer = record_episodes(Cliff(traceable=traceable), None, episodes=7, seed=3)
    for some, all_of_them in zip(fewer.recorded, made.recorded, strict=True):
        np.testing.assert_array_equal(some, all_of_them[:7])


def test_a_share_of_the_commands_is_random_and_the_rest_the_policys_own(lock):
    player = eyes_shut(lock.target, lock.simulator, eta=0.1)
    made = record_episodes(lock, player, episodes=400, explore=0.3, seed=0)
    assert abs(made.recorded.own.mean() - 0.7) < 4 * (0.21 / 2000) ** 0.5
    alone = record_episodes(lock, player, episodes=8, explore=0.0)
    # Without looking and without experiments, every episode commands the same.
    assert (alone.recorded.commands == alone.recorded.commands[0]).all()
    assert alone.recorded.own.all()


def test_episodes_of_a_decoders_policy_are_recorded_too(lock, learned):
    made = record_episodes(lock, learned.policy, episodes=40, explore=0.0, seed=1)
    assert made.recorded.own.all()
    assert made.environment == {"name": lock.name, "options": dict(lock.options)}
    robust = lock.latent.robust_value(learned.policy.plan)
    assert made.recorded.returns.mean() > 0.7 * robust


@pytest.mark.parametrize(
    ("given", "words"), [({"episodes": 0}, "episodes: 0"), ({"explore": 1.5}, "explore: 1.5")]
)
def test_recording_refuses_nonsense(given, words):
    with pytest.raises(ValueError, match=words):
        record_episodes(Cliff(), None, **{"episodes": 3, **given})


# --- learning ---


@pytest.fixture(scope="module")
def logged(lock):
    player = eyes_shut(lock.target, lock.simulator, eta=0.1)
    return record_episodes(lock, player, episodes=64, explore=0.3, seed=5)


@pytest.fixture(scope="module")
def from_log(lock, logged):
    return tasid.learn_from_episodes(logged, lock.simulator, eta=0.1)


def test_a_policy_learned_from_a_blind_ones_episodes_sees(lock, logged, from_log):
    assert (from_log.episodes, from_log.logged_episodes) == (0, 64)
    robust = lock.latent.robust_value(from_log.policy.plan)
    blind = lock.latent.blind_value()
    score = tasid.evaluate(from_log.policy, lock, episodes=4_000, seed=1)
    assert score.mean - blind > 0.9 * (robust - blind)
    assert logged.recorded.returns.mean() < blind
    assert from_log.diagnostics.coverage > 0.95
    assert not from_log.diagnostics.warnings


def test_the_same_log_gives_the_same_policy_by_path_by_value_and_by_arrays(
    tmp_path, lock, logged, from_log
):
    from_log.policy.save(tmp_path / "value")
    logged.save(tmp_path / "log")
    tasid.learn_from_episodes(tmp_path / "log", lock.simulator, eta=0.1, run_dir=tmp_path / "path")
    seen, commands, rewards, *_ = logged.recorded
    arrays = {"observations": seen, "actions": commands, "rewards": rewards}
    by_arrays = tasid.learn_from_episodes(arrays, lock.simulator, eta=0.1).policy
    replace(by_arrays, environment=logged.environment).save(tmp_path / "arrays")
    for file in (tmp_path / "value").iterdir():
        assert file.read_bytes() == (tmp_path / "path" / "policy" / file.name).read_bytes()
        assert file.read_bytes() == (tmp_path / "arrays" / file.name).read_bytes()


def test_what_is_noise_is_not_learned(lock, logged):
    noise = np.random.default_rng(0).normal(size=logged.recorded.observations.shape)
    blurred = logged.recorded._replace(observations=noise.astype(np.float32))
    with pytest.raises(Undecided, match="do not tell what states look like"):
        tasid.learn_from_episodes(replace(logged, recorded=blurred), lock.simulator, eta=0.1)


def test_where_nothing_is_paid_looks_decide(lock, logged):
    """Rewards that the map does not know say nothing; right places still explain new looks."""
    unpaid = logged.recorded._replace(rewards=np.full_like(logged.recorded.rewards, 0.123))
    result = tasid.learn_from_episodes(replace(logged, recorded=unpaid), lock.simulator, eta=0.1)
    robust = lock.latent.robust_value(result.policy.plan)
    assert tasid.evaluate(result.policy, lock, episodes=4_000, seed=1).mean > 0.97 * robust


def test_a_log_that_never_goes_where_the_plan_goes_says_so(lock, logged):
    """Episodes that fell in their second or third step do not show the lock's later states."""
    fallen = record_episodes(lock, None, episodes=200, seed=2).recorded
    fallen = fallen.rows((fallen.rewards[:, 1:3] == 1).any(axis=1))
    log = replace(logged, recorded=fallen)
    result = tasid.learn_from_episodes(log, lock.simulator, eta=0.1)
    assert result.diagnostics.coverage < 0.8
    assert any("of what the plan will meet" in words for words in result.diagnostics.warnings)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"eta": 0.5}, r"eta: 0.5 is outside \[0, 0.5\)"),
        ({"eta": float("nan")}, "eta: nan"),
        ({"classes": "colour"}, "classes: 'colour' is none of place"),
    ],
)
def test_learning_refuses_nonsense(lock, logged, change, words):
    with pytest.raises(ValueError, match=words):
        tasid.learn_from_episodes(logged, lock.simulator, **{"eta": 0.1, **change})


def test_a_map_of_something_else_is_refused(logged):
    other = tasid.make("combination-lock", horizon=5, num_actions=3, seed=7).simulator
    with pytest.raises(ValueError, match="simulator: 3 actions on the map, 4 in the log"):
        tasid.learn_from_episodes(logged, other, eta=0.1)
    longer = tasid.make("combination-lock", horizon=6, num_actions=4, seed=7).simulator
    with pytest.raises(ValueError, match="simulator: horizon 6 on the map, 5 in the log"):
        tasid.learn_from_episodes(logged, longer, eta=0.1)


def test_too_few_episodes_are_too_few(lock, logged):
    few = replace(logged, recorded=logged.recorded.rows(slice(0, 7)))
    with pytest.raises(Undecided, match="7 are too few"):
        tasid.learn_from_episodes(few, lock.simulator, eta=0.1)


def corridor():
    """Left or right; the right end pays and is the end."""
    successor = [[max(s - 1, 0), s + 1] for s in range(4)] + [[4, 4]]
    reward = [[0.0, float(s == 3)] for s in range(5)]
    return tasid.AbstractSimulator(successor, reward, horizon=8, start=0)


def walk(rng, noise):
    """An episode in the corridor that stops where the target ends it, as a user would have it."""
    colour = np.eye(5)
    state, seen, commands, rewards = 0, [], [], []
    seen.append(colour[0] + noise * rng.normal(size=5))
    while state != 4 and len(commands) < 8:
        command = int(rng.random() < 0.7)
        happened = command if rng.random() < 0.95 else 1 - command
        rewards.append(float(state == 3 and happened == 1))
        state = state + 1 if happened else max(state - 1, 0)
        commands.append(command)
        seen.append(colour[state] + noise * rng.normal(size=5))
    row = {"observations": np.array(seen), "commands": commands, "rewards": rewards}
    return {**row, "ended": state == 4}


def test_episodes_of_unequal_length_teach_the_places_of_a_corridor():
    rng = np.random.default_rng(4)
    episodes = [walk(rng, 0.1) for _ in range(60)]
    assert len({len(one["commands"]) for one in episodes}) > 2
    policy = tasid.learn_from_episodes(episodes, corridor(), eta=0.1).policy
    agent = policy.agent()
    # Held where it is against its commands, a belief that cannot see would walk on.
    for state in (0, 0, 1, 0, 1, 2, 3):
        assert agent.act(np.eye(5)[state]) == 1
        assert agent.state == state


# --- judging ---


def judged(name, foresight, evidence=(50.0, 1.0), lead=(5.0, 0.5), left=(6.0, 0.5), fold=0):
    pairs = (foresight, lead, left, evidence)
    return Judged(SimpleNamespace(name=name), fold, *(Measure(*pair) for pair in pairs))


def test_equal_fits_that_agree_are_decided_and_those_that_disagree_are_not():
    a, b = judged("a", (-0.5, 0.2)), judged("b", (-0.6, 0.2), evidence=(49.0, 1.0))
    assert decided([a, b], lambda one, other: 0.97) is a
    with pytest.raises(Undecided, match=r"'a' .* and 'b' .* are equally good .* at 40% of the"):
        decided([a, b], lambda one, other: 0.4)
    alike = judged("a", (-0.5, 0.2), fold=2)
    with pytest.raises(Undecided, match=r"'a' to all but part 1 and 'a' to all but part 3 are eq"):
        decided([a, alike], lambda one, other: 0.4)
    worse = judged("b", (-3.0, 0.2))
    assert decided([a, worse], lambda one, other: 0.4) is a
    plainer = judged("b", (-0.5, 0.2), evidence=(20.0, 1.0))
    assert decided([a, plainer], lambda one, other: 0.4) is a


def test_a_fit_that_foresees_no_better_than_a_blind_guess_is_refused_however_it_looks():
    with pytest.raises(Undecided, match=r"the 6.00 ± 0.50 nats .* foresees 1.00 ± 0.40"):
        decided([judged("a", (-5.0, 0.5), lead=(1.0, 0.4))], lambda *_: 1.0)
    nothing = {"lead": (0.0, 0.0), "left": (0.0, 0.0)}
    assert decided([judged("a", (0.0, 0.0), **nothing)], lambda *_: 1.0)
    with pytest.raises(Undecided):
        decided([judged("a", (0.0, 0.0), evidence=(1.0, 0.5), **nothing)], lambda *_: 1.0)


def test_foresight_ranks_and_looks_break_ties():
    a, b, c = (
        judged("a", (-0.5, 0.2), evidence=(10.0, 1.0)),
        judged("b", (-0.6, 0.2), evidence=(40.0, 1.0)),
        judged("c", (-5.0, 0.2), evidence=(90.0, 1.0)),
    )
    assert [one.fit.name for one in belief_logs._ranked([c, a, b])] == ["b", "a", "c"]


def test_unseen_is_the_score_of_a_class_never_seen():
    rng = np.random.default_rng(1)
    x = np.repeat(rng.normal(size=(3, 4)) * 3, 20, axis=0) + rng.normal(size=(60, 4))
    counts = np.array([20.0, 20.0, 20.0, 0.0])
    sums = np.concatenate([x.reshape(3, 20, 4).sum(axis=1), np.zeros((1, 4))])
    moments = Moments(counts, sums, 60.0, x.sum(axis=0), x.T @ x)
    emission = fit_gaussians(moments, dimensions=3)
    features = jnp.asarray(x[:12].reshape(3, 4, 4), jnp.float32)  # three steps of four episodes
    live = jnp.asarray([[1.0, 1, 1, 1], [1, 1, 1, 0], [1, 0, 0, 0]])
    ended, nothing = jnp.array([2, 1, 1, 0]), jnp.zeros(())
    episodes = Episodes(features, nothing, nothing, ended, nothing, nothing, jnp.ones(4))
    found = by_episode(unseen, emission, [episodes])
    scores = [emission.scores(step, jnp.array([3]))[0] for step in features]
    np.testing.assert_allclose(found, (jnp.stack(scores) * live).sum(axis=0), rtol=1e-4)


def a_hall(rng):
    """A hall of 576 poses with some pillars, and 16 random episodes: states and a log of them."""
    rows = [["#" if row in (0, 13) or column in (0, 13) else "." for column in range(14)]
            for row in range(14)]  # fmt: skip
    for row, column in ((3, 4), (4, 9), (8, 3), (10, 10)):
        rows[row][column] = "#"
    rows[1][1], rows[12][12] = "S", "G"
    text = "\n".join("".join(row) for row in rows)
    sim = tasid.AbstractSimulator.from_text_map(text, moves="turn", horizon=40)
    commands = rng.integers(0, sim.num_actions, size=(16, 40)).astype(np.int32)
    states = np.full((16, 41), sim.start)
    for h in range(40):
        states[:, h + 1] = sim.successor_at(h)[states[:, h], commands[:, h]]
    recorded = Recorded(
        observations=np.zeros((16, 41, 6), np.float32),
        commands=commands,
        rewards=np.zeros((16, 40), np.float32),
        ended=np.full(16, 40, np.int32),
        own=np.ones((16, 40), bool),
    )
    return sim, states, recorded


def fitted_to(states, log, features):
    """A fit to the folds but the first by one who knows where they were."""
    classes = log._classes[0]
    seen, there = features[log._fold != 0], states[log._fold != 0]
    counts = np.bincount(there.ravel(), minlength=classes.number).astype(float)
    sums = np.zeros((classes.number, seen.shape[-1]))
    np.add.at(sums, there, seen)
    flat = seen.reshape(-1, seen.shape[-1])
    moments = Moments(counts, sums, float(len(flat)), flat.sum(axis=0), flat.T @ flat)
    emission = log.setting.gaussians(classes, moments)
    return BeliefFit("known", classes, log._looks, emission, counts)


def by_hand(fit, states, features, sharp):
    """Σ ln p(x | place) − ln p(x | a place of which nothing is known), mean over episodes."""
    emission = fit.emission
    along = (features - np.asarray(emission.centre)) @ np.asarray(emission.directions)
    variance = -0.5 / (np.asarray(emission.square) / sharp)
    mean = np.asarray(emission.linear) / sharp * variance
    broad = 1 + np.asarray(emission.spread) + (mean**2).mean(axis=0)

    def score(x, mean, variance):
        return -0.5 * ((x - mean) ** 2 / variance + np.log(variance)).sum(axis=-1)

    told = score(along, mean[states], variance[states]) - score(along, 0.0, broad)
    return told.sum(axis=1).mean()


def test_looks_that_the_plan_describes_are_evidence_and_noise_is_none():
    rng = np.random.default_rng(4)
    sim, states, recorded = a_hall(rng)
    plan = tasid.robust_dp(sim, eta=0.1)
    looks = views(sim.layout)[states] @ rng.normal(size=(32, 24)) / 4
    noise = rng.normal(size=looks.shape)
    found = []
    for seen in (looks + noise, noise):
        log = belief_logs._Log(recorded._replace(observations=seen), plan, False, None)
        assert is_large(log.setting.chain)
        assert log.setting.described is not None
        slots = np.searchsorted(np.asarray(log.setting.chain.states[0]), states)
        features = np.asarray(log._looks(jnp.asarray(seen.reshape(-1, 24), jnp.float32), 0), float)
        features = features.reshape(seen.shape)
        fit = fitted_to(slots, log, features)
        (judged,) = log.judge([(0, fit)])
        held = log._fold == 0
        found.append((judged.evidence, by_hand(fit, slots[held], features[held], sharp=12 / 24)))
    (told, expected), (nothing, _) = found
    assert told.sure
    # The way has its price, too: forty commands that might have slipped.
    assert expected - 25 < told.mean < expected + 1
    assert not nothing.sure


def test_coverage_by_hand():
    """Two steps to the right, slips stay; only the place after the first has been seen."""
    sim = tasid.AbstractSimulator(
        [[0, 1], [1, 2], [2, 2]], [[0, 0], [0, 1], [0, 0]], horizon=2, start=0
    )
    setting = setting_for(tasid.robust_dp(sim, eta=0.2))
    classes = Classes.of(setting.chain, "place", sim)
    # A command has its outcome with 0.9, the slip being shared by both actions. Whoever stayed
    # first stays by plan: nothing can be earned any more, and ties go to the lowest action.
    seen = 0.9 + (0.9 * 0.1 + 0.1 * 0.1)
    assert coverage(setting, classes, np.array([0.0, 9.0, 0.0])) == pytest.approx(seen / 2)
    assert coverage(setting, classes, np.full(3, 9.0)) == pytest.approx(1)
    assert coverage(setting, classes, np.zeros(3)) == 0


# --- commands ---


@pytest.fixture
def command(capsys):
    def run(*arguments, code=0):
        with pytest.raises(SystemExit) as ended:
            main([str(one) for one in arguments])
        assert (ended.value.code or 0) == code
        out, err = capsys.readouterr()
        return json.loads(out) if code == 0 and "--json" in arguments else out + err

    return run


LOCK = ("combination-lock", "--horizon", 5, "--set", "num_actions=4", "--seed", 7)


def test_record_train_evaluate(tmp_path, command):
    file, run = tmp_path / "log", tmp_path / "run"
    told = command("record", *LOCK, "--episodes", 40, "--out", file, "--json")
    assert (told["episodes"], told["file"]) == (40, str(file))
    log = EpisodeLog.load(file)
    assert told["return_mean"] == pytest.approx(log.recorded.returns.mean())
    summary = command("train", "--from", file, "--out", run, "--json")
    assert (summary["episodes"], summary["logged_episodes"]) == (0, 40)
    for key in ("return_mean", "ratio", "skill", "robust_value", "decoder_accuracy"):
        assert summary[key] is None
    assert summary == json.loads((run / "result.json").read_text())
    scored = command("evaluate", run, "--episodes", 500, "--json")
    assert scored["ratio"] > 0.9
    assert "nothing was scored" in command("report", run, code=2)
    again = command("record", *LOCK, "--episodes", 40, "--out", file, code=2)
    assert "exists already" in again
    words = command(
        "train",
        "--from",
        file,
        "--out",
        tmp_path / "b",
        "--simulator",
        LOCK[0],
        "--map",
        "num_actions=3",
        code=2,
    )
    assert "3 actions on the map, 4 in the log" in words
    words = command("train", "--from", file, "--out", tmp_path / "b", "--horizon", 6, code=2)
    assert "horizon 6 on the map, 5 in the log" in words
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "run"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--episodes", 5), "--episodes: with --from"),
        (("--seed", 5), "--seed: with --from"),
        (("--set", "a=1"), "--set: with --from"),
        (("--certify",), "--certify: with --from"),
        (("--eta", 0.5), "eta: 0.5 is outside"),
    ],
)
def test_training_from_a_log_refuses_flags_of_targets(tmp_path, command, logged, flags, words):
    logged.save(tmp_path / "log")
    assert words in command("train", "--from", tmp_path / "log", *flags, code=2)


def test_a_refusal_leaves_nothing(tmp_path, command, logged):
    few = replace(logged, recorded=logged.recorded.rows(slice(0, 7)))
    few.save(tmp_path / "log")
    words = command("train", "--from", tmp_path / "log", "--out", tmp_path / "run", code=2)
    assert "too few" in words
    assert [path.name for path in tmp_path.iterdir()] == ["log"]


def test_what_is_no_log_is_refused_by_name(tmp_path, command):
    assert "does not exist" in command("train", "--from", tmp_path / "none", code=2)
    corridor().save(tmp_path / "map")
    words = command("train", "--from", tmp_path / "map", code=2)
    assert "kind 'simulator', expected 'episodes'" in words
    words = command(
        "record", *LOCK, "--episodes", 2, "--out", tmp_path / "map", "--overwrite", code=2
    )
    assert "expected 'episodes'" in words
    assert tasid.AbstractSimulator.load(tmp_path / "map").horizon == 8


def test_a_log_that_names_no_environment_needs_a_map(tmp_path, command):
    log().save(tmp_path)
    assert "--simulator: the log names no" in command("train", "--from", tmp_path, code=2)


def test_random_episodes_of_a_gymnasium_environment_need_no_map(tmp_path, command):
    told = command(
        "record",
        "gym:FrozenLake-v1",
        "--set",
        "is_slippery=false",
        "--horizon",
        6,
        "--episodes",
        12,
        "--out",
        tmp_path / "log",
        "--json",
    )
    assert (told["policy"], told["horizon"], told["explore"]) == ("random", 6, 1.0)
    made = EpisodeLog.load(tmp_path / "log")
    assert made.tells_ends
    assert made.environment["name"] == "gym:FrozenLake-v1"
    words = command(
        "record",
        "gym:FrozenLake-v1",
        "--policy",
        "plan",
        "--horizon",
        6,
        "--episodes",
        2,
        "--out",
        tmp_path / "other",
        code=2,
    )
    assert "no map to plan on" in words
