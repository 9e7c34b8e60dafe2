"""Families beyond the first: each count worked out of its shapes."""

from typing import Any

import pytest

from service.errors import ServiceError
from service.sizing.cache import kv_cache_bytes_per_token, state_bytes_per_sequence
from service.sizing.language_model import Component, LayerKind, parameter_counts
from service.sizing.precision import Precision
from tests.sizing.architectures import published_facts as facts
from tests.sizing.architectures.published_facts import model_of

QWEN3_NEXT: dict[str, Any] = {  # https://huggingface.co/Qwen/Qwen3-Next-80B-A3B-Instruct
    "model_type": "qwen3_next",
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "vocab_size": 151936,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "num_experts": 512,
    "num_experts_per_tok": 10,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
}
DEEPSEEK_V3_2: dict[str, Any] = {  # https://huggingface.co/deepseek-ai/DeepSeek-V3.2
    **facts.DEEPSEEK_V3,
    "model_type": "deepseek_v32",
    "index_n_heads": 64,
    "index_head_dim": 128,
    "index_topk": 2048,
}
COMMAND_R7B: dict[str, Any] = {  # https://huggingface.co/CohereLabs/c4ai-command-r7b-12-2024
    "model_type": "cohere2",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "vocab_size": 256000,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "sliding_window": 4096,
    "max_position_embeddings": 132096,
}
HUNYUAN_A13B: dict[str, Any] = {  # https://huggingface.co/tencent/Hunyuan-A13B-Instruct
    "model_type": "hunyuan_v1_moe",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "vocab_size": 128167,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_experts": 64,
    "moe_topk": [8] * 32,
    "num_shared_expert": [1] * 32,
    "moe_intermediate_size": [3072] * 32,
    "use_qk_norm": True,
    "tie_word_embeddings": True,
}


def test_linear_attention_keeps_a_matrix_per_value_head() -> None:
    model = model_of(QWEN3_NEXT)
    linear, full = model.layer_groups
    assert (linear.kind, linear.layer_count, full.layers) == (LayerKind.GATED_DELTA, 36, tuple(range(3, 48, 4)))
    keys, values = 2 * 16 * 128, 32 * 128
    matrices = 2048 * (keys + 2 * values + 2 * 32) + 2048 * values
    assert parameter_counts(model.tensors)[Component.STATE_SPACE] == 36 * (
        matrices + 4 * (keys + values) + 2 * 32 + 128
    )
    # BF16 throughout: the file names no other precision for the state.
    assert state_bytes_per_sequence(model) == 36 * 2 * ((keys + values) * 3 + 32 * 128 * 128)
    assert state_bytes_per_sequence(model, tp=4) * 4 == state_bytes_per_sequence(model)
    assert kv_cache_bytes_per_token(model, kv_cache=Precision.BF16) == 12 * 2 * 2 * 256 * 2
    # Model card: 80B in total.
    assert sum(parameter_counts(model.tensors).values()) == pytest.approx(80e9, rel=0.01)


def test_gated_attention_has_twice_the_queries() -> None:
    counts = parameter_counts(model_of(QWEN3_NEXT).tensors)
    assert counts[Component.ATTENTION] == 12 * 2048 * (2 * 16 * 256 + 2 * 2 * 256 + 16 * 256)


def test_qwen3_5_lies_under_its_text_config_and_drafts_with_full_attention() -> None:
    text = {**QWEN3_NEXT, "mtp_num_hidden_layers": 1, "mamba_ssm_dtype": "float32"}
    model = model_of({"model_type": "qwen3_5_moe", "text_config": text})
    assert model.recurrent_state_precision is Precision.FP32
    assert parameter_counts(model.tensors) == parameter_counts(model_of(QWEN3_NEXT).tensors)
    assert model.mtp is not None
    assert model.mtp.kv_elements_per_token == 2 * 2 * 256
    attention = 2048 * (2 * 16 * 256 + 2 * 2 * 256 + 16 * 256) + 2 * 256
    experts = 513 * 3 * 2048 * 512 + 512 * 2048 + 2048
    assert model.mtp.parameter_count == attention + experts + 2 * 2048 + 2 * 2048**2 + 3 * 2048


def test_a_sparse_index_keeps_a_key_of_its_own_per_token() -> None:
    model = model_of(DEEPSEEK_V3_2)
    assert kv_cache_bytes_per_token(model, kv_cache=Precision.BF16) == 61 * (576 + 128) * 2 == 70_272 + 15_616
    index = 64 * 128 * 1536 + 128 * 7168 + 64 * 7168
    counts, without = (parameter_counts(each.tensors) for each in (model, model_of(facts.DEEPSEEK_V3)))
    assert counts[Component.ATTENTION] - without[Component.ATTENTION] == 61 * index
    (group,) = model.layer_groups
    assert (group.index_head_count, group.index_top_k_tokens) == (64, 2048)


def test_command_r7b_has_one_norm_a_layer_and_ties_its_head() -> None:
    model = model_of(COMMAND_R7B)
    counts = parameter_counts(model.tensors)
    assert counts[Component.OTHER] == 33 * 4096
    assert counts[Component.LM_HEAD] == 0
    sliding, full = model.layer_groups
    assert (sliding.layer_count, full.layers) == (24, tuple(range(3, 32, 4)))


def test_lists_that_say_one_number_for_every_layer_are_that_number() -> None:
    model = model_of(HUNYUAN_A13B)
    assert (model.expert_count, model.experts_per_token) == (64, 8)
    assert parameter_counts(model.tensors)[Component.EXPERTS] == 32 * 64 * 3 * 4096 * 3072
    with pytest.raises(ServiceError, match="differs between layers"):
        model_of(HUNYUAN_A13B, moe_topk=[8] * 31 + [4])
    with pytest.raises(ServiceError, match="must hold 32 numbers"):
        model_of(HUNYUAN_A13B, moe_topk=[8])


def test_glm_drafts_and_keeps_its_corrections_apart() -> None:
    glm = {  # https://huggingface.co/zai-org/GLM-4.5-Air
        "model_type": "glm4_moe",
        "num_hidden_layers": 46,
        "hidden_size": 4096,
        "intermediate_size": 10944,
        "vocab_size": 151552,
        "num_attention_heads": 96,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "attention_bias": True,
        "n_routed_experts": 128,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 1408,
        "first_k_dense_replace": 1,
        "num_nextn_predict_layers": 1,
    }
    model = model_of(glm)
    assert model.router_bias_count == 45 * 128
    assert parameter_counts(model.tensors)[Component.SHARED_EXPERTS] == 45 * 3 * 4096 * 1408
    # Model card: 106B in total with the drafting layer.
    assert model.mtp is not None
    total = sum(parameter_counts(model.tensors).values())
    assert total == pytest.approx(106e9, rel=0.02)
