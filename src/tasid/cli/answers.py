"""How commands answer: one JSON object, or a few lines of words."""

from __future__ import annotations

import json
from typing import Any


def print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value, allow_nan=False))


def print_scores(result: dict[str, Any]) -> None:
    low, high = result["return_ci95"]
    interval = "" if low is None else f"  (95 % interval {low:.4f} … {high:.4f})"
    print(f"return            {result['return_mean']:.4f}{interval}")
    if result["robust_value"] is None:
        return
    print(f"robust value      {result['robust_value']:.4f}  (exact, with the latent state in view)")
    print(f"blind value       {result['blind_value']:.4f}  (exact, best without looking)")
    for name in ("ratio", "skill"):
        value = result[name]
        print(f"{name:<17} " + ("unknown" if value is None else f"{value:.4f}"))
    if result["blind_value"] > 0.5 * result["robust_value"]:
        print("note: here a blind policy earns over half the robust value: weak evidence of skill")


def print_starts(starts: dict[str, Any]) -> None:
    shares = ", ".join(f"{one['state']} {one['share']:.0%}" for one in starts["clusters"])
    known = "" if starts["accuracy"] is None else f", right in {starts['accuracy']:.1%}"
    print(f"starts            {starts['episodes']} of these to tell them apart{known}: {shares}")
