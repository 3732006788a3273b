"""Figures and pages, made from recorded files alone; each imported on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tasid.report.figures.pictures import plan_picture as plan_picture
    from tasid.report.pages.page import build_report as build_report

_HOME = {"build_report": "tasid.report.pages.page", "plan_picture": "tasid.report.figures.pictures"}
__all__ = ["build_report", "plan_picture"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    raise AttributeError(f"module 'tasid.report' has no attribute {name!r}")
