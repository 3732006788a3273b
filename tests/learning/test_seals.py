"""What tells apart the data that fits were made of."""

from __future__ import annotations

import numpy as np

from tasid.learning.memory import seal_of


def test_a_seal_is_of_numbers_kinds_and_shapes():
    """The same bytes in another shape are other data: fits of theirs would not fit."""
    table = np.arange(6)
    assert seal_of(table, table) == seal_of(table.copy(), table)
    others = (table[None], table.reshape(2, 3), table.view(np.uint64), table + 1)
    assert len({seal_of(one) for one in (table, *others)}) == 5
