"""Ways to hand text, bytes and samples to the importers."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from service.imports import FileReport, ImportedRun, Kind, Meaning, Metadata, Statistic, StatisticKind, import_file

SAMPLES = Path(__file__).parent / "samples"
MEAN = Statistic(StatisticKind.MEAN)
STD = Statistic(StatisticKind.STD)
OVERALL = Statistic(StatisticKind.OVERALL)


def percentile(percent: float) -> Statistic:
    return Statistic(StatisticKind.PERCENTILE, percent)


P50, P99 = percentile(50), percentile(99)


def read(content: str | bytes | Mapping[str, Any], name: str = "result", **options: Any) -> FileReport:
    """The report of a file with that content; a mapping is written as JSON."""
    if isinstance(content, Mapping):
        content = json.dumps(content)
    data = content.encode() if isinstance(content, str) else content
    return import_file(name, io.BytesIO(data), **options)


def sample(name: str, metadata: Metadata | None = None) -> FileReport:
    with (SAMPLES / name).open("rb") as stream:
        return import_file(name, stream, metadata=metadata or Metadata())


def only_run(report: FileReport) -> ImportedRun:
    assert report.accepted, report.reason
    assert len(report.runs) == 1
    return report.runs[0]


def value(run: ImportedRun, meaning: Meaning, statistic: Statistic = OVERALL) -> float | None:
    return run.value(meaning, statistic)


def near(expected: float) -> Any:
    """Within 1e-6, the bar for importers."""
    return pytest.approx(expected, rel=1e-6)


VLLM_SERVE = {
    "date": "20261201-195553",
    "endpoint_type": "vllm",
    "backend": "vllm",
    "label": None,
    "model_id": "acme/tiny-8b-instruct",
    "tokenizer_id": "local-tokenizer",
    "num_prompts": 24,
    "request_rate": "inf",
    "burstiness": 1.0,
    "max_concurrency": 4,
    "duration": 2.0,
    "completed": 24,
    "failed": 0,
    "total_input_tokens": 1536,
    "total_output_tokens": 768,
    "request_throughput": 12.0,
    "request_goodput": None,
    "output_throughput": 384.0,
    "total_token_throughput": 1152.0,
    "mean_ttft_ms": 51.2,
    "median_ttft_ms": 47.1,
    "std_ttft_ms": 17.7,
    "p99_ttft_ms": 94.8,
    "mean_tpot_ms": 7.25,
    "p99_tpot_ms": 9.16,
    "mean_itl_ms": 7.25,
    "p99_itl_ms": 28.0,
}


def vllm_serve(**changes: Any) -> dict[str, Any]:
    """A result of ``vllm bench serve`` with some fields changed; ``...`` takes a field out."""
    return {key: each for key, each in {**VLLM_SERVE, **changes}.items() if each is not ...}


__all__ = ["MEAN", "OVERALL", "P50", "P99", "SAMPLES", "STD", "VLLM_SERVE", "Kind", "Meaning"]
