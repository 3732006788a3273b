"""The shape of the house: floors, the wall, what the docs name, and what an import may do."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from inspect import isfunction
from pathlib import Path
from typing import Any

import pytest

import tasid
from tasid import beliefs
from tasid.learning.paper.method import paper_network
from tasid.models import MLP, FitConfig

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "tasid"
MODULES = sorted(SOURCE.rglob("*.py"))
DOCS = sorted((ROOT / "docs").glob("*.md"))

FLOORS = {
    "files": 0,
    "maps": 1,
    "theory": 1,
    "targets": 2,
    "models": 3,
    "beliefs": 3,
    "policies": 4,
    "learning": 5,
    "baselines": 5,
    "checks": 6,
    "runs": 7,
    "report": 8,
    "experiments": 9,
    "cli": 10,
}
# `import tasid` reaches `tasid.learn`, so the public face stands where runs stands.
PUBLIC_FACE = FLOORS["runs"]


def package_of(file: Path) -> str:
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


def at(file: Path, node: ast.AST) -> str:
    return f"{file.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"


def imports(tree: ast.Module, module: tuple[str, ...]) -> Iterator[tuple[ast.AST, str]]:
    """Every import in a module of package path `module`, also inside functions, as dotted names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = module[: len(module) + 1 - node.level] if node.level else ()
            base = ".".join((*above, *filter(None, [node.module])))
            yield from ((node, f"{base}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            for argument in node.args[:1]:
                if isinstance(argument, ast.Constant):
                    yield node, str(argument.value)


def upward(source: str, file: Path) -> list[str]:
    """The imports of a module that do not go down."""
    own = package_of(file)
    if own not in FLOORS:
        return [f"{file.relative_to(ROOT)}: {own!r} has no floor; give it one in FLOORS"]
    problems = []
    module = ("tasid", *file.relative_to(SOURCE).parts[:-1])
    for node, name in imports(ast.parse(source), module):
        root, _, rest = name.partition(".")
        reached = rest.partition(".")[0]
        if root != "tasid" or reached == own or reached == "__version__":
            continue
        if FLOORS.get(reached, PUBLIC_FACE) >= FLOORS[own]:
            problems.append(f"{at(file, node)}: {own} must not import {name}")
    return problems


@pytest.mark.parametrize("file", MODULES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_imports_go_down_only(file: Path) -> None:
    if file != SOURCE / "__init__.py":  # the public face names everything, and imports it late
        assert not upward(file.read_text(), file)


@pytest.mark.parametrize(
    ("room", "line", "refused"),
    [
        ("maps/x.py", "from tasid.theory import Setting", True),
        ("theory/x.py", "import tasid.maps.planning.robust_dp", True),
        ("targets/x.py", "from ..models.fit import fit", True),
        ("targets/x.py", "def f():\n    from tasid import runs", True),
        ("policies/x.py", "from tasid import learn", True),
        ("learning/x.py", "importlib.import_module('tasid.runs.learn')", True),
        ("models/x.py", "import tasid", True),
        ("policies/x.py", "from tasid.learning.belief.method import belief", True),
        ("report/x.py", "from tasid.experiments import page", True),
        ("runs/x.py", "from tasid.report import page", True),
        ("attic/x.py", "import json", True),
        ("report/x.py", "from tasid.runs.record import Run", False),
        ("cli/x.py", "import tasid\nfrom ..report import page", False),
        ("maps/x.py", "from tasid import __version__\nfrom .backward import backward", False),
        ("models/x.py", "from tasid.maps import AbstractSimulator\nimport jax", False),
    ],
)
def test_the_floor_check_sees_what_it_should(room: str, line: str, refused: bool) -> None:
    assert bool(upward(line, SOURCE / room)) == refused


BEHIND_THE_WALL = {"latent", "latent_on", "world"}
"""Attributes of a block MDP that lead to its latent side."""
WALLED = ("models", "beliefs", "policies", "learning", "baselines")
BUILDERS = ("families.py", "by_name.py")
"""Make relatives of a target for domain randomisation, out of what the target is made of."""
KEEPERS = {"Latent", "BlockTarget", "PerturbedMDP"}
"""Names that hold latent states or the true perturbation."""


def peeks(source: str, file: Path) -> list[str]:
    """Where a module reaches for the latent side of an environment."""
    found = []
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            what = node.attr if node.attr in BEHIND_THE_WALL | KEEPERS else None
        elif isinstance(node, ast.Constant):  # getattr(env, "latent")
            what = node.value if node.value in BEHIND_THE_WALL else None
        elif isinstance(node, ast.Name):
            what = node.id if node.id in KEEPERS else None
        elif isinstance(node, ast.alias):
            what = node.name if node.name.rpartition(".")[2] in KEEPERS else None
        else:
            what = None
        if what is not None:
            found.append(f"{at(file, node)}: {what} is behind the wall")
    for node, name in imports(tree, ("tasid", *file.relative_to(SOURCE).parts[:-1])):
        if name.startswith("tasid.checks.diagnosis"):
            found.append(f"{at(file, node)}: diagnosis is behind the wall")
    return found


@pytest.mark.parametrize(
    "file",
    [file for file in MODULES if package_of(file) in WALLED and file.name not in BUILDERS],
    ids=lambda file: str(file.relative_to(SOURCE)),
)
def test_no_learner_looks_behind_the_wall(file: Path) -> None:
    assert not peeks(file.read_text(), file)


@pytest.mark.parametrize(
    "line",
    [
        "value = env.latent.robust_value(plan)",
        "from tasid.targets import Latent",
        "import tasid.targets.block as b\nb.Latent(w)",
        "getattr(env, 'latent')",
        "xi = env.latent.world.xi",
        "from tasid.checks.diagnosis import diagnose",
        "from tasid.checks import diagnosis",
    ],
)
def test_the_wall_check_sees_what_it_should(line: str) -> None:
    assert peeks(line, SOURCE / "learning" / "x.py")


def test_nothing_stored_is_ever_executed() -> None:
    unsafe_modules = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
    found = []
    for file in MODULES:
        tree = ast.parse(file.read_text())
        for node, name in imports(tree, ()):
            if name.partition(".")[0] in unsafe_modules:
                found.append(f"{at(file, node)}: {name}")
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and node.id in ("eval", "exec", "__import__"):
                found.append(f"{at(file, node)}: {node.id}")
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                found.append(f"{at(file, node)}: allow_pickle")
    assert not found


# ---------------------------------------------------------------- what the docs name

CODE = re.compile(r"(tasid(?:\.\w+)+)(?:\((\w+)(?:=[^`]*)?\))?")
"""A dotted name, and possibly one of its parameters: tasid.robust_dp(eta), tasid.learn(seed=0)."""
TEST = re.compile(r"(tests/(?:\w+/)?\w+\.py)(?:::(\w+))?")


def spans(file: Path) -> Iterator[tuple[int, str]]:
    """Everything between single backticks, with its line number."""
    fenced = False
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        fenced ^= line.startswith("```")
        if not fenced:
            yield from ((number, text) for text in re.findall(r"`([^`]+)`", line))


def meanings(dotted: str) -> Iterator[Any]:
    """What a dotted name may mean: a function may have the name of the module it is in."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            thing: Any = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            if part in getattr(thing, "__dataclass_fields__", {}):
                thing = thing.__dataclass_fields__[part]
            elif hasattr(thing, part):
                thing = getattr(thing, part)
            else:
                break
        else:
            yield thing


def problem(text: str) -> str | None:
    """Why a name in the docs does not exist, or None."""
    if text.startswith("src/"):
        return None if (ROOT / text).exists() else "no such path"
    if text.startswith("tests/"):
        match = TEST.fullmatch(text)
        if match is None or not (ROOT / match[1]).is_file():
            return "no such test file"
        tree = ast.parse((ROOT / match[1]).read_text())
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        return None if match[2] is None or match[2] in names else "no such test"
    match = CODE.fullmatch(text)
    if match is None:
        return "neither a dotted name nor a name with one parameter"
    found = list(meanings(match[1]))
    if match[2] is None:
        return None if found else "no such name"
    called = [thing for thing in found if callable(thing)]
    known = any(match[2] in inspect.signature(thing).parameters for thing in called)
    return None if known else f"no parameter {match[2]!r}"


@pytest.mark.parametrize("file", DOCS, ids=lambda file: file.name)
def test_what_the_docs_name_exists(file: Path) -> None:
    named = [(n, text) for n, text in spans(file) if text.startswith(("tasid.", "tests/", "src/"))]
    wrong = [(n, text, problem(text)) for n, text in named if problem(text)]
    assert not wrong
    if file.name in ("paper-map.md", "notation.md"):
        assert len(named) > 50


@pytest.mark.parametrize(
    "text",
    [
        "tasid.maps.no_such_name",
        "tasid.maps.AbstractSimulator.no_such_field",
        "tasid.robust_dp(beta)",
        "tasid.make: builds",
        "tests/test_architecture.py::test_no_such_test",
        "tests/no_such_file.py",
        "src/tasid/no_such_package",
    ],
)
def test_the_docs_check_sees_what_it_should(text: str) -> None:
    assert problem(text)


@pytest.mark.parametrize("file", DOCS, ids=lambda file: file.name)
def test_links_between_the_docs_lead_somewhere(file: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", file.read_text())
    assert not [target for target in targets if not (file.parent / target).exists()]


def test_every_row_of_the_paper_map_names_code_or_owns_up() -> None:
    text = (ROOT / "docs" / "paper-map.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines if "| code | tests |" not in line]
    assert len(rows) > 40
    for row in rows:
        assert len(row) == 3, row
        _, code, tests = row
        built = "`tasid." in code
        assert built or "not yet" in code or "nothing to build" in code, row
        if built:
            assert "`tests/" in tests or "no test" in tests, row


def test_defaults_are_the_papers() -> None:
    """Table 1 and the text of appendix D, for the combination lock."""
    config = FitConfig()
    assert (config.learning_rate, config.batch_size, config.clip) == (0.0003, 32, 0.25)
    assert (config.patience, config.max_epochs, config.training(1000)) == (10, 100, 800)
    env = tasid.make("combination-lock", horizon=20)
    assert paper_network(env.target) == MLP(32, 10, (56, 56))
    assert (env.simulator.num_actions, env.options["eta"], env.options["noise"]) == (10, 0.1, 0.1)


def test_no_two_classes_share_a_name() -> None:
    homes: dict[str, list[str]] = {}
    for file in MODULES:
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(file.relative_to(SOURCE)))
    assert not {name: files for name, files in homes.items() if len(files) > 1}


def test_every_package_and_every_module_is_in_the_picture_of_the_house() -> None:
    picture = (ROOT / "docs" / "architecture.md").read_text()
    assert not [name for name in FLOORS if f"tasid.{name}" not in picture]
    tree = picture.split("## Where things are")[1].split("```")[1]
    shown: dict[str, set[str]] = {}
    folder = [""]
    for line in tree.splitlines():
        head = re.match(r"( *)(\w+)/ ", line)
        if head:
            folder = [*folder[: len(head[1]) // 2], head[2]]
        words = set(re.findall(r"\w+", line.removeprefix(head[0]) if head else line))
        shown.setdefault("/".join(folder), set()).update(words)
    for file in MODULES:
        package = str(file.parent.relative_to(SOURCE))
        if not file.name.startswith("__") and package != "cli":
            assert file.stem in shown[package], f"{package}: {file.stem} is not in the picture"


# ---------------------------------------------------------------- the public face


def test_about_twenty_public_names_each_with_a_docstring() -> None:
    assert 15 <= len(tasid.__all__) <= 25
    for name in tasid.__all__:
        public = getattr(tasid, name)
        assert public.__doc__, name
        # A dataclass without a docstring gets its signature for one.
        assert not public.__doc__.startswith(f"{name}("), name
    assert set(tasid.__all__) <= set(dir(tasid))
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = tasid.no_such_name


@pytest.mark.parametrize(
    "function",
    [
        *(thing for thing in map(partial(getattr, tasid), tasid.__all__) if isfunction(thing)),
        beliefs.filter_beliefs,
        beliefs.smooth_beliefs,
    ],
    ids=lambda function: function.__name__,
)
def test_public_functions_say_what_every_parameter_is(function: Any) -> None:
    named = re.findall(r"^ {8}(\w+): ", function.__doc__.partition("Args:")[2], re.MULTILINE)
    assert [name for name in named if name != "Undecided"] == list(
        inspect.signature(function).parameters
    )


def test_type_checkers_see_the_same_public_names() -> None:
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    seen = {
        alias.asname: node.module
        for block in tree.body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(seen) == sorted(tasid.__all__)
    for name, module in seen.items():
        assert getattr(importlib.import_module(str(module)), name) is getattr(tasid, name)


PROBE = """
import json, logging, os, sys, threading

def threads():
    tasks = "/proc/self/task"  # threads of libraries too, where the system tells
    return threading.active_count(), len(os.listdir(tasks)) if os.path.isdir(tasks) else 0

def settings():
    import jax, numpy
    loggers = [logging.root, *(logging.getLogger(n) for n in ("jax", "tasid"))]
    return {
        "jax": {name: repr(value) for name, value in jax.config.values.items()},
        "numpy": [numpy.geterr(), repr(numpy.get_printoptions())],
        "numpy.random": repr(numpy.random.get_state()[1].tolist()),
        "logging": [[log.level, repr(log.handlers), log.disabled] for log in loggers],
        "environment": dict(os.environ),
    }

report = {"threads at first": threads(), "environment": dict(os.environ)}
import tasid
report["threads after import"] = threads()
report["environment kept"] = report.pop("environment") == dict(os.environ)
report["imported"] = sorted({"jax", "numpy", "optax"} & sys.modules.keys())

import jax.numpy, numpy.random, optax, safetensors.numpy, scipy.linalg
before, running = settings(), threads()
for name in tasid.__all__:
    getattr(tasid, name)
after = settings()
report["changed"] = [name for name in before if before[name] != after[name]]
report["started"] = [now - then for now, then in zip(threads(), running)]
print(json.dumps(report))
"""


def test_importing_configures_nothing_and_starts_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["imported"] == []
    assert report["threads after import"] == report["threads at first"]
    assert report["environment kept"]
    assert report["changed"] == []
    assert report["started"] == [0, 0]
