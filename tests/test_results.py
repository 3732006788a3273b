"""Tables in documents are what their commands print from the runs on record."""

from __future__ import annotations

import pytest
from benchmarks.tables import DOCUMENTS, ROOT, TABLES, filled


@pytest.mark.parametrize("document", DOCUMENTS)
def test_tables_show_the_runs_on_record(document):
    text = (ROOT / document).read_text()
    assert filled(text) == text


def test_every_table_stands_somewhere():
    shown = "".join((ROOT / document).read_text() for document in DOCUMENTS)
    assert all(f"<!-- table {name} -->" in shown for name in TABLES)
