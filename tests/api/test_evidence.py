"""Stored runs sharpen answers at once, are named in them, and take their effect along when they go."""

import json
from collections import Counter
from collections.abc import Iterator
from math import exp
from threading import Event, Thread
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.api.sizing_examples import EXAMPLES
from service.app import create_app
from service.catalogue.live_evidence import run_id_of
from service.settings import Settings
from tests.api.assertions import assert_problem
from tests.api.conftest import catalogue_of

# A pair that no shipped run has: Phi-4 on an H200.
QUESTION: dict[str, Any] = {
    "model": "phi-4",
    "accelerator": "h200-sxm",
    "parallelism": {"tp": 1},
    "workload": {"isl_tokens": 2048, "osl_tokens": 512, "concurrency": 16},
    "engine": {"name": "vllm", "version": "0.19.0"},
}
RUN: dict[str, Any] = {
    "accelerator": "h200-sxm",
    "gpu_count": 1,
    "model": "phi-4",
    "scenario": "closed_loop",
    "concurrency": 16,
    "isl_mean_tokens": 2048,
    "osl_mean_tokens": 512,
    "weights": "bf16",
    "engine": "vllm",
    "engine_version": "0.19.0",
    "tp": 1,
    "measured_by": "performance team",
}


def run_of(*, tpot_s: float, ttft_s: float) -> dict[str, Any]:
    metrics = {"tpot_s": tpot_s, "ttft_s": ttft_s}
    return RUN | {"metrics": [{"meaning": name, "statistic": "p50", "value": value} for name, value in metrics.items()]}


@pytest.fixture
def leaning(settings: Settings) -> Iterator[TestClient]:
    """With the shipped runs as evidence, as the service is by default."""
    with TestClient(create_app(settings.model_copy(update={"lean_on_runs": True}))) as client:
        yield client


def asked(client: TestClient, question: dict[str, Any] = QUESTION) -> dict[str, Any]:
    answer = client.post("/sizing", json=question)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def half_width(estimate: dict[str, Any]) -> float:
    return float(estimate["high"] / estimate["value"])


def test_a_stored_run_makes_the_next_answer_closer_and_narrower_and_deleting_it_takes_that_back(
    leaning: TestClient,
) -> None:
    before = asked(leaning)
    tpot = before["serving"]["tpot_s"]
    measured_s = 1.2 * tpot["value"]
    stored = leaning.post("/benchmark-runs", json=run_of(tpot_s=measured_s, ttft_s=0.2))
    assert stored.status_code == 201, stored.text

    after = asked(leaning)
    sharper = after["serving"]["tpot_s"]
    assert abs(sharper["value"] - measured_s) < abs(tpot["value"] - measured_s)
    assert half_width(sharper) < half_width(tpot)
    assert sharper["basis"] == "measured"
    leads = [each for each in after["evidence"]["runs"] if each["estimate"] == "serving.tpot_s"]
    assert leads[0]["benchmark_run"] == stored.json()["id"]
    assert leads[0]["measured"] == {"tpot_s": pytest.approx(measured_s)}
    assert after["evidence"]["revision"] == before["evidence"]["revision"] + 1

    # what was said of measuring this point has come true, but for the factor that depends on the distance
    (expected,) = (
        each for each in before["evidence"]["next_measurement"]["narrows"] if each["estimate"] == "serving.tpot_s"
    )
    assert before["evidence"]["next_measurement"]["scenario"] == "closed_loop"
    width = (sharper["high"] - sharper["low"]) / sharper["value"]
    assert width == pytest.approx(expected["expected_interval_width_fraction"], rel=0.1)

    assert leaning.delete(f"/benchmark-runs/{stored.json()['id']}").status_code == 204
    back = asked(leaning)
    assert {**back, "evidence": {**back["evidence"], "revision": 0}} == {
        **before,
        "evidence": {**before["evidence"], "revision": 0},
    }


def test_an_answer_names_stored_runs_that_can_be_read(leaning: TestClient) -> None:
    evidence = asked(leaning)["evidence"]
    assert 0 < evidence["distance_fraction"] < 1
    assert {each["estimate"] for each in evidence["estimates"]} == {
        "serving.tpot_s",
        "serving.ttft_s",
        "decode.single_user_tokens_per_s",
        "prefill.time_s",
    }
    first = evidence["runs"][0]
    run = leaning.get(f"/benchmark-runs/{first['benchmark_run']}").json()
    assert run["calibrates"]
    assert run["tpot_central_s"] == pytest.approx(first["measured"]["tpot_s"])


def test_a_disaggregated_answer_names_stored_runs_of_its_decode_step(leaning: TestClient) -> None:
    example = EXAMPLES["disaggregated"]["value"]
    assert example is not None
    evidence = asked(leaning, example)["evidence"]
    assert 0 < evidence["distance_fraction"] < 1
    first = evidence["runs"][0]
    assert (first["estimate"], first["phase"]) == ("serving.tpot_s", "disaggregated")
    assert leaning.get(f"/benchmark-runs/{first['benchmark_run']}").status_code == 200
    assert evidence["next_measurement"] is None


def test_an_imported_file_sharpens_the_next_answer(leaning: TestClient) -> None:
    before = asked(leaning)["serving"]["tpot_s"]
    result = {
        "date": "20261130-120000",
        "backend": "vllm",
        "model_id": "microsoft/phi-4",
        "num_prompts": 64,
        "request_rate": "inf",
        "max_concurrency": 16,
        "duration": 40.0,
        "completed": 64,
        "total_input_tokens": 64 * 2048,
        "total_output_tokens": 64 * 512,
        "request_throughput": 1.6,
        "output_throughput": 819.2,
        "mean_ttft_ms": 200.0,
        "median_ttft_ms": 200.0,
        "mean_tpot_ms": 1100 * before["value"],
        "median_tpot_ms": 1100 * before["value"],
    }
    said = {name: RUN[name] for name in ("accelerator", "gpu_count", "model", "engine_version", "tp")}
    said["precision"] = {"weights": "bf16", "kv_cache": "bf16"}
    answer = leaning.post(
        "/benchmark-run-imports",
        files={"files": ("result.json", json.dumps(result), "application/json")},
        data={"metadata": json.dumps(said)},
    )
    assert answer.status_code == 201, answer.text
    after = asked(leaning)["serving"]["tpot_s"]
    assert half_width(after) < half_width(before)
    assert before["value"] < after["value"]


def test_a_run_is_predicted_from_the_others_alone(leaning: TestClient) -> None:
    expected = asked(leaning)["serving"]
    predicted = []
    for factor in (0.8, 1.2):
        run = run_of(tpot_s=factor * expected["tpot_s"]["value"], ttft_s=0.2)
        stored = leaning.post("/benchmark-runs", json=run).json()
        answer = leaning.get(f"/benchmark-runs/{stored['id']}/prediction").json()
        assert answer["not_leant_on"] == []
        tpot, ttft = answer["predictions"]
        assert (tpot["measure"], ttft["measure"]) == ("tpot_s", "ttft_s")
        assert tpot["measured_s"] == pytest.approx(factor * expected["tpot_s"]["value"])
        assert tpot["measured_over_predicted_fraction"] == pytest.approx(factor, rel=0.02)
        assert stored["id"] not in {each["benchmark_run"] for each in tpot["runs"]}
        predicted.append(tpot["predicted_s"])
        assert leaning.delete(f"/benchmark-runs/{stored['id']}").status_code == 204
    assert predicted[0]["value"] == pytest.approx(predicted[1]["value"])  # whatever it measured
    assert predicted[0]["value"] == pytest.approx(expected["tpot_s"]["value"], rel=0.01)


def test_a_run_of_an_old_release_and_a_question_about_it_are_of_one_age(leaning: TestClient) -> None:
    """Measured long after its release: the day of the run must not stand in for that of the release."""
    old = QUESTION | {"engine": {"name": "vllm", "version": "0.7.3"}}
    expected_s = asked(leaning, old)["serving"]["tpot_s"]["value"]
    run = run_of(tpot_s=expected_s, ttft_s=0.2) | {"engine_version": "0.7.3", "measured_on": "2026-04-15"}
    stored = leaning.post("/benchmark-runs", json=run)
    assert stored.status_code == 201, stored.text
    answer = asked(leaning, old)
    (tpot, _) = leaning.get(f"/benchmark-runs/{stored.json()['id']}/prediction").json()["predictions"]
    (lead,) = (
        each
        for each in answer["evidence"]["runs"]
        if each["benchmark_run"] == stored.json()["id"] and each["estimate"] == "serving.tpot_s"
    )
    assert lead["predicted"]["tpot_s"] == pytest.approx(tpot["physics_s"])
    assert tpot["predicted_s"]["value"] == pytest.approx(expected_s, rel=1e-6)
    assert answer["serving"]["tpot_s"]["value"] == pytest.approx(expected_s, rel=0.01)
    (said,) = (each for each in answer["assumptions"] if each["field"] == "engine.layer_overhead_ratio")
    assert said["value"] == pytest.approx(exp(0.403 * 0.859), abs=0.001)  # out by 22 February 2025
    assert asked(leaning)["serving"]["tpot_s"]["value"] < expected_s  # 0.19.0 is of 2026


@pytest.mark.parametrize("scenario", ["mlperf_server", "open_loop"])
def test_a_run_that_cannot_be_predicted_says_why(leaning: TestClient, scenario: str) -> None:
    run = leaning.get("/benchmark-runs", params={"scenario": scenario, "limit": 1}).json()["items"][0]
    answer = leaning.get(f"/benchmark-runs/{run['id']}/prediction").json()
    assert answer["predictions"] == []
    assert scenario in answer["not_leant_on"][0]


@pytest.mark.parametrize("run_id", ["0" * 18, "not-an-id"])
def test_the_prediction_of_an_unknown_run_is_refused(client: TestClient, run_id: str) -> None:
    assert_problem(client.get(f"/benchmark-runs/{run_id}/prediction"), 404, "unknown_benchmark_run")


def test_hardware_far_from_every_run_is_answered_by_physics_and_says_so(leaning: TestClient) -> None:
    answer = asked(leaning, QUESTION | {"accelerator": "gaudi-3"})
    near = asked(leaning)["serving"]["tpot_s"]
    assert half_width(answer["serving"]["tpot_s"]) > half_width(near)
    assert answer["serving"]["tpot_s"]["coverage_fraction"] is None
    said = {each["code"]: each["detail"] for each in answer["warnings"]}
    assert "no_coverage_measured" in said
    assert "prefill" in said["outside_evidence"]
    assert answer["prefill"]["time_s"]["basis"] == "modelled"


def test_a_lone_run_that_the_others_contradict_widens_the_answer_and_is_named(leaning: TestClient) -> None:
    before = asked(leaning)["serving"]["tpot_s"]
    run = run_of(tpot_s=2.9 * before["value"], ttft_s=0.1)
    stored = leaning.post("/benchmark-runs", json=run)
    assert stored.status_code == 201
    answer = asked(leaning)
    after = answer["serving"]["tpot_s"]
    assert after["high"] >= 2.9 * before["value"] * (1 - 1e-9)
    assert after["basis"] == "calibrated"
    assert "evidence_disagrees" in {each["code"] for each in answer["warnings"]}


def test_by_physics_alone_nothing_is_leant_on(client: TestClient) -> None:
    evidence = asked(client)["evidence"]
    assert evidence == {
        "distance_fraction": 1.0,
        "revision": None,
        "estimates": [],
        "runs": [],
        "next_measurement": None,
    }
    assert client.get("/health/ready").json()["evidence_count"] is None


def test_a_model_that_takes_the_published_name_of_runs_is_what_they_are_compared_with(leaning: TestClient) -> None:
    """AMD's checkpoint has no record of its own at first: its runs are of the model whose other name they state."""
    name = "amd/Llama-3.1-405B-Instruct-FP8-KV"
    found = leaning.get("/benchmark-runs", params={"model_name": name, "limit": 200, "calibrates": "true"}).json()
    published = {each["id"] for each in found["items"]}

    def layer_counts() -> dict[str, int]:
        evidence = catalogue_of(leaning).current.evidence
        assert evidence is not None
        stored = {run: key.architecture for run, key in evidence.store.configurations.items()}
        return Counter(each.split("x")[0] for run, each in stored.items() if run_id_of(run) in published)

    before = layer_counts()
    assert set(before) == {"126"}
    config = leaning.get("/models/llama-3.1-405b-instruct").json()["config"] | {"num_hidden_layers": 120}
    body = {"config": config, "aliases": [name]}
    created = leaning.post("/models", json=body | {"slug": "amd-405b"})
    assert created.status_code == 201, created.text
    assert set(layer_counts()) == {"120"}
    replaced = leaning.put("/models/amd-405b", json=body | {"aliases": []}, headers={"If-Match": '"1"'})
    assert replaced.status_code == 200, replaced.text
    assert layer_counts() == before


def test_no_answer_has_the_catalogue_of_one_moment_and_the_evidence_of_another(leaning: TestClient) -> None:
    catalogue = catalogue_of(leaning)
    seen, is_over = [catalogue.current], Event()

    def watch() -> None:
        while not is_over.wait(1e-4):
            if catalogue.current is not seen[-1]:
                seen.append(catalogue.current)

    watching = Thread(target=watch, daemon=True)
    watching.start()
    config = leaning.get("/models/phi-4").json()["config"]
    for number in range(3):
        leaning.post("/models", json={"slug": f"phi-of-{number}", "config": config}).raise_for_status()
        leaning.post("/benchmark-runs", json=run_of(tpot_s=0.02, ttft_s=0.2 + number)).raise_for_status()
    is_over.set()
    watching.join()
    assert seen[-1].snapshot.revision == seen[0].snapshot.revision + 3
    for known in seen:
        assert known.evidence is not None
        assert known.evidence.snapshot is known.snapshot
