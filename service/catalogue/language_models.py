"""How language models are kept: see ``records.py``."""

from service.catalogue.model_records import LanguageModelRecord
from service.catalogue.records import RecordKind
from service.catalogue.tables import LanguageModelAliasRow, LanguageModelRevisionRow, LanguageModelRow
from service.errors import UnknownLanguageModel

LANGUAGE_MODELS: RecordKind[LanguageModelRecord] = RecordKind(
    noun="model",
    row=LanguageModelRow,
    revision_row=LanguageModelRevisionRow,
    alias_row=LanguageModelAliasRow,
    unknown=UnknownLanguageModel,
    own_aliases=lambda record: record.aliases,
    shared_aliases=lambda record: record.ambiguous_aliases,
)
