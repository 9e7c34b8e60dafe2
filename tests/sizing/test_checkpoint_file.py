"""A checkpoint's own sizes: read exactly, and disbelieved where they contradict themselves or the config."""

import json
import struct
from collections.abc import Callable
from math import prod
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.errors import CheckpointInvalid, ServiceError
from service.sizing.checkpoint_file import (
    WeightBytesSource,
    header_sizes,
    index_sizes,
    with_file_sizes,
)
from service.sizing.gguf_file import gguf_sizes
from service.sizing.language_model import LanguageModel
from service.sizing.weight_schemes import stored_weights
from tests.sizing.architectures.published_facts import model_of

TINY: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1024,
    "tie_word_embeddings": False,
}
# Embedding and head; a layer's queries and outputs, keys and values of 2 heads of 64, three matrices, two norms.
LAYER = 2 * 256 * 256 + 2 * 128 * 256 + 3 * 256 * 512 + 2 * 256
TOTAL = 2 * 1024 * 256 + 2 * LAYER + 256
LAYER_SHAPES = {
    "self_attn.q_proj.weight": [256, 256],
    "self_attn.k_proj.weight": [128, 256],
    "self_attn.v_proj.weight": [128, 256],
    "self_attn.o_proj.weight": [256, 256],
    "mlp.gate_proj.weight": [512, 256],
    "mlp.up_proj.weight": [512, 256],
    "mlp.down_proj.weight": [256, 512],
    "input_layernorm.weight": [256],
    "post_attention_layernorm.weight": [256],
}
SHAPES = {
    "model.embed_tokens.weight": [1024, 256],
    "lm_head.weight": [1024, 256],
    "model.norm.weight": [256],
    **{f"model.layers.{layer}.{name}": shape for layer in (0, 1) for name, shape in LAYER_SHAPES.items()},
}


def tiny() -> LanguageModel:
    return model_of(TINY)


def header(shapes: dict[str, list[int]], *, dtype: str = "BF16", element_bytes: int = 2) -> dict[str, Any]:
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    begin = 0
    for name, shape in shapes.items():
        end = begin + prod(shape) * element_bytes
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
        begin = end
    return entries


def test_an_index_says_the_total_of_all_files() -> None:
    text = json.dumps({"metadata": {"total_size": 2 * TOTAL}, "weight_map": dict.fromkeys(SHAPES, "model.safetensors")})
    sizes = index_sizes(text.encode(), tiny())
    assert (sizes.resident_bytes, sizes.tensor_count) == (2 * TOTAL, 3 + 2 * 9)
    model = with_file_sizes(tiny(), sizes)
    assert stored_weights(model).total_bytes == 2 * TOTAL == stored_weights(tiny()).total_bytes
    assert model.weight_bytes_source == WeightBytesSource.SAFETENSORS_INDEX


def test_headers_of_several_files_are_one_checkpoint_and_drafting_layers_stand_apart() -> None:
    half = dict(list(SHAPES.items())[:9])
    rest = {name: shape for name, shape in SHAPES.items() if name not in half}
    drafting = {"model.layers.2.eh_proj.weight": [256, 512], "mtp.norm.weight": [256]}
    texts = [json.dumps(header(each)).encode() for each in (half, {**rest, **drafting})]
    sizes = header_sizes(texts, tiny())
    assert sizes.resident_bytes == 2 * TOTAL
    assert sizes.drafting_bytes == 2 * (256 * 512 + 256)


def test_the_files_bytes_are_what_the_weights_take_and_are_spread_over_the_parts() -> None:
    padded = {**SHAPES, "model.rotary_emb.inv_freq": [128]}
    model = with_file_sizes(tiny(), header_sizes([json.dumps(header(padded)).encode()], tiny()))
    stored = stored_weights(model)
    assert stored.total_bytes == 2 * TOTAL + 2 * 128
    assert sum(entry.size_bytes for entry in stored.entries) == stored.total_bytes
    # Another scheme than the checkpoint's is laid over the shapes, whatever the files say.
    assert stored_weights(model, "fp32").total_bytes == 4 * TOTAL


def spoilt(change: Callable[[dict[str, Any]], None]) -> bytes:
    document = header(SHAPES)
    change(document)
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("change", "reason", "key"),
    [
        (
            lambda h: h["lm_head.weight"].update(data_offsets=[-2, 10]),
            "numbers of 0 and more",
            "lm_head.weight.data_offsets",
        ),
        (
            lambda h: h["lm_head.weight"].update(data_offsets=[10, 2]),
            "a begin and an end",
            "lm_head.weight.data_offsets",
        ),
        (
            lambda h: h["lm_head.weight"].update(data_offsets=[2, 2 + 1024 * 256 * 2]),
            "begins at byte 2, but",
            "lm_head.weight.data_offsets",
        ),
        (
            lambda h: h["lm_head.weight"].update(shape=[1024, 257]),
            "its shape needs 526336",
            "lm_head.weight.data_offsets",
        ),
        (lambda h: h["lm_head.weight"].update(shape=[-1]), "numbers of 0 and more", "lm_head.weight.shape"),
        (lambda h: h["lm_head.weight"].update(shape=[1] * 9), "up to 8 numbers", "lm_head.weight.shape"),
        (lambda h: h["lm_head.weight"].update(dtype="F1"), "is not one of", "lm_head.weight.dtype"),
        (lambda h: h.update(another=5), "must be an object", "another"),
    ],
)
def test_a_header_that_lies_is_refused_by_field(
    change: Callable[[dict[str, Any]], None], reason: str, key: str
) -> None:
    with pytest.raises(CheckpointInvalid, match=reason) as caught:
        header_sizes([spoilt(change)], tiny())
    assert caught.value.field == ("checkpoint", key)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "is not JSON"),
        (b"\xff", "is not JSON"),
        (b"[]", "must be a JSON object"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"a": {}, "a": {}}', "says one name twice"),
        (b'{"weight_map": {}}', "metadata must be an object"),
        (b'{"metadata": {"total_size": -1}, "weight_map": {}}', "total_size must be a number"),
        (b'{"metadata": {"total_size": true}, "weight_map": {}}', "total_size must be a number"),
        (b'{"metadata": {"total_size": 1e30}, "weight_map": {}}', "total_size must be a number"),
        (b'{"metadata": {"total_size": 5}}', "weight_map must be an object"),
    ],
)
def test_an_index_that_is_none_is_refused(text: bytes, reason: str) -> None:
    with pytest.raises(CheckpointInvalid, match=reason):
        index_sizes(text, tiny())


def test_a_million_tensors_are_too_many() -> None:
    text = (
        b'{"metadata": {"total_size": 5}, "weight_map": {' + b",".join(b'"%d":0' % n for n in range(1_000_001)) + b"}}"
    )
    with pytest.raises(CheckpointInvalid, match="more than 1000000 tensors"):
        index_sizes(text, tiny())


def test_a_tensor_in_two_files_is_refused() -> None:
    text = json.dumps(header(SHAPES)).encode()
    with pytest.raises(CheckpointInvalid, match="in two of the headers"):
        header_sizes([text, text], tiny())


def test_the_files_of_another_model_are_refused() -> None:
    wider = {name: [2 * shape[0], *shape[1:]] for name, shape in SHAPES.items()}
    sizes = header_sizes([json.dumps(header(wider)).encode()], tiny())
    with pytest.raises(CheckpointInvalid, match="not of one checkpoint"):
        with_file_sizes(tiny(), sizes)


GGUF_SHAPES = {
    "token_embd.weight": (12, (256, 1024)),  # Q4_K
    "output.weight": (14, (256, 1024)),  # Q6_K
    "output_norm.weight": (0, (256,)),
    **{
        f"blk.{layer}.{name}": (kind, shape)
        for layer in (0, 1)
        for name, kind, shape in (
            ("attn_q.weight", 12, (256, 256)),
            ("attn_k.weight", 12, (256, 128)),
            ("attn_v.weight", 14, (256, 128)),
            ("attn_output.weight", 12, (256, 256)),
            ("ffn_gate.weight", 12, (256, 512)),
            ("ffn_up.weight", 12, (256, 512)),
            ("ffn_down.weight", 14, (512, 256)),
            ("attn_norm.weight", 0, (256,)),
            ("ffn_norm.weight", 0, (256,)),
        )
    },
}


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def gguf(*, file_type: int = 15, tensor_count: int | None = None, version: int = 3) -> bytes:
    tokens = struct.pack("<IQ", 8, 3) + text("a") + text("b") + text("c")
    entries = [
        text("general.architecture") + struct.pack("<I", 8) + text("llama"),
        text("tokenizer.ggml.tokens") + struct.pack("<I", 9) + tokens,
        text("tokenizer.ggml.scores") + struct.pack("<IIQ", 9, 6, 2) + bytes(8),
        text("general.file_type") + struct.pack("<II", 4, file_type),
    ]
    count = len(GGUF_SHAPES) if tensor_count is None else tensor_count
    data = b"GGUF" + struct.pack("<IQQ", version, count, len(entries)) + b"".join(entries)
    for name, (kind, shape) in GGUF_SHAPES.items():
        data += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, 0)
    return data


def test_a_gguf_header_gives_each_tensor_its_own_format() -> None:
    sizes = gguf_sizes(gguf(), tiny())
    four_bit = 1024 * 256 + 2 * (2 * 256 * 256 + 128 * 256 + 2 * 512 * 256)
    six_bit = 1024 * 256 + 2 * (128 * 256 + 512 * 256)
    norms = (2 * 2 + 1) * 256
    assert sizes.element_count == TOTAL == four_bit + six_bit + norms
    assert sizes.resident_bytes == four_bit // 256 * 144 + six_bit // 256 * 210 + norms * 4
    model = with_file_sizes(tiny(), sizes)
    assert model.checkpoint_scheme == "gguf-q4_k_m"
    assert stored_weights(model).total_bytes == sizes.resident_bytes


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GGML", "does not begin with GGUF"),
        (gguf(version=9), "version 9 is not read"),
        (gguf(file_type=99), "general.file_type is 99"),
        (gguf(tensor_count=10**9), "announces 1000000000 tensors"),
        (gguf(tensor_count=len(GGUF_SHAPES) + 1), "ends before it is complete"),
        (gguf()[:200], "ends before it is complete"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + struct.pack("<Q", 2**63), "a name of"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + text("a") + struct.pack("<IIQ", 9, 9, 1), "array of type 9"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + text("a") + struct.pack("<I", 77), "value of type 77"),
    ],
    ids=range(9),
)
def test_a_gguf_header_that_is_none_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(CheckpointInvalid, match=reason):
        gguf_sizes(data, tiny())


@settings(max_examples=300, deadline=None)
@given(position=st.integers(4, 1500), byte=st.integers(0, 255))
def test_a_spoilt_gguf_header_gives_sizes_or_says_what_is_wrong(position: int, byte: int) -> None:
    data = bytearray(gguf())
    data[position % len(data)] = byte
    try:
        sizes = gguf_sizes(bytes(data), tiny())
    except ServiceError as error:
        assert error.detail  # noqa: PT017 - either outcome is right
    else:
        assert sizes.tensor_count > 0
