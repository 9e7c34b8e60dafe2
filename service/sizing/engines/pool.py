"""How an engine cuts its KV pool into blocks, and how many blocks a request needs.

An engine that keeps all layers in one pool (vLLM) cuts them into groups of equal size, one block holding
``block_tokens`` tokens of every layer of a group; each group draws its own blocks. Layers are padded up to whole
groups. Source: the hybrid KV cache manager of vLLM 0.33.0, checked on printed tokens and concurrency of Gemma 2,
Gemma 3, gpt-oss, Llama 4 Scout and Qwen3.6. Recurrent state takes one block per group of layers, or two with prefix
caching, and one more for each drafted token; the block of a model with state grows until it holds the state of a layer.

SGLang keeps windows and states in pools of their own, whose sizes are fixed proportions of the tokens' pool.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf
from typing import NamedTuple

from service.sizing.cache import elements_bytes, kv_elements_per_token, layer_state_bytes
from service.sizing.engines.engine import Engine, Layering, Release
from service.sizing.language_model import LanguageModel, LayerGroup, LayerKind
from service.sizing.precision import Precision
from service.sizing.weights import Stage

NEARLY_EQUAL = 1.5  # groups take the larger of two layer counts when it is below this times the smaller
STATE_BLOCK_ROUNDING = 16
CONVOLUTION_COLUMNS = 3  # kept of a kernel of 4, which all supported state models have; each drafted token adds one
WINDOW_SHARE = 0.8  # SGLang: tokens of the window pool per token of the full pool
STATE_SHARE = 0.9  # SGLang: bytes of the state pool per byte of the tokens' pool


@dataclass(frozen=True, slots=True)
class LayerPool:
    """``group_count`` groups of layers that each keep every token, a window, a chunk or (``is_state``) a state.

    Where a window's pool is a share of the tokens' pool, a request draws as many tokens as bind in either:
    ``shared_window_tokens`` are kept in the smaller one. ``floor_tokens``: no request draws less.
    """

    group_count: int
    block_tokens: int
    window_tokens: float = inf
    is_chunk: bool = False
    is_state: bool = False
    shared_window_tokens: float = 0
    floor_tokens: float = 0


class CachedLayers(NamedTuple):
    """Layers that keep ``token_bytes`` of each token on a rank."""

    layer_count: int
    token_bytes: int
    window_tokens: float
    is_chunk: bool


class StateLayers(NamedTuple):
    layer_count: int
    state_bytes: int


@dataclass(frozen=True, slots=True)
class PoolLayout:
    """The blocks of one rank of one stage.

    ``bytes_per_token`` is what a token adds while the context is below all windows, without padding.
    ``context_shards``: ranks among which the tokens of a request are divided (decode context parallel).
    """

    block_tokens: int
    block_bytes: int
    pools: tuple[LayerPool, ...]
    in_flight_tokens: int
    blocks_per_state: int
    bytes_per_token: float
    state_bytes_per_sequence: int
    context_shards: int = 1

    def blocks_per_request(self, length_tokens: int) -> int:
        """Blocks that one request of that length holds at its peak.

        A window keeps ``window - 1`` tokens and the chunk in flight, and one block more for misalignment.
        """
        blocks = 0
        for pool in self.pools:
            if pool.is_state:
                blocks += pool.group_count * self.blocks_per_state
                continue
            in_window = min(length_tokens, pool.shared_window_tokens) / WINDOW_SHARE
            kept, spare = max(length_tokens, in_window, pool.floor_tokens), 0
            if pool.window_tokens < inf:
                kept = min(length_tokens, pool.window_tokens - (not pool.is_chunk) + self.in_flight_tokens)
                spare = 0 if pool.is_chunk else 1
            blocks += pool.group_count * (ceil(kept / (pool.block_tokens * self.context_shards)) + spare)
        return blocks

    @property
    def group_count(self) -> int:
        return sum(pool.group_count for pool in self.pools)

    def max_length_tokens(self, block_count: int) -> float:
        """The longest request that fits; without a bound where nothing grows with the context.

        Beyond every window only the growing layers take more blocks; below, the length is searched for.
        """
        growing = [pool for pool in self.pools if not pool.is_state and pool.window_tokens == inf]
        capped = [pool.window_tokens + self.in_flight_tokens for pool in self.pools if pool.window_tokens < inf]
        floors = [max(pool.floor_tokens, pool.shared_window_tokens / WINDOW_SHARE) for pool in growing]
        beyond_windows = ceil(max([*capped, *floors], default=0))
        if not growing:
            return inf if self.blocks_per_request(beyond_windows) <= block_count else 0
        if self.blocks_per_request(beyond_windows) > block_count:
            return max(0, bisect_right(range(beyond_windows + 1), block_count, key=self.blocks_per_request) - 1)
        coarsest = max(pool.block_tokens for pool in growing) * self.context_shards
        per_span = sum(
            pool.group_count * coarsest // (pool.block_tokens * self.context_shards) for pool in growing
        )  # blocks of the finer pools lie whole in the coarsest
        start = ceil(beyond_windows / coarsest) * coarsest
        spans = max(0, (block_count - self.blocks_per_request(start)) // per_span)
        lengths = range(max(beyond_windows, start + (spans - 1) * coarsest), start + (spans + 1) * coarsest + 1)
        return lengths[bisect_right(lengths, block_count, key=self.blocks_per_request) - 1]


@lru_cache(maxsize=512)
def pool_layout(
    model: LanguageModel,
    stage: Stage,
    *,
    engine: Engine,
    release: Release,
    tp: int,
    kv_cache: Precision,
    max_num_batched_tokens: int,
    prefix_caching: bool,
    draft_tokens: int = 0,
    draft_layer_count: int = 0,
    context_shards: int = 1,
) -> PoolLayout:
    """The blocks of the layers that a stage holds; the last stage holds the drafter's."""
    cached = _cached_layers(model, stage, release, engine, tp=tp, kv_cache=kv_cache)
    if draft_layer_count and stage.is_last and cached:
        cached = _with_drafter(cached, draft_layer_count)
    states = [
        StateLayers(count, _drafting_state_bytes(group, model, tp=tp, draft_tokens=draft_tokens))
        for group, count in _held(model, stage)
        if group.state_head_count
    ]
    block_tokens, block_bytes, pools = _LAYERINGS[release.layering](cached, states, engine.block_tokens)
    return PoolLayout(
        block_tokens=block_tokens,
        block_bytes=block_bytes,
        pools=pools,
        in_flight_tokens=max_num_batched_tokens,
        blocks_per_state=(2 if prefix_caching else 1) + draft_tokens,
        bytes_per_token=sum(each.layer_count * each.token_bytes for each in cached) / context_shards,
        state_bytes_per_sequence=sum(each.layer_count * each.state_bytes for each in states),
        context_shards=context_shards,
    )


def _held(model: LanguageModel, stage: Stage) -> list[tuple[LayerGroup, int]]:
    counted = (
        (group, sum(1 for layer in group.layers if stage.first_layer <= layer < stage.end_layer))
        for group in model.layer_groups
    )
    return [(group, count) for group, count in counted if count]


def _cached_layers(
    model: LanguageModel, stage: Stage, release: Release, engine: Engine, *, tp: int, kv_cache: Precision
) -> list[CachedLayers]:
    """Layers that keep alike are counted together."""
    counts: dict[tuple[int, float, bool], int] = {}
    for group, count in _held(model, stage):
        if group.kv_elements_per_token:
            token_bytes = _token_bytes(group, release, engine, tp=tp, kv_cache=kv_cache)
            key = (token_bytes, group.window_tokens or inf, group.kind is LayerKind.CHUNKED)
            counts[key] = counts.get(key, 0) + count
    return [CachedLayers(count, *key) for key, count in counts.items()]


def _token_bytes(group: LayerGroup, release: Release, engine: Engine, *, tp: int, kv_cache: Precision) -> int:
    """Of one layer on one rank.

    An engine without kernels for the latent keeps keys and values of every head, whose widths are those that
    prefill multiplies. An 8-bit integer cache keeps scales.
    """
    if group.kind is LayerKind.MLA and not release.has_latent_attention:
        elements, heads = group.attention_width_prefill // tp, 0
    else:
        elements, heads = kv_elements_per_token(group, tp=tp), ceil(group.kv_head_count / tp)
    size_bytes = elements_bytes(elements, kv_cache)
    if kv_cache is Precision.INT8:
        scale = engine.int8_scale_bytes
        size_bytes += scale.size_bytes * (2 * heads if scale.element_count is None else elements // scale.element_count)
    return size_bytes


def _with_drafter(cached: list[CachedLayers], layer_count: int) -> list[CachedLayers]:
    """A drafter's layers keep every token; they are shaped as the model's own that do."""
    full = next((each for each in cached if each.window_tokens == inf), cached[0])
    at = cached.index(full)
    return [*cached[:at], full._replace(layer_count=full.layer_count + layer_count), *cached[at + 1 :]]


def _drafting_state_bytes(group: LayerGroup, model: LanguageModel, *, tp: int, draft_tokens: int) -> int:
    """The state of a layer, its convolution widened by a column for each drafted token."""
    plain = layer_state_bytes(group, model, tp=tp)
    if not draft_tokens:
        return plain
    recurrent = elements_bytes(
        round(group.recurrent_state_elements * ceil(group.state_head_count / tp) / group.state_head_count),
        model.recurrent_state_precision,
    )
    return recurrent + (plain - recurrent) * (CONVOLUTION_COLUMNS + draft_tokens) // CONVOLUTION_COLUMNS


Blocks = tuple[int, int, tuple[LayerPool, ...]]


def _in_groups(cached: Sequence[CachedLayers], states: Sequence[StateLayers], block_tokens: int) -> Blocks:
    """Pages of one size: smaller tokens share a page in larger blocks, and states are padded to a page.

    >>> _in_groups([CachedLayers(16, 2048, inf, False)], [StateLayers(48, 3_207_168)], 16)[:2]  # Qwen3.5-27B, FP8
    (1568, 51380224)
    """
    if not states and all(each.window_tokens == inf for each in cached):
        return _uniform(cached, states, block_tokens)
    largest_state = max((each.state_bytes for each in states), default=0)
    largest_token = max((each.token_bytes for each in cached), default=0)
    if largest_token:
        needed = ceil(largest_state / largest_token / STATE_BLOCK_ROUNDING) * STATE_BLOCK_ROUNDING
        block_tokens = max(block_tokens, needed)
    page_bytes = block_tokens * largest_token or largest_state
    size = _group_size([*(each.layer_count for each in cached), *(each.layer_count for each in states)])
    pools = (
        *(
            LayerPool(
                ceil(each.layer_count / size),
                block_tokens * (largest_token // each.token_bytes),
                each.window_tokens,
                each.is_chunk,
            )
            for each in cached
        ),
        *(LayerPool(ceil(each.layer_count / size), block_tokens, is_state=True) for each in states),
    )
    return block_tokens, page_bytes * size, pools


def _group_size(layer_counts: Sequence[int]) -> int:
    if not layer_counts:
        return 1
    smallest, largest = min(layer_counts), max(layer_counts)
    return largest if largest < NEARLY_EQUAL * smallest else smallest


def _uniform(cached: Sequence[CachedLayers], states: Sequence[StateLayers], block_tokens: int) -> Blocks:
    """Every layer charged for every token; states, kept apart, as so many tokens more."""
    token_bytes = sum(each.layer_count * each.token_bytes for each in cached)
    state_bytes = sum(each.layer_count * each.state_bytes for each in states)
    if not token_bytes:
        return block_tokens, state_bytes, (LayerPool(1, block_tokens, is_state=True),) if states else ()
    state_blocks = ceil(state_bytes / (block_tokens * token_bytes))
    pools = (LayerPool(1, block_tokens), *((LayerPool(state_blocks, block_tokens, is_state=True),) if states else ()))
    return block_tokens, block_tokens * token_bytes, pools


def _per_layer(cached: Sequence[CachedLayers], states: Sequence[StateLayers], block_tokens: int) -> Blocks:
    """Each layer draws blocks of its own."""
    largest_token = max((each.token_bytes for each in cached), default=0)
    largest_state = max((each.state_bytes for each in states), default=0)
    if not largest_token:
        return (
            block_tokens,
            largest_state,
            tuple(LayerPool(each.layer_count, block_tokens, is_state=True) for each in states),
        )
    page_bytes = block_tokens * largest_token
    pools = (
        *(LayerPool(each.layer_count, block_tokens, each.window_tokens, each.is_chunk) for each in cached),
        *(
            LayerPool(each.layer_count * ceil(each.state_bytes / page_bytes), block_tokens, is_state=True)
            for each in states
        ),
    )
    return block_tokens, page_bytes, pools


def _in_shares(cached: Sequence[CachedLayers], states: Sequence[StateLayers], block_tokens: int) -> Blocks:
    """Pools in fixed proportions: a token of the full pool pays for its share of the others.

    A request draws as many tokens as it has, or more where the window's or the state's pool binds.
    """
    full = sum(each.layer_count * each.token_bytes for each in cached if each.window_tokens == inf)
    windowed = [each for each in cached if each.window_tokens < inf]
    window = sum(each.layer_count * each.token_bytes for each in windowed)
    state = sum(each.layer_count * each.state_bytes for each in states)
    if not full:
        return _uniform(cached, states, block_tokens)
    token_bytes = full + WINDOW_SHARE * window
    size_bytes = block_tokens * token_bytes * ((1 + STATE_SHARE) if states else 1)
    pool = LayerPool(
        1,
        block_tokens,
        shared_window_tokens=max((each.window_tokens for each in windowed), default=0),
        floor_tokens=ceil(state / (STATE_SHARE * token_bytes)),
    )
    return block_tokens, ceil(size_bytes), (pool,)


_LAYERINGS = {
    Layering.GROUPS: _in_groups,
    Layering.UNIFORM: _uniform,
    Layering.PER_LAYER: _per_layer,
    Layering.SHARES: _in_shares,
}
