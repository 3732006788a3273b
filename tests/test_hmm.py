"""Filter, smoother and EM against enumeration of all paths, closed forms and dynamax."""

from __future__ import annotations

import doctest
import itertools
import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp
from threadpoolctl import threadpool_limits

import tasid.hmm
from tasid.episodes import Episodes
from tasid.hmm import TransitionGraph, filter, smooth
from tasid.hmm.em import EMConfig, HiddenMarkovModel
from tasid.hmm.emissions import GaussianEmission, PLDAConfig
from tasid.hmm.smoother import Classes, Sequences, Smoother, SmoothingOptions, batches
from tasid.hmm.transitions import StepInputs, Transition
from tasid.learning import memory
from tasid.learning.belief import BeliefConfig
from tasid.simulator import AbstractSimulator, SizeError

CONTRADICTION = SmoothingOptions(0.1).contradiction


class TableEmission:
    """ln p(x | c) of discrete observations, [X, C]."""

    def __init__(self, table):
        self.table = np.asarray(table, np.float32)

    def log_prob(self, features, classes):
        return self.table[features[:, 0].astype(int)][:, classes]


def random_map(seed, *, states=3, actions=2, horizon=4, stochastic=False, by_step=False, starts=1):
    """A map with few rewards, whose last state is absorbing and pays nothing."""
    rng = np.random.default_rng(seed)
    shape = (horizon, states, actions) if by_step else (states, actions)
    reward = rng.integers(3, size=shape).astype(float)
    reward[..., -1, :] = 0
    options = {"horizon": horizon, "start": np.arange(starts)}
    following = np.minimum(np.arange(states) + 1, states - 1)  # action 0 leads on
    if not stochastic:
        successor = rng.integers(states, size=shape)
        successor[..., 0] = following
        successor[..., -1, :] = states - 1
        return AbstractSimulator(successor, reward, **options)
    table = rng.random((*shape, states)) * (rng.random((*shape, states)) > 0.4)
    table[..., 0, :] += np.eye(states)[following]
    table[..., 0] += 1e-3
    table[..., -1, :, :] = np.eye(states)[-1]
    rewards = np.repeat(reward[..., None], states, axis=-1) + rng.integers(2, size=states)
    rewards[..., -1, :, -1] = 0
    return AbstractSimulator(table / table.sum(axis=-1, keepdims=True), rewards, **options)


def random_episodes(sim, seed, *, n=4, symbols=5, ends=True):
    """Any observations, actions and rewards; every second episode ends early."""
    rng = np.random.default_rng(seed)
    h = sim.horizon
    lengths = np.where(np.arange(n) % 2, h, rng.integers(1, h, size=n)) if ends else np.full(n, h)
    return Episodes(
        observations=rng.integers(symbols, size=(n, h + 1, 1)),
        actions=rng.integers(sim.num_actions, size=(n, h)).astype(np.int32),
        rewards=rng.choice([0, 1, 2, 0.7], size=(n, h)).astype(np.float32),
        lengths=lengths.astype(np.int32),
        explored=np.zeros((n, h), bool),
    )


def random_emission(classes, seed, symbols=5, scale=2.0):
    return TableEmission(scale * np.random.default_rng(seed).normal(size=(symbols, classes)))


def dense_transitions(sim, h):
    """P(s' | s, a) of the map, [S, A, S]."""
    successor, chances = sim.transitions_at(h)
    dense = np.zeros((sim.num_states, sim.num_actions, sim.num_states))
    for s, a, b in np.ndindex(successor.shape):
        dense[s, a, successor[s, a, b]] += chances[s, a, b]
    return dense


def absorbing(sim):
    """States that are never left and never pay."""
    silent = np.ones(sim.num_states, bool)
    for h, s in np.ndindex(sim.horizon, sim.num_states):
        successor, chances = sim.transitions_at(h)
        paid = sim.transition_reward_at(h).reshape(successor.shape)[s]
        silent[s] &= not (((successor[s] != s) | (paid != 0)) & (chances[s] > 0)).any()
    return silent


def steps_of_path(sim, graph, emission, episodes, n, eta, kidnap=0.0):
    """Functions of paths of states: ln weight of a transition, and of an observation."""
    classes, length = Classes.of(graph), int(episodes.lengths[n])
    terminal, dense = absorbing(sim), [dense_transitions(sim, h) for h in range(sim.horizon)]
    reached = [
        np.isin(np.arange(sim.num_states), graph.states_at(h)) for h in range(sim.horizon + 1)
    ]
    known = np.unique(np.round(sim.reward, 6))

    def edge_class(h, s, after):
        if graph.class_kind == "action":
            return int((dense[h][s, :, after] > 0).argmax())
        return int(np.flatnonzero(dense[h][s].sum(axis=0)).tolist().index(after))

    def transition(h, s, after, use_rewards):
        a, reward = episodes.actions[n, h], episodes.rewards[n, h]
        p = (1 - eta) * dense[h][s, a, after] + eta * dense[h][s, :, after].mean()
        successor, chances = sim.transitions_at(h)
        paid = sim.transition_reward_at(h).reshape(successor.shape)[s]
        possible = paid[(successor[s] == after) & (chances[s] > 0)]
        wrong = np.isclose(known, reward).any() and not np.isclose(possible, reward).any()
        if h + 1 < sim.horizon and terminal[after] != (length <= h + 1):
            wrong = True
        agrees = h >= length or not wrong
        weight = p if agrees or not use_rewards else p * CONTRADICTION
        moved = kidnap * reached[h + 1][after] / reached[h + 1].sum()
        return (1 - kidnap) * weight + moved, (1 - kidnap) * weight * agrees

    def likelihood(h, s, before):
        if h > length:
            return 1.0
        symbol = episodes.observations[n, h, 0]
        if classes.by_state:
            return np.exp(emission.table[symbol, graph.places.tolist().index(s)])
        if h == 0:
            return np.exp(emission.table[symbol, graph.num_edge_classes + int(s)])
        return np.exp(emission.table[symbol, edge_class(h - 1, before, s)])

    return transition, likelihood, edge_class


def enumerate_paths(sim, graph, emission, episodes, n, *, eta, use_rewards=True, kidnap=0.0):
    """ln p, filtered and smoothed probabilities [H+1, S], agreement [H], classes [H, L], counts."""
    transition, likelihood, edge_class = steps_of_path(
        sim, graph, emission, episodes, n, eta, kidnap
    )
    start = np.zeros(sim.num_states)
    start[sim.starts] = sim.start_probabilities
    size = sim.num_states
    filtered, smoothed = np.zeros((2, sim.horizon + 1, size))
    agreement = np.zeros(sim.horizon)
    edges = np.zeros((sim.horizon, max(graph.num_edge_classes, 1)))
    counts = np.zeros((sim.horizon, size, size))
    for last in range(sim.horizon + 1):
        for path in itertools.product(range(size), repeat=last + 1):
            weight = start[path[0]] * likelihood(0, path[0], None) if start[path[0]] else 0.0
            agreed = []
            for h in range(last):
                if weight == 0:
                    break
                p, share = transition(h, path[h], path[h + 1], use_rewards)
                weight *= p * likelihood(h + 1, path[h + 1], path[h]) if p else 0.0
                agreed.append(share / p if p else 0.0)
            filtered[last, path[-1]] += weight
            if last == sim.horizon and weight:
                smoothed[range(last + 1), path] += weight
                agreement += weight * np.array(agreed)
                for h in range(last):
                    counts[h, path[h], path[h + 1]] += weight
                    if graph.num_edge_classes:
                        edges[h, edge_class(h, path[h], path[h + 1])] += weight
    total = filtered[-1].sum()
    filtered /= filtered.sum(axis=1, keepdims=True)
    return (
        np.log(total),
        filtered,
        smoothed / total,
        agreement / total,
        edges / total,
        counts / total,
    )


def smoother_of(graph, emission, episodes, options):
    sequences = Sequences.of(episodes, graph)
    return Smoother(graph, emission, Classes.of(graph), sequences, options)


def counts_by_state(graph, counts):
    """Counts of successors [M, A, K] as counts of slots, [M, A, M]."""
    dense = np.zeros((graph.num_slots, graph.num_actions, graph.num_slots))
    for s, a, k in np.ndindex(counts.shape):
        dense[s, a, graph.successor[0, s, k]] += counts[s, a, k]
    return dense


def by_map_state(sim, graph, probs):
    """Probabilities of slots [H+1, M] as probabilities of map states."""
    dense = np.zeros((len(probs), sim.num_states))
    for h, row in enumerate(probs):
        np.add.at(dense[h], graph.states_at(h)[row > 0], row[row > 0])
    return dense


CASES = [
    {},
    {"eta": 0.0},
    {"use_rewards": False},
    {"starts": 2, "temperature": 0.3},
    {"by_step": True},
    {"stochastic": True},
    {"stochastic": True, "eta": 0.0, "starts": 2},
    {"stochastic": True, "by_step": True, "temperature": 0.5},
]


def case_parts(case, kind, seed=0):
    case = {"eta": 0.2, "temperature": 1.0, "use_rewards": True, **case}
    eta, temperature, use_rewards = (case.pop(k) for k in ("eta", "temperature", "use_rewards"))
    sim = random_map(seed, **case)
    graph = TransitionGraph.from_simulator(sim).with_classes(kind)
    emission = random_emission(Classes.of(graph).number, seed)
    return sim, graph, emission, eta, temperature, use_rewards


@pytest.mark.parametrize("kind", ["state", "rank", "action"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_filter_and_smoother_agree_with_all_paths(case, kind):
    sim, graph, emission, eta, temperature, use_rewards = case_parts(case, kind)
    episodes = random_episodes(sim, 1)
    options = {"eta": eta, "temperature": temperature, "use_rewards": use_rewards}
    posterior = smooth(graph, emission, episodes, **options)
    filtered = filter(graph, emission, episodes, **options)
    np.testing.assert_array_equal(filtered.filtered_probs, posterior.filtered_probs)
    np.testing.assert_array_equal(filtered.log_likelihood, posterior.log_likelihood)
    tempered = TableEmission(temperature * emission.table)
    settings = SmoothingOptions(eta, temperature, use_rewards=use_rewards)
    steps = list(smoother_of(graph, emission, episodes, settings).steps())[::-1]
    for n in range(len(episodes)):
        log_p, alpha, gamma, agreement, edges, _ = enumerate_paths(
            sim, graph, tempered, episodes, n, eta=eta, use_rewards=use_rewards
        )
        assert posterior.log_likelihood[n] == pytest.approx(log_p, abs=1e-5)
        filtered = by_map_state(sim, graph, posterior.filtered_probs[n])
        np.testing.assert_allclose(filtered, alpha, atol=1e-6)
        smoothed = by_map_state(sim, graph, posterior.smoothed_probs[n])
        np.testing.assert_allclose(smoothed, gamma, atol=1e-6)
        for h in range(sim.horizon):
            assert steps[h].agreement[n] == pytest.approx(agreement[h], abs=1e-6)
            if kind != "state":
                np.testing.assert_allclose(steps[h + 1].class_posterior[n], edges[h], atol=1e-6)


@pytest.mark.parametrize("stochastic", [False, True])
def test_kidnapped_agents_and_outcome_counts_agree_with_all_paths(stochastic):
    sim = random_map(3, stochastic=stochastic)
    graph = TransitionGraph.from_simulator(sim)
    emission = random_emission(graph.places.size, 3)
    episodes = random_episodes(sim, 2)
    for kidnap in (0.0, 0.2):
        options = SmoothingOptions(0.1, kidnap=kidnap)
        smoother = smoother_of(graph, emission, episodes, options)
        counts = np.zeros(graph.probability.shape[1:])
        expected = np.zeros((sim.num_states, sim.num_actions, sim.num_states))
        steps = list(smoother.steps())
        weights = np.arange(1.0, len(episodes) + 1)
        for step in steps[1:]:
            smoother.add_counts(step, weights, counts)
        for n in range(len(episodes)):
            log_p, alpha, gamma, _, _, pairs = enumerate_paths(
                sim, graph, emission, episodes, n, eta=0.1, kidnap=kidnap
            )
            assert smoother.log_likelihood[n] == pytest.approx(log_p, abs=1e-5)
            for step in steps:
                np.testing.assert_allclose(step.filtered[n], alpha[step.h], atol=1e-6)
                np.testing.assert_allclose(step.smoothed[n], gamma[step.h], atol=1e-6)
            if kidnap == 0:
                for h, a in enumerate(episodes.actions[n]):
                    expected[:, a] += weights[n] * pairs[h]
        if kidnap == 0:
            np.testing.assert_allclose(counts_by_state(graph, counts), expected, atol=1e-5)
        else:  # what is not counted was moved
            assert 0 < counts.sum() < 0.99 * weights.sum() * sim.horizon


def random_inputs(graph, rng, n):
    return StepInputs(
        commands=rng.integers(graph.num_actions, size=n).astype(np.int32),
        eta=0.2,
        reward_ids=rng.integers(-1, graph.reward_values.size, size=n).astype(np.int32),
        ended=rng.random(n) < 0.5,
        ends_known=rng.random(n) < 0.5,
        contradiction=0.05,
        class_likelihoods=rng.random((n, graph.num_edge_classes)),
    )


@pytest.mark.parametrize("kind", ["state", "rank", "action"])
@pytest.mark.parametrize("by_step", [False, True])
def test_backward_is_the_adjoint_of_predict(by_step, kind):
    sim = random_map(5, states=6, actions=3, by_step=by_step, stochastic=True)
    graph = TransitionGraph.from_simulator(sim).with_classes(kind)
    rng = np.random.default_rng(0)
    belief, message = rng.random((2, 7, graph.num_slots))
    belief[:, 0] = 0
    inputs = random_inputs(graph, rng, 7)
    forward = (graph.predict(1, belief, inputs) * message).sum(axis=1)
    earlier, agreeing, of_class = graph.backward(1, belief, message, inputs)
    np.testing.assert_allclose((belief * earlier).sum(axis=1), forward)
    assert (earlier[:, 0] == 0).all()
    sure = inputs._replace(contradiction=0.0)
    np.testing.assert_allclose((graph.predict(1, belief, sure) * message).sum(axis=1), agreeing)
    if kind != "state":
        np.testing.assert_allclose(of_class.sum(axis=1), forward)


@pytest.mark.parametrize("stochastic", [False, True])
@pytest.mark.parametrize("eta", [0.0, 0.3])
def test_a_slip_takes_the_mean_of_all_actions(eta, stochastic):
    sim = random_map(7, states=5, actions=3, stochastic=stochastic)
    dense = dense_transitions(sim, 0)
    graph = TransitionGraph.from_simulator(sim)
    belief = np.eye(graph.num_slots)
    for a in range(sim.num_actions):
        commands = np.full(graph.num_slots, a, np.int32)
        predicted = graph.predict(0, belief, StepInputs.of(commands, eta))
        expected = (1 - eta) * dense[:, a] + eta * dense.mean(axis=1)
        places = graph.places
        np.testing.assert_allclose(predicted, expected[np.ix_(places, places)], atol=1e-6)


def test_sparse_and_dense_stochastic_maps_give_the_same_graph():
    dense = np.array([[[0, 0.3, 0.7], [1, 0, 0]], [[0, 1, 0], [0.5, 0, 0.5]], [[0, 0, 1]] * 2])
    successor = np.array([[[2, 1], [0, 0]], [[1, 1], [2, 0]], [[2, 2], [2, 2]]])
    probabilities = np.array([[[0.7, 0.3], [1, 0]], [[1, 0], [0.5, 0.5]], [[1, 0], [1, 0]]])
    reward = np.zeros((3, 2))
    sparse = AbstractSimulator(successor, reward, horizon=9, probabilities=probabilities)
    graphs = [
        TransitionGraph.from_simulator(sim)
        for sim in (AbstractSimulator(dense, reward, horizon=9), sparse)
    ]
    for name in ("states", "successor", "probability", "share", "terminal"):
        np.testing.assert_array_equal(getattr(graphs[0], name), getattr(graphs[1], name))
    assert graphs[0].terminal[0].tolist() == [False, False, True]


def test_only_reachable_states_are_kept_by_step_where_that_is_smaller():
    ring = np.array([[1, 1], [2, 3], [4, 4], [4, 4], [0, 0], [5, 5]])
    short = TransitionGraph.from_simulator(AbstractSimulator(ring, np.zeros((6, 2)), horizon=3))
    assert short.layered
    assert short.states.tolist() == [[0, -1], [1, -1], [2, 3], [4, -1]]
    wide = random_map(0, states=4, actions=4, horizon=6)
    graph = TransitionGraph.from_simulator(wide)
    assert not graph.layered
    np.testing.assert_array_equal(graph.states[0], graph.places)


def test_a_part_of_a_graph_keeps_its_transitions_and_stops_at_its_edge():
    line = np.array([[0, 1], [0, 2], [1, 3], [2, 4], [3, 4]])
    sim = AbstractSimulator(line, np.zeros((5, 2)), horizon=12, start=[0, 4])
    part = TransitionGraph.from_simulator(sim).restricted(np.array([1, 2, 3]))
    predicted = part.predict(0, np.eye(3), StepInputs.of(np.ones(3, np.int32), 0.0))
    np.testing.assert_array_equal(predicted, [[0, 1, 0], [0, 0, 1], [0, 0, 1]])


def test_rewards_are_recognised_up_to_rounding():
    graph = TransitionGraph.from_simulator(random_map(1))
    known = graph.reward_values
    ids = graph.reward_ids(np.append(known + 1e-4, 0.5).astype(np.float32))
    assert ids.tolist() == [*range(known.size), -1]
    many = AbstractSimulator(
        np.zeros((40, 1), int), np.arange(40.0)[:, None], horizon=2, start=range(40)
    )
    assert (TransitionGraph.from_simulator(many).reward_ids(np.arange(3.0)) == -1).all()


class DenseTransition(Transition):
    """P[a, s, s'] as matrices: another transition model, without edges or evidence."""

    def __init__(self, matrices, start, horizon):
        self.matrices, self.start, self.horizon = matrices, start, horizon

    def uniform_at(self, h):
        return np.full(self.num_slots, 1 / self.num_slots)

    def predict(self, h, belief, inputs):
        return np.einsum("ns,nst->nt", belief, self.matrices[inputs.commands])

    def backward(self, h, belief, message, inputs):
        earlier = np.einsum("nst,nt->ns", self.matrices[inputs.commands], message)
        return earlier, (belief * earlier).sum(axis=1), np.zeros((len(belief), 0))

    def expected_counts(self, h, belief, message, inputs, counts):
        for n, a in enumerate(inputs.commands):
            counts[:, a] += belief[n][:, None] * self.matrices[a] * message[n]


@pytest.fixture(scope="module")
def dense_case():
    sim = random_map(11, states=5, actions=3, horizon=12, stochastic=True, starts=3)
    graph = TransitionGraph.from_simulator(sim)
    dense, eta = dense_transitions(sim, 0), 0.15
    matrices = (1 - eta) * dense + eta * dense.mean(axis=1, keepdims=True)
    episodes = random_episodes(sim, 4, ends=False)
    return graph, random_emission(5, 6), episodes, matrices.swapaxes(0, 1), eta


def test_the_smoother_agrees_with_dynamax(dense_case):
    inference = pytest.importorskip("dynamax.hidden_markov_model.inference")
    graph, emission, episodes, matrices, eta = dense_case
    posterior = smooth(graph, emission, episodes, eta=eta, use_rewards=False)
    for n in range(len(episodes)):
        log_likelihoods = emission.table[episodes.observations[n, :, 0]]
        oracle = inference.hmm_smoother(graph.start, matrices[episodes.actions[n]], log_likelihoods)
        assert posterior.log_likelihood[n] == pytest.approx(float(oracle.marginal_loglik), rel=1e-5)
        for name in ("filtered_probs", "smoothed_probs"):
            ours, theirs = getattr(posterior, name)[n], np.asarray(getattr(oracle, name))
            np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_the_smoother_works_with_any_transition_model(dense_case):
    graph, emission, episodes, matrices, eta = dense_case
    dense = DenseTransition(matrices, graph.start, graph.horizon)
    options = SmoothingOptions(eta, use_rewards=False, kidnap=0.1)
    sequences = Sequences.of(episodes, graph)
    smoothers = [
        Smoother(model, emission, Classes.of(graph), sequences, options) for model in (graph, dense)
    ]
    counts = [np.zeros((5, 3, 5)) for _ in smoothers]
    for ours, theirs in zip(*(smoother.steps() for smoother in smoothers), strict=True):
        np.testing.assert_allclose(ours.smoothed, theirs.smoothed, atol=1e-6)
        if ours.h < graph.horizon:
            for smoother, step, table in zip(smoothers, (ours, theirs), counts, strict=True):
                smoother.add_counts(step, np.ones(len(episodes)), table)
    np.testing.assert_allclose(counts_by_state(graph, counts[0]), counts[1], atol=1e-6)


@pytest.mark.parametrize("offset", [0.0, -1e5, 1e5])
def test_no_observation_of_a_long_episode_is_lost(offset):
    """Evidence for the first state adds up over all steps, wherever it is."""
    horizon = 600
    loops = np.array([[0, 0], [1, 1]])  # two rooms that are never left, both possible starts
    sim = AbstractSimulator(loops, np.zeros((2, 2)), horizon=horizon, start=[0, 1])
    graph = TransitionGraph.from_simulator(sim)
    # Symbols 0, 1, 2 favour state 0 by 0, 0.0625 and 5 nats: exact in float32 at 1e5.
    ratios = np.array([0.0, 0.0625, 5.0])
    emission = TableEmission(np.stack([offset + ratios, np.full(3, offset)], axis=1))
    weak, late, early, none = np.zeros((4, horizon + 1, 1), int)
    weak[:], late[-1], early[0] = 1, 2, 2
    observations = np.stack([weak, late, early, none])
    episodes = replace(random_episodes(sim, 0, ends=False), observations=observations)
    posterior = smooth(graph, emission, episodes, eta=0.1)
    odds = np.array([0.0625 * (horizon + 1), 5.0, 5.0, 0.0])
    likelihood = np.logaddexp(odds, 0) + np.log(0.5) + offset * (horizon + 1)
    np.testing.assert_allclose(posterior.log_likelihood, likelihood, rtol=1e-9, atol=1e-5)
    other = np.tile(np.exp(-np.logaddexp(0, odds)), (horizon + 1, 1)).T
    np.testing.assert_allclose(posterior.smoothed_probs[:, :, 1], other, rtol=1e-5, atol=1e-16)


def test_extreme_likelihoods_give_what_log_space_gives():
    sim = random_map(2, states=6, actions=2, horizon=300, stochastic=True, starts=5)
    graph = TransitionGraph.from_simulator(sim)
    emission = random_emission(graph.places.size, 1, scale=3.0)
    emission.table -= 3e4
    episodes = random_episodes(sim, 3, n=3, ends=False)
    posterior = smooth(graph, emission, episodes, eta=0.1, use_rewards=False)
    dense = dense_transitions(sim, 0)[graph.places][:, :, graph.places]
    with np.errstate(divide="ignore"):
        log_p = np.log(0.9 * dense + 0.1 * dense.mean(axis=1, keepdims=True))
        log_start = np.log(graph.start)
    for n, actions in enumerate(episodes.actions):
        scores = emission.table[episodes.observations[n, :, 0]].astype(np.float64)
        alpha = [log_start + scores[0]]
        for h, a in enumerate(actions):
            alpha.append(logsumexp(alpha[-1][:, None] + log_p[:, a], axis=0) + scores[h + 1])
        beta = [np.zeros(graph.num_slots)]
        for h in reversed(range(sim.horizon)):
            beta.insert(0, logsumexp(log_p[:, actions[h]] + scores[h + 1] + beta[0], axis=1))
        assert posterior.log_likelihood[n] == pytest.approx(logsumexp(alpha[-1]), rel=1e-7)
        gamma = np.exp(log_softmax(np.add(alpha, beta), axis=1))
        np.testing.assert_allclose(posterior.smoothed_probs[n], gamma, atol=1e-5)


def test_batches_do_not_change_the_result(dense_case):
    graph, emission, episodes, _, eta = dense_case
    sequences = Sequences.of(episodes, graph)
    parts = batches(sequences, graph, megabytes=1e-9)
    assert [len(part) for part in parts] == [1] * len(episodes)
    whole = smooth(graph, emission, episodes, eta=eta).log_likelihood
    for part, expected in zip(parts, whole, strict=True):
        smoother = Smoother(graph, emission, Classes.of(graph), part, SmoothingOptions(eta))
        np.testing.assert_allclose(smoother.log_likelihood, expected)


# Expectation maximisation


@pytest.fixture(scope="module")
def corridor():
    """Twelve cells in a row, observed as points with noise; half of the actions are random."""
    cells, horizon, eta, n = 12, 16, 0.1, 60
    index = np.arange(cells)
    successor = np.stack([np.maximum(index - 1, 0), np.minimum(index + 1, cells - 1)], axis=1)
    reward = np.zeros((cells, 2))
    reward[-2, 1] = 1.0
    sim = AbstractSimulator(successor, reward, horizon=horizon, start=3)
    rng = np.random.default_rng(0)
    means = rng.normal(size=(cells, 3)) * 3
    states = np.full((n, horizon + 1), 3)
    actions = (rng.random((n, horizon)) < 0.65).astype(np.int32)
    rewards = np.zeros((n, horizon), np.float32)
    for h in range(horizon):
        taken = np.where(rng.random(n) < eta, rng.integers(2, size=n), actions[:, h])
        rewards[:, h] = reward[states[:, h], taken]
        states[:, h + 1] = successor[states[:, h], taken]
    observations = means[states] + 0.5 * rng.normal(size=(n, horizon + 1, 3))
    episodes = Episodes(
        observations, actions, rewards, np.full(n, horizon, np.int32), np.zeros((n, horizon), bool)
    )
    graph = TransitionGraph.from_simulator(sim)
    model = HiddenMarkovModel(graph, Classes.of(graph), eta, EMConfig(), PLDAConfig())
    with threadpool_limits(1, "blas"):  # as in learning: small matrices
        yield graph, model, episodes, states, means


@pytest.mark.parametrize("initialisation", ["forward", "anneal"])
def test_em_recovers_the_emissions_of_a_known_model(corridor, initialisation):
    graph, model, episodes, states, means = corridor
    sequences, classes = Sequences.of(episodes, graph), model.classes
    emission, counts = model.fit(sequences, model.schedule(initialisation))
    posterior = smooth(graph, emission, episodes, eta=model.eta)
    assert (posterior.smoothed_probs.argmax(axis=2) == states).mean() > 0.98
    labels = np.eye(len(means))[states.ravel()]
    np.testing.assert_allclose(counts, labels.sum(axis=0), atol=10)
    labelled = GaussianEmission.fit(sequences.features.reshape(-1, 3), labels)
    scores = emission.log_prob(means.astype(np.float32), classes.at(0))
    assert (scores.argmax(axis=1) == np.arange(len(means))).all()
    difference = scores - labelled.log_prob(means.astype(np.float32), classes.at(0))
    assert np.abs(difference - difference.mean()).diagonal()[counts > 20].max() < 1.0


def test_em_continues_from_what_it_was_given(corridor):
    graph, model, episodes, _, _ = corridor
    sequences = Sequences.of(episodes, graph)
    emission, _ = model.fit(sequences, model.schedule("anneal"))
    expected = model.expect(emission, sequences)
    again, _ = model.fit(sequences, model.schedule("warm")[:1], initial=expected)
    before, after = (model.log_evidence(e, sequences) for e in (emission, again))
    assert after == pytest.approx(before, abs=1.0)
    prior = emission.moments(model.plda, has_views=False)
    few = sequences[:1]
    expected = model.expect(emission, few)
    warm, _ = model.fit(few, model.schedule("warm"), initial=expected, prior=prior)
    cold, _ = model.fit(few, model.schedule("forward"))
    held_out = sequences[1:]
    assert model.log_evidence(warm, held_out) > before - 0.1 * abs(before)
    assert model.log_evidence(cold, held_out) < model.log_evidence(warm, held_out)


def test_the_likelihood_never_decreases_at_temperature_one(corridor):
    """Baum–Welch with the smoother's posteriors and categorical emissions, a textbook M step."""
    graph, _, episodes, _, _ = corridor
    rng = np.random.default_rng(1)
    symbols = (episodes.observations[..., :1] > 0) + 2 * (episodes.observations[..., 1:2] > 0)
    discrete = replace(episodes, observations=symbols)
    table = np.log(rng.dirichlet(np.ones(4), size=graph.places.size).T)
    likelihoods = []
    for _ in range(12):
        posterior = smooth(graph, TableEmission(table), discrete, eta=0.1)
        likelihoods.append(posterior.log_likelihood.sum())
        counts = np.einsum("nhx,nhc->xc", np.eye(4)[symbols[..., 0]], posterior.smoothed_probs)
        table = np.log(counts / counts.sum(axis=0) + 1e-12)
    assert (np.diff(likelihoods) > -1e-3).all()
    assert likelihoods[-1] > likelihoods[0] + 50


def test_gaussian_em_does_not_lose_evidence(corridor):
    graph, model, episodes, _, _ = corridor
    sequences = Sequences.of(episodes, graph)
    stages = model.schedule("forward")
    evidence = [
        model.log_evidence(model.fit(sequences, stages[:last])[0], sequences)
        for last in range(len(stages) - 3, len(stages) + 1)
    ]
    assert (np.diff(evidence) > -0.5).all()
    doubled = replace(sequences, features=2 * sequences.features)  # a change of units
    other = model.log_evidence(model.fit(doubled, stages)[0], doubled)
    assert other == pytest.approx(evidence[-1] - sequences.valid.sum() * 3 * np.log(2), abs=1.0)


def test_large_maps_are_fitted_near_the_episodes(corridor):
    graph, model, episodes, states, _ = corridor
    sequences = Sequences.of(episodes, graph)
    large = replace(model, config=EMConfig(large_map=4, margin=1))
    visited = np.bincount(states[0], minlength=graph.num_slots).astype(float)
    part = large.near(visited, steps=1)
    reach = np.flatnonzero(visited)
    near = np.arange(max(reach.min() - 1, 0), min(reach.max() + 2, len(visited)))
    assert part.graph.states[0].tolist() == part.classes.at(0).tolist() == near.tolist()
    emission, _ = large.fit(sequences, large.schedule("forward"))
    posterior = smooth(graph, emission, episodes, eta=model.eta)
    assert (posterior.smoothed_probs.argmax(axis=2) == states).mean() > 0.95


def test_the_example_of_the_package_runs():
    results = doctest.testmod(tasid.hmm)
    assert results.failed == 0 < results.attempted


def test_what_does_not_fit_into_memory_is_refused_before_anything_is_played(monkeypatch, corridor):
    graph, target = (
        corridor[0],
        SimpleNamespace(observation_shape=(3,), observation_dtype="float32"),
    )
    needed = sum(memory.memory_needed(graph, 12, target, BeliefConfig(episodes=100)).values())
    memory.check_memory(graph, 12, target, BeliefConfig())
    monkeypatch.setattr(memory, "memory_limit", lambda: memory.PROCESS_BYTES + needed - 1)
    with pytest.raises(SizeError, match="100 episodes"):
        memory.check_memory(graph, 12, target, BeliefConfig(episodes=100))
    memory.check_memory(graph, 12, target, BeliefConfig(episodes=10))


def test_a_container_limits_memory(monkeypatch, tmp_path):
    machine = memory.memory_limit()
    for text, limit in (("max\n", machine), ("123456\n", 123456), (f"{1 << 62}\n", machine)):
        (tmp_path / "memory.max").write_text(text)
        monkeypatch.setattr(memory, "CONTAINER_LIMITS", ("missing", tmp_path / "memory.max"))
        assert memory.memory_limit() == limit


def test_long_work_is_announced_before_anything_is_played(monkeypatch, corridor):
    graph, target = (
        corridor[0],
        SimpleNamespace(observation_shape=(3,), observation_dtype="float32"),
    )
    pairs = graph.num_slots * (graph.horizon + 1) * 100
    monkeypatch.setattr(memory, "PAIRS_AN_HOUR", pairs / 2)
    with pytest.warns(UserWarning, match=r"100 episodes may take 2.0 hours"):
        memory.check_memory(graph, 12, target, BeliefConfig(episodes=100))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        memory.check_memory(graph, 12, target, BeliefConfig(episodes=10))
