"""The shipped models: valid, sourced, and of exactly the sizes that their publishers print."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from service.catalogue.model_records import (
    ConfigKind,
    LanguageModelRecord,
    load_model_records,
    uploaded_record,
)
from service.errors import ArchitectureNotSupported, CatalogueFileInvalid, ConfigInvalid
from service.sizing.language_model import parameter_counts
from service.sizing.weight_schemes import stored_weights
from tests.sizing.architectures.published_facts import LLAMA_3_1_8B

SHIPPED = load_model_records()
SOURCE = {"id": "page", "title": "A page", "urls": ["https://example.org/model"]}
FILE: dict[str, Any] = {
    "slug": "a-model",
    "name": "A model",
    "aliases": ["maker/A-Model"],
    "config_kind": "read",
    "config": LLAMA_3_1_8B,
    "sources": [SOURCE],
}


def load(directory: Path, *records: dict[str, Any]) -> dict[str, LanguageModelRecord]:
    for number, record in enumerate(records):
        (directory / f"{number}.yaml").write_text(yaml.safe_dump(record), encoding="utf-8")
    return load_model_records(directory, sources={})


@pytest.mark.parametrize("slug", SHIPPED)
def test_a_shipped_model_is_valid_and_sourced(slug: str) -> None:
    record = SHIPPED[slug]
    model = record.to_language_model()
    assert model.slug == slug
    assert record.sources
    assert all(url.startswith("https://") for source in record.sources for url in source.urls)
    assert sum(s.tensor.element_count for s in model.checkpoint) == sum(t.element_count for t in model.tensors)
    assert LanguageModelRecord.model_validate_json(record.model_dump_json()) == record


def test_the_models_that_people_ask_for_are_shipped() -> None:
    asked = {
        "llama-3.3-70b-instruct",
        "llama-3.3-70b-instruct-awq",
        "llama-3.1-8b-instruct",
        "nemotron-3-super-120b-a12b-nvfp4",
        "qwen3-coder-30b-a3b",
        "qwen3-30b-a3b",
        "deepseek-v3",
        "deepseek-r1",
        "gpt-oss-120b",
        "gpt-oss-20b",
        "kimi-k2-instruct",
        "kimi-k2.5",
        "qwen3.5-397b-a17b",
        "qwen3.6-27b",
        "qwen3.6-35b-a3b",
    }
    assert asked <= set(SHIPPED)
    assert len(SHIPPED) >= 75


# Published totals (Hugging Face pages of the models) and sizes of checkpoints (index metadata).
PUBLISHED_PARAMETERS = {
    "llama-2-7b": 6_738_415_616,
    "llama-2-70b": 68_976_648_192,
    "llama-3.1-8b-instruct": 8_030_261_248,
    "llama-3.1-70b-instruct": 70_553_706_496,
    "llama-3.1-405b-instruct": 405_853_388_800,
    "llama-3.3-70b-instruct": 70_553_706_496,
    "mistral-7b-v0.1": 7_241_732_096,
    "mixtral-8x7b-instruct-v0.1": 46_702_792_704,
    "qwen2.5-7b-instruct": 7_615_616_512,
    "qwen2.5-72b-instruct": 72_706_203_648,
    "qwen3-8b": 8_190_735_360,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-coder-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "phi-4": 14_659_507_200,
    "gemma-2-9b-it": 9_241_705_984,
    "gemma-3-27b-it": 27_432_406_640,
    "deepseek-v3": 671_026_404_352,
    "deepseek-r1": 671_026_404_352,
    "kimi-k2-instruct": 1_026_408_232_448 - 60 * 384,  # published with its router corrections
    "qwen3-4b": 4_022_468_096,
    "qwen3-14b": 14_768_307_200,
    "qwen2.5-14b-instruct": 14_770_033_664,
    "qwen2.5-32b-instruct": 32_763_876_352,
    "qwen2.5-vl-7b-instruct": 8_292_166_656,
    "llama-3.2-3b-instruct": 3_212_749_824,
    "llama-3.2-11b-vision-instruct": 10_670_220_835,
    "llama-4-scout-17b-16e-instruct": 108_641_793_536,
    "llama-3.3-nemotron-super-49b-v1": 49_867_145_216,
    "gemma-2-27b-it": 27_227_128_320,
    "gemma-3-12b-it": 12_187_325_040,
    "mistral-7b-instruct-v0.3": 7_248_023_552,
    "mistral-small-3.1-24b-instruct-2503": 24_011_361_280,
    "mixtral-8x22b-instruct-v0.1": 140_630_071_296,
    "phi-2": 2_779_683_840,
    "starcoder2-15b": 15_957_889_024,
    "flan-t5-xxl": 11_135_332_352,
    "jamba-v0.1": 51_570_323_328,
    "lfm2-1.2b": 1_170_340_608,
    "minimax-text-01": 456_089_655_296,
}


@pytest.mark.parametrize("slug", PUBLISHED_PARAMETERS)
def test_a_shipped_model_has_its_published_parameters(slug: str) -> None:
    model = SHIPPED[slug].to_language_model()
    assert sum(parameter_counts(model.tensors).values()) == PUBLISHED_PARAMETERS[slug]


def test_shipped_checkpoints_have_their_published_bytes() -> None:
    def checkpoint_bytes(slug: str) -> int:
        return stored_weights(SHIPPED[slug].to_language_model()).total_bytes

    assert checkpoint_bytes("llama-3.3-70b-instruct-awq") == 39_767_785_472
    assert checkpoint_bytes("gpt-oss-120b") == 65_248_815_744
    assert checkpoint_bytes("gpt-oss-20b") == 13_761_264_768
    assert round(checkpoint_bytes("llama-3.1-8b-instruct-fp8") / 2**30, 2) == 8.46
    assert checkpoint_bytes("llama-3.1-8b-instruct-q4-k-m") == 4_912_898_048


def test_checkpoints_with_a_drafting_layer_have_their_published_size() -> None:
    """Published to four digits, the drafting layer among them."""

    def parameters(slug: str) -> int:
        model = SHIPPED[slug].to_language_model()
        assert model.mtp is not None
        return sum(parameter_counts(model.tensors).values()) + model.mtp.parameter_count

    assert round(2 * parameters("qwen3.6-27b") / 1e9, 2) == 55.56  # GB of BF16 files
    assert round(parameters("qwen3.5-397b-a17b") / 1e9, 1) == 403.4


def test_kimi_k25_keeps_all_but_its_routed_experts_in_16_bits() -> None:
    """By hand: 60 layers of 384 experts of three 7168 x 2048 matrices in 4 bits, with a 16-bit scale for 32 of them."""
    model = SHIPPED["kimi-k2.5"].to_language_model()
    experts = 60 * 384 * 3 * 7168 * 2048
    others = sum(parameter_counts(model.tensors).values()) - experts
    assert experts == 1_014_686_023_680
    assert stored_weights(model).total_bytes == pytest.approx(experts * (4 + 16 / 32) / 8 + 2 * others, rel=1e-6)


@pytest.mark.parametrize("name", ["llama3.3:70b", "meta-llama/Llama-3.3-70B-Instruct", "deepseek-r1", "llama3.1:8b"])
def test_a_name_that_people_type_means_one_model(name: str) -> None:
    owners = {
        slug
        for slug, record in SHIPPED.items()
        if name.lower() in {each.lower() for each in (slug, *record.aliases, *record.ambiguous_aliases)}
    }
    assert len(owners) == 1


def test_every_shipped_model_says_whether_its_config_was_read() -> None:
    kinds = [record.config_kind for record in SHIPPED.values()]
    assert set(kinds) == {ConfigKind.READ, ConfigKind.RECONSTRUCTED}
    assert kinds.count(ConfigKind.READ) >= 50


def test_a_distilled_namesake_is_ambiguous() -> None:
    claimants = {slug for slug, record in SHIPPED.items() if "deepseek-r1:70b" in record.ambiguous_aliases}
    assert claimants == {"deepseek-r1", "deepseek-r1-distill-llama-70b"}


def test_a_file_without_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CatalogueFileInvalid, match=r"0\.yaml: .*names where its facts were published"):
        load(tmp_path, {**FILE, "sources": []})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"colour": "red"}, "colour"),
        ({"slug": "A Model"}, "slug"),
        ({"aliases": ["a model"]}, "aliases"),
        ({"aliases": ["a-model"]}, "stands twice"),
        ({"config_kind": "guessed"}, "config_kind"),
        ({"config": {**LLAMA_3_1_8B, "hidden_size": "wide"}}, r"config\.hidden_size"),
        ({"config": {"model_type": "perceiver"}}, "perceiver"),
        ({"sources": ["nowhere"]}, "nowhere"),
        ({"sources": "nowhere"}, "must be a list"),
    ],
)
def test_a_bad_file_is_refused_by_file_field_and_reason(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    with pytest.raises(CatalogueFileInvalid, match=reason) as caught:
        load(tmp_path, {**FILE, **change})
    assert caught.value.file == "0.yaml"


def test_a_name_has_one_owner(tmp_path: Path) -> None:
    with pytest.raises(CatalogueFileInvalid, match="already belongs to a-model"):
        load(tmp_path, FILE, {**FILE, "slug": "another", "aliases": ["MAKER/a-model"]})


def test_an_ambiguous_name_needs_two_claimants_and_no_owner(tmp_path: Path) -> None:
    shared = {**FILE, "aliases": [], "ambiguous_aliases": ["model:8b"]}
    with pytest.raises(CatalogueFileInvalid, match="means no other record"):
        load(tmp_path, shared)
    with pytest.raises(CatalogueFileInvalid, match="belongs to another alone"):
        load(tmp_path, shared, {**FILE, "slug": "another", "aliases": ["model:8b"]})
    assert set(load(tmp_path, shared, {**shared, "slug": "another"})) == {"a-model", "another"}


def test_an_upload_becomes_the_same_kind_of_record() -> None:
    record = uploaded_record(slug="mine", config=LLAMA_3_1_8B, aliases=("me/mine",))
    assert record.config_kind is ConfigKind.UPLOADED
    assert record.name == "mine"
    assert parameter_counts(record.to_language_model().tensors) == parameter_counts(
        SHIPPED["llama-3.1-8b-instruct"].to_language_model().tensors
    )


def test_an_upload_that_is_no_model_is_refused() -> None:
    with pytest.raises(ArchitectureNotSupported):
        uploaded_record(slug="mine", config={"model_type": "perceiver"})
    with pytest.raises(ConfigInvalid, match="hidden_size"):
        uploaded_record(slug="mine", config={**LLAMA_3_1_8B, "hidden_size": None})
    nested: dict[str, Any] = {}
    for _ in range(10_000):
        nested = {"deeper": nested}
    with pytest.raises(ConfigInvalid, match="nested more than"):
        uploaded_record(slug="mine", config={**LLAMA_3_1_8B, "extra": nested})


def test_infinities_of_published_files_do_not_reach_the_document() -> None:
    record = uploaded_record(slug="mine", config={**LLAMA_3_1_8B, "time_step_limit": [0.0, float("inf")]})
    assert record.config["time_step_limit"] == [0.0, None]
    assert LanguageModelRecord.model_validate_json(record.model_dump_json()) == record
