"""Output for terminals that lack our signs: η becomes eta, → becomes ->, others a question mark."""

from __future__ import annotations

import codecs
import sys

_NAME = "tasid-plain"
_PLAIN = {
    "η": "eta", "ε": "epsilon", "δ": "delta", "μ": "mu", "ξ": "xi", "π": "pi", "ρ": "rho",
    "Γ": "Gamma", "φ": "phi", "∞": "inf", "…": "...", "→": "->", "×": "x", "·": "*",
    "−": "-", "–": "-", "—": "-", "≤": "<=", "≥": ">=", "≈": "~", "±": "+-", "½": "1/2",
    "²": "^2", "³": "^3", "‘": "'", "’": "'", "“": '"', "”": '"', "\u00a0": " ",
}  # fmt: skip


def fall_back() -> None:
    """From now on, what a stream cannot encode is written in plain characters."""
    codecs.register_error(_NAME, _plain)
    for stream in (sys.stdout, sys.stderr):
        encoding = (getattr(stream, "encoding", None) or "utf-8").lower().replace("-", "")
        if not encoding.startswith("utf") and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=_NAME)


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    missing = error.object[error.start : error.end]
    return "".join(_PLAIN.get(sign, "?") for sign in missing), error.end
