"""Outcome tables, against brute force on random maps."""

from __future__ import annotations

from hypothesis import given

from mdps import quick, worlds
from tasid.maps.outcomes import outcomes


@quick
@given(worlds())
def test_outcomes_are_the_distinct_successors(sim):
    found = outcomes(sim)
    for h in range(sim.horizon):
        at = (lambda t, h=h: t[h]) if sim.successor.ndim == 3 else (lambda t: t)
        for s in range(sim.num_states):
            row = sim.successor_at(h)[s].tolist()
            distinct = sorted(set(row))
            assert at(found.number)[s] == len(distinct)
            assert at(found.exists)[s].tolist() == [o < len(distinct) for o in range(found.most)]
            for o, to in enumerate(distinct):
                assert at(found.successor)[s, o] == to
                assert at(found.representative)[s, o] == row.index(to)
            assert [distinct[o] for o in at(found.of_action)[s]] == row
