"""The whole contract under generated requests, valid and invalid, against a real server. Minutes: `make check-long`."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.server import running_server

pytestmark = pytest.mark.slow

EXAMPLES_PER_OPERATION = 100
LIMIT_S = 1200


def test_no_generated_request_breaks_the_server_or_the_contract(database_url: str, tmp_path: Path) -> None:
    with running_server(database_url, tmp_path) as server:
        command = [
            str(Path(sys.executable).with_name("schemathesis")),
            "run",
            f"http://127.0.0.1:{server.port}/openapi.json",
        ]
        # A schema cannot say that tp must divide the heads or that a cursor is the service's own: what it lets through
        # may still be refused, with a documented status and problem.
        command += ["--checks", "all", "--exclude-checks", "positive_data_acceptance"]
        command += ["--max-examples", str(EXAMPLES_PER_OPERATION), "--continue-on-failure"]
        # Fields named …_tokens are not secrets, and a failure must be reproducible from its report.
        command += ["--no-color", "--generation-deterministic", "--output-sanitize", "false"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:] + server.log.read_text()[-10_000:]
        assert server.client.get("/health/ready").status_code == 200
