"""What a measured run costs at the rates that vendors print, before any fitted number.

``run_terms`` takes one run apart with the very cost functions that answer a question. ``stacked`` lines up many
runs as arrays, so that ``run_time.py`` predicts thousands at once and a refit can try other numbers cheaply.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import StrEnum
from functools import lru_cache
from math import ceil
from typing import Any

import numpy as np

from service.sizing.accelerator import Accelerator
from service.sizing.costs import compute_rates, device_of, step_costs
from service.sizing.decode import attention_read_s, decode_attention_s
from service.sizing.engine_settings import DEFAULT_ENGINE, engine_settings
from service.sizing.language_model import LanguageModel
from service.sizing.memory import memory_fit
from service.sizing.parallelism import Parallelism
from service.sizing.precision import Density, Precision
from service.sizing.question import EngineAsked, SizingInputs
from service.sizing.rank_memory import Deployment
from service.sizing.remarks import Remarks
from service.sizing.step import (
    REFERENCE_BANDWIDTH_BYTES_PER_S,
    Launches,
    MatrixCost,
    StepCosts,
    expert_coverage_fraction,
)
from service.sizing.weights import ServedWeights, served_weights

TOKENS_PER_PASS = 8192  # of prefill, where a run does not say
LLAMA_CPP_TOKENS_PER_PASS = 512
LLAMA_CPP_REFERENCE_OP_PER_S = 1e14
PIPELINED_DEVICES = 4  # at most, in llama.cpp's prefill
HELD_OUTPUT_SHARE = 0.6  # of the output that a running sequence keeps in the cache, on average over a full pool
SCHEME_SLOTS = 4  # checkpoints mix at most so many schemes


class Phase(StrEnum):
    """What a run measured. Runs of one phase are compared with runs of the same and, for decode, of its kin."""

    SERVING = "serving"  # seconds per output token, closed loop at a concurrency
    SINGLE_STREAM = "single_stream"  # seconds per output token, one sequence
    STATIC_BATCH = "static_batch"  # seconds per token of each sequence, prefill included
    OFFLINE = "offline"  # seconds per output token of the whole replica, as many at once as fit
    PREFILL = "prefill"  # seconds to the first token of one prompt alone
    TTFT = "ttft"  # seconds to the first token under load, closed loop
    DISAGGREGATED = "disaggregated"  # seconds per output token of workers that only decode, each with its batch

    @property
    def is_decode(self) -> bool:
        return self not in (Phase.PREFILL, Phase.TTFT)


PHASES = tuple(Phase)
ENGINE_NUMBERS = ("tensorrt-llm", "vllm", "sglang", "llama.cpp")  # whose fitted numbers a run takes
TENSORRT_LLM, VLLM, SGLANG, LLAMA_CPP = range(4)
BACK_ENDS = ("cuda", "metal", "hip", "vulkan")  # of llama.cpp: each has kernels, and a fitted number, of its own


def engine_number(engine: str) -> int:
    """Index into ``ENGINE_NUMBERS``; an engine without numbers of its own takes vLLM's.

    >>> [engine_number(name) for name in ("NIM (TensorRT-LLM)", "SGLang-JAX", "Ollama/llama.cpp", "TGI")]
    [0, 2, 3, 1]
    """
    name = engine.lower()
    if "tensorrt-llm" in name:
        return TENSORRT_LLM
    if name.startswith("sglang"):
        return SGLANG
    return LLAMA_CPP if "llama.cpp" in name else VLLM


@dataclass(frozen=True, slots=True)
class RunSetup:
    """One measurement's circumstances. ``batch`` left out (offline): as many sequences as fit.

    ``engine`` keeps its published name. ``is_drafted``: multi-token prediction was on, acceptance unknown.
    ``layer_split_devices``: llama.cpp splits layers over devices that work in turn; ``parallelism`` is then 1.
    ``back_end`` is llama.cpp's, one of ``BACK_ENDS``; unknown ones count as CUDA.
    """

    phase: Phase
    model: LanguageModel
    accelerator: Accelerator
    scheme: str
    kv_cache: Precision
    engine: str
    engine_version: str | None
    parallelism: Parallelism
    isl_tokens: float
    osl_tokens: float
    batch: float | None
    is_drafted: bool = False
    engine_age_years: float = 0.0
    layer_split_devices: int = 1
    back_end: str | None = None
    has_fused_attention: bool = True


@dataclass(frozen=True, slots=True)
class RunTerms:
    """Seconds at printed rates, and what scales them: numbers of one run, or arrays of many.

    ``dense_s``, ``expert_s`` are per token and per scheme of the checkpoint, beside each
    scheme's rate over the 16-bit one.
    """

    phase: Any
    engine: Any
    batch: Any
    filled_batch: Any
    per_rank_batch: Any
    isl_tokens: Any
    osl_tokens: Any
    overhead_layers: Any
    latent_kind: Any
    bandwidth_ratio: Any
    engine_age_years: Any
    is_drafted: Any
    dense_read_s: Any
    covered_read_s: Any
    kv_read_s: Any
    dense_s: Any
    expert_s: Any
    dense_rate_ratio: Any
    expert_rate_ratio: Any
    head_s: Any
    attention_s: Any
    exchange_s: Any
    dp: Any
    prompt_attention_s: Any
    prompt_index_s: Any
    index_s: Any
    index_rate_ratio: Any
    passes: Any
    in_turn: Any
    pass_read_s: Any
    pass_covered_read_s: Any
    int8_ratio: Any
    int8_rate_ratio: Any
    score_s: Any
    vector_attention_s: Any
    back_end: Any
    pipelined_devices: Any


def stacked(terms: Iterable[RunTerms]) -> RunTerms:
    """Many runs as one of arrays."""
    listed = list(terms)
    return RunTerms(
        **{field.name: np.array([getattr(each, field.name) for each in listed]) for field in fields(RunTerms)}
    )


@lru_cache(maxsize=4096)
def _costs(
    model: LanguageModel, accelerator: Accelerator, scheme: str, kv_cache: Precision, parallelism: Parallelism
) -> tuple[StepCosts, ServedWeights]:
    device, weights = device_of(accelerator), served_weights(model, scheme)
    rates = compute_rates(device, weights=weights, asked=None, density=Density.DENSE)
    costs = step_costs(
        model=model,
        weights=weights,
        device=device,
        parallelism=parallelism,
        kv_cache=kv_cache,
        rates=rates,
    )
    return costs, weights


def run_terms(setup: RunSetup) -> RunTerms:
    """The terms of one run. Raises ``RateNotPublished`` or ``ParallelismNotLegal`` where its parts are not known."""
    model, layout = setup.model, setup.parallelism
    costs, _ = _costs(model, setup.accelerator, setup.scheme, setup.kv_cache, layout)
    batch = float(running_limit(setup)) if setup.batch is None else max(1.0, setup.batch)
    engine = engine_number(setup.engine)
    passes = ceil(setup.isl_tokens / (LLAMA_CPP_TOKENS_PER_PASS if engine == LLAMA_CPP else TOKENS_PER_PASS))
    context = setup.isl_tokens + setup.osl_tokens / 2
    dense_s, dense_ratio = _parts(costs.dense_matrices)
    expert_s, expert_ratio = _parts(costs.expert_matrices)
    sixteen_bit = costs.sixteen_bit_flop_per_s
    index_s = sum(each.index_compute_s_per_token for each in costs.attention)
    int8 = int8_op_per_s(setup.accelerator, sixteen_bit)
    prompt_attention_s = _prompt_attention_s(costs, setup.isl_tokens)
    # Matrix units came to RDNA in 2026 (ggml-org/llama.cpp pull requests 19063 and 24562, with measurements), which is
    # taken of every HIP device; the age is that of the day of the run.
    is_vector = setup.back_end == "hip" and setup.has_fused_attention and setup.engine_age_years > 0
    return RunTerms(
        phase=PHASES.index(setup.phase),
        engine=engine,
        batch=batch,
        filled_batch=max(batch, layout.pp),
        per_rank_batch=max(batch / layout.dp, layout.pp),
        isl_tokens=setup.isl_tokens,
        osl_tokens=max(setup.osl_tokens, 1.0),
        overhead_layers=model.layer_count,
        latent_kind=LAUNCHES.index(costs.launches),
        bandwidth_ratio=costs.memory_bandwidth_bytes_per_s / REFERENCE_BANDWIDTH_BYTES_PER_S,
        engine_age_years=setup.engine_age_years,
        is_drafted=float(setup.is_drafted),
        dense_read_s=costs.dense_read_s,
        covered_read_s=costs.expert_read_s * _coverage(costs, max(batch, costs.pp) / costs.pp),
        kv_read_s=attention_read_s(costs, context_tokens=context) + costs.state_s_per_sequence,
        dense_s=dense_s,
        expert_s=expert_s,
        dense_rate_ratio=dense_ratio,
        expert_rate_ratio=expert_ratio,
        head_s=costs.head_s_per_sequence,
        attention_s=decode_attention_s(costs, context_tokens=context),
        exchange_s=costs.all_reduce_s_per_token + costs.all_to_all_s_per_token,
        dp=layout.dp,
        prompt_attention_s=prompt_attention_s,
        prompt_index_s=setup.isl_tokens * setup.isl_tokens / 2 * index_s,
        index_s=context * index_s,
        index_rate_ratio=max(1.0, costs.index_flop_per_s / sixteen_bit),
        passes=passes,
        in_turn=(passes + layout.pp - 1) / max(passes, 1),
        pass_read_s=passes * costs.dense_read_s,
        pass_covered_read_s=passes * costs.expert_read_s * _coverage(costs, setup.isl_tokens / max(passes, 1)),
        int8_ratio=sixteen_bit / int8,
        int8_rate_ratio=int8 / LLAMA_CPP_REFERENCE_OP_PER_S,
        score_s=0.0 if setup.has_fused_attention else _score_s(model, costs, setup.isl_tokens),
        vector_attention_s=prompt_attention_s if is_vector else 0.0,
        back_end=BACK_ENDS.index(setup.back_end or "cuda"),
        pipelined_devices=min(setup.layer_split_devices, PIPELINED_DEVICES),
    )


def _coverage(costs: StepCosts, tokens: float) -> float:
    covered: float = expert_coverage_fraction(
        tokens, expert_count=costs.expert_count, experts_per_token=costs.experts_per_token
    )
    return covered


def _prompt_attention_s(costs: StepCosts, tokens: float) -> float:
    """Of one prompt whose tokens attend, on average, to half of it."""
    return tokens * sum(min(tokens / 2, each.cap_tokens) * each.prefill_compute_s_per_token for each in costs.attention)


def _parts(matrices: MatrixCost) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Seconds and rate ratios of a fixed count, so that runs can be stacked."""
    spare = SCHEME_SLOTS - len(matrices.parts)
    seconds, ratios = zip(*matrices.parts, *[(0.0, 1.0)] * spare, strict=True)
    return seconds, tuple(max(1.0, ratio) for ratio in ratios)


LAUNCHES = tuple(Launches)


def int8_op_per_s(accelerator: Accelerator, sixteen_bit_flop_per_s: float) -> float:
    """Rate of int8 matrices, in which llama.cpp multiplies: a rule, since few parts print it.

    GeForce parts halve their 16-bit rate with fp32 accumulation but not int8; Apple and V100 have no int8 matrices,
    and RDNA 3 multiplies them no faster than 16 bits.
    """
    architecture = accelerator.architecture
    if accelerator.vendor == "Apple" or architecture.startswith(("Volta", "RDNA 3")):
        return sixteen_bit_flop_per_s
    return sixteen_bit_flop_per_s * (4 if "GeForce" in accelerator.name else 2)


def _score_s(model: LanguageModel, costs: StepCosts, tokens: float) -> float:
    """One pass of every head's scores through memory: 4 bytes for each pair of tokens."""
    pairs = tokens * sum(
        group.layer_count * min(tokens / 2, group.window_tokens or tokens)
        for group in model.layer_groups
        if group.kv_elements_per_token
    )
    return 4 * pairs * model.attention_head_count / costs.memory_bandwidth_bytes_per_s


def running_limit(setup: RunSetup) -> int:
    """How many sequences the engine lets run at once, by its own accounting and its default limit per dp rank."""
    deployment, dp = _deployment(setup), setup.parallelism.dp
    fit = memory_fit(deployment, setup.parallelism, length_tokens=_kept_tokens(setup))
    return max(dp, min(fit.max_concurrency, deployment.settings.max_num_seqs * dp))


def most_sequences(setup: RunSetup) -> float:
    """How many sequences all memory beyond the weights would hold: more cannot run at once, whatever the flags."""
    kept = _kept_tokens(setup)
    rank = memory_fit(_deployment(setup), setup.parallelism, length_tokens=kept).fullest
    sequence_bytes = rank.pool.blocks_per_request(kept) * rank.pool.block_bytes
    return setup.parallelism.dp * (rank.usable_bytes - rank.weight_bytes) / sequence_bytes


def _kept_tokens(setup: RunSetup) -> int:
    return round(setup.isl_tokens + HELD_OUTPUT_SHARE * setup.osl_tokens)


def _deployment(setup: RunSetup) -> Deployment:
    """With the engine's defaults; the maximum length is ``isl + osl``, as benchmarks set it."""
    own = ENGINE_NUMBERS[engine_number(setup.engine)]
    longest = ceil(setup.isl_tokens + setup.osl_tokens)
    asked = SizingInputs(
        model=setup.model,
        accelerator=setup.accelerator,
        parallelism=setup.parallelism,
        engine=EngineAsked(
            name=own if own != "llama.cpp" else DEFAULT_ENGINE,
            version=setup.engine_version,
            max_model_len_tokens=longest,
        ),
    )
    device = device_of(setup.accelerator)
    settings = engine_settings(asked, device, request_tokens=longest, remarks=Remarks())
    _, weights = _costs(setup.model, setup.accelerator, setup.scheme, setup.kv_cache, setup.parallelism)
    return Deployment(setup.model, weights, device, settings, setup.kv_cache)
