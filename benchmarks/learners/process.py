"""Programs that run in .venv-learners and answer with a line of JSON."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.peers.process import installed

Answer = dict[str, Any]


def answer(script: str, *arguments: object) -> Answer:
    """What one of this folder's programs says last."""
    done = subprocess.run(
        [installed("learners"), str(Path(__file__).with_name(script)), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": ""},
    )
    if done.returncode:
        raise RuntimeError(f"{script} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])
