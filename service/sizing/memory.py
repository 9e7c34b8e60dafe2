"""Does it fit: weights, overheads and KV cache per GPU, for the fullest rank of the layout.

The KV cache budget is what an engine leaves after weights, its activation peak and its runtime, inside its
memory fraction. Sizes are per device; the fullest rank decides.
"""

from dataclasses import dataclass
from math import floor, inf

from service.sizing.accelerator import Accelerator
from service.sizing.engines.engine import GIB, Engine, FractionOf, Release
from service.sizing.engines.pool import PoolLayout, pool_layout
from service.sizing.interconnect import scale_up_reach
from service.sizing.language_model import LanguageModel
from service.sizing.parallelism import Parallelism
from service.sizing.precision import Precision
from service.sizing.weights import ServedWeights, Stage, layout_problem, pipeline_stages

ACTIVATION_COPIES = 3  # of the hidden states of a step, in 16 bits
EXPERT_WORKSPACE_BYTES = 0.45 * GIB
VISION_WORKSPACE_BYTES = 0.15 * GIB


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """An engine with every flag resolved."""

    engine: Engine
    release: Release
    memory_fraction: float
    max_model_len_tokens: int
    max_num_batched_tokens: int
    max_num_seqs: int
    prefix_caching: bool
    cuda_graphs: bool


@dataclass(frozen=True, slots=True)
class Deployment:
    """A model in a weight scheme under an engine, on devices of one kind; the layout is asked for apart.

    ``draft_weight_bytes`` are resident with the last stage when tokens are drafted (MTP layers).
    """

    model: LanguageModel
    weights: ServedWeights
    device: Accelerator
    settings: EngineSettings
    kv_cache: Precision
    draft_weight_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class RankMemory:
    """One rank of one stage. ``reserved_bytes`` is what the memory fraction leaves untouched."""

    usable_bytes: float
    weight_bytes: float
    activation_bytes: float
    runtime_bytes: float
    reserved_bytes: float
    pool: PoolLayout

    @property
    def budget_bytes(self) -> float:
        """For the KV cache; negative when even the weights do not fit."""
        return self.usable_bytes - self.weight_bytes - self.activation_bytes - self.runtime_bytes - self.reserved_bytes

    @property
    def block_count(self) -> int:
        return max(0, floor(self.budget_bytes / self.pool.block_bytes)) if self.pool.block_bytes else 0

    def concurrency(self, length_tokens: int) -> float:
        """Requests of that length that the pool holds at once; unlimited where a request keeps nothing."""
        blocks = self.pool.blocks_per_request(length_tokens)
        return self.block_count / blocks if blocks else inf

    def shortfall_bytes(self, length_tokens: int) -> float:
        """What is missing for one request of that length; 0 when it fits."""
        needed = self.pool.blocks_per_request(length_tokens) * self.pool.block_bytes
        return max(0.0, needed - self.budget_bytes)


@dataclass(frozen=True, slots=True)
class MemoryFit:
    """The answer for a layout. Per-GPU sizes are of the rank that holds the fewest requests."""

    fullest: RankMemory
    fits: bool
    kv_cache_bytes_per_token: float
    state_bytes_per_sequence: float
    capacity_tokens: int
    max_concurrency: int
    max_context_tokens: int
    shortfall_bytes: float
    would_start: bool
    reported_tokens: int
    reported_concurrency: float


def activation_bytes(deployment: Deployment, stage: Stage) -> float:
    """Peak of a dummy step: the sampler's logits on the last stage, and the hidden states of a full batch.

    ``logit_bytes * max_num_seqs * vocabulary + 3 * max_num_batched_tokens * hidden * 2``, and a workspace for
    experts and for vision. Mean error of the pool 0.7 % on the 34 H100 start-ups from which the constants come.
    """
    model, settings = deployment.model, deployment.settings
    peak = ACTIVATION_COPIES * settings.max_num_batched_tokens * model.hidden_size * 2.0
    if stage.is_last:
        peak += settings.release.logit_bytes * settings.max_num_seqs * model.vocabulary_size
    if model.is_moe:
        peak += EXPERT_WORKSPACE_BYTES
    if deployment.weights.has_vision:
        peak += VISION_WORKSPACE_BYTES
    return peak


def rank_memory(deployment: Deployment, parallelism: Parallelism, stage: Stage) -> RankMemory:
    """Memory of one rank of a stage, divided as the engine divides it."""
    model, settings = deployment.model, deployment.settings
    usable = deployment.device.usable_memory_bytes
    weight_bytes = deployment.weights.bytes_per_rank(parallelism, stage)
    weight_bytes += deployment.draft_weight_bytes / parallelism.tp * stage.is_last
    activation = activation_bytes(deployment, stage)
    graphs = settings.engine.graph_bytes if settings.cuda_graphs else 0.0
    runtime = settings.engine.runtime_bytes(parallelism.device_count)
    match settings.engine.fraction_of:
        case FractionOf.TOTAL:
            runtime += graphs if settings.release.graphs_are_charged else 0.0
            reserved = usable * (1 - settings.memory_fraction)
        case FractionOf.FREE_BEFORE_LOAD:  # activations and graphs live in what the fraction leaves
            reserved = max(0.0, (usable - runtime) * (1 - settings.memory_fraction) - activation - graphs)
            runtime += graphs
        case FractionOf.FREE_AFTER_LOAD:
            runtime += graphs
            reserved = max(0.0, usable - weight_bytes - activation - runtime) * (1 - settings.memory_fraction)
    pool = pool_layout(
        model,
        stage,
        engine=settings.engine,
        tp=parallelism.tp,
        kv_cache=deployment.kv_cache,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        prefix_caching=settings.prefix_caching,
    )
    return RankMemory(usable, weight_bytes, activation, runtime, reserved, pool)


def memory_fit(deployment: Deployment, parallelism: Parallelism, *, length_tokens: int) -> MemoryFit:
    """Whether one request of ``length_tokens`` fits on every rank, and how many do in the replica.

    Requests spread evenly over the dp ranks, each with a KV cache of its own.
    """
    model, settings = deployment.model, deployment.settings
    ranks = [
        rank_memory(deployment, parallelism, stage) for stage in pipeline_stages(model.layer_count, parallelism.pp)
    ]
    fullest = min(ranks, key=lambda rank: (rank.concurrency(length_tokens), rank.budget_bytes))
    concurrency = fullest.concurrency(length_tokens)
    at_maximum = fullest.concurrency(settings.max_model_len_tokens)
    longest = fullest.pool.max_length_tokens(fullest.block_count)
    return MemoryFit(
        fullest=fullest,
        fits=fullest.budget_bytes > 0 and concurrency >= 1,
        kv_cache_bytes_per_token=fullest.pool.bytes_per_token,
        state_bytes_per_sequence=fullest.pool.state_bytes_per_sequence,
        capacity_tokens=floor(min(concurrency, UNLIMITED) * length_tokens) * parallelism.dp,
        max_concurrency=floor(min(concurrency, UNLIMITED)) * parallelism.dp,
        max_context_tokens=min(int(min(longest, UNLIMITED)), model.max_context_tokens or UNLIMITED),
        shortfall_bytes=fullest.shortfall_bytes(length_tokens),
        would_start=fullest.budget_bytes > 0 and at_maximum >= 1,
        reported_tokens=_reported_tokens(fullest, settings, at_maximum),
        reported_concurrency=min(at_maximum, UNLIMITED),
    )


UNLIMITED = 2**31 - 1  # a model without a cache holds as many requests as one likes


def _reported_tokens(rank: RankMemory, settings: EngineSettings, at_maximum: float) -> int:
    """The figure in the engine's start-up log: by concurrency since vLLM 0.21, by blocks per group before."""
    if settings.release.tokens_follow_concurrency:
        return int(min(at_maximum, UNLIMITED) * settings.max_model_len_tokens)
    return rank.block_count // max(1, rank.pool.group_count) * rank.pool.block_tokens


def smallest_layouts(deployment: Deployment, *, length_tokens: int) -> list[Parallelism]:
    """All legal tp x pp of the smallest device count on which one request fits; empty when none does.

    tp stays where the devices reach each other. Counts below weights / usable memory cannot fit and are not tried.
    """
    reach = scale_up_reach(deployment.device)
    fewest = max(1, int(deployment.weights.total_bytes // deployment.device.usable_memory_bytes))
    for count in range(fewest, LARGEST_LAYOUT + 1):
        found = [
            parallelism
            for tp in range(1, min(count, reach) + 1)
            if count % tp == 0
            and layout_problem(deployment.model, parallelism := Parallelism(tp=tp, pp=count // tp)) is None
            and _fits(deployment, parallelism, length_tokens=length_tokens)
        ]
        if found:
            return found
    return []


LARGEST_LAYOUT = 576  # eight racks of 72


def _fits(deployment: Deployment, parallelism: Parallelism, *, length_tokens: int) -> bool:
    """Stops at the first stage that does not fit, since most layouts that are tried do not."""
    return all(
        (rank := rank_memory(deployment, parallelism, stage)).budget_bytes > 0 and rank.concurrency(length_tokens) >= 1
        for stage in pipeline_stages(deployment.model.layer_count, parallelism.pp)
    )
