"""Real server processes on real databases: what a user, a balancer and a power switch do to them."""

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

from service.api.language_models import TINY_CONFIG
from tests.api.assertions import assert_problem
from tests.end_to_end.server import RunningServer, running_server
from tests.postgres import PostgresUnavailable, running_postgres

TINY = {"slug": "tiny-llama", "config": TINY_CONFIG}


@pytest.fixture
def server(database_url: str, tmp_path: Path) -> Iterator[RunningServer]:
    with running_server(database_url, tmp_path) as server:
        yield server


@pytest.fixture
def pair(database_url: str, tmp_path: Path) -> Iterator[tuple[RunningServer, RunningServer]]:
    with (
        running_server(database_url, tmp_path, poll_interval_s="0.1") as one,
        running_server(database_url, tmp_path, poll_interval_s="0.1") as other,
    ):
        yield one, other


def eventually(found: Any, *, within_s: float = 10.0) -> None:
    end_s = time.monotonic() + within_s
    while not found():
        assert time.monotonic() < end_s, "it did not happen in time"
        time.sleep(0.05)


def test_replicas_that_start_together_on_an_empty_database_all_serve(empty_database_url: str, tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(3) as pool:
        started = list(pool.map(lambda _: running_server(empty_database_url, tmp_path), range(3)))
        servers = list(pool.map(stack.enter_context, started))
        for server in servers:
            assert server.client.get("/accelerators/gb200-nvl72").json()["gpu_count"] == 72
            assert server.client.get("/health/ready").json()["catalogue_revision"] == 1


def test_a_model_is_sized_on_an_accelerator(server: RunningServer) -> None:
    answer = server.client.post("/sizing", json={"model": "llama-3.3-70b-instruct", "accelerator": "gb200-nvl72"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["memory_fit"]["fits"] is True


def test_one_replica_follows_the_writes_of_another(pair: tuple[RunningServer, RunningServer]) -> None:
    one, other = pair
    assert one.client.post("/models", json=TINY).status_code == 201
    assert one.client.get("/models/tiny-llama").status_code == 200
    eventually(lambda: other.client.get("/models/tiny-llama").status_code == 200)
    assert one.client.delete("/models/tiny-llama", headers={"If-Match": '"1"'}).status_code == 204
    eventually(lambda: other.client.get("/models/tiny-llama/memory").status_code == 410)


def test_no_update_is_lost_between_two_replicas(pair: tuple[RunningServer, RunningServer]) -> None:
    pair[0].client.post("/models", json=TINY)
    eventually(lambda: pair[1].client.get("/models/tiny-llama").status_code == 200)
    accepted = []

    def write(number: int) -> None:
        with httpx2.Client(base_url=pair[number % 2].client.base_url, timeout=30) as client:
            for _ in range(5):
                etag = client.get("/models/tiny-llama").headers["etag"]
                longer = {**TINY_CONFIG, "max_position_embeddings": 2048 + number}
                answer = client.put("/models/tiny-llama", json={"config": longer}, headers={"If-Match": etag})
                if answer.status_code == 200:
                    accepted.append(answer.json()["revision"])
                else:
                    assert_problem(answer, 412, "revision_mismatch")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(6)))
    history = pair[0].client.get("/models/tiny-llama/revisions").json()["revisions"]
    assert accepted
    assert sorted(accepted) == list(range(2, len(accepted) + 2))  # each accepted write is one revision of its own
    assert len(history) == len(accepted) + 1


def test_no_acknowledged_write_is_lost_by_a_kill(database_url: str, tmp_path: Path) -> None:
    acknowledged = []

    def write(server: RunningServer) -> None:
        with contextlib.suppress(httpx2.TransportError):
            for number in range(1000):
                slug = f"tiny-{number}"
                answer = server.client.post("/models", json={"slug": slug, "config": TINY_CONFIG})
                if answer.status_code == 201:
                    acknowledged.append(slug)

    with running_server(database_url, tmp_path) as server:
        writer = threading.Thread(target=write, args=(server,))
        writer.start()
        eventually(lambda: len(acknowledged) > 20)
        server.kill()
        writer.join()
    with running_server(database_url, tmp_path) as server:
        for slug in acknowledged:
            assert server.client.get(f"/models/{slug}").status_code == 200


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_of_200_mb_is_refused_without_being_kept(tmp_path: Path, declared: bool) -> None:
    with running_server(f"sqlite:///{tmp_path / 'sizing.db'}", tmp_path) as server:
        _refuses_200_mb(server, declared=declared)


def _refuses_200_mb(server: RunningServer, *, declared: bool) -> None:
    size_bytes, chunk = 200_000_000, b" " * 100_000
    before_bytes = _peak_memory_bytes(server)

    def body() -> Iterator[bytes]:
        for _ in range(size_bytes // len(chunk)):
            yield chunk

    headers = {"Content-Type": "application/json"}
    if declared:
        headers["Content-Length"] = str(size_bytes)
    with contextlib.suppress(httpx2.WriteError):  # the server may hang up on what it will not read
        assert_problem(server.client.post("/sizing", content=body(), headers=headers), 413, "body_too_large")
    assert _peak_memory_bytes(server) - before_bytes < 60_000_000
    assert server.client.get("/health/live").status_code == 200


def _peak_memory_bytes(server: RunningServer) -> int:
    status = Path(f"/proc/{server.process.pid}/status")
    if not status.exists():
        pytest.skip("the peak memory of a process is read from /proc, which only Linux has")
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def test_reads_go_on_while_the_database_is_away(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(contextlib.ExitStack())
        try:
            postgres = database.enter_context(running_postgres())
        except PostgresUnavailable as error:
            pytest.skip(f"NOT TESTED ON POSTGRES: {error}")
        server = stack.enter_context(running_server(postgres.create_database(), tmp_path, poll_interval_s="0.1"))
        database.close()
        ready = server.client.get("/health/ready")
        assert_problem(ready, 503, "not_ready")
        assert server.client.get("/health/live").status_code == 200
        assert server.client.get("/accelerators/gb200-nvl72").status_code == 200
        question = {"model": "llama-3.3-70b-instruct", "accelerator": "gb200-nvl72"}
        assert server.client.post("/sizing", json=question).status_code == 200
        assert_problem(server.client.post("/models", json=TINY), 503, "database_unavailable")
