"""GuideLLM's CSV: one row a benchmark, percentiles as a list inside a cell, without the median.

Up to 0.3 one header row ("Successful Time to first token ms mean"); later three (group, field, and the statistic or
the unit). Schemas: guidellm/benchmark/output.py of 0.3 and benchmark/outputs/csv.py of
github.com/vllm-project/guidellm.
"""

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

from service.imports.fields import Fields, number_in, time_in
from service.imports.guidellm import ASKS, strategy_load
from service.imports.measures import MILLISECOND_S, Measures
from service.imports.report import Ask, Parsed, Refused
from service.imports.run import (
    MAX,
    MEAN,
    MIN,
    OVERALL,
    P50,
    STD,
    ConcurrencyBasis,
    ImportedRun,
    Meaning,
    QualityFlag,
    percentile,
)
from service.imports.text_stream import LONGEST_CELL, csv_rows

LISTED = (MIN, *(percentile(each) for each in (0.1, 1, 5, 10, 25, 75, 90, 95, 99)), MAX)
COLUMN_STATISTICS = {"mean": MEAN, "median": P50, "std dev": STD}
LATENCIES = {
    "time to first token": (Meaning.TTFT, MILLISECOND_S),
    "time per output token": (Meaning.LATENCY_PER_OUTPUT_TOKEN, MILLISECOND_S),
    "inter token latency": (Meaning.TPOT, MILLISECOND_S),
    "request latency": (Meaning.E2E_LATENCY, 1.0),
}
RATES = {
    "output tokens per second": Meaning.OUTPUT_RATE,
    "output tokens/sec": Meaning.OUTPUT_RATE,
    "tokens per second": Meaning.TOTAL_RATE,
    "total tokens/sec": Meaning.TOTAL_RATE,
    "input tokens/sec": Meaning.INPUT_RATE,
    "requests per second": Meaning.REQUEST_RATE,
    "requests/sec": Meaning.REQUEST_RATE,
    "request concurrency": Meaning.MEASURED_CONCURRENCY,
    "concurrency": Meaning.MEASURED_CONCURRENCY,
}
MOST_ROWS = 10_000


def columns_and_rows(stream: BinaryIO) -> tuple[list[str], Iterator[list[str]]]:
    """Column names as "group | field | statistic", and the rows below."""
    rows = csv_rows(stream)
    first = next(rows, [])
    if "Run Info" not in first:
        return [cell.strip() for cell in first], rows
    second, third = next(rows, []), next(rows, [])
    if not len(first) == len(second) == len(third):
        raise Refused("the three header rows differ in length")
    return [" | ".join(parts) for parts in zip(first, second, third, strict=True)], rows


def plain(column: str) -> tuple[str, str] | None:
    """The quantity and the statistic of a column over successful requests, in the words of either layout.

    >>> plain("Successful Time to first token ms mean")
    ('time to first token', 'mean')
    >>> plain("Time to First Token | Successful ms | Percentiles")
    ('time to first token', 'list')
    """
    lowered = column.lower()
    if "successful" not in lowered:
        return None
    if " | " in lowered:
        group, field, statistic = lowered.split(" | ")
        unit = field.removeprefix("successful ").strip()
        name = group if group in LATENCIES else unit
        return name, "list" if statistic == "percentiles" else statistic
    name = lowered.removeprefix("successful ")
    for word in (*COLUMN_STATISTICS, "[min, 0.1, 1, 5, 10, 25, 75, 90, 95, 99, max]"):
        if name.endswith(" " + word):
            quantity = name.removesuffix(word).strip().removesuffix(" ms").strip()
            return quantity, "list" if word.startswith("[") else word
    return None


def listed_numbers(cell: str) -> list[float | None]:
    return [number_in(part) for part in cell.strip().strip("[]").split(",")]


class BenchmarkRow:
    """One benchmark: its figures by meaning, and the cells that describe it."""

    def __init__(self, cells: dict[str, str], where: str) -> None:
        self.cells, self.where = cells, where
        self.measures = Measures()
        self.lengths: dict[tuple[str, str], float] = {}
        for column, cell in cells.items():
            parts = plain(column)
            if parts and cell.strip():
                self._take(*parts, cell, column)

    def _take(self, name: str, word: str, cell: str, column: str) -> None:
        if name in LATENCIES:
            meaning, scale = LATENCIES[name]
            if word == "list":
                for statistic, value in zip(LISTED, listed_numbers(cell), strict=False):
                    self.measures.add(meaning, statistic, value, column, scale=scale)
            elif word in COLUMN_STATISTICS:
                self.measures.add(meaning, COLUMN_STATISTICS[word], number_in(cell), column, scale=scale)
        elif name in RATES and word == "mean":
            self.measures.add(RATES[name], OVERALL, number_in(cell), column)
        elif name in ("prompt token count", "output token count", "input tokens", "output tokens"):
            value = number_in(cell)
            side = "osl" if name.startswith("output") else "isl"
            if value is not None and word in COLUMN_STATISTICS:
                self.lengths.setdefault((side, word), value)

    def document(self, *columns: str) -> Fields:
        """The JSON text of the first of these columns that there is."""
        cell = next((self.cells[column] for column in columns if self.cells.get(column)), "{}")
        try:
            value: Any = json.loads(cell) if len(cell) <= LONGEST_CELL else {}
        except (ValueError, RecursionError):
            value = {}
        return Fields(value if isinstance(value, dict) else {}, self.where)

    def count(self, *columns: str) -> int | None:
        cells = Fields(self.cells, self.where)
        return next((cells.count(column) for column in columns if column in self.cells), None)

    def run(self) -> ImportedRun:
        completed = self.count("Successful Requests", "Request Counts | Successful | ")
        failed = self.count("Errored Requests", "Request Counts | Errored | ")
        incomplete = self.count("Incomplete Requests", "Request Counts | Incomplete | ")
        arguments = self.document("Args")
        scenario, limit, rate = strategy_load(arguments.child("strategy"))
        profile = self.document("Run Info | Profile | ")
        if scenario is None and (kind := self.cells.get("Benchmark | Strategy | ")):
            listed = profile.values.get("streams")
            streams = listed[0] if isinstance(listed, list) and len(listed) == 1 else None
            scenario, limit, rate = strategy_load(Fields({"type_": kind, "streams": streams}, self.where))
        cells = Fields(self.cells, self.where)
        durations = ("Duration", "Timings | Duration | Sec")
        duration_s = next((cells.seconds(key) for key in durations if key in cells), None)
        flags = [QualityFlag.HAD_FAILURES] if failed else []
        flags += [QualityFlag.HAD_INCOMPLETE] if incomplete else []
        return ImportedRun(
            tool="guidellm",
            tool_version=self.document("Runtime Info | Metadata | ").text("guidellm_version"),
            position=self.where,
            model_name=self.document("Worker").text("backend_model")
            or self.document("Run Info | Backend | ").text("model"),
            local_started_at=self._clock("Start Time", "Timings | Measure Start Time | "),
            local_finished_at=self._clock("End Time", "Timings | Measure End Time | "),
            duration_s=duration_s,
            scenario=scenario,
            concurrency=limit,
            concurrency_basis=ConcurrencyBasis.LIMIT if limit else None,
            request_rate_per_s=rate,
            isl_mean_tokens=self.lengths.get(("isl", "mean")),
            isl_std_tokens=self.lengths.get(("isl", "std dev")),
            osl_mean_tokens=self.lengths.get(("osl", "mean")),
            osl_std_tokens=self.lengths.get(("osl", "std dev")),
            completed_count=completed,
            failed_count=failed,
            incomplete_count=incomplete,
            metrics=self.measures.metrics,
            dropped_keys=tuple(self.measures.not_finite),
            flags=tuple(flags),
        )

    def _clock(self, *columns: str) -> str | None:
        cell = next((self.cells[column] for column in columns if self.cells.get(column)), None)
        time = time_in(cell.strip()) if cell else None
        return time.isoformat() if time and time.tzinfo is None else None


def parse_csv(stream: BinaryIO) -> Parsed:
    runs = []
    columns, rows = columns_and_rows(stream)
    for number, row in enumerate(rows, start=1):
        if number > MOST_ROWS:
            raise Refused(f"there are more than {MOST_ROWS} rows")
        if row and len(row) != len(columns):
            raise Refused(f"{len(row)} cells under {len(columns)} columns", where=f"benchmark {number}")
        if row:
            runs.append(BenchmarkRow(dict(zip(columns, row, strict=True)), f"benchmark {number}").run())
    warnings = (
        "the CSV does not say whether inter token latency is weighted by tokens: it is in version 0.4 and later",
        "the times are of the client's clock, in no zone",
    )
    return Parsed(tuple(runs), (*ASKS, Ask.CONCURRENCY), warnings)
