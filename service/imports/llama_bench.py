"""llama.cpp's ``llama-bench``: one row a test, as a JSON array, JSON lines or CSV.

``avg_ts`` is the rate of reading the prompt where ``n_gen`` is 0 ("pp"), of generating where ``n_prompt`` is 0 ("tg"),
and of both together else ("pg"): three quantities that are never added or averaged. It is the mean of the rates of the
repetitions, and so differs a little from tokens over ``avg_ns``. Schema: tools/llama-bench of
github.com/ggml-org/llama.cpp at b10743.
"""

from collections.abc import Iterator
from datetime import datetime
from pathlib import PurePosixPath, PureWindowsPath
from typing import BinaryIO

from service.imports.fields import Fields
from service.imports.measures import Measures
from service.imports.report import Ask, Parsed, Refused
from service.imports.run import MEAN, STD, ConcurrencyBasis, ImportedRun, Meaning, Scenario
from service.imports.text_stream import csv_rows
from service.imports.vllm import MOST_RUNS, records

ASKS = (Ask.MODEL, Ask.ACCELERATOR, Ask.GPU_COUNT)
WARNINGS = (
    "avg_ts is the prompt's rate in pp tests, the rate of generation in tg tests and of both in pg tests",
    "one sequence at a time: not a serving run",
)


def rate_meaning(prompt_tokens: int, generated_tokens: int) -> Meaning:
    if not generated_tokens:
        return Meaning.PREFILL_RATE
    return Meaning.PHASES_RATE if prompt_tokens else Meaning.DECODE_RATE


def file_name(path: str | None) -> str | None:
    """The last part of a path of either kind: the rest is the measurer's own directory."""
    return PurePosixPath(PureWindowsPath(path).as_posix()).name if path else None


def gpu_names(text: str | None) -> list[str]:
    return [name for part in text.split(",") if (name := part.strip())] if text else []


def test_run(fields: Fields) -> ImportedRun:
    prompt, generated = fields.count("n_prompt") or 0, fields.count("n_gen") or 0
    if not prompt and not generated:
        raise Refused("a test has neither prompt nor generated tokens", where=fields.where)
    measures, meaning = Measures(), rate_meaning(prompt, generated)
    measures.take(fields, "avg_ts", meaning, MEAN)
    measures.take(fields, "stddev_ts", meaning, STD)
    rate = measures.value(meaning, MEAN)
    if meaning is Meaning.DECODE_RATE and rate:
        measures.add(Meaning.TPOT, MEAN, 1 / rate, "1 / avg_ts")
    number, commit = fields.text("build_number"), fields.text("build_commit")
    gpus = gpu_names(fields.text("gpu_info"))
    return ImportedRun(
        tool="llama-bench",
        tool_version=f"b{number} ({commit})" if number and commit else None,
        position=fields.where,
        engine="llama.cpp",
        engine_version=number,
        client_backend=fields.text("backends") or fields.text("backend"),
        model_name=fields.text("model_type"),
        model_file=file_name(fields.text("model_filename")),
        model_bytes=fields.count("model_size") or None,
        parameter_count=fields.count("model_n_params") or None,
        kv_precision=fields.text("type_k"),
        started_at=_test_time(fields),
        scenario=Scenario.SINGLE_STREAM,
        concurrency=1,
        concurrency_basis=ConcurrencyBasis.BATCH,
        isl_mean_tokens=prompt or None,
        osl_mean_tokens=generated or None,
        context_depth_tokens=fields.count("n_depth"),
        accelerator_name=gpus[0] if gpus and len(set(gpus)) == 1 else None,
        accelerator_count=len(gpus) if len(gpus) > 1 else None,
        gpu_layer_count=fields.count("n_gpu_layers"),
        metrics=measures.metrics,
        extras=flash_attention(fields),
        dropped_keys=tuple(measures.not_finite),
    )


FLASH_ATTENTION = {"true": "on", "1": "on", "false": "off", "0": "off"}


def flash_attention(fields: Fields) -> dict[str, str]:
    """Whether it was on; newer builds may leave the choice to the back end, which says nothing."""
    state = FLASH_ATTENTION.get(str(fields.values.get("flash_attn")).strip().lower())
    return {"flash_attention": state} if state else {}


def _test_time(fields: Fields) -> datetime | None:
    time = fields.iso_time("test_time")
    if time is not None and time.tzinfo is None:
        raise fields.refuse("test_time", "a time in UTC")
    return time


def parse_json(stream: BinaryIO) -> Parsed:
    return Parsed(tuple(test_run(fields) for fields in records(stream)), ASKS, WARNINGS)


def csv_records(stream: BinaryIO) -> Iterator[Fields]:
    rows = csv_rows(stream)
    header = next(rows, [])
    for number, row in enumerate(rows, start=1):
        where = f"test {number}"
        if number > MOST_RUNS:
            raise Refused(f"there are more than {MOST_RUNS} rows; send the file in parts")
        if row and len(row) != len(header):
            raise Refused(f"{len(row)} cells under {len(header)} columns", where=where)
        if row:
            yield Fields(dict(zip(header, row, strict=True)), where)


def parse_csv(stream: BinaryIO) -> Parsed:
    return Parsed(tuple(test_run(fields) for fields in csv_records(stream)), ASKS, WARNINGS)
