"""What is said about a file after reading it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from service.imports.power_log import PowerLog
from service.imports.run import ImportedRun


class Kind(StrEnum):
    """A tool and, where it writes several, the layout of its file."""

    VLLM_SERVE = "vllm-bench-serve"
    VLLM_LATENCY = "vllm-bench-latency"
    VLLM_THROUGHPUT = "vllm-bench-throughput"
    SGLANG_SERVING = "sglang-bench-serving"
    SGLANG_ONE_BATCH = "sglang-bench-one-batch"
    AIPERF_JSON = "aiperf-json"
    AIPERF_CSV = "aiperf-csv"
    GENAI_PERF_JSON = "genai-perf-json"
    GENAI_PERF_CSV = "genai-perf-csv"
    GUIDELLM_JSON = "guidellm-json"
    GUIDELLM_YAML = "guidellm-yaml"
    GUIDELLM_CSV = "guidellm-csv"
    TRTLLM_BENCH = "trtllm-bench"
    LLAMA_BENCH_JSON = "llama-bench-json"
    LLAMA_BENCH_CSV = "llama-bench-csv"
    LLAMA_BENCH_MARKDOWN = "llama-bench-markdown"
    LLAMA_BENCH_SQL = "llama-bench-sql"
    LLAMA_BATCHED_JSON = "llama-batched-bench-jsonl"
    LLAMA_BATCHED_MARKDOWN = "llama-batched-bench-markdown"
    MLPERF_SUMMARY_LOG = "mlperf-log-summary"
    MLPERF_DETAIL_LOG = "mlperf-log-detail"
    MLPERF_SYSTEM = "mlperf-system"
    MLPERF_RESULTS = "mlperf-summary-results"
    INFERENCEX = "inferencex-aggregate"
    LLMPERF = "llmperf-summary"
    POWER_NVIDIA_SMI = "nvidia-smi-csv"
    POWER_DCGM = "dcgm-exporter"
    POWER_ROCM_SMI = "rocm-smi"
    POWER_AMD_SMI = "amd-smi"
    ZIP = "zip"


class Ask(StrEnum):
    """A field of the caller's metadata that a file may leave open."""

    ACCELERATOR = "accelerator"
    GPU_COUNT = "gpu_count"
    MODEL = "model"
    PRECISION = "precision"
    ENGINE = "engine"
    ENGINE_VERSION = "engine_version"
    ISL_TOKENS = "isl_tokens"
    OSL_TOKENS = "osl_tokens"
    BATCH = "batch"
    CONCURRENCY = "concurrency"
    SCENARIO = "scenario"
    OUTPUT_TOKENS_PER_S = "output_tokens_per_s"
    STARTED_AT = "started_at"
    FINISHED_AT = "finished_at"
    DURATION_S = "duration_s"
    FAILED_COUNT = "failed_count"
    TOOL_VERSION = "tool_version"
    UTC_OFFSET = "utc_offset"


REQUIRED_ASKS = frozenset(
    {Ask.ACCELERATOR, Ask.GPU_COUNT, Ask.MODEL, Ask.PRECISION, Ask.BATCH, Ask.ISL_TOKENS, Ask.OSL_TOKENS}
)


class Refused(Exception):
    """The file, or a line or key of it, cannot be used; it never leaves this package."""

    def __init__(self, reason: str, *, where: str | None = None) -> None:
        super().__init__(f"{where}: {reason}" if where else reason)


@dataclass(frozen=True, slots=True)
class Parsed:
    """What an importer read, and which fields its tool leaves to the caller."""

    runs: tuple[ImportedRun, ...]
    asks: tuple[Ask, ...] = ()
    warnings: tuple[str, ...] = ()
    suggested: Mapping[str, str | int] = field(default_factory=lambda: MappingProxyType({}))
    power: PowerLog | None = None


@dataclass(frozen=True, slots=True)
class FileReport:
    """``accepted`` says that the file was read; ``missing`` names what the caller should still say.

    Of the missing fields those in ``required`` must be answered before the runs can be stored; the others are stored
    as unknown. ``is_joined`` says of a file without runs, such as a power log, that it belongs to runs of another file
    of the upload. ``members`` are the reports of an archive's files. ``reason`` says why a file was not accepted.
    """

    name: str
    kind: Kind | None
    accepted: bool
    content_digest: str
    runs: tuple[ImportedRun, ...] = ()
    missing: tuple[Ask, ...] = ()
    warnings: tuple[str, ...] = ()
    reason: str | None = None
    suggested: Mapping[str, str | int] = field(default_factory=lambda: MappingProxyType({}))
    power: PowerLog | None = None
    members: tuple["FileReport", ...] = ()
    is_joined: bool = False

    @property
    def required(self) -> tuple[Ask, ...]:
        return tuple(each for each in self.missing if each in REQUIRED_ASKS)

    @property
    def storable(self) -> bool:
        """Whether its runs can be stored as they are."""
        return self.accepted and bool(self.runs) and not self.required
