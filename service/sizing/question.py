"""The question as asked: what is left out is ``None``, and ``resolution.py`` says what it becomes."""

from dataclasses import dataclass, field

from service.sizing.accelerator import Accelerator
from service.sizing.disaggregated import Pools
from service.sizing.energy import PowerScope
from service.sizing.language_model import LanguageModel
from service.sizing.parallelism import Parallelism
from service.sizing.precision import Density, Precision
from service.sizing.workload import Length, Target


@dataclass(frozen=True, slots=True)
class PrecisionAsked:
    weights: str | None = None
    kv_cache: Precision | None = None
    compute: Precision | None = None


@dataclass(frozen=True, slots=True)
class EngineAsked:
    """``free_memory_bytes``: what each device has free before the engine starts."""

    name: str | None = None
    version: str | None = None
    memory_fraction: float | None = None
    max_model_len_tokens: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    prefix_caching: bool | None = None
    cuda_graphs: bool | None = None
    kv_cache_memory_bytes: float | None = None
    decode_context_parallel_count: int | None = None
    free_memory_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class WorkloadAsked:
    """Either ``concurrency`` or ``request_rate_per_s``; neither means the largest that meets the target."""

    isl: Length | None = None
    osl: Length | None = None
    concurrency: int | None = None
    request_rate_per_s: float | None = None
    cached_prefix_tokens: int = 0


@dataclass(frozen=True, slots=True)
class SpeculationAsked:
    """``method``: mtp, eagle (a layer drafts) or ngram (nothing is computed to draft)."""

    method: str
    draft_tokens: int
    acceptance_length_tokens: float


@dataclass(frozen=True, slots=True)
class PowerAsked:
    limit_w_per_gpu: float | None = None
    pue: float | None = None
    scope: PowerScope = PowerScope.ACCELERATOR


@dataclass(frozen=True, slots=True)
class EconomicsAsked:
    usd_per_gpu_h: float
    usd_per_kwh: float | None = None
    on: str | None = None


@dataclass(frozen=True, slots=True)
class SizingInputs:
    """``parallelism`` of ``None`` is "auto"; ``replica_count`` of ``None`` is as many as the system holds.

    A replica of ``Pools`` is the whole disaggregated system.
    """

    model: LanguageModel
    accelerator: Accelerator
    precision: PrecisionAsked = field(default_factory=PrecisionAsked)
    density: Density = Density.DENSE
    parallelism: Parallelism | Pools | None = None
    replica_count: int | None = 1
    workload: WorkloadAsked = field(default_factory=WorkloadAsked)
    target: Target = field(default_factory=Target)
    engine: EngineAsked = field(default_factory=EngineAsked)
    speculation: SpeculationAsked | None = None
    power: PowerAsked = field(default_factory=PowerAsked)
    economics: EconomicsAsked | None = None

    @property
    def decode_layout(self) -> Parallelism | None:
        """Of what decodes: a replica, or a worker of the decode pool."""
        return self.parallelism.decode.parallelism if isinstance(self.parallelism, Pools) else self.parallelism
