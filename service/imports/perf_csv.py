"""The CSV of AIPerf and GenAI-Perf: several tables one below the other, each with its own header.

The first has a row a metric and a column a statistic (GenAI-Perf's percentiles descend), the second one value a
metric; AIPerf's third has the GPUs, and may be a header without rows. Figures may have commas between thousands.
"""

import re
from typing import BinaryIO

from service.imports.aiperf import (
    AIPERF_CSV_ASKS,
    DISTRIBUTIONS,
    GENAI_PERF_ASKS,
    RATES,
    TPOT_NOTE,
    UNIT_SCALES,
    csv_metric_run,
)
from service.imports.fields import Fields, number_in
from service.imports.measures import Measures, statistic_named
from service.imports.report import Kind, Parsed, Refused
from service.imports.run import MEAN, OVERALL, STD
from service.imports.text_stream import csv_rows

METRIC_CELL = re.compile(r"(.*?)(?:\s*\(([^()]*)\))?", re.DOTALL)
MOST_ROWS = 100_000
LARGEST_SCALAR = 1e9  # of seconds, and of requests


class PerfTable:
    """Takes the rows of the tables one by one."""

    def __init__(self) -> None:
        self.measures = Measures()
        self.lengths: dict[str, float] = {}
        self.scalars: dict[str, float] = {}
        self.gpu_names: list[str] = []
        self._header: list[str] = []

    def take(self, row: list[str], where: str) -> None:
        if not any(cell.strip() for cell in row):
            self._header = []
        elif not self._header:
            self._header = [cell.strip() for cell in row]
        elif "GPU_Name" in self._header:
            self.gpu_names.append(Fields(dict(zip(self._header, row, strict=False)), where).text("GPU_Name") or "")
        elif self._header[0] == "Metric":
            self._take_metric(row, where)

    def _take_metric(self, row: list[str], where: str) -> None:
        cell = METRIC_CELL.fullmatch(row[0].strip())
        name, unit = (cell.group(1), cell.group(2) or "") if cell else (row[0], "")
        label, key = name.lower(), name.lower().replace(" ", "_")
        if self._header[1:] == ["Value"]:
            self._take_scalar(label, key, unit, row, where)
            return
        for word, text in zip(self._header[1:], row[1:], strict=False):
            statistic, value = statistic_named(word), number_in(text)
            if statistic is None or value is None:
                continue
            if key in DISTRIBUTIONS:
                scale = self._scale(unit, row[0], where)
                self.measures.add(DISTRIBUTIONS[key], statistic, value, f"{row[0]}, {word}", scale=scale)
            elif key in RATES and statistic == MEAN:
                self.measures.add(RATES[key], OVERALL, value, row[0], scale=self._scale(unit, row[0], where))
            elif label.endswith("sequence length") and statistic in (MEAN, STD):
                self.lengths[f"{label} {statistic}"] = value

    def _take_scalar(self, label: str, key: str, unit: str, row: list[str], where: str) -> None:
        value = number_in(row[1]) if len(row) > 1 else None
        if value is None:
            return
        if key in RATES:
            # GenAI-Perf writes "per sec" where AIPerf writes "requests/sec".
            bare = unit.lower() if unit.lower() != "per sec" else ""
            self.measures.add(RATES[key], OVERALL, value, row[0], scale=self._scale(bare, row[0], where))
        elif 0 < value < LARGEST_SCALAR:
            self.scalars[label] = value

    @staticmethod
    def _scale(unit: str, metric: str, where: str) -> float:
        if unit.lower() not in UNIT_SCALES:
            raise Refused(f"the unit {unit!r} of {metric!r} is not known", where=where)
        return UNIT_SCALES[unit.lower()]


def parse_perf_csv(stream: BinaryIO, kind: Kind) -> Parsed:
    table = PerfTable()
    for number, row in enumerate(csv_rows(stream), start=1):
        if number > MOST_ROWS:
            raise Refused(f"there are more than {MOST_ROWS} rows")
        table.take(row, f"line {number}")
    run = csv_metric_run(kind, table.measures, table.lengths, table.scalars)
    warnings = [TPOT_NOTE, "the figures are rounded to two places, and the load is not in the file"]
    asks = AIPERF_CSV_ASKS if kind is Kind.AIPERF_CSV else GENAI_PERF_ASKS
    if kind is Kind.AIPERF_CSV and not table.gpu_names:
        warnings.append("the table of GPUs has no rows")
    return Parsed((run,), asks, tuple(warnings))
