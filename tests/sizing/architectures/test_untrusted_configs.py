"""Configs are untrusted: what is wrong is refused by name of field, and nothing is run or guessed."""

import json
from typing import Any

import pytest

from service.errors import ArchitectureNotSupported, ConfigInvalid
from service.sizing.architectures import SUPPORTED_ARCHITECTURES, language_model_from_config, parse_config
from tests.sizing.architectures import published_facts as facts
from tests.sizing.architectures.published_facts import model_of


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"num_hidden_layers": "32"}, "num_hidden_layers"),
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"num_hidden_layers": True}, "num_hidden_layers"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"num_hidden_layers": 10**400}, "num_hidden_layers"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"hidden_size": -4096}, "hidden_size"),
        ({"hidden_size": 4096.0}, "hidden_size"),
        ({"hidden_size": float("nan")}, "hidden_size"),
        ({"hidden_size": float("inf")}, "hidden_size"),
        ({"hidden_size": [4096]}, "hidden_size"),
        ({"hidden_size": 4097}, "hidden_size"),
        ({"vocab_size": {}}, "vocab_size"),
        ({"num_key_value_heads": 5}, "num_key_value_heads"),
        ({"num_key_value_heads": 64}, "num_key_value_heads"),
        ({"tie_word_embeddings": "false"}, "tie_word_embeddings"),
        ({"torch_dtype": "complex64"}, "torch_dtype"),
        ({"quantization_config": "awq"}, "quantization_config"),
        ({"quantization_config": {"quant_method": "awq", "bits": 3}}, "quantization_config.bits"),
    ],
)
def test_a_wrong_field_is_named(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        model_of(facts.LLAMA_3_1_8B, **changes)
    assert caught.value.field == ("config", *key.split("."))
    assert key.rsplit(".", 1)[-1] in caught.value.detail


@pytest.mark.parametrize("key", ["hidden_size", "intermediate_size", "vocab_size", "num_attention_heads"])
def test_a_missing_field_is_named_and_never_guessed(key: str) -> None:
    config = {name: value for name, value in facts.LLAMA_3_1_8B.items() if name != key}
    with pytest.raises(ConfigInvalid, match=key):
        language_model_from_config(config, slug="a-model", name="A model")


def test_layer_types_must_cover_every_layer() -> None:
    with pytest.raises(ConfigInvalid, match="names 2 layers, but there are 36") as caught:
        model_of(facts.GPT_OSS_120B, layer_types=["full_attention", "sliding_attention"])
    assert caught.value.field == ("config", "layer_types")


def test_an_unknown_layer_type_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match="quantum_attention"):
        model_of(facts.GPT_OSS_120B, layer_types=["quantum_attention"] * 36)


def test_more_experts_per_token_than_experts_are_refused() -> None:
    with pytest.raises(ConfigInvalid, match="more than the 128 experts"):
        model_of(facts.QWEN3_30B_A3B, num_experts_per_tok=129)


def test_a_hybrid_pattern_must_agree_with_the_layer_count() -> None:
    with pytest.raises(ConfigInvalid, match="describes 88 layers"):
        model_of(facts.NEMOTRON_3_SUPER, num_hidden_layers=52)
    with pytest.raises(ConfigInvalid, match="may hold only"):
        model_of(facts.NEMOTRON_3_SUPER, hybrid_override_pattern="MEX")


def test_a_nested_field_is_named_with_its_path() -> None:
    text_config = {**facts.GEMMA_3_27B["text_config"], "hidden_size": "wide"}
    with pytest.raises(ConfigInvalid) as caught:
        model_of(facts.GEMMA_3_27B, text_config=text_config)
    assert caught.value.field == ("config", "text_config", "hidden_size")


def test_an_unknown_architecture_is_refused_by_name_with_what_is_known() -> None:
    with pytest.raises(ArchitectureNotSupported) as caught:
        language_model_from_config({"model_type": "perceiver"}, slug="a-model", name="A model")
    assert "perceiver" in caught.value.detail
    assert caught.value.supported == SUPPORTED_ARCHITECTURES
    assert {"llama", "qwen3_moe", "deepseek_v3", "nemotron_h", "gpt_oss"} <= set(SUPPORTED_ARCHITECTURES)


def test_custom_code_is_neither_run_nor_needed() -> None:
    with_code = model_of(facts.LLAMA_3_1_8B, auto_map={"AutoConfig": "os.system('false')"})
    assert with_code.tensors == model_of(facts.LLAMA_3_1_8B).tensors


def test_a_bare_infinity_and_a_byte_order_mark_are_read() -> None:
    text = '{"model_type": "nemotron_h", "time_step_limit": [0.0, Infinity]}'
    assert parse_config(b"\xef\xbb\xbf" + text.encode())["time_step_limit"][1] == float("inf")
    assert parse_config("\ufeff" + text)["model_type"] == "nemotron_h"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[1, 2]", "must be a JSON object"),
        ("null", "must be a JSON object"),
        ("", "not JSON"),
        ('{"a": 1,}', "not JSON"),
        ('{"a": 1, "a": 2}', "says 'a' twice"),
        ('{"a": {"b": 1, "b": 1}}', "says 'b' twice"),
        ('{"a": ' + "9" * 5000 + "}", "too many digits"),
        (b'{"a": "\xff"}', "not UTF-8"),
        ("[" * 10_000 + "]" * 10_000, "nested more than"),
        ('{"a":' * 10_000 + "1" + "}" * 10_000, "nested more than"),
        (" " * (4 * 1024 * 1024 + 1), "larger than"),
    ],
    ids=lambda value: None if isinstance(value, str) and len(value) < 40 else "long",
)
def test_text_that_is_no_config_is_refused(text: str | bytes, reason: str) -> None:
    with pytest.raises(ConfigInvalid, match=reason):
        parse_config(text)


def test_brackets_inside_texts_are_not_depth() -> None:
    assert parse_config(json.dumps({"a": "[" * 1000 + '\\"'}))["a"].startswith("[[")
