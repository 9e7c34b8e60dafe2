"""What an answer owes besides numbers: the defaults it took, and what one should beware of."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class WarningCode(StrEnum):
    SPARSE_RATE_ONLY = "sparse_rate_only"
    SPARSE_RATE_USED = "sparse_rate_used"
    PRECISION_NOT_NATIVE = "precision_not_native"
    KV_HEADS_REPLICATED = "kv_heads_replicated"
    LEAVES_SCALE_UP_DOMAIN = "leaves_scale_up_domain"
    OUTSIDE_EVIDENCE = "outside_evidence"
    EVIDENCE_DISAGREES = "evidence_disagrees"
    EVIDENCE_LOADING = "evidence_loading"
    NO_COVERAGE_MEASURED = "no_coverage_measured"
    TAIL_LENGTH_UNKNOWN = "tail_length_unknown"
    TAIL_FROM_FEW_RUNS = "tail_from_few_runs"
    POWER_UNKNOWN = "power_unknown"
    POWER_LIMIT_MODELLED = "power_limit_modelled"
    PRICE_DATED = "price_dated"
    QUALITY_UNVERIFIED = "quality_unverified"
    ENGINE_VERSION_UNKNOWN = "engine_version_unknown"
    INTERVAL_WIDER_THAN_ANSWER = "interval_wider_than_answer"
    DOES_NOT_FIT = "does_not_fit"
    ENGINE_WOULD_NOT_START = "engine_would_not_start"
    RATE_NOT_PUBLISHED = "rate_not_published"
    RATE_NOT_SUSTAINED = "rate_not_sustained"
    REQUESTS_QUEUE = "requests_queue"
    DRAFTER_NOT_IN_CHECKPOINT = "drafter_not_in_checkpoint"
    FIGURE_UNVERIFIED = "figure_unverified"
    MEMORY_IS_SHARED = "memory_is_shared"
    SPEED_NOT_MODELLED = "speed_not_modelled"


class Assumption(NamedTuple):
    """A value that the caller did not give, and where it comes from."""

    field: str
    value: Any
    origin: str


class Caution(NamedTuple):
    code: WarningCode
    detail: str


@dataclass(slots=True)
class Remarks:
    """Collected while an answer is worked out."""

    assumptions: list[Assumption] = field(default_factory=list)
    warnings: list[Caution] = field(default_factory=list)

    def assume(self, name: str, value: T, origin: str) -> T:
        self.assumptions.append(Assumption(name, value, origin))
        return value

    def add(self, others: "Remarks") -> None:
        self.assumptions += others.assumptions
        self.warnings += others.warnings

    def warn(self, code: WarningCode, detail: str) -> None:
        self.warnings.append(Caution(code, detail))
