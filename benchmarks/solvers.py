"""Solvers of others on our tables; `planning` runs this file in .venv-peers, not in our own.

python solvers.py NAME TABLES.npz prepares the model, then solves it once for every line on standard
input, and answers with JSON: the seconds, and the value at the start if the solver gives one.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy import sparse


def quantecon(tables):
    """`backward_induction` on state–action pairs with a sparse transition matrix; η = 0."""
    from quantecon.markov import DiscreteDP
    from quantecon.markov.ddp import backward_induction

    successor, reward = tables["successor"], tables["reward"]
    states, actions = successor.shape
    s, a = np.repeat(np.arange(states), actions), np.tile(np.arange(actions), states)
    problem = DiscreteDP(reward.ravel(), one_hot(successor.ravel(), states), 1.0, s, a)
    horizon, start = int(tables["horizon"]), int(tables["start"])
    return lambda: (backward_induction(problem, horizon)[0][0, start], 1.0)


def pymdptoolbox(tables):
    """`FiniteHorizon` with a sparse matrix for each action; η = 0."""
    import mdptoolbox.util
    from mdptoolbox.mdp import FiniteHorizon

    mdptoolbox.util.check = lambda *tables: None  # it makes dense [S, S] matrices
    matrices = [one_hot(column, len(column)) for column in tables["successor"].T]
    problem = FiniteHorizon(matrices, tables["reward"], 1.0, int(tables["horizon"]))

    def solve():
        problem.run()
        return problem.V[int(tables["start"]), 0], 1.0

    return solve


def mdpsolver(tables):
    """Value iteration, which knows no horizon: the time of H of its sweeps counts; η = 0."""
    import mdpsolver as package

    successor, reward = tables["successor"], tables["reward"]
    model = package.model()
    model.mdp(
        discount=0.9,
        rewards=reward.tolist(),
        tranMatProbs=[[[1.0]] * successor.shape[1]] * len(successor),
        tranMatColumns=successor[:, :, None].tolist(),
    )
    options = {"algorithm": "vi", "tolerance": 0.1, "initValueVector": [0.0] * len(successor)}
    options |= {"verbose": True, "postProcessing": False, "makeFinalCheck": False}

    def solve():
        said = printed(lambda: model.solve(**options))
        sweeps = int(re.search(r"in (\d+) iterations", said).group(1))
        return None, int(tables["horizon"]) / sweeps

    return solve


def storm(tables, robust=False):
    """Cumulative reward within H steps; η = 0, or the interval model."""
    import stormpy

    numbers, mode, build = "double", {}, stormpy.build_model_from_drn
    if robust:
        numbers, build = "double-interval", build[stormpy.Interval]
        mode = {"uncertainty_resolution_mode": stormpy.UncertaintyResolutionMode.ROBUST}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.drn"
        with path.open("w") as file:
            file.writelines(storm_lines(tables, numbers, robust))
        model = build(str(path))
    steps = int(tables["horizon"]) * (2 if robust else 1)
    [query] = stormpy.parse_properties(f'R{{"pay"}}max=? [C<={steps}]')
    start = int(tables["start"])
    return lambda: (stormpy.model_checking(model, query, **mode).get_value(start), 1.0)


def storm_robust(tables):
    """Storm with η: a state for each (s, a'), reached with [1−η, 1] by a' and [0, η] by others."""
    return storm(tables, robust=True)


def storm_lines(tables, numbers, robust):
    """The model in Storm's explicit format."""
    successor, reward = (tables[name].astype(object) for name in ("successor", "reward"))
    (states, actions), eta, start = successor.shape, float(tables["eta"]), int(tables["start"])
    nodes = states * (1 + actions) if robust else states
    choices = states * actions * (2 if robust else 1)
    yield f"@type: MDP\n@value_type: {numbers}\n@parameters\n\n@reward_models\npay\n"
    yield f"@nr_states\n{nodes}\n@nr_choices\n{choices}\n@model\n"
    for s in range(states):
        yield f"state {s} [0]{' init' if s == start else ''}\n"
        for a in range(actions):
            yield f"\taction {a} [{0 if robust else reward[s, a]}]\n"
            if not robust:
                yield f"\t\t{successor[s, a]} : 1\n"
                continue
            for b in range(actions):
                chance = f"[{1 - eta}, 1]" if a == b else f"[0, {eta}]"
                yield f"\t\t{states + s * actions + b} : {chance}\n"
    if robust:
        for pair, (leads, pays) in enumerate(zip(successor.flat, reward.flat, strict=True)):
            yield f"state {states + pair} [0]\n\taction 0 [{pays}]\n\t\t{leads} : [1, 1]\n"


def one_hot(columns, width):
    """A sparse matrix with a 1 in each row."""
    size = len(columns)
    return sparse.csr_matrix((np.ones(size), columns, np.arange(size + 1)), (size, width))


def printed(work):
    """What a C++ library prints meanwhile."""
    sys.stdout.flush()
    kept = os.dup(1)
    with tempfile.TemporaryFile("w+") as file:
        os.dup2(file.fileno(), 1)
        try:
            work()
        finally:
            os.dup2(kept, 1)
            os.close(kept)
        file.seek(0)
        return file.read()


def main():
    """Answer every line with the time of one solution."""
    name, path = sys.argv[1:]
    with np.load(path) as file:
        tables = dict(file)
    answers, sys.stdout = sys.stdout, sys.stderr  # the solvers print
    solve = globals()[name](tables)
    solve()  # compilers and caches
    for _ in sys.stdin:
        started = time.perf_counter()
        value, share = solve()
        seconds = share * (time.perf_counter() - started)
        value = None if value is None else float(value)
        print(json.dumps({"seconds": seconds, "value": value}), file=answers, flush=True)


if __name__ == "__main__":
    main()
