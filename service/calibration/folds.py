"""What is left out in each tier of cross-validation: ever larger parts of what an answer could lean on."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from service.catalogue.benchmark_evidence import Measurement
from service.sizing.run_identity import DATA_CENTRE, hardware_group
from service.sizing.run_terms import Phase

SERIES_FOLDS = 5
FEWEST_ROWS = 8  # of a pair or an accelerator, to be left out on its own
FEWEST_ELSEWHERE = 4  # of a model on other engines
FEWEST_TO_REFIT = 5  # a smaller group moves no number
# TTFT goes with its run's TPOT, and disaggregated runs have tiers of their own (disaggregated.py).
NOT_COUNTED = (Phase.TTFT, Phase.DISAGGREGATED)


class Tier(StrEnum):
    """From a new sweep of something known to a vendor never seen."""

    SERIES = "series"
    CAMPAIGN = "campaign"
    PAIR = "pair"
    ACCELERATOR = "accelerator"
    MODEL = "model"
    MODEL_ENGINE = "model-engine"
    VENDOR = "vendor"


TUNED_TIERS = tuple(tier for tier in Tier if tier is not Tier.VENDOR)


@dataclass(frozen=True, slots=True, eq=False)
class Fold:
    """The rows that are left out, and predicted from the rest."""

    tier: Tier
    name: str
    left_out: NDArray[np.bool_]

    @property
    def is_worth_a_refit(self) -> bool:
        return int(self.left_out.sum()) >= FEWEST_TO_REFIT


def campaign_of(measurement: Measurement) -> str:
    """Who measured what on what: the runs that are likely to be wrong together."""
    c = measurement.configuration
    return f"{c.campaign} | {c.architecture} | {measurement.setup.engine} | {c.accelerator}"


def folds(tier: Tier, rows: Sequence[Measurement]) -> Iterator[Fold]:
    """In a fixed order. TTFT goes with the run that it belongs to, and is not counted; nor are disaggregated runs."""
    match tier:
        case Tier.SERIES:
            names = [str(crc32(row.published.series.encode()) % SERIES_FOLDS) for row in rows]
            yield from _each(tier, names, lambda _: True)
        case Tier.CAMPAIGN:
            yield from _each(tier, [campaign_of(row) for row in rows], lambda _: True)
        case Tier.ACCELERATOR:
            accelerators = [row.configuration.accelerator for row in rows]
            counts = _counts(rows, accelerators)
            yield from _each(tier, accelerators, lambda name: counts[name] >= FEWEST_ROWS)
        case Tier.MODEL:
            yield from _each(tier, [row.setup.model.name for row in _alike(rows)], lambda _: True)
        case Tier.PAIR:
            yield from _pairs(rows)
        case Tier.MODEL_ENGINE:
            yield from _model_engines(rows)
        case Tier.VENDOR:
            yield from _each(tier, [_left_out_together(row) for row in rows], lambda name: name != DATA_CENTRE)


def _each(tier: Tier, names: Sequence[str], is_wanted: Callable[[str], bool]) -> Iterator[Fold]:
    for name in sorted(set(names)):
        if is_wanted(name):
            yield Fold(tier, name, np.array([each == name for each in names]))


def _counts(rows: Sequence[Measurement], names: Sequence[str]) -> Mapping[str, int]:
    return Counter(name for row, name in zip(rows, names, strict=True) if row.configuration.phase not in NOT_COUNTED)


def _alike(rows: Sequence[Measurement]) -> list[Measurement]:
    """Each row stood for by the first of its model's shape, so that models of one shape are left out together."""
    first: dict[str, Measurement] = {}
    return [first.setdefault(row.configuration.architecture, row) for row in rows]


def _pairs(rows: Sequence[Measurement]) -> Iterator[Fold]:
    """Accelerator and model, each known elsewhere."""
    accelerators = [row.configuration.accelerator for row in rows]
    models = [row.setup.model.name for row in _alike(rows)]
    pairs = [f"{model} on {accelerator}" for model, accelerator in zip(models, accelerators, strict=True)]
    by_accelerator, by_model, by_pair = (_counts(rows, names) for names in (accelerators, models, pairs))
    known = {
        pair
        for pair, accelerator, model in zip(pairs, accelerators, models, strict=True)
        if by_pair[pair] >= FEWEST_ROWS
        and by_accelerator[accelerator] - by_pair[pair] >= FEWEST_ROWS
        and by_model[model] - by_pair[pair] >= FEWEST_ROWS
    }
    yield from _each(Tier.PAIR, pairs, known.__contains__)


def _model_engines(rows: Sequence[Measurement]) -> Iterator[Fold]:
    models = [row.setup.model.name for row in _alike(rows)]
    engines = [f"{model} under {row.setup.engine}" for model, row in zip(models, rows, strict=True)]
    by_model, by_engine = _counts(rows, models), _counts(rows, engines)
    known = {
        engine
        for engine, model in zip(engines, models, strict=True)
        if by_model[model] - by_engine[engine] >= FEWEST_ELSEWHERE
    }
    yield from _each(Tier.MODEL_ENGINE, engines, known.__contains__)


def _left_out_together(row: Measurement) -> str:
    """All of a vendor, but of NVIDIA one group of parts."""
    accelerator = row.setup.accelerator
    return hardware_group(accelerator) if accelerator.vendor == "NVIDIA" else accelerator.vendor
