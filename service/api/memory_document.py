"""Whether it fits and what memory is spent on, as the answer of ``POST /sizing`` writes it."""

from typing import Any

from service.sizing.memory import PoolChange
from service.sizing.plan import SizingResult
from service.sizing.rank_memory import RankMemory


def memory_fit_document(result: SizingResult) -> dict[str, Any]:
    fit = result.fit
    rank = fit.fullest
    return {
        "fits": fit.fits,
        "minimum_gpu_count": result.minimum_gpu_count,
        "usable_bytes_per_gpu": round(rank.usable_bytes),
        "weight_bytes_per_gpu": round(rank.weight_bytes),
        "activation_bytes_per_gpu": round(rank.activation_bytes),
        "runtime_bytes_per_gpu": round(rank.runtime_bytes),
        "reserved_bytes_per_gpu": round(rank.reserved_bytes),
        "kv_cache_budget_bytes_per_gpu": round(max(0.0, rank.budget_bytes)),
        "kv_cache_budget_plus_minus_bytes_per_gpu": round(rank.plus_minus_bytes),
        "graph_bytes_per_gpu": round(rank.graph_bytes),
        "overcommitted_bytes_per_gpu": round(rank.overcommitted_bytes),
        "kv_cache_bytes_per_token_per_gpu": round(fit.kv_cache_bytes_per_token),
        "state_bytes_per_sequence_per_gpu": round(fit.state_bytes_per_sequence),
        "kv_cache_capacity_tokens": fit.capacity_tokens,
        "max_concurrency": fit.max_concurrency,
        "max_context_tokens": fit.max_context_tokens,
        "shortfall_bytes_per_gpu": round(fit.shortfall_bytes),
        "engine": {
            "would_start": fit.would_start,
            "block_tokens": rank.pool.block_tokens,
            "block_count": rank.block_count,
            "reported_tokens": fit.reported_tokens,
            "reported_concurrency": fit.reported_concurrency,
            "block_bytes_per_gpu": rank.pool.block_bytes,
            "needed_bytes_per_gpu": fit.needed_bytes,
            "refusal": fit.refusal,
        },
        "ranks": [_rank(number, each) for number, each in enumerate(fit.ranks)],
        "sensitivity": [_pool_change(fit.smaller_pool), _pool_change(fit.larger_pool)],
    }


def _rank(number: int, rank: RankMemory) -> dict[str, Any]:
    return {
        "stage_index": number,
        "layer_count": rank.stage.end_layer - rank.stage.first_layer,
        "weight_bytes": round(rank.weight_bytes),
        "activation_bytes": round(rank.activation_bytes),
        "runtime_bytes": round(rank.runtime_bytes),
        "reserved_bytes": round(rank.reserved_bytes),
        "kv_cache_budget_bytes": round(max(0.0, rank.budget_bytes)),
        "block_count": rank.block_count,
    }


def _pool_change(change: PoolChange) -> dict[str, Any]:
    return {
        "pool_change_bytes": round(change.change_bytes),
        "reported_tokens": change.reported_tokens,
        "max_concurrency": change.max_concurrency,
    }
