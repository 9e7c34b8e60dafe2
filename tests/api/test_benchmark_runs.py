"""Benchmark runs over HTTP: listed, ranked, counted, exported, added and deleted."""

import csv
import io
import sys
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pyarrow import parquet  # type: ignore[import-untyped]

from service.catalogue.tables import RUN_FACETS
from tests.api.assertions import assert_problem

RUN: dict[str, Any] = {
    "accelerator": "gb200",
    "gpu_count": 8,
    "model": "meta-llama/Llama-3.3-70B-Instruct",
    "scenario": "closed_loop",
    "concurrency": 64,
    "weights": "NVFP4",
    "tp": 8,
    "engine": "vLLM",
    "metrics": [
        {"meaning": "tpot_s", "statistic": "p50", "value": 0.009},
        {"meaning": "output_tokens_per_s", "statistic": "overall", "value": 6400.0, "source_key": "output_throughput"},
    ],
    "measured_on": "2026-11-30",
}


def listed(client: TestClient, **parameters: Any) -> dict[str, Any]:
    answer = client.get("/benchmark-runs", params=parameters)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def test_a_run_of_ones_own_is_stored_under_the_records_that_its_names_mean(client: TestClient) -> None:
    created = client.post("/benchmark-runs", json=RUN)
    assert created.status_code == 201, created.text
    run = created.json()
    assert created.headers["location"] == f"/benchmark-runs/{run['id']}"
    assert (run["accelerator"], run["model"]) == ("gb200-nvl72", "llama-3.3-70b-instruct")
    assert (run["accelerator_revision"], run["origin"], run["calibrates"]) == (1, "user", True)
    assert (run["weights"], run["engine"], run["kv_cache"]) == ("nvfp4", "vllm", None)
    assert run["output_tokens_per_s_per_gpu"] == 6400.0 / 8
    assert client.get(f"/benchmark-runs/{run['id']}").json() == run
    assert listed(client, origin="user")["items"] == [run]


def test_the_very_same_run_again_is_answered_and_not_stored(client: TestClient) -> None:
    first, again = client.post("/benchmark-runs", json=RUN), client.post("/benchmark-runs", json=RUN)
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json() == again.json()
    other = client.post("/benchmark-runs", json={**RUN, "concurrency": 65})
    assert other.json()["id"] != first.json()["id"]


def test_a_release_is_stored_and_found_by_one_name_however_it_is_written(client: TestClient) -> None:
    tagged = client.post("/benchmark-runs", json={**RUN, "engine": "llama.cpp", "engine_version": "b5000"})
    again = client.post("/benchmark-runs", json={**RUN, "engine": "llama.cpp", "engine_version": "5000"})
    assert (tagged.status_code, again.status_code) == (201, 200)
    assert tagged.json()["engine_version"] == "5000"
    assert listed(client, engine_version="b5000", origin="user")["items"] == [tagged.json()]


def test_deleting_takes_a_users_run_away_and_refuses_a_shipped_one_with_the_reason(client: TestClient) -> None:
    mine = client.post("/benchmark-runs", json=RUN).json()["id"]
    assert client.delete(f"/benchmark-runs/{mine}").status_code == 204
    assert_problem(client.get(f"/benchmark-runs/{mine}"), 404, "unknown_benchmark_run")
    assert_problem(client.delete(f"/benchmark-runs/{mine}"), 404, "unknown_benchmark_run")
    shipped = listed(client, origin="shipped", limit=1)["items"][0]["id"]
    assert "ships" in assert_problem(client.delete(f"/benchmark-runs/{shipped}"), 409, "shipped_run_kept")["detail"]
    assert client.get(f"/benchmark-runs/{shipped}").status_code == 200


@pytest.mark.parametrize("run_id", ["nothing", "00zzzyd2j284ntz3h", "%00", "'; drop table benchmark_run; --"])
def test_an_id_that_is_none_is_unknown(client: TestClient, run_id: str) -> None:
    assert_problem(client.get(f"/benchmark-runs/{run_id}"), 404, "unknown_benchmark_run")


@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        ({"accelerator": "gb20"}, "/accelerator", "unknown_accelerator"),
        ({"model": "no-such-model"}, "/model", "unknown_model"),
        ({"weights": "fp88"}, "/weights", "unknown_choice"),
        ({"scenario": "offline"}, "/scenario", "request_invalid"),
        ({"gpu_count": 0}, "/gpu_count", "request_invalid"),
        ({"metrics": []}, "/metrics", "request_invalid"),
        ({"metrics": [{"meaning": "tpot_ms", "value": 9}]}, "/metrics/0/meaning", "request_invalid"),
        ({"metrics": [{"meaning": "tpot_s", "value": 0}]}, "/metrics/0/value", "request_invalid"),
        ({"engine": "v\u0000llm"}, "/engine", "request_invalid"),
        ({"conncurrency": 4}, "/conncurrency", "request_invalid"),
        ({"power_w": 700.0}, "", "request_invalid"),
        ({"measured_on": "2026-13"}, "/measured_on", "request_invalid"),
        ({"measured_on": "2026-02-30"}, "/measured_on", "request_invalid"),
        ({"measured_on": "2190-01-01"}, "/measured_on", "request_invalid"),
        ({"measured_on": "2190"}, "/measured_on", "request_invalid"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_field(
    client: TestClient, change: dict[str, Any], pointer: str, code: str
) -> None:
    document = assert_problem(client.post("/benchmark-runs", json={**RUN, **change}), 422, code)
    assert [each["pointer"] for each in document["errors"]] == [pointer]


def test_a_ranking_wants_one_scenario_or_says_that_it_mixes_them(client: TestClient) -> None:
    for scenarios in ([], ["closed_loop", "offline_max"]):
        answer = client.get("/benchmark-runs", params={"sort": "tpot_central_s", "scenario": scenarios})
        assert_problem(answer, 422, "scenario_required")
    ranked = listed(client, sort="tpot_central_s", scenario="closed_loop", limit=100)["items"]
    figures = [run["tpot_central_s"] for run in ranked]
    assert figures == sorted(figures)
    assert None not in figures
    assert {run["scenario"] for run in ranked} == {"closed_loop"}
    mixed = listed(client, sort="-output_tokens_per_s", mixed_scenarios=True, limit=200)["items"]
    assert len({run["scenario"] for run in mixed}) > 1


def test_pages_follow_each_other_and_a_cursor_is_of_its_own_list_alone(client: TestClient) -> None:
    question = {"scenario": "mlperf_server", "sort": "-output_tokens_per_s_per_gpu", "limit": 40}
    seen, cursor = [], None
    while True:
        page = listed(client, **question, **({"cursor": cursor} if cursor else {}))
        seen += [run["id"] for run in page["items"]]
        if page["next_cursor"] is None:
            break
        cursor = page["next_cursor"]
    assert len(set(seen)) == len(seen) > 200
    assert_problem(client.get("/benchmark-runs", params={"cursor": cursor}), 422, "cursor_invalid")
    assert_problem(client.get("/benchmark-runs", params={"cursor": "bm9uc2Vuc2U"}), 422, "cursor_invalid")


def test_facets_count_what_matches(client: TestClient) -> None:
    answer = listed(client, accelerator=["mi300x", "mi325x"], facets=["accelerator", "scenario", "calibrates"], limit=1)
    by_accelerator = {each["value"]: each["run_count"] for each in answer["facets"]["accelerator"]}
    assert set(by_accelerator) == {"mi300x", "mi325x"}
    for name in ("scenario", "calibrates"):
        assert sum(each["run_count"] for each in answer["facets"][name]) == sum(by_accelerator.values())
    assert listed(client, limit=1)["facets"] is None
    client.post("/benchmark-runs", json=RUN)
    assert listed(client, facets="origin", limit=1)["facets"]["origin"][-1] == {"value": "user", "run_count": 1}


def test_a_filter_by_each_value_that_a_facet_counts_finds_so_many(client: TestClient) -> None:
    """Whatever the shipped runs say: precisions by the word of their source, releases, systems without a GPU."""
    facets = listed(client, facets=list(RUN_FACETS), limit=1)["facets"]
    assert set(facets) == set(RUN_FACETS)
    for name, counts in facets.items():
        for each in counts:
            if each["value"] is not None:
                found = listed(client, **{name: each["value"]}, facets=name, limit=1)
                assert found["items"], (name, each)
                if found["facets_are_complete"]:
                    assert found["facets"][name] == [each]


def test_ranges_and_filters_hold_together(client: TestClient) -> None:
    items = listed(
        client, accelerator="h100-sxm", weights="FP8", min_concurrency=16, max_concurrency=64, measured_on="2025"
    )["items"]
    assert items
    for run in items:
        assert (run["accelerator"], run["weights"]) == ("h100-sxm", "fp8")
        assert 16 <= run["concurrency"] <= 64
        assert run["measured_on"].startswith("2025")


@pytest.mark.parametrize(
    ("parameters", "status", "code"),
    [
        ({"accelerator": "gb20"}, 404, "unknown_accelerator"),
        ({"model": "\u0000"}, 422, "request_invalid"),
        ({"min_ttft_p50_s": "nan"}, 422, "request_invalid"),
        ({"tp": "99999999999999999999"}, 422, "request_invalid"),
        ({"sort": "pair_key"}, 422, "request_invalid"),
        ({"colour": "red"}, 422, "request_invalid"),
        ({"limit": 100000}, 422, "request_invalid"),
        ({"limit": [5, 6]}, 422, "request_invalid"),
        ({"limit": ""}, 422, "request_invalid"),
        ({"calibrates": ""}, 422, "request_invalid"),
        ({"accelerator": ["gb200", ""]}, 422, "request_invalid"),
        ({"measured_on": ["2025", "2026"]}, 422, "request_invalid"),
    ],
)
def test_a_question_that_cannot_be_answered_is_refused(
    client: TestClient, parameters: dict[str, Any], status: int, code: str
) -> None:
    assert_problem(client.get("/benchmark-runs", params=parameters), status, code)


@pytest.mark.parametrize("path", ["/benchmark-runs", "/benchmark-run-pairs"])
@pytest.mark.parametrize(
    ("parameter", "word", "code", "detail"),
    [
        ("weights", "fp9", "unknown_choice", "'fp9' is not known here; known are awq-int4, "),
        ("kv_cache", "fp9", "unknown_choice", "'fp9' is not known here; known are awq-int4, "),
        ("compute", "fp9", "unknown_choice", "'fp9' is not known here; known are awq-int4, "),
        ("mlperf_division", "clsoed", "unknown_choice", "'clsoed' is not known here; known are closed, network, open"),
        (
            "measured_on",
            "2026-13",
            "request_invalid",
            "the calendar has no such day: write it as 2026-12-01, 2026-12 or 2026",
        ),
    ],
)
def test_a_filter_by_what_no_run_can_have_is_refused_with_what_is_known(  # noqa: PLR0917 - parameters
    client: TestClient, path: str, parameter: str, word: str, code: str, detail: str
) -> None:
    (error,) = assert_problem(client.get(path, params={parameter: word}), 422, code)["errors"]
    assert error["parameter"] == parameter
    assert error["detail"].startswith(detail)


def test_a_filter_by_what_no_run_has_but_may_have_finds_none(client: TestClient) -> None:
    assert listed(client, weights="w4a16-nvfp4")["items"] == []
    assert listed(client, engine="no-such-engine")["items"] == []  # engines are named freely
    assert listed(client, weights="Q4_K_XL")["items"]  # as one source names it, and not one of the schemes
    assert listed(client, weights="q5_k_s", mlperf_division="Closed")["items"] == []


def test_a_day_that_is_written_wrongly_is_answered_with_an_example(client: TestClient) -> None:
    document = assert_problem(client.get("/benchmark-runs", params={"measured_on": "today"}), 422, "request_invalid")
    assert document["detail"] == "measured_on: it is not written as it should be, such as 2026-12-01"


def test_csv_holds_every_run_that_matches_and_runs_no_formula(client: TestClient) -> None:
    client.post("/benchmark-runs", json={**RUN, "measured_by": "=HYPERLINK(1)"})
    for headers, parameters in (({"Accept": "text/csv"}, {}), ({}, {"format": "csv"})):
        answer = client.get("/benchmark-runs", params={"accelerator": "gb200", **parameters}, headers=headers)
        assert answer.headers["content-type"].startswith("text/csv")
        rows = list(csv.DictReader(io.StringIO(answer.text)))
        count = sum(
            each["run_count"]
            for each in listed(client, accelerator="gb200", facets="origin", limit=1)["facets"]["origin"]
        )
        assert len(rows) == count > 200
        (mine,) = [row for row in rows if row["origin"] == "user"]
        assert (mine["measured_by"], mine["power_w"], mine["calibrates"]) == ("'=HYPERLINK(1)", "", "true")


def test_parquet_holds_the_same_runs_with_the_same_types_whatever_they_say(client: TestClient) -> None:
    answer = client.get("/benchmark-runs", params={"format": "parquet", "submitter": "AMD"})
    assert answer.headers["content-type"] == "application/vnd.apache.parquet"
    table = parquet.read_table(io.BytesIO(answer.content))
    empty = client.get("/benchmark-runs", params={"format": "parquet", "submitter": "nobody"})
    assert parquet.read_table(io.BytesIO(empty.content)).schema == table.schema
    assert table.num_rows == len(listed(client, submitter="AMD", limit=200)["items"])
    assert (str(table.schema.field("tp").type), str(table.schema.field("power_w").type)) == ("int64", "double")


def test_without_the_extra_parquet_is_not_acceptable_and_the_answer_says_what_is(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # as on a machine where it is not installed
    document = assert_problem(client.get("/benchmark-runs", params={"format": "parquet"}), 406, "not_acceptable")
    assert "format=csv" in document["detail"]


def test_a_form_that_nobody_makes_is_not_acceptable(client: TestClient) -> None:
    assert_problem(client.get("/benchmark-runs", headers={"Accept": "application/xml"}), 406, "not_acceptable")


def test_offline_and_server_stand_side_by_side_with_their_ratio(client: TestClient) -> None:
    answer = client.get("/benchmark-run-pairs", params={"mlperf_version": "v5.1", "limit": 100})
    pairs = answer.json()["items"]
    assert len(pairs) > 50
    for pair in pairs:
        assert (pair["offline"]["scenario"], pair["other"]["scenario"]) == ("mlperf_offline", "mlperf_server")
        assert pair["offline"]["system_name"] == pair["other"]["system_name"]
    interactive = client.get("/benchmark-run-pairs", params={"other": "interactive", "limit": 10}).json()
    assert {pair["other"]["scenario"] for pair in interactive["items"]} == {"mlperf_interactive"}
    more = {"other": "interactive", "limit": 10, "cursor": interactive["next_cursor"]}
    following = client.get("/benchmark-run-pairs", params=more).json()["items"]
    assert {pair["offline"]["id"] for pair in following}.isdisjoint(
        pair["offline"]["id"] for pair in interactive["items"]
    )
