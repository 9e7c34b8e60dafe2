"""llama-bench's table in Markdown and its SQL, both read as text: the SQL is parsed and never run."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import BinaryIO

from service.imports.fields import Fields, number_in
from service.imports.llama_bench import ASKS, WARNINGS, rate_meaning, test_run
from service.imports.measures import Measures
from service.imports.report import Ask, Parsed, Refused
from service.imports.run import MEAN, STD, ConcurrencyBasis, ImportedRun, Meaning, Scenario
from service.imports.text_stream import lines
from service.imports.vllm import MOST_RUNS

BUILD = re.compile(r"build:\s*([0-9a-f]{5,40})\s*\((\d{1,9})\)", re.ASCII)
TEST = re.compile(r"(pp|tg)\s*(\d{1,9})(?:\s*\+\s*tg\s*(\d{1,9}))?(?:\s*@\s*d(\d{1,9}))?", re.ASCII)
SIZES = {"GiB": 2.0**30, "MiB": 2.0**20}
LONGEST_ROW = 10_000
PARAMETERS = {"B": 1e9, "M": 1e6}
INSERT = re.compile(r"INSERT\s+INTO\s+\S+\s*\(([^()]*)\)\s*VALUES\s*\(", re.IGNORECASE)
SQL_VALUE = re.compile(r"\s*(?:'((?:[^']|'')*)'|(NULL|[-+0-9.eE]+))\s*(,|\)\s*;?)", re.ASCII)


def cells_of(line: str) -> list[str]:
    if len(line) > LONGEST_ROW:
        raise Refused(f"a row of the table is longer than {LONGEST_ROW} characters")
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def scaled(text: str | None, scales: dict[str, float]) -> int | None:
    """A rounded size such as "6.70 GiB", in base units."""
    number, _, unit = (text or "").partition(" ")
    value = number_in(number) if number else None
    return round(value * scales[unit.strip()]) if value and unit.strip() in scales else None


def markdown_run(row: Fields) -> ImportedRun:
    test = TEST.fullmatch(row.text("test") or "")
    if test is None:
        raise row.refuse("test", "a test such as pp512, tg128 or pp512 @ d4096")
    kind, tokens, more, depth = test.groups()
    prompt, generated = (0, int(tokens)) if kind == "tg" else (int(tokens), int(more or 0))
    mean, _, spread = (row.text("t/s") or "").partition("±")
    measures, meaning = Measures(), rate_meaning(prompt, generated)
    measures.add(meaning, MEAN, number_in(mean), "t/s")
    measures.add(meaning, STD, number_in(spread), "t/s ±")
    rate = measures.value(meaning, MEAN)
    if meaning is Meaning.DECODE_RATE and rate:
        measures.add(Meaning.TPOT, MEAN, 1 / rate, "1 / t/s")
    return ImportedRun(
        tool="llama-bench",
        position=row.where,
        engine="llama.cpp",
        client_backend=row.text("backend"),
        model_name=row.text("model"),
        model_bytes=scaled(row.text("size"), SIZES),
        parameter_count=scaled(row.text("params"), PARAMETERS),
        scenario=Scenario.SINGLE_STREAM,
        concurrency=1,
        concurrency_basis=ConcurrencyBasis.BATCH,
        isl_mean_tokens=prompt or None,
        osl_mean_tokens=generated or None,
        context_depth_tokens=int(depth) if depth else 0,
        gpu_layer_count=row.count("ngl"),
        metrics=measures.metrics,
        dropped_keys=tuple(measures.not_finite),
    )


def markdown_tables(stream: BinaryIO) -> tuple[list[Fields], tuple[str, str] | None]:
    """The rows of every table with a test, and the build named below them."""
    header: list[str] = []
    rows: list[Fields] = []
    build = None
    for number, line in enumerate(lines(stream), start=1):
        if found := BUILD.search(line):
            build = found.group(1), found.group(2)
        if not line.lstrip().startswith("|"):
            header = []
            continue
        cells = cells_of(line)
        if not header:
            header = cells
        elif "test" in header and not set("".join(cells)) <= set("-: "):
            if len(cells) != len(header):
                raise Refused(f"{len(cells)} cells under {len(header)} columns", where=f"line {number}")
            rows.append(Fields(dict(zip(header, cells, strict=True)), f"line {number}"))
            if len(rows) > MOST_RUNS:
                raise Refused(f"there are more than {MOST_RUNS} rows; send the file in parts")
    return rows, build


def parse_markdown(stream: BinaryIO) -> Parsed:
    rows, build = markdown_tables(stream)
    runs = tuple(markdown_run(row) for row in rows)
    if build:
        runs = tuple(_with_build(run, *build) for run in runs)
    warnings = (*WARNINGS, "a table names the backend and no accelerator; its size is rounded, in GiB")
    return Parsed(runs, (*ASKS, Ask.STARTED_AT), warnings)


def _with_build(run: ImportedRun, commit: str, number: str) -> ImportedRun:
    return replace(run, tool_version=f"b{number} ({commit})", engine_version=number)


def insert_records(stream: BinaryIO) -> Iterator[Fields]:
    for number, line in enumerate(lines(stream), start=1):
        start = INSERT.match(line.strip())
        if start is None:
            continue
        where = f"line {number}"
        columns = [name.strip().strip('"`') for name in start.group(1).split(",")]
        values = list(_sql_values(line.strip()[start.end() :], where))
        if len(values) != len(columns):
            raise Refused(f"{len(values)} values for {len(columns)} columns", where=where)
        yield Fields(dict(zip(columns, values, strict=True)), where)


def _sql_values(text: str, where: str) -> Iterator[str | None]:
    position = 0
    while True:
        match = SQL_VALUE.match(text, position)
        if match is None:
            raise Refused("a value is not a text or a number", where=where)
        quoted, bare, end = match.groups()
        yield quoted.replace("''", "'") if quoted is not None else (None if bare == "NULL" else bare)
        if end != ",":
            return
        position = match.end()


def parse_sql(stream: BinaryIO) -> Parsed:
    runs = []
    for fields in insert_records(stream):
        runs.append(test_run(fields))
        if len(runs) > MOST_RUNS:
            raise Refused(f"there are more than {MOST_RUNS} rows; send the file in parts")
    return Parsed(tuple(runs), ASKS, (*WARNINGS, "the SQL was read as text and not run"))
