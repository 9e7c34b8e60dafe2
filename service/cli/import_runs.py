"""``sizing import-runs``: result files, folders of them, or a folder that is watched for new ones."""

# ruff: noqa: PLC0415 - a command imports what it needs when it runs, so that --help answers at once

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from service.cli.settings import add_database_argument, settings_of
from service.errors import Invalid, ServiceError

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from service.api.import_schemas import ImportedFileRead, ImportMetadata
    from service.catalogue.live import LiveCatalogue

EPILOG = """\
examples:
  sizing import-runs results/ --accelerator h100-sxm --gpu-count 4 --precision fp8
  sizing import-runs sweep.zip power.csv --accelerator gb200 --gpu-count 8 --model gpt-oss-120b --precision mxfp4
  sizing import-runs serve.json --accelerator h200-sxm --gpu-count 8 --model gpt-oss-120b --precision mxfp4 \\
    --kv-cache fp8 --engine-version 0.33.0 --prefix-caching --utc-offset=-05:00
  sizing import-runs --watch results/ --accelerator mi300x --gpu-count 8 --precision fp8

What a file says itself need not be given. Files that are given together are read together: a power log gives its power
to the runs of its time. The same file again is the same run, and keeps what it was stored with: to say something else
of it, `sizing delete-runs` it and import the file again.
The exit code is 1 when a file was refused.
"""
WATCH_INTERVAL_S = 2.0
TITLE = "what the files do not say; the engine's settings are part of what a run is"


class SaidInvalid(ServiceError):
    code = "metadata_invalid"
    title = "What is said of the runs cannot be used"


class NoFiles(ServiceError):
    code = "no_files"
    title = "There is nothing to import"


def add_import_runs_arguments(parser: argparse.ArgumentParser) -> None:
    from service.cli.schema_options import add_options

    parser.usage = "%(prog)s [options] [FILE ...]"
    parser.epilog = EPILOG
    parser.add_argument("files", nargs="*", metavar="FILE", help="result files, zip archives, or folders of them")
    parser.add_argument("--atomic", action="store_true", help="store every file or none")
    parser.add_argument("--watch", metavar="DIR", help="import what is there and what comes, until stopped")
    parser.add_argument(
        "--predict", action="store_true", help="show each run beside what the others would have predicted for it"
    )
    parser.add_argument("--json", action="store_true", help="the report as one JSON document")
    add_database_argument(parser)
    add_options(parser, TITLE, _fields())


def import_runs(arguments: argparse.Namespace) -> int:
    from service.app import open_catalogue

    if not arguments.files and not arguments.watch:
        raise NoFiles("name files or folders, or a folder to --watch")
    metadata = _metadata(arguments)
    files = [(_label(path, root), path) for root in map(Path, arguments.files) for path in _files_of(root)]
    if arguments.files and not files:
        raise NoFiles("there is no file in what was named")
    catalogue = open_catalogue(settings_of(arguments))
    try:
        code = _import(files, metadata, catalogue, arguments) if files else 0
        if arguments.watch:
            _watch(Path(arguments.watch), metadata, catalogue, arguments)
    finally:
        catalogue.engine.dispose()
    return code


def _fields() -> "dict[str, FieldInfo]":
    """Of the API's metadata; the parts of the precision are options of their own."""
    from service.api.benchmark_run_schemas import EngineLimits
    from service.api.import_schemas import ImportMetadata, PrecisionSaid

    precision = dict(PrecisionSaid.model_fields)
    precision = {"precision": precision.pop("weights"), **precision}
    said, limits = ImportMetadata.model_fields, EngineLimits.model_fields
    own = {name: field for name, field in said.items() if name not in limits and name not in precision}
    return own | precision | limits


def _metadata(arguments: argparse.Namespace) -> "ImportMetadata":
    """The options as the API's metadata, with the same checks."""
    from pydantic import ValidationError

    from service.api.import_schemas import ImportMetadata
    from service.cli.schema_options import complaint, given

    said = given(arguments, fields := _fields())
    widths = {"weights": "precision", "kv_cache": "kv_cache", "compute": "compute"}
    said["precision"] = {part: said.pop(name, None) for part, name in widths.items()}
    # Fields are asked for by their options, and so are those that nobody knows.
    said["nobody_knows"] = [name.lstrip("-").replace("-", "_") for name in said.get("nobody_knows", ())]
    try:
        return ImportMetadata.model_validate(said)
    except ValidationError as error:
        raise SaidInvalid(complaint(error, fields, ImportMetadata)) from None


def _files_of(root: Path) -> list[Path]:
    """The file itself, or the files below a folder, hidden ones left out."""
    if not root.exists():
        raise NoFiles(f"there is no file or folder {root}")
    if not root.is_dir():
        return [root]
    found = (path for path in root.rglob("*") if path.is_file())
    return sorted(path for path in found if not any(part.startswith(".") for part in path.relative_to(root).parts))


def _label(path: Path, root: Path) -> str:
    return str(path.relative_to(root)) if root.is_dir() else path.name


def _opened(files: Iterable[tuple[str, Path]]) -> Iterator[tuple[str, BinaryIO]]:
    """One at a time."""
    for label, path in files:
        with path.open("rb") as stream:
            yield label, stream


def _import(
    files: list[tuple[str, Path]],
    metadata: "ImportMetadata",
    catalogue: "LiveCatalogue",
    arguments: argparse.Namespace,
) -> int:
    from service.api.run_importing import import_runs as import_opened
    from service.cli.schema_options import option_at

    try:
        reports = import_opened(
            _opened(files), metadata, snapshot=catalogue.refresh(), engine=catalogue.engine, atomic=arguments.atomic
        )
    except Invalid as error:  # of the metadata: what is wrong with a file stands in its report
        raise SaidInvalid(f"{option_at(error.field[1:], _fields())}: {error.detail}") from None
    if arguments.json:
        document: dict[str, Any] = {"files": [each.model_dump(mode="json") for each in reports]}
        print(json.dumps(document, indent=None if arguments.watch else 2), flush=True)
    else:
        for report in reports:
            _print(report)
            if arguments.predict:
                _print_predictions(report, catalogue)
    return 0 if all(each.accepted for each in reports) else 1


def _print(report: "ImportedFileRead") -> None:
    from service.cli.schema_options import in_options, option

    fields = _fields()
    suggested = [f"{option(name)} {value}" for name, value in report.suggested.items() if name in report.missing]
    hints = f" (it hints at {', '.join(suggested)})" if suggested else ""
    if not report.accepted:
        print(f"{report.name}: refused: {in_options(report.reason or '', fields)}{hints}", file=sys.stderr, flush=True)
        return
    new = sum(not run.already_stored for run in report.runs)
    known = [run.id for run in report.runs if run.already_stored]
    beside = "belongs to runs of another file" if not report.runs else f"{new} stored"
    already = f", {len(known)} stored already as {', '.join(known)}" if known else ""
    print(f"{report.name}: {beside}{already} ({report.kind})", flush=True)
    for warning in report.warnings:
        print(f"  {in_options(warning, fields)}")
    if differ := [run.id for run in report.runs if run.not_taken_over]:
        print(f"  `sizing delete-runs {' '.join(differ)}` deletes what is stored")
    for reason in dict.fromkeys(reason for run in report.runs for reason in run.not_leant_on):
        print(f"  estimates do not lean on it: {in_options(reason, fields)}")
    if report.missing:
        print(f"  still unknown: {', '.join(map(option, report.missing))}{hints}")


def _print_predictions(report: "ImportedFileRead", catalogue: "LiveCatalogue") -> None:
    from service.api.benchmark_run_prediction import run_prediction

    catalogue.refresh()
    for run in report.runs:
        document = run_prediction(run.id, catalogue)
        for each in document["predictions"]:
            predicted = each["predicted_s"]
            span = f"{predicted['value']:.4g} s ({predicted['low']:.3g} to {predicted['high']:.3g})"
            verdict = "inside" if each["is_inside_interval"] else "outside"
            print(f"  {run.id}  {each['measure']}: measured {each['measured_s']:.4g} s, predicted {span}: {verdict}")


def _watch(folder: Path, metadata: "ImportMetadata", catalogue: "LiveCatalogue", arguments: argparse.Namespace) -> None:
    """A file is read once it has kept its size and time for one round: what is still being written waits."""
    if not folder.is_dir():
        raise NoFiles(f"{folder} is no folder")
    seen: dict[Path, tuple[int, int]] = {}
    done: dict[Path, tuple[int, int]] = {}
    while True:
        now = {path: (status.st_size, status.st_mtime_ns) for path, status in _statuses(folder)}
        ready = [path for path, state in now.items() if seen.get(path) == state and done.get(path) != state]
        if ready:
            _import([(_label(path, folder), path) for path in ready], metadata, catalogue, arguments)
            done |= {path: now[path] for path in ready}
        seen = now
        time.sleep(WATCH_INTERVAL_S)


def _statuses(folder: Path) -> Iterator[tuple[Path, Any]]:
    for path in _files_of(folder):
        try:
            yield path, path.stat()
        except OSError:  # gone since it was listed
            continue
