"""Examples and the guide's blocks are run, small, as a reader would run them."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
GUIDE = ROOT / "docs" / "your-environment.md"
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def played(path, monkeypatch, folder, *arguments):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", [str(path), *arguments])
    return runpy.run_path(str(path), run_name="__main__")


def test_the_guide_runs_as_it_stands(monkeypatch, tmp_path, capsys):
    blocks = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.M | re.S)
    assert len(blocks) >= 6
    script = tmp_path / "guide.py"
    script.write_text("\n".join(blocks), encoding="utf-8")
    left = played(script, monkeypatch, tmp_path)
    assert left["check"].ok
    assert left["limit"].value == pytest.approx(left["limit"].robust_value)
    assert left["score"].mean > 0.9 * left["plan"].start_value
    assert (tmp_path / "rover.gif").stat().st_size > 10_000
    assert "True" not in capsys.readouterr().out.splitlines()[-2]  # the agent was not lost


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run_at_small_size(path, monkeypatch, tmp_path, capsys):
    played(path, monkeypatch, tmp_path, "--small")
    out = capsys.readouterr().out
    assert "earns" in out
    assert "Traceback" not in out


def test_examples_say_how_to_run_them():
    assert [path.stem for path in EXAMPLES] == [
        "custom_environment",
        "floor_plan",
        "frozen_lake_images",
    ]
    for path in EXAMPLES:
        assert f"python examples/{path.name}" in path.read_text(encoding="utf-8")
        assert path.name in GUIDE.read_text(encoding="utf-8")


def test_the_custom_class_has_thirty_lines():
    text = (ROOT / "examples" / "custom_environment.py").read_text(encoding="utf-8")
    body = text[text.index("class Cart") : text.index("\n\n\ndef main")]
    assert body.count("\n") + 1 <= 35
