"""The ``sizing`` command, called in this process."""

import pytest

from service.cli import main


def stdout_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def complaint_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line on stderr of a request that cannot be answered."""
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("sizing: ")
    assert captured.err.count("\n") == 1
    return captured.err
