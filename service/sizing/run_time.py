"""The time that the physics predicts for measured runs, one or many at once, and what it consists of.

The formulas are those of ``decode.py``, ``prefill.py`` and ``serving.py`` (a test holds them together), with the
numbers as an argument, and three phases more that no question asks for: static batches, offline throughput and
llama.cpp's prefill.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.sizing.parameters import FITTED
from service.sizing.run_terms import LLAMA_CPP, PHASES, Phase, RunTerms

FITTED_VALUES: Mapping[str, float] = {name: fitted.value for name, fitted in FITTED.items()}
SHARES = ("dense", "experts", "kv_cache", "communication", "overhead", "sequence_overhead", "prefill")


@dataclass(frozen=True, slots=True)
class RunTime:
    """Predicted seconds of what each run measured, and the share of each of ``SHARES`` in them."""

    time_s: NDArray[np.float64]
    shares: NDArray[np.float64]


def _of_engine(terms: RunTerms, numbers: Mapping[str, float], stem: str, llama_cpp: float) -> Any:
    own = [numbers[f"{stem}_{engine}"] for engine in ("tensorrt_llm", "vllm", "sglang")]
    return np.array([*own, llama_cpp])[terms.engine]


def _overhead_s(terms: RunTerms, numbers: Mapping[str, float]) -> Any:
    latent = numbers["layer_overhead_latent"]
    kinds = np.array([1.0, latent, 2 * latent - 1])
    engines = np.array([1.0, *(numbers[f"layer_overhead_{engine}"] for engine in ("vllm", "sglang", "llama_cpp"))])
    slower = terms.bandwidth_ratio ** -numbers["overhead_bandwidth_exponent"]
    aged = np.exp(numbers["engine_age_exponent_per_year"] * terms.engine_age_years)
    return (
        numbers["layer_overhead_s"]
        * engines[terms.engine]
        * kinds[terms.latent_kind]
        * terms.overhead_layers
        * slower
        * aged
    )


def run_time(terms: RunTerms, numbers: Mapping[str, float] = FITTED_VALUES) -> RunTime:
    """Predicted times by phase:

    ::

        serving        step + stall * batch / osl * prompt
        single stream  step
        static batch   step + batch / osl * prompt
        offline        (step + batch / osl * prompt) / batch
        prefill        overhead + passes' reads + own prompt        (llama.cpp: ``_prefill_parts``)
        ttft           request + own * own prompt + steps * step + queue * batch * prompt
        disaggregated  step
    """
    prompts = _Prompts.of(terms, numbers)
    overhead_s = _overhead_s(terms, numbers)
    step = _step_parts(terms, numbers, prompts, overhead_s=overhead_s)
    stall = _of_engine(terms, numbers, "stall", numbers["stall_vllm"])
    per_output_s = terms.batch / terms.osl_tokens * prompts.share_s
    serving, batched = [*step, stall * per_output_s], [*step, per_output_s]
    by_phase = {
        Phase.SERVING: serving,
        Phase.SINGLE_STREAM: [*step, np.zeros_like(overhead_s)],
        Phase.STATIC_BATCH: batched,
        Phase.OFFLINE: [part / terms.batch for part in batched],
        Phase.PREFILL: _prefill_parts(terms, numbers, prompts, overhead_s),
        Phase.TTFT: _ttft_parts(terms, numbers, prompts, step, stall=stall),
        Phase.DISAGGREGATED: [*step, np.zeros_like(overhead_s)],
    }
    parts = np.stack([np.stack(np.broadcast_arrays(*by_phase[phase]), -1) for phase in PHASES])
    chosen = np.take_along_axis(parts, np.asarray(terms.phase)[None, ..., None], 0)[0]
    time_s = chosen.sum(-1)
    return RunTime(time_s, chosen / time_s[..., None])


@dataclass(frozen=True, slots=True)
class _Prompts:
    """What one prompt takes from a busy replica, and how long it lasts alone on one dp rank.

    ``dense_s``, ``expert_s`` are per token, as reached in the schemes' precisions; ``index_s`` the same of one step.
    """

    dense_s: Any
    expert_s: Any
    index_s: Any
    share_s: Any
    own_arithmetic_s: Any
    own_exchange_s: Any

    @classmethod
    def of(cls, terms: RunTerms, numbers: Mapping[str, float]) -> "_Prompts":
        exponent = 1 - numbers["low_precision_exponent"]
        dense_s = (terms.dense_s * terms.dense_rate_ratio**exponent).sum(-1)
        expert_s = (terms.expert_s * terms.expert_rate_ratio**exponent).sum(-1)
        index_reach = terms.index_rate_ratio**exponent
        experts_s = numbers["prefill"] * numbers["expert_flop"] * terms.isl_tokens * expert_s
        others_s = numbers["prefill"] * (
            terms.isl_tokens * dense_s + terms.prompt_attention_s + index_reach * terms.prompt_index_s
        )
        exchange_s = numbers["prefill_communication"] * terms.isl_tokens * terms.exchange_s
        return cls(
            dense_s=dense_s,
            expert_s=expert_s,
            index_s=index_reach * terms.index_s,
            share_s=experts_s + (others_s + exchange_s) / terms.dp,
            own_arithmetic_s=(experts_s + others_s) * terms.in_turn,
            own_exchange_s=exchange_s * terms.in_turn,
        )


def _step_parts(terms: RunTerms, numbers: Mapping[str, float], prompts: _Prompts, *, overhead_s: Any) -> list[Any]:
    """One decode step in the order of ``SHARES``; drafting shortens all of it by what it was seen to yield."""
    rank = terms.per_rank_batch
    drafted = np.where(terms.is_drafted, numbers["drafted_step"], 1.0)
    parts = (
        numbers["weights"] * terms.dense_read_s + numbers["flop"] * rank * (prompts.dense_s + terms.head_s),
        numbers["weights"] * numbers["expert_weights"] * terms.covered_read_s
        + numbers["flop"] * numbers["expert_flop"] * prompts.expert_s * terms.filled_batch,
        rank * (numbers["kv_cache"] * terms.kv_read_s + numbers["flop"] * (terms.attention_s + prompts.index_s)),
        numbers["communication"] * rank * terms.exchange_s,
        overhead_s,
        numbers["sequence_s"] * rank,
    )
    return [part * drafted for part in parts]


def _ttft_parts(
    terms: RunTerms, numbers: Mapping[str, float], prompts: _Prompts, step: list[Any], *, stall: Any
) -> list[Any]:
    """What a request waits for; at least what its replica's prompts take beyond the stalls that TPOT has paid for."""
    request_s = _of_engine(terms, numbers, "ttft_request_s", numbers["ttft_request_s_vllm"])
    queue = _of_engine(terms, numbers, "ttft_queue", numbers["ttft_queue_vllm"])
    parts = [numbers["ttft_steps"] * part for part in step]
    parts[_OVERHEAD] = parts[_OVERHEAD] + request_s
    own_s = numbers["ttft_own_prefill"] * (prompts.own_arithmetic_s + prompts.own_exchange_s)
    waited_s = own_s + queue * terms.batch * prompts.share_s
    left_s = terms.batch * prompts.share_s * (1 - stall * (terms.osl_tokens - 1) / terms.osl_tokens) - sum(parts)
    return [*parts, np.maximum(waited_s, left_s)]


_OVERHEAD = SHARES.index("overhead")


def _prefill_parts(terms: RunTerms, numbers: Mapping[str, float], prompts: _Prompts, overhead_s: Any) -> list[Any]:
    """One prompt alone. llama.cpp reads all weights for every 512 tokens and multiplies in int8, on big chips with less
    of their rate. Without fused attention the scores of every head pass through memory; HIP's fused attention ran on
    vector units till 2025. Several devices are a pipeline."""
    is_llama_cpp = np.asarray(terms.engine) == LLAMA_CPP
    reads_s = numbers["weights"] * terms.pass_read_s
    experts_s = numbers["weights"] * numbers["expert_weights"] * terms.pass_covered_read_s
    back_end = np.array([1.0, 1.0, numbers["prefill_llama_cpp_hip"], numbers["prefill_llama_cpp_vulkan"]])
    matrices_s = terms.dense_s.sum(-1) + numbers["expert_flop"] * terms.expert_s.sum(-1)
    spec_s = terms.isl_tokens * matrices_s * back_end[terms.back_end]
    filled = terms.int8_ratio * terms.int8_rate_ratio ** numbers["prefill_fill_exponent_llama_cpp"]
    int8_s = numbers["prefill"] * (numbers["prefill_llama_cpp"] * spec_s * filled + terms.prompt_attention_s)
    int8_s = int8_s + numbers["prefill_score_passes_llama_cpp"] * terms.score_s
    int8_s = int8_s + numbers["prefill_vector_attention_llama_cpp"] * terms.vector_attention_s
    devices, passes = terms.pipelined_devices, np.maximum(terms.passes, 1)
    pipelined = numbers["prefill_pipeline_llama_cpp"] * (passes + devices - 1) / (passes * devices)
    factor = np.where(is_llama_cpp & (np.asarray(devices) > 1), pipelined, 1.0)
    nothing = np.zeros_like(overhead_s)
    return [
        reads_s * factor,
        experts_s * factor,
        nothing,
        np.where(is_llama_cpp, 0.0, prompts.own_exchange_s),
        overhead_s * np.where(is_llama_cpp, terms.passes, 1.0) * factor,
        nothing,
        np.where(is_llama_cpp, int8_s, prompts.own_arithmetic_s) * factor,
    ]
