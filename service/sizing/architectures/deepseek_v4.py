"""DeepSeek-V4: one wide latent serves as key and value; beyond a window, latents of several tokens are cached.

Source: the model's config and ``DeepseekV4ForCausalLM`` in Hugging Face Transformers. What engines allocate for its
cache differs between them and is not verified here.
"""

from collections.abc import Iterator
from typing import Final

from service.sizing.architectures.building_blocks import (
    FeedForward,
    Layers,
    RoutedExperts,
    linear,
    norms,
    vector,
)
from service.sizing.architectures.config_reader import MAXIMUM_HEADS, ConfigReader
from service.sizing.architectures.decoder import (
    Architecture,
    Frame,
    layer_element_count,
    multi_token_prediction,
    read_expert_counts,
    read_frame,
    read_window,
)
from service.sizing.architectures.dense import PRE_NORMS
from service.sizing.architectures.layer_lists import layers_by_word
from service.sizing.language_model import Component, LayerGroup, LayerKind, Sharding, WeightTensor

INDEXED_RATIO: Final = 4  # the compressed latents of these layers are chosen by an index
RATES: Final = {"compressed_sparse_attention": INDEXED_RATIO, "heavily_compressed_attention": 128}
MAXIMUM_RATIO: Final = 65_536


def deepseek_v4(config: ConfigReader) -> Architecture:
    frame, ratios = read_frame(config), _ratios(config)
    head_count = config.count("num_attention_heads", maximum=MAXIMUM_HEADS)
    width = config.count("moe_intermediate_size")
    counts = read_expert_counts(config)
    shared_width = config.count("n_shared_experts", default=1, minimum=0) * width
    at = frame.at("mlp")
    shared = FeedForward(frame.hidden_size, shared_width, component=Component.SHARED_EXPERTS)
    tensors = (
        *frame.tensors(),
        *_attention(config, frame, head_count),
        *(each for ratio, layers in _by_ratio(ratios) for each in _compressor(config, frame, ratio, layers)),
        *RoutedExperts(frame.hidden_size, width, *counts).tensors(at, frame.layers),
        *(shared.tensors(f"{at}.shared_experts", frame.layers) if shared_width else ()),
        *norms(frame.at(""), PRE_NORMS, frame.hidden_size, frame.layers),
        *_hyper_connections(config, frame),
    )
    hashed = config.count("num_hash_layers", default=3, minimum=0)
    groups = tuple(_layer_groups(config, frame, ratios, head_count))
    return frame.architecture(
        tensors,
        groups,
        head_count=head_count,
        kv_head_count=1,
        experts=counts,
        router_bias_count=counts[0] * max(0, frame.layer_count - hashed),
        mtp=multi_token_prediction(
            config.count("num_nextn_predict_layers", default=0, minimum=0, maximum=16),
            decoder_layer_count=layer_element_count(tensors, frame.layer_count - 1),
            hidden_size=frame.hidden_size,
            kv_elements_per_token=config.count("head_dim"),
        ),
    )


def _ratios(config: ConfigReader) -> tuple[int, ...]:
    """Tokens in a compressed latent, for each layer, 0 for none; further entries are of the drafting layers."""
    layer_count = config.layer_count()
    if config.has("layer_types"):
        section = config.optional_section("compress_rates")
        words = {"sliding_attention": 0, **{word: _rate(section, word, default) for word, default in RATES.items()}}
        where = layers_by_word(config, "layer_types", words, layer_count)
        by_layer = {layer: words[word] for word, layers in where.items() for layer in layers}
        return tuple(by_layer[layer] for layer in range(layer_count))
    ratios = config.counts("compress_ratios", maximum=MAXIMUM_RATIO)
    drafting = config.count("num_nextn_predict_layers", default=0, minimum=0, maximum=16)
    if ratios is None or len(ratios) not in (layer_count, layer_count + drafting):
        raise config.refuse("compress_ratios", f"must hold a number for each of {layer_count} layers")
    return ratios[:layer_count]


def _rate(section: ConfigReader | None, word: str, default: int) -> int:
    return section.count(word, default=default, maximum=MAXIMUM_RATIO) if section else default


def _by_ratio(ratios: tuple[int, ...]) -> Iterator[tuple[int, Layers]]:
    for ratio in sorted(set(ratios) - {0}):
        yield ratio, tuple(layer for layer, each in enumerate(ratios) if each == ratio)


def _attention(config: ConfigReader, frame: Frame, head_count: int) -> Iterator[WeightTensor]:
    """Queries and outputs pass through latents; the output's is made group by group."""
    at, hidden, width = frame.at("self_attn"), frame.hidden_size, config.count("head_dim")
    rank, out_rank = config.count("q_lora_rank"), config.count("o_lora_rank")
    group_count = config.count("o_groups", maximum=MAXIMUM_HEADS)
    if head_count % group_count:
        raise config.refuse("o_groups", f"is {group_count}, which does not divide {head_count} heads")
    whole, split = Sharding.REPLICATED, Sharding.TENSOR
    shapes = (
        ("q_a_proj", (rank, hidden), whole, None),
        ("q_b_proj", (head_count * width, rank), split, head_count),
        ("kv_proj", (width, hidden), whole, None),
        ("o_a_proj", (group_count * out_rank, head_count * width // group_count), split, group_count),
        ("o_b_proj", (hidden, group_count * out_rank), split, group_count),
    )
    for name, shape, sharding, limit in shapes:
        yield from linear(
            f"{at}.{name}", Component.ATTENTION, shape, frame.layers, sharding=sharding, shard_limit=limit
        )
    yield vector(f"{at}.q_a_norm", rank, frame.layers)
    yield vector(f"{at}.kv_norm", width, frame.layers)
    yield WeightTensor(f"{at}.sinks", Component.OTHER, (head_count,), frame.layers, shard_limit=head_count)


def _compressor(config: ConfigReader, frame: Frame, ratio: int, layers: Layers) -> Iterator[WeightTensor]:
    """Makes one latent of ``ratio`` tokens, of two overlapping ones where an index chooses among them."""
    at, width = frame.at("self_attn.compressor"), config.count("head_dim")
    copies = 2 if ratio == INDEXED_RATIO else 1
    yield from _weighted_mean(at, (copies * width, frame.hidden_size), ratio, layers, norm_width=width)
    if ratio == INDEXED_RATIO:
        key_width, index_heads = config.count("index_head_dim"), config.count("index_n_heads", maximum=MAXIMUM_HEADS)
        index = f"{at}.indexer"
        yield from _weighted_mean(index, (2 * key_width, frame.hidden_size), ratio, layers, norm_width=key_width)
        queries = (index_heads * key_width, config.count("q_lora_rank"))
        for name, shape in (("q_b_proj", queries), ("scorer.weights_proj", (index_heads, frame.hidden_size))):
            yield from linear(f"{index}.{name}", Component.ATTENTION, shape, layers, sharding=Sharding.REPLICATED)


def _weighted_mean(
    at: str, shape: tuple[int, int], ratio: int, layers: Layers, *, norm_width: int
) -> Iterator[WeightTensor]:
    """Two matrices of that shape: what is averaged over ``ratio`` tokens, and the weights of the average."""
    for name in ("kv_proj", "gate_proj"):
        yield from linear(f"{at}.{name}", Component.ATTENTION, shape, layers, sharding=Sharding.REPLICATED)
    yield WeightTensor(f"{at}.position_bias", Component.OTHER, (ratio, shape[0]), layers, 1, Sharding.REPLICATED)
    yield vector(f"{at}.kv_norm", norm_width, layers)


def _hyper_connections(config: ConfigReader, frame: Frame) -> Iterator[WeightTensor]:
    """Several residual streams, mixed before and after each half by small matrices.

    Two weights and a square for each stream. Source: "mHC", arXiv 2512.24880.
    """
    streams = config.count("hc_mult", default=4, maximum=64)
    mixed, width = (2 + streams) * streams, streams * frame.hidden_size
    for half in ("attn_hc", "ffn_hc"):
        at = frame.at(half)
        yield WeightTensor(f"{at}.fn", Component.OTHER, (mixed, width), frame.layers, 1, Sharding.REPLICATED)
        yield vector(f"{at}.base", mixed, frame.layers)
        yield vector(f"{at}.scale", 3, frame.layers)
    yield WeightTensor("model.hc_head.hc_fn", Component.OTHER, (streams, width), (), 1, Sharding.REPLICATED)
    yield vector("model.hc_head.hc_base", streams)
    yield vector("model.hc_head.hc_scale", 1)


def _layer_groups(config: ConfigReader, frame: Frame, ratios: tuple[int, ...], head_count: int) -> Iterator[LayerGroup]:
    """A window in every layer, and compressed latents in most; scores and values are as wide as the latent."""
    width, attention_width = config.count("head_dim"), 2 * head_count * config.count("head_dim")
    yield LayerGroup(
        LayerKind.SLIDING,
        frame.layers,
        kv_head_count=1,
        key_width=width,
        window_tokens=read_window(config, default=128),
        attention_width_decode=attention_width,
        attention_width_prefill=attention_width,
    )
    for ratio, layers in _by_ratio(ratios):
        is_indexed = ratio == INDEXED_RATIO
        yield LayerGroup(
            LayerKind.COMPRESSED,
            layers,
            kv_head_count=1,
            key_width=width,
            attention_width_decode=attention_width,
            attention_width_prefill=attention_width,
            index_key_width=config.count("index_head_dim") if is_indexed else 0,
            index_head_count=config.count("index_n_heads", maximum=MAXIMUM_HEADS) if is_indexed else 0,
            index_top_k_tokens=ratio * config.count("index_topk") if is_indexed else None,
            tokens_per_entry=ratio,
        )
