"""Report pages taken apart, and runs spoiled on purpose."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

from tasid.files import read_artifact, write_artifact
from tasid.report import build_report

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """A page as a list of elements with their attributes, ancestors and own text."""

    def __init__(self, text):
        super().__init__()
        self.elements, self._open = [], []
        self.feed(text)
        self.close()
        assert not self._open, "elements left open"

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(set(names)) == len(names), f"an attribute twice in {tag}"
        self._add(tag, attrs)
        if tag not in VOID:
            self._open.append(self.elements[-1])

    def handle_startendtag(self, tag, attrs):
        assert any(e["tag"] == "svg" for e in [*self._open, {"tag": tag}]), "only SVG closes itself"
        self._add(tag, attrs)

    def handle_endtag(self, tag):
        assert self._open.pop()["tag"] == tag

    def handle_data(self, data):
        for element in self._open:
            element["text"] += data

    def _add(self, tag, attrs):
        inside = tuple(e["attributes"].get("id") or e["tag"] for e in self._open)
        self.elements.append({"tag": tag, "attributes": dict(attrs), "in": inside, "text": ""})

    def all(self, *tags):
        return [e for e in self.elements if e["tag"] in tags]

    def table(self, name):
        """The rows of the table with this id, the head first, as lists of cells."""
        (start,) = [
            i
            for i, e in enumerate(self.elements)
            if e["tag"] == "table" and e["attributes"].get("aria-labelledby") == f"{name}-caption"
        ]
        rows = []
        for element in self.elements[start + 1 :]:
            if element["tag"] not in ("thead", "tbody", "tr", "th", "td"):
                break
            if element["tag"] == "tr":
                rows.append([])
            if element["tag"] in ("th", "td"):
                rows[-1].append(element["text"])
        return rows

    def text(self, tag="body"):
        (element,) = self.all(tag)
        return re.sub(r"[ \n]+", " ", element["text"])


def page_of(folder):
    return Page(build_report(folder).read_text())


def rewrite(folder, *, drop=(), arrays=(), **changes):
    """Write a run's evaluation again with other content, properly sealed."""
    stored = read_artifact(folder / "evaluation")
    kept = {name: a for name, a in stored.arrays.items() if name not in drop}
    metadata = {key: v for key, v in stored.metadata.items() if key not in drop}
    write_artifact(
        folder / "evaluation",
        kind="evaluation",
        metadata=metadata | changes,
        arrays=kept | dict(arrays),
    )


def edit_asked(folder, change):
    asked = json.loads((folder / "run.json").read_text())
    change(asked)
    (folder / "run.json").write_text(json.dumps(asked))
