"""The measurements that are shipped: published runs and MLPerf results, as facts with their sources.

Tables in ``data/runs``, compressed: one line per published number, in base units, with what was published beside
what it was read as. An empty cell is unknown, never zero. ``flag`` says why a run is to be used with care; such runs
are shown and left out of calibration.
"""

import csv
import gzip
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import yaml

from service.sizing.engines.engine import plain_version
from service.sizing.run_identity import NO_FLAGS, EngineFlags

DATA = Path(__file__).parent / "data" / "runs"
PERCENTILE_ROW = "percentile row"


@dataclass(frozen=True, slots=True)
class PublishedRun:
    """One published line. ``accelerator`` is a slug of the catalogue where it has the part, else ``None``.

    ``output_tokens_per_s`` is of the whole system. Rows whose ``flag`` starts with "percentile row" repeat the
    central row of their ``series`` at another statistic. ``inferred`` names fields that the source does not state.
    ``flags`` are of users' runs (``is_of_user``): published tables do not state them.
    """

    model: str
    checkpoint: str | None
    accelerator: str | None
    accelerator_as_published: str
    gpu_count: int | None
    tp: str | None
    pp: str | None
    ep: str | None
    dp: str | None
    weights: str | None
    kv_cache: str | None
    engine: str | None
    engine_version: str | None
    isl_tokens: float | None
    osl_tokens: float | None
    concurrency: float | None
    request_rate_per_s: float | None
    scenario: str
    output_tokens_per_s: float | None
    input_tokens_per_s: float | None
    output_tokens_per_s_per_gpu: float | None
    output_tokens_per_s_per_user: float | None
    ttft_s: float | None
    ttft_statistic: str | None
    tpot_s: float | None
    tpot_statistic: str | None
    e2e_s: float | None
    power_w: float | None
    power_scope: str | None
    meaning: str | None
    basis: str | None
    flag: str | None
    series: str
    source: str
    source_ref: str | None
    measured_on: str | None
    lengths_note: str | None = None
    inferred: tuple[str, ...] = ()
    flags: EngineFlags = NO_FLAGS
    is_of_user: bool = False

    @property
    def is_percentile_row(self) -> bool:
        return self.flag is not None and self.flag.startswith(PERCENTILE_ROW)


@dataclass(frozen=True, slots=True)
class MlperfResult:
    """One result of MLPerf Inference, datacenter, as its summary states it. Limits are at the 99th percentile."""

    benchmark_version: str
    division: str
    availability: str
    submitter: str
    system: str
    platform: str
    model: str
    model_variant: str
    accuracy_target: str | None
    scenario: str
    accelerator: str | None
    accelerator_as_published: str
    accelerator_as_reported: str | None
    accelerators_per_node: int | None
    node_count: int | None
    accelerator_count: int | None
    result: float
    result_unit: str
    output_tokens_per_s: float | None
    output_tokens_per_s_per_accelerator: float | None
    system_power_w: float | None
    output_tokens_per_j: float | None
    framework: str | None
    os: str | None
    host_cpu: str | None
    weights_as_reported: str | None
    weights: str | None
    weights_basis: str | None
    accuracy: str | None
    ttft_p99_limit_s: float | None
    tpot_p99_limit_s: float | None
    e2e_p99_limit_s: float | None
    submitter_notes: str | None
    note: str | None
    source: str
    source_path: str
    source_commit: str


@lru_cache(maxsize=1)
def published_runs() -> tuple[PublishedRun, ...]:
    """Every shipped run: serving, offline, single-stream and prefill, flagged ones included, in the files' order."""
    read = (_rows(DATA / f"published-serving-{number}.csv.gz", PublishedRun) for number in (1, 2))
    return (*(_named_once(PublishedRun(**row)) for rows in read for row in rows), *_founding_runs())


def _named_once(run: PublishedRun) -> PublishedRun:
    """Its release under the name that users' runs and filters have it by, or the same release would be two."""
    plain = run.engine_version and plain_version(run.engine_version)
    return run if plain == run.engine_version else replace(run, engine_version=plain)


@lru_cache(maxsize=1)
def mlperf_results() -> tuple[MlperfResult, ...]:
    return tuple(MlperfResult(**row) for row in _rows(DATA / "mlperf-inference.csv.gz", MlperfResult))


def _founding_runs() -> Iterator[PublishedRun]:
    """The runs of the founding documents, few enough to be written by hand."""
    empty = dict.fromkeys(PublishedRun.__dataclass_fields__)
    document = yaml.safe_load((DATA / "founding.yaml").read_text(encoding="utf-8"))
    for run in document["runs"]:
        given = {**run, "inferred": tuple(run.get("inferred", ()))}
        yield PublishedRun(**(empty | given))


def _rows(path: Path, kind: type) -> Iterator[dict[str, Any]]:
    """Cells by the types of the fields: a number, a count, or text; empty is ``None``."""
    readers = {name: _reader(hint) for name, hint in get_type_hints(kind).items()}
    with gzip.open(path) as packed:
        lines = csv.reader(io.TextIOWrapper(packed, encoding="utf-8", newline=""))
        columns = [(name, readers[name]) for name in next(lines)]
        for line in lines:
            yield {name: read(cell) if cell else None for (name, read), cell in zip(columns, line, strict=True)}


def _reader(hint: Any) -> Callable[[str], object]:
    """What reads a cell of a field: the type itself, or the one beside ``None``."""
    own = next((each for each in get_args(hint) if each is not type(None)), hint)
    return own if own in (int, float) else str
