"""``sizing import-runs`` as it is used: files, folders, a folder that is watched."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from sqlmodel import Session

from service.api.import_schemas import ImportMetadata, PrecisionSaid
from service.catalogue.benchmarks import get_run
from service.catalogue.database import create_database_engine
from service.cli import main
from service.cli.schema_options import option
from tests.imports.reading import VLLM_SERVE

SAID = ["--accelerator", "h100-sxm", "--gpu-count", "4", "--precision", "fp8", "--model", "llama-3.3-70b-instruct"]


@pytest.fixture
def database(tmp_path: Path, request: pytest.FixtureRequest) -> list[str]:
    file = tmp_path / "runs.db"
    file.write_bytes(Path(request.getfixturevalue("_loaded_sqlite")).read_bytes())
    return ["--database-url", f"sqlite:///{file}"]


def write_run(folder: Path, name: str, output_tokens_per_s: float = 1000.0) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**VLLM_SERVE, "output_throughput": output_tokens_per_s}))
    return path


def test_a_folder_is_imported_and_the_same_again_is_known(
    tmp_path: Path, database: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "results"
    write_run(folder, "a.json", 1.0)
    write_run(folder, "deep/b.json", 2.0)
    write_run(folder, ".hidden/c.json", 3.0)
    assert main(["import-runs", str(folder), *SAID, *database]) == 0
    printed = capsys.readouterr().out
    assert "a.json: 1 stored (vllm-bench-serve)" in printed
    assert "deep/b.json: 1 stored" in printed
    assert "hidden" not in printed
    assert main(["import-runs", str(folder), *SAID, *database]) == 0
    assert "a.json: 0 stored, 1 stored already as 0" in capsys.readouterr().out


def test_better_options_for_a_stored_file_are_not_taken_over_and_the_way_to_do_so_is_said(
    tmp_path: Path, database: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["import-runs", str(write_run(tmp_path, "a.json")), *SAID, *database]
    assert main([*arguments, "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["files"][0]["runs"]
    assert main([*arguments, "--engine-version", "0.33.0"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"a.json: 0 stored, 1 stored already as {run['id']} (vllm-bench-serve)"
    assert (
        f"  {run['id']} is stored already and stays as it is; not taken over: engine_version 0.33.0 (stored: unknown); "
        "to store that, delete it and import the file again"
    ) in lines
    assert f"  `sizing delete-runs {run['id']}` deletes what is stored" in lines


def test_runs_are_shown_beside_what_the_others_predict(
    tmp_path: Path, database: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "results", "a.json")
    assert main(["import-runs", str(tmp_path / "results"), *SAID, "--predict", *database]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "predicted" in line]
    assert [line.split()[1] for line in lines] == ["tpot_s:", "ttft_s:"]
    assert all(line.endswith(("inside", "outside")) for line in lines)


def test_a_refused_file_is_said_and_ends_with_one(
    tmp_path: Path, database: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = write_run(tmp_path, "good.json"), tmp_path / "bad.txt"
    bad.write_text("hello")
    assert main(["import-runs", str(good), str(bad), *SAID, *database]) == 1
    output = capsys.readouterr()
    assert "good.json: 1 stored" in output.out
    assert "bad.txt: refused: no known tool" in output.err
    assert main(["import-runs", str(write_run(tmp_path, "b.json", 2.0)), "--json", *database]) == 1
    (file,) = json.loads(capsys.readouterr().out)["files"]
    assert {"accelerator", "gpu_count", "precision"} <= set(file["missing"])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "name files or folders"),
        (["missing.json"], "sizing: there is no file or folder missing.json"),
        (["a.json", "--accelerator", "gb20"], "sizing: --accelerator: there is no accelerator 'gb20'"),
        (["a.json", "--gpu-count", "0"], "sizing: --gpu-count: Input should be greater"),
        (["a.json", "--gpu-count", "0", "--tp", "0"], "; --tp: Input should be greater"),
        (["a.json", "--precision", "fp88"], "sizing: --precision: 'fp88' is not known here"),
        (["a.json", "--kv-cache", "fp88"], "sizing: --kv-cache: 'fp88' is not known here"),
        (["a.json", "--compute", ""], "sizing: --compute: String should have at least 1 character"),
        (["a.json", "--scenario", "closed"], "sizing: --scenario: Input should be 'single_stream'"),
        (["a.json", "--started-at", "2026-12-01T09:30:00"], "sizing: --started-at: Input should have timezone"),
        (["a.json", "--nobody-knows", "colour"], "sizing: --nobody-knows: Input should be 'accelerator'"),
        (["a.json", "--utc-offset", "CET"], "sizing: --utc-offset: it is not written as it should be, such as +01:00"),
        (["--watch", "nowhere"], "nowhere is no folder"),
    ],
)
def test_what_cannot_be_done_is_one_line(  # noqa: PLR0917 - fixtures
    tmp_path: Path,
    database: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    complaint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path, "a.json")
    assert main(["import-runs", *arguments, *database]) == 1
    error = capsys.readouterr().err
    assert complaint in error
    assert len(error.strip().splitlines()) == 1


def test_every_field_of_the_metadata_can_be_said_and_is_stored(
    tmp_path: Path, database: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    said = {
        "accelerator": "h100",
        "gpu_count": "8",
        "node_count": "2",
        "model": "llama-3.3-70b-instruct",
        "precision": "fp8",
        "kv_cache": "fp8",
        "compute": "bf16",
        "engine": "vLLM",
        "engine_version": "0.33.0",
        "tool_version": "0.33.1",
        "tp": "4",
        "pp": "2",
        "ep": "4",
        "dp": "1",
        "isl_tokens": "64",
        "osl_tokens": "32",
        "batch": "4",
        "concurrency": "4",
        "request_rate_per_s": "3.5",
        "scenario": "open_loop",
        "output_tokens_per_s": "384",
        "started_at": "2026-12-01T23:30:00-02:00",
        "finished_at": "2026-12-01T23:31:00-02:00",
        "duration_s": "2.0",
        "failed_count": "0",
        "speculation": "mtp",
        "utc_offset": "-02:00",
        "measured_by": "performance team",
        "source_title": "a report",
        "source_ref": "https://example.com/report",
        "kind": "vllm-bench-serve",
        "nobody_knows": "tool-version",
        "max_num_seqs": "256",
        "max_num_batched_tokens": "8192",
    }
    assert {*said, "prefix_caching"} == {*ImportMetadata.model_fields, *PrecisionSaid.model_fields} - {"weights"}
    bare = {"completed": 24, "mean_tpot_ms": 7.25, "output_throughput": 384.0}  # a file that says as little as can be
    (tmp_path / "a.json").write_text(json.dumps(bare))
    options = [f"{option(name)}={value}" for name, value in said.items()]
    assert main(["import-runs", str(tmp_path / "a.json"), *options, "--no-prefix-caching", "--json", *database]) == 0
    (report,) = json.loads(capsys.readouterr().out)["files"]
    assert (report["accepted"], report["missing"]) == (True, [])
    engine = create_database_engine(database[1])
    with Session(engine) as session:
        run = get_run(session, report["runs"][0]["id"])
    engine.dispose()
    assert (run.accelerator, run.gpu_count, run.node_count, run.model) == ("h100-sxm", 8, 2, "llama-3.3-70b-instruct")
    assert (run.weights, run.kv_cache, run.compute, run.prefix_caching) == ("fp8", "fp8", "bf16", False)
    assert (run.engine, run.engine_version, run.tool_version, run.speculation) == ("vllm", "0.33.0", "0.33.1", "mtp")
    assert (run.tp, run.pp, run.ep, run.dp) == (4, 2, 4, 1)
    assert (run.scenario, run.concurrency, run.request_rate_per_s) == ("open_loop", 4, 3.5)
    assert (run.isl_mean_tokens, run.osl_mean_tokens, run.output_tokens_per_s) == (64, 32, 384)
    assert run.measured_on == "2026-12-02"  # 23:30 two hours west of Greenwich
    assert (run.measured_by, run.source_title, run.source_ref) == (
        "performance team",
        "a report",
        "https://example.com/report",
    )
    extras = run.read_details.extras
    assert (extras["max_num_seqs"], extras["max_num_batched_tokens"], extras["failed_count"]) == ("256", "8192", "0")
    assert (extras["finished_at"], extras["duration_s"]) == ("2026-12-01T23:31:00-02:00", "2.0")


def test_what_a_file_lacks_and_contradicts_is_said_by_option(
    tmp_path: Path, database: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.json"
    file.write_text(json.dumps({**VLLM_SERVE, "tensor_parallel_size": "4"}))
    assert main(["import-runs", str(file), *database]) == 1
    refused = capsys.readouterr().err
    assert "it does not say --accelerator, --gpu-count, --precision: say it with the import" in refused
    assert "name in --nobody-knows what nobody knows (it hints at --gpu-count 4)" in refused
    assert main(["import-runs", str(file), *SAID, "--failed-count", "3", *database]) == 0
    stored = capsys.readouterr().out
    assert "  --failed-count: the file says 0, the caller 3; the file's is kept" in stored
    assert "  still unknown: --engine-version\n" in stored


def test_help_teaches_every_option_by_the_words_of_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["import-runs", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "--engine-version WORD such as 0.33.0" in shown
    assert "--prefix-caching, --no-prefix-caching whether the engine reused" in shown
    assert "--scenario WORD how the load was offered; one of single_stream, static_batch, closed_loop" in shown
    assert all(
        field.description for field in (*ImportMetadata.model_fields.values(), *PrecisionSaid.model_fields.values())
    )


def test_a_watched_folder_is_imported_as_files_come(tmp_path: Path, database: list[str]) -> None:
    folder = tmp_path / "results"
    write_run(folder, "first.json", 1.0)
    command = [sys.executable, "-m", "service.cli", "import-runs", "--watch", str(folder), *SAID, *database]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - a shell's background ignores it
    ) as process:
        assert process.stdout
        try:
            assert "first.json: 1 stored" in process.stdout.readline()
            write_run(folder, "second.json", 2.0)
            end_s = time.monotonic() + 30
            while "second.json: 1 stored" not in (line := process.stdout.readline()):
                assert line, "it has ended"
                assert time.monotonic() < end_s
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
