"""What a first stored run of a new combination is worth: accelerators left out, and a few of their runs given back.

A combination is a model on an accelerator under an engine, in a weight class and a phase. Five of its rows, spread over
its loads, are given one after another, the middle one first, and are never scored, so that every count is scored on the
same rows. Each combination is given its own rows alone.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from service.calibration.cross_validation import FOLD_EVALUATIONS, Missed, predicted_from
from service.calibration.fit import Sample, refit
from service.calibration.folds import Fold, Tier, folds
from service.catalogue.benchmark_evidence import Measurement, evidence_runs
from service.sizing.evidence import EvidenceStore
from service.sizing.run_time import FITTED_VALUES

GIVEN_COUNTS = (0, 1, 2, 5)
GIVING_ORDER = (2, 4, 0, 1, 3)  # of five rows from the lightest load to the heaviest
FEWEST_ROWS = 6


def value_of_uploads(rows: Sequence[Measurement], *, refits: bool = True) -> Mapping[int, list[Missed]]:
    """By how many runs of the combination are stored. With ``refits`` the physics has not seen the accelerator."""
    sample = Sample.of(rows)
    numbers = refit(sample).numbers if refits else FITTED_VALUES
    missed: dict[int, list[Missed]] = {count: [] for count in GIVEN_COUNTS}
    for fold in folds(Tier.ACCELERATOR, rows):
        own = numbers
        if refits:
            own = refit(sample.only(~fold.left_out), numbers, most_evaluations=FOLD_EVALUATIONS).numbers
        runs = evidence_runs(rows, own)
        store = EvidenceStore.of(run for run, out in zip(runs, fold.left_out, strict=True) if not out)
        for members in combinations(rows, fold):
            given = given_rows(rows, members)
            scored = np.zeros(len(rows), dtype=bool)
            scored[[row for row in members if row not in given]] = True
            for count in GIVEN_COUNTS:
                richer = store.with_runs(runs[row] for row in given[:count])
                missed[count].extend(predicted_from(richer, fold, rows, runs, scored))
    return missed


def combinations(rows: Sequence[Measurement], fold: Fold) -> Iterator[list[int]]:
    """Of the rows that are left out, those with enough rows to give five and score the others."""
    members: dict[tuple[object, ...], list[int]] = {}
    left_out: NDArray[np.int64] = np.flatnonzero(fold.left_out)
    for row in left_out.tolist():
        c = rows[row].configuration
        members.setdefault((c.architecture, c.engine, c.weight_class, c.phase), []).append(row)
    yield from (each for each in members.values() if len(each) >= FEWEST_ROWS)


def given_rows(rows: Sequence[Measurement], members: Sequence[int]) -> list[int]:
    """Five rows, evenly spread from the lightest load to the heaviest, in the order in which they are given."""
    ordered = sorted(members, key=lambda row: (_load(rows[row]), rows[row].id))
    last = len(ordered) - 1
    return [ordered[round(place * last / 4)] for place in GIVING_ORDER]


def _load(row: Measurement) -> tuple[float, float, float]:
    return float(row.terms.batch), row.setup.isl_tokens, row.setup.osl_tokens
