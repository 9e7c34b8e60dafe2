"""TensorRT-LLM, PyTorch back end.

From its documentation: 90 % of the memory that the model, its activations and a profiling run leave goes to the
KV cache, in blocks of 32 tokens. No start-up log that prints every term was found, so activations and runtime
are taken as vLLM's.
"""

from service.sizing.engines.engine import GIB, Batching, Engine, FractionOf, Release
from service.sizing.engines.vllm import runtime_bytes


def batching(device_bytes: float, is_reduced: bool) -> Batching:  # noqa: ARG001 - the engines share one signature
    return Batching(8192, 2048)


ENGINE = Engine(
    name="tensorrt-llm",
    title="TensorRT-LLM",
    source="TensorRT-LLM documentation, KV cache configuration and build defaults",
    fraction_of=FractionOf.FREE_AFTER_LOAD,
    releases=(Release("1.2.0", 0.9, 14, graphs_are_charged=True, tokens_follow_concurrency=False),),
    block_tokens=32,
    pools_layers_in_groups=False,
    batching=batching,
    runtime_bytes=runtime_bytes,
    graph_bytes=1.1 * GIB,
)
