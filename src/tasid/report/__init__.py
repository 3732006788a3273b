"""Floor 5 — figures and pages, made from recorded files alone."""

from tasid.report.page import build_report
from tasid.report.pictures import plan_picture

__all__ = ["build_report", "plan_picture"]
