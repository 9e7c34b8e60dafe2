"""vLLM, V1 engine.

Rules read in the published package 0.33.0; constants from public start-up logs of 0.17 to 0.19 on H100 (46
controlled runs, llm-d planner pull request 205): 14 bytes per sampled logit, 0.25 GiB outside the allocator on
one GPU and 2.1 GiB with collectives, CUDA graphs 0.64 to 1.85 GiB, mean 1.1.
"""

from service.sizing.engines.engine import GIB, Batching, Engine, FractionOf, Release


def batching(device_bytes: float, is_reduced: bool) -> Batching:
    """Defaults of the server by device memory; A100 and GB10 take the smallest whatever their memory."""
    if device_bytes >= 160 * GIB:
        return Batching(16384, 1024)
    if device_bytes >= 70 * GIB and not is_reduced:
        return Batching(8192, 1024)
    return Batching(2048, 256)


def runtime_bytes(tp: int) -> float:
    """Driver context, communicators and their buffers: outside the engine's allocator."""
    return (0.25 if tp == 1 else 2.1) * GIB


ENGINE = Engine(
    name="vllm",
    title="vLLM",
    source="vLLM 0.33.0 source; start-up logs in llm-d planner pull request 205, vllm issues 43308 and 27508",
    fraction_of=FractionOf.TOTAL,
    releases=(
        Release("0.17.0", 0.90, 14, graphs_are_charged=False, tokens_follow_concurrency=False),
        Release("0.21.0", 0.90, 14, graphs_are_charged=True, tokens_follow_concurrency=True),
        Release("0.33.0", 0.92, 14, graphs_are_charged=True, tokens_follow_concurrency=True),
    ),
    block_tokens=16,
    pools_layers_in_groups=True,
    batching=batching,
    runtime_bytes=runtime_bytes,
    graph_bytes=1.1 * GIB,
)
