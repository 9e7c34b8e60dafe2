"""Every shipped record: valid, sourced, and its totals are its shares times its GPUs."""

from typing import Any

import pytest

from service.catalogue.accelerator_figures import Basis, Headline
from service.catalogue.accelerator_records import AcceleratorRecord, Confidence, load_accelerator_records
from service.catalogue.quantities import read_quantity
from service.catalogue.sources import load_sources
from service.sizing.accelerator import Topology
from service.sizing.precision import Density, Precision

RECORDS = load_accelerator_records()
RACKS = ("gb200-nvl72", "gb300-nvl72", "vera-rubin-nvl72", "amd-helios", "groq-3-lpx")


@pytest.fixture(params=sorted(RECORDS))
def record(request: pytest.FixtureRequest) -> AcceleratorRecord:
    return RECORDS[request.param]


def test_every_figure_has_a_source_or_is_marked_unverified(record: AcceleratorRecord) -> None:
    known = {source.id: source for source in record.sources}
    for path, _, sources, unverified in record.figures():
        assert sources or unverified, path
        for source_id in sources:
            assert known[source_id].title, path
            assert known[source_id].url.startswith("https://"), path


def test_a_record_with_unverified_figures_says_so_in_its_caveats(record: AcceleratorRecord) -> None:
    if any(not sources for _, _, sources, _ in record.figures()):
        assert any("unverified" in caveat for caveat in record.caveats)


def test_share_times_gpus_is_the_printed_total_within_its_last_digit(record: AcceleratorRecord) -> None:
    for path, figure, _, _ in record.figures():
        if figure.total is not None:
            count = figure.total_gpu_count or record.gpu_count
            total = read_quantity(figure.total, figure.unit)
            # Each share may be rounded to its own last printed digit, up to half of it.
            rounding = 0.0 if figure.per_gpu is None else read_quantity(figure.per_gpu, figure.unit).last_digit / 2
            tolerance = total.last_digit + count * rounding
            assert figure.value_per_gpu(record.gpu_count) * count == pytest.approx(total.value, abs=tolerance), path


def test_no_dense_rate_exceeds_the_sparse_one(record: AcceleratorRecord) -> None:
    rates = record.to_accelerator().peak_rates_flop_per_s
    for (precision, density), rate in rates.items():
        if density is Density.DENSE:
            assert rate <= rates.get((precision, Density.SPARSE), rate)


def test_usable_memory_names_its_basis_and_stays_below_the_gib_reading_of_the_page(record: AcceleratorRecord) -> None:
    accelerator, usable = record.to_accelerator(), record.memory.usable
    assert usable.basis is not Basis.PUBLISHED
    assert usable.basis is not Basis.DERIVED or usable.derivation
    assert 0.6 < accelerator.usable_memory_bytes / accelerator.memory_capacity_bytes < 2**30 / 10**9 + 0.002


def test_all_records_that_were_compiled_are_shipped() -> None:
    assert len(RECORDS) >= 66
    assert {"h100", "gb200", "b200", "h200", "gb300", "b300"} <= {
        alias for r in RECORDS.values() for alias in r.aliases
    }


def test_every_source_of_the_registry_is_cited_by_some_record() -> None:
    cited = {source.id for record in RECORDS.values() for source in record.sources}
    assert set(load_sources()) == cited


@pytest.mark.parametrize(
    ("slug", "capacity", "bandwidth"),
    [
        ("gb200-nvl72", 13.4e12, 576e12),
        ("gb300-nvl72", 20e12, 576e12),
        ("vera-rubin-nvl72", 20.7e12, 1400e12),
        ("amd-helios", 31e12, 1.4e15),
        ("groq-3-lpx", 128e9, 40e15),
    ],
)
def test_rack_totals_are_stored_as_published(slug: str, capacity: Any, bandwidth: Any) -> None:
    record = RECORDS[slug]
    assert record.memory.capacity.value_total(record.gpu_count) == capacity
    assert record.memory.bandwidth is not None
    assert record.memory.bandwidth.value_total(record.gpu_count) == bandwidth


def test_an_unlabelled_rate_never_becomes_a_verified_dense_one() -> None:
    for record in RECORDS.values():
        for rate in record.peak_rates:
            if rate.headline is Headline.UNSTATED and rate.dense is not None:
                assert rate.dense.unverified or rate.unverified, (record.slug, rate.precision)


def test_parts_whose_density_is_unstated_offer_no_dense_rate() -> None:
    for slug, precision in (("cerebras-wse-3", Precision.FP16), ("rubin-cpx", Precision.NVFP4)):
        accelerator = RECORDS[slug].to_accelerator()
        assert accelerator.has_rate(precision, Density.SPARSE)
        assert not accelerator.has_rate(precision, Density.DENSE)


def test_what_was_recalled_is_marked_throughout() -> None:
    for record in RECORDS.values():
        if record.confidence is Confidence.FROM_MEMORY:
            for path, _, sources, unverified in record.figures():
                assert unverified or (path == "memory.usable" and sources), (record.slug, path)


def test_placeholders_of_provisioned_power_are_marked() -> None:
    # The publisher copies B200's and GB200's figures for B300 and GB300.
    for slug, watts in (("b300-sxm", 2170), ("gb300-nvl72", 2100)):
        provisioned = RECORDS[slug].power.provisioned
        assert provisioned is not None
        assert provisioned.value_per_gpu(1) == watts
        assert provisioned.unverified
        assert "placeholder" in (provisioned.note or "")


def test_power_shelves_are_not_the_load_of_a_rack() -> None:
    record = RECORDS["gb200-nvl72"]
    assert record.to_accelerator().system_power_w_per_gpu == 120_000 / 72
    shelves = {each.scope: each for each in record.power.system}["power_shelves_installed"]
    assert shelves.power_w == 8 * 33_000
    assert not shelves.is_load


def test_a_board_that_software_sees_as_several_devices_says_how_many_and_why() -> None:
    for slug, count in (("mi250x", 2), ("tpu-v7x", 2), ("tenstorrent-n300", 2), ("qualcomm-ai100-ultra", 4)):
        assert RECORDS[slug].devices_per_gpu == count
        assert RECORDS[slug].devices_per_gpu_reason


def test_a_mesh_splits_its_links_and_a_switch_does_not() -> None:
    mesh = RECORDS["mi300x"].to_accelerator().scale_up
    assert mesh.topology is Topology.DIRECT
    assert mesh.bandwidth_bytes_per_s_per_gpu_one_way == 896e9 / 2
    assert mesh.peer_bandwidth_bytes_per_s_one_way == 448e9 / 7  # 64 GB/s to each of seven peers
    switched = RECORDS["h100-sxm"].to_accelerator().scale_up
    assert switched.peer_bandwidth_bytes_per_s_one_way == switched.bandwidth_bytes_per_s_per_gpu_one_way == 900e9 / 2


def test_contradicting_values_are_kept_and_not_averaged() -> None:
    bandwidth = RECORDS["h200-nvl"].memory.bandwidth
    assert bandwidth is not None
    assert bandwidth.value_per_gpu(1) == 4.8e12  # product page
    assert [each.per_gpu for each in bandwidth.alternatives] == ["4.2 TB/s"]  # data sheet


@pytest.mark.parametrize("slug", RACKS)
def test_a_rack_counts_its_gpus(slug: str) -> None:
    assert RECORDS[slug].gpu_count > 1
