"""Files that were damaged on their way: none is read as if nothing had happened."""

from __future__ import annotations

import random
import sys
from pathlib import Path

from benchmarks.torture.count import Count
from benchmarks.torture.samples import samples


def mutations(place: Path, number: int, dice: random.Random) -> Count:
    """Flips, truncations, additions and swapped parts: refused, all of them."""
    from tasid.files import ArtifactError

    found = samples(place)
    good = {name: one.whole() for name, one in found.items()}
    parts = [data for files in good.values() for data in files.values()]
    kept = 0
    for turn in range(number):
        name = list(found)[turn % len(found)]
        path = dice.choice(list(good[name]))
        bad = whole = good[name][path]
        while bad == whole:
            bad = _mutated(whole, parts, dice)
        path.write_bytes(bad)
        try:
            found[name].read(path.parent)
            print(f"{name}: {path.name} was read", file=sys.stderr)
        except ArtifactError:
            kept += 1
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
        path.write_bytes(whole)
    return Count("mutated files: policies, logs, maps, records", number, kept, "refused as damaged")


def _mutated(data: bytes, others: list[bytes], dice: random.Random) -> bytes:
    kind, place = dice.randrange(5), dice.randrange(len(data))
    if kind == 0:
        return data[:place] + bytes([data[place] ^ 1 << dice.randrange(8)]) + data[place + 1 :]
    if kind == 1:
        return data[:place]
    if kind == 2:
        return data + dice.randbytes(dice.randint(1, 40))
    other = dice.choice(others)
    return other if kind == 3 else data[:place] + other[place:]
