"""The ``sizing`` command. Exit codes: 0 done, 1 the request cannot be answered, 2 the command is not understood.

Commands import what they need when they are called, some for their options already, so that ``sizing --help`` answers
at once.
"""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from service import __version__
from service.cli import calibrate, catalogue, import_runs, runs, server, size, validate
from service.errors import ServiceError

EPILOG = """\
examples:
  sizing serve                                     the API on http://127.0.0.1:8000, its docs at /docs
  sizing size llama-3.3-70b-instruct gb200-nvl72   does it fit, and how fast is it?
  sizing accelerators --vendor NVIDIA              what is in the catalogue
  sizing models --json | jq .
  sizing import-model config.json --slug my-model  a model of your own
  sizing import-runs results/ --accelerator h100-sxm --gpu-count 4 --precision fp8
  sizing runs --origin user                        the runs that you have stored

Every setting is also an environment variable, such as SIZING_DATABASE_URL; `sizing serve --list-settings` names them.
Commands that only read use the configured database, or the shipped catalogue where there is none yet (`sizing runs`
lists a database only).
"""


@dataclass(frozen=True, slots=True)
class Command:
    """``add_arguments`` declares the flags, ``run`` does the work and returns the exit code."""

    name: str
    summary: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


COMMANDS = (
    Command("serve", "run the API", server.add_serve_arguments, server.serve),
    Command("size", "does it fit, how fast, at what power and cost?", size.add_size_arguments, size.size),
    Command("accelerators", "list accelerators", catalogue.add_accelerators_arguments, catalogue.accelerators),
    Command("models", "list language models", catalogue.add_models_arguments, catalogue.models),
    Command(
        "import-model",
        "store a model from its config.json",
        catalogue.add_import_model_arguments,
        catalogue.import_model,
    ),
    Command(
        "import-runs",
        "store the runs of benchmark result files",
        import_runs.add_import_runs_arguments,
        import_runs.import_runs,
    ),
    Command("runs", "list benchmark runs", runs.add_runs_arguments, runs.runs),
    Command("delete-runs", "delete benchmark runs of your own", runs.add_delete_runs_arguments, runs.delete_runs),
    Command("validate", "how the answers do on published facts", validate.add_validate_arguments, validate.validate),
    Command(
        "calibrate",
        "refit the numbers of the physics to the shipped runs",
        calibrate.add_calibrate_arguments,
        calibrate.calibrate,
    ),
    Command("migrate", "bring the database up to date", server.add_migrate_arguments, server.migrate_database),
    Command("openapi", "print the API's contract", server.add_openapi_arguments, server.print_contract),
)


class OneLineParser(argparse.ArgumentParser):
    """Says what is wrong in one line; ``--help`` is for the rest. ``declare`` adds the options once they are needed."""

    declare: Callable[[argparse.ArgumentParser], None] | None = None

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        declare, self.declare = self.declare, None
        if declare:
            declare(self)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def build_parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="sizing",
        description="Does this language model fit on this accelerator, and how fast will it run there?",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"sizing {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        subparser = commands.add_parser(
            command.name,
            help=command.summary,
            description=command.summary[0].upper() + command.summary[1:].removesuffix("?") + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        subparser.declare = command.add_arguments
        subparser.set_defaults(run=command.run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    parsed = build_parser().parse_args(arguments)
    try:
        return int(parsed.run(parsed))
    except ServiceError as error:
        return _complain(error.detail)
    except BrokenPipeError:  # the reader of our output has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        return _complain(f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error))


def _complain(detail: str) -> int:
    print("sizing:", " ".join(detail.split()), file=sys.stderr)
    return 1
