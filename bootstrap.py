#!/usr/bin/env python3
"""Make the environment of this folder, then run a command in it. Needs Python 3.11 or newer and nothing else.

    python3 bootstrap.py -- sizing serve       the service
    python3 bootstrap.py --dev -- pytest       its tests

The packages are exactly those of requirements.lock (with --dev: requirements-dev.lock), each checked against its
hash, in a virtual environment of this folder; the system's Python is left alone. When nothing has changed since the
last time, nothing is installed and the command starts at once.
"""

import sys

# Before anything else, and in words that an old Python can parse: an old one must say so, not trip over the syntax.
if sys.version_info < (3, 11):  # noqa: UP036  (pip's requires-python does not guard a script)
    sys.exit(
        "bootstrap.py needs Python 3.11 or newer and was started with " + sys.version.split()[0] + ".\n"
        "Start it with a newer one (python3.13 bootstrap.py ...), or use uv, which brings its own: "
        "uv run --no-dev sizing serve"
    )

import argparse
import hashlib
import importlib.util
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent
RUNTIME_LOCK = ROOT / "requirements.lock"
DEV_LOCK = ROOT / "requirements-dev.lock"
WITHOUT_PIP = """\
This Python can neither put pip into a virtual environment (no ensurepip) nor has a pip of its own. One of these helps:
  - Debian, Ubuntu:  apt install python3-venv     then the same command again
  - uv:              uv run --no-dev sizing serve    (tests: uv run pytest)
"""


def main() -> None:
    own, command = _split(sys.argv[1:])
    parser = argparse.ArgumentParser(
        prog="bootstrap.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="bootstrap.py [-h] [--dev] [--venv FOLDER] [-- COMMAND ...]",
    )
    parser.add_argument("--dev", action="store_true", help="add what the tests and checks need")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv", metavar="FOLDER", help="default: .venv")
    arguments = parser.parse_args(own)
    environment = arguments.venv.absolute()
    _install(environment, dev=arguments.dev)
    if command:
        _run(environment, command)
    _say(f"ready: {environment}")


def _split(arguments: list[str]) -> tuple[list[str], list[str]]:
    """What is meant for this script, and what stands after ``--``."""
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def _install(environment: Path, *, dev: bool) -> None:
    stamp = environment / ".bootstrap-stamp"
    python = _folder_of_programs(environment) / ("python.exe" if os.name == "nt" else "python")
    wanted = _digest()
    found = stamp.read_text(encoding="utf-8").split() if stamp.is_file() else []
    if python.exists() and found[:1] == [wanted] and (not dev or "dev" in found):
        return
    dev = dev or "dev" in found
    if not python.exists():
        _make(environment)
    _require_new_enough(python, environment)
    pip = _pip(python)
    lock = DEV_LOCK if dev else RUNTIME_LOCK
    stamp.unlink(missing_ok=True)
    _say(f"installing the packages of {lock.name} into {environment} (about half a minute the first time)")
    _pip_install(pip, "--require-hashes", "-r", str(lock))
    # The build tool is in the lock too, so that nothing at all is taken without its hash.
    _pip_install(pip, "--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    stamp.write_text(f"{wanted} {'dev' if dev else 'runtime'}\n", encoding="utf-8")


def _digest() -> str:
    """Changes whenever what would be installed changes."""
    digest = hashlib.sha256(str(ROOT).encode())
    for file in (RUNTIME_LOCK, DEV_LOCK, ROOT / "pyproject.toml", ROOT / "setup.py", Path(__file__)):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _make(environment: Path) -> None:
    _say(f"making {environment} with Python {sys.version.split()[0]}")
    if importlib.util.find_spec("venv") is None:
        sys.exit(WITHOUT_PIP)
    without_pip = [] if importlib.util.find_spec("ensurepip") else ["--without-pip"]
    made = subprocess.run([sys.executable, "-m", "venv", *without_pip, str(environment)], check=False)
    if made.returncode:
        sys.exit(f"could not make a virtual environment in {environment}; the reason stands above")


def _require_new_enough(python: Path, environment: Path) -> None:
    """An environment that is already there is used as it is, never deleted: it may be somebody's."""
    check = "import sys; sys.exit(sys.version_info < (3, 11))"
    try:
        usable = subprocess.run([str(python), "-c", check], check=False).returncode == 0
    except OSError:
        usable = False
    if not usable:
        sys.exit(f"the Python in {environment} does not run or is older than 3.11: remove that folder and start again")


def _pip(python: Path) -> list[str]:
    """How to call a pip that installs into the environment."""
    inside = [str(python), "-m", "pip"]
    if _works([*inside, "--version"]):
        return inside
    outside = [sys.executable, "-m", "pip", "--python", str(python)]
    if _works([*outside, "--version"]):
        return outside
    if _works([str(python), "-m", "ensurepip"]) and _works([*inside, "--version"]):
        return inside
    sys.exit(WITHOUT_PIP)


def _works(command: list[str]) -> bool:
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode == 0


def _pip_install(pip: list[str], *arguments: str) -> None:
    # A personal pip configuration that says "user" would be refused inside a virtual environment.
    settings = {**os.environ, "PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    command = [*pip, "install", "--quiet", *arguments]
    if subprocess.run(command, env=settings, check=False).returncode:
        sys.exit(f"installing failed; pip says why above. The command was: {' '.join(command)}")


def _run(environment: Path, command: list[str]) -> None:
    programs = _folder_of_programs(environment)
    variables = {**os.environ, "VIRTUAL_ENV": str(environment)}
    variables["PATH"] = f"{programs}{os.pathsep}{os.environ.get('PATH', '')}"
    variables.pop("PYTHONHOME", None)
    if os.name == "nt":  # there, exec would return to the shell before the command ends
        sys.exit(subprocess.run(command, env=variables, check=False, shell=True).returncode)  # noqa: S602  (looks up PATH)
    try:
        os.execvpe(command[0], command, variables)  # noqa: S606  (the command is the caller's own)
    except FileNotFoundError:
        sys.exit(f"there is no command {command[0]!r} in {environment} or on the PATH (tools for tests need --dev)")


def _folder_of_programs(environment: Path) -> Path:
    return environment / ("Scripts" if os.name == "nt" else "bin")


def _say(text: str) -> None:
    print(f"bootstrap: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
