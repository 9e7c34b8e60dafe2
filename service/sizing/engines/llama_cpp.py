"""llama.cpp.

It has no memory fraction: the cache of the asked context is allocated in full, in cells rounded up to 256, and a
compute buffer beside it. Whole layers are split over the GPUs (13, 13, 13, 13, 12 of 64 on five), so devices of a
replica count as pipeline stages. Versions are build numbers. Builds before 5150 have no kernels for a latent and keep
keys and values of every head (llama.cpp issue 8817: 43,200 MiB for DeepSeek-V2-Lite at 163,840); flash attention is
taken by itself since 6300. Without flash attention the scores of a micro-batch of 512 tokens fill
the compute buffer: heads x 512 x context x 4 bytes; 2,664 MiB a GPU at 40 heads and 32,768 (issue 12369).
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

MICRO_BATCH_TOKENS = 512


def batching(device: Device) -> Batching:  # noqa: ARG001 - the engines share one signature
    return Batching(MICRO_BATCH_TOKENS, 1)


RUNTIME = Constant(0.5 * GIB, 0.3 * GIB, "the driver's context, 0.51 GiB of an H100 (llm-d planner)")

LOGITS = Constant(2.0, 2.0, "a row of 32-bit logits for each token of the micro-batch")
WITHOUT_LATENT = Release(
    "4800",
    1.0,
    logit_bytes=LOGITS,
    runtime_alone=RUNTIME,
    runtime_together=RUNTIME,
    layering=Layering.PER_LAYER,
    prefix_caching=False,
    has_latent_attention=False,
    keeps_scores=True,
    seen=("3600", "4900"),
)
WITH_LATENT = Release(
    "5150",
    1.0,
    logit_bytes=LOGITS,
    runtime_alone=RUNTIME,
    runtime_together=RUNTIME,
    layering=Layering.PER_LAYER,
    prefix_caching=False,
    keeps_scores=True,
)
FLASH_ATTENTION = Release(
    "6300",
    1.0,
    logit_bytes=LOGITS,
    runtime_alone=RUNTIME,
    runtime_together=RUNTIME,
    layering=Layering.PER_LAYER,
    prefix_caching=False,
)

ENGINE = Engine(
    name="llama.cpp",
    title="llama.cpp",
    source="llama.cpp issues 8817 and 12369, ik_llama.cpp issue 235",
    fraction_of=FractionOf.NOTHING,
    releases=(WITHOUT_LATENT, WITH_LATENT, FLASH_ATTENTION),
    block_tokens=256,
    int8_scale_bytes=Int8Scales(2, 32),
    batching=batching,
    has_speed_model=False,
)
