"""The command as a user runs it: what it prints, where, and how it exits."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from service.api.contract import contract_text
from service.api.language_models import TINY_CONFIG
from service.app import create_app
from service.cli import COMMANDS
from service.settings import Settings
from service.sizing.parameters import FITTED
from tests.command_line import complaint_of, stdout_of


def run(*arguments: str, stdin: bytes | None = None, **variables: str) -> "subprocess.CompletedProcess[bytes]":
    command = [sys.executable, "-m", "service.cli", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, check=False, env={**os.environ, **variables})


@pytest.fixture
def database(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'cli.db'}"


@pytest.fixture
def config_file(tmp_path: Path) -> str:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(TINY_CONFIG))
    return str(file)


def test_help_names_every_command_and_imports_nothing_slow() -> None:
    done = run("--help")
    assert done.returncode == 0
    for command in COMMANDS:
        assert f"    {command.name}" in done.stdout.decode()
    program = "import sys, service.cli; service.cli.build_parser(); print(*sys.modules)"
    imported = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout.decode().split()
    assert {"fastapi", "numpy", "yaml", "sqlalchemy", "pydantic"}.isdisjoint(imported)


@pytest.mark.parametrize(
    "arguments", [[], ["dance"], ["accelerators", "--kind", "toaster"], ["import-model", "x.json"]]
)
def test_a_command_that_is_not_understood_exits_with_2_and_one_line(arguments: list[str]) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.count(b"\n") == 1
    assert b"--help" in done.stderr


def test_the_shipped_catalogue_is_listed_without_a_database(capsys: pytest.CaptureFixture[str], database: str) -> None:
    lines = stdout_of(capsys, "accelerators", "--kind", "rack", "--database-url", database).splitlines()
    assert lines[0].split() == ["SLUG", "VENDOR", "KIND", "GPUS", "GB", "PER", "GPU", "TB/S", "PER", "GPU", "STATUS"]
    # 13.4 TB and 576 TB/s over 72 GPUs: 186.1 GB and 8 TB/s each
    assert ["gb200-nvl72", "NVIDIA", "rack", "72", "186.1", "8"] in [line.split()[:6] for line in lines]
    assert not Path(database.removeprefix("sqlite:///")).exists()


def test_filters_of_the_accelerators_combine(capsys: pytest.CaptureFixture[str], database: str) -> None:
    def listed(*filters: str) -> list[str]:
        document = json.loads(stdout_of(capsys, "accelerators", "--json", "--database-url", database, *filters))
        return [each["slug"] for each in document["items"]]

    assert "h100-sxm" in listed("--vendor", "nvidia", "--precision", "fp8", "--min-memory-gb", "80")
    assert "h100-sxm" not in listed("--vendor", "nvidia", "--precision", "nvfp4")
    assert "h100-sxm" not in listed("--vendor", "amd")
    assert listed("--vendor", "nobody") == []


def test_models_are_listed_as_a_table_and_as_json(capsys: pytest.CaptureFixture[str], database: str) -> None:
    table = stdout_of(capsys, "models", "--family", "gpt_oss", "--database-url", database)
    assert [line.split()[0] for line in table.splitlines()] == ["SLUG", "gpt-oss-120b", "gpt-oss-20b"]
    items = json.loads(stdout_of(capsys, "models", "--family", "llama", "--json", "--database-url", database))["items"]
    counts = {each["slug"]: each["total_parameter_count"] for each in items}
    assert counts["llama-3.1-8b-instruct"] == 8_030_261_248


def test_a_model_is_imported_from_a_file_once(
    capsys: pytest.CaptureFixture[str], database: str, config_file: str
) -> None:
    arguments = (
        "import-model",
        config_file,
        "--slug",
        "tiny-llama",
        "--alias",
        "acme/Tiny",
        "--database-url",
        database,
    )
    assert "stored tiny-llama" in stdout_of(capsys, *arguments)
    assert "tiny-llama" in stdout_of(capsys, "models", "--database-url", database)
    assert "'tiny-llama' exists" in complaint_of(capsys, *arguments)


def test_a_model_is_imported_from_standard_input(database: str) -> None:
    config = json.dumps({**TINY_CONFIG, "time_step_limit": [0.0, float("inf")]}).encode()
    done = run("import-model", "-", "--slug", "tiny-llama", "--database-url", database, stdin=config)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"model_type": "brand-new"}', "brand-new"),
        ('{"model_type": "llama"}', "missing"),
        ("not json", "JSON"),
        ("[]", "object"),
    ],
)
def test_a_config_that_cannot_be_used_is_refused_in_one_line(
    capsys: pytest.CaptureFixture[str], database: str, tmp_path: Path, text: str, expected: str
) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)
    assert expected in complaint_of(capsys, "import-model", str(file), "--slug", "mine", "--database-url", database)


def test_what_cannot_be_read_or_named_is_said_in_one_line(
    capsys: pytest.CaptureFixture[str], database: str, config_file: str
) -> None:
    assert "nowhere.json" in complaint_of(
        capsys, "import-model", "nowhere.json", "--slug", "x", "--database-url", database
    )
    assert "slug" in complaint_of(capsys, "import-model", config_file, "--slug", "No Slug", "--database-url", database)
    assert "mysql" in complaint_of(capsys, "models", "--database-url", "mysql://host/name")
    assert "does not answer" in complaint_of(
        capsys, "migrate", "--database-url", "postgresql://nobody@127.0.0.1:1/nothing"
    )


def test_a_setting_that_cannot_be_used_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIZING_PORT", "eighty")
    assert "SIZING_PORT" in complaint_of(capsys, "models")


def test_migrating_twice_says_where_the_database_is(
    capsys: pytest.CaptureFixture[str], empty_database_url: str
) -> None:
    first = stdout_of(capsys, "migrate", "--database-url", empty_database_url)
    again = stdout_of(capsys, "migrate", "--database-url", empty_database_url)
    assert "is at migration" in first
    assert " 0 records" not in first
    assert " 0 records" in again


def test_a_database_without_tables_is_said_so(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    assert "sizing migrate" in complaint_of(capsys, "models", "--database-url", f"sqlite:///{tmp_path / 'empty.db'}")


def test_the_contract_is_printed_byte_for_byte() -> None:
    done = run("openapi")
    assert done.stdout.decode() == contract_text(create_app(Settings()))


def test_every_setting_is_listed_with_what_it_does() -> None:
    listed = run("serve", "--list-settings").stdout.decode()
    for name, field in Settings.model_fields.items():
        assert f"SIZING_{name.upper()}" in listed
        assert field.description
        assert field.description in listed


def test_size_prints_a_table_of_the_answer(capsys: pytest.CaptureFixture[str], database: str) -> None:
    printed = stdout_of(
        capsys,
        "size",
        "llama-3.3-70b-instruct",
        "gb200",
        "--weights=nvfp4",
        "--tp=2",
        "--tpot=0.02",
        "--usd-per-gpu-h=3",
        f"--database-url={database}",
    )
    assert "llama-3.3-70b-instruct on gb200-nvl72" in printed
    assert "balance point             1250 FLOP/byte" in printed
    assert "textbook, weights only    batch 312.5" in printed
    for part in ("fits                      yes", "TPOT", "tokens/s/W", "million output tokens", "assumed", "warnings"):
        assert part in printed


def test_size_as_json_is_the_document_of_the_api(capsys: pytest.CaptureFixture[str], database: str) -> None:
    printed = stdout_of(capsys, "size", "qwen3-8b", "h100", "--isl=2000", "--json", f"--database-url={database}")
    with TestClient(create_app(Settings(database_url=database))) as client:
        asked = {"model": "qwen3-8b", "accelerator": "h100", "workload": {"isl_tokens": 2000}}
        answered = client.post("/sizing", json=asked).json()
    document = json.loads(printed)
    document["inputs"]["catalogue_revision"] = answered["inputs"]["catalogue_revision"]  # none of shipped files
    document["evidence"]["revision"] = answered["evidence"]["revision"]
    assert document == answered


def test_size_takes_a_config_file(capsys: pytest.CaptureFixture[str], database: str, config_file: str) -> None:
    assert "fits" in stdout_of(capsys, "size", config_file, "h100", f"--database-url={database}")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("llama", "h100"), "there is no model 'llama'"),
        (("qwen3-8b", "h1000"), "there is no accelerator 'h1000'"),
        (("qwen3-8b", "h100", "--tp=3"), "tp 3 does not divide"),
        (("qwen3-8b", "h100", "--isl=-5"), "workload.isl_tokens"),
        (("qwen3-8b", "h100", "--replicas=many"), "replica_count"),
        (("nothing.json", "h100"), "nothing.json: No such file"),
    ],
)
def test_size_complains_in_one_line(
    capsys: pytest.CaptureFixture[str], database: str, arguments: tuple[str, ...], said: str
) -> None:
    assert said in complaint_of(capsys, "size", *arguments, f"--database-url={database}")


def test_calibrate_prints_every_number_beside_its_refit_and_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    printed = stdout_of(capsys, "calibrate", "--numbers-only")
    lines = [line.split() for line in printed.splitlines()[2:]]
    assert [line[0] for line in lines] == list(FITTED)
    assert all(float(number) > 0 for line in lines for number in line[1:4:2])
    assert "Effect on the tiers" not in printed
