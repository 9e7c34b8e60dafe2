"""SGLang.

Read in the published package 0.5.23: the pool is what the fraction of the memory free before loading leaves
after the weights; activations and graphs live outside it. The default fraction keeps a computed reserve, at least
10 GiB on devices above 60 GiB. Distributed initialisation took 1.77 to 2.01 GiB of an H200 (sglang pull request
11716). Prefill is chunked by device memory.
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

MIB = 2**20
CHUNKED_PREFILL_TOKENS = ((35, 2048), (60, 4096), (160, 8192))  # below so many GiB; 16,384 above
GRAPH_BATCHES = ((20, 8, 8), (35, 24, 80), (60, 32, 160), (160, 256, 512))  # below so many GiB: tp < 4, and above


def batching(device: Device) -> Batching:
    """Running requests are capped by memory before any count; 2,048 is the engine's own ceiling."""
    chunk = next((tokens for gib, tokens in CHUNKED_PREFILL_TOKENS if device.memory_bytes < gib * GIB), 16384)
    return Batching(chunk, 2048)


def computed_fraction(device: Device, batching: Batching) -> float:
    """What is left of the memory after a reserve, to three decimals.

    ``512 + 1.5 * chunk + 2 * largest graph batch + devices / 8 * 1024`` MiB, at least 10 GiB above 60 GiB.

    >>> computed_fraction(Device(79.19 * GIB, False, 1), Batching(8192, 2048))  # 13,440 MiB of 81,091
    0.834
    """
    narrow = device.device_count < 4
    graphs = next((few if narrow else many for gib, few, many in GRAPH_BATCHES if device.memory_bytes < gib * GIB), 512)
    reserve_mib = 512 + 1.5 * max(batching.max_num_batched_tokens, 2048) + 2 * graphs + device.device_count / 8 * 1024
    if device.memory_bytes > 60 * GIB:
        reserve_mib = max(reserve_mib, 10 * 1024)
    return round(max(0.05, 1 - reserve_mib * MIB / device.memory_bytes), 3)


ENGINE = Engine(
    name="sglang",
    title="SGLang",
    source="SGLang 0.5.23 source; sglang issue 24523 and pull request 11716",
    fraction_of=FractionOf.FREE_BEFORE_LOAD,
    releases=(
        Release(
            "0.5.23",
            None,
            logit_bytes=Constant(4.0, 10.0, "one copy in 32 bits; it lies outside the pool and no log prints it"),
            runtime_alone=Constant(0.5 * GIB, 0.3 * GIB, "the driver's context, 0.51 GiB of an H100 (llm-d planner)"),
            runtime_together=Constant(1.9 * GIB, 0.15 * GIB, "sglang pull request 11716: 1.77 to 2.01 GiB"),
            layering=Layering.SHARES,
        ),
    ),
    block_tokens=1,
    int8_scale_bytes=Int8Scales(0, None),
    batching=batching,
    sampled_sequences_limit=512,
    computed_fraction=computed_fraction,
)
