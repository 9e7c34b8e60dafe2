"""What one rank holds: weights, activation peak, runtime and the rest for the KV cache, as its engine divides them."""

from dataclasses import dataclass
from functools import lru_cache
from math import ceil, floor, inf, sqrt
from typing import NamedTuple

from service.sizing.accelerator import Accelerator
from service.sizing.engines.activation import activation, layer_widths
from service.sizing.engines.engine import GIB, Constant, Engine, FractionOf, Release
from service.sizing.engines.pool import PoolLayout, pool_layout
from service.sizing.language_model import LanguageModel
from service.sizing.parallelism import Parallelism
from service.sizing.precision import Precision
from service.sizing.weights import ServedWeights, Stage


class Graphs(NamedTuple):
    """CUDA graphs of all captured batch sizes, by the layers captured and whether they hold experts."""

    base: Constant
    per_layer_bytes: float
    experts_bytes: float

    def size_bytes(self, model: LanguageModel, stage: Stage) -> float:
        experts = self.experts_bytes if model.is_moe else 0.0
        return self.base.value + self.per_layer_bytes * (stage.end_layer - stage.first_layer) + experts


# Least squares on the odd H100 start-ups of vLLM 0.19 (102 sizes each). The engine's estimate before it allocates the
# pool, and what the graphs took, differ: 0.61 to 1.92 GiB against 0.64 to 1.85, by up to 0.9 GiB for one model.
GRAPHS_ESTIMATED = Graphs(
    Constant(0.375 * GIB, 0.75 * GIB, "llm-d planner pull request 205"), 0.0176 * GIB, 0.317 * GIB
)
GRAPHS_TAKEN = Graphs(Constant(0.29 * GIB, 0.33 * GIB, "llm-d planner pull request 205"), 0.0173 * GIB, 0.79 * GIB)
UNIFIED_MEMORY = Constant(
    0.0, 14 * GIB, "DGX Spark: page cache and loader count as used, 4 to 30 GiB (spark-vllm-docker 286, 396)"
)
MXFP4_COLUMNS = 256  # kernels for MXFP4 experts pad their width to a multiple of this


class EngineSettings(NamedTuple):
    """An engine with every flag resolved.

    ``kv_cache_memory_bytes`` sets the pool past every other rule. ``context_shards``: decode context parallel.
    ``free_memory_bytes`` is what a device has free before the engine starts; ``None``: nothing else uses it.
    """

    engine: Engine
    release: Release
    memory_fraction: float
    max_model_len_tokens: int
    max_num_batched_tokens: int
    max_num_seqs: int
    prefix_caching: bool
    cuda_graphs: bool
    kv_cache_memory_bytes: float | None = None
    context_shards: int = 1
    free_memory_bytes: float | None = None


class Deployment(NamedTuple):
    """A model in a weight scheme under an engine, on devices of one kind; the layout is asked for apart.

    ``draft_weight_bytes`` are resident with the last stage when tokens are drafted (MTP layers), and
    ``draft_layer_count`` layers more keep keys and values there.
    """

    model: LanguageModel
    weights: ServedWeights
    device: Accelerator
    settings: EngineSettings
    kv_cache: Precision
    draft_weight_bytes: float = 0.0
    draft_tokens: int = 0
    draft_layer_count: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class RankMemory:
    """One rank of one stage, as the engine divides it; compared by identity.

    ``reserved_bytes`` is what the memory fraction leaves untouched. ``runtime_bytes`` holds the CUDA graphs where they
    are charged. ``plus_minus_bytes``: how far the budget may be off, the constants' errors added as squares.
    ``overcommitted_bytes``: what the engine would need beyond the device.
    """

    stage: Stage
    usable_bytes: float
    weight_bytes: float
    activation_bytes: float
    runtime_bytes: float
    graph_bytes: float
    reserved_bytes: float
    budget_bytes: float
    plus_minus_bytes: float
    pool: PoolLayout

    @property
    def overcommitted_bytes(self) -> float:
        """Whole bytes: a sum that comes out at all of the device leaves a residue of rounding, which is not memory."""
        spent = self.weight_bytes + self.activation_bytes + self.runtime_bytes + self.reserved_bytes
        return max(0.0, floor(spent + max(0.0, self.budget_bytes) - self.usable_bytes + ROUNDING_BYTES))

    @property
    def block_count(self) -> int:
        return self.blocks_in(self.budget_bytes)

    def blocks_in(self, pool_bytes: float) -> int:
        return max(0, floor(pool_bytes / self.pool.block_bytes)) if self.pool.block_bytes else 0

    def concurrency(self, length_tokens: int) -> float:
        """Requests of that length that the pool holds at once; unlimited where a request keeps nothing."""
        blocks = self.pool.blocks_per_request(length_tokens)
        return self.block_count / blocks if blocks else inf

    def needed_bytes(self, length_tokens: int) -> int:
        """Of the pool, for one request of that length."""
        return self.pool.blocks_per_request(length_tokens) * self.pool.block_bytes


def padding_bytes(model: LanguageModel, weights: ServedWeights, parallelism: Parallelism) -> float:
    """What loading adds to MXFP4 experts: kernels pad their width on a rank to a multiple of 256.

    gpt-oss's 2,880 becomes 3,072: 64.4 GiB printed for a checkpoint of 60.8.
    """
    if not weights.scheme.startswith("mxfp4") or not model.is_moe:
        return 0.0
    width = layer_widths(model).expert / (parallelism.tp if parallelism.ep == 1 else 1)
    padded = ceil(width / MXFP4_COLUMNS) * MXFP4_COLUMNS
    return weights.expert_read_bytes / (parallelism.tp * parallelism.dp) * (padded / width - 1)


ROUNDING_BYTES = 0.5


@lru_cache(maxsize=512)
def rank_memory(deployment: Deployment, parallelism: Parallelism, stage: Stage) -> RankMemory:
    """Memory of one rank of a stage, divided as the engine divides it."""
    model, settings, weights = deployment.model, deployment.settings, deployment.weights
    engine, release = settings.engine, settings.release
    weight_bytes = weights.bytes_per_rank(parallelism, stage) + padding_bytes(model, weights, parallelism)
    weight_bytes += deployment.draft_weight_bytes / parallelism.tp * stage.is_last
    peak = activation(
        model,
        weights,
        parallelism,
        stage,
        engine=engine,
        release=release,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        max_num_seqs=settings.max_num_seqs,
        max_model_len_tokens=settings.max_model_len_tokens,
    )
    captured = GRAPHS_ESTIMATED if release.graphs_are_charged else GRAPHS_TAKEN
    graphs = captured.size_bytes(model, stage) if settings.cuda_graphs else 0.0
    runtime = release.runtime(parallelism.device_count)
    divided = _divided(
        settings,
        usable=deployment.device.usable_memory_bytes,
        weight_bytes=weight_bytes,
        activation_bytes=peak.size_bytes,
        runtime_bytes=runtime.value,
        graphs=graphs,
    )
    graphs_off = captured.base.plus_minus if settings.cuda_graphs and release.graphs_are_charged else 0.0
    shared_off = UNIFIED_MEMORY.plus_minus if deployment.device.unified_memory else 0.0
    return RankMemory(
        stage=stage,
        usable_bytes=deployment.device.usable_memory_bytes,
        weight_bytes=weight_bytes,
        activation_bytes=peak.size_bytes,
        runtime_bytes=divided.runtime_bytes,
        graph_bytes=graphs,
        reserved_bytes=divided.reserved_bytes,
        budget_bytes=divided.budget_bytes,
        plus_minus_bytes=sqrt(peak.plus_minus_bytes**2 + runtime.plus_minus**2 + graphs_off**2 + shared_off**2),
        pool=pool_layout(
            model,
            stage,
            engine=engine,
            release=release,
            tp=parallelism.tp,
            kv_cache=deployment.kv_cache,
            max_num_batched_tokens=settings.max_num_batched_tokens,
            prefix_caching=settings.prefix_caching,
            draft_tokens=deployment.draft_tokens,
            draft_layer_count=deployment.draft_layer_count,
            context_shards=settings.context_shards,
        ),
    )


@dataclass(frozen=True, slots=True)
class _Division:
    runtime_bytes: float
    reserved_bytes: float
    budget_bytes: float


def _divided(
    settings: EngineSettings,
    *,
    usable: float,
    weight_bytes: float,
    activation_bytes: float,
    runtime_bytes: float,
    graphs: float,
) -> _Division:
    """Each engine's own sum. What the fraction leaves holds graphs and activations where they are not inside it."""
    fraction, spent = settings.memory_fraction, weight_bytes + activation_bytes + runtime_bytes
    match settings.engine.fraction_of:
        case FractionOf.TOTAL:
            runtime_bytes += graphs if settings.release.graphs_are_charged else 0.0
            reserved = usable * (1 - fraction)
            budget = usable - reserved - weight_bytes - activation_bytes - runtime_bytes
        case FractionOf.FREE_BEFORE_LOAD:
            free = usable if settings.free_memory_bytes is None else settings.free_memory_bytes
            budget = (free - runtime_bytes) * fraction - weight_bytes
            runtime_bytes += graphs
            reserved = max(0.0, usable - budget - weight_bytes - activation_bytes - runtime_bytes)
        case FractionOf.FREE_AFTER_LOAD:
            runtime_bytes += graphs
            left = usable - spent - graphs
            budget = left * fraction
            reserved = max(0.0, left) * (1 - fraction)
        case FractionOf.NOTHING:
            reserved, budget = 0.0, usable - spent
    if settings.kv_cache_memory_bytes is not None:
        budget = settings.kv_cache_memory_bytes
        reserved = max(0.0, usable - budget - weight_bytes - activation_bytes - runtime_bytes)
    return _Division(runtime_bytes, reserved, budget)
