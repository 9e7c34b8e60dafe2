"""From what is asked to a filter, and from a stored run to what is answered."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Engine

from service.api.benchmark_run_schemas import (
    RANGED,
    BenchmarkRunPair,
    BenchmarkRunRead,
    MetricRead,
    RunFilters,
)
from service.catalogue.benchmark_pairs import RunPair
from service.catalogue.benchmark_queries import NEWEST_FIRST, Range, RunFilter, Value, rows_of
from service.catalogue.benchmark_records import BenchmarkRun
from service.catalogue.benchmarks import RUNS
from service.catalogue.snapshot import Snapshot
from service.errors import UnknownChoice
from service.sizing.precision import Precision
from service.sizing.weight_schemes import SCHEMES

ANY_OF = (
    "accelerator_name",
    "model_name",
    "weights",
    "kv_cache",
    "compute",
    "engine",
    "engine_version",
    "gpu_count",
    "node_count",
    "tp",
    "pp",
    "ep",
    "dp",
    "speculation",
    "scenario",
    "mlperf_version",
    "mlperf_division",
    "mlperf_availability",
    "submitter",
    "system_name",
    "power_scope",
    "tool",
    "content_digest",
    "measured_by",
)
EXACTLY = ("prefix_caching", "mlperf_valid", "origin", "calibrates")
IN_LOWER_CASE = ("weights", "kv_cache", "compute", "engine", "mlperf_division", "mlperf_availability")
MEASURED = {len("2026"): "measured_year", len("2026-12"): "measured_month", len("2026-12-01"): "measured_on"}
# Widths that sources name without the scheme.
PLAIN_WIDTHS = ("fp4", "int4", "int8", "fp8", "bf16", "fp16", "fp32", "w8a16")
PRECISIONS = frozenset(
    {*SCHEMES, *(scheme.removeprefix("gguf-") for scheme in SCHEMES), *PLAIN_WIDTHS, *(str(each) for each in Precision)}
)
KNOWN_WORDS = {
    "weights": PRECISIONS,
    "kv_cache": PRECISIONS,
    "compute": PRECISIONS,
    "mlperf_division": frozenset({"closed", "open", "network"}),
    "mlperf_availability": frozenset({"available", "preview", "rdi"}),
}
OWN_FIELDS = tuple(
    name for name in BenchmarkRunRead.model_fields if name not in ("metrics", "quality_remarks", "inferred", "extras")
)


def filter_of(question: RunFilters, snapshot: Snapshot, engine: Engine) -> RunFilter:
    """Names are resolved exactly, retired records included: their runs stay."""
    any_of: dict[str, list[Value]] = {}
    if question.accelerator:
        any_of["accelerator"] = [snapshot.accelerators.find(name).slug for name in question.accelerator]
    if question.model:
        any_of["model"] = [snapshot.language_models.find(name).slug for name in question.model]
    for name in ANY_OF:
        if values := getattr(question, name):
            any_of[name] = [each.lower() if name in IN_LOWER_CASE else each for each in values]
    for name in EXACTLY:
        if (value := getattr(question, name)) is not None:
            any_of[name] = [value]
    if day := question.measured_on:
        any_of[MEASURED[len(day)]] = [day]
    ranges = {
        name: Range(getattr(question, f"min_{name}", None), getattr(question, f"max_{name}", None)) for name in RANGED
    }
    _refuse_unknown_words(any_of, engine)
    return RunFilter(
        any_of={name: [str(each) if isinstance(each, str) else each for each in some] for name, some in any_of.items()},
        ranges={name: span for name, span in ranges.items() if span != Range()},
    )


def _refuse_unknown_words(any_of: Mapping[str, Sequence[Value]], engine: Engine) -> None:
    """Result files name precisions as they like: a word that some run has is as good as one of the set."""
    doubtful = [
        (name, str(word)) for name, known in KNOWN_WORDS.items() for word in any_of.get(name, ()) if word not in known
    ]
    if not doubtful:
        return
    with engine.connect() as connection:
        for name, word in doubtful:
            if not rows_of(connection, [RUNS.c.id], RunFilter(any_of={name: [word]}), NEWEST_FIRST, limit=1):
                raise UnknownChoice(word, sorted(KNOWN_WORDS[name]), field=(name,))


def read_of(run: BenchmarkRun) -> BenchmarkRunRead:
    details = run.read_details
    return BenchmarkRunRead.model_validate(
        {
            **{name: getattr(run, name) for name in OWN_FIELDS},
            "metrics": [
                MetricRead(meaning=each.meaning, statistic=each.statistic, value=each.value, source_key=each.source_key)
                for each in details.metrics
            ],
            "quality_remarks": list(details.quality_remarks),
            "inferred": list(details.inferred),
            "extras": dict(details.extras),
        }
    )


def pair_of(pair: RunPair) -> BenchmarkRunPair:
    return BenchmarkRunPair(
        offline=read_of(pair.offline), other=read_of(pair.other), other_over_offline_fraction=pair.ratio
    )


def flat_row(run: BenchmarkRun) -> Mapping[str, Any]:
    """The run as a line of a table: without the lists, the remarks as one text."""
    row = {name: getattr(run, name) for name in OWN_FIELDS}
    return {**row, "quality_remarks": "; ".join(run.read_details.quality_remarks) or None}


def known_precision(said: str | None, *field: str) -> str | None:
    """A precision that a caller names, in lower case; one that nobody knows is refused rather than stored."""
    if said is None:
        return None
    word = said.lower()
    if word in PRECISIONS:
        return word
    raise UnknownChoice(said, sorted(PRECISIONS), field=field)
