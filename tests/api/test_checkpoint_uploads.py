"""A model with what its files say of their sizes, over HTTP."""

import gzip
import json
from base64 import b64encode
from typing import Any

from fastapi.testclient import TestClient

from service.api.language_models import TINY_CONFIG
from tests.api.assertions import assert_problem
from tests.api.test_language_models import TINY_TOTAL

BUFFER_BYTES = 64  # the files hold a little more than the parameters


def index(total_bytes: int) -> bytes:
    return json.dumps({"metadata": {"total_size": total_bytes}, "weight_map": {"lm_head.weight": "a"}}).encode()


def body(content: bytes, *, kind: str = "safetensors_index", slug: str = "measured-llama") -> dict[str, Any]:
    checkpoint = {"kind": kind, "content_base64": [b64encode(content).decode()]}
    return {"slug": slug, "config": TINY_CONFIG, "checkpoint": checkpoint}


def test_the_files_bytes_are_used_and_said_to_be(client: TestClient) -> None:
    created = client.post("/models", json=body(gzip.compress(index(2 * TINY_TOTAL + BUFFER_BYTES))))
    assert created.status_code == 201, created.text
    assert created.json()["weight_bytes_source"] == "safetensors_index"
    assert created.json()["checkpoint_weight_bytes"] == 2 * TINY_TOTAL + BUFFER_BYTES
    memory = client.get("/models/measured-llama/memory").json()
    assert memory["weight_bytes_source"] == "safetensors_index"
    assert memory["weight_bytes"]["checkpoint"] == 2 * TINY_TOTAL + BUFFER_BYTES
    weights = [row for row in memory["rows"] if row["component"] not in {"kv_cache", "state"}]
    assert sum(row["size_bytes"] for row in weights) == 2 * TINY_TOTAL + BUFFER_BYTES
    read = client.get("/models/measured-llama").json()
    assert read["weight_bytes_source"] == "safetensors_index"


def test_without_files_the_bytes_follow_from_the_config(client: TestClient) -> None:
    read = client.get("/models/llama-3.1-8b-instruct").json()
    assert read["weight_bytes_source"] == "config"
    assert read["checkpoint_weight_bytes"] == 2 * 8_030_261_248


def test_a_header_comes_as_json_or_as_the_files_first_bytes(client: TestClient) -> None:
    total_bytes = 2 * TINY_TOTAL
    entries = {"everything": {"dtype": "BF16", "shape": [TINY_TOTAL], "data_offsets": [0, total_bytes]}}
    text = json.dumps(entries).encode()
    first_bytes = len(text).to_bytes(8, "little") + text + b"\0" * 100
    for number, content in enumerate((text, first_bytes)):
        asked = body(content, kind="safetensors_header", slug=f"tiny-{number}")
        created = client.post("/models", json=asked)
        assert created.status_code == 201, created.text
        assert created.json()["checkpoint_weight_bytes"] == total_bytes


def test_files_that_cannot_be_the_models_are_refused_by_field(client: TestClient) -> None:
    document = assert_problem(client.post("/models", json=body(index(TINY_TOTAL))), 422, "checkpoint_invalid")
    assert "not of one checkpoint" in document["detail"]
    wrong = body(b"{}")
    wrong["checkpoint"]["content_base64"] = ["not base64!"]
    document = assert_problem(client.post("/models", json=wrong), 422, "checkpoint_invalid")
    assert document["errors"][0]["pointer"] == "/checkpoint/content_base64"
    assert_problem(client.post("/models", json=body(b"GGUF", kind="gguf_header")), 422, "checkpoint_invalid")
    assert client.get("/models/measured-llama").status_code == 404


def test_what_unpacks_to_too_much_is_refused(client: TestClient) -> None:
    bomb = gzip.compress(b"\0" * (64 * 1024 * 1024))
    document = assert_problem(client.post("/models", json=body(bomb)), 422, "checkpoint_invalid")
    assert "unpacked" in document["detail"]
    cut = gzip.compress(index(5))[:-10] + b"\xff" * 20
    assert_problem(client.post("/models", json=body(cut)), 422, "checkpoint_invalid")


def test_an_index_is_one_content(client: TestClient) -> None:
    asked = body(index(2 * TINY_TOTAL))
    asked["checkpoint"]["content_base64"] *= 2
    document = assert_problem(client.post("/models", json=asked), 422, "checkpoint_invalid")
    assert "2 were sent" in document["detail"]
