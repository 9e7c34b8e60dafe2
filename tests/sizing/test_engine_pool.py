"""KV pools against what engines printed: from the pool's bytes, tokens and concurrency are exact arithmetic.

Printed figures: vLLM 0.19 on H100, maximum length 8,192, llm-d planner pull request 205.
"""

import pytest

from service.sizing.engine_releases import age_years
from service.sizing.engines import ENGINES
from service.sizing.engines.engine import version_key
from service.sizing.engines.pool import PoolLayout, pool_layout
from service.sizing.precision import Precision
from service.sizing.weights import pipeline_stages
from tests.sizing.examples import GIB, model


def layout_of(
    slug: str,
    *,
    tp: int,
    batched: int = 8192,
    kv_cache: Precision = Precision.BF16,
    prefix_caching: bool = False,
    draft_tokens: int = 0,
    engine: str = "vllm",
) -> PoolLayout:
    (whole,) = pipeline_stages(model(slug).layer_count, 1)
    return pool_layout(
        model(slug),
        whole,
        engine=ENGINES[engine],
        release=ENGINES[engine].releases[-1],
        tp=tp,
        kv_cache=kv_cache,
        max_num_batched_tokens=batched,
        prefix_caching=prefix_caching,
        draft_tokens=draft_tokens,
        draft_layer_count=1 if draft_tokens else 0,
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
    release, is_known = ENGINES["vllm"].release("0.20.1")
    assert (release.version, is_known) == ("0.18.0", False)
    assert not release.graphs_are_charged
    assert ENGINES["vllm"].release("0.19.0") == (release, True)  # its logs close under the same rules
    newest, is_known = ENGINES["vllm"].release(None)
    assert (newest.version, is_known) == ("0.33.0", True)
    assert version_key("v0.33.0") == (0, 33, 0)


@pytest.mark.parametrize("same", ["0.9", "v0.9.0", "0.9.0+cu121", "0.9.x"])
def test_one_release_has_one_set_of_rules_and_one_age_however_it_is_written(same: str) -> None:
    assert ENGINES["vllm"].release(same) == ENGINES["vllm"].release("0.9.0")
    assert (
        abs(age_years("vllm", same) - (1 - (4 / 12 + 27 / 365))) < 0.13
    )  # 28 May 2025; a candidate is of the one before


def test_no_release_is_younger_than_one_after_it() -> None:
    written = ["0", "0.1", "0.6.x", "0.6.6", "0.7.x", "0.8", "0.9.1", "0.10.x", "0.12.0", "0.17.x", "0.33.x"]
    ages = [age_years("vllm", version) for version in written]
    assert ages == sorted(ages, reverse=True)
    assert ages[0] == pytest.approx(2 - (8 / 12 + 4 / 365))  # that of 0.6.0, out by 5 September 2024
    assert ages[-1] == 0


@pytest.mark.parametrize(("prefix_caching", "blocks"), [(False, 176), (True, 179)])
def test_drafted_tokens_widen_the_state_and_each_takes_a_block(prefix_caching: bool, blocks: int) -> None:
    # Qwen3.5-27B at tp 2, FP8: 24 heads x 128 x 128 x 4 bytes and 5,120 convolution rows x (3 + 3) x 2 bytes a layer,
    # in blocks of 1,600 tokens x 2 heads x 512 bytes; 16 + 1 full layers and 48 linear ones in 1 + 3 groups.
    layout = layout_of("qwen3.5-27b", tp=2, kv_cache=Precision.FP8, prefix_caching=prefix_caching, draft_tokens=3)
    state = 24 * 128 * 128 * 4 + 5120 * (3 + 3) * 2
    assert layout.state_bytes_per_sequence == 48 * state
    assert layout.block_tokens == 1600
    assert layout.block_bytes == 17 * 1600 * 1024
    # 164 blocks of 1,600 tokens, and in each linear group 1 state, 3 for drafts and 1 more with prefix caching.
    assert layout.blocks_per_request(262_144) == 164 + 3 * (4 + prefix_caching) == blocks


def test_an_int8_cache_keeps_a_scale_for_each_key_and_value_of_a_head() -> None:
    plain = layout_of("llama-3.1-8b-instruct", tp=1, kv_cache=Precision.FP8)
    scaled = layout_of("llama-3.1-8b-instruct", tp=1, kv_cache=Precision.INT8)
    assert plain.bytes_per_token == 32 * 8 * 2 * 128
    assert scaled.bytes_per_token == 32 * 8 * 2 * (128 + 4)
    q8_0 = layout_of("llama-3.1-8b-instruct", tp=1, kv_cache=Precision.INT8, engine="llama.cpp")
    assert q8_0.bytes_per_token == 32 * 8 * 2 * 128 * 34 / 32


def test_a_window_of_sglang_takes_its_share_of_every_token() -> None:
    # gpt-oss-20b: 12 full and 12 windowed layers of 8 heads x 64 x 2 x 2 bytes; 0.8 window tokens per token.
    layout = layout_of("gpt-oss-20b", tp=1, engine="sglang")
    layer = 8 * 64 * 2 * 2
    assert layout.block_bytes == round(12 * layer * 1.8)
    assert layout.blocks_per_request(1000) == 1000
    assert layout.blocks_per_request(100) == 125  # the window's pool binds: 100 / 0.8


@pytest.mark.parametrize(
    "slug", ["gemma-3-27b-it", "gpt-oss-20b", "qwen3.5-27b", "nemotron-3-nano-30b-a3b", "llama-2-7b"]
)
@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_the_longest_length_is_found_for_every_way_of_cutting_layers(slug: str, engine: str) -> None:
    layout = layout_of(slug, tp=1, engine=engine, prefix_caching=True)
    for block_count in (layout.blocks_per_request(20_000), layout.blocks_per_request(300) + 1, 7):
        longest = layout.max_length_tokens(block_count)
        assert layout.blocks_per_request(int(longest) + 1) > block_count
        assert longest == 0 or layout.blocks_per_request(int(longest)) <= block_count
