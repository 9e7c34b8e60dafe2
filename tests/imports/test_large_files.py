"""A detailed result of 500 MB is imported in less than 300 MB of memory."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import pytest

from tests.imports.reading import VLLM_SERVE

SIZE_BYTES = 500_000_000
MEMORY_BYTES = 300_000_000
SGLANG = {
    "backend": "sglang",
    "dataset_name": "random",
    "request_rate": 4.0,
    "max_concurrency": 4,
    "random_input_len": 64,
    "completed": 1000,
    "total_input_tokens": 64000,
    "total_output_tokens": 32000,
    "mean_ttft_ms": 51.2,
    "output_throughput": 384.0,
}
IMPORT = """
import resource, sys
from service.imports import import_file
with open(sys.argv[1], "rb") as stream:
    report = import_file("large.json", stream)
assert report.accepted, report.reason
print(len(report.runs), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def write_detailed(path: Path, head: dict[str, object]) -> None:
    """Result fields, then arrays of times, of gaps for each request, and of texts."""
    parts: tuple[tuple[str, float, str], ...] = (
        ("ttfts", 0.1, ", ".join(["0.05123456789"] * 1000)),
        ("itls", 0.6, "[" + ", ".join(["0.00712345678"] * 1000) + "]"),
        ("generated_texts", 1.0, json.dumps('a "quoted" \\ text with Infinity in it\n' * 100)),
    )
    with path.open("w") as file:
        file.write(json.dumps(head)[:-1])
        for key, share, element in parts:
            file.write(f', "{key}": [{element}')
            _fill(file, element, lambda file=file, share=share: file.tell() < SIZE_BYTES * share)  # type: ignore[misc]
            file.write("]")
        file.write("}\n")


def _fill(file: TextIO, element: str, goes_on: Callable[[], bool]) -> None:
    while goes_on():
        for _ in range(20):
            file.write(f", {element}")


@pytest.mark.slow
@pytest.mark.parametrize("head", [VLLM_SERVE, SGLANG], ids=["vllm", "sglang"])
def test_a_file_of_500_mb_stays_under_300_mb_of_memory(head: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    write_detailed(path, head)
    assert path.stat().st_size >= SIZE_BYTES
    printed = subprocess.run([sys.executable, "-c", IMPORT, str(path)], capture_output=True, text=True, check=True)
    run_count, peak_bytes = map(int, printed.stdout.split())
    assert run_count == 1
    assert peak_bytes < MEMORY_BYTES
