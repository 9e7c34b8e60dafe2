"""Stored bytes against published checkpoints and against arithmetic by hand."""

from typing import Any

import pytest

from service.errors import UnknownChoice
from service.sizing.language_model import Component, WeightTensor
from service.sizing.precision import Precision
from service.sizing.weight_schemes import SCHEMES, stored_weights, tensor_bytes, weight_scheme
from tests.sizing.architectures import published_facts as facts
from tests.sizing.architectures.published_facts import model_of

GIB = 2**30
ROWS, COLUMNS = 8192, 4096
MATRIX = WeightTensor("layer.proj", Component.MLP, (ROWS, COLUMNS), (0, 1), quantisable=True)


@pytest.mark.parametrize(
    ("slug", "bytes_per_matrix"),
    [
        ("fp32", 4 * ROWS * COLUMNS),
        ("bf16", 2 * ROWS * COLUMNS),
        ("fp8", ROWS * COLUMNS + 2 * ROWS),
        ("fp8-tensor", ROWS * COLUMNS + 4 + 4),
        ("fp8-block", ROWS * COLUMNS + 4 * (ROWS // 128) * (COLUMNS // 128)),
        ("int8", ROWS * COLUMNS + 4 * ROWS),
        ("nvfp4", ROWS * COLUMNS // 2 + ROWS * COLUMNS // 16 + 8),
        ("mxfp4", ROWS * COLUMNS // 2 + ROWS * COLUMNS // 32),
        ("w4a16", ROWS * COLUMNS // 2 + 2 * ROWS * COLUMNS // 128),
        ("awq-int4", ROWS * COLUMNS // 2 + 2 * ROWS * COLUMNS // 128 + ROWS * COLUMNS // 128 // 2),
        ("gptq-int4", ROWS * COLUMNS // 2 + 2 * ROWS * COLUMNS // 128 + ROWS * COLUMNS // 128 // 2 + 4 * COLUMNS),
    ],
)
def test_a_matrix_takes_its_elements_and_its_scales(slug: str, bytes_per_matrix: int) -> None:
    assert tensor_bytes(MATRIX, weight_scheme(slug)) == 2 * bytes_per_matrix  # two layers


def test_a_group_that_is_not_full_still_has_its_scale() -> None:
    odd = WeightTensor("proj", Component.MLP, (130, 200), quantisable=True)
    assert tensor_bytes(odd, weight_scheme("fp8-block")) == 130 * 200 + 4 * 2 * 2
    assert tensor_bytes(odd, weight_scheme("w4a16")) == 130 * 200 // 2 + 2 * 130 * 2


def test_what_a_scheme_does_not_cover_keeps_16_bits() -> None:
    embedding = WeightTensor("embed", Component.EMBEDDING, (1000, 64))
    assert tensor_bytes(embedding, weight_scheme("nvfp4")) == 2 * 1000 * 64
    assert tensor_bytes(MATRIX, weight_scheme("mxfp4-experts")) == 2 * 2 * ROWS * COLUMNS


def test_further_rows_of_a_fused_matrix_bring_no_second_set_of_matrix_scales() -> None:
    whole = WeightTensor("qkv", Component.ATTENTION, (256, 64), quantisable=True)
    first = WeightTensor("qkv", Component.ATTENTION, (192, 64), quantisable=True)
    rest = WeightTensor("qkv", Component.ATTENTION, (64, 64), quantisable=True, continues_matrix=True)
    scheme = weight_scheme("nvfp4")
    assert tensor_bytes(first, scheme) + tensor_bytes(rest, scheme) == tensor_bytes(whole, scheme)


# Published: total_size of the safetensors index, or the size of the file.
PUBLISHED: dict[str, tuple[dict[str, Any], dict[str, Any] | None, int]] = {
    "Llama-3.3-70B AWQ, https://huggingface.co/casperhansen/llama-3.3-70b-instruct-awq": (
        facts.LLAMA_3_3_70B,
        {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True},
        39_767_785_472,
    ),
    "gpt-oss-120b, https://huggingface.co/openai/gpt-oss-120b": (
        facts.GPT_OSS_120B,
        facts.GPT_OSS_120B["quantization_config"],
        65_248_815_744,
    ),
    "Llama-3.1-8B, https://huggingface.co/meta-llama/Llama-3.1-8B": (facts.LLAMA_3_1_8B, None, 16_060_522_496),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_checkpoint_has_exactly_its_published_bytes(name: str) -> None:
    config, section, published_bytes = PUBLISHED[name]
    model = model_of(config, quantization_config=section)
    assert stored_weights(model).total_bytes == published_bytes


def test_fp8_is_not_half_of_16_bits_since_embedding_and_head_stay() -> None:
    model = model_of(facts.LLAMA_3_1_8B)
    matrices = 32 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 4096 * 14_336)
    rows = 32 * (2 * 4096 + 2 * 1024 + 2 * 14_336 + 4096)
    rest = 2 * 128_256 * 4096 + 65 * 4096
    total_bytes = stored_weights(model, "fp8").total_bytes
    assert total_bytes == matrices + 2 * rows + 2 * rest
    assert round(total_bytes / GIB, 2) == 8.46


def test_70b_in_fp8_splits_as_published() -> None:
    # Elements of a published 70B FP8 checkpoint: 68,451,041,280 in FP8, 2,109,382,656 others, 6,717,440 of
    # them scales.
    entries = stored_weights(model_of(facts.LLAMA_3_3_70B), "fp8").entries
    quantised = sum(entry.element_count for entry in entries if entry.scheme == "fp8")
    scales = sum(entry.size_bytes - entry.element_count for entry in entries if entry.scheme == "fp8") // 2
    rest = sum(entry.element_count for entry in entries if entry.scheme == "bf16")
    assert (quantised, scales, rest + scales) == (68_451_041_280, 6_717_440, 2_109_382_656)


@pytest.mark.parametrize(
    ("config", "file_bytes"),
    [
        (facts.LLAMA_3_1_8B, 4_920_739_232),  # https://huggingface.co/bartowski/Meta-Llama-3.1-8B-Instruct-GGUF
        (facts.QWEN3_30B_A3B, 18_556_686_912),  # https://huggingface.co/Qwen/Qwen3-30B-A3B-GGUF
    ],
)
def test_a_q4_k_m_file_is_its_tensors_and_a_header(config: dict[str, Any], file_bytes: int) -> None:
    total_bytes = stored_weights(model_of(config), "gguf-q4_k_m").total_bytes
    assert 0 <= file_bytes - total_bytes < 10e6  # metadata and the vocabulary


def test_q4_k_m_gives_half_of_the_layers_more_bits() -> None:
    # Llama-3.1-8B: layers 0 to 3, 28 to 31 and 6, 9, ... 27 have their value and down projections in Q6_K.
    more, fewer = 16, 16
    q4, q6 = 144 / 256, 210 / 256
    alike = 32 * (2 * 4096 * 4096 + 1024 * 4096 + 2 * 4096 * 14_336)
    varying = 1024 * 4096 + 4096 * 14_336
    embedding, head = 128_256 * 4096 * q4, 128_256 * 4096 * q6
    expected = alike * q4 + varying * (more * q6 + fewer * q4) + embedding + head + 4 * 65 * 4096
    assert stored_weights(model_of(facts.LLAMA_3_1_8B), "gguf-q4_k_m").total_bytes == expected == 4_912_898_048


def test_rows_that_are_no_multiple_of_256_take_a_wider_block() -> None:
    # Qwen2.5-0.5B is 896 wide: 896 = 28 * 32, so Q4_K gives way to Q5_0 of 22 bytes per 32.
    model = model_of(
        {
            "model_type": "llama",
            "num_hidden_layers": 1,
            "hidden_size": 896,
            "intermediate_size": 1024,
            "vocab_size": 256,
            "num_attention_heads": 14,
        }
    )
    entries = stored_weights(model, "gguf-q4_k_m").entries
    mlp = sum(entry.size_bytes for entry in entries if entry.component is Component.MLP)
    assert mlp == 2 * 1024 * 896 // 32 * 22 + 896 * 1024 // 256 * 210


def test_the_own_scheme_is_the_checkpoint_as_it_is() -> None:
    model = model_of(facts.GPT_OSS_120B)
    assert stored_weights(model, "mxfp4") == stored_weights(model) == stored_weights(model, None)
    assert stored_weights(model, "mxfp4-experts").total_bytes == stored_weights(model).total_bytes
    assert stored_weights(model, "bf16").total_bytes == 2 * 116_829_156_672


def test_entries_hold_every_element_once() -> None:
    model = model_of(facts.DEEPSEEK_V3)
    for scheme in SCHEMES:
        stored = stored_weights(model, scheme)
        assert sum(entry.element_count for entry in stored.entries) == 671_026_404_352
        assert sum(entry.size_bytes for entry in stored.entries) == stored.total_bytes


def test_fewer_bits_take_fewer_bytes() -> None:
    model = model_of(facts.LLAMA_3_3_70B)
    order = ["fp32", "bf16", "gguf-q8_0", "fp8", "nvfp4", "mxfp4", "w4a16"]
    sizes = [stored_weights(model, scheme).total_bytes for scheme in order]
    assert sizes == sorted(sizes, reverse=True)


def test_weight_only_schemes_have_no_compute_precision_of_their_own() -> None:
    assert weight_scheme("awq-int4").compute is None
    assert weight_scheme("gguf-q4_k_m").compute is None
    assert weight_scheme("int8").compute is Precision.INT8
    assert weight_scheme("mxfp4").compute is Precision.MXFP4


def test_an_unknown_scheme_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownChoice, match="nvfp4") as caught:
        weight_scheme("int3")
    assert "awq-int4" in caught.value.known


# Files as published, in GB: https://huggingface.co/bartowski/Meta-Llama-3.1-8B-Instruct-GGUF and, for the two models
# with queries, keys and values in one matrix, bartowski/Phi-3.5-mini-instruct-GGUF and bartowski/phi-4-GGUF.
GGUF_FILES = [
    (facts.LLAMA_3_1_8B, "gguf-q4_k_s", 4.69),
    (facts.LLAMA_3_1_8B, "gguf-q4_k_m", 4.92),
    (facts.LLAMA_3_1_8B, "gguf-q5_k_s", 5.60),
    (facts.LLAMA_3_1_8B, "gguf-q5_k_m", 5.73),
    (facts.LLAMA_3_1_8B, "gguf-q6_k", 6.60),
    (facts.LLAMA_3_1_8B, "gguf-q8_0", 8.54),
    (facts.PHI_4, "gguf-q4_k_m", 9.05),
    (facts.QWEN3_30B_A3B, "gguf-q4_k_m", 18.556_686_912),
]


@pytest.mark.parametrize(("config", "scheme", "file_gb"), GGUF_FILES)
def test_a_gguf_mixture_has_the_size_of_its_file(config: dict[str, Any], scheme: str, file_gb: float) -> None:
    """The tensors; the file's header, mostly its vocabulary, is some 8 MB more."""
    assert stored_weights(model_of(config), scheme).total_bytes == pytest.approx(file_gb * 1e9, rel=0.003)


def test_a_mixture_spends_more_on_the_first_layers_or_on_every_third() -> None:
    small = {**facts.LLAMA_3_1_8B, "num_hidden_layers": 16}
    matrix = 1024 * 4096  # values: the first four layers of Q4_K_S have five bits, eight of Q4_K_M six
    down = 4096 * 14336  # down projections: the first two of Q4_K_S have five bits, the same eight of Q4_K_M six
    by_scheme = {
        scheme: stored_weights(model_of(small), scheme).total_bytes for scheme in ("gguf-q4_k_s", "gguf-q4_k_m")
    }
    five, six, four = 176, 210, 144
    assert (
        by_scheme["gguf-q4_k_m"] - by_scheme["gguf-q4_k_s"]
        == (8 * (matrix + down) * (six - four) - (4 * matrix + 2 * down) * (five - four)) // 256
    )
