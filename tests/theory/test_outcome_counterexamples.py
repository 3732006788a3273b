"""Ways to get outcome classes wrong, each as an exact Bayes-optimal classifier, and its cure.

No training: a table of joint probabilities is what infinitely many episodes would show, and its
normalised columns are the best any model can learn. See docs/outcome-classes.md.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tasid import theory

Table = NDArray[np.float64]


def bayes(joint: Table) -> Table:
    """P(label | context) from P(label, context): labels along axis 0."""
    return np.asarray(joint / joint.sum(axis=0))


def drift(intended: NDArray[np.int_], eta: float, *, to: dict[int, int]) -> Table:
    """T*(s' | a) at one state: as intended with 1−η; nature sends successor i to to[i] with η."""
    successors = np.eye(int(intended.max()) + 1)
    slipped = np.array([to.get(int(i), int(i)) for i in intended])
    return np.asarray((1 - eta) * successors[intended] + eta * successors[slipped])


# 1. Outcomes as labels, but actions drawn uniformly.


@pytest.mark.parametrize(("actions", "posterior"), [(10, 0.50), (25, 0.27), (9, 0.53)])
def test_merged_labels_need_uniform_outcomes(actions: int, posterior: float) -> None:
    """One good action; a slip turns good into bad and, nature being nature, bad into good."""
    eta = 0.1
    outcome = np.array([0] + [1] * (actions - 1))
    step = drift(outcome, eta, to={0: 1, 1: 0})
    label = np.eye(2)[outcome].T
    merged = bayes(label @ step / actions)
    assert merged[0, 0] == pytest.approx(posterior, abs=0.005)
    # The right outcome loses exactly when η|A| > 1, however many episodes there are.
    assert (merged[0, 0] < 0.5 - 1e-12) == (eta * actions > 1)
    # Cure: draw the outcome uniformly, execute one representative.
    cured = bayes(step[[0, 1]] / 2)
    assert cured[0, 0] == pytest.approx(0.9)
    assert cured[0, 0] - cured[1, 0] >= theory.outcome_gap(eta=eta, outcomes=2) - 1e-12


# 2. Transitions of the roll-in as labelled data.


def mixed_labels(reused: float, eta: float) -> tuple[Table, Table]:
    """P(o, s') and P(o) when a fraction of the data are the policy's own steps, which choose 0."""
    step = drift(np.array([0, 1]), eta, to={0: 1, 1: 0})
    propensity = np.array([reused + (1 - reused) / 2, (1 - reused) / 2])
    return propensity[:, None] * step, propensity


@pytest.mark.parametrize("eta", [0.0, 0.1, 0.4])
def test_roll_in_transitions_teach_the_model_to_ignore_what_happened(eta: float) -> None:
    joint, _ = mixed_labels(1.0, eta)
    for seen in np.flatnonzero(joint.sum(axis=0)):
        assert bayes(joint[:, [seen]])[0, 0] == 1.0


@pytest.mark.parametrize("horizon", [2, 4, 5, 6, 40])
def test_roll_in_transitions_outvote_the_randomised_ones(horizon: int) -> None:
    """Explore at one random step of H and keep all H transitions: (H−1)/H of a step's are reused.

    With two outcomes and η = 0.1, a slip is then read as none once (H−1)/H > 1−2η, that is H > 5.
    """
    joint, propensity = mixed_labels((horizon - 1) / horizon, 0.1)
    slip_is_seen = bayes(joint)[1, 1]
    assert slip_is_seen == pytest.approx(9 / (2 * horizon + 8))  # ½ at H = 5
    assert (slip_is_seen < 0.5 - 1e-12) == (horizon > 5)
    # Cure: weigh each transition by 1/propensity, or drop those of the roll-in.
    cured = bayes(joint / propensity[:, None])
    assert cured[1, 1] == pytest.approx(0.9)


# 3. A model that does not see the tracked state.


def tracked(right: float, step: Table, representatives: list[list[int]]) -> Table:
    """P(o, ŝ, s') at one true state: ŝ = 0 is right and has probability `right`, ŝ = 1 is wrong."""
    mass = np.array([right, 1 - right])
    explored = np.stack([step[r] / len(r) for r in representatives], axis=1)
    return np.asarray(mass[None, :, None] * explored)


@pytest.mark.parametrize("right", [0.9, 0.51, 0.49, 0.2])
@pytest.mark.parametrize("eta", [0.0, 0.1, 0.4])
def test_a_model_blind_to_the_tracked_state_flips(right: float, eta: float) -> None:
    """The wrong ŝ numbers the same two outcomes the other way round."""
    step = drift(np.array([0, 1]), eta, to={0: 1, 1: 0})
    joint = tracked(right, step, [[0, 1], [1, 0]])
    blind = bayes(joint.sum(axis=1))
    assert blind[0, 0] == pytest.approx(right * (1 - eta) + (1 - right) * eta)
    # In an episode that has been tracked rightly so far, the right answer now loses.
    assert (blind[0, 0] < blind[1, 0]) == (right < 0.5)
    seeing = bayes(joint)[:, 0, :]
    assert seeing[0, 0] == pytest.approx(1 - eta)
    assert seeing[1, 1] == pytest.approx(1 - eta)


def test_few_errors_overall_are_no_protection() -> None:
    """Mistakes in 1 % of the episodes outnumber right arrivals at a state met in 0.5 %."""
    right, wrong, eta = 0.005, 0.010, 0.1
    step = drift(np.array([0, 1]), eta, to={0: 1, 1: 0})
    blind = bayes(tracked(right / (right + wrong), step, [[0, 1], [1, 0]]).sum(axis=1))
    assert blind[0, 0] < 0.5


def test_candidate_successors_alone_do_not_tell_tracked_states_apart() -> None:
    """Two tracked states with the same two successors, reached by opposite actions.

    Labels are successors, and both ŝ offer {y₀, y₁}: any features or mask made of those are
    equal, so the model is blind again. What it must see is which action each label stands for.
    """
    eta, right = 0.1, 0.3
    candidates = [(0, 1), (0, 1)]
    representatives = [[0, 1], [1, 0]]  # r(ŝ, y₀), r(ŝ, y₁)
    assert candidates[0] == candidates[1]
    step = drift(np.array([0, 1]), eta, to={0: 1, 1: 0})
    joint = tracked(right, step, representatives)
    assert bayes(joint.sum(axis=1))[0, 0] == pytest.approx(0.34)
    # Cure: one logit per action, ln T*(x' | x, a), read out at the representatives of ŝ. It uses
    # ŝ for nothing else and is the posterior for right and wrong ŝ alike.
    for state, chosen in enumerate(representatives):
        assert bayes(step[chosen]) == pytest.approx(bayes(joint)[:, state, :])


def test_action_labels_without_the_mask_flip_too() -> None:
    """Labels are representatives' actions; the wrong ŝ never executes the right one's.

    True state: actions 0 and 2 lead to successor 0, action 1 to successor 1; representatives are
    {0, 1} if ŝ is right, {0, 2} if wrong. The prior of action 1 is then right/2, and its posterior
    at its own successor loses to action 0 once right·(1−η) < η.
    """
    eta = 0.1
    step = drift(np.array([0, 1, 0]), eta, to={0: 1, 1: 0})
    for right, flips in ((0.12, False), (0.10, True)):
        prior = np.array([0.5, right / 2, (1 - right) / 2])
        unmasked = bayes(prior[:, None] * step)
        assert (unmasked[1, 1] < unmasked[0, 1]) == flips
        masked = bayes(step[[0, 1]])
        assert masked[1, 1] == pytest.approx(1 - eta)


# Exploring before the step in question is not a mistake; it costs 1/w.


def test_exploring_roll_ins_leave_the_posterior_alone() -> None:
    """Where histories come from changes how often (x, ŝ) is met, not the posterior given it."""
    eta = 0.1
    step = drift(np.array([0, 1]), eta, to={0: 1, 1: 0})
    often, seldom = (tracked(p, step, [[0, 1], [1, 0]]) for p in (0.9, 0.36))
    assert bayes(often) == pytest.approx(bayes(seldom))
    w = 0.4
    assert (often[:, 0].sum() / seldom[:, 0].sum()) == pytest.approx(1 / w)
    one, mixed = (theory.Exploration(outcomes=2, weight=x) for x in (1.0, w))
    assert float(mixed.factor(eta) / one.factor(eta)) == pytest.approx(2.5)
