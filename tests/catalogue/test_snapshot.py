"""The catalogue in memory resolves names exactly and follows the database."""

import pytest
from sqlalchemy import Engine

from service.catalogue.accelerator_records import AcceleratorRecord, load_accelerator_records
from service.catalogue.accelerators import ACCELERATORS
from service.catalogue.database import create_database_engine
from service.catalogue.live import LiveCatalogue
from service.catalogue.records import create_record, replace_record, retire_record, writing
from service.catalogue.snapshot import read_snapshot, shipped_snapshot
from service.errors import RecordRetired, UnknownAccelerator, UnknownLanguageModel


@pytest.fixture(scope="module")
def shipped() -> dict[str, AcceleratorRecord]:
    return load_accelerator_records()


def test_a_slug_and_an_alias_lead_to_the_same_record_in_any_case(engine: Engine) -> None:
    snapshot = read_snapshot(engine)
    entry = snapshot.accelerator("gb200-nvl72")
    assert snapshot.accelerator("gb200") is entry
    assert snapshot.accelerator("GB200-NVL72") is entry
    assert entry.revision == 1
    assert entry.accelerator.gpu_count == 72
    assert entry.record.sources


def test_a_name_is_never_resolved_by_likeness(engine: Engine) -> None:
    snapshot = read_snapshot(engine)
    for likely in ("gb20", "gb200-nvl7", "gb200-nvl722", " gb200", ""):
        with pytest.raises(UnknownAccelerator):
            snapshot.accelerator(likely)
    with pytest.raises(UnknownAccelerator, match=r"begin alike: .*gb200-nvl72"):
        snapshot.accelerator("gb20")
    with pytest.raises(UnknownLanguageModel):
        snapshot.language_model("gb200-nvl72")


def test_a_retired_record_can_be_read_but_not_used(engine: Engine) -> None:
    with writing(engine) as session:
        retire_record(session, ACCELERATORS, "gb200-nvl72", expected_revision=1)
    snapshot = read_snapshot(engine)
    assert snapshot.accelerators.find("gb200-nvl72").retired_at is not None
    assert "gb200-nvl72" not in {entry.slug for entry in snapshot.accelerators.in_use}
    with pytest.raises(RecordRetired):
        snapshot.accelerator("gb200-nvl72")
    with pytest.raises(UnknownAccelerator):
        snapshot.accelerator("gb200")


def test_a_snapshot_does_not_change_and_the_next_one_keeps_what_has_not_moved(
    engine: Engine, shipped: dict[str, AcceleratorRecord]
) -> None:
    first = read_snapshot(engine)
    parsed = first.accelerator("gb200-nvl72").accelerator
    renamed = shipped["h100-sxm"].model_copy(update={"name": "renamed"})
    with writing(engine) as session:
        replace_record(session, ACCELERATORS, renamed, expected_revision=1)
    second = read_snapshot(engine, first)
    assert second.revision == first.revision + 1
    assert first.accelerator("h100-sxm").record.name != "renamed"
    assert second.accelerator("h100-sxm").record.name == "renamed"
    assert second.accelerator("gb200-nvl72").accelerator is parsed


def test_another_process_sees_a_write_after_its_next_look(
    database_url: str, shipped: dict[str, AcceleratorRecord]
) -> None:
    ours, theirs = create_database_engine(database_url), create_database_engine(database_url)
    watching = LiveCatalogue(theirs)
    before = watching.snapshot
    assert watching.refresh() is before
    with writing(ours) as session:
        create_record(session, ACCELERATORS, shipped["h100-sxm"].model_copy(update={"slug": "new", "aliases": ()}))
    assert watching.refresh().accelerator("new").revision == 1
    ours.dispose()
    theirs.dispose()


def test_the_shipped_snapshot_needs_no_database_and_equals_the_stored_one(engine: Engine) -> None:
    stored, shipped = read_snapshot(engine), shipped_snapshot()
    assert {each.slug: each.document for each in shipped.accelerators.in_use} == {
        each.slug: each.document for each in stored.accelerators.in_use
    }
    assert shipped.accelerators.slugs_by_alias == stored.accelerators.slugs_by_alias
    assert shipped.language_models.slugs_by_alias == stored.language_models.slugs_by_alias
