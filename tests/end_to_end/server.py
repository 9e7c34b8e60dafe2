"""A real server: ``sizing serve`` in a process of its own, on a free port."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

START_LIMIT_S = 60


class RunningServer:
    def __init__(self, process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
        self.process, self.port, self.log = process, port, log
        self.client = httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=30)

    def kill(self) -> None:
        """As a power switch would, for the process: no handler runs."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    def wait_until_ready(self) -> None:
        end_s = time.monotonic() + START_LIMIT_S
        while True:
            try:
                if self.client.get("/health/ready").status_code == 200:
                    return
            except httpx2.TransportError:
                pass
            if self.process.poll() is not None or time.monotonic() > end_s:
                raise RuntimeError(f"the server did not start; it said:\n{self.log.read_text()}")
            time.sleep(0.05)


@contextmanager
def running_server(database_url: str, folder: Path, **settings: str) -> Iterator[RunningServer]:
    port = _free_port()
    log = folder / f"server-{port}.log"
    variables = {f"SIZING_{name.upper()}": value for name, value in settings.items()}
    command = [sys.executable, "-m", "service.cli", "serve", "--port", str(port), "--database-url", database_url]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **variables})
    server = RunningServer(process, port, log)
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.client.close()
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
