"""What a checkpoint's quantization_config does to each tensor."""

import time
from typing import Any

import pytest

from service.errors import ConfigInvalid
from service.sizing.architectures.module_patterns import ModulePatterns
from service.sizing.language_model import Component, LanguageModel
from service.sizing.precision import Precision
from service.sizing.weight_schemes import stored_weights
from tests.sizing.architectures import published_facts as facts
from tests.sizing.architectures.family_facts import DEEPSEEK_V4_FLASH
from tests.sizing.architectures.published_facts import model_of

FP8_DYNAMIC: dict[str, Any] = {
    "quant_method": "compressed-tensors",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "float", "strategy": "channel"},
            "input_activations": {"num_bits": 8, "type": "float", "strategy": "token"},
        }
    },
    "ignore": ["lm_head"],
}


def compressed(**weights: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": weights}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, "ignore": ["lm_head"]}


def schemes(model: LanguageModel, name: str) -> set[str]:
    """The schemes of the tensors whose module ends in this name."""
    return {stored.scheme for stored in model.checkpoint if stored.tensor.module.endswith(name)}


@pytest.mark.parametrize(
    ("section", "scheme"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "awq-int4"),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, "awq-int4-g64"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False}, "gptq-int4"),
        ({"quant_method": "gptq", "bits": 8, "group_size": 128}, "gptq-int8"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8-block"),
        ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8-tensor"),
        (FP8_DYNAMIC, "fp8"),
        (compressed(num_bits=4, type="int", strategy="group", group_size=128, symmetric=True), "w4a16"),
        (compressed(num_bits=4, type="int", strategy="group", group_size=32, symmetric=True), "w4a16-g32"),
        (compressed(num_bits=4, type="float", strategy="tensor_group", group_size=16), "nvfp4"),
        (compressed(num_bits=8, type="int", strategy="channel"), "w8a16"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8-tensor"),
        ({"quant_method": "gguf", "mixture": "Q4_K_M"}, "gguf-q4_k_m"),
    ],
)
def test_a_method_is_read_as_its_scheme(section: dict[str, Any], scheme: str) -> None:
    model = model_of(facts.LLAMA_3_1_8B, quantization_config=section)
    assert model.checkpoint_scheme == scheme
    assert schemes(model, "q_proj") == {scheme}


def test_int8_with_int8_activations_computes_in_int8() -> None:
    section = compressed(num_bits=8, type="int", strategy="channel")
    section["config_groups"]["group_0"]["input_activations"] = {"num_bits": 8, "type": "int"}
    assert model_of(facts.LLAMA_3_1_8B, quantization_config=section).checkpoint_scheme == "int8"


@pytest.mark.parametrize(
    "section",
    [
        {"quant_method": "bitsandbytes"},
        {"quant_method": 4},
        {},
        {"quant_method": "fp8", "weight_block_size": [64, 64]},
        {"quant_method": "awq", "group_size": 96},
        {"quant_method": "modelopt", "quant_algo": "FP2"},
        {"quant_method": "compressed-tensors", "config_groups": {}},
        compressed(num_bits=3, type="int", strategy="channel"),
    ],
)
def test_an_unknown_scheme_is_refused(section: dict[str, Any]) -> None:
    with pytest.raises(ConfigInvalid):
        model_of(facts.LLAMA_3_1_8B, quantization_config=section)


def test_an_unknown_method_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigInvalid, match=r"bitsandbytes.*known are awq, gptq, fp8"):
        model_of(facts.LLAMA_3_1_8B, quantization_config={"quant_method": "bitsandbytes"})


def test_embedding_norms_and_head_stay_in_16_bits() -> None:
    model = model_of(facts.LLAMA_3_1_8B, quantization_config=FP8_DYNAMIC)
    assert schemes(model, "embed_tokens") == schemes(model, "lm_head") == schemes(model, "norm") == {"bf16"}


def test_a_head_that_is_not_ignored_is_quantised_by_methods_that_take_every_linear_layer() -> None:
    model = model_of(facts.LLAMA_3_1_8B, quantization_config={**FP8_DYNAMIC, "ignore": []})
    assert schemes(model, "lm_head") == {"fp8"}
    saved = stored_weights(model_of(facts.LLAMA_3_1_8B, quantization_config=FP8_DYNAMIC)).total_bytes
    # A byte less for each of 128,256 x 4,096, and a scale of 2 bytes a row.
    assert saved - stored_weights(model).total_bytes == 128_256 * 4096 - 2 * 128_256


def test_gpt_oss_keeps_its_attention_in_16_bits() -> None:
    model = model_of(facts.GPT_OSS_120B)
    assert model.checkpoint_scheme == "mxfp4"
    assert schemes(model, "q_proj") == {"bf16"}
    assert schemes(model, "gate_up_proj") == {"mxfp4"}


@pytest.mark.parametrize(
    "entry",
    [
        "model.layers.*.self_attn*",
        "model.layers.*.self_attn",
        "re:.*self_attn.*",
        r"re:.*\.self_attn\.(q|k|v|o)_proj$",
        r"re:^model\.layers\.\d+\.self_attn\..*",
        "self_attn",
    ],
)
def test_names_globs_and_expressions_leave_modules_out(entry: str) -> None:
    section = {"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": ["lm_head", entry]}
    model = model_of(facts.LLAMA_3_1_8B, quantization_config=section)
    assert schemes(model, "q_proj") == schemes(model, "o_proj") == {"bf16"}
    assert schemes(model, "down_proj") == {"nvfp4"}


def test_a_single_layer_can_be_left_out() -> None:
    section = {**FP8_DYNAMIC, "ignore": ["lm_head", "model.layers.31.mlp.down_proj"]}
    model = model_of(facts.LLAMA_3_1_8B, quantization_config=section)
    parts = {
        stored.scheme: stored.tensor.layers for stored in model.checkpoint if stored.tensor.module.endswith("down_proj")
    }
    assert parts == {"fp8": tuple(range(31)), "bf16": (31,)}


def test_single_experts_can_be_left_out() -> None:
    section = {**FP8_DYNAMIC, "ignore": ["model.layers.0.mlp.experts.7.up_proj", "lm_head", "re:.*mlp.gate$"]}
    model = model_of(facts.QWEN3_30B_A3B, quantization_config=section)
    left_out = [
        stored.tensor
        for stored in model.checkpoint
        if stored.tensor.component is Component.EXPERTS and stored.scheme == "bf16"
    ]
    assert [(tensor.layers, tensor.copies) for tensor in left_out] == [((0,), 1)]
    assert sum(stored.tensor.element_count for stored in model.checkpoint) == 30_532_122_624


def test_a_mixed_checkpoint_names_a_scheme_by_module() -> None:
    # NVIDIA-NeMo/Nemotron pull request 257: NVFP4 experts, FP8 shared experts and Mamba projections, FP8 cache.
    section = {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "kv_cache_quant_algo": "FP8",
        "quantized_layers": {
            "*.mixer.experts.*": {"quant_algo": "NVFP4"},
            "*.mixer.shared_experts.*": {"quant_algo": "FP8"},
            "*.mixer.in_proj": {"quant_algo": "FP8"},
            "*.mixer.out_proj": {"quant_algo": "FP8"},
        },
    }
    model = model_of(facts.NEMOTRON_3_SUPER, quantization_config=section)
    assert model.checkpoint_scheme == "nvfp4"
    assert model.checkpoint_kv_cache is Precision.FP8
    assert schemes(model, "in_proj") == {"fp8-tensor"}
    assert schemes(model, "q_proj") == {"bf16"}
    # Per expert matrix of 1024 x 2688: half a byte an element, a byte of scale per 16, two fp32 scales.
    experts = 40 * 512 * 2 * (1024 * 2688 // 2 + 1024 * 2688 // 16 + 8)
    assert sum(e.size_bytes for e in stored_weights(model).entries if e.scheme == "nvfp4") == experts


def test_the_cache_precision_of_the_checkpoint_is_read() -> None:
    scheme = {**FP8_DYNAMIC, "kv_cache_scheme": {"num_bits": 8, "type": "float"}}
    assert model_of(facts.LLAMA_3_1_8B, quantization_config=scheme).checkpoint_kv_cache is Precision.FP8
    assert model_of(facts.LLAMA_3_1_8B, quantization_config=FP8_DYNAMIC).checkpoint_kv_cache is None


@pytest.mark.parametrize("expression", [r"re:(a+)+$", r"re:(?=a)b", r"re:((a|b)|c)", "re:a{3}", "re:[z-a]", "re:("])
def test_expressions_beyond_what_lists_use_are_refused(expression: str) -> None:
    with pytest.raises(ConfigInvalid, match="ignore"):
        ModulePatterns([expression], key="ignore")


def test_a_hostile_list_costs_little() -> None:
    patterns = ModulePatterns(["re:" + ".*a" * 100, "*a" * 100, "re:" + r"\d+" * 50], key="ignore")
    started = time.perf_counter()
    assert not patterns.names("a" * 60 + "!" + "0" * 300)
    assert time.perf_counter() - started < 0.1


def test_too_many_patterns_are_refused() -> None:
    with pytest.raises(ConfigInvalid, match="more than 2000 patterns"):
        ModulePatterns((f"*.{number}" for number in range(2001)), key="ignore")


def test_many_names_are_no_burden() -> None:
    names = [f"model.layers.{layer}.mlp.experts.{expert}.up_proj" for layer in range(48) for expert in range(128)]
    section = {**FP8_DYNAMIC, "ignore": ["lm_head", *names]}
    started = time.perf_counter()
    model = model_of(facts.QWEN3_30B_A3B, quantization_config=section)
    assert time.perf_counter() - started < 5
    assert {s.scheme for s in model.checkpoint if s.tensor.module.endswith("experts.{expert}.up_proj")} == {"bf16"}


def test_a_list_that_tells_too_many_experts_apart_is_refused() -> None:
    section = {**FP8_DYNAMIC, "ignore": [r"re:.*experts\.1\..*"]}
    started = time.perf_counter()
    with pytest.raises(ConfigInvalid, match="at most 5000000 comparisons"):
        model_of(facts.QWEN3_30B_A3B, quantization_config=section, num_experts=65_536, num_hidden_layers=2_000)
    assert time.perf_counter() - started < 1


def test_routed_experts_may_have_a_format_of_their_own() -> None:
    """DeepSeek-V4: experts in MXFP4, a scale per 32; the rest in FP8 with one per block."""
    section = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    model = model_of(DEEPSEEK_V4_FLASH, quantization_config=section, expert_dtype="fp4")
    assert schemes(model, "up_proj") == {"mxfp4", "fp8-block"}  # shared experts are not routed
    experts = 43 * 256 * 3 * 4096 * 2048
    sizes = [e.size_bytes for e in stored_weights(model).entries if e.component is Component.EXPERTS]
    assert sum(sizes) == experts // 2 + experts // 32
    with pytest.raises(ConfigInvalid, match="expert_dtype"):
        model_of(DEEPSEEK_V4_FLASH, quantization_config=section, expert_dtype="fp3")
