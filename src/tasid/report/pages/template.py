"""What all pages have in common: one HTML file with its style inside, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from tasid.report.figures.drawing import DARK, LIGHT

PAGE_NAME = "report.html"


def render_page(name: str, filters: Mapping[str, Callable[..., Any]], **values: Any) -> str:
    """A template, which extends `base.html`, as text."""
    environment = Environment(
        loader=FunctionLoader(_resource),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(filters)
    return environment.get_template(name).render(
        css=Markup(_resource("style.css")),
        light=_variables(LIGHT),
        dark=_variables(DARK),
        **values,
    )


def _variables(palette: Mapping[str, str]) -> Markup:
    """A palette as CSS."""
    return Markup("; ".join(f"--{name}: {code}" for name, code in palette.items()))


def _resource(name: str) -> str:
    """A template or a style."""
    return files("tasid.report").joinpath("templates", name).read_text(encoding="utf-8")
