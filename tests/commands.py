"""Commands run in this process, as tests of several folders run them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tasid.cli import main


def run(capsys: Any, *arguments: Any, code: int = 0) -> Any:
    """What a command printed; it must end with this code."""
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    got = capsys.readouterr()
    assert (stop.value.code or 0) == code, got.err
    return got


def run_json(capsys: Any, *arguments: Any) -> Any:
    """The object that a command answers with `--json`."""
    out = run(capsys, *arguments, "--json").out
    assert out.count("\n") == 1, "one object, nothing else"
    return json.loads(out)
