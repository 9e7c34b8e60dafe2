"""The shipped catalogue is stored at first start and upgraded later, and what users wrote is theirs."""

from pathlib import Path

import pytest
from sqlalchemy import Engine
from sqlmodel import Session

from service.catalogue.accelerator_records import AcceleratorRecord, load_accelerator_records
from service.catalogue.accelerators import ACCELERATORS
from service.catalogue.loading import load_shipped_catalogue, release_digest, upgrade_records
from service.catalogue.records import create_record, list_revisions, replace_record, retire_record, writing
from service.catalogue.snapshot import read_snapshot
from service.catalogue.tables import Origin


@pytest.fixture(scope="module")
def shipped() -> dict[str, AcceleratorRecord]:
    return load_accelerator_records()


def renamed(record: AcceleratorRecord, name: str) -> AcceleratorRecord:
    return record.model_copy(update={"name": name})


def upgrade(engine: Engine, *records: AcceleratorRecord) -> int:
    with writing(engine) as session:
        return upgrade_records(session, ACCELERATORS, records)


def history(engine: Engine, slug: str) -> list[tuple[int, Origin]]:
    with Session(engine) as session:
        return [(each.revision, each.origin) for each in list_revisions(session, ACCELERATORS, slug)]


def test_the_first_start_stores_every_record_and_the_second_nothing(
    engine: Engine, shipped: dict[str, AcceleratorRecord]
) -> None:
    snapshot = read_snapshot(engine)
    assert {entry.slug for entry in snapshot.accelerators.in_use} == set(shipped)
    assert {entry.origin for entry in snapshot.accelerators.in_use} == {Origin.SHIPPED}
    assert load_shipped_catalogue(engine) == 0
    assert read_snapshot(engine).revision == snapshot.revision


def test_an_upgrade_is_one_more_revision_of_an_untouched_record(
    engine: Engine, shipped: dict[str, AcceleratorRecord]
) -> None:
    record = renamed(shipped["h100-sxm"], "H100, corrected")
    assert upgrade(engine, record) == 1
    assert upgrade(engine, record) == 0
    assert history(engine, "h100-sxm") == [(2, Origin.SHIPPED), (1, Origin.SHIPPED)]
    assert read_snapshot(engine).accelerator("h100-sxm").record.name == "H100, corrected"


def test_a_record_that_a_user_replaced_is_never_upgraded(engine: Engine, shipped: dict[str, AcceleratorRecord]) -> None:
    with writing(engine) as session:
        replace_record(session, ACCELERATORS, renamed(shipped["h100-sxm"], "ours"), expected_revision=1)
    assert upgrade(engine, renamed(shipped["h100-sxm"], "H100, corrected")) == 0
    assert read_snapshot(engine).accelerator("h100-sxm").record.name == "ours"


def test_a_record_that_a_user_retired_stays_retired(engine: Engine, shipped: dict[str, AcceleratorRecord]) -> None:
    with writing(engine) as session:
        retire_record(session, ACCELERATORS, "h100-sxm", expected_revision=1)
    assert upgrade(engine, renamed(shipped["h100-sxm"], "H100, corrected")) == 0
    assert read_snapshot(engine).accelerators.find("h100-sxm").retired_at is not None


def test_a_record_that_a_user_created_is_not_taken_over_by_a_release(
    engine: Engine, shipped: dict[str, AcceleratorRecord]
) -> None:
    own = shipped["h100-sxm"].model_copy(update={"slug": "h300-sxm", "aliases": (), "name": "ours"})
    with writing(engine) as session:
        create_record(session, ACCELERATORS, own)
    assert upgrade(engine, renamed(own, "H300 as shipped")) == 0
    assert history(engine, "h300-sxm") == [(1, Origin.USER)]


def test_a_shipped_record_whose_name_a_user_has_given_away_is_left_out(
    engine: Engine, shipped: dict[str, AcceleratorRecord]
) -> None:
    own = shipped["h100-sxm"].model_copy(update={"slug": "ours", "aliases": ("h300-sxm",)})
    with writing(engine) as session:
        create_record(session, ACCELERATORS, own)
    new = shipped["h100-sxm"].model_copy(update={"slug": "h300-sxm", "aliases": ()})
    other = shipped["h100-sxm"].model_copy(update={"slug": "h400-sxm", "aliases": ()})
    assert upgrade(engine, new, other) == 1
    assert read_snapshot(engine).accelerator("h300-sxm").slug == "ours"


def test_an_alias_may_pass_from_one_shipped_record_to_another(
    engine: Engine, shipped: dict[str, AcceleratorRecord]
) -> None:
    heir = shipped["h100-sxm"].model_copy(update={"aliases": (*shipped["h100-sxm"].aliases, "gb200")})
    giver = shipped["gb200-nvl72"].model_copy(update={"aliases": ()})
    assert upgrade(engine, heir, giver) == 2
    assert read_snapshot(engine).accelerator("gb200").slug == "h100-sxm"


def test_the_digest_of_a_release_changes_with_any_file(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("a: 1")
    before = release_digest(tmp_path)
    (tmp_path / "one.yaml").write_text("a: 2")
    changed = release_digest(tmp_path)
    (tmp_path / "one.yaml").rename(tmp_path / "two.yaml")
    assert len({before, changed, release_digest(tmp_path)}) == 3
