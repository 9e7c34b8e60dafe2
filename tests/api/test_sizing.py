"""``POST /sizing`` over HTTP: the founding figures, the shape of the answer, and what is refused."""

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.api.sizing_answer import SizingAnswer
from service.api.sizing_examples import EXAMPLES
from tests.api.assertions import assert_problem

LLAMA_8B_CONFIG: dict[str, Any] = (EXAMPLES["config"]["value"] or {})["model"]["config"]
SHORTEST = {"model": "llama-3.3-70b-instruct", "accelerator": "gb200-nvl72"}


def sized(client: TestClient, **asked: Any) -> dict[str, Any]:
    answer = client.post("/sizing", json=SHORTEST | asked)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    SizingAnswer.model_validate(document)
    return document


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_of_the_contract_runs(client: TestClient, name: str) -> None:
    answer = client.post("/sizing", json=EXAMPLES[name]["value"])
    assert answer.status_code == 200, answer.text
    SizingAnswer.model_validate(answer.json())


def test_the_founding_figures(client: TestClient) -> None:
    document = sized(client, precision={"weights": "nvfp4", "kv_cache": "fp8", "compute": "nvfp4"})
    assert document["crossover"]["balance_point_flop_per_byte"] == 1250
    assert document["crossover"]["arithmetic_intensity_flop_per_byte"] == 4
    assert document["crossover"]["weights_only_batch"] == 312.5
    assert document["inputs"]["accelerator"] == "gb200-nvl72"
    assert document["memory_fit"]["fits"]
    assert document["memory_fit"]["usable_bytes_per_gpu"] == 189_471 * 2**20


def test_every_block_is_present_also_when_nothing_fits(client: TestClient) -> None:
    document = sized(client, accelerator="h100-sxm", parallelism={"tp": 1})
    assert set(document) == set(SizingAnswer.model_fields)
    assert not document["memory_fit"]["fits"]
    assert document["memory_fit"]["shortfall_bytes_per_gpu"] > 0
    assert document["serving"] is None
    assert "does_not_fit" in {warning["code"] for warning in document["warnings"]}


def test_names_and_aliases_resolve_exactly(client: TestClient) -> None:
    by_alias = sized(client, model="meta-llama/Llama-3.3-70B-Instruct", accelerator="gb200")
    assert by_alias == sized(client)


def test_the_same_question_gives_the_same_bytes(client: TestClient) -> None:
    first, second = (client.post("/sizing", json=SHORTEST).content for _ in range(2))
    assert first == second


def test_every_source_of_the_records_is_cited(client: TestClient) -> None:
    sources = sized(client)["sources"]
    assert any("nvidia.com" in (source["url"] or "") for source in sources)
    assert any("huggingface.co" in (source["url"] or "") for source in sources)
    assert all(source["title"] for source in sources)


def test_a_config_with_a_bare_infinity_is_read(client: TestClient) -> None:
    config = dict(LLAMA_8B_CONFIG) | {"time_step_limit": [0.0, float("inf")]}
    body = json.dumps({"model": {"config": config}, "accelerator": "h100"})
    answer = client.post("/sizing", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 200
    assert answer.json()["inputs"]["model_revision"] is None


def test_bytes_beyond_64_bits_are_written_to_the_last_digit(client: TestClient) -> None:
    widths = {"num_hidden_layers": 2000, "num_attention_heads": 8192, "num_key_value_heads": 8192, "head_dim": 4096}
    config = LLAMA_8B_CONFIG | widths | {"max_position_embeddings": 200_000_000, "torch_dtype": "float32"}
    lengths = {"isl_tokens": 100_000_000, "osl_tokens": 100_000_000}
    document = sized(client, model={"config": config}, parallelism={"tp": 1}, workload=lengths)
    keys_and_values = 2 * 8192 * 4096 * 4 * 2000  # bytes of one token in fp32
    assert document["memory_fit"]["engine"]["needed_bytes_per_gpu"] == keys_and_values * 200_000_000


COMPUTE = "/precision/compute"
POOLS: dict[str, Any] = {"prefill": {"worker_count": 2}, "decode": {"worker_count": 1, "tp": 2}}
DRAFTING = {"method": "mtp", "draft_tokens": 1, "acceptance_length_tokens": 1.5}
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"accelerator": "gb20"}, "unknown_accelerator", "/accelerator"),
    ({"model": "llama-3.3-70"}, "unknown_model", "/model"),
    ({"modle": "x"}, "request_invalid", "/modle"),
    ({"workload": {"isl_tokens": -1}}, "request_invalid", "/workload/isl_tokens"),
    ({"workload": {"isl_tokens": "12"}}, "request_invalid", "/workload/isl_tokens"),
    ({"workload": {"isl_tokens": True}}, "request_invalid", "/workload/isl_tokens"),
    ({"workload": {"isl_tokens": 10**12}}, "request_invalid", "/workload/isl_tokens"),
    ({"workload": {"isl_tokens": {"p50": 9, "p95": 3}}}, "invalid_value", "/workload/isl_tokens/p95"),
    ({"workload": {"profile": "1k-1k", "osl_tokens": 5}}, "invalid_value", "/workload/profile"),
    ({"workload": {"concurrency": 1, "request_rate_per_s": 1.0}}, "invalid_value", "/workload/request_rate_per_s"),
    ({"parallelism": {"tp": 3}}, "parallelism_not_legal", "/parallelism/tp"),
    ({"parallelism": {"tp": 0}}, "request_invalid", "/parallelism/tp"),
    ({"parallelism": "best"}, "request_invalid", "/parallelism"),
    ({"parallelism": {"prefill": {"tp": 1}}}, "request_invalid", "/parallelism/decode"),
    ({"parallelism": POOLS | {"tp": 2}}, "request_invalid", "/parallelism/tp"),
    ({"parallelism": POOLS | {"decode": {"worker_count": 0}}}, "request_invalid", "/parallelism/decode/worker_count"),
    ({"parallelism": POOLS | {"decode_max_batch": 0}}, "request_invalid", "/parallelism/decode_max_batch"),
    ({"parallelism": POOLS | {"decode": {"tp": 3}}}, "parallelism_not_legal", "/parallelism/decode/tp"),
    ({"parallelism": POOLS | {"prefill": {"pp": 2}}}, "invalid_value", "/parallelism/prefill/pp"),
    ({"parallelism": POOLS | {"decode": {"pp": 2}}}, "invalid_value", "/parallelism/decode/pp"),
    ({"parallelism": POOLS, "replica_count": "fill"}, "invalid_value", "/replica_count"),
    ({"parallelism": POOLS, "speculation": DRAFTING}, "invalid_value", "/speculation"),
    ({"parallelism": POOLS, "engine": {"name": "llama.cpp"}}, "invalid_value", "/engine/name"),
    (
        {"parallelism": POOLS | {"decode": {"tp": 16}}, "engine": {"decode_context_parallel_count": 2}},
        "invalid_value",
        "/engine/decode_context_parallel_count",
    ),
    ({"replica_count": "all"}, "request_invalid", "/replica_count"),
    ({"replica_count": 0}, "request_invalid", "/replica_count"),
    ({"precision": {"weights": "fp5"}}, "unknown_choice", "/precision/weights"),
    ({"precision": {"compute": "fp5"}}, "request_invalid", "/precision/compute"),
    (
        {"accelerator": "h100", "precision": {"weights": "nvfp4", "compute": "nvfp4"}},
        "rate_not_published",
        "/precision/compute",
    ),
    ({"engine": {"name": "ollama"}}, "unknown_choice", "/engine/name"),
    ({"engine": {"version": "latest"}}, "request_invalid", "/engine/version"),
    ({"engine": {"memory_fraction": 1.2}}, "request_invalid", "/engine/memory_fraction"),
    ({"engine": {"block_size": 16}}, "request_invalid", "/engine/block_size"),
    ({"economics": {"usd_per_gpu_h": 1.0, "on": "yesterday"}}, "request_invalid", "/economics/on"),
    ({"economics": {"usd_per_gpu_h": 1.0, "on": "2026-02-31"}}, "request_invalid", "/economics/on"),
    ({"economics": {"usd_per_kwh": 0.1}}, "request_invalid", "/economics/usd_per_gpu_h"),
    ({"engine": {"version": "1²"}}, "request_invalid", "/engine/version"),
    ({"power": {"limit_w_per_gpu": 1.0}}, "invalid_value", "/power/limit_w_per_gpu"),
    ({"power": {"pue": 0.5}}, "request_invalid", "/power/pue"),
    ({"model": {"config": {"model_type": "yeti"}}}, "architecture_not_supported", "/model/config/model_type"),
    ({"model": {"config": {"model_type": "llama"}}}, "config_invalid", "/model/config/hidden_size"),
    ({"model": {"config": {}, "code": "x"}}, "request_invalid", "/model/code"),
    ({"model": 7}, "request_invalid", "/model"),
]


@pytest.mark.parametrize(("asked", "code", "pointer"), REFUSED)
def test_a_bad_question_is_refused_at_its_field(
    client: TestClient, asked: dict[str, Any], code: str, pointer: str
) -> None:
    problem = assert_problem(client.post("/sizing", json=SHORTEST | asked), 422, code)
    assert [error["pointer"] for error in problem["errors"]] == [pointer]


@pytest.mark.parametrize(
    ("asked", "detail"),
    [
        (
            {"engine": {"version": "latest"}},
            "/engine/version: it is not written as it should be, such as 0.33.0",
        ),
        (
            {"economics": {"usd_per_gpu_h": 1.0, "on": "1/12/2026"}},
            "/economics/on: it is not written as it should be, such as 2026-12-01",
        ),
        (
            {"engine": "vllm"},
            '/engine: an object is wanted, such as {"name": "vllm"}; its fields are name, version, memory_fraction, ',
        ),
        (
            {"precision": "fp8"},
            '/precision: an object is wanted, such as {"weights": "fp8"}; its fields are weights, kv_cache, compute',
        ),
        (
            {"speculation": "mtp"},
            '/speculation: an object is wanted, such as {"method": "mtp", "draft_tokens": 3, '
            '"acceptance_length_tokens": 2.1}; its fields are method, ',
        ),
        ({"model": {"config": 3}}, "/model/config: an object is wanted"),
        (
            {"parallelism": POOLS | {"prefill": 2}},
            '/parallelism/prefill: an object is wanted, such as {"tp": 2}; its fields are tp, pp, ep, dp, worker_count',
        ),
    ],
)
def test_what_is_written_wrongly_is_answered_with_an_example(
    client: TestClient, asked: dict[str, Any], detail: str
) -> None:
    problem = assert_problem(client.post("/sizing", json=SHORTEST | asked), 422, "request_invalid")
    assert problem["detail"].startswith(detail)


def test_a_body_that_is_no_object_is_answered_with_the_shortest_one(client: TestClient) -> None:
    problem = assert_problem(client.post("/sizing", json=["gpt-oss-120b"]), 422, "request_invalid")
    assert problem["detail"].startswith(
        'the body: an object is wanted, such as {"model": "gpt-oss-120b", "accelerator": "gb200-nvl72"}; its fields are'
    )


def test_an_unknown_name_lists_what_begins_alike_and_substitutes_nothing(client: TestClient) -> None:
    problem = assert_problem(
        client.post("/sizing", json=SHORTEST | {"accelerator": "gb20"}), 422, "unknown_accelerator"
    )
    assert "gb200-nvl72" in problem["detail"]


def test_a_build_of_llama_cpp_may_be_written_as_its_tag(client: TestClient) -> None:
    """b5150 is the first build whose rules keep the latent of MLA, one before it still keeps every head."""
    engines = [{"name": "llama.cpp", "version": version} for version in ("5150", "b5150", "b5149")]
    build, tag, earlier = (
        sized(client, accelerator="h200-sxm", engine=engine)["inputs"]["engine"] for engine in engines
    )
    assert build == tag
    assert (tag["version"], tag["rules_of_version"]) == ("5150", "5150")
    assert earlier["rules_of_version"] == "4800"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_number_that_is_none_is_refused(client: TestClient, number: str) -> None:
    body = f'{{"model": "llama-3.3-70b-instruct", "accelerator": "gb200", "target": {{"tpot_s": {number}}}}}'
    answer = client.post("/sizing", content=body, headers={"content-type": "application/json"})
    assert_problem(answer, 400, "malformed_body")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_hidden_layers", 10**9),
        ("num_hidden_layers", None),
        ("num_hidden_layers", "32"),
        ("hidden_size", -4096),
        ("hidden_size", 4095),
        ("num_attention_heads", True),
        ("num_key_value_heads", 7),
        ("vocab_size", 1e300),
    ],
)
def test_a_hostile_config_is_refused_by_field(client: TestClient, field: str, value: Any) -> None:
    config = dict(LLAMA_8B_CONFIG) | {field: value}
    answer = client.post("/sizing", json={"model": {"config": config}, "accelerator": "h100"})
    problem = assert_problem(answer, 422, "config_invalid")
    assert problem["errors"][0]["pointer"].startswith("/model/config/")


def test_code_in_a_config_is_never_touched(client: TestClient) -> None:
    config = dict(LLAMA_8B_CONFIG)
    config["auto_map"] = {"AutoModelForCausalLM": "os.system--rm"}
    answer = client.post("/sizing", json={"model": {"config": config}, "accelerator": "h100"})
    assert answer.status_code == 200


def test_a_deep_config_is_refused(client: TestClient) -> None:
    body = '{"model": {"config": {"a": ' + "[" * 10_000 + "]" * 10_000 + '}}, "accelerator": "h100"}'
    answer = client.post("/sizing", content=body, headers={"content-type": "application/json"})
    assert_problem(answer, 400, "malformed_body")


def test_a_price_gives_a_cost_and_power_a_scope(client: TestClient) -> None:
    document = sized(
        client,
        workload={"concurrency": 32},
        power={"pue": 1.2, "scope": "facility"},
        economics={"usd_per_gpu_h": 3.0, "usd_per_kwh": 0.1, "on": "2026-12-01"},
    )
    assert document["cost"]["usd_per_output_token"]["low"] < document["cost"]["usd_per_output_token"]["high"]
    scopes = {scope["scope"]: scope for scope in document["energy"]["scopes"]}
    assert set(scopes) == {"accelerator", "system", "facility", "provisioned"}
    assert scopes["provisioned"]["kind"] == "published"
    assert scopes["provisioned"]["power_w_per_gpu"]["value"] == 2100


def test_a_disaggregated_system_answers_for_both_pools(client: TestClient) -> None:
    load = {"isl_tokens": 2048, "osl_tokens": 256, "concurrency": 16}
    document = sized(client, parallelism=POOLS | {"decode_max_batch": 64}, workload=load)
    assert document["inputs"]["parallelism"] == {
        "prefill": {"worker_count": 2, "tp": 1, "pp": 1, "ep": 1, "dp": 1},
        "decode": {"worker_count": 1, "tp": 2, "pp": 1, "ep": 1, "dp": 1},
        "decode_max_batch": 64,
    }
    assert document["inputs"]["gpu_count_per_replica"] == 2 * 1 + 1 * 2
    prefill, decode = document["pools"]["prefill"], document["pools"]["decode"]
    assert (prefill["gpu_count"], decode["gpu_count"]) == (2, 2)
    assert (prefill["memory_fit"]["length_tokens"], decode["memory_fit"]["length_tokens"]) == (2048, 2048 + 256)
    # Matrices halve under tp 2; norms, which every rank holds, are next to nothing.
    one, half = (pool["memory_fit"]["weight_bytes_per_gpu"] for pool in (prefill, decode))
    assert one / half == pytest.approx(2, rel=0.001)
    assert decode["memory_fit"]["max_concurrency"] == document["memory_fit"]["max_concurrency"]
    serving = document["serving"]
    request_s = serving["ttft_s"]["value"] + 255 * serving["tpot_s"]["value"]
    assert serving["requests_per_s"]["value"] * request_s == pytest.approx(16)
    assert document["evidence"]["next_measurement"] is None
    assert sized(client)["pools"] is None


def test_a_disaggregated_system_without_room_answers_with_what_is_missing(client: TestClient) -> None:
    document = sized(client, accelerator="h100-sxm", parallelism=POOLS | {"decode": {"tp": 4}})
    assert [document["pools"][pool]["memory_fit"]["fits"] for pool in ("prefill", "decode")] == [False, True]
    missing = document["pools"]["prefill"]["memory_fit"]["shortfall_bytes_per_gpu"]
    assert document["memory_fit"]["shortfall_bytes_per_gpu"] == missing > 0
    assert document["memory_fit"]["fits"] is False
    assert document["serving"] is None
