"""What a result file says about a run, by meaning and in base units; what it does not say is ``None``.

Tools use one name for several quantities and several names for one. A metric is therefore kept by what it means, with
the key under which the file had it, so that a reader can look it up again. Definitions differ as follows:

- ``TPOT``: (latency - TTFT) / (output tokens - 1), one value a request.
- ``TPOT_TOKEN_WEIGHTED``: the same, but each request counts once per token, so long answers weigh more.
- ``INTER_CHUNK_GAP``: every gap between two received chunks, pooled over requests. A chunk may hold several tokens.
- ``LATENCY_PER_OUTPUT_TOKEN``: the whole latency, time to first token included, over the output tokens.
- ``DECODE_STEP``: one step of a static batch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType


class Scenario(StrEnum):
    """How the load was offered; runs of different scenarios are never ranked together."""

    SINGLE_STREAM = "single_stream"
    STATIC_BATCH = "static_batch"
    CLOSED_LOOP = "closed_loop"
    OPEN_LOOP = "open_loop"
    OFFLINE_MAX = "offline_max"
    MLPERF_OFFLINE = "mlperf_offline"
    MLPERF_SERVER = "mlperf_server"
    MLPERF_INTERACTIVE = "mlperf_interactive"
    MLPERF_SINGLE_STREAM = "mlperf_single_stream"
    MLPERF_MULTI_STREAM = "mlperf_multi_stream"


class ConcurrencyBasis(StrEnum):
    """What the number called concurrency is."""

    LIMIT = "limit"
    BATCH = "batch"
    MEASURED_MEAN = "measured_mean"


class Meaning(StrEnum):
    """A quantity; the unit ends its name."""

    TTFT = "ttft_s"
    TPOT = "tpot_s"
    TPOT_TOKEN_WEIGHTED = "tpot_token_weighted_s"  # noqa: S105 - a quantity, no password
    INTER_CHUNK_GAP = "inter_chunk_gap_s"
    LATENCY_PER_OUTPUT_TOKEN = "latency_per_output_token_s"  # noqa: S105 - as above
    DECODE_STEP = "decode_step_s"
    E2E_LATENCY = "e2e_latency_s"
    PREFILL_TIME = "prefill_time_s"
    OUTPUT_RATE = "output_tokens_per_s"
    INPUT_RATE = "input_tokens_per_s"
    TOTAL_RATE = "total_tokens_per_s"
    PEAK_OUTPUT_RATE = "peak_output_tokens_per_s"
    PREFILL_RATE = "prefill_tokens_per_s"
    DECODE_RATE = "decode_tokens_per_s"
    PHASES_RATE = "prefill_and_decode_tokens_per_s"
    OUTPUT_RATE_PER_USER = "output_tokens_per_s_per_user"
    OUTPUT_RATE_PER_GPU = "output_tokens_per_s_per_gpu"
    INPUT_RATE_PER_GPU = "input_tokens_per_s_per_gpu"
    TOTAL_RATE_PER_GPU = "total_tokens_per_s_per_gpu"
    OUTPUT_RATE_PER_DECODE_GPU = "output_tokens_per_s_per_decode_gpu"
    INPUT_RATE_PER_PREFILL_GPU = "input_tokens_per_s_per_prefill_gpu"
    REQUEST_RATE = "requests_per_s"
    GOODPUT = "goodput_requests_per_s"
    MEASURED_CONCURRENCY = "measured_concurrency"
    TOKENS_PER_SPECULATIVE_STEP = "tokens_per_speculative_step"


class StatisticKind(StrEnum):
    OVERALL = "overall"
    MEAN = "mean"
    STD = "std"
    MIN = "min"
    MAX = "max"
    PERCENTILE = "percentile"


@dataclass(frozen=True, slots=True)
class Statistic:
    """``OVERALL`` is one number for the whole run, such as tokens over duration.

    >>> str(Statistic(StatisticKind.PERCENTILE, 99.9)), str(MEAN)
    ('p99.9', 'mean')
    """

    kind: StatisticKind
    percentile: float | None = None

    def __str__(self) -> str:
        return f"p{self.percentile:g}" if self.percentile is not None else self.kind.value


OVERALL = Statistic(StatisticKind.OVERALL)
MEAN = Statistic(StatisticKind.MEAN)
STD = Statistic(StatisticKind.STD)
MIN = Statistic(StatisticKind.MIN)
MAX = Statistic(StatisticKind.MAX)


def percentile(percent: float) -> Statistic:
    """The share of values, in hundredths, that lie at or below it."""
    return Statistic(StatisticKind.PERCENTILE, percent)


P50 = percentile(50)


@dataclass(frozen=True, slots=True)
class Metric:
    """One statistic of one quantity, in the unit that ends the meaning's name."""

    meaning: Meaning
    statistic: Statistic
    value: float
    source_key: str


class PowerScope(StrEnum):
    """What was inside the measurement: a board or package is less than what the wall socket gives."""

    BOARD = "board"
    PACKAGE = "package"
    SYSTEM_WALL = "system_wall"
    FACILITY = "facility"


@dataclass(frozen=True, slots=True)
class Power:
    """Power summed over the accelerators, averaged over the time of the run."""

    mean_w: float
    scope: PowerScope
    accelerator_count: int
    sample_count: int
    energy_j: float | None
    busy_mean_w: float | None
    source: str
    cut_to_run: bool


class QualityFlag(StrEnum):
    """Why a run may be unfit as evidence."""

    INVALID = "invalid"
    NOT_PERFORMANCE_MODE = "not_performance_mode"
    HAD_FAILURES = "had_failures"
    HAD_INCOMPLETE = "had_incomplete"
    CANCELLED = "cancelled"
    TOKEN_COUNTS_DISAGREE = "token_counts_disagree"  # noqa: S105 - a flag, no password
    NOT_FINITE_DROPPED = "not_finite_dropped"
    CAPPED_OPEN_LOOP = "capped_open_loop"
    INFERRED = "inferred"


@dataclass(frozen=True, slots=True)
class Mlperf:
    """What MLPerf's rules add to a run."""

    scenario_as_logged: str | None = None
    valid: bool | None = None
    mode: str | None = None
    version: str | None = None
    division: str | None = None
    availability: str | None = None
    submitter: str | None = None
    system_name: str | None = None
    ttft_limit_s: float | None = None
    tpot_limit_s: float | None = None
    location: str | None = None


@dataclass(frozen=True, slots=True)
class ImportedRun:
    """One measured run. An infinite request rate means that requests were sent without waiting.

    ``started_at`` and ``finished_at`` carry a zone; a clock reading without one is text in ``local_…`` until the zone
    is known. ``layout`` names the workers of a disaggregated system. ``dropped_keys`` are those of figures that were
    not finite; ``from_caller`` names the fields that the caller's metadata filled.
    """

    tool: str
    tool_version: str | None = None
    position: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    client_backend: str | None = None
    model_name: str | None = None
    model_file: str | None = None
    model_bytes: int | None = None
    parameter_count: int | None = None
    weight_precision: str | None = None
    kv_precision: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    local_started_at: str | None = None
    local_finished_at: str | None = None
    duration_s: float | None = None
    scenario: Scenario | None = None
    concurrency: float | None = None
    concurrency_basis: ConcurrencyBasis | None = None
    request_rate_per_s: float | None = None
    isl_mean_tokens: float | None = None
    isl_std_tokens: float | None = None
    osl_mean_tokens: float | None = None
    osl_std_tokens: float | None = None
    context_depth_tokens: int | None = None
    completed_count: int | None = None
    failed_count: int | None = None
    incomplete_count: int | None = None
    accelerator_name: str | None = None
    accelerator_count: int | None = None
    node_count: int | None = None
    prefill_gpu_count: int | None = None
    decode_gpu_count: int | None = None
    tp: int | None = None
    pp: int | None = None
    ep: int | None = None
    dp: int | None = None
    layout: str | None = None
    gpu_layer_count: int | None = None
    speculative_decoding: str | None = None
    metrics: tuple[Metric, ...] = ()
    power: Power | None = None
    mlperf: Mlperf | None = None
    flags: tuple[QualityFlag, ...] = ()
    extras: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    dropped_keys: tuple[str, ...] = ()
    from_caller: tuple[str, ...] = ()

    def value(self, meaning: Meaning, statistic: Statistic) -> float | None:
        """The metric's value, or ``None`` where the file does not have it."""
        return next((m.value for m in self.metrics if m.meaning is meaning and m.statistic == statistic), None)
