"""Predicts every measured run from the others, with ever more left out, and keeps what was missed by how much."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.calibration.fit import Sample, refit
from service.calibration.folds import Fold, Tier, campaign_of, folds
from service.catalogue.benchmark_evidence import Measurement, evidence_runs
from service.sizing.evidence import EvidenceStore
from service.sizing.kernel import RATES_KERNEL, TTFT_KERNEL, Kernel
from service.sizing.run_identity import Configuration, Run, as_question
from service.sizing.run_terms import Phase
from service.sizing.run_time import FITTED_VALUES

FOLD_EVALUATIONS = 8  # of a refit that starts from the numbers of all rows


@dataclass(frozen=True, slots=True)
class Missed:
    """One run, predicted without its fold. Errors are ln(predicted / measured); ``sd`` is kriging's, before any
    factor for coverage."""

    tier: Tier
    fold: str
    phase: Phase
    campaign: str
    accelerator: str
    engine: str
    weights: str
    hardware_group: str
    error: float
    physics_error: float
    sd: float
    distance: float
    factor: float


Kernels = tuple[Kernel, Kernel]


def cross_validate(
    rows: Sequence[Measurement],
    tiers: Iterable[Tier],
    *,
    refits: bool = True,
    numbers: Mapping[str, float] = FITTED_VALUES,
    kernels: Kernels = (RATES_KERNEL, TTFT_KERNEL),
    progress: Callable[[str], None] = lambda _: None,
) -> list[Missed]:
    """Errors of every fold of the tiers. With ``refits`` the physics' numbers are refitted without each fold, starting
    from these; without, these have seen every fold."""
    sample = Sample.of(rows)
    numbers = refit(sample, numbers).numbers if refits else numbers
    missed: list[Missed] = []
    for tier in tiers:
        for fold in folds(tier, rows):
            own = numbers
            if refits and fold.is_worth_a_refit:
                own = refit(sample.only(~fold.left_out), numbers, most_evaluations=FOLD_EVALUATIONS).numbers
            missed.extend(_fold_missed(fold, rows, own, kernels))
        progress(f"{tier}: {sum(each.tier is tier for each in missed)} runs predicted")
    return missed


def _fold_missed(
    fold: Fold, rows: Sequence[Measurement], numbers: Mapping[str, float], kernels: Kernels
) -> Iterable[Missed]:
    runs = evidence_runs(rows, numbers)
    store = EvidenceStore.of((run for run, out in zip(runs, fold.left_out, strict=True) if not out), kernels=kernels)
    return predicted_from(store, fold, rows, runs, fold.left_out)


def predicted_from(
    store: EvidenceStore, fold: Fold, rows: Sequence[Measurement], runs: Sequence[Run], wanted: NDArray[np.bool_]
) -> Iterable[Missed]:
    """The wanted runs as the store predicts them; who measured them is not known to it."""
    by_configuration: dict[Configuration, list[int]] = {}
    for row in np.flatnonzero(wanted).tolist():
        by_configuration.setdefault(as_question(runs[row].configuration), []).append(row)
    for configuration, members in by_configuration.items():
        near = store.about(configuration)
        for row in members:
            run, measurement = runs[row], rows[row]
            answer = near.at(run.point)
            kernel = store.kernels[run.configuration.phase is Phase.TTFT]
            yield Missed(
                tier=fold.tier,
                fold=fold.name,
                phase=run.configuration.phase,
                campaign=campaign_of(measurement),
                accelerator=run.configuration.accelerator,
                engine=measurement.setup.engine,
                weights=run.configuration.weight_class,
                hardware_group=run.configuration.hardware_group or "",
                error=answer.shift - run.log_residual,
                physics_error=-run.log_residual,
                sd=answer.distance * kernel.prior_sd,
                distance=answer.distance,
                factor=answer.factor,
            )
