"""`tasid budget`: the theory's episode counts."""

from __future__ import annotations

from typing import Annotated

import typer

from tasid.cli.answers import answer
from tasid.cli.arguments import Json


def budget(
    context: typer.Context,
    horizon: Annotated[int, typer.Option(help="Steps per episode H.")] = 40,
    actions: Annotated[int, typer.Option(help="Number of actions |A|.")] = 10,
    eta: Annotated[float, typer.Option(help="Perturbation level η.")] = 0.1,
    epsilon: Annotated[float, typer.Option(help="Loss ε against the robust policy.")] = 0.5,
    delta: Annotated[float, typer.Option(help="Probability δ of failing.")] = 0.1,
    log_class_size: Annotated[
        float | None,
        typer.Option(help="ln|F|; if not given, of the paper's network on the lock, 32 bits each."),
    ] = None,
    return_range: Annotated[
        float | None, typer.Option(help="Length G of an interval of all returns; H if not given.")
    ] = None,
    outcomes: Annotated[
        int | None, typer.Option(help="Most outcomes k of a state; the lock's if not given.")
    ] = None,
    weight: Annotated[
        float | None, typer.Option(help="Least share w of roll-ins by the policy itself.")
    ] = None,
    starts: Annotated[int | None, typer.Option(help="Number of start states N.")] = None,
    min_probability: Annotated[
        float | None, typer.Option(help="Least start probability μ; 1/N if not given.")
    ] = None,
    margin: Annotated[float | None, typer.Option(help="Margin Γ between start states.")] = None,
    complexity: Annotated[float | None, typer.Option(help="Complexity C of clustering.")] = None,
    as_json: Json = False,
) -> None:
    """Count the episodes that the theory asks for, beside what practice needs."""
    from tasid.theory.budget_table import budget_table, in_words

    asked = {name: given for name, given in context.params.items() if name != "as_json"}
    table = budget_table(**asked)
    answer(table, lambda table: print(*in_words(table), sep="\n"), as_json=as_json)
