"""TensorRT-LLM, PyTorch back end.

From its documentation: 90 % of the memory that the model, its activations and a profiling run leave goes to the
KV cache, in blocks of 32 tokens. No start-up log that prints every term was found, so activations and runtime
are taken as vLLM's; a Llama-2-7B class engine on A100 80GB (TensorRT-LLM issue 1400) is the one log that bears on
them. Engines built ahead of time reserve activations for their built batch and length, which is not modelled.
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


def batching(device: Device) -> Batching:  # noqa: ARG001 - the engines share one signature
    return Batching(8192, 2048)


ENGINE = Engine(
    name="tensorrt-llm",
    title="TensorRT-LLM",
    source="TensorRT-LLM documentation, KV cache configuration and build defaults",
    fraction_of=FractionOf.FREE_AFTER_LOAD,
    releases=(
        Release(
            "1.2.0",
            0.9,
            logit_bytes=Constant(2.0, 10.0, "taken as one copy in 32 bits: no log prints it"),
            runtime_alone=Constant(0.5 * GIB, 0.3 * GIB, "the driver's context, 0.51 GiB of an H100 (llm-d planner)"),
            runtime_together=Constant(2.1 * GIB, 1.0 * GIB, "taken as vLLM's"),
            layering=Layering.PER_LAYER,
            graphs_are_charged=True,
        ),
    ),
    block_tokens=32,
    int8_scale_bytes=Int8Scales(0, None),
    batching=batching,
)
