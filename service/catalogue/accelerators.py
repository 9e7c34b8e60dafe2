"""How accelerators are kept: see ``records.py``."""

from service.catalogue.accelerator_records import AcceleratorRecord
from service.catalogue.records import RecordKind
from service.catalogue.tables import AcceleratorAliasRow, AcceleratorRevisionRow, AcceleratorRow
from service.errors import UnknownAccelerator

ACCELERATORS: RecordKind[AcceleratorRecord] = RecordKind(
    noun="accelerator",
    row=AcceleratorRow,
    revision_row=AcceleratorRevisionRow,
    alias_row=AcceleratorAliasRow,
    unknown=UnknownAccelerator,
    own_aliases=lambda record: record.aliases,
    shared_aliases=lambda _: (),
)
