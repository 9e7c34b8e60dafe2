"""Benchmark runs for ``benchmarks.growth``: sweeps of one configuration, in the spread that a store has after years.

The values of a column come as the harmonic series, 1, 1/2, 1/3 …; twenty runs, whatever the size, have values that no
other has. Engine versions follow each other in time, so that the runs of one lie together. One file in thirty is a pair
of MLPerf runs.
"""

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from service.catalogue.benchmark_records import (
    BenchmarkRun,
    Details,
    RunScenario,
    StoredMetric,
    main_figures,
    pair_key_of,
)
from service.catalogue.snapshot import Snapshot
from service.catalogue.tables import Origin

FIRST_DAY = datetime(2024, 12, 1, tzinfo=UTC)
CONCURRENCIES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
TIMES = ("ttft_p50_s", "ttft_p99_s", "ttft_central_s", "tpot_p50_s", "tpot_mean_s", "tpot_p99_s", "tpot_central_s")
RATES = ("output_tokens_per_s", "output_tokens_per_s_per_gpu", "input_tokens_per_s")
RARE_RUNS = 20
RARE_TEXT, RARE_COUNT = "rare", 97
SWEEPS_PER_MLPERF_PAIR = 30
VERSIONS = 40
SCENARIOS = (
    RunScenario.CLOSED_LOOP,
    RunScenario.OPEN_LOOP,
    RunScenario.OFFLINE_MAX,
    RunScenario.STATIC_BATCH,
    RunScenario.SINGLE_STREAM,
)
RARE_SCENARIO = RunScenario.TRACE_REPLAY
RARE_TEXTS = (
    "accelerator",
    "accelerator_name",
    "model",
    "model_name",
    "weights",
    "kv_cache",
    "compute",
    "engine",
    "engine_version",
    "speculation",
    "mlperf_version",
    "mlperf_division",
    "mlperf_availability",
    "submitter",
    "system_name",
    "tool",
    "measured_by",
)
RARE_COUNTS = ("gpu_count", "node_count", "tp", "pp", "ep", "dp")
RARE_VALUES: dict[str, Any] = {
    **dict.fromkeys(RARE_TEXTS, RARE_TEXT),
    **dict.fromkeys(RARE_COUNTS, RARE_COUNT),
    "scenario": RARE_SCENARIO,
    "power_scope": "facility",
    "measured_on": "2019-07-15",
}
WORDS: dict[str, tuple[Any, ...]] = {
    "weights": ("fp8", "bf16", "nvfp4", "mxfp4", "awq-int4", "int8"),
    "kv_cache": ("fp8", "bf16", None),
    "compute": ("fp8", "bf16", "fp4"),
    "engine": ("vllm", "sglang", "tensorrt-llm", "llama.cpp", "lmdeploy"),
    "gpu_count": (8, 4, 1, 2, 16, 72, 32),
    "node_count": (1, 2, 4),
    "tp": (8, 4, 1, 2),
    "pp": (1, 2, 4),
    "ep": (1, 8, 4),
    "dp": (1, 2, 8),
    "speculation": (None, "eagle", "mtp"),
    "prefix_caching": (False, True),
    "tool": ("vllm-bench", "genai-perf", "guidellm", "sglang-bench"),
    "measured_by": tuple(f"team {number}" for number in range(30)),
    "power_scope": ("board", "system_wall"),
    "calibrates": (True, True, False),
}


def generated_runs(count: int, snapshot: Snapshot) -> Iterator[list[BenchmarkRun]]:
    """So many runs, oldest first, a file at once; the same at each call."""
    source = random.Random(count)  # noqa: S311 - not for secrecy
    words = {
        **WORDS,
        "accelerator": tuple(sorted(snapshot.accelerators.by_slug)),
        "model": tuple(sorted(snapshot.language_models.by_slug)),
    }
    weights = {name: [1 / (rank + 1) for rank in range(len(values))] for name, values in words.items()}
    step, done, number = count // RARE_RUNS, 0, 0
    while done < count:
        setup = {name: source.choices(values, weights[name])[0] for name, values in words.items()}
        setup["engine_version"] = f"0.{VERSIONS * done // count}"
        at = FIRST_DAY + timedelta(seconds=660 * number)
        is_mlperf = number % SWEEPS_PER_MLPERF_PAIR == 0
        file = _mlperf_pair(source, setup, at, number) if is_mlperf else _sweep(source, setup, at, number)
        if done // step != (done + len(file)) // step:
            file[0] = _of_file(at, number, 0, {**_fields_of(file[0]), **RARE_VALUES})
        yield file[: count - done]
        done, number = done + len(file), number + 1


def _fields_of(run: BenchmarkRun) -> dict[str, Any]:
    own = ("id", "origin", "created_at", "content_digest", "file_index", "file_name", "accelerator_name", "model_name")
    return {name: getattr(run, name) for name in run.__dataclass_fields__ if name not in own}


def _sweep(source: random.Random, setup: dict[str, Any], at: datetime, number: int) -> list[BenchmarkRun]:
    """One point for each concurrency: a step of more requests is a little slower, and gives more tokens."""
    scenario = source.choices(SCENARIOS, (8, 4, 2, 1, 1))[0]
    isl, osl = source.choice((128.0, 1024.0, 8192.0)), source.choice((128.0, 1024.0))
    shape = {"isl_mean_tokens": isl, "osl_mean_tokens": osl}
    tpot_s, ttft_s = source.lognormvariate(-4, 0.5), source.lognormvariate(-2, 0.5)
    figures = _figures(setup, {"tpot_s": tpot_s, "ttft_s": ttft_s}, 1 / tpot_s, setup["gpu_count"] * 600.0)
    same = {**setup, **shape, **figures, "scenario": scenario}
    runs = []
    for index, concurrency in enumerate(CONCURRENCIES):
        slower = (1 + concurrency / 64) * source.uniform(0.98, 1.02)
        faster = concurrency / slower
        load = {"concurrency": float(concurrency), "request_rate_per_s": faster / tpot_s / osl}
        times = {name: figures[name] * slower for name in TIMES}
        rates = {name: figures[name] * faster for name in RATES}
        runs.append(_of_file(at, number, index, {**same, **load, **times, **rates}))
    return runs


def _mlperf_pair(source: random.Random, setup: dict[str, Any], at: datetime, number: int) -> list[BenchmarkRun]:
    """Offline and, at a little less, Server of the same system."""
    submitter = f"submitter {source.randrange(20)}"
    mlperf = {
        "mlperf_version": f"v{4 + number % 3}.0",
        "mlperf_division": source.choice(("closed", "closed", "open")),
        "mlperf_availability": source.choice(("available", "preview")),
        "mlperf_valid": number % 20 != 0,
        "submitter": submitter,
        "system_name": f"system {number % 200}",
        "pair_key": pair_key_of(submitter, number),
    }
    rate = source.lognormvariate(9, 1)
    return [
        _of_file(at, number, index, setup | mlperf | _figures(setup, {}, share * rate, 5000.0) | {"scenario": scenario})
        for index, (scenario, share) in enumerate(
            ((RunScenario.MLPERF_OFFLINE, 1.0), (RunScenario.MLPERF_SERVER, source.uniform(0.6, 1)))
        )
    ]


def _figures(
    setup: dict[str, Any], measured: dict[str, float], output_tokens_per_s: float, power_w: float
) -> dict[str, Any]:
    metrics = [
        StoredMetric(meaning, statistic, value * factor, f"{statistic}_{meaning}")
        for meaning, value in measured.items()
        for statistic, factor in (("p50", 1.0), ("mean", 1.1), ("p99", 1.9))
    ]
    metrics += [
        StoredMetric("output_tokens_per_s", "overall", output_tokens_per_s),
        StoredMetric("input_tokens_per_s", "overall", 3 * output_tokens_per_s),
        StoredMetric("output_tokens_per_s_per_user", "mean", 1 / measured.get("tpot_s", 1.0)),
        StoredMetric("power_w", "mean", power_w),
    ]
    details = Details(metrics=tuple(metrics)).text()
    return {**main_figures(metrics, gpu_count=setup["gpu_count"]), "power_w": power_w, "details": details}


def _of_file(at: datetime, number: int, index: int, fields: dict[str, Any]) -> BenchmarkRun:
    own = {
        "id": f"1{number:010d}{index:07d}",
        "origin": Origin.USER,
        "created_at": at,
        "content_digest": f"{number:064d}",
        "file_index": index,
        "file_name": f"sweep-{number}.json",
        "accelerator_name": fields["accelerator"],
        "model_name": fields["model"],
        "measured_on": at.date().isoformat(),
    }
    return BenchmarkRun(**{**own, **fields})


def flattened(files: Iterator[list[BenchmarkRun]], at_once: int) -> Iterator[Sequence[BenchmarkRun]]:
    """The runs of many files together, for a bulk insert."""
    held: list[BenchmarkRun] = []
    for file in files:
        held += file
        if len(held) >= at_once:
            yield held
            held = []
    if held:
        yield held
