"""How an engine cuts its KV pool into blocks, and how many blocks a request needs.

An engine that keeps all layers in one pool (vLLM) cuts them into groups of equal size, one block holding
``block_tokens`` tokens of every layer of a group; each group draws its own blocks. Layers are padded up to whole
groups. Source: the hybrid KV cache manager of vLLM 0.33.0, checked on printed tokens and concurrency of Gemma 2,
Gemma 3, gpt-oss and Llama 4 Scout. Recurrent state takes one block per group of layers, or two with prefix caching,
and the block of a model with state grows until it holds the state of a layer.
"""

from dataclasses import dataclass
from math import ceil, inf

from service.sizing.costs import kv_bytes_per_token_per_rank, state_bytes_per_rank
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
    block_bytes: float
    pools: tuple[LayerPool, ...]
    in_flight_tokens: int
    blocks_per_state: int
    bytes_per_token: float
    state_bytes_per_sequence: float

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
        """The longest request that fits; without a bound where nothing grows with the context."""
        growing = sum(pool.group_count for pool in self.pools if not pool.is_state and pool.window_tokens == inf)
        if not growing:
            return inf if self.blocks_per_request(2**40) <= block_count else 0
        low, high = 0, block_count // growing * self.block_tokens
        while low < high:
            middle = (low + high + 1) // 2
            if self.blocks_per_request(middle) <= block_count:
                low = middle
            else:
                high = middle - 1
        return low


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
    held = [(group, _layers_in(group, stage)) for group in model.layer_groups]
    caching = [(group, count) for group, count in held if count and group.kv_elements_per_token]
    stateful = [(group, count) for group, count in held if count and group.recurrent_state_elements]
    token_bytes = max(
        (kv_bytes_per_token_per_rank(group, tp=tp, kv_cache=kv_cache) + group.index_key_width for group, _ in caching),
        default=0.0,
    )
    block_tokens = engine.block_tokens
    if stateful and token_bytes:
        state_bytes = max(state_bytes_per_rank(model, group, tp=tp) / group.layer_count for group, _ in stateful)
        block_tokens = max(block_tokens, ceil(state_bytes / token_bytes / 16) * 16)
    layer_bytes = block_tokens * token_bytes or max(
        (state_bytes_per_rank(model, group, tp=tp) / group.layer_count for group, _ in stateful), default=0.0
    )
    size = _group_size([count for _, count in caching + stateful]) if engine.pools_layers_in_groups else 1
    return PoolLayout(
        block_tokens=block_tokens,
        block_bytes=layer_bytes * size,
        pools=tuple(
            [LayerPool(ceil(count / size), group.window_tokens or inf) for group, count in caching]
            + [LayerPool(ceil(count / size), is_state=True) for _, count in stateful]
        ),
        in_flight_tokens=max_num_batched_tokens,
        blocks_per_state=2 if prefix_caching else 1,
        bytes_per_token=sum(
            count * (kv_bytes_per_token_per_rank(group, tp=tp, kv_cache=kv_cache) + group.index_key_width)
            for group, count in caching
        ),
        state_bytes_per_sequence=sum(
            state_bytes_per_rank(model, group, tp=tp) * count / group.layer_count for group, count in stateful
        ),
    )


def _layers_in(group: LayerGroup, stage: Stage) -> int:
    return sum(1 for layer in group.layers if stage.first_layer <= layer < stage.end_layer)


def _group_size(layer_counts: list[int]) -> int:
    if not layer_counts:
        return 1
    smallest, largest = min(layer_counts), max(layer_counts)
    return largest if largest < NEARLY_EQUAL * smallest else smallest
