"""How an engine cuts its KV pool into blocks, and how many blocks a request needs.

An engine that keeps all layers in one pool (vLLM) cuts them into groups of equal size, one block holding
``block_tokens`` tokens of every layer of a group; each group draws its own blocks. Layers are padded up to whole
groups. Source: the hybrid KV cache manager of vLLM 0.33.0, checked on printed tokens and concurrency of Gemma 2,
Gemma 3, gpt-oss and Llama 4 Scout. Recurrent state takes one block per group of layers, or two with prefix caching,
and the block of a model with state grows until it holds the state of a layer.
"""

from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, inf

from service.sizing.cache import elements_bytes, kv_elements_per_token, layer_state_bytes
from service.sizing.engines.engine import Engine
from service.sizing.language_model import LanguageModel, LayerGroup
from service.sizing.precision import Precision
from service.sizing.weights import Stage

NEARLY_EQUAL = 1.5  # groups take the larger of two layer counts when it is below this times the smaller


@dataclass(frozen=True, slots=True)
class LayerPool:
    """``group_count`` groups of layers that each keep every token, a window, or (``is_state``) one state."""

    group_count: int
    window_tokens: float = inf
    is_state: bool = False


@dataclass(frozen=True, slots=True)
class PoolLayout:
    """The blocks of one rank of one stage.

    ``bytes_per_token`` is what a token adds while the context is below all windows, without padding.
    """

    block_tokens: int
    block_bytes: int
    pools: tuple[LayerPool, ...]
    in_flight_tokens: int
    blocks_per_state: int
    bytes_per_token: int
    state_bytes_per_sequence: int

    def blocks_per_request(self, length_tokens: int) -> int:
        """Blocks that one request of that length holds at its peak.

        A window keeps ``window - 1`` tokens and the chunk in flight, and one block more for misalignment.
        """
        blocks = 0
        for pool in self.pools:
            if pool.is_state:
                blocks += pool.group_count * self.blocks_per_state
                continue
            kept = min(length_tokens, pool.window_tokens - 1 + self.in_flight_tokens)
            spare = 1 if pool.window_tokens < inf else 0
            blocks += pool.group_count * (ceil(kept / self.block_tokens) + spare)
        return blocks

    @property
    def group_count(self) -> int:
        return sum(pool.group_count for pool in self.pools)

    def max_length_tokens(self, block_count: int) -> float:
        """The longest request that fits; without a bound where nothing grows with the context.

        Beyond every window only the growing layers take more blocks; below, the length is searched for.
        """
        growing = sum(pool.group_count for pool in self.pools if not pool.is_state and pool.window_tokens == inf)
        capped = [pool.window_tokens + self.in_flight_tokens for pool in self.pools if pool.window_tokens < inf]
        beyond_windows = max(capped, default=0)
        if not growing:
            return inf if self.blocks_per_request(int(beyond_windows)) <= block_count else 0
        fixed = self.blocks_per_request(int(beyond_windows)) - growing * ceil(beyond_windows / self.block_tokens)
        longest = (block_count - fixed) // growing * self.block_tokens
        if longest >= beyond_windows:
            return longest
        lengths = range(int(beyond_windows) + 1)
        return max(0, bisect_right(lengths, block_count, key=self.blocks_per_request) - 1)


@lru_cache(maxsize=512)
def pool_layout(
    model: LanguageModel,
    stage: Stage,
    *,
    engine: Engine,
    tp: int,
    kv_cache: Precision,
    max_num_batched_tokens: int,
    prefix_caching: bool,
) -> PoolLayout:
    """The blocks of the layers that a stage holds."""
    held = [(group, count) for group in model.layer_groups if (count := _layers_in(group, stage))]
    caching = [
        (group.window_tokens, count, elements_bytes(kv_elements_per_token(group, tp=tp), kv_cache))
        for group, count in held
        if group.kv_elements_per_token
    ]
    stateful = [(count, layer_state_bytes(group, model, tp=tp)) for group, count in held if group.state_head_count]
    largest_token = max((token_bytes for _, _, token_bytes in caching), default=0)
    largest_state = max((state_bytes for _, state_bytes in stateful), default=0)
    block_tokens = engine.block_tokens
    if largest_token:
        block_tokens = max(block_tokens, ceil(largest_state / largest_token / 16) * 16)
    counts = [count for _, count, _ in caching] + [count for count, _ in stateful]
    size = _group_size(counts) if engine.pools_layers_in_groups else 1
    return PoolLayout(
        block_tokens=block_tokens,
        block_bytes=(block_tokens * largest_token or largest_state) * size,
        pools=(
            *(LayerPool(ceil(count / size), window or inf) for window, count, _ in caching),
            *(LayerPool(ceil(count / size), is_state=True) for count, _ in stateful),
        ),
        in_flight_tokens=max_num_batched_tokens,
        blocks_per_state=2 if prefix_caching else 1,
        bytes_per_token=sum(count * token_bytes for _, count, token_bytes in caching),
        state_bytes_per_sequence=sum(count * state_bytes for count, state_bytes in stateful),
    )


def _layers_in(group: LayerGroup, stage: Stage) -> int:
    return sum(1 for layer in group.layers if stage.first_layer <= layer < stage.end_layer)


def _group_size(layer_counts: list[int]) -> int:
    if not layer_counts:
        return 1
    smallest, largest = min(layer_counts), max(layer_counts)
    return largest if largest < NEARLY_EQUAL * smallest else smallest
