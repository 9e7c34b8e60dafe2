"""Does it fit: the ranks of a layout, the fullest of them, and what the engine says at start.

The KV cache budget is what an engine leaves after weights, its activation peak and its runtime, inside its
memory fraction (``rank_memory.py``). Sizes are per device; the fullest rank decides.
"""

from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from math import floor, inf
from typing import NamedTuple

from service.sizing.engines.engine import GIB, FractionOf
from service.sizing.interconnect import joined_device_count, scale_up_reach
from service.sizing.language_model import LanguageModel
from service.sizing.parallelism import Parallelism
from service.sizing.rank_memory import Deployment, EngineSettings, RankMemory, rank_memory
from service.sizing.weights import layout_problem, pipeline_stages


class PoolChange(NamedTuple):
    """The figures of a pool of another size: the budget rests on constants with errors, and small pools are fragile."""

    change_bytes: float
    reported_tokens: int
    max_concurrency: int


class MemoryFit(NamedTuple):
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
    ranks, dp = ranks_of(deployment, parallelism), parallelism.dp
    fullest = ranks[0] if len(ranks) == 1 else min(ranks, key=lambda rank: _fullness(rank, length_tokens))
    start, pool = _start_up(fullest, deployment.settings), fullest.pool
    per_request = pool.blocks_per_request(length_tokens)
    concurrency = min(start.block_count / per_request if per_request else inf, UNLIMITED)
    overcommitted_bytes = fullest.overcommitted_bytes
    return MemoryFit(
        fullest=fullest,
        ranks=ranks,
        fits=fullest.budget_bytes > 0 and concurrency >= 1 and not overcommitted_bytes,
        kv_cache_bytes_per_token=pool.bytes_per_token,
        state_bytes_per_sequence=pool.state_bytes_per_sequence,
        capacity_tokens=floor(concurrency * length_tokens) * dp,
        max_concurrency=floor(concurrency) * dp,
        max_context_tokens=start.max_context_tokens,
        shortfall_bytes=max(per_request * pool.block_bytes - fullest.budget_bytes, overcommitted_bytes, 0.0),
        would_start=start.refusal is None,
        refusal=start.refusal,
        needed_bytes=start.needed_bytes,
        reported_tokens=start.reported_tokens,
        reported_concurrency=start.reported_concurrency,
        smaller_pool=_pool_change(-GIB, start.smaller_pool, per_request=per_request, dp=dp),
        larger_pool=_pool_change(GIB, start.larger_pool, per_request=per_request, dp=dp),
    )


@lru_cache(maxsize=512)
def ranks_of(deployment: Deployment, parallelism: Parallelism) -> tuple[RankMemory, ...]:
    """One of each stage."""
    stages = pipeline_stages(deployment.model.layer_count, parallelism.pp)
    return tuple(rank_memory(deployment, parallelism, stage) for stage in stages)


class OtherPool(NamedTuple):
    block_count: int
    reported_tokens: int


@dataclass(frozen=True, slots=True)
class StartUp:
    """What an engine makes of a rank when it starts, whatever is asked of it later."""

    block_count: int
    max_context_tokens: int
    refusal: str | None
    needed_bytes: int
    reported_tokens: int
    reported_concurrency: float
    smaller_pool: OtherPool
    larger_pool: OtherPool


@lru_cache(maxsize=512)
def _start_up(rank: RankMemory, settings: EngineSettings) -> StartUp:
    block_count, pool = rank.block_count, rank.pool
    per_maximum = pool.blocks_per_request(settings.max_model_len_tokens)
    needed_bytes = per_maximum * pool.block_bytes

    def other_pool(change_bytes: float) -> OtherPool:
        blocks = rank.blocks_in(rank.budget_bytes + change_bytes)
        return OtherPool(blocks, reported_tokens(rank, settings, blocks))

    return StartUp(
        block_count=block_count,
        max_context_tokens=min(int(min(pool.max_length_tokens(block_count), UNLIMITED)), settings.max_model_len_tokens),
        refusal=_refusal(rank, settings, needed_bytes),
        needed_bytes=needed_bytes,
        reported_tokens=reported_tokens(rank, settings, block_count),
        reported_concurrency=min(block_count / per_maximum if per_maximum else inf, UNLIMITED),
        smaller_pool=other_pool(-GIB),
        larger_pool=other_pool(GIB),
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
    pool = rank.pool
    if not settings.release.tokens_follow_concurrency:
        return block_count // max(1, pool.group_count) * pool.block_tokens * pool.context_shards
    per_maximum = pool.blocks_per_request(settings.max_model_len_tokens)
    at_maximum = block_count / per_maximum if per_maximum else inf
    return int(min(at_maximum, UNLIMITED) * settings.max_model_len_tokens)


def _pool_change(change_bytes: float, pool: OtherPool, *, per_request: int, dp: int) -> PoolChange:
    return PoolChange(
        change_bytes,
        pool.reported_tokens,
        min(pool.block_count // per_request, UNLIMITED) * dp if per_request else UNLIMITED,
    )


def smallest_layouts(deployment: Deployment, *, length_tokens: int) -> list[Parallelism]:
    """All legal tp x pp of the smallest device count on which one request fits; empty when none does.

    tp stays where the devices reach each other, and the whole where a published link joins them.
    """
    smallest, found = LARGEST_LAYOUT + 1, []
    for tp in _legal_tps(deployment.model, scale_up_reach(deployment.device)):
        if tp > smallest:
            break
        most_stages = min(deployment.model.layer_count, joined_device_count(deployment.device, LARGEST_LAYOUT) // tp)
        pp = _fewest_stages(deployment, tp=tp, most=min(most_stages, smallest // tp), length_tokens=length_tokens)
        if pp is not None:
            found.append(Parallelism(tp=tp, pp=pp))
            smallest = min(smallest, tp * pp)
    return [each for each in found if each.device_count == smallest]


@lru_cache(maxsize=512)
def _legal_tps(model: LanguageModel, most: int) -> tuple[int, ...]:
    return tuple(tp for tp in range(1, most + 1) if not layout_problem(model, Parallelism(tp=tp)))


LARGEST_LAYOUT = 576  # eight racks of 72
SHORT_PIPELINE = 16


def _fewest_stages(deployment: Deployment, *, tp: int, most: int, length_tokens: int) -> int | None:
    """The shortest pipeline that fits at a tp, or none up to ``most`` stages.

    Short ones are tried in turn. More stages leave each less to hold, so of the longer ones none fits when the
    longest does not, and the shortest is found by halving.
    """

    def fits(pp: int) -> bool:
        return length_tokens <= _longest_request_tokens(deployment, Parallelism(tp=tp, pp=pp))

    fewest = max(1, int(deployment.weights.total_bytes // deployment.device.usable_memory_bytes) // tp)
    for pp in range(fewest, min(most, SHORT_PIPELINE) + 1):
        if fits(pp):
            return pp
    longer = range(max(fewest, SHORT_PIPELINE + 1), most + 1)
    if not longer or not fits(most):
        return None
    return longer[bisect_left(longer, True, key=fits)]


@lru_cache(maxsize=2048)
def _longest_request_tokens(deployment: Deployment, parallelism: Parallelism) -> float:
    """Of which one fits on every rank, 0 where none does.

    Stops at the first stage that holds nothing; the last one, which samples, and the first are the likeliest.
    """
    first, *between = pipeline_stages(deployment.model.layer_count, parallelism.pp)
    longest = inf
    for stage in (*reversed(between), first):
        rank = rank_memory(deployment, parallelism, stage)
        if rank.budget_bytes <= 0 or rank.overcommitted_bytes:
            return 0
        longest = min(longest, rank.pool.max_length_tokens(rank.block_count))
    return longest
