"""Random streams: no two draws of one key share a number, at any horizon."""

from __future__ import annotations

import ast
from pathlib import Path

from tasid.targets import streams

LONGEST = 100_000
"""Steps."""
UNDER_A_SEED = """
    BATCH FITTING EPOCHS STAGES EVALUATION DIAGNOSIS MONITORING CALIBRATION WANDERING ONLINE
    RECORDING CERTIFICATION BLIND CONTINUING
""".split()
UNDER_A_STAGE = "STARTING SHUFFLING SCORING DOMAINS TRAINING".split()
EVERY_STEP = {"SIGHT": 2, "HAPPENING": 2, "HINDRANCE": 1}
"""How far the numbers of consecutive steps are apart."""
ONCE = "START ELSEWHERE CIRCUMSTANCES".split()
SOURCE = Path(streams.__file__).parents[1]


def numbers(name: str, apart: int, steps: int = LONGEST) -> range:
    first = getattr(streams, name)
    return range(first, first + apart * steps, apart)


def test_numbers_under_one_key_are_distinct():
    for names in (UNDER_A_SEED, UNDER_A_STAGE):
        values = [getattr(streams, name) for name in names]
        assert len(set(values)) == len(values), names
    # Algorithm 2 collects the episodes of learning step h in phase h.
    assert sorted(getattr(streams, name) for name in UNDER_A_SEED)[1] > LONGEST


def test_no_draw_of_an_episode_meets_another():
    """Nature's draws, then those of each kind of learner, at every step of a long episode."""
    nature = [numbers(name, apart, LONGEST + 1) for name, apart in EVERY_STEP.items()]
    nature += [numbers(name, 1, 1) for name in ONCE]
    every_step = [numbers("ACTING", 1)]
    paper = [numbers("ACTING", 1, 1), numbers("COMPLETION", 1)]
    for learner in (every_step, paper):
        drawn = [number for part in (*nature, *learner) for number in part]
        assert len(set(drawn)) == len(drawn)


def test_every_number_is_in_the_table():
    named = {name for name in vars(streams) if name.isupper()}
    assert named == {*UNDER_A_SEED, *UNDER_A_STAGE, *EVERY_STEP, *ONCE, "ACTING", "COMPLETION"}
    for file in SOURCE.rglob("*.py"):
        if file.name != "streams.py":
            assert not list(_own_numbers(ast.parse(file.read_text("utf-8")))), file


def _own_numbers(module: ast.Module):
    """Keys folded with a number that is spelled on the spot, or made up of another module's."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and _name(node.func) in ("fold_in", "stream", "episode_keys"):
            number = node.args[1]
            if isinstance(number, ast.Constant) and number.value not in (0, 1):
                yield number
    for node in module.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(part, ast.Name) and part.id in vars(streams) and part.id.isupper()
            for part in ast.walk(node.value)
        ):
            yield node


def _name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
