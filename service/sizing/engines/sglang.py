"""SGLang.

Read in the published package 0.5.23: the pool is what the fraction of the memory free before loading leaves
after the weights; activations and graphs live outside it. The default fraction keeps at least 10 GiB free on
devices above 60 GiB. Distributed initialisation took 1.77 to 2.01 GiB of an H200 (sglang pull request 11716).
"""

from service.sizing.engines.engine import GIB, Batching, Engine, FractionOf, Release


def batching(device_bytes: float, is_reduced: bool) -> Batching:  # noqa: ARG001 - the engines share one signature
    """Chunked prefill of 8,192 tokens (2,048 on small devices); running requests are capped by memory first."""
    return Batching(8192 if device_bytes >= 35 * GIB else 2048, 2048)


def runtime_bytes(tp: int) -> float:
    return (0.25 if tp == 1 else 1.9) * GIB


ENGINE = Engine(
    name="sglang",
    title="SGLang",
    source="SGLang 0.5.23 source; sglang issue 24523 and pull request 11716",
    fraction_of=FractionOf.FREE_BEFORE_LOAD,
    releases=(Release("0.5.23", 0.87, 14, graphs_are_charged=False, tokens_follow_concurrency=False),),
    block_tokens=1,
    pools_layers_in_groups=False,
    batching=batching,
    runtime_bytes=runtime_bytes,
    graph_bytes=1.1 * GIB,
)
