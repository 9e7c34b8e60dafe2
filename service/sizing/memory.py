"""Does it fit: the ranks of a layout, the fullest of them, and what the engine says at start.

The KV cache budget is what an engine leaves after weights, its activation peak and its runtime, inside its
memory fraction (``rank_memory.py``). Sizes are per device; the fullest rank decides.
"""

from bisect import bisect_left
from dataclasses import dataclass
from math import floor, inf

from service.sizing.engines.engine import GIB, FractionOf
from service.sizing.engines.pool import PoolLayout
from service.sizing.interconnect import joined_device_count, scale_up_reach
from service.sizing.parallelism import Parallelism
from service.sizing.rank_memory import Deployment, EngineSettings, RankMemory, rank_memory
from service.sizing.weights import layout_problem, pipeline_stages


@dataclass(frozen=True, slots=True)
class PoolChange:
    """The figures of a pool of another size: the budget rests on constants with errors, and small pools are fragile."""

    change_bytes: float
    reported_tokens: int
    max_concurrency: int


@dataclass(frozen=True, slots=True)
class MemoryFit:
    """The answer for a layout. Per-GPU sizes are of the rank that holds the fewest requests.

    ``needed_bytes`` is what the engine asks of the pool for one request of its maximum length.
    """

    fullest: RankMemory
    ranks: tuple[RankMemory, ...]
    fits: bool
    kv_cache_bytes_per_token: float
    state_bytes_per_sequence: float
    capacity_tokens: int
    max_concurrency: int
    max_context_tokens: int
    shortfall_bytes: float
    would_start: bool
    refusal: str | None
    needed_bytes: int
    reported_tokens: int
    reported_concurrency: float
    smaller_pool: PoolChange
    larger_pool: PoolChange


def memory_fit(deployment: Deployment, parallelism: Parallelism, *, length_tokens: int) -> MemoryFit:
    """Whether one request of ``length_tokens`` fits on every rank, and how many do in the replica.

    Requests spread evenly over the dp ranks, each with a KV cache of its own.
    """
    model, settings = deployment.model, deployment.settings
    ranks = tuple(
        rank_memory(deployment, parallelism, stage) for stage in pipeline_stages(model.layer_count, parallelism.pp)
    )
    fullest = ranks[0] if len(ranks) == 1 else min(ranks, key=lambda rank: _fullness(rank, length_tokens))
    block_count, pool = fullest.block_count, fullest.pool
    per_request = pool.blocks_per_request(length_tokens)
    per_maximum = pool.blocks_per_request(settings.max_model_len_tokens)
    concurrency = block_count / per_request if per_request else inf
    at_maximum = block_count / per_maximum if per_maximum else inf
    needed_bytes = per_maximum * pool.block_bytes
    longest = pool.max_length_tokens(block_count)
    refusal = _refusal(fullest, settings, needed_bytes)
    return MemoryFit(
        fullest=fullest,
        ranks=ranks,
        fits=fullest.budget_bytes > 0 and concurrency >= 1 and not fullest.overcommitted_bytes,
        kv_cache_bytes_per_token=fullest.pool.bytes_per_token,
        state_bytes_per_sequence=fullest.pool.state_bytes_per_sequence,
        capacity_tokens=floor(min(concurrency, UNLIMITED) * length_tokens) * parallelism.dp,
        max_concurrency=floor(min(concurrency, UNLIMITED)) * parallelism.dp,
        max_context_tokens=min(int(min(longest, UNLIMITED)), settings.max_model_len_tokens),
        shortfall_bytes=max(per_request * pool.block_bytes - fullest.budget_bytes, fullest.overcommitted_bytes, 0.0),
        would_start=refusal is None,
        refusal=refusal,
        needed_bytes=needed_bytes,
        reported_tokens=_reported_tokens(pool, settings, block_count, at_maximum),
        reported_concurrency=min(at_maximum, UNLIMITED),
        smaller_pool=_pool_change(
            fullest, settings, -GIB, per_request=per_request, per_maximum=per_maximum, dp=parallelism.dp
        ),
        larger_pool=_pool_change(
            fullest, settings, GIB, per_request=per_request, per_maximum=per_maximum, dp=parallelism.dp
        ),
    )


UNLIMITED = 2**31 - 1  # a model without a cache holds as many requests as one likes


def _fullness(rank: RankMemory, length_tokens: int) -> tuple[float, float]:
    return rank.concurrency(length_tokens), rank.budget_bytes


def _refusal(rank: RankMemory, settings: EngineSettings, needed_bytes: int) -> str | None:
    """Why the engine would not start: the first of its own checks that fails."""
    requested = rank.usable_bytes * settings.memory_fraction
    free = settings.free_memory_bytes
    if settings.engine.fraction_of is FractionOf.TOTAL and free is not None and free < requested:
        return f"{free:.0f} bytes are free, and the memory fraction asks for {requested:.0f}"
    if rank.budget_bytes <= 0:
        return f"nothing is left for the KV cache: {-rank.budget_bytes:.0f} bytes are missing"
    if needed_bytes > rank.block_count * rank.pool.block_bytes:
        return f"one request of the maximum length needs {needed_bytes} bytes, and the pool has {rank.budget_bytes:.0f}"
    if rank.overcommitted_bytes:
        return f"{rank.overcommitted_bytes:.0f} bytes more than the device has are needed once it runs"
    return None


def reported_tokens(rank: RankMemory, settings: EngineSettings, block_count: int) -> int:
    """The figure in the engine's start-up log: by concurrency since vLLM 0.21, by blocks per group before."""
    per_maximum = rank.pool.blocks_per_request(settings.max_model_len_tokens)
    return _reported_tokens(rank.pool, settings, block_count, block_count / per_maximum if per_maximum else inf)


def _reported_tokens(pool: PoolLayout, settings: EngineSettings, block_count: int, at_maximum: float) -> int:
    if settings.release.tokens_follow_concurrency:
        return int(min(at_maximum, UNLIMITED) * settings.max_model_len_tokens)
    return block_count // max(1, pool.group_count) * pool.block_tokens * pool.context_shards


def _pool_change(
    rank: RankMemory, settings: EngineSettings, change_bytes: float, *, per_request: int, per_maximum: int, dp: int
) -> PoolChange:
    blocks = rank.blocks_in(rank.budget_bytes + change_bytes)
    return PoolChange(
        change_bytes,
        _reported_tokens(rank.pool, settings, blocks, blocks / per_maximum if per_maximum else inf),
        min(blocks // per_request, UNLIMITED) * dp if per_request else UNLIMITED,
    )


def smallest_layouts(deployment: Deployment, *, length_tokens: int) -> list[Parallelism]:
    """All legal tp x pp of the smallest device count on which one request fits; empty when none does.

    tp stays where the devices reach each other, and the whole where a published link joins them.
    """
    smallest, found = LARGEST_LAYOUT + 1, []
    for tp in range(1, scale_up_reach(deployment.device) + 1):
        if tp > smallest or layout_problem(deployment.model, Parallelism(tp=tp)):
            continue
        most_stages = min(deployment.model.layer_count, joined_device_count(deployment.device, LARGEST_LAYOUT) // tp)
        pp = _fewest_stages(deployment, tp=tp, most=min(most_stages, smallest // tp), length_tokens=length_tokens)
        if pp is not None:
            found.append(Parallelism(tp=tp, pp=pp))
            smallest = min(smallest, tp * pp)
    return [each for each in found if each.device_count == smallest]


LARGEST_LAYOUT = 576  # eight racks of 72
SHORT_PIPELINE = 16


def _fewest_stages(deployment: Deployment, *, tp: int, most: int, length_tokens: int) -> int | None:
    """The shortest pipeline that fits at a tp, or none up to ``most`` stages.

    Short ones are tried in turn. More stages leave each less to hold, so of the longer ones none fits when the
    longest does not, and the shortest is found by halving.
    """

    def fits(pp: int) -> bool:
        return _fits(deployment, Parallelism(tp=tp, pp=pp), length_tokens=length_tokens)

    fewest = max(1, int(deployment.weights.total_bytes // deployment.device.usable_memory_bytes) // tp)
    for pp in range(fewest, min(most, SHORT_PIPELINE) + 1):
        if fits(pp):
            return pp
    longer = range(max(fewest, SHORT_PIPELINE + 1), most + 1)
    if not longer or not fits(most):
        return None
    return longer[bisect_left(longer, True, key=fits)]


def _fits(deployment: Deployment, parallelism: Parallelism, *, length_tokens: int) -> bool:
    """Stops at the first stage that does not fit; the last one, which samples, and the first are the likeliest."""
    first, *between = pipeline_stages(deployment.model.layer_count, parallelism.pp)
    return all(
        (rank := rank_memory(deployment, parallelism, stage)).budget_bytes > 0
        and rank.concurrency(length_tokens) >= 1
        and not rank.overcommitted_bytes
        for stage in (*reversed(between), first)
    )
