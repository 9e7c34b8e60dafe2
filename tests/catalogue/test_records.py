"""Records are created, replaced and retired by revisions that never change."""

import pytest
from sqlalchemy import Engine
from sqlmodel import Session

from service.catalogue.accelerator_records import AcceleratorRecord, load_accelerator_records
from service.catalogue.accelerators import ACCELERATORS
from service.catalogue.records import (
    create_record,
    get_document,
    list_revisions,
    replace_record,
    retire_record,
    writing,
)
from service.catalogue.tables import Event, Origin
from service.errors import NameTaken, RevisionMismatch, UnknownAccelerator, UnknownRevision


@pytest.fixture(scope="module")
def shipped() -> dict[str, AcceleratorRecord]:
    return load_accelerator_records()


def named(record: AcceleratorRecord, slug: str, *aliases: str) -> AcceleratorRecord:
    return record.model_copy(update={"slug": slug, "aliases": aliases})


@pytest.fixture
def mine(shipped: dict[str, AcceleratorRecord]) -> AcceleratorRecord:
    return named(shipped["h100-sxm"], "my-h100", "the-h100")


def test_history_keeps_every_document(engine: Engine, mine: AcceleratorRecord) -> None:
    better = mine.model_copy(update={"name": "My better H100"})
    with writing(engine) as session:
        create_record(session, ACCELERATORS, mine)
    with writing(engine) as session:
        assert replace_record(session, ACCELERATORS, better, expected_revision=1) == 2
    with writing(engine) as session:
        assert retire_record(session, ACCELERATORS, "my-h100", expected_revision=2) == 3
    with Session(engine) as session:
        history = list_revisions(session, ACCELERATORS, "my-h100")
        documents = [get_document(session, ACCELERATORS, "my-h100", number).document for number in (1, 2, 3)]
    assert [(each.revision, each.event) for each in history] == [
        (3, Event.RETIRED),
        (2, Event.REPLACED),
        (1, Event.CREATED),
    ]
    assert {each.origin for each in history} == {Origin.USER}
    assert documents == [each.model_dump_json() for each in (mine, better, better)]


def test_the_second_of_two_writers_with_one_revision_is_refused(engine: Engine, mine: AcceleratorRecord) -> None:
    with writing(engine) as session:
        create_record(session, ACCELERATORS, mine)
    with writing(engine) as session:
        replace_record(session, ACCELERATORS, mine, expected_revision=1)
    with pytest.raises(RevisionMismatch, match="is at revision 2, not 1"), writing(engine) as session:
        replace_record(session, ACCELERATORS, mine, expected_revision=1)
    with pytest.raises(RevisionMismatch), writing(engine) as session:
        retire_record(session, ACCELERATORS, "my-h100", expected_revision=1)


def test_no_two_records_answer_to_one_name(engine: Engine, shipped: dict[str, AcceleratorRecord]) -> None:
    record = shipped["h100-sxm"]
    for clash in (
        record,  # its own slug
        named(record, "mine", "gb200-nvl72"),  # alias is another's slug
        named(record, "mine", "gb200"),  # alias is another's alias
        named(record, "gb200"),  # slug is another's alias
    ):
        with pytest.raises(NameTaken), writing(engine) as session:
            create_record(session, ACCELERATORS, clash)


def test_retiring_frees_the_aliases_and_replacing_brings_the_record_back(
    engine: Engine, mine: AcceleratorRecord, shipped: dict[str, AcceleratorRecord]
) -> None:
    with writing(engine) as session:
        create_record(session, ACCELERATORS, mine)
        retire_record(session, ACCELERATORS, "my-h100", expected_revision=1)
        create_record(session, ACCELERATORS, named(shipped["h200-sxm"], "my-h200", "the-h100"))
    with pytest.raises(NameTaken, match="the-h100"), writing(engine) as session:
        replace_record(session, ACCELERATORS, mine, expected_revision=2)
    with pytest.raises(NameTaken, match="PUT"), writing(engine) as session:
        create_record(session, ACCELERATORS, mine)
    with writing(engine) as session:
        assert replace_record(session, ACCELERATORS, named(mine, "my-h100"), expected_revision=2) == 3


def test_retiring_twice_is_once(engine: Engine, mine: AcceleratorRecord) -> None:
    with writing(engine) as session:
        create_record(session, ACCELERATORS, mine)
        assert retire_record(session, ACCELERATORS, "my-h100", expected_revision=1) == 2
        assert retire_record(session, ACCELERATORS, "my-h100", expected_revision=2) == 2


def test_what_is_not_there_is_named(engine: Engine) -> None:
    with Session(engine) as session:
        with pytest.raises(UnknownAccelerator, match="gb200-nvl72"):
            list_revisions(session, ACCELERATORS, "gb200-nvl7")
        with pytest.raises(UnknownRevision, match="its revisions are 1 to 1"):
            get_document(session, ACCELERATORS, "gb200-nvl72", 2)
        with pytest.raises(UnknownRevision):
            get_document(session, ACCELERATORS, "gb200-nvl72", 2**62)
