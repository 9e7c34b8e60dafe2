"""From a Hugging Face config.json to a language model: one small declaration per family.

To add a family, write a function from ``ConfigReader`` to ``Architecture`` out of the building blocks and
enter it below under its ``model_type``. Whatever is not entered is refused by name.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from service.errors import ArchitectureNotSupported
from service.sizing.architectures import (
    deepseek,
    deepseek_v4,
    dense,
    dense_variants,
    experts,
    further_experts,
    gemma,
    gemma4,
    gpt_oss,
    kimi_linear,
    laguna,
    lfm2,
    llama4,
    longcat,
    mamba_hybrids,
    mimo,
    minimax,
    multimodal,
    nemotron_h,
    nemotron_nas,
    nemotron_puzzle,
    older,
    qwen_next,
    step3,
    t5,
    zamba,
)
from service.sizing.architectures.config_reader import ConfigReader
from service.sizing.architectures.config_text import parse_config
from service.sizing.architectures.decoder import Architecture
from service.sizing.architectures.quantisation import read_element_precision, read_quantisation
from service.sizing.architectures.stored_tensors import stored_tensors
from service.sizing.language_model import LanguageModel, StoredTensor

FAMILIES: Final[Mapping[str, Callable[[ConfigReader], Architecture]]] = {
    "llama": dense.llama,
    "mistral": dense.mistral,
    "qwen2": dense.qwen2,
    "qwen3": dense.qwen3,
    "phi3": dense.phi3,
    "gemma2": gemma.gemma2,
    "gemma3": gemma.gemma3,
    "gemma3_text": gemma.gemma3_text,
    "mixtral": experts.mixtral,
    "qwen2_moe": experts.qwen2_moe,
    "qwen3_moe": experts.qwen3_moe,
    "gpt_oss": gpt_oss.gpt_oss,
    "deepseek_v2": deepseek.deepseek_v2,
    "deepseek_v3": deepseek.deepseek_v3,
    "kimi_k2": deepseek.deepseek_v3,
    "nemotron_h": nemotron_h.nemotron_h,
    "olmo2": dense.olmo2,
    "olmo3": dense.olmo3,
    "seed_oss": dense.seed_oss,
    "granite": dense.llama,
    "cohere": dense.cohere,
    "cohere2": dense.cohere2,
    "glm4_moe": experts.glm4_moe,
    "ernie4_5_moe": experts.ernie4_5_moe,
    "minimax_m2": experts.minimax_m2,
    "hunyuan_v1_moe": experts.hunyuan_v1_moe,
    "deepseek_v32": deepseek.deepseek_v32,
    "glm_moe_dsa": deepseek.deepseek_v32,
    "qwen3_vl": dense.qwen3_vl,
    "qwen3_next": qwen_next.qwen3_next,
    "qwen3_5": qwen_next.qwen3_5,
    "qwen3_5_moe": qwen_next.qwen3_5,
    "deepseek_v4": deepseek_v4.deepseek_v4,
    "deepseek_ref": deepseek_v4.deepseek_v4,
    "glm4_moe_lite": deepseek.glm4_moe_lite,
    "kimi_linear": kimi_linear.kimi_linear,
    "kimi_k25": multimodal.kimi_k25,
    "kimi_vl": multimodal.kimi_k25,
    "longcat_flash": longcat.longcat_flash,
    "laguna": laguna.laguna,
    "solar_open": further_experts.solar_open,
    "hy_v3": further_experts.hy_v3,
    "exaone_moe": further_experts.exaone_moe,
    "llama4": llama4.llama4,
    "llama4_text": llama4.llama4_text,
    "mllama": multimodal.mllama,
    "mllama_text_model": multimodal.mllama,
    "gemma": dense_variants.gemma,
    "gemma4": gemma4.gemma4,
    "gemma4_text": gemma4.gemma4_text,
    "mimo_v2_flash": mimo.mimo_v2,
    "step3p5": step3.step3p7,
    "step3p7": step3.step3p7,
    "qwen2_vl": multimodal.qwen2_vl,
    "qwen2_5_vl": multimodal.qwen2_5_vl,
    "qwen3_vl_moe": further_experts.qwen3_vl_moe,
    "mistral3": multimodal.mistral3,
    "ministral3": dense_variants.ministral3,
    "llava": multimodal.llava,
    "falcon": older.falcon,
    "falcon_mamba": mamba_hybrids.mamba,
    "falcon_h1": mamba_hybrids.falcon_h1,
    "mamba": mamba_hybrids.mamba,
    "mamba2": mamba_hybrids.mamba2,
    "zamba2": zamba.zamba2,
    "jamba": mamba_hybrids.jamba,
    "bamba": mamba_hybrids.bamba,
    "granitemoe": further_experts.granitemoe,
    "granitemoeshared": further_experts.granitemoe,
    "granitemoehybrid": mamba_hybrids.granitemoehybrid,
    "lfm2": lfm2.lfm2,
    "lfm2_moe": lfm2.lfm2_moe,
    "minimax": minimax.minimax_text,
    "minimax_text_01": minimax.minimax_text,
    "minimax_m1": minimax.minimax_text,
    "nemotron": older.nemotron,
    "nemotron_h_puzzle": nemotron_puzzle.nemotron_h_puzzle,
    "nemotron-nas": nemotron_nas.nemotron_nas,
    "deci": nemotron_nas.nemotron_nas,
    "t5": t5.t5,
    "mt5": t5.t5,
    "bailing_moe": further_experts.bailing_moe,
    "bailing_moe_v2": further_experts.bailing_moe,
    "olmoe": further_experts.olmoe,
    "dots1": further_experts.dots1,
    "phimoe": further_experts.phimoe,
    "afmoe": further_experts.afmoe,
    "dbrx": further_experts.dbrx,
    "glm": dense_variants.glm,
    "glm4": dense_variants.glm4,
    "chatglm": dense_variants.chatglm,
    "internlm2": dense_variants.internlm2,
    "internlm3": dense_variants.internlm3,
    "baichuan": dense_variants.baichuan,
    "arcee": dense_variants.arcee,
    "hunyuan_v1_dense": dense_variants.hunyuan_v1_dense,
    "exaone4": dense_variants.exaone4,
    "smollm3": dense_variants.tied_llama,
    "ernie4_5": dense_variants.tied_llama,
    "gpt_neox": older.gpt_neox,
    "gptj": older.gptj,
    "gpt2": older.gpt2,
    "gpt_bigcode": older.gpt_bigcode,
    "bloom": older.bloom,
    "opt": older.opt,
    "phi": older.phi,
    "starcoder2": older.starcoder2,
    "stablelm": older.stablelm,
    "mpt": older.mpt,
}

SUPPORTED_ARCHITECTURES: Final[tuple[str, ...]] = tuple(sorted(FAMILIES))

__all__ = ["SUPPORTED_ARCHITECTURES", "language_model_from_config", "parse_config"]


def language_model_from_config(config: Mapping[str, Any], *, slug: str, name: str) -> LanguageModel:
    """The language model that a config.json describes, exactly or not at all.

    Raises ``ArchitectureNotSupported`` for a ``model_type`` that is not modelled and ``ConfigInvalid`` for
    a field that is missing, of the wrong type, out of bounds or in contradiction with another. Nothing in
    the config is ever executed: ``auto_map`` and its like are not read.
    """
    reader = ConfigReader(config)
    family = reader.text("model_type")
    if family not in FAMILIES:
        raise ArchitectureNotSupported(family, SUPPORTED_ARCHITECTURES)
    architecture = FAMILIES[family](reader)
    text = reader.optional_section("text_config") or reader
    element_precision = read_element_precision(text if text.has("torch_dtype", "dtype") else reader)
    quantisation = read_quantisation(reader) or read_quantisation(text)
    checkpoint = stored_tensors(architecture.tensors, quantisation, element_precision.value)
    return LanguageModel(
        slug=slug,
        name=name,
        family=family,
        layer_count=architecture.layer_count,
        hidden_size=architecture.hidden_size,
        vocabulary_size=architecture.vocabulary_size,
        max_context_tokens=architecture.max_context_tokens,
        attention_head_count=architecture.attention_head_count,
        kv_head_count=architecture.kv_head_count,
        expert_count=architecture.expert_count,
        experts_per_token=architecture.experts_per_token,
        tied_embedding=architecture.tied_embedding,
        tensors=architecture.tensors,
        layer_groups=architecture.layer_groups,
        checkpoint=checkpoint,
        checkpoint_scheme=_main_scheme(checkpoint) if quantisation else element_precision.value,
        checkpoint_kv_cache=quantisation.kv_cache if quantisation else None,
        element_precision=element_precision,
        conv_state_precision=element_precision,
        recurrent_state_precision=architecture.recurrent_state_precision or element_precision,
        router_bias_count=architecture.router_bias_count,
        mtp=architecture.mtp,
        active_expert_parameter_count=architecture.active_expert_parameter_count,
    )


def _main_scheme(checkpoint: tuple[StoredTensor, ...]) -> str:
    """The scheme of most of the elements: what a checkpoint of mixed precision is known by."""
    elements: dict[str, int] = {}
    for stored in checkpoint:
        elements[stored.scheme] = elements.get(stored.scheme, 0) + stored.tensor.element_count
    return max(elements, key=lambda scheme: elements[scheme])
