"""filter_beliefs and smooth_beliefs against all paths, and by what must hold for any beliefs."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mdps import rebuilt, seeds
from paths import REWARDS, Episode, Paths, a_world
from tasid.beliefs import BeliefInputError, Frontier, filter_beliefs, smooth_beliefs
from tasid.beliefs.chain import Chain
from tasid.maps import AbstractSimulator

few = settings(max_examples=25, deadline=None)
WIDE = Frontier(size=64, epsilon=0.0)


def likelihoods(rng: np.random.Generator, sim: AbstractSimulator, number: int = 2) -> np.ndarray:
    """Log-likelihoods [N, H+1, S]; a few are impossible, never all."""
    table = 2 * rng.normal(size=(number, sim.horizon + 1, sim.num_states))
    table[rng.random(table.shape) < 0.1] = -np.inf
    return table


def an_episode(rng, sim, *, rewards=False, ends=False) -> Episode:
    commands = tuple(rng.integers(sim.num_actions, size=sim.horizon).tolist())
    pays = tuple(rng.choice([*REWARDS, 99.0], size=sim.horizon).tolist())
    ended = int(rng.integers(1, sim.horizon + 1))
    return Episode(commands, pays if rewards else None, ended if ends else None)


def keywords(episodes: list[Episode]) -> dict:
    """The keyword arguments of both functions."""
    given = {}
    if episodes[0].rewards is not None:
        given["rewards"] = np.array([e.rewards for e in episodes])
    if episodes[0].ended is not None:
        given["ended"] = np.array([e.ended for e in episodes])
    return given


def reachable_anywhere(sim: AbstractSimulator) -> tuple[tuple[int, ...], ...]:
    """Where leaps may land: what each step reaches if that is at most half of all, else all."""
    layers = [sorted(set(sim.starts.tolist()))]
    for h in range(sim.horizon):
        layers.append(sorted({int(t) for s in layers[-1] for t in sim.successor_at(h)[s]}))
    everything = sorted({s for layer in layers for s in layer})
    layered = sim.successor.ndim == 3 or 2 * max(map(len, layers)) <= len(everything)
    return tuple(tuple(layer) if layered else tuple(everything) for layer in layers[1:])


def check_against_paths(rng, sim, *, eta, leap=0.0, rewards=False, ends=False, frontier=None):
    episodes = [an_episode(rng, sim, rewards=rewards, ends=ends) for _ in range(2)]
    logs = likelihoods(rng, sim)
    commands = [e.commands for e in episodes]
    more = {"eta": eta, "leap": leap, "frontier": frontier, **keywords(episodes)}
    filtered = filter_beliefs(sim, commands, logs, **more)
    smoothed = smooth_beliefs(sim, commands, logs, **more)
    paths = Paths(sim, eta, leap, anywhere=reachable_anywhere(sim))
    counts: dict = {}
    for n, episode in enumerate(episodes):
        look = np.exp(logs[n][:, paths.places])
        whole = paths.found(episode, look)
        live = sim.horizon if episode.ended is None else episode.ended
        if whole.total == 0:
            assert filtered.log_evidence[n] == smoothed.log_evidence[n] == -np.inf
            assert not smoothed.weights[n].any()
            continue
        assert filtered.log_evidence[n] == pytest.approx(np.log(whole.total), abs=2e-5)
        assert smoothed.log_evidence[n] == filtered.log_evidence[n]
        for h in range(live + 1):
            so_far = paths.found(episode, look, upto=h).belief(h, sim.num_states)
            np.testing.assert_allclose(filtered.dense[n, h], so_far, atol=2e-6)
            in_hindsight = whole.belief(h, sim.num_states)
            np.testing.assert_allclose(smoothed.dense[n, h], in_hindsight, atol=2e-6)
        assert not filtered.weights[n, live + 1 :].any()
        for (h, *key), weight in whole.moves.items():
            if h < live:
                place = (h, *key) if sim.successor.ndim == 3 else tuple(key)
                counts[place] = counts.get(place, 0.0) + weight / whole.total
        leaps = sum(w for (h, *_), w in whole.leaps.items() if h < live) / whole.total
        assert smoothed.leaps[n] == pytest.approx(leaps, abs=1e-5)
    check_counts(smoothed.outcomes, {k: c for k, c in counts.items() if c > 1e-6})


def check_counts(outcomes, expected: dict) -> None:
    columns = [outcomes.states, outcomes.commands, outcomes.successors]
    if outcomes.steps is not None:
        columns.insert(0, outcomes.steps)
    keys = zip(*(column.tolist() for column in columns), strict=True)
    got = dict(zip(keys, outcomes.counts.tolist(), strict=True))
    for key in expected.keys() | {key for key, count in got.items() if count > 1e-5}:
        assert got.get(key, 0.0) == pytest.approx(expected.get(key, 0.0), abs=1e-5), key


@few
@given(seeds, st.sampled_from([0.0, 0.1, 0.4]))
def test_beliefs_evidence_and_counts_are_those_of_all_paths(seed, eta):
    rng = np.random.default_rng(seed)
    check_against_paths(rng, a_world(rng), eta=eta)


@few
@given(seeds, st.booleans(), st.booleans())
def test_rewards_and_ends_are_evidence_with_a_floor(seed, rewards, ends):
    rng = np.random.default_rng(seed)
    check_against_paths(rng, a_world(rng), eta=0.2, rewards=rewards, ends=ends)


@few
@given(seeds)
def test_leaps_lead_anywhere(seed):
    rng = np.random.default_rng(seed)
    check_against_paths(rng, a_world(rng), eta=0.2, leap=0.3, rewards=True)


@few
@given(seeds, st.booleans(), st.booleans(), st.sampled_from([0.0, 0.3]))
def test_a_frontier_with_room_for_all_is_the_full_filter(seed, rewards, ends, eta):
    rng = np.random.default_rng(seed)
    check_against_paths(rng, a_world(rng), eta=eta, rewards=rewards, ends=ends, frontier=WIDE)


def test_layers_and_one_table_give_the_same_beliefs():
    """Two states a layer that no other layer has, as in a lock."""
    layer, i = np.divmod(np.arange(10), 2)
    line = 2 * np.minimum(layer + 1, 4)[:, None] + (i[:, None] + [[0, 1]]) % 2
    sim = AbstractSimulator(line, np.zeros(line.shape), horizon=4)
    assert Chain.of(sim).states.shape == (5, 2)
    rng = np.random.default_rng(3)
    check_against_paths(rng, sim, eta=0.2)
    check_against_paths(rng, sim, eta=0.2, leap=0.1)
    check_against_paths(rng, sim, eta=0.2, frontier=WIDE)
    logs = likelihoods(rng, sim)
    per_step = AbstractSimulator(np.stack([line] * 4), np.zeros(line.shape), horizon=4)
    one = smooth_beliefs(sim, [[0, 1, 0, 1]] * 2, logs, eta=0.2)
    other = smooth_beliefs(per_step, [[0, 1, 0, 1]] * 2, logs, eta=0.2)
    np.testing.assert_allclose(one.dense, other.dense, atol=1e-6)
    assert one.outcomes.steps is None
    assert other.outcomes.steps is not None


@few
@given(seeds, st.sampled_from([0.0, 0.25]))
def test_what_holds_for_all_beliefs(seed, eta):
    rng = np.random.default_rng(seed)
    sim = a_world(rng)
    logs = 3 * rng.normal(size=(2, 4, 4))
    commands = rng.integers(3, size=(2, 3))
    filtered = filter_beliefs(sim, commands, logs, eta=eta)
    smoothed = smooth_beliefs(sim, commands, logs, eta=eta)
    np.testing.assert_allclose(filtered.weights.sum(axis=2), 1, atol=1e-6)
    np.testing.assert_allclose(smoothed.weights.sum(axis=2), 1, atol=1e-6)
    np.testing.assert_allclose(filtered.weights[:, -1], smoothed.weights[:, -1], atol=1e-6)
    assert smoothed.outcomes.counts.sum() == pytest.approx(2 * sim.horizon, rel=1e-5)
    assert filtered.discarded.max() == 0
    # Evidence is a product over steps of what was expected of each observation.
    flat = filter_beliefs(sim, commands, logs + 5.0, eta=eta)
    np.testing.assert_allclose(flat.log_evidence, filtered.log_evidence + 20, rtol=1e-6)
    silent = filter_beliefs(sim, commands, np.zeros((2, 4, 4)), eta=eta)
    np.testing.assert_allclose(silent.log_evidence, 0, atol=1e-6)


@few
@given(seeds)
def test_the_evidence_of_all_that_could_be_seen_adds_up_to_one(seed):
    """Two symbols: over all 2^(H+1) sequences of them, probabilities sum up to 1."""
    rng = np.random.default_rng(seed)
    sim = a_world(rng)
    shown = np.log(np.stack([p := rng.uniform(0.01, 0.99, size=4), 1 - p]))
    symbols = np.array([[i >> h & 1 for h in range(4)] for i in range(16)])
    commands = np.tile(rng.integers(3, size=(1, 3)), (16, 1))
    evidence = filter_beliefs(sim, commands, shown[symbols], eta=0.3).log_evidence
    assert np.exp(evidence).sum() == pytest.approx(1, abs=1e-5)


@few
@given(seeds)
def test_numbering_the_states_otherwise_renumbers_the_beliefs(seed):
    rng = np.random.default_rng(seed)
    sim = a_world(rng)
    new = rng.permutation(4)
    old = np.argsort(new)
    twin = rebuilt(
        sim,
        successor=new[sim.successor][..., old, :],
        reward=sim.reward[..., old, :],
        starts=new[sim.starts],
    )
    logs, commands = likelihoods(rng, sim), rng.integers(3, size=(2, 3))
    one = smooth_beliefs(sim, commands, logs, eta=0.1)
    other = smooth_beliefs(twin, commands, logs[:, :, old], eta=0.1)
    np.testing.assert_allclose(other.dense[:, :, new], one.dense, atol=1e-6)
    np.testing.assert_allclose(other.log_evidence, one.log_evidence, atol=1e-5)


@few
@given(seeds)
def test_without_slips_one_start_is_certain_whatever_is_seen(seed):
    rng = np.random.default_rng(seed)
    sim = a_world(rng, several_starts=False)
    commands = rng.integers(3, size=(2, 3))
    filtered = filter_beliefs(sim, commands, 9 * rng.normal(size=(2, 4, 4)), eta=0.0)
    for n in range(2):
        assert filtered.likeliest[n].tolist() == sim.replay(commands[n])
        assert filtered.at(n, 3) == {sim.replay(commands[n])[3]: 1.0}


def a_line(horizon: int, states: int = 4) -> AbstractSimulator:
    """Actions: stay, go on."""
    leads = np.minimum(np.arange(states)[:, None] + [[0, 1]], states - 1)
    return AbstractSimulator(leads, np.zeros(leads.shape), horizon=horizon)


def test_extreme_likelihoods_neither_vanish_nor_overflow():
    """Where one is not yet always looks e^100000 times likelier, until at last it is where one is.

    Only the path that slips ahead every time is left; each slip has probability η/2.
    """
    far, end = 1e5, np.arange(11) == 10
    logs = np.where(end, far, 0.0) * np.ones((1, 11, 1))
    logs[0, 10] = np.where(end, 0.0, -far)
    smoothed = smooth_beliefs(a_line(10, 11), np.zeros((1, 10), int), logs, eta=0.001)
    assert smoothed.likeliest[0].tolist() == list(range(11))
    assert smoothed.weights[0].max(axis=1) == pytest.approx(1)
    assert smoothed.log_evidence[0] == pytest.approx(10 * np.log(0.0005), abs=1e-3)


def test_log_likelihoods_keep_their_precision_when_they_are_huge():
    sim = a_line(1)
    logs = np.zeros((1, 2, 4)) - 1e6
    logs[0, 1, 0] += 0.25
    found = filter_beliefs(sim, [[1]], logs, eta=0.4)
    stays = 0.2 * np.exp(0.25)
    assert found.at(0, 1)[0] == pytest.approx(stays / (stays + 0.8), rel=1e-5)
    assert found.log_evidence[0] == pytest.approx(-2e6 + np.log(stays + 0.8), abs=1e-5)


def test_what_the_map_cannot_have_shown():
    sim = a_line(3)
    logs = np.zeros((2, 4, 4))
    logs[0, 2] = [-np.inf, -np.inf, -np.inf, 0.0]  # three states on, after two steps
    for function in (filter_beliefs, smooth_beliefs):
        found = function(sim, [[1, 1, 1]] * 2, logs, eta=0.1)
        assert found.log_evidence[0] == -np.inf
        assert not found.weights[0, 2:].any()
        assert found.likeliest[0, 3] == -1
        assert found.log_evidence[1] == pytest.approx(0, abs=1e-6)
        assert found.weights[1].sum(axis=1) == pytest.approx(1)
    assert found.outcomes.counts.sum() == pytest.approx(3)


def test_likelihoods_by_a_function_are_those_by_a_table():
    rng = np.random.default_rng(5)
    sim = a_world(rng)
    mean, seen = rng.normal(size=4), rng.normal(size=(3, 4))
    table = -0.5 * (seen[:, :, None] - mean) ** 2
    commands = rng.integers(3, size=(3, 3))
    asked = []

    def by_function(h: int, states: np.ndarray) -> np.ndarray:
        asked.append(h)
        return -0.5 * (seen[:, h, None] - mean[states]) ** 2

    for frontier in (None, WIDE):
        one = smooth_beliefs(sim, commands, table, eta=0.1, frontier=frontier)
        other = smooth_beliefs(sim, commands, by_function, eta=0.1, frontier=frontier)
        np.testing.assert_array_equal(one.dense, other.dense)
        np.testing.assert_array_equal(one.log_evidence, other.log_evidence)
    assert asked == [0, 1, 2, 3] * 2  # once for each step, hindsight asks nothing


def test_after_an_end_nothing_is_looked_at():
    sim = a_line(4)
    logs = np.zeros((1, 5, 4))
    logs[0, 3:] = np.nan
    commands = [[1, 1, -7, 99]]
    found = smooth_beliefs(
        sim, commands, logs, eta=0.1, rewards=[[0, 0, np.nan, np.nan]], ended=[2]
    )
    assert np.isfinite(found.log_evidence[0])
    assert found.weights[0, :3].sum(axis=1) == pytest.approx(1)
    assert not found.weights[0, 3:].any()
    assert found.outcomes.counts.sum() == pytest.approx(2)


def test_counts_answer_by_state_and_command():
    sim = a_line(2)
    found = smooth_beliefs(sim, [[1, 0]], np.zeros((1, 3, 4)), eta=0.2)
    assert found.outcomes.of(0, 1) == pytest.approx({0: 0.1, 1: 0.9})
    assert found.outcomes.of(1, 0) == pytest.approx({1: 0.9 * 0.9, 2: 0.9 * 0.1})
    assert found.outcomes.of(3, 0) == {}
    with pytest.raises(ValueError, match="step: 1, but this map has no steps"):
        found.outcomes.of(0, 1, step=1)


BAD = [
    ({"commands": [[0, 1]]}, r"commands: shape \(1, 2\).*\(N, 3\)"),
    ({"commands": [0, 1, 0]}, r"commands: shape \(3,\)"),
    ({"commands": np.zeros((0, 3), int)}, r"commands: shape \(0, 3\)"),
    ({"commands": [[0, 2, 0]]}, r"commands\[0, 1\]: 2; the map's actions are 0 … 1"),
    ({"commands": [[0, -1, 0]]}, r"commands\[0, 1\]: -1"),
    ({"commands": [[0.0, 1.0, 0.0]]}, "commands: float64; whole numbers"),
    ({"log_likelihoods": np.zeros((1, 3, 4))}, r"\(1, 3, 4\).*must be \(1, 4, 4\)"),
    ({"log_likelihoods": np.full((1, 4, 4), np.nan)}, "nan for episode 0, step 0, state"),
    ({"log_likelihoods": np.full((1, 4, 4), np.inf)}, "inf for episode 0, step 0"),
    ({"log_likelihoods": np.full((1, 4, 4), "x")}, "numbers or a function"),
    ({"log_likelihoods": lambda h, states: np.zeros(3)}, r"shape \(3,\) at step 0"),
    ({"eta": 0.5}, r"eta: 0.5 is outside \[0, 0.5\)"),
    ({"eta": -0.1}, "eta: -0.1"),
    ({"eta": float("nan")}, "eta: nan"),
    ({"leap": 1.0}, "leap: 1.0"),
    ({"rewards": [[0, 0]]}, r"rewards: shape \(1, 2\)"),
    ({"rewards": [[0, np.nan, 0]]}, "rewards: nan in episode 0, step 1"),
    ({"ended": [1, 2]}, r"ended: shape \(2,\)"),
    ({"ended": [0]}, r"ended\[0\]: 0; .* 1 … 3"),
    ({"ended": [4]}, r"ended\[0\]: 4"),
    ({"ended": [1.5]}, "ended: float64"),
    ({"leap": 0.1, "frontier": Frontier()}, "leap: 0.1, but a frontier"),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=[m for _, m in BAD])
@pytest.mark.parametrize("function", [filter_beliefs, smooth_beliefs])
def test_wrong_input_is_named(function, change, message):
    right = {"commands": [[0, 1, 0]], "log_likelihoods": np.zeros((1, 4, 4)), "eta": 0.1}
    with pytest.raises(BeliefInputError, match=message):
        function(a_line(3), **{**right, **change})


def test_wrong_kinds_of_things_are_named():
    with pytest.raises(TypeError, match=r"sim: list; a tasid\.AbstractSimulator"):
        filter_beliefs([], [[0]], np.zeros((1, 2, 1)), eta=0.1)
    with pytest.raises(BeliefInputError, match="size 0"):
        Frontier(size=0)
    with pytest.raises(BeliefInputError, match="epsilon 1"):
        Frontier(epsilon=1.0)


def test_the_example_of_the_docs_runs_and_says_what_it_promises(tmp_path, capsys):
    page = (Path(__file__).resolve().parents[2] / "docs" / "beliefs.md").read_text("utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    script = tmp_path / "example.py"
    script.write_text(block, encoding="utf-8")
    left = runpy.run_path(str(script))
    assert left["in_hindsight"].likeliest[0].tolist() == [1, 2, 3, 4, 5, 6]
    assert len(capsys.readouterr().out.splitlines()) == 5
    # Bayes' rule by hand at the first step: five cells without a door against three with one.
    first = left["so_far"].at(0, 0)
    assert first[0] == pytest.approx(0.9 / (5 * 0.9 + 3 * 0.1))
