"""What is stored of a measured run: who measured what on what, how the load was offered, and the figures.

Everything that a list filters or sorts by is a field of its own; the rest (every metric with its meaning, statistic and
the key it was read from) is in ``details``. ``None`` is unknown. ``main_figures`` picks, from the metrics, the few that
lists sort by, by exact meaning and statistic.
"""

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Any

from service.catalogue.tables import Origin

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's: no letter is taken for a digit
TIME_DIGITS, RANDOM_DIGITS = 10, 8
SHIPPED_PREFIX = "00"  # no time of this century begins so: a shipped run sorts before every user's
ID_PATTERN = r"^[0-9a-hjkmnp-tv-z]{18}$"


class RunScenario(StrEnum):
    """How the load was offered. Runs of different scenarios are different experiments and are never ranked together."""

    SINGLE_STREAM = "single_stream"
    SINGLE_USER_ENDPOINT = "single_user_endpoint"
    PREFILL = "prefill"
    STATIC_BATCH = "static_batch"
    CLOSED_LOOP = "closed_loop"
    CLOSED_LOOP_DISAGGREGATED = "closed_loop_disaggregated"
    DISAGGREGATED_PHASE = "disaggregated_phase"
    CONCURRENCY_SWEEP_PEAK = "concurrency_sweep_peak"
    OPEN_LOOP = "open_loop"
    TRACE_REPLAY = "trace_replay"
    OFFLINE_MAX = "offline_max"
    OFFLINE_BATCH_LIMITED = "offline_batch_limited"
    OFFLINE_SMALL_BURST = "offline_small_burst"
    MLPERF_OFFLINE = "mlperf_offline"
    MLPERF_SERVER = "mlperf_server"
    MLPERF_INTERACTIVE = "mlperf_interactive"
    MLPERF_SINGLE_STREAM = "mlperf_single_stream"
    MLPERF_MULTI_STREAM = "mlperf_multi_stream"


class PowerScope(StrEnum):
    """What was inside the measurement; ``board`` and ``package`` are summed over the accelerators."""

    BOARD = "board"
    PACKAGE = "package"
    SYSTEM_WALL = "system_wall"
    FACILITY = "facility"


@dataclass(frozen=True, slots=True)
class StoredMetric:
    """``meaning`` ends in the unit. ``statistic`` is mean, p50, p99 …, overall, or unstated."""

    meaning: str
    statistic: str
    value: float
    source_key: str | None = None


@dataclass(frozen=True, kw_only=True)
class BenchmarkRun:
    """One stored run; the fields are the columns of its row.

    ``accelerator`` and ``model`` are slugs of the catalogue, ``None`` where it has no such record; the ``…_name``
    beside them is what the source says. ``pair_key`` is the same for the MLPerf runs of one system and model.
    ``calibrates`` is false for runs that estimates must not lean on; ``quality_remarks`` in ``details`` say why.
    """

    id: str
    origin: Origin
    created_at: datetime
    evidence_revision: int = 0
    content_digest: str
    file_index: int = 0
    file_name: str | None = None
    tool: str | None = None
    tool_version: str | None = None
    accelerator: str | None = None
    accelerator_revision: int | None = None
    accelerator_name: str | None = None
    gpu_count: int | None = None
    node_count: int | None = None
    model: str | None = None
    model_name: str | None = None
    weights: str | None = None
    kv_cache: str | None = None
    compute: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    tp: int | None = None
    pp: int | None = None
    ep: int | None = None
    dp: int | None = None
    layout: str | None = None
    speculation: str | None = None
    prefix_caching: bool | None = None
    scenario: str | None = None
    concurrency: float | None = None
    request_rate_per_s: float | None = None
    isl_mean_tokens: float | None = None
    isl_std_tokens: float | None = None
    osl_mean_tokens: float | None = None
    osl_std_tokens: float | None = None
    mlperf_version: str | None = None
    mlperf_division: str | None = None
    mlperf_availability: str | None = None
    mlperf_valid: bool | None = None
    submitter: str | None = None
    system_name: str | None = None
    ttft_limit_s: float | None = None
    tpot_limit_s: float | None = None
    pair_key: str | None = None
    ttft_p50_s: float | None = None
    ttft_p99_s: float | None = None
    ttft_central_s: float | None = None
    tpot_p50_s: float | None = None
    tpot_mean_s: float | None = None
    tpot_p99_s: float | None = None
    tpot_central_s: float | None = None
    output_tokens_per_s: float | None = None
    output_tokens_per_s_per_gpu: float | None = None
    output_tokens_per_s_per_user: float | None = None
    input_tokens_per_s: float | None = None
    power_w: float | None = None
    power_scope: str | None = None
    measured_by: str | None = None
    measured_on: str | None = None
    source_title: str | None = None
    source_ref: str | None = None
    calibrates: bool = True
    details: str = "{}"

    @cached_property
    def read_details(self) -> "Details":
        return Details.of(self.details)


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """What lists neither filter nor sort by. ``inferred`` names fields that the source does not state itself."""

    metrics: tuple[StoredMetric, ...] = ()
    quality_remarks: tuple[str, ...] = ()
    inferred: tuple[str, ...] = ()
    extras: Mapping[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """As it is stored: without what is empty."""
        document: dict[str, Any] = {
            "metrics": [[each.meaning, each.statistic, each.value, each.source_key] for each in self.metrics],
            "quality_remarks": list(self.quality_remarks),
            "inferred": list(self.inferred),
            "extras": dict(self.extras),
        }
        return json.dumps({name: part for name, part in document.items() if part}, separators=(",", ":"))

    @classmethod
    def of(cls, text: str) -> "Details":
        document = json.loads(text)
        return cls(
            metrics=tuple(StoredMetric(*each) for each in document.get("metrics", ())),
            quality_remarks=tuple(document.get("quality_remarks", ())),
            inferred=tuple(document.get("inferred", ())),
            extras=document.get("extras", {}),
        )


# Of the middle of a distribution, the first of these that is stated.
CENTRAL = ("p50", "unstated", "overall", "mean")
OUTPUT_RATE, OUTPUT_RATE_PER_GPU = "output_tokens_per_s", "output_tokens_per_s_per_gpu"


def main_figures(metrics: Iterable[StoredMetric], *, gpu_count: int | None) -> dict[str, Any]:
    """The sortable figures. TPOT is only what is defined so: no gaps between chunks, no token-weighted means.

    A rate per GPU that is not stated is the stated total over the GPUs.

    >>> figures = main_figures([StoredMetric("output_tokens_per_s", "overall", 800.0)], gpu_count=8)
    >>> figures["output_tokens_per_s_per_gpu"], figures["tpot_p50_s"]
    (100.0, None)
    """
    values = {(each.meaning, each.statistic): each.value for each in metrics}

    def central(meaning: str) -> float | None:
        return next((values[meaning, each] for each in CENTRAL if (meaning, each) in values), None)

    total, per_gpu = central(OUTPUT_RATE), central(OUTPUT_RATE_PER_GPU)
    if per_gpu is None and total is not None and gpu_count:
        per_gpu = total / gpu_count
    return {
        "ttft_p50_s": values.get(("ttft_s", "p50")),
        "ttft_p99_s": values.get(("ttft_s", "p99")),
        "ttft_central_s": central("ttft_s"),
        "tpot_p50_s": values.get(("tpot_s", "p50")),
        "tpot_mean_s": values.get(("tpot_s", "mean")),
        "tpot_p99_s": values.get(("tpot_s", "p99")),
        "tpot_central_s": central("tpot_s"),
        "output_tokens_per_s": total,
        "output_tokens_per_s_per_gpu": per_gpu,
        "output_tokens_per_s_per_user": central("output_tokens_per_s_per_user"),
        "input_tokens_per_s": central("input_tokens_per_s") or central("prefill_tokens_per_s"),
    }


def pair_key_of(*parts: str | int | None) -> str:
    """The same for the runs of one system: benchmark version, division, submitter, system, model, hardware."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def shipped_id(facts: str) -> str:
    """The same in every deployment, since it follows from the published facts alone.

    >>> shipped_id("a published line") == shipped_id("a published line"), len(shipped_id(""))
    (True, 18)
    """
    number = int.from_bytes(hashlib.sha256(facts.encode()).digest(), "big")
    return SHIPPED_PREFIX + _digits(number, TIME_DIGITS + RANDOM_DIGITS - len(SHIPPED_PREFIX))


def new_ids(at: datetime, count: int) -> Sequence[str]:
    """Identifiers that sort by time, and within one call by position."""
    first = secrets.randbits(5 * RANDOM_DIGITS - 1)  # the spare bit is room for the positions
    time = _digits(int(at.timestamp() * 1000), TIME_DIGITS)
    return [time + _digits(first + position, RANDOM_DIGITS) for position in range(count)]


def _digits(number: int, count: int) -> str:
    return "".join(ALPHABET[number >> 5 * place & 31] for place in reversed(range(count)))
