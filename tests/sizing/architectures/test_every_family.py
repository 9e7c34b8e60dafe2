"""Families with something of their own: published totals, and what their layers keep worked out by hand."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from service.errors import ConfigInvalid
from service.sizing.architectures import SUPPORTED_ARCHITECTURES
from service.sizing.cache import (
    kv_cache_bytes,
    kv_cache_bytes_per_token,
    source_kv_cache_bytes_per_token,
    state_bytes_per_sequence,
)
from service.sizing.language_model import Component, LayerKind, active_parameter_count, parameter_counts
from service.sizing.precision import Precision
from tests.sizing.architectures import family_facts as facts
from tests.sizing.architectures.published_facts import model_of

BF16 = Precision.BF16

# As the Hugging Face page of each model counts the tensors of its checkpoint.
PUBLISHED_TOTALS = {
    "Llama-3.2-11B-Vision": (facts.LLAMA_3_2_11B_VISION, 10_670_220_835),
    "Llama-4-Scout": (facts.LLAMA_4_SCOUT, 108_641_793_536),
    "Llama-4-Maverick": (facts.LLAMA_4_MAVERICK, 401_583_781_376),
    "Flan-T5-XXL": (facts.FLAN_T5_XXL, 11_135_332_352),
    "LFM2-1.2B": (facts.LFM2_1_2B, 1_170_340_608),
    "Jamba-v0.1": (facts.JAMBA, 51_570_323_328),
    "MiniMax-Text-01": (facts.MINIMAX_TEXT_01, 456_089_655_296),
    "Llama-3.3-Nemotron-Super-49B": (facts.NEMOTRON_SUPER_49B, 49_867_145_216),
    # Published with a copy of the embedding as its head, 65,024 x 8,192, which is tied.
    "Falcon-40B": (facts.FALCON_40B, 41_835_970_560 - 65_024 * 8_192),
}


@pytest.mark.parametrize("name", PUBLISHED_TOTALS)
def test_a_family_has_exactly_the_parameters_that_its_publisher_says(name: str) -> None:
    config, published = PUBLISHED_TOTALS[name]
    assert sum(parameter_counts(model_of(config).tensors).values()) == published


def kept(config: dict[str, Any]) -> dict[LayerKind, int]:
    """How many caches or states there are of each kind."""
    counts: dict[LayerKind, int] = {}
    for group in model_of(config).layer_groups:
        counts[group.kind] = counts.get(group.kind, 0) + group.layer_count
    return counts


def test_jamba_attends_in_one_layer_of_eight_and_keeps_a_state_in_the_rest() -> None:
    assert kept(facts.JAMBA) == {LayerKind.MAMBA1: 28, LayerKind.FULL: 4}
    model = model_of(facts.JAMBA, mamba_ssm_cache_dtype="float32")
    inner = 2 * 4096
    assert state_bytes_per_sequence(model) == 28 * (inner * 3 * 2 + inner * 16 * 4) == 16_056_320
    assert kv_cache_bytes_per_token(model, kv_cache=BF16) == 4 * 2 * 8 * 128 * 2 == 16_384
    # Model card: 52B in total and 12B active.
    assert active_parameter_count(model) == pytest.approx(12e9, rel=0.01)


def test_kimi_linear_counts_its_layers_of_latent_attention_from_one() -> None:
    model = model_of(facts.KIMI_LINEAR)
    delta, latent = model.layer_groups
    assert latent.layers == (3, 7, 11, 15, 19, 23, 26)
    assert kv_cache_bytes_per_token(model, kv_cache=BF16) == 7 * (512 + 64) * 2 == 8_064
    # Convolutions of queries, keys and values in 16 bits, a 128 x 128 matrix for each head in 32.
    assert state_bytes_per_sequence(model) == 20 * (3 * 32 * 128 * 3 * 2 + 32 * 128 * 128 * 4) == 43_417_600
    assert delta.kind is LayerKind.KDA
    assert parameter_counts(model.tensors)[Component.EXPERTS] == 26 * 256 * 3 * 2304 * 1024


def test_cross_attention_keeps_the_picture_and_nothing_of_the_text() -> None:
    model = model_of(facts.LLAMA_3_2_11B_VISION)
    assert kept(facts.LLAMA_3_2_11B_VISION) == {LayerKind.FULL: 32, LayerKind.CROSS: 8}
    assert kv_cache_bytes_per_token(model, kv_cache=BF16) == 32 * 2 * 8 * 128 * 2 == 131_072
    assert source_kv_cache_bytes_per_token(model, kv_cache=BF16) == 8 * 2 * 8 * 128 * 2 == 32_768
    assert source_kv_cache_bytes_per_token(model, kv_cache=BF16, tp=8) == 32_768 // 8
    # Eight rows of the embedding are read and never written.
    counts = parameter_counts(model.tensors)
    assert counts[Component.EMBEDDING] - counts[Component.LM_HEAD] == 8 * 4096


def test_an_encoder_decoder_keeps_both_its_own_tokens_and_the_encoders() -> None:
    model = model_of(facts.FLAN_T5_XXL)
    assert kv_cache_bytes_per_token(model, kv_cache=BF16) == 24 * 2 * 64 * 64 * 2 == 393_216
    assert source_kv_cache_bytes_per_token(model, kv_cache=BF16) == 393_216
    # 24 encoder layers attend to themselves, 24 decoder layers to themselves and to the encoder.
    assert parameter_counts(model.tensors)[Component.ATTENTION] == (24 + 2 * 24) * 4 * 4096 * 4096
    tied = model_of(facts.FLAN_T5_XXL, tie_word_embeddings=None)
    assert parameter_counts(tied.tensors)[Component.LM_HEAD] == 0


def test_chunked_layers_forget_at_every_chunk() -> None:
    model = model_of(facts.LLAMA_4_SCOUT)
    chunked, full = model.layer_groups
    assert (chunked.layer_count, full.layers) == (36, tuple(range(3, 48, 4)))
    layer = 2 * 8 * 128 * 2
    assert kv_cache_bytes(model, context_tokens=32_768, kv_cache=BF16) == layer * (36 * 8192 + 12 * 32_768)


def test_every_second_layer_of_maverick_is_dense_and_wider() -> None:
    counts = parameter_counts(model_of(facts.LLAMA_4_MAVERICK).tensors)
    assert counts[Component.EXPERTS] == 24 * 128 * 3 * 5120 * 8192
    assert counts[Component.SHARED_EXPERTS] == 24 * 3 * 5120 * 8192
    assert counts[Component.MLP] == 24 * 3 * 5120 * 16384


def test_layers_may_have_query_heads_of_their_own() -> None:
    model = model_of(facts.LAGUNA_XS_2)
    assert kept(facts.LAGUNA_XS_2) == {LayerKind.FULL: 10, LayerKind.SLIDING: 30}
    # 10 layers of 48 heads, 30 of 64: queries and outputs, a gate for every head, keys and values of 8 heads.
    heads = 10 * 48 + 30 * 64
    attention = 2048 * heads * (2 * 128 + 1) + 40 * 2 * 2048 * 8 * 128
    assert parameter_counts(model.tensors)[Component.ATTENTION] == attention
    # Model card: 33B in total, 3B active.
    assert sum(parameter_counts(model.tensors).values()) == pytest.approx(33.4e9, rel=0.002)
    assert active_parameter_count(model) == pytest.approx(3e9, rel=0.01)


def test_keys_wider_than_values_are_counted_as_they_are() -> None:
    model = model_of(facts.MIMO_V2_FLASH)
    full, sliding = model.layer_groups
    assert (full.layer_count, sliding.layer_count, sliding.window_tokens) == (9, 39, 128)
    assert full.kv_elements_per_token == 4 * (192 + 128)
    assert sliding.kv_elements_per_token == 8 * (192 + 128)
    assert kv_cache_bytes_per_token(model, kv_cache=BF16) == (9 * 1280 + 39 * 2560) * 2 == 222_720
    assert model.router_bias_count == 47 * 256


def test_layers_that_share_a_cache_keep_none() -> None:
    model = model_of(facts.GEMMA_4_E4B)
    assert kept(facts.GEMMA_4_E4B) == {LayerKind.SLIDING: 20, LayerKind.FULL: 4, LayerKind.KV_SHARED: 18}
    assert kv_cache_bytes_per_token(model, kv_cache=BF16) == (20 * 2 * 2 * 256 + 4 * 2 * 2 * 512) * 2 == 57_344
    # A table of 256 for each of 42 layers and 262,144 tokens beside the embedding itself.
    assert parameter_counts(model.tensors)[Component.EMBEDDING] == 262_144 * (2560 + 42 * 256)
    # Layers that share make queries only: 24 layers have keys, 20 of them of 256 and 4 of 512.
    attention = 35 * 2 * 2560 * 8 * 256 + 7 * 2 * 2560 * 8 * 512 + 2 * 2560 * 2 * (20 * 256 + 4 * 512)
    assert parameter_counts(model.tensors)[Component.ATTENTION] == attention


def test_keys_that_are_values_too_are_made_once_and_kept_twice() -> None:
    model = model_of(facts.GEMMA_4_26B_A4B)
    sliding, full = model.layer_groups
    assert full.kv_elements_per_token == 2 * 2 * 512
    assert sliding.kv_elements_per_token == 2 * 8 * 256
    windows = 25 * 2816 * (2 * 16 * 256 + 2 * 8 * 256)
    whole = 5 * 2816 * (2 * 16 * 512 + 2 * 512)
    counts = parameter_counts(model.tensors)
    assert counts[Component.ATTENTION] == windows + whole
    # Each layer has an MLP and experts.
    assert counts[Component.MLP] == 30 * 3 * 2816 * 2112
    assert counts[Component.EXPERTS] == 30 * 128 * 3 * 2816 * 704


def test_a_compressed_cache_has_an_entry_for_several_tokens() -> None:
    model = model_of(facts.DEEPSEEK_V4_FLASH)
    assert kept(facts.DEEPSEEK_V4_FLASH) == {LayerKind.SLIDING: 43, LayerKind.COMPRESSED: 41}
    latent = 512 * 2
    one_token = 43 * latent  # no entry of the compressed caches is complete
    assert kv_cache_bytes(model, context_tokens=1, kv_cache=BF16) == one_token
    windows = 43 * 128 * latent
    indexed, sparse = 21 * (1024 // 4) * (512 + 128) * 2, 20 * (1024 // 128) * latent
    assert kv_cache_bytes(model, context_tokens=1024, kv_cache=BF16) == windows + indexed + sparse == 12_681_216
    assert model.mtp is not None


def test_experts_of_no_effect_lower_how_many_a_token_meets() -> None:
    model = model_of(facts.LONGCAT_FLASH)
    # 12 of 512 + 256, of which 8 are real on average. Report: 560B in total, about 27B active.
    assert model.experts_per_token == 12 * 512 // (512 + 256) == 8
    counts = parameter_counts(model.tensors)
    assert sum(counts.values()) == pytest.approx(560e9, rel=0.005)
    assert active_parameter_count(model) == pytest.approx(27e9, rel=0.05)
    assert counts[Component.ROUTER] == 28 * (512 + 256) * 6144


def test_two_attentions_in_a_layer_keep_two_caches() -> None:
    model = model_of(facts.LONGCAT_FLASH)
    assert kept(facts.LONGCAT_FLASH) == {LayerKind.MLA: 2 * 28}
    assert kv_cache_bytes_per_token(model, kv_cache=BF16) == 56 * (512 + 64) * 2


def test_short_convolutions_keep_two_tokens() -> None:
    model = model_of(facts.LFM2_1_2B)
    assert kept(facts.LFM2_1_2B) == {LayerKind.SHORT_CONVOLUTION: 10, LayerKind.FULL: 6}
    assert state_bytes_per_sequence(model) == 10 * 2048 * (3 - 1) * 2
    # Two thirds of 12,288 are 8,192, a multiple of 256.
    assert parameter_counts(model.tensors)[Component.MLP] == 16 * 3 * 2048 * 8192


def test_lightning_attention_keeps_a_square_for_each_head() -> None:
    model = model_of(facts.MINIMAX_TEXT_01)
    assert kept(facts.MINIMAX_TEXT_01) == {LayerKind.LIGHTNING: 70, LayerKind.FULL: 10}
    assert state_bytes_per_sequence(model) == 70 * 64 * 128 * 128 * 2
    assert kv_cache_bytes_per_token(model, kv_cache=BF16) == 10 * 2 * 8 * 128 * 2


def test_granite_4_has_experts_and_a_shared_mlp_in_every_layer() -> None:
    model = model_of(facts.GRANITE_4_H_TINY, mamba_ssm_cache_dtype="float32")
    assert kept(facts.GRANITE_4_H_TINY) == {LayerKind.MAMBA2: 36, LayerKind.FULL: 4}
    convolution, recurrent = (48 * 64 + 2 * 128) * 3, 48 * 64 * 128
    assert state_bytes_per_sequence(model) == 36 * (convolution * 2 + recurrent * 4) == 57_341_952
    counts = parameter_counts(model.tensors)
    assert counts[Component.SHARED_EXPERTS] == 40 * 3 * 1536 * 1024
    assert counts[Component.EXPERTS] == 40 * 64 * 3 * 1536 * 512


def test_pruned_layers_keep_nothing() -> None:
    assert kept(facts.NEMOTRON_SUPER_49B) == {LayerKind.FULL: 49, LayerKind.NONE: 31}
    model = model_of(facts.NEMOTRON_SUPER_49B)
    assert kv_cache_bytes_per_token(model, kv_cache=BF16) == 49 * 2 * 8 * 128 * 2


def test_a_pruned_block_may_be_a_matrix_or_gone() -> None:
    def blocks() -> Iterator[dict[str, Any]]:
        yield {"attention": {"replace_with_linear": True}, "ffn": {"ffn_mult": 1.3}}
        yield {"attention": {"no_op": True}, "ffn": {"no_op": True}}
        yield {"attention": {"n_heads_in_group": 4}, "ffn": {"replace_with_linear": True}}

    model = model_of(facts.NEMOTRON_SUPER_49B, num_hidden_layers=3, hidden_size=1024, block_configs=list(blocks()))
    counts = parameter_counts(model.tensors)
    heads = 64 * 16
    assert counts[Component.ATTENTION] == 1024 * 1024 + 2 * 1024 * heads + 2 * 1024 * 16 * 16
    # 2 * 1.3 * 1024 / 3 is 887.4…, which is rounded up to 1024.
    assert counts[Component.MLP] == 3 * 1024 * 1024 + 1024 * 1024
    # A norm before each half that is there, and the last one.
    assert counts[Component.OTHER] == (4 + 1) * 1024


def test_layers_of_a_puzzle_have_experts_of_their_own() -> None:
    def experts(count: int, top: int, width: int) -> dict[str, Any]:
        return {
            "block_type": "moe",
            "n_routed_experts": count,
            "num_experts_per_tok": top,
            "moe_intermediate_size": width,
        }

    model = model_of(
        {
            "model_type": "nemotron_h_puzzle",
            "hidden_size": 256,
            "vocab_size": 1000,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 64,
            "block_configs": [experts(16, 4, 128), {"block_type": "attention"}, experts(8, 1, 64), experts(16, 4, 128)],
        }
    )
    first, second = 2 * 16 * 2 * 256 * 128, 8 * 2 * 256 * 64
    counts = parameter_counts(model.tensors)
    assert counts[Component.EXPERTS] == first + second
    rest = sum(counts.values()) - counts[Component.EXPERTS]
    assert active_parameter_count(model) == rest + first * 4 // 16 + second // 8
    assert model.router_bias_count == 2 * 16 + 8
    assert [group.kind for group in model.layer_groups] == [LayerKind.NONE, LayerKind.FULL, LayerKind.NONE]


def test_an_index_shared_between_layers_is_kept_once() -> None:
    glm: dict[str, Any] = {
        "model_type": "glm_moe_dsa",
        "num_hidden_layers": 4,
        "hidden_size": 1024,
        "intermediate_size": 2048,
        "vocab_size": 1000,
        "num_attention_heads": 8,
        "q_lora_rank": 256,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 256,
        "index_n_heads": 4,
        "index_head_dim": 128,
        "index_topk": 2048,
    }
    every = kv_cache_bytes_per_token(model_of(glm), kv_cache=BF16)
    shared = model_of(glm, indexer_types=["full", "shared", "full", "shared"])
    assert every == 4 * (512 + 64 + 128) * 2
    assert kv_cache_bytes_per_token(shared, kv_cache=BF16) == (4 * (512 + 64) + 2 * 128) * 2
    index = 4 * 128 * 256 + 128 * 1024 + 4 * 1024 + 2 * 128
    totals = [sum(parameter_counts(each.tensors).values()) for each in (model_of(glm), shared)]
    assert totals[0] - totals[1] == 2 * index


@pytest.mark.parametrize(
    ("config", "changes", "key"),
    [
        (facts.MIMO_V2_FLASH, {"hybrid_layer_pattern": [0, 1]}, "hybrid_layer_pattern"),
        (facts.MIMO_V2_FLASH, {"swa_num_key_value_heads": None}, "swa_num_key_value_heads"),
        (facts.DEEPSEEK_V4_FLASH, {"compress_ratios": [4]}, "compress_ratios"),
        (facts.DEEPSEEK_V4_FLASH, {"o_groups": 7}, "o_groups"),
        (facts.NEMOTRON_SUPER_49B, {"num_hidden_layers": 79}, "block_configs"),
        (facts.NEMOTRON_SUPER_49B, {"block_configs": [5]}, "block_configs"),
        (facts.GRANITE_4_H_TINY, {"layer_types": ["mamba"]}, "layer_types"),
        (facts.LFM2_1_2B, {"layer_types": ["conv"] * 15 + ["magic"]}, "layer_types"),
        (facts.MINIMAX_TEXT_01, {"attn_type_list": [2] * 80}, "attn_type_list"),
        (facts.FLAN_T5_XXL, {"feed_forward_proj": "swish"}, "feed_forward_proj"),
        (facts.LONGCAT_FLASH, {"zero_expert_type": "drop"}, "zero_expert_type"),
        (facts.FALCON_40B, {"num_kv_heads": 7}, "num_kv_heads"),
        (facts.GEMMA_4_E4B, {"num_kv_shared_layers": 42}, "num_kv_shared_layers"),
    ],
)
def test_what_does_not_add_up_is_refused_by_field(config: dict[str, Any], changes: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        model_of(config, **changes)
    assert caught.value.field == ("config", *key.split("."))


def test_publishers_names_of_a_field_mean_the_same() -> None:
    usual = model_of(facts.FALCON_40B)
    older = {key: value for key, value in facts.FALCON_40B.items() if key not in {"hidden_size", "num_attention_heads"}}
    assert model_of({**older, "n_embed": 8192, "n_head": 128}).tensors == usual.tensors


def test_the_list_of_families_is_long_and_sorted() -> None:
    assert len(SUPPORTED_ARCHITECTURES) >= 90
    assert list(SUPPORTED_ARCHITECTURES) == sorted(SUPPORTED_ARCHITECTURES)


def test_the_largest_config_is_read_in_a_moment() -> None:
    started = time.perf_counter()
    model_of(facts.NEMOTRON_SUPER_49B)
    assert time.perf_counter() - started < 0.5
