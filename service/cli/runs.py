"""``sizing runs``, ``sizing delete-runs``: the stored benchmark runs."""

# ruff: noqa: PLC0415 - a command imports what it needs when it runs, so that --help answers at once

import argparse
import json
import sys
from typing import TYPE_CHECKING, NoReturn

from service.cli.catalogue import on_database, or_dash, print_table
from service.cli.settings import add_database_argument, settings_of
from service.errors import Invalid, ServiceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic.fields import FieldInfo
    from sqlalchemy import Engine

    from service.api.benchmark_run_schemas import BenchmarkRunPage
    from service.catalogue.benchmark_records import BenchmarkRun

RUNS_EPILOG = """\
examples:
  sizing runs --origin user                                     your own, the newest first
  sizing runs --accelerator h100-sxm --accelerator h200-sxm --model llama-3.3-70b-instruct
  sizing runs --scenario closed_loop --model gpt-oss-120b --sort=-output_tokens_per_s_per_gpu --limit 10
  sizing runs --origin user --json | jq -r .items[].id
"""
DELETE_EPILOG = """\
example:
  sizing delete-runs 06f2m8k1s3abcdefgh 06f2m8k1s3abcdefgj

`sizing runs` lists the ids. All of them are deleted, or none; shipped runs stay. Deleted runs can be imported anew.
"""
COLUMNS = {
    "ID": lambda run: run["id"],
    "ORIGIN": lambda run: run["origin"],
    "SCENARIO": lambda run: run["scenario"] or "-",
    "ACCELERATOR": lambda run: run["accelerator"] or run["accelerator_name"] or "-",
    "GPUS": lambda run: or_dash(run["gpu_count"]),
    "MODEL": lambda run: run["model"] or run["model_name"] or "-",
    "WEIGHTS": lambda run: run["weights"] or "-",
    "ENGINE": lambda run: " ".join(filter(None, (run["engine"], run["engine_version"]))) or "-",
    "IN FLIGHT": lambda run: or_dash(run["concurrency"]),
    "ISL": lambda run: or_dash(run["isl_mean_tokens"]),
    "OSL": lambda run: or_dash(run["osl_mean_tokens"]),
    "TTFT (S)": lambda run: or_dash(run["ttft_central_s"]),
    "TPOT (S)": lambda run: or_dash(run["tpot_central_s"]),
    "OUTPUT TOKENS/S": lambda run: or_dash(run["output_tokens_per_s"]),
    "MEASURED": lambda run: run["measured_on"] or "-",
}


class ListInvalid(ServiceError):
    code = "list_invalid"
    title = "The list cannot be made"


class NothingDeleted(ServiceError):
    code = "nothing_deleted"
    title = "No run was deleted"


class NoDatabase(ServiceError):
    code = "no_database"
    title = "There is no database yet"


def add_runs_arguments(parser: argparse.ArgumentParser) -> None:
    from service.cli.schema_options import add_options

    parser.usage = "%(prog)s [options]"
    parser.epilog = RUNS_EPILOG
    parser.add_argument("--json", action="store_true", help="the document that GET /benchmark-runs answers")
    add_database_argument(parser)
    add_options(parser, "filters, order and page", _fields())


def runs(arguments: argparse.Namespace) -> int:
    page = on_database(settings_of(arguments), lambda engine: _page(arguments, engine), _no_database)
    document = page.model_dump(mode="json")
    if arguments.json:
        print(json.dumps(document, indent=2))
        return 0
    print_table(document["items"], COLUMNS)
    if page.next_cursor:
        print(f"there are more: give the same options and --cursor={page.next_cursor}", file=sys.stderr)
    return 0


def _fields() -> "dict[str, FieldInfo]":
    from service.api.benchmark_run_schemas import RunFilters, RunsQuestion

    beside = ("sort", "mixed_scenarios", "limit", "cursor")
    return RunFilters.model_fields | {name: RunsQuestion.model_fields[name] for name in beside}


def _page(arguments: argparse.Namespace, engine: "Engine") -> "BenchmarkRunPage":
    """As the API answers, with the same checks."""
    from pydantic import ValidationError

    from service.api.benchmark_run_document import filter_of
    from service.api.benchmark_run_list import order_of, page_of_runs
    from service.api.benchmark_run_schemas import RunsQuestion
    from service.catalogue.benchmark_queries import FacetCounts
    from service.catalogue.snapshot import read_snapshot
    from service.cli.schema_options import complaint, given, in_options, option_at

    fields = _fields()
    try:
        question = RunsQuestion.model_validate(given(arguments, fields))
        wanted = filter_of(question, read_snapshot(engine), engine)
        return page_of_runs(question, wanted, order_of(question), engine, FacetCounts())
    except ValidationError as error:
        raise ListInvalid(complaint(error, fields, RunsQuestion)) from None
    except Invalid as error:
        where = f"{option_at(error.field, fields)}: " if error.field else ""
        raise ListInvalid(where + in_options(error.detail, fields)) from None


def add_delete_runs_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = DELETE_EPILOG
    parser.add_argument("ids", nargs="+", metavar="ID", help="of a run that you stored")
    add_database_argument(parser)


def delete_runs(arguments: argparse.Namespace) -> int:
    ids = list(dict.fromkeys(arguments.ids))
    for run in on_database(settings_of(arguments), lambda engine: _delete(ids, engine), _no_database):
        what = f"{run.model or run.model_name} on {run.gpu_count} x {run.accelerator or run.accelerator_name}"
        day = f"measured on {run.measured_on}" if run.measured_on else "of no stated day"
        print(f"deleted {run.id}: {what}, {run.scenario}, {day}, from {run.file_name}")
    return 0


def _delete(ids: "Sequence[str]", engine: "Engine") -> "list[BenchmarkRun]":
    """The runs as they were; all of them are deleted, or none."""
    from service.api.benchmark_runs import checked
    from service.catalogue.benchmarks import ShippedRunKept, UnknownBenchmarkRun, delete_run, evidence_writing, get_run

    try:
        with evidence_writing(engine) as (session, revision):
            found = [get_run(session, checked(each)) for each in ids]
            for each in ids:
                delete_run(session, each, revision=revision)
    except (UnknownBenchmarkRun, ShippedRunKept) as error:
        raise NothingDeleted(f"{error.detail}; nothing was deleted") from None
    return found


def _no_database() -> NoReturn:
    raise NoDatabase("there is no database yet: `sizing migrate` makes it, with the shipped runs")
