"""The question as asked: what is left out is ``None``, and ``resolution.py`` says what it becomes.

Tuples rather than dataclasses: what does not depend on the load is remembered by them, and they hash fast.
"""

from dataclasses import dataclass
from typing import NamedTuple

from service.sizing.accelerator import Accelerator
from service.sizing.disaggregated import Pools
from service.sizing.energy import PowerScope
from service.sizing.language_model import LanguageModel
from service.sizing.parallelism import Parallelism
from service.sizing.precision import Density, Precision
from service.sizing.workload import Length, Target


class PrecisionAsked(NamedTuple):
    weights: str | None = None
    kv_cache: Precision | None = None
    compute: Precision | None = None


class EngineAsked(NamedTuple):
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


class SpeculationAsked(NamedTuple):
    """``method``: mtp, eagle (a layer drafts) or ngram (nothing is computed to draft)."""

    method: str
    draft_tokens: int
    acceptance_length_tokens: float


class PowerAsked(NamedTuple):
    limit_w_per_gpu: float | None = None
    pue: float | None = None
    scope: PowerScope = PowerScope.ACCELERATOR


class EconomicsAsked(NamedTuple):
    usd_per_gpu_h: float
    usd_per_kwh: float | None = None
    on: str | None = None


class SizingInputs(NamedTuple):
    """``parallelism`` of ``None`` is "auto"; ``replica_count`` of ``None`` is as many as the system holds.

    A replica of ``Pools`` is the whole disaggregated system.
    """

    model: LanguageModel
    accelerator: Accelerator
    precision: PrecisionAsked = PrecisionAsked()
    density: Density = Density.DENSE
    parallelism: Parallelism | Pools | None = None
    replica_count: int | None = 1
    workload: WorkloadAsked = WorkloadAsked()
    target: Target = Target()
    engine: EngineAsked = EngineAsked()
    speculation: SpeculationAsked | None = None
    power: PowerAsked = PowerAsked()
    economics: EconomicsAsked | None = None

    @property
    def decode_layout(self) -> Parallelism | None:
        """Of what decodes: a replica, or a worker of the decode pool."""
        return self.parallelism.decode.parallelism if isinstance(self.parallelism, Pools) else self.parallelism

    @property
    def installed(self) -> "Installed":
        return Installed(
            self.model,
            self.accelerator,
            self.precision,
            self.density,
            self.decode_layout,
            self.engine,
            self.speculation,
        )


class Installed(NamedTuple):
    """What is asked for besides its load: many loads are asked of one."""

    model: LanguageModel
    accelerator: Accelerator
    precision: PrecisionAsked
    density: Density
    decode_layout: Parallelism | None
    engine: EngineAsked
    speculation: SpeculationAsked | None
