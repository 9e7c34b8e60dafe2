"""Every number says its unit where it is named: in the contract, in the tables, in the dataclasses."""

import dataclasses
import importlib
import pkgutil
import re
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Boolean, Integer, Numeric

import service.sizing
from service.api.contract import document
from service.app import create_app
from service.catalogue.tables import Table
from service.settings import Settings
from tests.units import names_its_unit

ESTIMATE = {"value", "low", "high", "coverage_fraction", "basis"}  # the field that holds it names the unit
NAMED_OTHERWISE = {
    ("Problem", "status"),  # RFC 9457
    ("ProblemKind", "status"),
    ("EvidenceRunRead", "measured"),  # maps, whose keys name the unit
    ("EvidenceRunRead", "predicted"),
    ("MetricRead", "value"),  # the meaning beside it names the unit
    ("MetricWrite", "value"),
}

# Of the calculation's own dataclasses: statistics, counts of things that are their own unit, and factors.
DIMENSIONLESS = re.compile(
    r"(.*_)?(sd|variance|ratio|factor|slowdown|distance|disagreement|shift|noise|weight|residual|apart|score|copies|shards|bits|elements"
    r"|layer|years|position|size|rank|devices)|(sd|factor|shift|attention_width|tokens_per|blocks_per|bytes_per|kv_elements_per)_.*"
    r"|(.*_)?s_per_rank_sequence|cached_share_of_prefill"
)
DIMENSIONLESS_THROUGHOUT = {"StepParameters", "Kernel", "Widths"}  # inverse efficiencies, standard deviations, ratios


@pytest.fixture(scope="module")
def contract() -> dict[str, Any]:
    return document(create_app(Settings(database_url="sqlite:////nowhere.db")))


def test_every_number_of_the_contract_names_its_unit(contract: dict[str, Any]) -> None:
    nameless = {
        (owner, name)
        for owner, name in [*_schema_numbers(contract), *_parameter_numbers(contract)]
        if not names_its_unit(name)
    }
    assert nameless - NAMED_OTHERWISE == set()


def _schema_numbers(contract: dict[str, Any]) -> Iterator[tuple[str, str]]:
    schemas = contract["components"]["schemas"]
    counted = _counted_schemas(schemas)
    for owner, schema in schemas.items():
        if set(schema.get("properties", ())) == ESTIMATE or owner in counted:
            continue
        for name, field in schema.get("properties", {}).items():
            if _is_number(field, schemas):
                yield owner, name


def _counted_schemas(schemas: dict[str, Any]) -> set[str]:
    """Objects under a field such as ``parameter_counts``: the field says what its members count."""
    return {
        target
        for schema in schemas.values()
        for name, field in schema.get("properties", {}).items()
        if name.endswith("_counts")
        for target in _targets(field)
    }


def _parameter_numbers(contract: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for path, operations in contract["paths"].items():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                if _is_number(parameter["schema"], contract["components"]["schemas"]):
                    yield path, parameter["name"]


def _is_number(field: dict[str, Any], schemas: dict[str, Any]) -> bool:
    """A number, an array or a map of numbers, or an estimate of one."""
    if field.get("type") in {"number", "integer"}:
        return True
    inner = [*field.get("anyOf", ()), *field.get("oneOf", ()), *field.get("allOf", ())]
    if any(each.get("type") == "string" for each in inner):
        return False  # a quantity as printed, such as "13.4 TB", says its unit itself
    inner += [field[key] for key in ("items", "additionalProperties") if isinstance(field.get(key), dict)]
    if any(_is_number(each, schemas) for each in inner):
        return True
    return any(set(schemas[target].get("properties", ())) == ESTIMATE for target in _targets(field))


def _targets(field: dict[str, Any]) -> list[str]:
    inner = [field, *field.get("anyOf", ()), *field.get("allOf", ())]
    return [each["$ref"].rsplit("/", 1)[1] for each in inner if "$ref" in each]


def test_every_number_of_the_tables_names_its_unit() -> None:
    numbers = {
        (table.name, column.name)
        for table in Table.metadata.sorted_tables
        for column in table.columns
        if isinstance(column.type, Integer | Numeric) and not isinstance(column.type, Boolean) and column.name != "id"
    }
    assert {each for each in numbers if not names_its_unit(each[1])} == set()


def test_every_number_of_the_dataclasses_names_its_unit() -> None:
    nameless = {
        (owner.__name__, field.name)
        for owner in _dataclasses()
        if not _names(owner) >= ESTIMATE
        for field in dataclasses.fields(owner)
        if field.type in (int, float, int | None, float | None)
        and not (names_its_unit(field.name) or DIMENSIONLESS.fullmatch(field.name))
    }
    assert {each for each in nameless if each[0] not in DIMENSIONLESS_THROUGHOUT} == set()


def _names(owner: Any) -> set[str]:
    return {field.name for field in dataclasses.fields(owner)}


def _dataclasses() -> set[Any]:
    found = set()
    for module in pkgutil.walk_packages(service.sizing.__path__, "service.sizing."):
        for each in vars(importlib.import_module(module.name)).values():
            if isinstance(each, type) and dataclasses.is_dataclass(each) and each.__module__.startswith("service."):
                found.add(each)
    return found
