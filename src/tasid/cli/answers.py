"""How commands answer: one JSON object, or a few lines of words."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from itertools import groupby
from textwrap import fill
from typing import Any


def print_json(value: dict[str, Any]) -> None:
    print(json.dumps(value, allow_nan=False))


def answer(
    result: dict[str, Any], in_words: Callable[[dict[str, Any]], None], *, as_json: bool
) -> None:
    """One JSON object, or a few lines of words."""
    (print_json if as_json else in_words)(result)


def notice(words: str) -> None:
    """Something that is no answer, and that no script should read."""
    print(f"tasid: {words}", file=sys.stderr)


def counted(number: int, what: str = "episodes") -> str:
    """So many, or one, of what is named in the plural."""
    return f"{number} {what.removesuffix('s') if number == 1 else what}"


def print_training(result: dict[str, Any]) -> None:
    print(f"learned from {counted(result['episodes'])} in {result['seconds']:.1f} s")
    if "starts" in result:
        print_starts(result["starts"])
    print_scores(result)
    accuracy = result["decoder_accuracy"]
    if accuracy is not None:
        print(f"decoder accuracy  {accuracy:.4f}  (mean over steps)")
    print_learned(result)


def print_learned(result: dict[str, Any]) -> None:
    """What learning noticed, from a target or from a log, and where the policy is."""
    estimate = result["eta_estimate"]
    if estimate is not None:
        low, high = estimate["low"], estimate["high"]
        print(f"estimated η       {estimate['rate']:.4f}  (95 % interval {low:.4f} … {high:.4f})")
    print(f"model             {result['model']}")
    print_certificate(result.get("certificate"))
    for one, other in result.get("symmetric_starts", []):
        print(
            f"note: on this map nothing tells the starts {one} and {other} apart; no return is lost"
        )
    for warning in result["warnings"]:
        print(f"warning: {warning}")
    print(f"policy            {result['policy']}")


def print_certificate(record: dict[str, Any] | None) -> None:
    if record is None:
        return
    from tasid.policies.certificate import ReturnCertificate

    verdict = "void" if record["void"] else "passed" if record["passed"] else "not passed"
    print(f"certificate       {verdict}, by {counted(record['episodes'], 'fresh episodes')}")
    print(fill(ReturnCertificate.of(record).summary(), 88))


def print_plan(result: dict[str, Any], flips: str) -> None:
    print(
        f"{result['states']} states, {result['actions']} actions, horizon {result['horizon']}, "
        f"η = {result['eta']}"
    )
    print(f"worst-case value of the robust plan   {result['worst_case_value']:.6g}")
    print(f"its value if nothing is perturbed     {result['nominal_value']:.6g}")
    print(f"best value if nothing is perturbed    {result['best_nominal_value']:.6g}")
    print(f"proof of optimality (saddle gap)      {result['certificate_gap']:.1e}")
    if "implied_eta" in result:
        print(f"η of the environment on this map      {result['implied_eta']:.6g}")
    states = [state for state, _ in groupby(step["state"] for step in result["route"])]
    print("route " + " → ".join(map(str, states)))
    if result["arrives"] is False:
        print(_no_way(result, stays=len(states) == 1))
    print(flips)
    if "png" in result:
        print(f"picture {result['png']}")


def _no_way(result: dict[str, Any], *, stays: bool) -> str:
    if not result["goal_in_reach"]:
        return "The plan does not go to a goal: on this map no way leads to one from the start."
    return (
        f"The plan {'stays where it is' if stays else 'does not go to a goal'}: against "
        f"η = {result['eta']:g} and within {result['horizon']} steps nothing is gained by going, "
        "the steps and the risk on the way cost as much as a goal pays. A longer --horizon, a "
        "smaller --eta or more reward (--set goal_reward=…) may change that."
    )


def print_scores(result: dict[str, Any]) -> None:
    low, high = result["return_ci95"]
    interval = "" if low is None else f"  (95 % interval {low:.4f} … {high:.4f})"
    print(f"return            {result['return_mean']:.4f}{interval}")
    print_worst_case(result)
    if result["robust_value"] is None:
        return
    print(f"robust value      {result['robust_value']:.4f}  (exact, with the latent state in view)")
    print(f"blind value       {result['blind_value']:.4f}  (exact, best without looking)")
    if result["ratio"] is not None:
        print(f"ratio             {result['ratio']:.4f}")
    elif result["difference"] is not None:
        print(f"difference        {result['difference']:+.4f}  (of the range of returns)")
    skill = result["skill"]
    print("skill             " + ("unknown" if skill is None else f"{skill:.4f}"))
    if result["ratio"] is not None and result["blind_value"] > 0.5 * result["robust_value"]:
        print("note: here a blind policy earns over half the robust value: weak evidence of skill")


def print_worst_case(result: dict[str, Any]) -> None:
    worst = result.get("worst_case_value")
    if worst is not None:
        print(f"worst case        {worst:.4f}  (exact, of the plan with the latent state in view)")


def print_starts(starts: dict[str, Any]) -> None:
    shares = ", ".join(f"{one['state']} {one['share']:.0%}" for one in starts["clusters"])
    known = "" if starts["accuracy"] is None else f", right in {starts['accuracy']:.1%}"
    print(f"starts            {starts['episodes']} of these to tell them apart{known}: {shares}")
