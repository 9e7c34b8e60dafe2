"""Cache and state bytes, by hand."""

import numpy as np
import pytest

from service.sizing.cache import (
    elements_bytes,
    kv_cache_bytes,
    kv_cache_bytes_charged_in_full,
    kv_cache_bytes_per_token,
    state_bytes_per_sequence,
)
from service.sizing.model_memory import model_memory
from service.sizing.precision import Precision
from tests.sizing.architectures import published_facts as facts
from tests.sizing.architectures.published_facts import model_of

BF16 = Precision.BF16
GIB = 2**30


def test_llama_8b_keeps_128_kib_per_token() -> None:
    # 32 layers, keys and values, 8 heads of 128, 2 bytes.
    assert kv_cache_bytes_per_token(model_of(facts.LLAMA_3_1_8B), kv_cache=BF16) == 32 * 2 * 8 * 128 * 2 == 131_072


def test_a_latent_is_cached_once_and_lies_whole_on_every_rank() -> None:
    model = model_of(facts.DEEPSEEK_V3)
    # 61 layers of a latent of 512 and a rotary key of 64.
    assert kv_cache_bytes_per_token(model, kv_cache=BF16) == 61 * (512 + 64) * 2 == 70_272
    assert kv_cache_bytes_per_token(model, kv_cache=BF16, tp=8) == 70_272
    cache = 32 * kv_cache_bytes(model, context_tokens=2048, kv_cache=BF16, tp=8)
    assert round(cache / GIB, 2) == 4.29


def test_kv_heads_divide_among_ranks_and_then_are_replicated() -> None:
    model = model_of(facts.LLAMA_3_3_70B)
    whole = kv_cache_bytes_per_token(model, kv_cache=BF16)
    assert kv_cache_bytes_per_token(model, kv_cache=BF16, tp=4) * 4 == whole
    assert kv_cache_bytes_per_token(model, kv_cache=BF16, tp=8) * 8 == whole
    assert kv_cache_bytes_per_token(model, kv_cache=BF16, tp=16) * 8 == whole


def test_windows_bound_the_cache_unless_an_engine_charges_in_full() -> None:
    model = model_of(facts.GPT_OSS_120B)
    per_layer = 2 * 8 * 64 * 2
    ideal = kv_cache_bytes(model, context_tokens=9216, kv_cache=BF16)
    assert ideal == 18 * per_layer * 128 + 18 * per_layer * 9216
    assert round(32 * ideal / GIB, 2) == 10.27
    charged = kv_cache_bytes_charged_in_full(model, context_tokens=9216, kv_cache=BF16)
    assert charged == 36 * per_layer * 9216
    assert round(32 * charged / GIB, 2) == 20.25


def test_below_its_windows_a_model_pays_for_every_layer() -> None:
    model = model_of(facts.GPT_OSS_120B)
    slope = kv_cache_bytes_per_token(model, kv_cache=BF16)
    assert slope == 73_728
    assert kv_cache_bytes(model, context_tokens=100, kv_cache=BF16) == 100 * slope
    beyond = [kv_cache_bytes(model, context_tokens=tokens, kv_cache=BF16) for tokens in (8192, 8193)]
    assert beyond[1] - beyond[0] == 36_864


def test_gemma_3_keeps_ten_global_layers_beyond_its_windows() -> None:
    model = model_of(facts.GEMMA_3_27B)
    per_layer = 2 * 16 * 128 * 2
    assert kv_cache_bytes_per_token(model, kv_cache=BF16) == 62 * per_layer == 507_904
    assert kv_cache_bytes(model, context_tokens=8192, kv_cache=BF16) == per_layer * (52 * 1024 + 10 * 8192)


def test_the_head_width_of_the_file_counts() -> None:
    cache = 32 * kv_cache_bytes(model_of(facts.QWEN3_30B_A3B), context_tokens=2048, kv_cache=BF16)
    assert cache == 32 * 2048 * 48 * 2 * 4 * 128 * 2 == 6 * GIB


def test_a_hybrid_keeps_few_caches_and_a_state_that_context_does_not_change() -> None:
    model = model_of(facts.NEMOTRON_3_SUPER)
    assert kv_cache_bytes_per_token(model, kv_cache=BF16) == 8 * 2 * 2 * 128 * 2 == 8192
    convolution = (128 * 64 + 2 * 8 * 128) * 3
    recurrent = 128 * 64 * 128
    assert state_bytes_per_sequence(model) == 40 * (2 * convolution + 4 * recurrent) == 170_229_760


def test_state_divides_by_its_own_heads() -> None:
    model = model_of(facts.NEMOTRON_3_SUPER)
    assert state_bytes_per_sequence(model, tp=8) * 8 == state_bytes_per_sequence(model)
    # On 16 ranks the 8 groups of the convolution are held twice.
    columns, groups, inner = 3, 2 * 8 * 128, 128 * 64
    per_layer = 2 * columns * (inner // 16 + groups // 8) + 4 * inner * 128 // 16
    assert state_bytes_per_sequence(model, tp=16) == 40 * per_layer


def test_a_model_without_recurrence_has_no_state() -> None:
    assert state_bytes_per_sequence(model_of(facts.LLAMA_3_1_8B)) == 0


def test_a_quantised_cache_is_smaller_and_keeps_its_scales() -> None:
    model = model_of(facts.LLAMA_3_1_8B)
    assert kv_cache_bytes_per_token(model, kv_cache=Precision.FP8) == 65_536
    assert kv_cache_bytes_per_token(model, kv_cache=Precision.NVFP4) == 65_536 // 2 + 65_536 // 16


def test_part_of_a_byte_takes_a_byte() -> None:
    assert elements_bytes(3, Precision.INT4) == 2


def test_arrays_of_contexts_give_arrays_of_bytes() -> None:
    model = model_of(facts.GPT_OSS_120B)
    contexts = np.array([1, 128, 129, 9216])
    caches = kv_cache_bytes(model, context_tokens=contexts, kv_cache=BF16)
    assert [int(each) for each in caches] == [
        kv_cache_bytes(model, context_tokens=int(tokens), kv_cache=BF16) for tokens in contexts
    ]


@pytest.mark.parametrize("config", [facts.LLAMA_3_1_8B, facts.GPT_OSS_120B, facts.NEMOTRON_3_SUPER])
def test_longer_contexts_never_take_less(config: dict[str, object]) -> None:
    caches = kv_cache_bytes(model_of(config), context_tokens=np.arange(1, 5000, 7), kv_cache=BF16)
    assert bool((np.diff(caches) >= 0).all())


def test_memory_at_a_glance_adds_up() -> None:
    memory = model_memory(model_of(facts.GPT_OSS_120B), context_tokens=9216, tp=1)
    parts = dict(memory.parameter_counts)
    total, active = parts.pop("total"), parts.pop("active")
    assert total == sum(parts.values()) == 116_829_156_672
    assert active < total
    assert memory.weight_bytes["checkpoint"] == memory.weight_bytes["mxfp4"] == 65_248_815_744
    assert memory.kv_cache.bytes_per_token == sum(layer.count * layer.kv_bytes_per_token for layer in memory.layers)
    assert memory.kv_cache.engine_bytes == 9216 * memory.kv_cache.bytes_per_token
    assert [(layer.kind, layer.count, layer.window_tokens) for layer in memory.layers] == [
        ("sliding", 18, 128),
        ("full", 18, None),
    ]


def test_what_is_no_parameter_is_listed_apart() -> None:
    counts = model_memory(model_of(facts.DEEPSEEK_V3), context_tokens=1).parameter_counts
    assert counts["total"] == 671_026_404_352
    assert counts["router_bias"] == 14_848
    assert counts["mtp"] == 11_610_067_968
