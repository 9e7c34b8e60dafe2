"""What holds for the repository as a whole: its files parse, its lock fits, its words agree with its code."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

import service
from service.cli import COMMANDS
from service.settings import Settings

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ("requirements.lock", "requirements-dev.lock")
# Folders that tools make, and those that are hidden, but for the ones that are part of the repository.
NOT_OURS = ("__pycache__", "build", "dist", "node_modules")
MADE_BY_TOOLS = (".egg-info", ".sqlite3", ".db", ".pyc")


def our_files(folder: Path = ROOT) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name.endswith(MADE_BY_TOOLS) or path.name in NOT_OURS:
            continue
        if path.is_dir():
            if not path.name.startswith(".") or path.name in (".ci", ".github"):
                yield from our_files(path)
        elif path.name not in ("uv.lock", ".coverage", ".git"):
            yield path


def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def locked(name: str) -> dict[str, set[str]]:
    """Versions by package; more than one where Pythons differ."""
    versions: dict[str, set[str]] = {}
    for line in (ROOT / name).read_text().splitlines():
        if line and not line.startswith((" ", "#")):
            package, _, rest = line.partition("==")
            versions.setdefault(package, set()).add(rest.split()[0])
    return versions


# --- files -----------------------------------------------------------------------------------------------------------


def test_every_text_file_is_utf_8_without_tabs_for_line_ends_or_conflict_marks() -> None:
    for path in our_files():
        content = path.read_bytes()
        if b"\0" in content:
            continue  # an image or the like
        text = content.decode("utf-8")
        assert "\r" not in text, path
        assert not re.search(r"^(<{7}|>{7}) ", text, re.MULTILINE), path


def test_no_file_names_a_path_of_the_machine_it_was_written_on() -> None:
    machine_path = re.compile(r"""(?<![\w.:/$}-])/(?:root|work|home/(?!someone/)\w+|Users/\w+)/\w""")
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in our_files()
        for match in machine_path.finditer(path.read_text(encoding="utf-8", errors="ignore"))
    ]
    assert found == []


def test_every_yaml_json_and_toml_file_parses() -> None:
    for path in our_files():
        text = path.read_text(encoding="utf-8", errors="ignore")
        match path.suffix:
            case ".yaml" | ".yml":
                assert yaml.safe_load(text) is not None, path
            case ".json":
                json.loads(text)
            case ".toml":
                tomllib.loads(text)


def test_every_file_that_git_would_call_a_script_can_be_executed_by_its_first_line() -> None:
    assert (ROOT / ".ci" / "run").read_text().startswith("#!/usr/bin/env bash\n")
    assert os.access(ROOT / ".ci" / "run", os.X_OK)


# --- dependencies ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_pins_every_package_exactly_with_hashes_and_names_no_registry(name: str) -> None:
    text = (ROOT / name).read_text()
    assert "://" not in text
    entries = re.split(r"\n(?=[a-z0-9])", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE).strip())
    assert entries
    for entry in entries:
        assert re.match(r"[a-z0-9._-]+(\[[a-z,]+\])?==\S+ ", entry), entry[:80]
        assert "--hash=sha256:" in entry, entry[:80]


@pytest.mark.parametrize(("name", "groups"), [(LOCKS[0], ("build",)), (LOCKS[1], ("build", "dev"))])
def test_a_lock_holds_a_version_inside_every_range_of_pyproject(name: str, groups: tuple[str, ...]) -> None:
    settings, versions = pyproject(), locked(name)
    ranges = [*settings["project"]["dependencies"]]
    for group in groups:
        ranges += [entry for entry in settings["dependency-groups"][group] if isinstance(entry, str)]
    for requirement in map(Requirement, ranges):
        pinned = versions[requirement.name.lower()]
        assert all(requirement.specifier.contains(version) for version in pinned), (str(requirement), pinned)


def test_tests_run_on_the_very_versions_that_users_run_on() -> None:
    runtime, dev = (locked(name) for name in LOCKS)
    assert {package: dev.get(package) for package in runtime} == runtime


def test_the_package_is_built_with_the_locked_build_tool() -> None:
    settings = pyproject()
    assert settings["build-system"]["requires"] == settings["dependency-groups"]["build"]


# --- the built package and the ways to start it ----------------------------------------------------------------------


def test_the_built_package_carries_every_file_of_the_service_and_every_migration(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    unwanted = shutil.ignore_patterns("__pycache__")
    for folder in ("service", "migrations"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=unwanted)
    for file in ("pyproject.toml", "setup.py", "README.md"):
        shutil.copy(ROOT / file, tree)
    expected = {f"service/{path.relative_to(tree / 'service')}" for path in our_files(tree / "service")}
    expected |= {f"service/{path.relative_to(tree)}" for path in our_files(tree / "migrations")}
    build = "from setuptools import build_meta; build_meta.build_wheel('.')"
    subprocess.run([sys.executable, "-c", build], cwd=tree, check=True, capture_output=True)
    (wheel,) = tree.glob("*.whl")
    carried = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("service/")}
    assert carried == expected, "packages need an __init__.py, new kinds of data a line in package-data"


def test_an_old_python_can_read_bootstrap_far_enough_to_be_told_its_age() -> None:
    ast.parse((ROOT / "bootstrap.py").read_text(), feature_version=(3, 6))


def test_compose_migrates_to_the_end_before_the_service_starts() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    assert services["migrate"]["command"] == ["sizing", "migrate"]
    assert services["migrate"]["depends_on"]["database"]["condition"] == "service_healthy"
    assert services["service"]["depends_on"]["migrate"]["condition"] == "service_completed_successfully"
    assert services["service"]["environment"]["SIZING_MIGRATE_ON_START"] == "false"
    assert services["service"]["image"] == services["migrate"]["image"]
    assert "pg_isready" in services["database"]["healthcheck"]["test"]


def test_the_image_is_not_root_takes_hashed_packages_and_says_whether_it_is_ready() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert re.search(r"^USER 10001:10001$", text, re.MULTILINE)
    assert "--require-hashes -r requirements.lock" in text
    health_check = re.search(r"^HEALTHCHECK .*\n    CMD (\[.*\])$", text, re.MULTILINE)
    assert health_check
    python, dash_c, program = json.loads(health_check[1])
    assert (python, dash_c) == ("python", "-c")
    assert "/health/ready" in program
    compile(program, "HEALTHCHECK", "exec")


# --- words -----------------------------------------------------------------------------------------------------------


def test_the_newest_release_in_the_changelog_is_the_version_of_the_package() -> None:
    releases = re.findall(r"^## \[(\d+\.\d+\.\d+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert releases[0] == service.__version__


def test_the_readme_lists_every_setting_and_no_other() -> None:
    names = {f"SIZING_{name.upper()}" for name in Settings.model_fields}
    readme = set(re.findall(r"^\| `(SIZING_[A-Z_]+)`", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert readme == names
    deployed = (ROOT / "Dockerfile").read_text() + (ROOT / "docker-compose.yml").read_text()
    variables = set(re.findall(r"\b(SIZING_[A-Z_]+)(?=[=:]\s*\S)", deployed)) - {"SIZING_DATABASE_PASSWORD"}
    assert variables <= names


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_documents_name_only_files_and_make_targets_that_exist(name: str) -> None:
    text = (ROOT / name).read_text()
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"\bmake ([a-z]+(?:-[a-z]+)*)`", text)) <= targets
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / link).exists(), link
    for path in re.findall(r"`((?:service|tests|migrations|openapi|benchmarks|\.ci)/[\w./-]*)`", text):
        assert (ROOT / path).exists(), path


def test_the_readme_lists_every_command_and_no_other() -> None:
    text = (ROOT / "README.md").read_text()
    table = text[text.index("## Command line") : text.index("## Reading the answer")]
    assert set(re.findall(r"`sizing ([a-z-]+)", table)) == {command.name for command in COMMANDS}
