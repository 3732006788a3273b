"""The command that makes a run again, from what run.json says was asked."""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Mapping
from typing import Any


def rerun_command(asked: Mapping[str, Any]) -> str | None:
    """`tasid train …` with everything said explicitly, or None if the record lacks a part.

    Defaults are spelled out too: a later version may have others.
    """
    try:
        name, given = asked["environment"]["name"], dict(asked["environment"]["options"])
        flags = [
            *_of_learner(asked),
            ("--seed", asked["seed"]),
            ("--evaluation-episodes", asked["evaluation_episodes"]),
        ]
    except (KeyError, TypeError, ValueError):
        return None
    flags += [
        (f"--{key}", asked[key]) for key in ("classes", "starts") if asked.get(key) is not None
    ]
    flags += _of_certificate(asked.get("certify"))
    if isinstance(asked.get("from_policy"), Mapping):
        flags.append(("--from-policy", asked["from_policy"].get("folder")))
    if isinstance(imports := asked.get("imports"), list):
        flags += [("--import", one) for one in imports]
    # Null is only ever a default, and the command line has no word for it.
    options = {key: value for key, value in given.items() if value is not None}
    ours = not str(name).startswith("gym:")
    if ours and "horizon" in options:
        flags.insert(0, ("--horizon", options.pop("horizon")))
    if ours and options.get("eta") == asked.get("eta", 0.1):
        del options["eta"]
    if ours and "seed" in options:
        instance = options.pop("seed")
        if instance != asked["seed"]:
            flags.append(("--env-seed", instance))
    source = asked.get("simulator")
    if isinstance(source, dict):
        flags = [("--simulator", source.get("name")), ("--horizon", source.get("horizon")), *flags]
    words = [
        flag if value is True else f"{flag} {shlex.quote(str(value))}" for flag, value in flags
    ]
    on_map = source.get("options") if isinstance(source, dict) else None
    begins = options.pop("reset_options", {})
    for flag, said in (("--map", on_map), ("--reset-option", begins), ("--set", options)):
        pairs = said.items() if isinstance(said, dict) else ()
        words += [f"{flag} {shlex.quote(f'{key}={_toml(value)}')}" for key, value in pairs]
    return _wrapped([f"tasid train {shlex.quote(str(name))}", *words])


def _of_certificate(asked: Any) -> list[tuple[str, Any]]:
    if not isinstance(asked, Mapping):
        return []
    given = [(f"--certify-{name}", value) for name, value in asked.items() if value is not None]
    return [("--certify", True), *given]


def _of_learner(asked: Mapping[str, Any]) -> list[tuple[str, Any]]:
    if asked.get("algorithm", "tasid") == "tasid":
        return [(f"--{name}", asked[name]) for name in ("eta", "episodes", "method")]
    baseline = asked["baseline"]
    flags = [("--algorithm", asked["algorithm"]), ("--episodes", baseline["target_episodes"])]
    if baseline["epopt_epsilon"] != 1.0:
        flags.append(("--epopt-epsilon", baseline["epopt_epsilon"]))
    return flags


def _wrapped(words: list[str]) -> str:
    """Shell lines of about 72 letters, each but the last continued."""
    lines = [words[0]]
    for word in words[1:]:
        if len(lines[-1]) + 1 + len(word) > 72:
            lines.append(f"  {word}")
        else:
            lines[-1] += f" {word}"
    return " \\\n".join(lines)


def _toml(value: Any) -> str:
    """A value as `--set` reads it: TOML, or bare text that is none."""
    if not isinstance(value, str):
        return json.dumps(value)
    try:
        tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError:
        return value
    return json.dumps(value)
