"""Other people's solvers on our tables; runs in .venv-peers, not in ours.

python solvers.py NAME TABLES.npz CLOCK: prepares the model, then solves it once for every line on
standard input and answers with JSON: seconds by that clock of the module `time`, and the value at
the start.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from scipy import sparse


def quantecon(tables):
    """`backward_induction` on state–action pairs with a sparse transition matrix; η = 0."""
    from quantecon.markov import DiscreteDP
    from quantecon.markov.ddp import backward_induction

    successor, reward = tables["successor"], tables["reward"]
    states, actions = successor.shape
    matrix = _one_hot(successor.ravel(), states)
    s, a = np.repeat(np.arange(states), actions), np.tile(np.arange(actions), states)
    problem = DiscreteDP(reward.ravel(), matrix, 1.0, s, a)
    return lambda: backward_induction(problem, int(tables["horizon"]))[0][0, tables["start"]]


def pymdptoolbox(tables):
    """`FiniteHorizon` with one sparse matrix for each action; η = 0."""
    import mdptoolbox.util
    from mdptoolbox.mdp import FiniteHorizon

    mdptoolbox.util.check = lambda *tables: None  # it makes dense [S, S] matrices, just to look
    successor = tables["successor"]
    matrices = [_one_hot(column, len(successor)) for column in successor.T]
    problem = FiniteHorizon(matrices, tables["reward"], 1.0, int(tables["horizon"]))

    def solve():
        problem.run()
        return problem.V[tables["start"], 0]

    return solve


def mdpsolver(tables):
    """Value iteration; it knows no horizon, so H of its sweeps are timed; η = 0."""
    import mdpsolver as package

    successor, reward = tables["successor"], tables["reward"]
    model = package.model()
    model.mdp(
        discount=0.9,
        rewards=reward.tolist(),
        tranMatProbs=[[[1.0]] * successor.shape[1]] * len(successor),
        tranMatColumns=successor[:, :, None].tolist(),
    )
    nothing = [0.0] * len(successor)

    def solve():
        said = _said(
            lambda: model.solve(
                algorithm="vi",
                tolerance=1e-1,
                initValueVector=nothing,
                verbose=True,
                postProcessing=False,
                makeFinalCheck=False,
            )
        )
        sweeps = int(re.search(r"in (\d+) iterations", said).group(1))
        return Share(int(tables["horizon"]) / sweeps)

    return solve


def storm(tables):
    """Storm's cumulative reward within H steps; η = 0."""
    import stormpy

    return _storm(stormpy.build_model_from_drn, tables, "double", {})


def storm_robust(tables):
    """Storm on the interval model: a state for each (s, a'), reached with [1−η, 1] or [0, η]."""
    import stormpy

    mode = {"uncertainty_resolution_mode": stormpy.UncertaintyResolutionMode.ROBUST}
    build = stormpy.build_model_from_drn[stormpy.Interval]
    return _storm(build, tables, "double-interval", mode)


def storm_exact(tables):
    """The same in rational numbers."""
    import stormpy

    mode = {"uncertainty_resolution_mode": stormpy.UncertaintyResolutionMode.ROBUST}
    build = stormpy.build_model_from_drn[stormpy.RationalInterval]
    return _storm(build, tables, "rational-interval", mode)


def _storm(build, tables, numbers, mode):
    import stormpy

    robust = bool(mode)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.drn"
        with path.open("w") as file:
            file.writelines(_drn(tables, numbers, robust))
        model = build(str(path))
    steps = int(tables["horizon"]) * (2 if robust else 1)
    [query] = stormpy.parse_properties(f'R{{"pay"}}max=? [C<={steps}]')
    start = int(tables["start"])
    return lambda: stormpy.model_checking(model, query, **mode).get_value(start)


def _drn(tables, numbers, robust):
    """The model in Storm's explicit format, line by line."""
    successor, reward = tables["successor"], tables["reward"]
    (states, actions), eta, start = successor.shape, float(tables["eta"]), int(tables["start"])
    nodes = states * (1 + actions) if robust else states
    choices = states * actions * (2 if robust else 1)
    yield f"@type: MDP\n@value_type: {numbers}\n@parameters\n\n@reward_models\npay\n"
    yield f"@nr_states\n{nodes}\n@nr_choices\n{choices}\n@model\n"
    for s in range(states):
        yield f"state {s} [0]{' init' if s == start else ''}\n"
        for a in range(actions):
            if robust:
                yield f"\taction {a} [0]\n"
                for b in range(actions):
                    chance = f"[{1 - eta!r}, 1]" if a == b else f"[0, {eta!r}]"
                    yield f"\t\t{states + s * actions + b} : {chance}\n"
            else:
                yield f"\taction {a} [{reward[s, a]!r}]\n\t\t{successor[s, a]} : 1\n"
    if robust:
        for pair, (leads, pays) in enumerate(zip(successor.flat, reward.flat, strict=True)):
            yield f"state {states + pair} [0]\n\taction 0 [{pays!r}]\n\t\t{leads} : [1, 1]\n"


def _one_hot(columns, width):
    size = len(columns)
    return sparse.csr_matrix((np.ones(size), columns, np.arange(size + 1)), (size, width))


class Share(float):
    """How much of the time counts, from a solver that did another number of sweeps."""


def _said(work):
    """What a C++ library printed meanwhile."""
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
    name, path, clock = sys.argv[1:]
    now = getattr(time, clock)
    warnings.simplefilter("ignore")
    with np.load(path) as file:
        tables = dict(file)
    # Python's numbers print as Storm reads them.
    if name.startswith("storm"):
        tables |= {"successor": tables["successor"].astype(object)}
        tables |= {"reward": tables["reward"].astype(object)}
    answers, sys.stdout = sys.stdout, sys.stderr
    solve = globals()[name](tables)
    solve()  # compilers and caches
    for _ in sys.stdin:
        started = now()
        value = solve()
        seconds = now() - started
        if isinstance(value, Share):
            answer = {"seconds": value * seconds, "value": None}
        else:
            answer = {"seconds": seconds, "value": str(value)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
