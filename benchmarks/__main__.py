"""python -m benchmarks [NAME [options]]: run one measurement, or list them."""

from __future__ import annotations

import ast
import runpy
import sys
from pathlib import Path

NAMES = (
    "regression",
    "planning",
    "belief_table",
    "auto",
    "speed",
    "memory",
    "faults",
    "building",
    "discover",
)


def main() -> None:
    """Run the named module as a program of its own."""
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print("python -m benchmarks NAME [options]; NAME --help lists the options. NAME is one of")
        for name in NAMES:
            source = Path(__file__).with_name(f"{name}.py").read_text()
            summary = (ast.get_docstring(ast.parse(source)) or "").splitlines()[0]
            print(f"  {name:<13} {summary}")
        return
    name = sys.argv.pop(1).replace("-", "_")
    if name not in NAMES:
        sys.exit(f"no benchmark {name!r}; there are: {', '.join(NAMES)}")
    sys.argv[0] = f"python -m benchmarks {name}"
    runpy.run_module(f"benchmarks.{name}", run_name="__main__")


if __name__ == "__main__":
    main()
