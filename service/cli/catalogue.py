"""``sizing accelerators``, ``sizing models``, ``sizing import-model``."""

# ruff: noqa: PLC0415 - a command imports what it needs when it runs, so that --help answers at once

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from service.cli.settings import add_database_argument, settings_of
from service.errors import ServiceError

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from service.catalogue.live_evidence import Evidence
    from service.catalogue.snapshot import Snapshot
    from service.settings import Settings

T = TypeVar("T")


class NameNotAcceptable(ServiceError):
    code = "name_not_acceptable"
    title = "The slug or alias cannot be used"


class DatabaseWithoutTables(ServiceError):
    code = "database_without_tables"
    title = "The database cannot be read"


def open_snapshot(settings: "Settings") -> "Snapshot":
    """The stored catalogue, or the shipped one where no database has been made yet. Writes nothing."""
    from service.catalogue.snapshot import read_snapshot, shipped_snapshot

    return on_database(settings, read_snapshot, shipped_snapshot)


def open_evidence(settings: "Settings", snapshot: "Snapshot") -> "Evidence | None":
    """The stored runs as evidence, or the shipped ones where no database has been made yet. Takes a second or two."""
    from service.catalogue.live_evidence import LiveEvidence, shipped_evidence

    def stored(engine: "Engine") -> "Evidence":
        live = LiveEvidence(engine)
        live.refresh(snapshot)
        return live.current

    if not settings.lean_on_runs:
        return None
    return on_database(settings, stored, lambda: shipped_evidence(snapshot))


def on_database(settings: "Settings", stored: "Callable[[Engine], T]", shipped: Callable[[], T]) -> T:
    """What ``stored`` makes of the configured database, or ``shipped`` where no database has been made yet."""
    from sqlalchemy.exc import SQLAlchemyError

    from service.catalogue.database import create_database_engine, sqlite_file

    file = sqlite_file(settings.database_url)
    if file is not None and not file.exists():
        return shipped()
    engine = create_database_engine(settings.database_url, sqlite_synchronous=settings.sqlite_synchronous)
    try:
        return stored(engine)
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", error)).splitlines()[0]
        url = engine.url.render_as_string(hide_password=True)
        raise DatabaseWithoutTables(f"{url} cannot be read ({reason}); was `sizing migrate` run on it?") from None
    finally:
        engine.dispose()


def add_accelerators_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "examples:\n  sizing accelerators --vendor nvidia --kind rack\n  sizing accelerators --precision fp8"
    )
    parser.add_argument("--vendor", help="of this vendor, in any case")
    parser.add_argument("--kind", choices=["chip", "board", "superchip", "rack"])
    parser.add_argument("--status", help="such as shipping or announced")
    parser.add_argument("--precision", help="with a published rate at it, such as nvfp4")
    parser.add_argument("--min-memory-gb", type=float, metavar="GB", help="printed capacity per GPU, in 10^9 bytes")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    add_database_argument(parser)


def accelerators(arguments: argparse.Namespace) -> int:
    chosen = []
    for entry in open_snapshot(settings_of(arguments)).accelerators.in_use:
        accelerator, status = entry.accelerator, str(entry.record.status)
        if arguments.vendor and accelerator.vendor.lower() != arguments.vendor.lower():
            continue
        if arguments.kind and accelerator.kind != arguments.kind:
            continue
        if arguments.status and status != arguments.status.lower():
            continue
        if arguments.precision and all(p != arguments.precision.lower() for p, _ in accelerator.peak_rates_flop_per_s):
            continue
        if arguments.min_memory_gb and accelerator.memory_capacity_bytes < arguments.min_memory_gb * 1e9:
            continue
        chosen.append(
            {
                "slug": entry.slug,
                "aliases": list(entry.record.aliases),
                "name": accelerator.name,
                "vendor": accelerator.vendor,
                "kind": accelerator.kind.value,
                "status": status,
                "gpu_count": accelerator.gpu_count,
                "memory_capacity_bytes_per_gpu": accelerator.memory_capacity_bytes,
                "memory_bandwidth_bytes_per_s_per_gpu": accelerator.memory_bandwidth_bytes_per_s,
            }
        )
    columns = {
        "SLUG": lambda each: each["slug"],
        "VENDOR": lambda each: each["vendor"],
        "KIND": lambda each: each["kind"],
        "GPUS": lambda each: each["gpu_count"],
        "GB PER GPU": lambda each: f"{each['memory_capacity_bytes_per_gpu'] / 1e9:.1f}",
        "TB/S PER GPU": lambda each: or_dash(each["memory_bandwidth_bytes_per_s_per_gpu"], 1e12),
        "STATUS": lambda each: each["status"],
    }
    return _print(chosen, columns, as_json=arguments.json)


def add_models_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "examples:\n  sizing models\n  sizing models --family llama --json"
    parser.add_argument("--family", help="of this family, as the column shows it")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    add_database_argument(parser)


def models(arguments: argparse.Namespace) -> int:
    from service.sizing.language_model import active_parameter_count, parameter_counts

    chosen = []
    for entry in open_snapshot(settings_of(arguments)).language_models.in_use:
        model = entry.model
        if arguments.family and model.family.lower() != arguments.family.lower():
            continue
        chosen.append(
            {
                "slug": entry.slug,
                "aliases": list(entry.record.aliases),
                "name": model.name,
                "family": model.family,
                "total_parameter_count": sum(parameter_counts(model.tensors).values()),
                "active_parameter_count": active_parameter_count(model),
                "checkpoint_scheme": model.checkpoint_scheme,
                "max_context_tokens": model.max_context_tokens,
            }
        )
    columns = {
        "SLUG": lambda each: each["slug"],
        "FAMILY": lambda each: each["family"],
        "PARAMETERS (10^9)": lambda each: f"{each['total_parameter_count'] / 1e9:.2f}",
        "ACTIVE (10^9)": lambda each: f"{each['active_parameter_count'] / 1e9:.2f}",
        "CHECKPOINT": lambda each: each["checkpoint_scheme"],
        "CONTEXT (TOKENS)": lambda each: or_dash(each["max_context_tokens"]),
    }
    return _print(chosen, columns, as_json=arguments.json)


def add_import_model_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "example:\n  sizing import-model ./config.json --slug acme-70b --alias acme/acme-70b"
    parser.add_argument("file", metavar="FILE", help="a Hugging Face config.json; - reads standard input")
    parser.add_argument("--slug", required=True, help="name of the new model, in lower case")
    parser.add_argument("--alias", action="append", default=[], help="a further name; may be given several times")
    add_database_argument(parser)


def import_model(arguments: argparse.Namespace) -> int:
    from pydantic import ValidationError

    from service.app import open_catalogue
    from service.catalogue.language_models import LANGUAGE_MODELS
    from service.catalogue.model_records import uploaded_record
    from service.catalogue.records import create_record, writing
    from service.sizing.architectures import parse_config

    settings = settings_of(arguments)
    text = sys.stdin.buffer.read() if arguments.file == "-" else Path(arguments.file).read_bytes()
    try:
        record = uploaded_record(slug=arguments.slug, config=parse_config(text), aliases=tuple(arguments.alias))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise NameNotAcceptable(f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}") from None
    engine = open_catalogue(settings).engine
    try:
        with writing(engine) as session:
            create_record(session, LANGUAGE_MODELS, record)
    finally:
        engine.dispose()
    print(f"stored {record.slug}; sizing size {record.slug} ACCELERATOR answers for it")
    return 0


def or_dash(value: float | None, unit: float = 1) -> str:
    return "-" if value is None else f"{value / unit:g}"


def _print(items: Sequence[dict[str, Any]], columns: dict[str, Any], *, as_json: bool) -> int:
    if as_json:
        print(json.dumps({"items": items, "next_cursor": None}, indent=2))
    else:
        print_table(items, columns)
    return 0


def print_table(items: Sequence[dict[str, Any]], columns: dict[str, Any]) -> None:
    rows = [list(columns), *([str(show(item)) for show in columns.values()] for item in items)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(columns))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
