"""Every run that matches, as a CSV or Parquet file: written part by part, so that a million runs need little memory."""

import csv
import io
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import Boolean, Engine, Float, Integer
from sqlmodel import Session

from service.api.benchmark_run_document import OWN_FIELDS, flat_row
from service.api.problems import HttpProblem
from service.catalogue.benchmark_queries import Order, RunFilter, every_run
from service.catalogue.database import UtcDateTime
from service.catalogue.tables import BenchmarkRunRow

CSV_TYPE, PARQUET_TYPE = "text/csv", "application/vnd.apache.parquet"
HEADER = (*OWN_FIELDS, "quality_remarks")
FORMULA_BEGINS = ("=", "+", "-", "@", "\t")


class NotAcceptable(HttpProblem):
    code, title, status = "not_acceptable", "The form that is asked for cannot be given", 406


def asked_format(accept: str) -> str:
    """The first media type of Accept that this list has; none of them is refused.

    >>> asked_format("text/csv, application/json;q=0.5"), asked_format("*/*"), asked_format("")
    ('csv', 'json', 'json')
    """
    forms = {CSV_TYPE: "csv", PARQUET_TYPE: "parquet", "application/json": "json", "application/*": "json"}
    forms |= {"*/*": "json", "text/*": "csv"}
    kinds = [part.split(";")[0].strip().lower() for part in accept.split(",") if part.strip()]
    for kind in kinds:
        if kind in forms:
            return forms[kind]
    if kinds:
        raise NotAcceptable(f"this list is given as application/json, {CSV_TYPE} or {PARQUET_TYPE}")
    return "json"


def csv_parts(engine: Engine, wanted: RunFilter, order: Order) -> Iterator[str]:
    """UTF-8 with a header line. Text that a spreadsheet would run as a formula gets an apostrophe before it."""
    yield _csv_text([HEADER])
    with Session(engine) as session:
        for runs in every_run(session, wanted, order):
            yield _csv_text([_cell(value) for value in flat_row(run).values()] for run in runs)


def _csv_text(lines: Iterable[Iterable[Any]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(lines)
    return text.getvalue()


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA_BEGINS) else value


def write_parquet(engine: Engine, wanted: RunFilter, order: Order) -> Path:
    """A temporary file, which the caller deletes."""
    parquet = _parquet_library()
    schema = _parquet_schema()
    with tempfile.NamedTemporaryFile(suffix=".parquet", delete=False) as file:
        path = Path(file.name)
    try:
        with Session(engine) as session, parquet.ParquetWriter(path, schema) as writer:
            for runs in every_run(session, wanted, order):
                writer.write_table(_parquet_table([flat_row(run) for run in runs], schema))
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path


def _parquet_library() -> Any:
    try:
        from pyarrow import parquet  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra, not always there
    except ImportError:
        raise NotAcceptable(
            "Parquet needs the extra of that name on the server (pip install 'accelerator-sizing[parquet]'); "
            "ask for format=csv"
        ) from None
    return parquet


def _parquet_table(rows: list[Mapping[str, Any]], schema: Any) -> Any:
    import pyarrow as pa  # noqa: PLC0415 - as above

    return pa.Table.from_pydict({name: [row[name] for row in rows] for name in HEADER}, schema=schema)


@cache
def _parquet_schema() -> Any:
    """Off the columns of the table: the same types, whatever the rows say."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    columns = BenchmarkRunRow.__table__.c  # type: ignore[attr-defined]  # set by SQLModel

    def kind(name: str) -> Any:
        match columns[name].type if name in columns else None:
            case Boolean():
                return pa.bool_()
            case Integer():
                return pa.int64()
            case Float():
                return pa.float64()
            case UtcDateTime():
                return pa.timestamp("us", tz="UTC")
            case _:
                return pa.string()

    return pa.schema([(name, kind(name)) for name in HEADER])
