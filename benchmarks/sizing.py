"""``POST /sizing`` against an empty route: how much of the server's throughput is left for the answer itself.

Both routes stand in one application in one server process with one worker. The empty route declares the same
request body, so that it is read and validated alike, and answers the bytes of a real answer without working anything
out. Every request to ``/sizing`` differs from the others. Rounds alternate, and the ratio of the medians is printed;
the bars are a half by physics alone and a third with evidence. ``--profile`` shows where the rest goes.

    python -m benchmarks.sizing [--seconds 2] [--rounds 5] [--profile]
"""

import argparse
import asyncio
import cProfile
import json
import multiprocessing
import os
import pstats
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from statistics import median
from typing import Annotated

import uvicorn
from fastapi import Body, FastAPI, Response
from pydantic_core import to_json

from service.api.sizing import SizingRequest, sizing_answer
from service.api.sizing_examples import EXAMPLES
from service.api.strict_json import StrictJsonRoute
from service.app import create_app
from service.catalogue.live_evidence import shipped_evidence
from service.catalogue.snapshot import shipped_snapshot
from service.settings import Settings

BARS = {"by physics alone": 1 / 2, "with evidence": 1 / 3}
CONNECTIONS = 8
MODELS = ("llama-3.3-70b-instruct", "qwen3-30b-a3b", "gpt-oss-120b", "deepseek-v3", "gemma-3-27b-it")
ACCELERATORS = ("gb200-nvl72", "h100-sxm", "b200-sxm", "mi300x")


def bodies() -> Iterator[bytes]:
    """Distinct requests of the size of the contract's full example."""
    for number in count():
        asked = json.loads(json.dumps(EXAMPLES["full"]["value"]))
        asked |= {"model": MODELS[number % 5], "accelerator": ACCELERATORS[number % 4]}
        asked["precision"] = {"kv_cache": "fp8"}
        asked["parallelism"]["tp"] = 8
        asked["workload"] |= {"isl_tokens": 512 + number % 4000, "concurrency": 1 + number % 97}
        del asked["speculation"]
        yield to_json(asked)


def benchmark_app(database: Path, *, lean_on_runs: bool) -> FastAPI:
    """The service, with an empty route beside it."""
    app = create_app(Settings(database_url=f"sqlite:///{database}", gzip=False, lean_on_runs=lean_on_runs))
    answer = to_json(sizing_answer(SizingRequest.model_validate_json(next(bodies())), shipped_snapshot(), None))

    async def empty(request: Annotated[SizingRequest, Body()]) -> Response:  # noqa: ARG001 - read and validated only
        return Response(answer, media_type="application/json")

    app.router.add_api_route("/empty", empty, methods=["POST"], route_class_override=StrictJsonRoute)
    return app


def serve(database: Path, listening: socket.socket, lean_on_runs: bool) -> None:
    config = uvicorn.Config(benchmark_app(database, lean_on_runs=lean_on_runs), log_level="warning", access_log=False)
    asyncio.run(uvicorn.Server(config).serve(sockets=[listening]))


@contextmanager
def server(*, lean_on_runs: bool) -> Iterator[tuple[int, int]]:
    """A server process; its port and process id."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as listening:
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else a delayed ACK of 40 ms is measured
        listening.bind(("127.0.0.1", 0))
        listening.listen(128)
        context = multiprocessing.get_context("spawn")
        process = context.Process(target=serve, args=(Path(folder) / "sizing.db", listening, lean_on_runs), daemon=True)
        process.start()
        assert process.pid is not None  # noqa: S101 - it has been started
        try:
            yield listening.getsockname()[1], process.pid
        finally:
            process.terminate()
            process.join()


async def load(port: int, path: str, seconds: float, requests: Iterator[bytes]) -> float:
    """Requests per second over a few connections that each wait for their answer."""
    deadline = time.perf_counter() + seconds

    async def connection() -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        done = 0
        while time.perf_counter() < deadline:
            body = next(requests)
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            answered = await reader.readuntil(b"\r\n\r\n")
            if not answered.startswith(b"HTTP/1.1 200"):
                raise SystemExit(f"{path} answered {answered[:60]!r}: {await reader.read(2000)!r}")
            length = int(answered.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            done += 1
        writer.close()
        return done

    started = time.perf_counter()
    done = sum(await asyncio.gather(*(connection() for _ in range(CONNECTIONS))))
    return done / (time.perf_counter() - started)


def cpu_s(pid: int) -> float:
    """CPU time of the server so far (Linux), the steadier figure on a shared machine."""
    user, system = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def measure(rounds: int, seconds: float, *, lean_on_runs: bool) -> float:
    requests = bodies()
    routes = ("/empty", "/sizing")
    measured: dict[str, list[tuple[float, float]]] = {route: [] for route in routes}
    with server(lean_on_runs=lean_on_runs) as (port, pid):
        for route in routes:
            asyncio.run(load(port, route, 1.0, requests))  # warm
        for route in routes * rounds:
            before = cpu_s(pid)
            rate = asyncio.run(load(port, route, seconds, requests))
            measured[route].append((rate, (cpu_s(pid) - before) / (rate * seconds)))
    rates = {}
    for route, rounds_of_route in measured.items():
        rates[route] = median(rate for rate, _ in rounds_of_route)
        cpu_us = 1e6 * median(cpu for _, cpu in rounds_of_route)
        print(f"{route:8} {rates[route]:8.0f} requests/s  {cpu_us:7.0f} us of CPU per request")
    return rates["/sizing"] / rates["/empty"]


def profile() -> None:
    """Where the time of an answer goes, without HTTP."""
    snapshot, requests = shipped_snapshot(), bodies()
    evidence = shipped_evidence(snapshot)
    asked = [SizingRequest.model_validate_json(next(requests)) for _ in range(500)]
    for request in asked[:40]:
        sizing_answer(request, snapshot, evidence)
    profiler = cProfile.Profile()
    profiler.enable()
    for request in asked:
        to_json(sizing_answer(request, snapshot, evidence))
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="length of a round (default 2)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each route (default 5)")
    parser.add_argument("--profile", action="store_true", help="show where the time of an answer goes")
    asked = parser.parse_args()
    if asked.profile:
        profile()
        return
    is_kept = True
    for case, bar in BARS.items():
        ratio = measure(asked.rounds, asked.seconds, lean_on_runs=case == "with evidence")
        print(f"ratio    {ratio:.2f} of the empty route's throughput {case}; the bar is {bar:.2f}")
        is_kept = is_kept and ratio >= bar
    raise SystemExit(0 if is_kept else 1)


if __name__ == "__main__":
    main()
