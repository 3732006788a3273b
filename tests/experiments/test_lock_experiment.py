"""The lock experiment: the same rows after an interruption, and scores that mean what they say."""

from __future__ import annotations

import numpy as np
import pytest

import tasid
from tasid.baselines.by_name import Baseline
from tasid.experiments.lock import jobs as lock
from tasid.experiments.lock.completed import completed_return
from tasid.experiments.lock.scores import evaluations
from tasid.experiments.records import Records, keeper
from tasid.experiments.sweep import Interrupted, Job, JobContext
from tasid.runs.executors.dispatch import Fraction

TINY = Baseline("ppo+rnd+dr", target_episodes=400, source_episodes=300, every=100)


def job_for(baseline, horizon=3, seed=5):
    described = baseline.describe(baseline.config(horizon))
    configuration = {"horizon": horizon, "eta": 0.1, **described}
    return Job("tiny", (seed,), configuration, 1.0)


def rows(folder):
    (series,) = Records(folder).series()
    return [{k: v for k, v in row.items() if k != "seconds"} for row in series.rows], series.ending


def run(folder, *, until=None):
    """One job, interrupted at its so-and-so-many-th word about how far it is."""
    told = []

    def tell(fraction):
        told.append(fraction)
        if len(told) == until:
            raise Interrupted

    job = job_for(TINY)
    lock.work(job, desk_here(job, folder, tell))
    return told


class Here:
    """A line whose other end is this process."""

    def __init__(self, write, tell):
        self.write, self.tell = write, tell

    def say(self, message):
        if isinstance(message, Fraction):
            self.tell(message.part)
        else:
            self.write(message)

    def check(self):
        pass


def desk_here(job, folder, tell):
    records = Records(folder)
    kept = {seed: records.kept(job.setting, seed, job.configuration) for seed in job.seeds}
    return JobContext(job, Here(keeper(records, job.setting), tell), kept)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    before = lock.SOLVED
    lock.SOLVED = 2.0  # nobody gets there, so that nothing ends early
    told = run(folder)
    yield rows(folder), told
    lock.SOLVED = before


@pytest.mark.parametrize("until", [1, 3])
def test_an_interrupted_baseline_goes_on_bit_by_bit(tmp_path, unbroken, until):
    """In pre-training, and in the target."""
    (expected, ending), told = unbroken
    assert told == sorted(told)
    assert told[-1] == 1.0
    with pytest.raises(Interrupted):
        run(tmp_path, until=until)
    assert rows(tmp_path)[1] is None
    more = run(tmp_path)
    assert len(more) == len(told) - until, "it does not begin anew"
    assert rows(tmp_path) == (expected, ending)
    assert [row["episodes"] for row in expected if row["stage"] == "target"] == [100, 200, 300, 400]


def test_an_interrupt_at_the_solving_row_does_not_train_on(tmp_path, monkeypatch):
    """The first evaluation solves: whenever the interrupt comes, the run ends there."""
    monkeypatch.setattr(lock, "SOLVED", 0.0)
    told = run(tmp_path / "whole")
    expected = rows(tmp_path / "whole")
    assert expected[1] == {"solved": True, "episodes": 100}
    for until in range(1, len(told) + 2):  # the last one would come with the solving row
        folder = tmp_path / str(until)
        try:
            run(folder, until=until)
        except Interrupted:
            run(folder)
        assert rows(folder) == expected


def uniform_value(env, state, step):
    """What uniformly random actions earn from a state on, exactly."""
    sim, xi = env.simulator, env.latent.world.xi
    value = np.zeros(sim.num_states)
    for _ in range(step, sim.horizon):
        happens = xi.mean(axis=1)  # which action comes out if one is drawn
        value = (happens * (sim.reward + value[sim.successor])).sum(axis=1)
    return value[state]


def test_training_episodes_are_completed_at_random():
    """π up to the explored step, a random action there, and random ones after that."""
    env = tasid.make("combination-lock", horizon=4, seed=2)
    sim = env.simulator
    result = tasid.learn(env, eta=0.1, episodes=4_000, seed=2, method="paper")

    def earned(h):
        return completed_return(env.target, result.policy.decoder, seed=2, h=h, episodes=20_000)

    start = sim.start
    assert earned(0) == pytest.approx(uniform_value(env, start, 0), abs=0.05)
    action = int(result.policy.plan.actions[0, start])
    after = [uniform_value(env, state, 1) for state in sim.successor[start]]
    expected = (env.latent.world.xi[start, action] * (sim.reward[start] + np.array(after))).sum()
    assert earned(1) == pytest.approx(expected, abs=0.05)


def test_the_belief_method_counts_the_smallest_n_that_solves(tmp_path, monkeypatch):
    """n in turn: too few for anybody, then enough; what is left of the grid is not run."""
    tried = []

    def counted(env, **given):
        tried.append(given["episodes"])
        return tasid.learn(env, **given)

    monkeypatch.setattr(lock, "learn", counted)
    monkeypatch.setattr(lock, "SOLVED", 0.95)  # whatever the fixture of this module left there
    configuration = {
        "algorithm": "tasid",
        "method": "belief",
        "episodes": [1, 128, 192],
        "horizon": 5,
        "eta": 0.1,
        "evaluation_episodes": 2_000,
    }
    job, told = Job("tasid-belief-H5", (3,), configuration, 1.0), []
    lock.work(job, desk_here(job, tmp_path, told.append))
    assert tried == [1, 128]
    (series,) = Records(tmp_path).series()
    assert series.ending == {"solved": True, "episodes": 128}
    first, last = evaluations(series)
    assert (first[0], last[0]) == (1, 128)
    value = float(series.facts["robust_value"])
    assert first[1] < lock.SOLVED * value <= last[1]
    trained = [row["episodes"] for row in series.rows if row["training"] is not None]
    assert trained == sorted(trained)
    assert trained[-1] == 128
    assert told == sorted(told)
    assert told[-1] == 1.0
