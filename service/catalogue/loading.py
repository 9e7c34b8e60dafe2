"""Stores the catalogue that this release ships, at first start, and upgrades it after later releases.

A record that a user replaced, retired or created under a shipped slug is never touched, and no revision is ever
changed: an upgrade is one more revision, and only on records whose newest revision was shipped.
"""

import hashlib
import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sqlalchemy import Engine
from sqlmodel import Session, select

import service
from service.catalogue.accelerator_records import AcceleratorRecord, load_accelerator_records
from service.catalogue.accelerators import ACCELERATORS
from service.catalogue.database import writing_transaction
from service.catalogue.language_models import LANGUAGE_MODELS
from service.catalogue.model_records import LanguageModelRecord, load_model_records
from service.catalogue.records import Record, RecordKind, create_record, document_digest, replace_record
from service.catalogue.tables import CatalogueStateRow, Origin
from service.errors import NameTaken

log = logging.getLogger("sizing")

DATA = Path(__file__).parent / "data"


def load_shipped_catalogue(engine: Engine) -> int:
    """Store what is new or changed in this release; the number of records written. Nothing to do is quick."""
    digest = release_digest()
    with Session(engine) as session:
        if session.exec(select(CatalogueStateRow.shipped_digest)).one() == digest:
            return 0
    accelerators, models = load_accelerator_records(), load_model_records()
    with writing_transaction(engine) as session:
        state = session.get_one(CatalogueStateRow, 1, with_for_update=True)
        if state.shipped_digest == digest:  # another replica was first
            return 0
        written = upgrade_records(session, ACCELERATORS, accelerators.values())
        written += upgrade_records(session, LANGUAGE_MODELS, models.values())
        state.shipped_digest = digest
        state.revision += 1
        session.add(state)
    log.info("stored %s records of the shipped catalogue", written)
    return written


def upgrade_records(session: Session, kind: RecordKind[Any], records: Iterable[Record]) -> int:
    """Create the missing ones and bring the untouched ones up to date; the number written.

    A name may pass from one shipped record to another, so what is refused is tried again after the rest. What is
    still refused has a name that a user has given away: it is left out, and logged.
    """
    written = 0
    pending = list(records)
    while pending:
        refused = []
        for record in pending:
            try:
                with session.begin_nested():
                    written += _upgrade_record(session, kind, record)
            except NameTaken as error:
                refused.append((record, error))
        if len(refused) == len(pending):
            for record, taken in refused:
                log.warning("the shipped %s %s is left out: %s", kind.noun, record.slug, taken.detail)
            break
        pending = [record for record, _ in refused]
    return written


def _upgrade_record(session: Session, kind: RecordKind[Any], record: Record) -> bool:
    row = session.get(kind.row, record.slug)
    if row is None:
        create_record(session, kind, record, origin=Origin.SHIPPED)
        return True
    if row.head_origin != Origin.SHIPPED or row.shipped_digest == document_digest(record):
        return False
    replace_record(session, kind, record, expected_revision=None, origin=Origin.SHIPPED)
    return True


def release_digest(folder: Path = DATA) -> str:
    """Of everything that decides the shipped documents: the files, the form of a record, the release."""
    digest = hashlib.sha256(service.__version__.encode())
    for form in (AcceleratorRecord, LanguageModelRecord):
        digest.update(json.dumps(form.model_json_schema(), sort_keys=True).encode())
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
