"""The catalogue of accelerators over HTTP: the promised shape, filters and pages, revisions and refusals."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.api.accelerator_document import accelerator_document
from service.api.accelerator_schemas import AcceleratorRead, AcceleratorSummary
from service.catalogue.accelerator_records import AcceleratorRecord, load_accelerator_records
from tests.api.assertions import assert_problem
from tests.catalogue.accelerator_examples import example_record

RECORDS = load_accelerator_records()


@pytest.mark.parametrize("slug", sorted(RECORDS))
def test_the_document_of_every_shipped_record_is_the_declared_one(slug: str) -> None:
    document = accelerator_document(RECORDS[slug], revision=1) | {"retired_at": None}
    AcceleratorRead.model_validate(document)
    assert document["unverified"] == [path for path, _, _, unverified in RECORDS[slug].figures() if unverified]


def test_gb200_nvl72_is_answered_as_promised(client: TestClient) -> None:
    answer = client.get("/accelerators/gb200-nvl72")
    assert answer.status_code == 200
    assert answer.headers["etag"] == '"1"'
    gb200 = answer.json()
    assert gb200["slug"] == "gb200-nvl72"
    assert "gb200" in gb200["aliases"]
    assert (gb200["name"], gb200["vendor"], gb200["kind"]) == ("GB200 NVL72", "NVIDIA", "rack")
    assert (gb200["status"], gb200["revision"], gb200["gpu_count"]) == ("shipping", 1, 72)
    memory = gb200["memory"]
    assert memory["type"] == "HBM3e"
    assert memory["capacity_bytes_total"] == 13.4e12
    assert memory["capacity_bytes_per_gpu"] == pytest.approx(13.4e12 / 72)
    assert memory["usable_bytes_per_gpu"] == 189_471 * 2**20
    assert memory["usable_basis"] == "driver_reported"
    assert memory["bandwidth_bytes_per_s_per_gpu"] == 576e12 / 72 == 8e12
    assert memory["as_published"] == "13.4 TB HBM3E | 576 TB/s"
    assert memory["derivation"] == "13.4 TB / 72; 576 TB/s / 72"
    assert memory["sources"][0]["url"] == "https://www.nvidia.com/en-us/data-center/gb200-nvl72/"
    assert memory["alternatives"]
    scale_up = gb200["scale_up"]
    assert scale_up["topology"] == "switched"
    assert scale_up["bandwidth_bytes_per_s_per_gpu_one_way"] == 1.8e12 / 2
    assert scale_up["peer_bandwidth_bytes_per_s_one_way"] == 9e11
    assert scale_up["domain_gpu_count"] == 72
    assert scale_up["derivation"] == "1.8 TB/s / 2 directions"
    assert gb200["scale_out"]["bandwidth_bytes_per_s_per_gpu_one_way"] == 400e9 / 8
    assert gb200["die_to_die_bandwidth_bytes_per_s"] == 10e12
    assert gb200["devices_per_gpu"] == 1
    power = gb200["power"]
    assert power["tdp_w_per_gpu"] == 1200
    assert (power["system"][0]["scope"], power["system"][0]["power_w"]) == ("rack_nominal", 120_000)
    assert power["provisioned_w_per_gpu"] == 2100
    assert gb200["caveats"]
    assert gb200["sources"]


def test_gb200_rates_keep_density_headline_and_derivation(client: TestClient) -> None:
    rates = client.get("/accelerators/gb200").json()["peak_rates"]
    fp8 = {rate["density"]: rate for rate in rates if rate["precision"] == "fp8"}
    assert fp8["dense"]["flop_per_s_per_gpu"] == 720e15 / 2 / 72 == 5e15
    assert fp8["sparse"]["flop_per_s_per_gpu"] == 720e15 / 72 == 1e16
    assert fp8["dense"]["headline"] == "sparse"
    assert fp8["dense"]["basis"] == "halved_by_footnote"
    assert fp8["dense"]["as_published"].startswith("720 PFLOPS")
    assert fp8["dense"]["derivation"].startswith("720 PFLOPS / 2 (")
    assert fp8["dense"]["derivation"].endswith(" / 72")


def test_gb200_balance_points_and_crossovers_for_every_published_rate(client: TestClient) -> None:
    gb200 = client.get("/accelerators/gb200").json()
    points = {(point["precision"], point["density"]): point for point in gb200["balance_points"]}
    assert len(points) == len(gb200["peak_rates"])
    assert points["nvfp4", "dense"]["flop_per_byte"] == 10e15 / 8e12 == 1250
    # balance x bytes per parameter / 2
    assert points["nvfp4", "dense"]["crossover_batches"] == {
        "nvfp4": 1250 * 0.5 / 2,
        "fp8": 1250 * 1 / 2,
        "bf16": 1250 * 2 / 2,
    }
    assert points["fp8", "dense"]["crossover_batches"]["fp8"] == 625 * 1 / 2
    assert points["bf16", "dense"]["crossover_batches"]["nvfp4"] == 312.5 * 0.5 / 2 == 78.125
    assert points["nvfp4", "sparse"]["flop_per_byte"] == 2500


def test_an_unknown_bandwidth_gives_no_balance_points(client: TestClient) -> None:
    sn40l = client.get("/accelerators/sambanova-sn40l").json()
    assert sn40l["memory"]["bandwidth_bytes_per_s_per_gpu"] is None
    assert sn40l["balance_points"] == []


def test_a_contradicting_value_stands_beside_the_one_used_in_the_same_unit(client: TestClient) -> None:
    rubin = client.get("/accelerators/vera-rubin-nvl72").json()
    assert rubin["scale_up"]["bandwidth_bytes_per_s_per_gpu_one_way"] == 3e12 / 2
    assert rubin["scale_up"]["alternatives"][0]["bandwidth_bytes_per_s_per_gpu_one_way"] == 3.6e12 / 2


def test_names_resolve_exactly_and_never_by_likeness(client: TestClient) -> None:
    assert client.get("/accelerators/gb200").json()["slug"] == "gb200-nvl72"
    assert client.get("/accelerators/h100").json()["slug"] == "h100-sxm"
    unknown = assert_problem(client.get("/accelerators/gb20"), 404, "unknown_accelerator")
    assert "gb200-nvl72" in unknown["detail"]


def test_head_and_if_none_match(client: TestClient) -> None:
    assert client.head("/accelerators/gb200").headers["etag"] == '"1"'
    assert client.head("/accelerators/gb200").content == b""
    unchanged = client.get("/accelerators/gb200", headers={"If-None-Match": '"1"'})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    etag = client.get("/accelerators").headers["etag"]
    assert client.get("/accelerators", headers={"If-None-Match": etag}).status_code == 304


def test_pages_hold_every_record_once(client: TestClient) -> None:
    slugs, cursor = [], None
    while True:
        page = client.get("/accelerators", params={"limit": 7, **({"cursor": cursor} if cursor else {})}).json()
        for item in page["items"]:
            AcceleratorSummary.model_validate(item)
        slugs += [item["slug"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert slugs == sorted(RECORDS)


def test_filters_narrow_the_list(client: TestClient) -> None:
    def slugs(**params: Any) -> set[str]:
        answer = client.get("/accelerators", params={"limit": 200, **params})
        assert answer.status_code == 200, answer.text
        return {item["slug"] for item in answer.json()["items"]}

    assert slugs(vendor="amd") == {slug for slug, record in RECORDS.items() if record.vendor == "AMD"}
    assert "gb200-nvl72" in slugs(kind="rack", vendor="NVIDIA")
    assert "h100-sxm" not in slugs(kind="rack")
    assert slugs(status="removed") == {"rubin-cpx"}
    assert {"gb200-nvl72", "b200-sxm", "rubin-cpx"} <= slugs(precision="nvfp4")
    assert "rubin-cpx" not in slugs(precision="nvfp4", density="dense")  # 30 PFLOPS, density unstated
    assert "h100-sxm" not in slugs(precision="nvfp4")
    assert "gb200-nvl72" in slugs(minimum_memory_bytes_per_gpu=190e9)  # 198.7e9 usable, 186.1e9 printed
    assert slugs(minimum_bandwidth_bytes_per_s_per_gpu=1e16) == {"cerebras-wse-3"}


def test_a_sort_by_bandwidth_begins_with_the_fastest(client: TestClient) -> None:
    answer = client.get("/accelerators", params={"sort": "-memory_bandwidth", "limit": 200}).json()
    bandwidths = [item["memory"]["bandwidth_bytes_per_s_per_gpu"] or 0 for item in answer["items"]]
    assert bandwidths == sorted(bandwidths, reverse=True)
    assert answer["items"][0]["slug"] == "cerebras-wse-3"


@pytest.mark.parametrize(
    "params",
    [
        {"colour": "green"},
        {"kind": "blade"},
        {"precision": "fp5"},
        {"sort": "beauty"},
        {"limit": 0},
        {"limit": 100_000},
        {"minimum_memory_bytes_per_gpu": "nan"},
        {"minimum_memory_bytes_per_gpu": -1},
        {"density": "dense"},
        {"cursor": "nonsense"},
    ],
)
def test_a_question_that_is_not_understood_is_refused(client: TestClient, params: Any) -> None:
    assert client.get("/accelerators", params=params).status_code == 422


@pytest.mark.parametrize("params", [{"revision": 0}, {"revision": "x"}, {"colour": "green"}, {"form": "poem"}])
def test_a_read_with_an_unknown_parameter_is_refused(client: TestClient, params: Any) -> None:
    assert client.get("/accelerators/gb200", params=params).status_code == 422


def test_a_curator_adds_replaces_reads_back_and_retires(client: TestClient) -> None:
    created = client.post("/accelerators", json=example_record())
    assert created.status_code == 201
    assert created.headers["location"] == "/accelerators/example-x8"
    assert created.headers["etag"] == '"1"'
    assert client.get("/accelerators/x8").json() == created.json()

    record = client.get("/accelerators/example-x8", params={"form": "record"}).json()
    assert AcceleratorRecord.model_validate(record) == AcceleratorRecord.model_validate(example_record())
    record["power"]["tdp"]["per_gpu"] = "1,100 W"
    replaced = client.put("/accelerators/example-x8", json=record, headers={"If-Match": '"1"'})
    assert (replaced.status_code, replaced.headers["etag"]) == (200, '"2"')
    assert client.get("/accelerators/x8").json()["power"]["tdp_w_per_gpu"] == 1100
    old = client.get("/accelerators/x8", params={"revision": 1})
    assert (old.json()["revision"], old.json()["power"]["tdp_w_per_gpu"]) == (1, 1000)
    assert old.headers["etag"] == '"1"'

    assert client.delete("/accelerators/example-x8", headers={"If-Match": '"2"'}).status_code == 204
    assert client.get("/accelerators/example-x8").json()["retired_at"] is not None
    sizing = client.post("/sizing", json={"model": "qwen3-8b", "accelerator": "example-x8"})
    assert_problem(sizing, 422, "record_retired")
    assert client.get("/accelerators/example-x8", params={"revision": 2}).json()["revision"] == 2
    history = client.get("/accelerators/example-x8/revisions").json()
    assert [(each["revision"], each["event"], each["origin"]) for each in history["revisions"]] == [
        (3, "retired", "user"),
        (2, "replaced", "user"),
        (1, "created", "user"),
    ]
    assert "example-x8" not in {item["slug"] for item in client.get("/accelerators?limit=200").json()["items"]}


def test_a_write_must_say_which_revision_it_replaces(client: TestClient) -> None:
    client.post("/accelerators", json=example_record())
    assert_problem(client.put("/accelerators/example-x8", json=example_record()), 428, "revision_required")
    stale = {"If-Match": '"7"'}
    assert_problem(
        client.put("/accelerators/example-x8", json=example_record(), headers=stale), 412, "revision_mismatch"
    )
    assert_problem(client.delete("/accelerators/example-x8"), 428, "revision_required")
    assert_problem(client.delete("/accelerators/example-x8", headers=stale), 412, "revision_mismatch")


def test_a_taken_name_is_a_conflict(client: TestClient) -> None:
    assert_problem(client.post("/accelerators", json=example_record(slug="gb200-nvl72")), 409, "name_taken")
    assert_problem(client.post("/accelerators", json=example_record(aliases=["gb200"])), 409, "name_taken")
    assert_problem(client.post("/accelerators", json=example_record(slug="gb200")), 409, "name_taken")


def test_body_and_path_must_name_the_same_record(client: TestClient) -> None:
    answer = client.put("/accelerators/h100-sxm", json=example_record(), headers={"If-Match": '"1"'})
    assert assert_problem(answer, 422, "invalid_value")["errors"][0]["pointer"] == "/slug"


def test_unknown_records_and_revisions_are_not_found(client: TestClient) -> None:
    assert_problem(client.get("/accelerators/gb200", params={"revision": 9}), 404, "unknown_revision")
    assert_problem(client.get("/accelerators/nothing/revisions"), 404, "unknown_accelerator")
    match = {"If-Match": '"1"'}
    assert_problem(
        client.put("/accelerators/example-x8", json=example_record(), headers=match), 404, "unknown_accelerator"
    )
    for name in ("nothing", "%00", "a%0Ab", "%F0%9F%92%A9"):
        assert_problem(client.delete(f"/accelerators/{name}", headers=match), 404, "unknown_accelerator")
        assert_problem(client.get(f"/accelerators/{name}?revision=1"), 404, "unknown_accelerator")


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"gpu_count": "8"}, "/gpu_count"),
        ({"colour": "green"}, "/colour"),
        ({"kind": "blade"}, "/kind"),
        ({"peak_rates": [{"precision": "fp8", "headline": "dense"}]}, "/peak_rates/0"),
        ({"sources": [{"id": "data-sheet", "title": "T", "urls": ["javascript:alert(1)"]}]}, "/sources/0/urls/0"),
    ],
)
def test_a_bad_record_is_refused_with_a_pointer(client: TestClient, change: Any, pointer: Any) -> None:
    refused = assert_problem(client.post("/accelerators", json=example_record(**change)), 422, "request_invalid")
    assert pointer in [error["pointer"] for error in refused["errors"]]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999"])
def test_a_number_that_json_does_not_have_is_refused(client: TestClient, number: Any) -> None:
    body = '{"slug": "x", "gpu_count": ' + number + "}"
    answer = client.post("/accelerators", content=body, headers={"Content-Type": "application/json"})
    assert 400 <= answer.status_code < 500
