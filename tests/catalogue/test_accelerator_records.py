"""The form of a record and the refusal of bad files."""

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from service.catalogue.accelerator_records import AcceleratorRecord, load_accelerator_records
from service.catalogue.sources import Source, load_sources
from service.errors import CatalogueFileInvalid
from service.sizing.accelerator import Topology
from service.sizing.precision import Density, Precision
from tests.catalogue.accelerator_examples import EXAMPLE_SOURCE, example_record

REGISTRY = {"data-sheet": Source.model_validate(EXAMPLE_SOURCE)}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The example with one value replaced at a dotted path."""
    record = copy.deepcopy(example_record())
    *parents, last = path.split(".")
    part: Any = record
    for name in parents:
        part = part[int(name)] if name.isdigit() else part[name]
    part[last] = value
    return record


def write(folder: Path, name: str, content: Any) -> None:
    text = content if isinstance(content, str) else yaml.safe_dump({**content, "sources": ["data-sheet"]})
    (folder / name).write_text(text, encoding="utf-8")


def test_a_record_becomes_an_accelerator_per_gpu_in_base_units() -> None:
    accelerator = AcceleratorRecord.model_validate(example_record()).to_accelerator()
    assert accelerator.memory_capacity_bytes == 192e9  # the printed share wins over 1.5 TB / 8 = 187.5 GB
    assert accelerator.usable_memory_bytes == 190e9
    assert accelerator.memory_bandwidth_bytes_per_s == 64e12 / 8
    assert accelerator.peak_flop_per_s(Precision.FP8, Density.DENSE) == 36e15 / 8
    assert accelerator.peak_flop_per_s(Precision.FP8, Density.SPARSE) == 72e15 / 8
    assert accelerator.scale_up.bandwidth_bytes_per_s_per_gpu_one_way == 900e9 / 2
    assert accelerator.tdp_w == 1000


def test_a_rate_that_is_only_published_sparse_has_no_dense_entry() -> None:
    rate = {"precision": "nvfp4", "headline": "unstated", "sparse": {"per_gpu": "30 PFLOPS"}, "sources": ["data-sheet"]}
    accelerator = AcceleratorRecord.model_validate(example_record(peak_rates=[rate])).to_accelerator()
    assert accelerator.has_rate(Precision.NVFP4, Density.SPARSE)
    assert not accelerator.has_rate(Precision.NVFP4, Density.DENSE)


def test_matrix_units_count_where_two_rates_are_published_at_one_precision() -> None:
    rates = [
        {
            "precision": "fp64",
            "execution_unit": unit,
            "headline": "dense",
            "dense": {"per_gpu": value},
            "sources": ["data-sheet"],
        }
        for unit, value in (("matrix", "67 TFLOPS"), ("vector", "34 TFLOPS"))
    ]
    accelerator = AcceleratorRecord.model_validate(example_record(peak_rates=rates)).to_accelerator()
    assert accelerator.peak_flop_per_s(Precision.FP64, Density.DENSE) == 67e12


def test_a_full_mesh_gives_a_peer_its_share_of_the_links() -> None:
    record = changed("scale_up.topology", "direct")
    record["scale_up"] |= {"direct_peer_count": 7}
    scale_up = AcceleratorRecord.model_validate(record).to_accelerator().scale_up
    assert scale_up.peer_bandwidth_bytes_per_s_one_way == 900e9 / 2 / 7


def test_an_unknown_topology_is_a_single_gpu_and_no_bandwidth_rather_than_a_guess() -> None:
    record = example_record()
    del record["scale_up"]["topology"]
    scale_up = AcceleratorRecord.model_validate(record).to_accelerator().scale_up
    assert (scale_up.topology, scale_up.domain_gpu_count) == (Topology.NONE, 1)
    assert scale_up.bandwidth_bytes_per_s_per_gpu_one_way is None


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("slug", "Upper Case", "pattern"),
        ("aliases", ["example-x8"], "twice"),
        ("kind", "blade", "Input should be"),
        ("gpu_count", 0, "greater than or equal to 1"),
        ("gpu_count", "8", "valid integer"),
        ("gpu_count", True, "valid integer"),
        ("devices_per_gpu", 2, "devices_per_gpu_reason"),
        ("colour", "green", "Extra inputs"),
        ("memory.colour", "green", "Extra inputs"),
        ("memory.capacity", {"sources": ["data-sheet"]}, "give per_gpu or total"),
        ("memory.capacity.per_gpu", "192 GB/s", "not a unit of bytes"),
        ("memory.capacity.per_gpu", "about 192 GB", "not a number followed by a unit"),
        ("memory.capacity.per_gpu", math.nan, "finite"),
        ("memory.capacity.per_gpu", math.inf, "finite"),
        ("memory.capacity.per_gpu", -1.0, "positive number"),
        ("memory.capacity.per_gpu", "288 GB", "not the printed total of 1.5 TB"),  # 288 x 8 = 2.3 TB
        ("memory.capacity.sources", ["rumour"], "'rumour' is not among the record's sources"),
        ("memory.capacity.sources", [], "has no source"),
        ("memory.usable.per_gpu", "400 GB", "exceed the 1.92e+11 that the capacity allows"),
        ("memory.usable.basis", "derived", "needs its derivation"),
        ("memory.usable.basis", "felt", "Input should be"),
        ("peak_rates.0.dense.total", "40 PFLOPS", "is not"),  # 2 x 40 is not 72
        ("peak_rates.0.dense.total", "90 PFLOPS", "below the dense one"),
        ("peak_rates.0.precision", "fp5", "Input should be"),
        ("scale_up.bandwidth.direction", "sideways", "Input should be"),
        ("scale_up.direct_peer_count", 8, "below domain_gpu_count"),
        ("power.tdp.per_gpu", "1,000 V", "not a unit of watts"),
        ("sources", [EXAMPLE_SOURCE, EXAMPLE_SOURCE], "an id stands twice"),
    ],
)
def test_a_bad_record_is_refused_with_the_reason(path: Any, value: Any, reason: Any) -> None:
    with pytest.raises(ValidationError) as refusal:
        AcceleratorRecord.model_validate(changed(path, value))
    assert reason in str(refusal.value)


def test_a_record_survives_being_stored_and_read() -> None:
    record = AcceleratorRecord.model_validate(example_record())
    assert AcceleratorRecord.model_validate_json(record.model_dump_json()) == record


def test_files_are_read_one_record_or_a_list_of_them_each(tmp_path: Path) -> None:
    write(tmp_path, "one.yaml", example_record())
    two = [{**example_record(slug=slug, aliases=[]), "sources": ["data-sheet"]} for slug in ("a", "b")]
    write(tmp_path, "two.yaml", yaml.safe_dump(two))
    assert set(load_accelerator_records(tmp_path, sources=REGISTRY)) == {"example-x8", "a", "b"}


@pytest.mark.parametrize(
    ("text", "field", "reason"),
    [
        ("slug: a\nslug: b\n", "(file)", "'slug' is written twice"),
        ("slug: [unclosed\n", "(file)", "expected"),
        ("just a text\n", "(file)", "must be a record"),
        ("slug: a\nsources: data-sheet\n", "sources", "must be a list"),
        ("slug: a\nsources: [rumour]\n", "sources", "'rumour' is not an id of the registry"),
        ("slug: a\nsources: [data-sheet]\n", "name", "Field required"),
        ("a: &x 1\nb: *x\n", "(file)", "aliases"),
        ("slug: !!python/object:os.system {}\n", "(file)", "could not determine a constructor"),
    ],
)
def test_a_bad_file_is_refused_naming_file_field_and_reason(tmp_path: Path, text: Any, field: Any, reason: Any) -> None:
    write(tmp_path, "bad.yaml", text)
    with pytest.raises(CatalogueFileInvalid) as refusal:
        load_accelerator_records(tmp_path, sources=REGISTRY)
    assert (refusal.value.file, refusal.value.field) == ("bad.yaml", field)
    assert reason in refusal.value.reason


def test_a_wrong_unit_in_a_file_names_the_figure(tmp_path: Path) -> None:
    write(tmp_path, "bad.yaml", changed("memory.bandwidth.total", "64 TB"))
    with pytest.raises(CatalogueFileInvalid) as refusal:
        load_accelerator_records(tmp_path, sources=REGISTRY)
    assert refusal.value.field == "memory.bandwidth"
    assert "'TB' is not a unit of bytes per second" in refusal.value.reason


def test_nan_in_a_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "bad.yaml", changed("memory.bandwidth.total", math.nan))
    with pytest.raises(CatalogueFileInvalid) as refusal:
        load_accelerator_records(tmp_path, sources=REGISTRY)
    assert refusal.value.field.startswith("memory.bandwidth.total")


@pytest.mark.parametrize(
    "names", [{"slug": "example-x8"}, {"aliases": ["x8"]}, {"slug": "x8"}, {"aliases": ["example-x8"]}]
)
def test_a_name_that_two_files_claim_is_refused(tmp_path: Path, names: Any) -> None:
    write(tmp_path, "one.yaml", example_record())
    write(tmp_path, "two.yaml", example_record(slug="other", aliases=[]) | names)
    with pytest.raises(CatalogueFileInvalid, match="already belongs to example-x8"):
        load_accelerator_records(tmp_path, sources=REGISTRY)


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_bytes(b"slug: \xff\n")
    with pytest.raises(CatalogueFileInvalid):
        load_accelerator_records(tmp_path, sources=REGISTRY)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("- a\n", "(file)"),
        ("a: b\n", "a"),
        ("a: {title: T}\n", "a.urls"),
        ("a: {title: T, urls: ['ftp://x']}\n", "a.urls.0"),
    ],
)
def test_a_bad_registry_of_sources_is_refused(tmp_path: Path, text: Any, field: Any) -> None:
    (tmp_path / "sources.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(CatalogueFileInvalid) as refusal:
        load_sources(tmp_path / "sources.yaml")
    assert refusal.value.field == field
