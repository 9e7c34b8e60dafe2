"""What sequences keep between steps: keys and values that grow with the context, and state that does not.

Contexts may be numbers or NumPy arrays. With ``tp`` above one the figures are of one rank: KV heads are
divided as far as they go and then replicated, and a latent, which serves all heads, lies on every rank.
"""

from collections.abc import Iterable
from math import ceil
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from service.sizing.language_model import LanguageModel, LayerGroup
from service.sizing.precision import ELEMENT_BITS, Precision

Tokens = TypeVar("Tokens", int, NDArray[np.int64])

# Formats with block scales keep one byte of scale for so many elements, in a cache as in weights.
SCALED_BLOCK_ELEMENTS: Final = {
    Precision.NVFP4: 16,
    Precision.MXFP4: 32,
    Precision.MXFP6: 32,
    Precision.MXFP8: 32,
}


def elements_bytes(element_count: Tokens, precision: Precision) -> Tokens:
    """Bytes of cached elements, block scales included.

    >>> elements_bytes(65_536, Precision.BF16), elements_bytes(65_536, Precision.NVFP4)
    (131072, 36864)
    """
    block = SCALED_BLOCK_ELEMENTS.get(precision)
    bits = ELEMENT_BITS[precision]
    if block is None:
        return (element_count * bits + 7) // 8
    return (element_count * (bits * block + 8) + 8 * block - 1) // (8 * block)


def kv_elements_per_token(group: LayerGroup, *, tp: int = 1) -> int:
    """Of one layer on one rank, with the index key of sparse attention, which every rank holds.

    A compressed cache is charged its share of an entry for every token.
    """
    return ceil(kv_elements_per_entry(group, tp=tp) / group.tokens_per_entry)


def kv_elements_per_entry(group: LayerGroup, *, tp: int = 1) -> int:
    """Of one layer on one rank, for the tokens that share an entry: one, except in a compressed cache."""
    heads = ceil(group.kv_head_count / tp)
    return heads * (group.key_width + group.value_width) + group.index_key_width


def kv_cache_bytes(model: LanguageModel, *, context_tokens: Tokens, kv_cache: Precision, tp: int = 1) -> Tokens:
    """KV cache of one sequence, each layer keeping no more than its window.

    ::

        sum over layers of min(context, window) * kv_heads / tp * (key_width + value_width) * element

    A compressed cache has an entry only once all the tokens that share it are there. Positions of an encoder or
    an image are apart, see ``source_kv_cache_bytes_per_token``.

    Source: Shazeer, arXiv 1911.02150 (MQA), Ainslie et al., arXiv 2305.13245 (GQA); DeepSeek-V2, arXiv
    2405.04434 (the latent, cached once per token).
    """
    elements = 0 * context_tokens
    for group in model.layer_groups:
        entries = _kept_tokens(context_tokens, group.window_tokens) // group.tokens_per_entry
        elements = elements + group.layer_count * kv_elements_per_entry(group, tp=tp) * entries
    return elements_bytes(elements, kv_cache)


def kv_cache_bytes_charged_in_full(
    model: LanguageModel, *, context_tokens: Tokens, kv_cache: Precision, tp: int = 1
) -> Tokens:
    """The same for an engine that charges every layer for every token, windows or not."""
    return context_tokens * kv_cache_bytes_per_token(model, kv_cache=kv_cache, tp=tp)


def kv_cache_bytes_per_token(model: LanguageModel, *, kv_cache: Precision, tp: int = 1) -> int:
    """What one more token adds while the context is shorter than every window."""
    return elements_bytes(_elements_per_token(model.layer_groups, tp=tp), kv_cache)


def source_kv_cache_bytes_per_token(model: LanguageModel, *, kv_cache: Precision, tp: int = 1) -> int:
    """What cross-attention keeps for each position of an encoder or an image, once for the sequence.

    Source: Grattafiori et al., "The Llama 3 Herd of Models", arXiv 2407.21783, section 7; Raffel et al., "T5",
    arXiv 1910.10683.
    """
    elements = sum(
        group.layer_count * ceil(group.source_kv_head_count / tp) * (group.key_width + group.value_width)
        for group in model.layer_groups
    )
    return elements_bytes(elements, kv_cache)


def _elements_per_token(groups: Iterable[LayerGroup], *, tp: int) -> int:
    return sum(group.layer_count * kv_elements_per_token(group, tp=tp) for group in groups)


def _kept_tokens(context_tokens: Tokens, window_tokens: int | None) -> Tokens:
    if window_tokens is None:
        return context_tokens
    if isinstance(context_tokens, int):
        return min(context_tokens, window_tokens)
    return np.minimum(context_tokens, window_tokens)


def state_bytes_per_sequence(model: LanguageModel, *, tp: int = 1) -> int:
    """Recurrent and convolution state of one sequence, constant in the context.

    Heads divide among ranks, and groups of heads as far as they go. The convolution keeps one column less
    than its kernel is wide, as engines do.
    """
    return sum(group.layer_count * layer_state_bytes(group, model, tp=tp) for group in model.layer_groups)


def layer_state_bytes(group: LayerGroup, model: LanguageModel, *, tp: int) -> int:
    """Of one layer on one rank."""
    if not group.state_head_count:
        return 0
    head_share = ceil(group.state_head_count / tp) / group.state_head_count
    group_share = ceil(group.state_group_count / tp) / group.state_group_count if group.state_group_count else 0
    own_columns = group.conv_state_elements - group.conv_group_state_elements
    convolution = round(own_columns * head_share) + round(group.conv_group_state_elements * group_share)
    recurrent = round(group.recurrent_state_elements * head_share)
    return elements_bytes(convolution, model.conv_state_precision) + elements_bytes(
        recurrent, model.recurrent_state_precision
    )
