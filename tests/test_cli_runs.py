"""``sizing runs`` and ``sizing delete-runs`` as they are used, beside what the API answers."""

import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from service.app import create_app
from service.cli import main
from service.settings import Settings
from tests.command_line import complaint_of, stdout_of
from tests.imports.reading import VLLM_SERVE

SAID = ["--accelerator", "h100-sxm", "--gpu-count", "4", "--precision", "fp8", "--model", "llama-3.3-70b-instruct"]
SHIPPED_ID = "00wes1q2ct9knnn315"


@pytest.fixture
def database(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    file = tmp_path / "runs.db"
    file.write_bytes(Path(request.getfixturevalue("_loaded_sqlite")).read_bytes())
    return f"--database-url=sqlite:///{file}"


@pytest.fixture
def stored(tmp_path: Path, database: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The ids of two runs of a sweep."""
    sweep = tmp_path / "sweep.jsonl"
    sweep.write_text("\n".join(json.dumps({**VLLM_SERVE, "max_concurrency": limit}) for limit in (4, 8)))
    assert main(["import-runs", str(sweep), *SAID, "--json", database]) == 0
    return [run["id"] for run in json.loads(capsys.readouterr().out)["files"][0]["runs"]]


def test_runs_are_listed_as_a_table_the_newest_first(
    stored: list[str], database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    header, *lines = stdout_of(capsys, "runs", "--origin", "user", database).splitlines()
    assert header.split()[:6] == ["ID", "ORIGIN", "SCENARIO", "ACCELERATOR", "GPUS", "MODEL"]
    in_flight = {"4": stored[0], "8": stored[1]}
    assert [line.split() for line in lines] == [
        # 1,536 and 768 tokens in 24 requests; a median TTFT of 47.1 ms and a mean TPOT of 7.25 ms
        f"{in_flight[limit]} user closed_loop h100-sxm 4 llama-3.3-70b-instruct fp8 vllm {limit} 64 32 0.0471 0.00725 "
        "384 2026-12-01".split()
        for limit in ("8", "4")
    ]


def test_runs_as_json_are_the_page_that_the_api_answers(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked: dict[str, str | int] = {
        "scenario": "closed_loop",
        "gpu_count": 8,
        "sort": "-output_tokens_per_s",
        "limit": 2,
    }
    options = [f"--{name.replace('_', '-')}={value}" for name, value in asked.items()]
    page = json.loads(stdout_of(capsys, "runs", "--json", *options, database))
    second = json.loads(stdout_of(capsys, "runs", "--json", *options, f"--cursor={page['next_cursor']}", database))
    settings = Settings(database_url=database.removeprefix("--database-url="), lean_on_runs=False)
    with TestClient(create_app(settings)) as client:
        assert page == client.get("/benchmark-runs", params=asked).json()
        assert second == client.get("/benchmark-runs", params={**asked, "cursor": page["next_cursor"]}).json()


def test_a_filter_given_twice_matches_either_and_more_pages_are_said(
    database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    filters = ("--accelerator", "h100", "--accelerator", "h200-sxm", "--scenario", "closed_loop")
    assert main(["runs", *filters, "--limit", "200", database]) == 0
    captured = capsys.readouterr()
    assert {line.split()[3] for line in captured.out.splitlines()[1:]} <= {"h100-sxm", "h200-sxm"}
    assert "there are more: give the same options and --cursor=" in captured.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--accelerator", "gb20"], "there is no accelerator 'gb20'"),
        (["--scenario", "closed"], "sizing: --scenario: Input should be 'single_stream'"),
        (["--weights", "fp9"], "sizing: --weights: 'fp9' is not known here; known are awq-int4, "),
        (["--limit", "0"], "sizing: --limit: Input should be greater than or equal to 1"),
        (["--sort=tpot_central_s"], "give one --scenario, or --mixed-scenarios to rank them all the same"),
        (["--cursor", "nonsense"], "the cursor is not one that this service has made"),
    ],
)
def test_a_list_that_cannot_be_made_names_the_option(
    database: str, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert said in complaint_of(capsys, "runs", *arguments, database)


def test_without_a_database_the_command_that_makes_one_is_named_and_none_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = f"--database-url=sqlite:///{tmp_path / 'none.db'}"
    assert "`sizing migrate` makes it" in complaint_of(capsys, "runs", database)
    assert "`sizing migrate` makes it" in complaint_of(capsys, "delete-runs", SHIPPED_ID, database)
    assert not (tmp_path / "none.db").exists()


def test_runs_are_deleted_and_each_is_said(
    stored: list[str], database: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = stored
    assert stdout_of(capsys, "delete-runs", first, second, first, database).splitlines() == [
        f"deleted {each}: llama-3.3-70b-instruct on 4 x h100-sxm, closed_loop, measured on 2026-12-01, from sweep.jsonl"
        for each in (first, second)
    ]
    assert stdout_of(capsys, "runs", "--origin", "user", database).count("\n") == 1  # the header


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ("01zzzzzzzzzzzzzzzz", "there is no benchmark run '01zzzzzzzzzzzzzzzz'"),
        ("no id at all", "there is no benchmark run 'no id at all'"),
        (SHIPPED_ID, f"{SHIPPED_ID} is published evidence that this release ships"),
    ],
)
def test_where_one_cannot_be_deleted_none_is(
    stored: list[str], database: str, capsys: pytest.CaptureFixture[str], other: str, said: str
) -> None:
    complaint = complaint_of(capsys, "delete-runs", stored[0], other, stored[1], database)
    assert complaint.startswith(f"sizing: {said}")
    assert complaint.endswith("; nothing was deleted\n")
    page = json.loads(stdout_of(capsys, "runs", "--origin", "user", "--json", database))
    assert {run["id"] for run in page["items"]} == set(stored)
