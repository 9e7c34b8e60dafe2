"""Parameter counts against what the publishers print, to the last parameter."""

from typing import Any

import pytest

from service.sizing.language_model import (
    Component,
    LayerKind,
    Sharding,
    active_parameter_count,
    parameter_counts,
)
from tests.sizing.architectures import published_facts as facts
from tests.sizing.architectures.published_facts import model_of

# Totals as published: index metadata or parameter count of the publisher's own page on the Hugging Face hub.
PUBLISHED_TOTALS = {
    "Llama-3.1-8B": (facts.LLAMA_3_1_8B, 8_030_261_248),
    "Llama-3.3-70B": (facts.LLAMA_3_3_70B, 70_553_706_496),
    "Llama-2-7B": (facts.LLAMA_2_7B, 6_738_415_616),
    "Mistral-7B-v0.1": (facts.MISTRAL_7B, 7_241_732_096),
    "Mixtral-8x7B": (facts.MIXTRAL_8X7B, 46_702_792_704),
    "Qwen2.5-7B": (facts.QWEN2_5_7B, 7_615_616_512),
    "Qwen3-8B": (facts.QWEN3_8B, 8_190_735_360),
    "Qwen3-30B-A3B": (facts.QWEN3_30B_A3B, 30_532_122_624),
    "Phi-4": (facts.PHI_4, 14_659_507_200),
    "Gemma-2-9B": (facts.GEMMA_2_9B, 9_241_705_984),
    "Gemma-3-27B": (facts.GEMMA_3_27B, 27_432_406_640),
}


@pytest.mark.parametrize("name", PUBLISHED_TOTALS)
def test_a_model_has_exactly_the_parameters_that_its_publisher_says(name: str) -> None:
    config, published = PUBLISHED_TOTALS[name]
    assert sum(parameter_counts(model_of(config).tensors).values()) == published


@pytest.mark.parametrize(
    ("config", "published", "router_bias_count"),
    [
        # 58 expert layers of 256 experts; the published total holds their correction vectors.
        (facts.DEEPSEEK_V3, 671_026_419_200, 58 * 256),
        # 60 expert layers of 384 experts.
        (facts.KIMI_K2, 1_026_408_232_448, 60 * 384),
    ],
    ids=["DeepSeek-V3", "Kimi-K2"],
)
def test_router_corrections_are_counted_apart(config: dict[str, Any], published: int, router_bias_count: int) -> None:
    model = model_of(config)
    assert model.router_bias_count == router_bias_count
    assert sum(parameter_counts(model.tensors).values()) + router_bias_count == published


def test_llama_counts_follow_from_its_shapes() -> None:
    counts = parameter_counts(model_of(facts.LLAMA_3_1_8B).tensors)
    assert counts[Component.EMBEDDING] == 128_256 * 4096
    assert counts[Component.LM_HEAD] == 128_256 * 4096
    # Queries and outputs 4096 x 4096, keys and values of 8 heads of 128.
    assert counts[Component.ATTENTION] == 32 * (2 * 4096 * 4096 + 2 * 1024 * 4096)
    assert counts[Component.MLP] == 32 * 3 * 4096 * 14_336
    assert counts[Component.OTHER] == (2 * 32 + 1) * 4096


def test_deepseek_passes_each_token_through_37_6_billion_parameters() -> None:
    # As published: "37B activated", here with embedding and head.
    assert active_parameter_count(model_of(facts.DEEPSEEK_V3)) == 37_552_282_624


def test_gpt_oss_activates_5_1_billion_without_its_embedding() -> None:
    model = model_of(facts.GPT_OSS_120B)
    embedding = 201_088 * 2880
    # Model card: 116.83B in total, 5.13B active without the embedding.
    assert sum(parameter_counts(model.tensors).values()) == pytest.approx(116.83e9, abs=0.005e9)
    assert active_parameter_count(model) - embedding == pytest.approx(5.13e9, abs=0.005e9)


def test_nemotron_experts_live_in_the_latent_and_have_no_gate() -> None:
    model = model_of(facts.NEMOTRON_3_SUPER)
    counts = parameter_counts(model.tensors)
    assert counts[Component.EXPERTS] == 40 * 512 * 2 * 1024 * 2688
    assert counts[Component.SHARED_EXPERTS] == 40 * 2 * 4096 * 5376
    assert counts[Component.MLP] == 40 * 2 * 4096 * 1024  # into the latent and out of it
    inner, groups = 128 * 64, 2 * 8 * 128
    mamba_matrices = (2 * inner + groups + 128) * 4096 + 4096 * inner
    mamba_vectors = (inner + groups) * (4 + 1) + 3 * 128 + inner
    assert counts[Component.STATE_SPACE] == 40 * (mamba_matrices + mamba_vectors)
    # Name and card: 120B, 12B active.
    assert sum(counts.values()) == pytest.approx(120.7e9, rel=0.001)
    assert active_parameter_count(model) == pytest.approx(12.7e9, rel=0.01)


def test_a_tied_head_is_counted_once() -> None:
    tied = model_of(facts.LLAMA_3_1_8B, tie_word_embeddings=True)
    assert parameter_counts(tied.tensors)[Component.LM_HEAD] == 0
    assert tied.tied_embedding


def test_gemma_ties_its_head_unless_told_otherwise() -> None:
    assert model_of(facts.GEMMA_2_9B).tied_embedding


def test_the_multi_token_module_is_a_layer_and_a_projection_apart_from_the_total() -> None:
    model = model_of(facts.DEEPSEEK_V3)
    hidden = 7168
    attention = 1536 * hidden + 128 * 192 * 1536 + 576 * hidden + 128 * 256 * 512 + hidden * 128 * 128 + 1536 + 512
    experts = 257 * 3 * hidden * 2048 + 256 * hidden
    layer = attention + experts + 2 * hidden
    assert model.mtp is not None
    assert model.mtp.layer_count == 1
    assert model.mtp.parameter_count == layer + 2 * hidden**2 + 3 * hidden
    # As published: 14B of MTP weights on the hub, of which 2 x 0.93B are copies of embedding and head.
    assert model.mtp.parameter_count == pytest.approx(11.61e9, rel=0.001)
    assert model.mtp.kv_elements_per_token == 512 + 64


def test_nemotron_drafts_with_attention_and_experts() -> None:
    model = model_of(facts.NEMOTRON_3_SUPER, num_nextn_predict_layers=1, mtp_hybrid_override_pattern="*E")
    assert model.mtp is not None
    assert model.mtp.kv_elements_per_token == 2 * 2 * 128
    hidden, latent = 4096, 1024
    attention = 2 * 4096 * hidden + 2 * 256 * hidden + hidden
    experts = 512 * 2 * latent * 2688 + 2 * hidden * 5376 + 512 * hidden + 2 * hidden * latent + hidden
    assert model.mtp.parameter_count == attention + experts + 2 * hidden**2 + 3 * hidden


def test_every_other_layer_of_gpt_oss_slides() -> None:
    sliding, full = model_of(facts.GPT_OSS_120B).layer_groups
    assert (sliding.kind, sliding.window_tokens, sliding.layers[:3]) == (LayerKind.SLIDING, 128, (0, 2, 4))
    assert (full.kind, full.window_tokens, full.layers[:3]) == (LayerKind.FULL, None, (1, 3, 5))


def test_every_sixth_layer_of_gemma_3_is_global() -> None:
    sliding, full = model_of(facts.GEMMA_3_27B).layer_groups
    assert full.layers == tuple(range(5, 62, 6))
    assert (full.layer_count, sliding.layer_count) == (10, 52)


def test_stated_layer_types_win_over_the_family_rule() -> None:
    types = ["full_attention"] * 35 + ["sliding_attention"]
    full, sliding = model_of(facts.GPT_OSS_120B, layer_types=types).layer_groups
    assert (full.layer_count, sliding.layers) == (35, (35,))


def test_a_window_that_no_context_outgrows_is_none() -> None:
    (group,) = model_of(facts.MISTRAL_7B, sliding_window=32768).layer_groups
    assert group.kind is LayerKind.FULL


def test_a_qwen_window_counts_only_where_it_is_switched_on() -> None:
    (off,) = model_of(facts.QWEN2_5_7B, sliding_window=4096).layer_groups
    assert off.kind is LayerKind.FULL
    full, sliding = model_of(
        facts.QWEN2_5_7B, sliding_window=4096, use_sliding_window=True, max_window_layers=20
    ).layer_groups
    assert (full.layer_count, sliding.layer_count, sliding.window_tokens) == (20, 8, 4096)


def test_head_width_comes_from_the_file() -> None:
    (group,) = model_of(facts.QWEN3_30B_A3B).layer_groups
    assert group.key_width == 128  # hidden size over heads would be 64
    sliding, _ = model_of(facts.GPT_OSS_120B).layer_groups
    assert sliding.key_width == 64  # and here 45


def test_key_and_value_projections_stop_dividing_at_the_kv_heads() -> None:
    tensors = {tensor.module.rsplit(".", 1)[-1]: tensor for tensor in model_of(facts.LLAMA_3_1_8B).tensors}
    assert tensors["k_proj"].shard_limit == 8
    assert tensors["v_proj"].shard_limit == 8
    assert tensors["gate_proj"].shard_limit is None
    assert tensors["input_layernorm"].sharding is Sharding.REPLICATED


def test_projections_into_a_latent_lie_on_every_rank() -> None:
    tensors = {tensor.module.rsplit(".", 1)[-1]: tensor for tensor in model_of(facts.DEEPSEEK_V3).tensors}
    assert tensors["kv_a_proj_with_mqa"].sharding is Sharding.REPLICATED
    assert tensors["q_a_proj"].sharding is Sharding.REPLICATED
    assert tensors["kv_b_proj"].sharding is Sharding.TENSOR


def test_every_layer_keeps_something_or_is_said_to_keep_nothing() -> None:
    for config, _ in PUBLISHED_TOTALS.values():
        model = model_of(config)
        layers = sorted(layer for group in model.layer_groups for layer in group.layers)
        assert layers == list(range(model.layer_count))


def test_mla_decodes_in_the_latent_and_prefills_by_heads() -> None:
    (group,) = model_of(facts.DEEPSEEK_V3).layer_groups
    assert group.attention_width_decode == 128 * (512 + 64 + 512)
    assert group.attention_width_prefill == 128 * (128 + 64 + 128)
