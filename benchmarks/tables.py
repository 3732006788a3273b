"""Put what the runs on record say into the documents: `python -m benchmarks tables`.

A table stands between `<!-- table NAME -->` and `<!-- end of table -->`.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import belief_table, building_table, trust_table

ROOT = Path(__file__).resolve().parents[1]
_BELIEF = ROOT / "results" / "belief" / "runs.jsonl"
_TRUST = ROOT / "results" / "belief" / "trust.jsonl"
_BUILDING = ROOT / "results" / "building" / "runs.jsonl"
TABLES: dict[str, Callable[[], str]] = {
    "belief in short": lambda: belief_table.brief(_BELIEF),
    "belief": lambda: belief_table.recorded(_BELIEF),
    "trust": lambda: trust_table.recorded(_TRUST),
    "building in short": lambda: building_table.brief(_BUILDING),
    "building": lambda: building_table.recorded(_BUILDING),
}
DOCUMENTS = (
    "README.md",
    "docs/belief-method.md",
    "docs/robot.md",
    "results/belief/README.md",
    "results/building/README.md",
)
_TABLE = re.compile(r"(<!-- table (.+?) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def run(arguments: Sequence[str]) -> None:
    """Write all documents anew that have tables."""
    argparse.ArgumentParser(prog="python -m benchmarks tables", description=__doc__).parse_args(
        arguments
    )
    for name in DOCUMENTS:
        path = ROOT / name
        text = path.read_text()
        path.write_text(filled(text))
        print(f"{name}: {'as it was' if path.read_text() == text else 'written anew'}")


def filled(text: str) -> str:
    """A document with its tables as they should be."""
    return _TABLE.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}\n{found[3]}", text)
