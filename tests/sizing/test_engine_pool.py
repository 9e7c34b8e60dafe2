"""KV pools against what engines printed: from the pool's bytes, tokens and concurrency are exact arithmetic.

Printed figures: vLLM 0.19 on H100, maximum length 8,192, llm-d planner pull request 205.
"""

import pytest

from service.sizing.engines import ENGINES
from service.sizing.engines.engine import version_key
from service.sizing.engines.pool import PoolLayout, pool_layout
from service.sizing.precision import Precision
from service.sizing.weights import pipeline_stages
from tests.sizing.examples import GIB, model


def layout_of(slug: str, *, tp: int, batched: int = 8192) -> PoolLayout:
    (whole,) = pipeline_stages(model(slug).layer_count, 1)
    return pool_layout(
        model(slug),
        whole,
        engine=ENGINES["vllm"],
        tp=tp,
        kv_cache=Precision.BF16,
        max_num_batched_tokens=batched,
        prefix_caching=False,
    )


@pytest.mark.parametrize(
    ("slug", "tp", "pool_gib", "tokens", "concurrency"),
    [("gemma-3-27b-it", 1, 19.53, 36_560, 4.46), ("gpt-oss-20b", 2, 59.32, 2_591_776, 316.07)],
)
def test_windowed_models_hold_what_vllm_printed(
    slug: str, tp: int, pool_gib: float, tokens: int, concurrency: float
) -> None:
    layout = layout_of(slug, tp=tp)
    blocks = int(pool_gib * GIB // layout.block_bytes)
    assert blocks // layout.group_count * layout.block_tokens == pytest.approx(tokens, rel=1e-3)
    assert blocks / layout.blocks_per_request(8192) == pytest.approx(concurrency, rel=2e-3)


def test_gemma_27b_is_cut_into_seven_groups_of_ten_layers() -> None:
    # 10 full and 52 sliding layers: 1 + 6 groups; a block is 10 layers x 16 tokens x 16 heads x (128 + 128) x 2 bytes.
    layout = layout_of("gemma-3-27b-it", tp=1)
    assert layout.group_count == 1 + 6
    assert layout.block_bytes == 10 * 16 * 16 * 256 * 2


def test_a_window_is_charged_with_the_chunk_in_flight() -> None:
    # gpt-oss-120b at 131,072 with 1,024 batched tokens needs 4.54 GiB (printed, vllm issue 27508).
    layout = layout_of("gpt-oss-120b", tp=1, batched=1024)
    blocks = 131_072 // 16 + ((127 + 1024 + 15) // 16 + 1)
    assert layout.blocks_per_request(131_072) == blocks
    assert round(blocks * layout.block_bytes / GIB, 2) == 4.54


def test_the_longest_length_is_the_last_one_whose_blocks_fit() -> None:
    layout = layout_of("gemma-3-27b-it", tp=1)
    longest = layout.max_length_tokens(4000)
    assert layout.blocks_per_request(int(longest)) <= 4000 < layout.blocks_per_request(int(longest) + 1)


def test_the_block_of_a_hybrid_grows_until_it_holds_a_state() -> None:
    # Nemotron-3-Super: 128 heads x 64 x 128 fp32 and 30,720 convolution elements in BF16 a layer; attention keeps
    # 2 heads x (128 + 128) x 2 bytes a token.
    layout = layout_of("nemotron-3-super-120b-a12b", tp=1)
    state = 128 * 64 * 128 * 4 + 30_720 * 2
    assert (layout.block_tokens - 16) * 1024 < state <= layout.block_tokens * 1024


def test_an_older_version_takes_the_rules_of_the_release_below_it() -> None:
    release, exact = ENGINES["vllm"].release("0.20.1")
    assert (release.version, exact) == ("0.17.0", False)
    assert not release.graphs_are_charged
    newest, exact = ENGINES["vllm"].release(None)
    assert (newest.version, exact) == ("0.33.0", True)
    assert version_key("v0.33.0") == (0, 33, 0)
