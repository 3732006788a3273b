"""`tasid reproduce` and `tasid train --algorithm`, from the command line to the files."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import tasid
from browser import in_browser, measure
from tasid.cli import main
from tasid.files import ArtifactError
from tasid.policies.ppo_policy import PPOPolicy
from tasid.report import build_report


def call(capsys, *arguments):
    try:
        main(list(arguments))
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
    out, err = capsys.readouterr()
    return code, out, err


def test_smoke_makes_everything_and_is_not_made_twice(tmp_path, capsys):
    folder = tmp_path / "lock"
    command = ("reproduce", "combination-lock", "--size", "smoke", "--out", str(folder), "--json")
    code, out, _ = call(capsys, *command)
    assert code == 0
    answer = json.loads(out)
    assert {"records", "figures", "table", "page"} <= answer.keys()
    assert {row["algorithm"] for row in answer["table"]} == {
        "tasid-belief",
        "tasid-paper-n300",
        "ppo",
        "ppo+rnd",
        "ppo+dr",
        "ppo+rnd+dr",
    }
    assert all(row["unfinished"] == 0 for row in answer["table"])
    records = {p: p.read_bytes() for p in (folder / "records").rglob("*.jsonl")}
    assert call(capsys, *command)[0] == 0
    assert records == {p: p.read_bytes() for p in (folder / "records").rglob("*.jsonl")}
    code, out, _ = call(capsys, "report", str(folder), "--json")
    assert code == 0
    assert json.loads(out)["page"].endswith("report.html")
    # TASID's curve: a row per step of training, none of them evaluated, then the evaluation.
    rows = (folder / "records" / "tasid-paper-n300-H3" / "0.jsonl").read_text().splitlines()[1:-1]
    shown = [json.loads(row) for row in rows]
    assert [row["mean"] is None for row in shown] == [True, True, False]
    assert [row["episodes"] for row in shown] == [100, 200, 200]


def test_a_file_is_no_folder(tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    code, _, err = call(capsys, "report", str(tmp_path / "file"))
    assert code == 2
    assert "is a file; give the folder of a run or an experiment" in err


def test_wrong_names_and_sizes_are_one_message(tmp_path, capsys):
    code, out, err = call(capsys, "reproduce", "chess")
    assert (code, out) == (2, "")
    assert "'chess' is no experiment" in err
    code, _, err = call(
        capsys, "reproduce", "combination-lock", "--size", "vast", "--out", str(tmp_path)
    )
    assert code == 2
    assert "'vast' is none of smoke, quick, full" in err


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ppo") / "run"
    arguments = ["train", "combination-lock", "--horizon", "2", "--set", "num_actions=3"]
    arguments += ["--algorithm", "ppo", "--episodes", "2000", "--seed", "3"]
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--evaluation-episodes", "300", "--out", str(folder), "--json"])
    assert not ended.value.code
    return folder


def test_a_baseline_is_trained_saved_scored_and_loaded(trained, capsys):
    result = json.loads((trained / "result.json").read_text())
    assert result["algorithm"] == "ppo"
    assert result["episodes"] == 2000
    # With two steps and three actions there is nothing to explore: PPO learns it.
    assert result["ratio"] > 0.9
    rows = [json.loads(line) for line in (trained / "training.jsonl").read_text().splitlines()]
    assert [row["episodes"] for row in rows] == [1000, 2000]
    assert rows[1]["training"] > rows[0]["training"]
    policy = tasid.load(trained / "policy")
    assert isinstance(policy, PPOPolicy)
    assert policy.method == "ppo"
    code, out, _ = call(
        capsys, "evaluate", str(trained), "--episodes", "300", "--seed", "3", "--json"
    )
    assert code == 0
    assert json.loads(out)["return_mean"] == result["return_mean"]


def test_an_agent_acts_as_the_batch_does(trained):
    policy = tasid.load(trained / "policy")
    env = tasid.make(policy.environment["name"], **policy.environment["options"])
    rng = np.random.default_rng(0)
    observations = rng.normal(size=(128, *env.target.observation_shape)).astype(np.float32)
    _, expected = policy.actor.act((), observations, 0)
    for slot in (0, 5, 127):
        agent = policy.agent(slot=slot)
        assert agent.act(observations[slot]) == int(expected[slot])
        assert 1 / 3 <= agent.confidence <= 1.0
        assert not agent.lost
    agent.act(observations[0])
    with pytest.raises(ValueError, match="the episode is over, its horizon is 2 steps"):
        agent.act(observations[0])
    agent.reset()
    with pytest.raises(ValueError, match="shape"):
        agent.act(observations[:2])
    with pytest.raises(ValueError, match="slot: 128"):
        policy.agent(slot=128)


@in_browser
def test_the_page_of_a_baseline_fits_narrow_and_wide_windows(trained, tmp_path):
    run = shutil.copytree(trained, tmp_path / "run")
    for window in measure(tmp_path, build_report(run)):
        assert window["scroll"] == window["inner"], "no scrolling sideways"
        assert window["clashes"] == []
        assert window["small"] == []
        assert window["cut"] == []


def test_a_baseline_has_a_page_and_nothing_to_watch(trained, tmp_path, capsys):
    run = shutil.copytree(trained, tmp_path / "run")
    code, _, _ = call(capsys, "report", str(run))
    assert code == 0
    page = (run / "report.html").read_text()
    result = json.loads((run / "result.json").read_text())
    assert f"It earns {result['return_mean']:.2f}" in page
    assert "--algorithm ppo" in page
    assert "ppo.minibatch" in page
    assert (">in the target<" in page, ">in relatives of the target<" in page) == (True, False)
    (run / "training.jsonl").write_text("[1]\n")
    code, _, err = call(capsys, "report", str(run))
    assert code == 2
    assert "training.jsonl, line 1: not a record" in err
    code, _, err = call(capsys, "watch", str(run))
    assert code == 2
    assert "is a baseline's; it has no map" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--algorithm", "dqn"], "--algorithm: 'dqn' is none of tasid, ppo, ppo+rnd"),
        (
            ["--algorithm", "ppo+dr", "--epopt-epsilon", "nan"],
            "--epopt-epsilon: nan is not a finite number",
        ),
        (["--starts", "2", "--set", "starts=3"], "--starts: 2, but --set says starts=3"),
        (["--algorithm", "ppo", "--epopt-epsilon", "0.5"], "epopt_epsilon: 0.5 with 'ppo'"),
        (["--epopt-epsilon", "0.5"], "--epopt-epsilon: 0.5 with --algorithm tasid"),
        (["--algorithm", "ppo", "--classes", "place"], "--classes: with a baseline"),
        (["--algorithm", "ppo", "--method", "paper"], "--method: with a baseline"),
        (["--algorithm", "ppo", "--evaluation-episodes", "0"], "--evaluation-episodes: 0 is"),
        (["--algorithm", "ppo+dr", "--epopt-epsilon", "2"], "epsilon: 2.0 is outside"),
        (["--algorithm", "ppo", "--episodes", "150"], "episodes: 150 is no multiple of the 100"),
        (["--algorithm", "ppo", "--episodes", "many"], "'many' is neither a whole number"),
    ],
)
def test_wrong_orders_are_one_message(tmp_path, capsys, arguments, message):
    command = ["train", "combination-lock", "--horizon", "3", "--out", str(tmp_path / "run")]
    code, out, err = call(capsys, *command, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert not (tmp_path / "run").exists()


def test_policies_of_another_kind_are_refused_where_states_are_needed(trained):
    from tasid.policies.policy import load

    with pytest.raises(ArtifactError, match="ppo-policy"):
        load(trained / "policy")
