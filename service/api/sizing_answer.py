"""The answer of ``POST /sizing``: its schema, with the definition of every figure.

Documents are built in ``sizing_document.py`` and checked against these models by the tests only.
"""

from typing import Any, Literal

from pydantic import Field

from service.api.estimate_schemas import AnswerModel, EstimateRead, EvidenceRead
from service.api.layouts import ParallelismInputs, PoolsInputs, PoolsRead
from service.sizing.cost import Allocation
from service.sizing.energy import PowerKind, PowerScope
from service.sizing.precision import Density, Precision
from service.sizing.remarks import WarningCode
from service.sizing.roofline import Bound
from service.sizing.workload import Statistic


class PrecisionInputs(AnswerModel):
    weights: str
    kv_cache: Precision
    compute: Precision | None
    compute_reason: str | None = Field(description="why the matrices are multiplied in this precision")


class WorkloadInputs(AnswerModel):
    isl_tokens: int = Field(description="mean")
    osl_tokens: int = Field(description="mean")
    concurrency: int | None
    request_rate_per_s: float | None
    cached_prefix_tokens: int


class TargetInputs(AnswerModel):
    ttft_s: float | None
    tpot_s: float | None
    statistic: Statistic


class EngineInputs(AnswerModel):
    name: str
    version: str
    rules_of_version: str = Field(description="the release whose rules were used")
    memory_fraction: float
    max_model_len_tokens: int
    max_num_batched_tokens: int
    max_num_seqs: int
    prefix_caching: bool
    cuda_graphs: bool
    kv_cache_memory_bytes: int | None
    decode_context_parallel_count: int
    free_memory_bytes: int | None


class SpeculationInputs(AnswerModel):
    method: str
    draft_tokens: int
    acceptance_length_tokens: float


class PowerInputs(AnswerModel):
    limit_w_per_gpu: float | None
    pue: float | None
    scope: PowerScope


class EconomicsInputs(AnswerModel):
    usd_per_gpu_h: float | None
    usd_per_kwh: float | None
    on: str | None


class Inputs(AnswerModel):
    """The question with everything resolved."""

    model: str
    model_revision: int | None = Field(description="null for a config given in the request")
    accelerator: str
    accelerator_revision: int
    catalogue_revision: int
    precision: PrecisionInputs
    density: Density
    parallelism: ParallelismInputs | PoolsInputs = Field(
        description="of one replica, or the pools of a disaggregated system"
    )
    gpu_count_per_replica: int = Field(description="of a disaggregated system, both pools")
    replica_count: int
    gpu_count_total: int
    idle_gpu_count: int = Field(description="GPUs of the systems used that no replica fills")
    workload: WorkloadInputs
    target: TargetInputs | None
    engine: EngineInputs
    speculation: SpeculationInputs | None
    power: PowerInputs
    economics: EconomicsInputs | None


class EngineStart(AnswerModel):
    """The engine's own check and what it prints at start."""

    would_start: bool = Field(
        description="one request of its maximum length fits, and the memory that it claims is free"
    )
    block_tokens: int
    block_count: int
    reported_tokens: int = Field(description="KV cache size in tokens by the formula of the engine's version")
    reported_concurrency: float = Field(description="requests of the maximum length at once")
    block_bytes_per_gpu: int
    needed_bytes_per_gpu: int = Field(description="of the KV cache, for one request of the maximum length")
    refusal: str | None = Field(description="the first of the engine's checks that fails; null when it would start")


class RankRead(AnswerModel):
    """Per device, as for the fullest rank."""

    stage_index: int
    layer_count: int
    weight_bytes: int
    activation_bytes: int
    runtime_bytes: int
    reserved_bytes: int
    kv_cache_budget_bytes: int
    block_count: int


class PoolChangeRead(AnswerModel):
    pool_change_bytes: int
    reported_tokens: int
    max_concurrency: int


class MemoryFitRead(AnswerModel):
    """Of the fullest rank. A GPU of several devices is given per device.

    Of a disaggregated system: a decode worker, with `fits` and the shortfall of both pools; `pools` has each.
    """

    fits: bool = Field(description="weights, overheads and one request of ISL + OSL fit on every GPU of the layout")
    minimum_gpu_count: int | None = Field(description="smallest legal tp x pp for which it fits; null for none")
    usable_bytes_per_gpu: int = Field(description="what a driver reports, measured where known, otherwise derived")
    weight_bytes_per_gpu: int
    activation_bytes_per_gpu: int
    runtime_bytes_per_gpu: int = Field(description="driver context, communicators, CUDA graphs where charged")
    reserved_bytes_per_gpu: int = Field(description="left untouched by the engine's memory fraction")
    kv_cache_budget_bytes_per_gpu: int
    kv_cache_bytes_per_token_per_gpu: int = Field(description="while the context is below every window")
    state_bytes_per_sequence_per_gpu: int
    kv_cache_capacity_tokens: int = Field(description="of the replica, in requests of the asked length")
    max_concurrency: int = Field(description="requests of the asked length that the replica's KV caches hold")
    max_context_tokens: int = Field(description="longest single request")
    shortfall_bytes_per_gpu: int = Field(description="missing for one request of the asked length; 0 when it fits")
    engine: EngineStart
    kv_cache_budget_plus_minus_bytes_per_gpu: int = Field(
        description="how far the budget may be off: the errors of the engine's constants, added as squares"
    )
    graph_bytes_per_gpu: int = Field(description="CUDA graphs; within runtime_bytes where the engine charges them")
    overcommitted_bytes_per_gpu: int = Field(description="what the engine would need beyond the device once it runs")
    ranks: list[RankRead] = Field(description="one of each pipeline stage, the ranks of a stage being equal")
    sensitivity: list[PoolChangeRead] = Field(description="small pools are fragile: 1 GiB less, and 1 GiB more")


class OperatorRead(AnswerModel):
    name: Literal["projections", "experts", "attention"]
    bound: Bound
    arithmetic_intensity_flop_per_byte: float


class CrossoverRead(AnswerModel):
    """Where decode turns from memory-bound to compute-bound."""

    balance_point_flop_per_byte: float = Field(description="dense rate at the compute precision / memory bandwidth")
    arithmetic_intensity_flop_per_byte: float = Field(
        description="textbook, one sequence: 2 FLOP per parameter over the width of a weight, no scales, no KV cache"
    )
    arithmetic_intensity_at_batch_flop_per_byte: float = Field(
        description="of the decode step at its batch with KV reads and expert coverage, at the compute precision's rate"
    )
    weights_only_batch: float = Field(description="textbook: balance point x bytes per weight / 2, dense model")
    batch: float | None = Field(
        description="real bytes, KV reads and expert coverage at spec rates, in sequences of the replica (a pipeline's "
        "micro-batches hold batch / pp each); null when decode never turns"
    )
    attained_batch: float | None = Field(description="the same at the fitted efficiencies")
    bound: Bound
    reason: str
    operators: list[OperatorRead]


class TermRead(AnswerModel):
    """A term of the sum that the time is."""

    name: str
    time_s: float
    spec_time_s: float = Field(description="at printed rates; 0 for fixed overheads")
    bound: Bound


class PrefillRead(AnswerModel):
    """One prompt alone on the replica, or on a prefill worker; under load see serving.ttft_s."""

    time_s: EstimateRead
    physics_time_s: float = Field(description="the sum of the terms: without what stored runs say")
    input_tokens_per_s_per_gpu: EstimateRead
    bound: Bound
    arithmetic_intensity_flop_per_byte: float
    mfu: float = Field(description="arithmetic at dense peak / time")
    mbu: float = Field(description="bytes at printed bandwidth / time")
    terms: list[TermRead]


class DecodeRead(AnswerModel):
    """One decode step of the batch that runs at the asked load."""

    batch: int = Field(description="of pools, the mean of a decode worker: times are of the mean, this is rounded")
    step_time_s: EstimateRead
    physics_time_s: float = Field(description="the sum of the terms: without what stored runs say")
    single_user_tokens_per_s: EstimateRead = Field(
        description="one request alone on the replica, or on a decode worker"
    )
    bound: Bound
    mbu: float
    mfu: float
    terms: list[TermRead]


class ServingRead(AnswerModel):
    """A closed loop of one replica. TPOT is (end to end - TTFT) / (output tokens - 1); output tokens only."""

    concurrency: int
    ttft_s: EstimateRead = Field(description="with waiting under load")
    tpot_s: EstimateRead | None = Field(description="null for a single output token")
    requests_per_s: EstimateRead
    output_tokens_per_s: EstimateRead
    output_tokens_per_s_per_gpu: EstimateRead
    prefill_time_fraction: float = Field(
        description="share of the replica's time spent on prompts; of pools, share of the prefill pool's time"
    )
    meets_target_probability: float | None = Field(
        description="that TTFT and TPOT keep the target at its statistic; null without a target"
    )


class ScopedPowerRead(AnswerModel):
    scope: PowerScope
    kind: PowerKind
    because: str
    power_w_per_gpu: EstimateRead | None
    output_tokens_per_s_per_w: EstimateRead | None
    energy_j_per_output_token: EstimateRead | None


class AtTargetRead(AnswerModel):
    """The largest concurrency that keeps the target, and what a watt yields there."""

    concurrency: int
    scope: PowerScope
    output_tokens_per_s_per_gpu: EstimateRead
    output_tokens_per_s_per_w: EstimateRead | None


class EnergyRead(AnswerModel):
    scopes: list[ScopedPowerRead]
    at_target: AtTargetRead | None = Field(description="null without a target, or when one request misses it")


class CostRead(AnswerModel):
    """Out of the caller's price. Energy is included when a price per kWh was given, at the asked scope."""

    usd_per_input_token: EstimateRead
    usd_per_cached_input_token: EstimateRead | None
    usd_per_output_token: EstimateRead
    usd_per_h_per_replica: EstimateRead
    usd_per_h_total: EstimateRead
    allocation: Allocation = Field(
        description="by what the cost is divided between input and output; of pools, by the GPUs of each"
    )


class SuitsRead(AnswerModel):
    suits: bool | None = Field(description="null where how fast it is cannot be said")
    because: str


class VerdictRead(AnswerModel):
    interactive: SuitsRead
    batch: SuitsRead


class AssumptionRead(AnswerModel):
    field: str
    value: Any
    origin: str


class WarningRead(AnswerModel):
    code: WarningCode
    detail: str


class CitedSource(AnswerModel):
    title: str
    url: str | None


class SizingAnswer(AnswerModel):
    """Every block is present; one is null where it cannot be said, and a warning says why."""

    inputs: Inputs
    memory_fit: MemoryFitRead
    pools: PoolsRead | None = Field(description="of disaggregated systems alone")
    crossover: CrossoverRead | None
    prefill: PrefillRead | None
    decode: DecodeRead | None
    serving: ServingRead | None
    energy: EnergyRead
    cost: CostRead | None
    verdict: VerdictRead
    evidence: EvidenceRead
    assumptions: list[AssumptionRead]
    warnings: list[WarningRead]
    sources: list[CitedSource]
