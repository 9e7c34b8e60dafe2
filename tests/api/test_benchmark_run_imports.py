"""Result files over HTTP: each stored whole or not at all, once by content, with a report that says what is missing."""

import io
import json
import zipfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response

from service.app import create_app
from service.settings import Settings
from tests.api.assertions import assert_problem
from tests.imports.reading import SAMPLES, VLLM_SERVE

KNOWN = {"accelerator": "h100-sxm", "gpu_count": 4, "precision": "fp8", "model": "llama-3.3-70b-instruct"}
SERVE = json.dumps(VLLM_SERVE).encode()


def other_serve(number: int) -> bytes:
    """The file of another run."""
    return json.dumps({**VLLM_SERVE, "output_throughput": 1000.0 + number}).encode()


def send(
    client: TestClient, *files: tuple[str, bytes], metadata: Mapping[str, Any] | str | None = None, **parameters: Any
) -> Response:
    said = metadata if isinstance(metadata, str) else json.dumps(KNOWN if metadata is None else metadata)
    parts = [("files", (name, io.BytesIO(content))) for name, content in files]
    answer: Response = client.post("/benchmark-run-imports", files=parts, data={"metadata": said}, params=parameters)
    return answer


def zipped(**files: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def users_runs(client: TestClient) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = client.get("/benchmark-runs", params={"origin": "user", "limit": 200}).json()["items"]
    return items


def test_a_file_is_stored_with_what_it_says_and_what_the_form_adds(client: TestClient) -> None:
    answer = send(client, ("serve.json", SERVE))
    assert answer.status_code == 201, answer.text
    (file,) = answer.json()["files"]
    assert (file["name"], file["kind"], file["accepted"], file["reason"]) == (
        "serve.json",
        "vllm-bench-serve",
        True,
        None,
    )
    run = client.get(f"/benchmark-runs/{file['runs'][0]['id']}").json()
    assert (run["accelerator"], run["gpu_count"], run["weights"]) == ("h100-sxm", 4, "fp8")
    assert (run["model"], run["model_name"]) == ("llama-3.3-70b-instruct", VLLM_SERVE["model_id"])
    assert run["output_tokens_per_s"] == pytest.approx(VLLM_SERVE["output_throughput"])
    assert run["ttft_p50_s"] == pytest.approx(float(str(VLLM_SERVE["median_ttft_ms"])) / 1000)
    keys = {(each["meaning"], each["statistic"]): each["source_key"] for each in run["metrics"]}
    assert keys["ttft_s", "p99"] == "p99_ttft_ms"
    assert "accelerator_count" in run["inferred"]
    assert run["file_name"] == "serve.json"


def test_the_same_content_again_is_the_same_run_and_says_what_was_said_otherwise(client: TestClient) -> None:
    first = send(client, ("serve.json", SERVE)).json()["files"][0]
    again = send(client, ("renamed.json", SERVE), metadata={**KNOWN, "precision": "bf16"})
    assert again.status_code == 201
    (file,) = again.json()["files"]
    assert file["runs"] == [
        {
            "id": first["runs"][0]["id"],
            "already_stored": True,
            "not_taken_over": [{"field": "weights", "stored": "fp8", "sent": "bf16"}],
            "not_leant_on": [],
        }
    ]
    assert len(users_runs(client)) == 1


def test_better_metadata_for_a_stored_file_is_reported_as_not_taken_over_until_the_run_is_deleted(
    client: TestClient,
) -> None:
    sweep = b"\n".join(other_serve(number) for number in (1, 2))
    first, second = (run["id"] for run in send(client, ("sweep.jsonl", sweep)).json()["files"][0]["runs"])
    better = {**KNOWN, "engine_version": "0.33.0", "prefix_caching": False, "max_num_seqs": 256, "utc_offset": "+01:00"}
    (file,) = send(client, ("sweep.jsonl", sweep), metadata=better).json()["files"]
    assert [(run["id"], run["already_stored"]) for run in file["runs"]] == [(first, True), (second, True)]
    # The run of 2 s ended at 19:55:53 of a clock that is one hour ahead of UTC.
    assert file["runs"][0]["not_taken_over"] == [
        {"field": "engine_version", "stored": None, "sent": "0.33.0"},
        {"field": "prefix_caching", "stored": None, "sent": False},
        {"field": "max_num_seqs", "stored": None, "sent": "256"},
        {"field": "started_at", "stored": "2026-12-01T19:55:51", "sent": "2026-12-01T19:55:51+01:00"},
        {"field": "finished_at", "stored": "2026-12-01T19:55:53", "sent": "2026-12-01T19:55:53+01:00"},
    ]
    (said,) = (warning for warning in file["warnings"] if "stored already" in warning)
    assert said == (
        f"{first}, {second} are stored already and stay as they are; not taken over: engine_version 0.33.0 (stored: "
        "unknown), prefix_caching false (stored: unknown), max_num_seqs 256 (stored: unknown), started_at "
        "2026-12-01T19:55:51+01:00 (stored: 2026-12-01T19:55:51), finished_at 2026-12-01T19:55:53+01:00 (stored: "
        "2026-12-01T19:55:53); to store that, delete them and import the file again"
    )
    assert client.get(f"/benchmark-runs/{first}").json()["engine_version"] is None
    for run_id in (first, second):
        client.delete(f"/benchmark-runs/{run_id}")
    (anew,) = send(client, ("sweep.jsonl", sweep), metadata=better).json()["files"]
    assert [run["not_taken_over"] for run in anew["runs"]] == [[], []]
    assert client.get(f"/benchmark-runs/{anew['runs'][0]['id']}").json()["engine_version"] == "0.33.0"
    (less,) = send(client, ("sweep.jsonl", sweep)).json()["files"]
    assert [run["not_taken_over"] for run in less["runs"]] == [[], []]  # what is left out contradicts nothing


def test_a_file_sent_twice_at_once_or_inside_an_archive_is_stored_once(client: TestClient) -> None:
    files = (("a.json", SERVE), ("b.json", SERVE), ("c.zip", zipped(**{"d/e.json": SERVE})))
    reports = send(client, *files).json()["files"]
    assert [each["name"] for each in reports] == ["a.json", "b.json", "c.zip/d/e.json"]
    assert len({each["runs"][0]["id"] for each in reports}) == len(users_runs(client)) == 1


def test_clients_that_send_one_file_at_the_same_time_make_one_run(client: TestClient) -> None:
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: send(client, ("serve.json", SERVE)), range(8)))
    assert {answer.status_code for answer in answers} == {201}
    assert len({answer.json()["files"][0]["runs"][0]["id"] for answer in answers}) == 1
    assert len(users_runs(client)) == 1


def test_what_is_missing_is_named_field_by_field_and_nothing_is_stored(client: TestClient) -> None:
    answer = send(client, ("serve.json", SERVE), metadata={})
    document = assert_problem(answer, 422, "nothing_stored")
    pointers = [each["pointer"] for each in document["errors"]]
    assert {"/metadata/accelerator", "/metadata/gpu_count", "/metadata/precision"} <= set(pointers)
    (file,) = document["files"]
    assert (file["accepted"], file["runs"]) == (False, [])
    assert {"accelerator", "gpu_count", "precision"} <= set(file["missing"])
    assert users_runs(client) == []


def test_what_nobody_knows_is_stored_as_unknown(client: TestClient) -> None:
    said = {"accelerator": "h100-sxm", "gpu_count": 4, "model": "llama-3.3-70b-instruct", "nobody_knows": ["precision"]}
    (file,) = send(client, ("serve.json", SERVE), metadata=said).json()["files"]
    assert client.get(f"/benchmark-runs/{file['runs'][0]['id']}").json()["weights"] is None


def test_each_file_stands_by_itself(client: TestClient) -> None:
    cut = SERVE[: len(SERVE) // 2]
    answer = send(client, ("cut.json", cut), ("serve.json", SERVE), ("empty.json", b""), ("readme.txt", b"hello"))
    assert answer.status_code == 201
    reports = {each["name"]: each for each in answer.json()["files"]}
    assert {name: each["accepted"] for name, each in reports.items()} == {
        "cut.json": False,
        "serve.json": True,
        "empty.json": False,
        "readme.txt": False,
    }
    assert all(each["reason"] for name, each in reports.items() if name != "serve.json")
    assert len(users_runs(client)) == 1


def test_atomic_stores_all_or_none(client: TestClient) -> None:
    broken = send(client, ("serve.json", SERVE), ("readme.txt", b"hello"), atomic="true")
    document = assert_problem(broken, 422, "nothing_stored")
    assert [each["accepted"] for each in document["files"]] == [False, False]
    assert users_runs(client) == []
    whole = send(client, ("a.json", SERVE), ("b.json", other_serve(1)), atomic="true")
    assert whole.status_code == 201
    assert len(users_runs(client)) == 2


def test_a_deleted_run_may_be_imported_anew(client: TestClient) -> None:
    first = send(client, ("serve.json", SERVE)).json()["files"][0]["runs"][0]["id"]
    assert client.delete(f"/benchmark-runs/{first}").status_code == 204
    (file,) = send(client, ("serve.json", SERVE)).json()["files"]
    assert not file["runs"][0]["already_stored"]
    assert file["runs"][0]["id"] != first


def test_a_name_that_only_the_file_says_is_kept_as_a_name_with_a_warning(client: TestClient) -> None:
    said = {name: value for name, value in KNOWN.items() if name != "model"}
    (file,) = send(client, ("serve.json", SERVE), metadata=said).json()["files"]
    run = client.get(f"/benchmark-runs/{file['runs'][0]['id']}").json()
    assert (run["model"], run["model_name"]) == (None, VLLM_SERVE["model_id"])
    assert any(VLLM_SERVE["model_id"] in warning for warning in file["warnings"])
    assert users_runs(client)[0]["model_name"] == VLLM_SERVE["model_id"]


def test_a_build_that_is_said_as_a_tag_is_the_build_that_a_file_numbers(client: TestClient) -> None:
    (file,) = send(client, ("serve.json", SERVE), metadata={**KNOWN, "engine_version": "b5000"}).json()["files"]
    assert client.get(f"/benchmark-runs/{file['runs'][0]['id']}").json()["engine_version"] == "5000"


def test_a_release_that_a_file_states_as_a_tag_is_found_by_either_name_and_contradicts_neither(
    client: TestClient,
) -> None:
    record = json.loads((SAMPLES / "sglang-serving-0.5.5.jsonl").read_text(encoding="utf-8").splitlines()[0])
    record["server_info"]["version"] = "v0.5.5"
    content = json.dumps(record).encode()
    (file,) = send(client, ("serve.json", content), metadata={**KNOWN, "engine_version": "v0.5.5"}).json()["files"]
    assert not any("engine_version" in warning for warning in file["warnings"])
    for version in ("v0.5.5", "0.5.5"):
        found = client.get("/benchmark-runs", params={"engine_version": version, "origin": "user"}).json()["items"]
        assert [run["id"] for run in found] == [run["id"] for run in file["runs"]]


def test_a_record_that_the_file_names_otherwise_than_the_caller_is_warned_of(client: TestClient) -> None:
    content = json.dumps({**VLLM_SERVE, "model_id": "gpt-oss-20b"}).encode()
    (file,) = send(client, ("serve.json", content)).json()["files"]
    assert any("gpt-oss-20b" in warning and "llama-3.3-70b-instruct" in warning for warning in file["warnings"])


@pytest.mark.parametrize(
    ("metadata", "status", "code", "pointer"),
    [
        ({**KNOWN, "accelerator": "gb20"}, 422, "unknown_accelerator", "/metadata/accelerator"),
        ({**KNOWN, "model": "no-such"}, 422, "unknown_model", "/metadata/model"),
        ({**KNOWN, "precision": "fp88"}, 422, "unknown_choice", "/metadata/precision"),
        ({**KNOWN, "precision": {"weights": "fp8", "kv": "fp8"}}, 422, "request_invalid", "/metadata/precision/kv"),
        ({**KNOWN, "gpu_cuont": 4}, 422, "request_invalid", "/metadata/gpu_cuont"),
        ({**KNOWN, "gpu_count": -1}, 422, "request_invalid", "/metadata/gpu_count"),
        ({**KNOWN, "gpu_count": 4, "node_count": 9}, 422, "invalid_value", "/metadata/node_count"),
        (
            {**KNOWN, "started_at": "2026-11-30T13:20:00Z", "finished_at": "2026-11-30T14:10:00+01:00"},
            422,
            "invalid_value",
            "/metadata/finished_at",
        ),
        ({**KNOWN, "started_at": "2190-01-01T00:00:00Z"}, 422, "request_invalid", "/metadata/started_at"),
        ({**KNOWN, "started_at": "0001-01-01T00:00:00+14:00"}, 422, "request_invalid", "/metadata/started_at"),
        ({**KNOWN, "finished_at": "9999-12-31T23:00:00-12:00"}, 422, "request_invalid", "/metadata/finished_at"),
        ('{"gpu_count": NaN}', 400, "malformed_body", "/metadata/gpu_count"),
        ('{"gpu_count": 4, "gpu_count": 8}', 400, "malformed_body", "/metadata"),
        ("not json", 400, "malformed_body", "/metadata"),
        ("[" * 5000, 400, "malformed_body", "/metadata"),
        ("[]", 422, "request_invalid", "/metadata"),
        ('{"measured_by": "' + "x" * 200_000 + '"}', 400, "malformed_body", None),
    ],
)
def test_metadata_that_cannot_be_meant_is_a_problem_of_the_whole_import(
    client: TestClient, metadata: Any, status: int, code: str, pointer: str | None
) -> None:
    document = assert_problem(send(client, ("serve.json", SERVE), metadata=metadata), status, code)
    if pointer is not None:
        assert document["errors"][0]["pointer"] == pointer
    assert users_runs(client) == []


def test_a_run_of_the_future_is_refused_beyond_a_day_of_clocks_that_differ(client: TestClient) -> None:
    def dated(days: int) -> bytes:
        """Of a run that ended so many days from now."""
        return json.dumps({**VLLM_SERVE, "date": f"{datetime.now(UTC) + timedelta(days):%Y%m%d-%H%M%S}"}).encode()

    (refused,) = assert_problem(send(client, ("serve.json", dated(2))), 422, "nothing_stored")["files"]
    assert "lies in the future: correct the time in the file" in refused["reason"]
    assert send(client, ("serve.json", dated(0))).status_code == 201
    assert len(users_runs(client)) == 1


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ({"gpu_cuont": 4}, "did you mean gpu_count?"),
        ({"isl": 1024}, "did you mean isl_tokens?"),
        ({"colour": "red"}, "known are max_num_seqs, max_num_batched_tokens, accelerator, gpu_count, "),
        ({"precision": {"kv": "fp8"}}, "did you mean kv_cache?"),
        ({"precision": {"arithmetic": "fp8"}}, "known are weights, kv_cache, compute"),
    ],
)
def test_metadata_of_an_unknown_name_is_told_what_is_known(client: TestClient, said: dict[str, Any], hint: str) -> None:
    document = assert_problem(send(client, ("serve.json", SERVE), metadata=said), 422, "request_invalid")
    assert f"not known here; {hint}" in document["errors"][0]["detail"]
    assert "nobody_knows" in document["detail"] or "colour" not in said


def test_metadata_that_is_no_object_is_told_the_fields_of_one(client: TestClient) -> None:
    document = assert_problem(send(client, ("serve.json", SERVE), metadata="[]"), 422, "request_invalid")
    (error,) = document["errors"]
    assert error["detail"].startswith("an object is wanted, such as ")
    assert "accelerator, gpu_count" in error["detail"]


def test_a_form_that_is_none_is_refused(client: TestClient) -> None:
    path = "/benchmark-run-imports"
    assert_problem(client.post(path, json={}), 415, "media_type_not_supported")
    assert_problem(client.post(path), 415, "media_type_not_supported")
    for content_type, content in (
        ("multipart/form-data", b"x"),
        ("multipart/form-data; boundary=x", b"no boundary here"),
        ("multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: form-data\r\n\r\n1\r\n--x--\r\n"),
        ("multipart/form-data; boundary=x; charset=hex", b"--x--\r\n"),
    ):
        answer = client.post(path, content=content, headers={"Content-Type": content_type})
        assert_problem(answer, 400, "malformed_body")
    assert_problem(client.post(path, files={"file": ("a.json", SERVE)}), 422, "invalid_value")
    assert_problem(client.post(path, files={"metadata": ("m.json", b"{}")}), 422, "invalid_value")
    assert_problem(client.post(path, files=[("files", (f"{n}", b"")) for n in range(201)]), 400, "malformed_body")


def test_names_are_labels_and_lead_nowhere(client: TestClient, tmp_path: Path) -> None:
    files = (
        ("../../etc/passwd", other_serve(1)),
        ("a.zip", zipped(**{"../../up.json": other_serve(2), "/x.json": SERVE})),
    )
    reports = send(client, *files).json()["files"]
    assert [each["name"] for each in reports] == ["etc/passwd", "a.zip/up.json", "a.zip/x.json"]
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".json"] == []


def test_hostile_content_gets_a_report_and_the_good_file_beside_it_is_stored(client: TestClient) -> None:
    nul = json.dumps({**VLLM_SERVE, "model_id": "nul\u0000 half\ud800 " + "long" * 1000}).encode()
    hostile = {
        "bomb.zip": zipped(bomb=b"0" * 300_000_000),
        "nested.zip": zipped(**{"inner.zip": zipped(a=SERVE)}),
        "deep.json": b'{"a":' * 100_000,
        "nan.json": json.dumps({**VLLM_SERVE, "output_throughput": float("nan")}).encode(),
        "zero.json": json.dumps({**VLLM_SERVE, "completed": 0}).encode(),
        "huge.json": json.dumps({**VLLM_SERVE, "max_concurrency": 10**30}).encode(),
        "latin.json": SERVE.replace(b"acme", b"acm\xe9"),
        "binary": bytes(range(256)) * 100,
    }
    answer = send(client, *hostile.items(), ("nul.json", nul), ("serve.json", SERVE))
    assert answer.status_code == 201, answer.text
    reports = {each["name"]: each for each in answer.json()["files"]}
    assert reports["serve.json"]["accepted"]
    assert reports["nul.json"]["accepted"]
    refused = {name for name, each in reports.items() if not each["accepted"]}
    assert refused >= {"bomb.zip/bomb", "nested.zip/inner.zip", "deep.json", "zero.json", "latin.json", "binary"}
    for run in users_runs(client):
        assert "\x00" not in (run["model_name"] or "")
        assert run["output_tokens_per_s"] is None or run["output_tokens_per_s"] > 0


def test_a_count_that_no_machine_has_refuses_its_file_and_not_the_others(client: TestClient) -> None:
    huge = json.dumps({**VLLM_SERVE, "tensor_parallel_size": 10**12}).encode()
    answer = send(client, ("huge.json", huge), ("serve.json", SERVE))
    assert answer.status_code == 201


def test_imports_have_a_limit_of_their_own(settings: Settings) -> None:
    limited = settings.model_copy(update={"max_body_bytes": 1000, "max_import_bytes": 20_000})
    with TestClient(create_app(limited), base_url="http://localhost") as client:
        assert send(client, ("serve.json", SERVE)).status_code == 201
        assert_problem(send(client, ("big.json", b" " * 30_000)), 413, "body_too_large")
        assert_problem(client.post("/benchmark-runs", content=b" " * 2000), 413, "body_too_large")


def test_a_power_log_gives_its_power_to_the_run_of_its_time_and_alone_is_refused(client: TestClient) -> None:
    """Two GPUs at 400 W and 300 W through the run: 700 W together."""
    lines = ["timestamp, index, power.draw [W]"]
    for second in range(40):
        lines += [f"2026/12/01 19:55:{20 + second:02d}.000, {gpu}, {watts} W" for gpu, watts in ((0, 400), (1, 300))]
    log = "\n".join(lines).encode()
    said = {**KNOWN, "gpu_count": 2, "utc_offset": "+00:00"}
    assert_problem(send(client, ("power.csv", log), metadata=said), 422, "nothing_stored")
    reports = send(client, ("power.csv", log), ("serve.json", SERVE), metadata=said).json()["files"]
    assert [each["accepted"] for each in reports] == [True, True]
    (run,) = users_runs(client)
    assert (run["power_w"], run["power_scope"]) == (pytest.approx(700.0), "board")
    assert run["measured_on"] == "2026-12-01"


@pytest.mark.slow
def test_a_table_of_ten_million_lines_is_refused_or_read_within_bounded_memory(client: TestClient) -> None:
    line = b"2026/12/01 19:55:20.000, 0, 400 W\n"
    log = b"timestamp, index, power.draw [W]\n" + line * 10_000_000
    document = assert_problem(send(client, ("power.csv", log)), 422, "nothing_stored")
    assert document["files"][0]["reason"]
