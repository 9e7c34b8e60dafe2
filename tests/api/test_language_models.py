"""Models over HTTP, on SQLite and Postgres."""

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

from service.api.language_models import TINY_CONFIG
from tests.api.assertions import assert_problem

TINY = {"slug": "tiny-llama", "config": TINY_CONFIG, "aliases": ["acme/Tiny-Llama"]}

# Worked out from TINY_CONFIG by hand:
# embedding and head: 1000 * 64 each. A layer: q and o 64 * 64 each, k and v 64 * 32 each (2 KV heads of 64 / 4 = 16),
# gate, up and down 64 * 128 each, two norms of 64; and a last norm of 64 after the 2 layers.
TINY_EMBEDDING = 1000 * 64
TINY_ATTENTION = 2 * (2 * 64 * 64 + 2 * 64 * 32)
TINY_MLP = 2 * 3 * 64 * 128
TINY_NORMS = 2 * 2 * 64 + 64
TINY_TOTAL = 2 * TINY_EMBEDDING + TINY_ATTENTION + TINY_MLP + TINY_NORMS
TINY_KV_BYTES_PER_TOKEN = 2 * 2 * (16 + 16) * 2  # 2 layers, 2 heads, key and value of 16, 2 bytes


def test_known_models_are_listed_in_pages_by_slug(client: TestClient) -> None:
    first = client.get("/models", params={"limit": 3}).json()
    second = client.get("/models", params={"limit": 3, "cursor": first["next_cursor"]}).json()
    slugs = [each["slug"] for each in first["items"] + second["items"]]
    everything = client.get("/models", params={"limit": 200}).json()
    assert everything["next_cursor"] is None
    assert slugs == [each["slug"] for each in everything["items"]][:6]
    assert slugs == sorted(slugs)


def test_a_name_with_a_slash_is_resolved_exactly(client: TestClient) -> None:
    items = client.get("/models", params={"name": "meta-llama/Llama-3.3-70B-Instruct"}).json()["items"]
    assert [each["slug"] for each in items] == ["llama-3.3-70b-instruct"]
    document = assert_problem(client.get("/models", params={"name": "meta-llama/Llama-3.3-70B"}), 404, "unknown_model")
    assert "meta-llama/llama-3.3-70b-instruct" in document["detail"]


def test_a_name_that_means_two_models_is_refused_with_both(client: TestClient) -> None:
    # Ollama's deepseek-r1:70b is the distilled Llama, not a part of DeepSeek-R1
    document = assert_problem(client.get("/models", params={"name": "deepseek-r1:70b"}), 422, "ambiguous_name")
    assert document["candidates"] == ["deepseek-r1", "deepseek-r1-distill-llama-70b"]


def test_a_family_filters_the_list(client: TestClient) -> None:
    items = client.get("/models", params={"family": "gpt_oss"}).json()["items"]
    assert {each["slug"] for each in items} == {"gpt-oss-20b", "gpt-oss-120b"}


def test_the_memory_of_a_known_model_is_the_published_figure(client: TestClient) -> None:
    memory = client.get("/models/llama-3.1-8b-instruct/memory", params={"context_tokens": 8192}).json()
    assert memory["parameter_counts"]["total"] == 8_030_261_248
    assert memory["kv_cache"]["bytes_per_token"] == 32 * 8 * (128 + 128) * 2 == 131_072
    assert memory["kv_cache"]["ideal_bytes"] == 8192 * 131_072


def test_tensor_parallel_ranks_share_kv_heads_until_they_run_out(client: TestClient) -> None:
    def bytes_per_token(tp: int) -> int:
        answer = client.get("/models/llama-3.1-8b-instruct/memory", params={"tp": tp})
        value: int = answer.json()["kv_cache"]["bytes_per_token"]
        return value

    assert bytes_per_token(8) == 131_072 // 8  # 8 KV heads, one for each rank
    assert bytes_per_token(16) == 131_072 // 8  # replicated on pairs of ranks
    document = assert_problem(
        client.get("/models/llama-3.1-8b-instruct/memory", params={"tp": 3}), 422, "parallelism_not_legal"
    )
    assert "32 heads" in document["detail"]


def test_a_model_of_ones_own_is_stored_and_sized_from_its_config(client: TestClient) -> None:
    created = client.post("/models", json=TINY)
    assert created.status_code == 201, created.text
    assert created.headers["location"] == "/models/tiny-llama"
    assert created.headers["etag"] == '"1"'
    assert created.json()["parameter_counts"] == {
        "total": TINY_TOTAL,
        "active": TINY_TOTAL,
        "embedding": TINY_EMBEDDING,
        "lm_head": TINY_EMBEDDING,
        "attention": TINY_ATTENTION,
        "mlp": TINY_MLP,
        "other": TINY_NORMS,
        **dict.fromkeys(("experts", "shared_experts", "router", "state_space", "vision", "router_bias", "mtp"), 0),
    }
    memory = client.get("/models/tiny-llama/memory", params={"kv_cache": "bf16"}).json()
    assert memory["kv_cache"]["bytes_per_token"] == TINY_KV_BYTES_PER_TOKEN
    found = client.get("/models", params={"name": "ACME/tiny-llama"}).json()["items"]
    assert [each["slug"] for each in found] == ["tiny-llama"]


def test_a_second_record_of_the_same_name_is_a_conflict(client: TestClient) -> None:
    client.post("/models", json=TINY)
    assert_problem(client.post("/models", json=TINY), 409, "name_taken")
    assert_problem(client.post("/models", json={**TINY, "slug": "other"}), 409, "name_taken")
    assert_problem(client.post("/models", json={**TINY, "slug": "gpt-oss-20b", "aliases": []}), 409, "name_taken")


def test_a_replacement_needs_the_revision_that_was_read(client: TestClient) -> None:
    client.post("/models", json=TINY)
    longer = {"config": {**TINY_CONFIG, "max_position_embeddings": 8192}}
    assert_problem(client.put("/models/tiny-llama", json=longer), 428, "revision_required")
    assert_problem(
        client.put("/models/tiny-llama", json=longer, headers={"If-Match": "yesterday"}), 400, "precondition_invalid"
    )
    replaced = client.put("/models/tiny-llama", json=longer, headers={"If-Match": '"1"'})
    assert (replaced.status_code, replaced.headers["etag"]) == (200, '"2"')
    assert replaced.json()["max_context_tokens"] == 8192
    assert_problem(client.put("/models/tiny-llama", json=longer, headers={"If-Match": '"1"'}), 412, "revision_mismatch")
    old = client.get("/models/tiny-llama", params={"revision": 1})
    assert (old.json()["max_context_tokens"], old.headers["etag"]) == (2048, '"1"')
    assert_problem(client.get("/models/tiny-llama", params={"revision": 3}), 404, "unknown_revision")
    assert_problem(client.put("/models/nothing", json=longer, headers={"If-Match": "*"}), 404, "unknown_model")


def test_a_retired_model_is_neither_listed_nor_sized_but_can_be_read_and_brought_back(client: TestClient) -> None:
    client.post("/models", json=TINY)
    assert_problem(client.delete("/models/tiny-llama"), 428, "revision_required")
    retired = client.delete("/models/tiny-llama", headers={"If-Match": '"1"'})
    assert (retired.status_code, retired.headers["etag"], retired.content) == (204, '"2"', b"")
    assert client.get("/models/tiny-llama").json()["retired_at"].endswith("Z")
    assert "tiny-llama" not in {each["slug"] for each in client.get("/models", params={"limit": 200}).json()["items"]}
    assert_problem(client.get("/models/tiny-llama/memory"), 410, "record_retired")
    assert_problem(client.post("/models", json=TINY), 409, "name_taken")
    back = client.put("/models/tiny-llama", json={"config": TINY_CONFIG}, headers={"If-Match": '"2"'})
    assert (back.status_code, back.json()["revision"], back.json()["retired_at"]) == (200, 3, None)
    history = client.get("/models/tiny-llama/revisions").json()["revisions"]
    assert [(each["revision"], each["event"]) for each in history] == [
        (3, "replaced"),
        (2, "retired"),
        (1, "created"),
    ]


def test_an_unchanged_record_or_list_is_a_304(client: TestClient) -> None:
    for path in ("/models", "/models/gpt-oss-20b"):
        etag = client.get(path).headers["etag"]
        again = client.get(path, headers={"If-None-Match": etag})
        assert (again.status_code, again.content) == (304, b"")
        assert client.get(path, headers={"If-None-Match": '"other"'}).status_code == 200


@pytest.mark.parametrize(
    ("change", "code", "pointer"),
    [
        ({"model_type": "brand-new"}, "architecture_not_supported", "/config/model_type"),
        ({"num_hidden_layers": None}, "config_invalid", "/config/num_hidden_layers"),
        ({"num_hidden_layers": "32"}, "config_invalid", "/config/num_hidden_layers"),
        ({"num_hidden_layers": 1_000_000_000}, "config_invalid", "/config/num_hidden_layers"),
        ({"num_hidden_layers": -1}, "config_invalid", "/config/num_hidden_layers"),
        ({"hidden_size": 1e18}, "config_invalid", "/config/hidden_size"),
    ],
)
def test_a_config_that_cannot_be_used_is_refused_with_its_field(
    client: TestClient, change: dict[str, Any], code: str, pointer: str
) -> None:
    answer = client.post("/models", json={**TINY, "config": {**TINY_CONFIG, **change}})
    document = assert_problem(answer, 422, code)
    assert [each["pointer"] for each in document["errors"]] == [pointer]


@pytest.mark.parametrize(
    "change",
    [
        {"aliases": ["acme/tiny", "ACME/Tiny"]},
        {"aliases": ["tiny-llama"]},
        {"aliases": ["with space"]},
        {"aliases": "acme/tiny"},
        {"slug": "Upper"},
        {"slug": "with/slash"},
        {"slug": ""},
        {"name": ""},
        {"name": " "},
        {"config": []},
        {"config": None},
    ],
)
def test_names_that_cannot_be_kept_are_a_422(client: TestClient, change: dict[str, Any]) -> None:
    assert_problem(client.post("/models", json={**TINY, **change}), 422, "request_invalid")


def test_code_that_a_config_points_at_is_not_looked_at(client: TestClient) -> None:
    config = {**TINY_CONFIG, "auto_map": {"AutoModel": "os--system.Evil"}, "time_step_limit": [0.0, 1.0]}
    assert client.post("/models", json={**TINY, "config": config}).status_code == 201


def test_a_bare_infinity_in_a_config_is_accepted_and_never_answered(client: TestClient) -> None:
    body = json.dumps({**TINY, "config": {**TINY_CONFIG, "time_step_limit": [0.0, float("inf")]}})
    assert "Infinity" in body
    created = client.post("/models", content=body, headers={"Content-Type": "application/json"})
    assert created.status_code == 201
    assert "Infinity" not in client.get("/models/tiny-llama").text
    assert client.get("/models/tiny-llama").json()["config"]["time_step_limit"] == [0.0, None]


@pytest.mark.parametrize(
    ("params", "parameter"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 201}, "limit"),
        ({"limit": "many"}, "limit"),
        ({"familly": "llama"}, "familly"),
    ],
)
def test_a_query_parameter_that_cannot_be_used_is_named(
    client: TestClient, params: dict[str, Any], parameter: str
) -> None:
    document = assert_problem(client.get("/models", params=params), 422, "request_invalid")
    assert [each["parameter"] for each in document["errors"]] == [parameter]


def test_a_cursor_of_another_list_is_refused(client: TestClient) -> None:
    cursor = client.get("/models", params={"limit": 1}).json()["next_cursor"]
    for params in ({"cursor": cursor, "family": "llama"}, {"cursor": "nonsense"}, {"cursor": "W10"}, {"cursor": "é"}):
        assert_problem(client.get("/models", params=params), 422, "cursor_invalid")


def test_the_architectures_that_are_modelled_are_listed(client: TestClient) -> None:
    assert {"llama", "gpt_oss", "deepseek_v3"} <= set(client.get("/model-architectures").json()["items"])


def test_text_with_a_nul_is_kept_as_it_is_on_both_databases(client: TestClient) -> None:
    config = {**TINY_CONFIG, "comment": "a\x00b"}
    assert client.post("/models", json={**TINY, "config": config, "name": "n\x00"}).status_code == 201
    read = client.get("/models/tiny-llama").json()
    assert (read["name"], read["config"]["comment"]) == ("n\x00", "a\x00b")
