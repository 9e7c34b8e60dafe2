"""Predicts published disaggregated systems from other runs, with ever more left out.

The step of a decode worker is the physics as corrected by the stored runs nearest to it; the closed form of
``sizing/disaggregated.py`` makes TPOT, TTFT and throughput of it. No number of that form is fitted to these runs.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from service.calibration.cross_validation import FOLD_EVALUATIONS
from service.calibration.fit import Array, Sample, refit
from service.calibration.folds import SERIES_FOLDS
from service.catalogue.benchmark_evidence import Measurement, evidence_runs, is_usable, measurements
from service.catalogue.benchmark_facts import PublishedRun
from service.catalogue.disaggregated_layout import pools_of
from service.catalogue.snapshot import Snapshot
from service.sizing.disaggregated import HANDOVERS, DisaggregatedPoint, DisaggregatedSystem, Pools, PrefillPool
from service.sizing.evidence import EvidenceStore
from service.sizing.run_identity import Point
from service.sizing.run_terms import ENGINE_NUMBERS, Phase, RunTerms, run_terms, stacked
from service.sizing.run_time import FITTED_VALUES, SHARES, run_time

SERIES: Final = "series"
AGGREGATED_ONLY: Final = "every disaggregated run"
BATCHES: Final = 9  # at which a step is predicted: between them it is nearly a straight line
DEFAULT_ENGINE: Final = "vllm"
WAITED_SHARE: Final = 0.1
HEADER: Final = (
    "| left out | runs | TPOT: median / p90 error % | tok/s per GPU | TTFT "
    "| by physics alone: TPOT, tok/s per GPU, TTFT | TPOT inside |\n|---|---|---|---|---|---|---|"
)


@dataclass(frozen=True, slots=True)
class System:
    """A published system that can be modelled: one decode worker at several batches, and one prompt of its prefill."""

    measurement: Measurement
    pools: Pools
    concurrency: float
    steps: RunTerms
    prompt: RunTerms

    @classmethod
    def of(cls, measurement: Measurement) -> "System | None":
        """``None`` for runs of other kinds."""
        setup, published = measurement.setup, measurement.published
        pools = pools_of(published.tp, is_moe=setup.model.is_moe)
        if setup.phase is not Phase.DISAGGREGATED or pools is None or published.concurrency is None:
            return None
        most = max(1.0, published.concurrency / pools.decode.worker_count)
        batches = np.unique(np.geomspace(1.0, most, BATCHES)).tolist()
        # One prompt and one token as a static batch: a step, and exactly what the prompt takes from a busy worker.
        prompt = replace(
            setup,
            phase=Phase.STATIC_BATCH,
            parallelism=pools.prefill.parallelism,
            batch=1.0,
            osl_tokens=1.0,
            is_drafted=False,
        )
        return cls(
            measurement,
            pools,
            published.concurrency,
            steps=stacked(run_terms(replace(setup, batch=batch)) for batch in batches),
            prompt=stacked([run_terms(prompt)]),
        )

    def at(self, step_times_s: Array, numbers: Mapping[str, float]) -> DisaggregatedPoint:
        """The closed form with these times of a step at the batches."""
        engine = ENGINE_NUMBERS[self.prompt.engine[0]]
        handover = HANDOVERS.get(engine, HANDOVERS[DEFAULT_ENGINE])
        prompt = run_time(self.prompt, numbers)
        prompt_share_s, layer_overhead_s = (
            float(prompt.time_s[0] * prompt.shares[0, SHARES.index(name)]) for name in ("prefill", "overhead")
        )
        system = DisaggregatedSystem(
            prefill=PrefillPool.of(
                self.pools.prefill,
                prompt_share_s=handover.slowdown * prompt_share_s,
                layer_overhead_s=layer_overhead_s,
            ),
            decode_worker_count=self.pools.decode.worker_count,
            step_time_s=lambda batch: float(np.interp(batch, self.steps.batch, step_times_s)),
            handover=handover,
            osl_tokens=self.measurement.setup.osl_tokens,
        )
        return system.at(self.concurrency)


class Errors(NamedTuple):
    """|predicted / measured - 1|; ``None`` where a run does not state the measured value."""

    tpot: float
    output_rate: float | None
    ttft: float | None


class Missed(NamedTuple):
    """One system, predicted without its fold; ``is_inside`` says whether its TPOT is in the 80 % interval.

    ``waited``: the TTFT was over a tenth of the time in decode, as where a limit on the decode batch keeps requests
    waiting that no source states.
    """

    left_out: str
    accelerator: str
    waited: bool
    kriged: Errors
    by_physics: Errors
    is_inside: bool


def cross_validate_disaggregated(
    rows: Sequence[Measurement], *, refits: bool = True, progress: Callable[[str], None] = lambda _: None
) -> list[Missed]:
    """Errors with a series, an accelerator, a model, and then every disaggregated run left out of all rows.

    The physics' numbers are refitted to the other rows of each fold.
    """
    systems = [System.of(row) for row in rows]
    sample = Sample.of(rows)
    start = refit(sample).numbers if refits else FITTED_VALUES
    missed: list[Missed] = []
    for left_out, is_out in _folds(rows, systems):
        numbers = start
        if refits:
            numbers = refit(sample.only(~is_out), start, most_evaluations=FOLD_EVALUATIONS).numbers
        runs = evidence_runs(rows, numbers)
        store = EvidenceStore.of(run for run, out in zip(runs, is_out, strict=True) if not out)
        wanted = [each for each, out in zip(systems, is_out, strict=True) if out and each is not None]
        missed.extend(_missed(left_out, each, store, numbers) for each in wanted)
        progress(f"disaggregated: {len(wanted)} systems predicted, {left_out} left out")
    return missed


def _folds(rows: Sequence[Measurement], systems: Sequence[System | None]) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """What is left out, and whether each row is. Aggregated rows of the same series, accelerator or model go too."""
    modelled = np.array([each is not None for each in systems])
    names_by_tier = {
        SERIES: [str(crc32(row.published.series.encode()) % SERIES_FOLDS) for row in rows],
        "accelerator": [row.configuration.accelerator for row in rows],
        "model": [row.configuration.architecture for row in rows],
    }
    for tier, names in names_by_tier.items():
        for name in sorted({name for name, each in zip(names, systems, strict=True) if each is not None}):
            yield tier, np.array([each == name for each in names])
    yield AGGREGATED_ONLY, modelled


def _missed(left_out: str, system: System, store: EvidenceStore, numbers: Mapping[str, float]) -> Missed:
    setup, configuration = system.measurement.setup, system.measurement.configuration
    physics = run_time(system.steps, numbers)
    points = [
        Point(batch, setup.isl_tokens, setup.osl_tokens, tuple(shares))
        for batch, shares in zip(system.steps.batch.tolist(), physics.shares.tolist(), strict=True)
    ]
    near = store.about(replace(configuration, campaign=None))
    answers = [near.at(point) for point in points]
    kriged = system.at(physics.time_s * np.array([answer.ratio for answer in answers]), numbers)
    factor = np.interp(kriged.decode_batch, system.steps.batch, [answer.factor for answer in answers])
    tpot_s = system.measurement.value_s
    ttft_s = system.measurement.published.ttft_s or 0.0
    return Missed(
        left_out=left_out,
        accelerator=configuration.accelerator,
        waited=ttft_s > WAITED_SHARE * (setup.osl_tokens - 1) * tpot_s,
        kriged=_errors(system, kriged),
        by_physics=_errors(system, system.at(physics.time_s, numbers)),
        is_inside=bool(tpot_s / factor <= (kriged.tpot_s or 0.0) <= tpot_s * factor),
    )


def _errors(system: System, point: DisaggregatedPoint) -> Errors:
    published = system.measurement.published
    rate = point.output_tokens_per_s_per_gpu(
        osl_tokens=system.measurement.setup.osl_tokens, gpu_count=system.pools.device_count
    )
    return Errors(
        tpot=abs((point.tpot_s or 0.0) / system.measurement.value_s - 1),
        output_rate=_error(rate, published.output_tokens_per_s_per_gpu),
        ttft=_error(point.ttft_s, published.ttft_s),
    )


def _error(predicted: float, measured: float | None) -> float | None:
    return abs(predicted / measured - 1) if measured else None


def not_modelled(published: Iterable[PublishedRun], snapshot: Snapshot) -> Mapping[str, int]:
    """Disaggregated runs that cannot be predicted as systems, by reason."""
    runs = [run for run in published if "disaggregated" in run.scenario]
    flagged = Counter(run.flag or "" for run in runs if not is_usable(run))
    return flagged + Counter(measurements([run for run in runs if is_usable(run)], snapshot).left_out)


def disaggregated_table(missed: Sequence[Missed]) -> str:
    """A line for each thing left out; of the series also one by accelerator, and one of runs that hardly waited."""
    names = dict.fromkeys(each.left_out for each in missed)
    groups = {name: [each for each in missed if each.left_out == name] for name in names}
    series = groups.get(SERIES, [])
    groups["series: TTFT under a tenth of decode"] = [each for each in series if not each.waited]
    for name in sorted({each.accelerator for each in series}):
        groups[f"series: {name}"] = [each for each in series if each.accelerator == name]
    return "\n".join([HEADER, *(_line(name, members) for name, members in groups.items() if members)])


def _line(name: str, missed: Sequence[Missed]) -> str:
    kriged, physics = _spreads([each.kriged for each in missed]), _spreads([each.by_physics for each in missed])
    inside = np.mean([each.is_inside for each in missed])
    return f"| {name} | {len(missed)} | {' | '.join(kriged)} | {', '.join(physics)} | {inside:.2f} |"


def _spreads(errors: Sequence[Errors]) -> list[str]:
    """Median and 90th percentile in percent, of what is stated of each measure."""
    stated = [[100 * each for each in measure if each is not None] for measure in zip(*errors, strict=True)]
    return [f"{np.median(each):.1f} / {np.quantile(each, 0.9):.0f}" if each else "not stated" for each in stated]
