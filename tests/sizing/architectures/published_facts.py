"""Facts of published models, in the fields of their config.json, each with where it was published.

Only what decides sizes is kept. The totals beside them in the tests are the publishers' own.
"""

from typing import Any

from service.sizing.architectures import language_model_from_config
from service.sizing.language_model import LanguageModel

LLAMA_3_1_8B: dict[str, Any] = {  # https://huggingface.co/meta-llama/Llama-3.1-8B
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16",
}
LLAMA_3_3_70B: dict[str, Any] = {  # https://huggingface.co/meta-llama/Llama-3.3-70B-Instruct
    **LLAMA_3_1_8B,
    "num_hidden_layers": 80,
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_attention_heads": 64,
}
LLAMA_2_7B: dict[str, Any] = {  # https://huggingface.co/meta-llama/Llama-2-7b-hf
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "vocab_size": 32000,
    "num_attention_heads": 32,
    "max_position_embeddings": 4096,
}
MISTRAL_7B: dict[str, Any] = {  # https://huggingface.co/mistralai/Mistral-7B-v0.1
    **LLAMA_3_1_8B,
    "model_type": "mistral",
    "vocab_size": 32000,
    "max_position_embeddings": 32768,
    "sliding_window": 4096,
}
MIXTRAL_8X7B: dict[str, Any] = {  # https://huggingface.co/mistralai/Mixtral-8x7B-v0.1
    **LLAMA_3_1_8B,
    "model_type": "mixtral",
    "vocab_size": 32000,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "sliding_window": None,
}
QWEN2_5_7B: dict[str, Any] = {  # https://huggingface.co/Qwen/Qwen2.5-7B-Instruct
    "model_type": "qwen2",
    "num_hidden_layers": 28,
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "max_position_embeddings": 32768,
    "sliding_window": 131072,
    "use_sliding_window": False,
}
QWEN3_8B: dict[str, Any] = {  # https://huggingface.co/Qwen/Qwen3-8B
    "model_type": "qwen3",
    "num_hidden_layers": 36,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "vocab_size": 151936,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
}
QWEN3_30B_A3B: dict[str, Any] = {  # https://huggingface.co/Qwen/Qwen3-30B-A3B
    "model_type": "qwen3_moe",
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "vocab_size": 151936,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
}
PHI_4: dict[str, Any] = {  # https://huggingface.co/microsoft/phi-4
    "model_type": "phi3",
    "num_hidden_layers": 40,
    "hidden_size": 5120,
    "intermediate_size": 17920,
    "vocab_size": 100352,
    "num_attention_heads": 40,
    "num_key_value_heads": 10,
}
GEMMA_2_9B: dict[str, Any] = {  # https://huggingface.co/google/gemma-2-9b
    "model_type": "gemma2",
    "num_hidden_layers": 42,
    "hidden_size": 3584,
    "intermediate_size": 14336,
    "vocab_size": 256000,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 256,
    "sliding_window": 4096,
    "max_position_embeddings": 8192,
}
GEMMA_3_27B: dict[str, Any] = {  # https://huggingface.co/google/gemma-3-27b-it
    "model_type": "gemma3",
    "text_config": {
        "num_hidden_layers": 62,
        "hidden_size": 5376,
        "intermediate_size": 21504,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "head_dim": 128,
        "sliding_window": 1024,
    },
    "vision_config": {
        "num_hidden_layers": 27,
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "image_size": 896,
        "patch_size": 14,
    },
}
GPT_OSS_120B: dict[str, Any] = {  # https://huggingface.co/openai/gpt-oss-120b
    "model_type": "gpt_oss",
    "num_hidden_layers": 36,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "vocab_size": 201088,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_local_experts": 128,
    "num_experts_per_tok": 4,
    "sliding_window": 128,
    "quantization_config": {
        "quant_method": "mxfp4",
        "modules_to_not_convert": ["model.layers.*.self_attn", "model.layers.*.mlp.router", "lm_head"],
    },
}
DEEPSEEK_V3: dict[str, Any] = {  # https://huggingface.co/deepseek-ai/DeepSeek-V3
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "vocab_size": 129280,
    "num_attention_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "first_k_dense_replace": 3,
    "num_nextn_predict_layers": 1,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}
KIMI_K2: dict[str, Any] = {  # https://huggingface.co/moonshotai/Kimi-K2-Instruct
    **DEEPSEEK_V3,
    "model_type": "kimi_k2",
    "vocab_size": 163840,
    "num_attention_heads": 64,
    "n_routed_experts": 384,
    "first_k_dense_replace": 1,
    "num_nextn_predict_layers": 0,
}
NEMOTRON_3_SUPER: dict[str, Any] = {  # https://huggingface.co/nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4
    "model_type": "nemotron_h",
    "hidden_size": 4096,
    "vocab_size": 131072,
    "hybrid_override_pattern": (
        "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME"
    ),
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "mamba_num_heads": 128,
    "mamba_head_dim": 64,
    "n_groups": 8,
    "ssm_state_size": 128,
    "conv_kernel": 4,
    "mamba_ssm_cache_dtype": "float32",
    "n_routed_experts": 512,
    "n_shared_experts": 1,
    "num_experts_per_tok": 22,
    "moe_intermediate_size": 2688,
    "moe_latent_size": 1024,
    "moe_shared_expert_intermediate_size": 5376,
}


def model_of(facts: dict[str, Any], **changes: Any) -> LanguageModel:
    """The language model of these facts with some fields changed; ``None`` is the config's ``null``."""
    return language_model_from_config({**facts, **changes}, slug="a-model", name="A model")
