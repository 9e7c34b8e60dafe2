"""``sizing import-runs`` as it is used: files, folders, a folder that is watched."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from service.cli import main
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
    assert "a.json: 0 stored, 1 stored already" in capsys.readouterr().out


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
        (["missing.json"], "missing.json"),
        (["a.json", "--accelerator", "gb20"], "gb20"),
        (["a.json", "--gpu-count", "0"], "--gpu-count"),
        (["a.json", "--precision", "fp88"], "fp88"),
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


def test_a_watched_folder_is_imported_as_files_come(tmp_path: Path, database: list[str]) -> None:
    folder = tmp_path / "results"
    write_run(folder, "first.json", 1.0)
    command = [sys.executable, "-m", "service.cli", "import-runs", "--watch", str(folder), *SAID, *database]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ}) as process:
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
