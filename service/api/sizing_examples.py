"""Questions that the contract shows; the tests ask every one of them."""

from fastapi.openapi.models import Example

EXAMPLES: dict[str, Example] = {
    "shortest": {
        "summary": "A model and an accelerator; every default is listed in the answer",
        "value": {"model": "llama-3.3-70b-instruct", "accelerator": "gb200-nvl72"},
    },
    "full": {
        "summary": "Everything given",
        "value": {
            "model": "llama-3.3-70b-instruct",
            "accelerator": "gb200-nvl72",
            "precision": {"weights": "nvfp4", "kv_cache": "fp8", "compute": "nvfp4"},
            "density": "dense",
            "parallelism": {"tp": 2, "pp": 1, "ep": 1, "dp": 1},
            "replica_count": 1,
            "workload": {"isl_tokens": 4096, "osl_tokens": 512, "concurrency": 64, "cached_prefix_tokens": 0},
            "target": {"ttft_s": 2.0, "tpot_s": 0.05, "statistic": "p99"},
            "engine": {
                "name": "vllm",
                "version": "0.33.0",
                "memory_fraction": 0.92,
                "max_model_len_tokens": 8192,
                "max_num_batched_tokens": 8192,
                "max_num_seqs": 1024,
                "prefix_caching": True,
                "cuda_graphs": True,
            },
            "speculation": {"method": "mtp", "draft_tokens": 3, "acceptance_length_tokens": 2.1},
            "power": {"limit_w_per_gpu": 1000, "pue": 1.2, "scope": "facility"},
            "economics": {"usd_per_gpu_h": 3.0, "usd_per_kwh": 0.1, "on": "2026-12-01"},
        },
    },
    "rack": {
        "summary": "As many replicas as a rack holds, at the largest concurrency that keeps 30 ms per token",
        "value": {
            "model": "deepseek-r1",
            "accelerator": "gb200-nvl72",
            "precision": {"kv_cache": "fp8"},
            "parallelism": {"tp": 8},
            "replica_count": "fill",
            "workload": {"isl_tokens": 8192, "osl_tokens": 1024},
            "target": {"tpot_s": 0.03},
        },
    },
    "disaggregated": {
        "summary": "Workers that read prompts apart from workers that decode, at the largest concurrency within limits",
        "value": {
            "model": "deepseek-r1",
            "accelerator": "gb200-nvl72",
            "precision": {"kv_cache": "fp8"},
            "parallelism": {
                "prefill": {"worker_count": 4, "dp": 4, "ep": 4},
                "decode": {"worker_count": 1, "dp": 32, "ep": 32},
                "decode_max_batch": 1024,
            },
            "workload": {"isl_tokens": 8192, "osl_tokens": 1024},
            "target": {"ttft_s": 5.0, "tpot_s": 0.02},
            "engine": {"name": "tensorrt-llm"},
            "economics": {"usd_per_gpu_h": 3.0, "on": "2026-12-01"},
        },
    },
    "config": {
        "summary": "A config.json of one's own",
        "value": {
            "model": {
                "config": {
                    "architectures": ["LlamaForCausalLM"],
                    "model_type": "llama",
                    "hidden_size": 4096,
                    "intermediate_size": 14336,
                    "num_attention_heads": 32,
                    "num_hidden_layers": 32,
                    "num_key_value_heads": 8,
                    "vocab_size": 128256,
                    "max_position_embeddings": 131072,
                    "tie_word_embeddings": False,
                    "torch_dtype": "bfloat16",
                }
            },
            "accelerator": "h100-sxm",
            "workload": {"isl_tokens": 2048, "osl_tokens": 256, "request_rate_per_s": 4.0},
        },
    },
}
