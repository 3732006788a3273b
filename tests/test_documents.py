"""Every block of code in README.md and docs/*.md is run, as a reader would type it in.

Python blocks of a file run in order, as one script with the file's own line numbers; of shell
blocks every `tasid` command is run. What would take minutes is made small:

- calls that learn, score or check do so with the few episodes below, or as few as a refusal says
  that it takes, and nothing is learned from pictures (the tests of the examples do that);
- `tasid train` goes as far as learning, and a small run of a lock then stands in its folder for the
  commands that follow;
- `tasid reproduce`, and what follows it in a block, is parsed.

In a document, directly before a block, two comments mean something here:

    <!-- not run: why -->          the block must still be valid Python, or parse as commands
    <!-- run first: statements --> what the reader is supposed to have
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import runpy
import shlex
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer

import tasid
from tasid.cli import app, main

ROOT = Path(__file__).resolve().parents[1]
LEARN = tasid.learn
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
AS_IT_STANDS = "your-environment.md"
"""Its Python is run in full, with what it promises, in test_examples."""
LEARNED, SCORED = 100, 50
"""Most episodes for learning and for scoring, unless a learner refuses so few."""
TOO_FEW = re.compile(r"too few.*give (\d+) or more")
CHECKED = 8
SMALL = {"evaluate": SCORED, "check": CHECKED}
PARSED_ONLY = {"reproduce"}
"""Experiments take minutes; what follows one in a block may ask for what it made."""
_BLOCK = re.compile(
    r"(?:<!--(?P<comment>(?:(?!-->).)*?)-->\s*\n)?"
    r"^```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^```\s*$",
    re.M | re.S,
)


@dataclass(frozen=True)
class Block:
    """A fenced block: what it says, where, and what its comment asks for."""

    language: str
    code: str
    line: int
    skipped: bool
    first: str
    first_line: int


def blocks(text: str) -> list[Block]:
    found = []
    for match in _BLOCK.finditer(text):
        comment = match["comment"] or ""
        kind, _, rest = comment.strip().partition(":")
        first = rest if kind == "run first" else ""
        found.append(
            Block(
                match["language"],
                match["code"],
                text.count("\n", 0, match.start("code")) + 1,
                kind == "not run" and bool(rest.strip()),
                first,
                text.count("\n", 0, match.start("comment")) + 1 if first else 0,
            )
        )
    return found


def script(found: list[Block]) -> str:
    """The Python blocks at the lines they have in the document."""
    lines: list[str] = []

    def put(line: int, code: str) -> None:
        lines.extend([""] * (line - 1 - len(lines)))
        lines.extend(code.rstrip().split("\n"))

    for block in found:
        if block.first:
            put(block.first_line, block.first.removeprefix(" "))
        put(block.line, block.code)
    return "\n".join(lines) + "\n"


def commands(block: Block) -> list[list[str]]:
    """The commands of a shell block as lists of words; comments and continuations are gone."""
    joined = block.code.replace("\\\n", " ")
    split = (shlex.split(line.removeprefix("$ "), comments=True) for line in joined.splitlines())
    return [words for words in split if words]


def is_shell(block: Block) -> bool:
    plain = block.language in ("", "text")
    return block.language in ("sh", "bash", "console", "shell") or (
        plain and re.search(r"^(\$ )?tasid ", block.code, re.M) is not None
    )


def of_python(document: Path) -> list[Block]:
    return [b for b in blocks(document.read_text(encoding="utf-8")) if b.language == "python"]


def of_shell(document: Path) -> list[Block]:
    return [b for b in blocks(document.read_text(encoding="utf-8")) if is_shell(b)]


# ---------------------------------------------------------------- Python


def fewer(call, most, *arguments, **options):
    """The call with at most so many episodes."""
    inspect.signature(call).bind(*arguments, **options)
    if call is LEARN and len(getattr(arguments[0], "observation_shape", ())) == 3:
        return None
    asked = options.get("episodes")
    options["episodes"] = min(asked, most) if isinstance(asked, int) else most
    try:
        return call(*arguments, **options)
    except ValueError as error:
        wanted = TOO_FEW.search(str(error))
        if wanted is None:
            raise
        return call(*arguments, **{**options, "episodes": int(wanted[1])})


@pytest.mark.parametrize(
    "document",
    [d for d in DOCUMENTS if of_python(d) and d.name != AS_IT_STANDS],
    ids=lambda path: path.name,
)
def test_python_blocks_run(document, monkeypatch, tmp_path, capsys):
    found = of_python(document)
    for block in found:
        ast.parse(block.code, f"{document.name}:{block.line}")
    monkeypatch.chdir(tmp_path)
    for call, most in ((LEARN, LEARNED), (tasid.evaluate, SCORED), (tasid.check_target, CHECKED)):
        monkeypatch.setattr(tasid, call.__name__, partial(fewer, call, most), raising=False)
    path = tmp_path / document.with_suffix(".py").name
    path.write_text(script([b for b in found if not b.skipped]), encoding="utf-8")
    runpy.run_path(str(path), run_name="__main__")


# ---------------------------------------------------------------- the command line


class Learning(Exception):
    """A command has come as far as learning."""


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory):
    """A small run, for commands that look at one."""
    folder = tmp_path_factory.mktemp("documents") / "run"
    lock = ["combination-lock", "--horizon", "3", "--set", "num_actions=3"]
    few = ["--episodes", "200", "--evaluation-episodes", str(SCORED)]
    with pytest.raises(SystemExit) as ended:
        main(["train", *lock, *few, "--out", str(folder)])
    assert not ended.value.code
    return folder


@pytest.fixture
def reaches_learning(monkeypatch):
    """Learning is where `tasid train` stops; gives the folder it would have written."""

    def stop(signature, *arguments, **options):
        signature.bind(*arguments, **options)
        raise Learning

    for name in ("tasid.runs.train.learn", "tasid.runs.train.train_baseline"):
        module, _, attribute = name.rpartition(".")
        real = inspect.signature(getattr(importlib.import_module(module), attribute))
        monkeypatch.setattr(name, partial(stop, real))


def small(words: list[str]) -> list[str]:
    """The arguments of a `tasid` command with no more episodes than it takes to see it work."""
    most = SMALL.get(words[0])
    if most is None:
        return words
    place = words.index("--episodes") + 1 if "--episodes" in words else 0
    fewest = min(int(words[place]), most) if place else most
    return [*words, "--episodes", str(fewest)]


def parsed(words: list[str]) -> dict[str, Any]:
    """The arguments of a command by name; raises what the command line would say of them."""
    group = typer.main.get_command(app)
    return group.commands[words[0]].make_context(words[0], words[1:]).params


def run(words: list[str], stand_in: Path) -> int:
    """Run a `tasid` command, small; its exit code."""
    given = parsed(words)
    try:
        with pytest.raises(SystemExit) as ended:
            main(small(words))
    except Learning:
        usual = [given["env"].replace("/", "-").replace(":", "-"), f"seed{given['seed']}"]
        if given["algorithm"] != "tasid":
            usual.insert(1, given["algorithm"])
        folder = given["out"] or Path("runs") / "-".join(usual)
        if folder.exists() and not given["overwrite"]:
            return 2
        shutil.copytree(stand_in, folder, dirs_exist_ok=True)
        return 0
    return ended.value.code or 0


@pytest.mark.parametrize(
    "document", [d for d in DOCUMENTS if of_shell(d)], ids=lambda path: path.name
)
@pytest.mark.usefixtures("reaches_learning")
def test_shell_blocks_run(document, stand_in, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M)
    for block in of_shell(document):
        assert not block.first, f"{document.name}:{block.line}: 'run first' is for Python"
        left_out = block.skipped
        for words in commands(block):
            where = f"{document.name}:{block.line}: {shlex.join(words)}"
            program, *rest = words
            if program == "tasid":
                parsed(rest)
                left_out |= rest[0] in PARSED_ONLY
                code = 0 if left_out else run(rest, stand_in)
                assert code == 0, f"{where}\n{capsys.readouterr().err}"
            elif program == "make":
                goals = [word for word in rest if "=" not in word]
                assert set(goals) <= set(targets), where
            elif program == "python" and rest[0].endswith(".py"):
                assert (ROOT / rest[0]).is_file(), where
            else:
                assert block.skipped, f"{where}\nis neither tasid, make nor python: not run?"


# ---------------------------------------------------------------- the reading of documents

SAMPLE = """# Title

```python
x = 1
```

<!-- run first: y = 2
z = 3 -->
```python
assert x + y + z == 6
```

<!-- not run: it takes a robot -->
```python
robot.go()
```

```sh
$ tasid plan combination-lock \\
    --eta 0.1   # a comment
tasid budget
```

<!-- a remark -->
```
runs/  a folder
```
"""


def test_blocks_are_found_with_their_lines_and_comments():
    found = blocks(SAMPLE)
    assert [(b.language, b.line, b.skipped) for b in found] == [
        ("python", 4, False),
        ("python", 10, False),
        ("python", 15, True),
        ("sh", 19, False),
        ("", 26, False),
    ]
    assert commands(found[3]) == [
        ["tasid", "plan", "combination-lock", "--eta", "0.1"],
        ["tasid", "budget"],
    ]
    assert not is_shell(found[4])


def test_scripts_keep_the_lines_of_the_document(tmp_path):
    runnable = [b for b in blocks(SAMPLE) if b.language == "python" and not b.skipped]
    text = script(runnable)
    assert text.split("\n")[9] == "assert x + y + z == 6"
    path = tmp_path / "sample.py"
    path.write_text(text.replace("== 6", "== 7"))
    with pytest.raises(AssertionError) as caught:
        runpy.run_path(str(path))
    assert caught.traceback[-1].lineno == 9  # counted from 0


def test_commands_become_small_and_wrong_ones_are_noticed():
    assert small("evaluate lake --episodes 3000".split())[-2:] == ["--episodes", str(SCORED)]
    assert small("check lake --episodes 3".split())[-2:] == ["--episodes", "3"]
    assert small(["evaluate", "lake"])[-2:] == ["--episodes", str(SCORED)]
    with pytest.raises(Exception, match="--no-such-flag"):
        parsed(["plan", "combination-lock", "--no-such-flag"])


@pytest.mark.usefixtures("reaches_learning")
def test_training_stops_at_learning_and_not_before(stand_in, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["train", "combination-lock", "--horizon", "3"], stand_in) == 0
    assert (tmp_path / "runs" / "combination-lock-seed0" / "result.json").exists()
    assert run(["train", "combination-lock", "--horizon", "3"], stand_in) == 2, "it is there"
    assert run(["train", "no-such-lock"], stand_in) == 2
    assert run(["train", "combination-lock", "--algorithm", "magic"], stand_in) == 2
