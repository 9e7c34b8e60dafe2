"""Runs that are equally alike to a question, on a shelf: in the order of their points, to be taken from in turn."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple


class Spot(NamedTuple):
    """Where on a shelf a run stands: by distance of its point from the reference point, by point, and by id."""

    reference_distance: float
    point: bytes
    run_id: str


Shelf = Sequence[Spot]  # in order


def shelved(shelf: Shelf, *, gone: Iterable[Spot], new: Iterable[Spot]) -> Shelf:
    """Another shelf. Sorting it anew would compare all that stands there."""
    spots = list(shelf)
    for spot in gone:
        del spots[bisect_left(spots, spot)]
    for spot in new:
        insort(spots, spot)
    return spots


def in_turn(shelf: Shelf, is_wanted: Callable[[Spot], bool] | None = None) -> Iterator[Spot]:
    """One run of each point, then the second of each, and so on; within a turn by distance and id.

    So repeats of some points, which a nightly test makes, keep no other point out of a pool. Looks at no more of the
    shelf than is taken, however long it is.
    """
    turns: Iterable[tuple[float, Iterator[Spot]]] = _points(shelf, is_wanted)
    while turns:
        left = []
        for distance, tied in groupby(turns, key=lambda each: each[0]):
            some = []
            for _, runs in tied:
                if (run := next(runs, None)) is not None:
                    some.append(run)
                    left.append((distance, runs))
            yield from sorted(some, key=attrgetter("run_id"))
        turns = left


def _points(shelf: Shelf, is_wanted: Callable[[Spot], bool] | None) -> Iterator[tuple[float, Iterator[Spot]]]:
    """Each point's distance and runs."""
    start = 0
    while start < len(shelf):
        distance, point, _ = shelf[start]
        end = bisect_left(shelf, (distance, point + b"\0"), start)  # behind every id of this point
        yield distance, filter(is_wanted, map(shelf.__getitem__, range(start, end)))
        start = end
