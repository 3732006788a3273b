"""README, docs and examples: every block runs as printed, every link and name exists.

The blocks of a document run in its order, in one namespace and in an empty folder that has the
repository's `src` and `examples`. Of shell blocks the `tasid` commands run, with one worker. What
follows the language of a fence is for this test: `slow` blocks are only parsed unless
TASID_SLOW_DOCUMENTS is set, and any other word names a file to write.
"""

from __future__ import annotations

import importlib
import os
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest
import typer

from tasid.cli import app, main

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*) ?(\S*)\n(.*?)^```$", re.M | re.S)
EXAMPLES = {
    "custom_environment.py": ["32"],
    "floor_plan.py": ["16"],
    "frozen_lake_images.py": ["16"],
}
"""Their arguments: few episodes."""


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """An empty working directory from which the files of the repository can be named."""
    for name in ("src", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_shell(code: str, where: str, *, parse_only: bool) -> None:
    """Run the commands of a shell block, or only parse them."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for line in code.replace("\\\n", " ").splitlines():
        program, *words = shlex.split(line, comments=True) or [""]
        if program == "make":
            assert re.search(rf"^{words[0]}:", makefile, re.M), f"{where}: {line}"
        elif program == "tasid" and parse_only:
            command = typer.main.get_command(app).commands[words[0]]
            command.make_context(words[0], words[1:])
        elif program:
            assert program == "tasid", f"{where}: {line}"
            few = ["--workers", "1"] if "--seeds" in words else []
            with pytest.raises(SystemExit) as ended:
                main([*words, *few])
            assert not ended.value.code, f"{where}: {line}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_blocks_run_as_printed(document, clone):
    text, namespace = document.read_text("utf-8"), {"__name__": "__main__"}
    for fence in FENCE.finditer(text):
        language, mark, code = fence.groups()
        line = text.count("\n", 0, fence.start(3))
        parse_only = mark == "slow" and "TASID_SLOW_DOCUMENTS" not in os.environ
        if language == "python":
            block = compile("\n" * line + code, str(document), "exec")
            if not parse_only:
                exec(block, namespace)  # noqa: S102
        elif language == "sh":
            run_shell(code, f"{document.name}:{line}", parse_only=parse_only)
        elif mark:
            (clone / mark).write_text(code, "utf-8")


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run(name, clone, monkeypatch):
    assert len((ROOT / "examples" / name).read_text("utf-8").splitlines()) <= 60
    monkeypatch.setattr(sys, "argv", [name, *EXAMPLES[name]])
    runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")


def anchors(document: Path) -> set[str]:
    """Anchors of the headings of a document, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", document.read_text("utf-8")), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", [*DOCUMENTS, *ROOT.glob("C*.md")], ids=lambda path: path.name)
def test_links_and_names_exist(document):
    text = document.read_text("utf-8")
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        name, _, anchor = link.partition("#")
        target = (document.parent / name).resolve() if name else document
        if "://" not in link:
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link
    for file, names in re.findall(r"`(test_\w+\.py)((?:::\w+)*)`", text):
        tests = (ROOT / "tests" / file).read_text("utf-8")
        for name in names.split("::")[1:]:
            assert re.search(rf"^ *(def|class) {name}\b", tests, re.M), f"{file}::{name}"
    for name in re.findall(r"`((?:tasid|reproduction)\.[\w.]+)", text):
        if document.name != "CHANGELOG.md":  # which names what is gone
            resolve(name)


def resolve(name: str) -> object:
    """The module or attribute of a dotted name; an error if there is none."""
    found, *parts = importlib.import_module(name.split(".")[0]), *name.split(".")[1:]
    for depth, part in enumerate(parts, 2):
        if not hasattr(found, part):
            importlib.import_module(".".join(name.split(".")[:depth]))
        found = getattr(found, part)
    return found


def test_documents_are_short():
    lines = {document: len(document.read_text("utf-8").splitlines()) for document in DOCUMENTS}
    assert lines[ROOT / "README.md"] <= 120
    assert sum(lines.values()) - lines[ROOT / "README.md"] <= 1_500
