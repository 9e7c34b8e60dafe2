"""vLLM.

Rules read in the published package 0.33.0. Constants were set on the start-up logs of the controlled H100 runs with
odd numbers (llm-d planner pull request 205, vLLM 0.19) and on one log of each older line; ``sizing validate memory``
reports how they do on the even ones, apart.

The sampler's peak per logit stands apart from the element that the head writes: 14.5 bytes for 16-bit logits and
16.5 for 32-bit ones are 12.5 + 2 and 12.5 + 4; before 0.17 it was 38, 36 + 2.
"""

from service.sizing.engines.engine import (
    GIB,
    Batching,
    Constant,
    Device,
    Engine,
    FractionOf,
    Int8Scales,
    Layering,
    Release,
)

H100_RUNS = "46 start-ups of vLLM 0.19 on H100, llm-d planner pull request 205"
VERSION_SWEEP = "Qwen3-14B on one H100 under 0.15, 0.17 and 0.18, llm-d planner pull request 205"
OLD_PROFILER = "vLLM 0.11 on H100, llm-d planner, empirical memory results"
V0_LOGS = "vLLM issues 10511, 15039, 15783 and 15815"


def _logit_bytes(value: float, plus_minus: float, source: str) -> Constant:
    return Constant(value, plus_minus, source)


def _gib(value: float, plus_minus: float, source: str) -> Constant:
    return Constant(value * GIB, plus_minus * GIB, source)


def batching(device: Device) -> Batching:
    """Defaults of the server by device memory; A100 and GB10 take the smallest whatever their memory."""
    if device.memory_bytes >= 160 * GIB:
        return Batching(16384, 1024)
    if device.memory_bytes >= 70 * GIB and not device.is_reduced:
        return Batching(8192, 1024)
    return Batching(2048, 256)


V0_WITHOUT_DRIVER = Release(
    "0.2.0",
    0.90,
    logit_bytes=_logit_bytes(36.0, 8.0, V0_LOGS),
    runtime_alone=_gib(0.0, 0.2, "vLLM issue 2136: memory outside the allocator was not counted before 0.2.5"),
    runtime_together=_gib(0.0, 0.3, "vLLM issue 2136"),
    layering=Layering.UNIFORM,
    profiles_whole_prompts=True,
    prefix_caching=False,
    seen=("0.2.4",),
)
V0_WITH_ALLOCATOR_CACHE = Release(
    "0.2.5",
    0.90,
    logit_bytes=_logit_bytes(36.0, 8.0, V0_LOGS),
    runtime_alone=_gib(0.2, 8.0, "vLLM issue 2136: what the allocator kept after profiling counted as used"),
    runtime_together=_gib(0.3, 8.0, "vLLM issues 2136, 5248 and 6746"),
    layering=Layering.UNIFORM,
    profiles_whole_prompts=True,
    prefix_caching=False,
)
V0 = Release(
    "0.6.5",
    0.90,
    logit_bytes=_logit_bytes(36.0, 8.0, V0_LOGS),
    runtime_alone=_gib(0.2, 1.6, V0_LOGS),  # 0.09 in 0.7.3, 1.79 in a development build of 0.6
    runtime_together=_gib(0.3, 0.15, V0_LOGS),
    layering=Layering.UNIFORM,
    profiles_whole_prompts=True,
    prefix_caching=False,
)
V1 = Release(
    "0.9.0",
    0.90,
    logit_bytes=_logit_bytes(36.0, 0.5, OLD_PROFILER),
    runtime_alone=_gib(0.13, 0.04, OLD_PROFILER),
    runtime_together=_gib(0.55, 0.2, OLD_PROFILER),
    layering=Layering.GROUPS,
    seen=("0.11.0", "0.15.0"),
)
V1_SMALLER_SAMPLER = Release(
    "0.17.0",
    0.90,
    logit_bytes=_logit_bytes(12.5, 0.3, VERSION_SWEEP),
    runtime_alone=_gib(0.13, 0.04, VERSION_SWEEP),
    runtime_together=_gib(0.55, 1.5, OLD_PROFILER),
    layering=Layering.GROUPS,
    experts_keep_workspace=True,
)
V1_LARGER_RUNTIME = Release(
    "0.18.0",
    0.90,
    logit_bytes=_logit_bytes(12.5, 0.3, H100_RUNS),
    runtime_alone=_gib(0.25, 0.21, H100_RUNS),
    runtime_together=_gib(2.08, 0.13, H100_RUNS),
    layering=Layering.GROUPS,
    experts_keep_workspace=True,
    seen=("0.19.0", "0.20.0"),
)
V1_GRAPHS_CHARGED = Release(
    "0.21.0",
    0.90,
    logit_bytes=_logit_bytes(12.5, 0.3, H100_RUNS),
    runtime_alone=_gib(0.25, 0.21, H100_RUNS),
    runtime_together=_gib(2.08, 1.5, H100_RUNS),
    layering=Layering.GROUPS,
    experts_keep_workspace=True,
    graphs_are_charged=True,
    tokens_follow_concurrency=True,
    seen=("0.22.0", "0.24.0", "0.25.0", "0.25.1", "0.27.1"),
)
V1_LARGER_FRACTION = Release(
    "0.33.0",
    0.92,
    logit_bytes=_logit_bytes(12.5, 0.3, H100_RUNS),
    runtime_alone=_gib(0.25, 0.21, H100_RUNS),
    runtime_together=_gib(2.08, 1.5, H100_RUNS),
    layering=Layering.GROUPS,
    experts_keep_workspace=True,
    graphs_are_charged=True,
    tokens_follow_concurrency=True,
)

ENGINE = Engine(
    name="vllm",
    title="vLLM",
    source="vLLM 0.33.0 source; start-up logs in llm-d planner pull request 205, vllm issues 43308 and 27508",
    fraction_of=FractionOf.TOTAL,
    releases=(
        V0_WITHOUT_DRIVER,
        V0_WITH_ALLOCATOR_CACHE,
        V0,
        V1,
        V1_SMALLER_SAMPLER,
        V1_LARGER_RUNTIME,
        V1_GRAPHS_CHARGED,
        V1_LARGER_FRACTION,
    ),
    block_tokens=16,
    int8_scale_bytes=Int8Scales(4, None),
    batching=batching,
)
