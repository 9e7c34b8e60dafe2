"""The global numbers of the step-time model, with what is known of their error.

They were fitted to 2,448 published measurements of serving, offline, single-stream and prefill runs (sources
in the catalogue's list: InferenceX, TensorRT-LLM's performance overview, AccelMark, llama.cpp and others), by
least squares on log errors with a soft-L1 loss, Gaussian priors on the logarithms and physical bounds.
``standard_error`` is of ln(value): 0.05 means 5 %.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from math import exp, log
from typing import NamedTuple


class Fitted(NamedTuple):
    value: float
    standard_error: float
    meaning: str


FITTED: Mapping[str, Fitted] = {
    "weights": Fitted(1.08, 0.02, "inverse bandwidth efficiency of reading weights"),
    "kv_cache": Fitted(1.08, 0.03, "inverse bandwidth efficiency of reading the KV cache"),
    "flop": Fitted(1.46, 0.05, "inverse FLOP efficiency of decode's matrices"),
    "low_precision_exponent": Fitted(0.691, 0.05, "a rate above BF16's counts as BF16 x (rate / BF16)^this"),
    "expert_weights": Fitted(1.2, 0.03, "extra factor of grouped expert GEMMs, reading weights"),
    "expert_flop": Fitted(1.6, 0.11, "extra factor of grouped expert GEMMs, arithmetic"),
    "communication": Fitted(1.6, 0.10, "inverse link efficiency in decode"),
    "layer_overhead_s": Fitted(6.41e-5, 0.03, "seconds per layer per step, TensorRT-LLM"),
    "layer_overhead_vllm": Fitted(1.39, 0.03, "factor on the layer overhead, vLLM"),
    "layer_overhead_sglang": Fitted(1.16, 0.05, "factor on the layer overhead, SGLang"),
    "layer_overhead_latent": Fitted(1.87, 0.04, "factor on the layer overhead of latent or linear attention"),
    "overhead_bandwidth_exponent": Fitted(0.172, 0.14, "overhead falls as (bandwidth / 3.35 TB/s)^-this"),
    "prefill": Fitted(1.29, 0.03, "inverse FLOP efficiency in prefill"),
    "prefill_communication": Fitted(1.78, 0.06, "inverse link efficiency in prefill"),
    "sequence_s": Fitted(9.08e-6, 0.10, "seconds per sequence per step: sampling, scheduling, detokenising"),
    "stall_tensorrt_llm": Fitted(1.1, 0.04, "share of prefill work that stalls decode, TensorRT-LLM"),
    "stall_vllm": Fitted(0.867, 0.06, "the same, vLLM"),
    "stall_sglang": Fitted(0.521, 0.08, "the same, SGLang, which prefers prefill"),
    "ttft_request_s_tensorrt_llm": Fitted(0.0743, 0.11, "seconds of request handling before the first token"),
    "ttft_request_s_vllm": Fitted(0.0153, 0.32, "the same, vLLM"),
    "ttft_request_s_sglang": Fitted(0.217, 0.10, "the same, SGLang"),
    "ttft_own_prefill": Fitted(0.943, 0.14, "own prefill, in units of one prompt's prefill"),
    "ttft_steps": Fitted(5.97, 0.10, "decode steps waited or shared before the first token"),
    "ttft_queue_tensorrt_llm": Fitted(0.0859, 0.09, "share of the prompts in flight that are ahead in the queue"),
    "ttft_queue_vllm": Fitted(0.112, 0.09, "the same, vLLM"),
    "ttft_queue_sglang": Fitted(0.51, 0.07, "the same, SGLang"),
    # Of measured runs alone: no question is asked about these.
    "layer_overhead_llama_cpp": Fitted(0.58, 0.10, "factor on the layer overhead, llama.cpp"),
    "prefill_llama_cpp": Fitted(2.84, 0.04, "factor on prefill's matrices, llama.cpp, at an int8 rate of 100 TOPS"),
    "prefill_llama_cpp_hip": Fitted(1.46, 0.06, "factor on that, HIP against CUDA and Metal"),
    "prefill_llama_cpp_vulkan": Fitted(2.60, 0.06, "the same, Vulkan"),
    "prefill_vector_attention_llama_cpp": Fitted(115.0, 0.12, "inverse efficiency of fused attention, HIP till 2025"),
    "prefill_fill_exponent_llama_cpp": Fitted(0.291, 0.06, "that factor grows as (int8 rate / 100 TOPS)^this"),
    "prefill_score_passes_llama_cpp": Fitted(7.32, 0.08, "passes over attention scores that are not fused"),
    "prefill_pipeline_llama_cpp": Fitted(1.18, 0.03, "pipeline inefficiency of prefill over several devices"),
    "drafted_step": Fitted(0.631, 0.04, "factor on a step with multi-token prediction of unknown acceptance"),
    "engine_age_exponent_per_year": Fitted(0.403, 0.11, "overhead grows as exp(this x years before 2026)"),
}


@dataclass(frozen=True, slots=True, eq=False)
class StepParameters:
    """The numbers of one engine, compared by identity.

    ``roofline()`` is the physics alone: every efficiency 1, every overhead 0.
    """

    weights: float
    kv_cache: float
    flop: float
    low_precision_exponent: float
    expert_weights: float
    expert_flop: float
    communication: float
    layer_overhead_s: float
    layer_overhead_latent: float
    overhead_bandwidth_exponent: float
    prefill: float
    prefill_communication: float
    sequence_s: float
    stall: float
    ttft_request_s: float
    ttft_own_prefill: float
    ttft_steps: float
    ttft_queue: float

    @classmethod
    @cache
    def fitted(cls, engine: str) -> "StepParameters":
        """The fitted numbers of an engine: vllm, sglang or tensorrt-llm."""
        suffix = engine.replace("-", "_")
        value = {name: fitted.value for name, fitted in FITTED.items()}
        return cls(
            layer_overhead_s=value["layer_overhead_s"] * value.get(f"layer_overhead_{suffix}", 1.0),
            stall=value[f"stall_{suffix}"],
            ttft_request_s=value[f"ttft_request_s_{suffix}"],
            ttft_queue=value[f"ttft_queue_{suffix}"],
            **{name: value[name] for name in _SHARED},
        )

    def aged(self, years: float) -> "StepParameters":
        """Of an older release: more overhead in each layer."""
        if not years:
            return self
        factor = exp(FITTED["engine_age_exponent_per_year"].value * years)
        return replace(self, layer_overhead_s=self.layer_overhead_s * factor)

    @lru_cache(maxsize=128)  # noqa: B019 - bounded, and of few engines
    def at_clock(self, clock_fraction: float) -> "StepParameters":
        """All arithmetic slower by a lower clock; memory and links as they are."""
        if clock_fraction == 1:
            return self
        return replace(self, flop=self.flop / clock_fraction, prefill=self.prefill / clock_fraction)

    @classmethod
    @cache
    def roofline(cls) -> "StepParameters":
        ones = dict.fromkeys(_SHARED, 1.0) | {"sequence_s": 0.0, "ttft_steps": 0.0, "overhead_bandwidth_exponent": 0.0}
        return cls(layer_overhead_s=0.0, stall=1.0, ttft_request_s=0.0, ttft_queue=0.0, **ones)


_SHARED = (
    "weights",
    "kv_cache",
    "flop",
    "low_precision_exponent",
    "expert_weights",
    "expert_flop",
    "communication",
    "layer_overhead_latent",
    "overhead_bandwidth_exponent",
    "prefill",
    "prefill_communication",
    "sequence_s",
    "ttft_own_prefill",
    "ttft_steps",
)

NORMAL_QUANTILE_90 = 1.2816


@dataclass(frozen=True, slots=True)
class Tail:
    """How far a percentile of the requests of a run lies above their median: ``ratio``, and its spread between runs."""

    ratio: float
    sd: float

    def at(self, share_of_p99: float) -> "Tail":
        """A lower percentile under a log-normal spread of the requests."""
        return Tail(exp(log(self.ratio) * share_of_p99), self.sd * share_of_p99)


NO_TAIL = Tail(1.0, 0.0)
P90_SHARE_OF_P99 = NORMAL_QUANTILE_90 / 2.3263

# 99th percentile over median, closed loop at fixed concurrency: medians over 23 (TPOT) and 25 (TTFT) published runs on
# MI355X, RTX PRO 6000, H200, RTX 4090, L40S, TPU v6e and MI325X (ROCm ATOM recipes, cloudrift-ai server-benchmark,
# InferenceX issues 870 and 890, AI-Hypercomputer tpu-recipes).
TPOT_P99 = Tail(1.124, 0.34)
TTFT_P99 = Tail(4.8, 1.08)
