"""What all pages have in common: one HTML file with its style inside, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from tasid.report.figures.drawing import DARK, LIGHT
from tasid.report.text import wording

PAGE_NAME = "report.html"


def render_page(name: str, **values: Any) -> str:
    """A template, which extends `base.html`, as text."""
    environment = Environment(
        loader=PackageLoader("tasid.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    spelled = (wording.number, wording.percent, wording.count, wording.duration)
    said = (wording.episodes_of, wording.sentence, wording.unbroken)
    environment.filters.update({one.__name__: one for one in (*spelled, *said)})
    environment.globals["thin"] = wording.THIN
    return environment.get_template(name).render(
        light=_variables(LIGHT), dark=_variables(DARK), **values
    )


def _variables(palette: Mapping[str, str]) -> Markup:
    """A palette as CSS."""
    return Markup("; ".join(f"--{name}: {code}" for name, code in palette.items()))
