"""A language model as the API shows it."""

from service.api.language_model_schemas import LanguageModelRead, LanguageModelSummary, ParameterCounts
from service.catalogue.snapshot import SnapshotLanguageModel
from service.catalogue.sources import source_documents
from service.errors import Invalid
from service.sizing.checkpoint_file import WeightBytesSource
from service.sizing.language_model import LanguageModel, active_parameter_count, parameter_counts
from service.sizing.model_memory import model_parameter_counts
from service.sizing.weights import served_weights


def _built(entry: SnapshotLanguageModel) -> LanguageModel | None:
    """``None`` for a config that an earlier release accepted and this one does not."""
    try:
        return entry.model
    except Invalid:
        return None


def family_of(entry: SnapshotLanguageModel) -> str | None:
    model = _built(entry)
    return model.family.lower() if model else None


def summary_of(entry: SnapshotLanguageModel) -> LanguageModelSummary:
    record, model = entry.record, _built(entry)
    return LanguageModelSummary(
        slug=entry.slug,
        aliases=list(record.aliases),
        ambiguous_aliases=list(record.ambiguous_aliases),
        name=record.name,
        family=model and model.family,
        revision=entry.revision,
        total_parameter_count=model and sum(parameter_counts(model.tensors).values()),
        active_parameter_count=model and active_parameter_count(model),
        max_context_tokens=model and model.max_context_tokens,
        checkpoint_scheme=model and model.checkpoint_scheme,
        checkpoint_weight_bytes=model and served_weights(model, None).total_bytes,
        weight_bytes_source=WeightBytesSource(model.weight_bytes_source) if model else None,
    )


def read_of(entry: SnapshotLanguageModel) -> LanguageModelRead:
    record, model = entry.record, _built(entry)
    return LanguageModelRead(
        **summary_of(entry).model_dump(),
        origin=entry.origin,
        retired_at=entry.retired_at,
        config_kind=record.config_kind,
        layer_count=model and model.layer_count,
        hidden_size=model and model.hidden_size,
        vocabulary_size=model and model.vocabulary_size,
        attention_head_count=model and model.attention_head_count,
        kv_head_count=model and model.kv_head_count,
        expert_count=model and model.expert_count,
        experts_per_token=model and model.experts_per_token,
        tied_embedding=model and model.tied_embedding,
        checkpoint_kv_cache=model and model.checkpoint_kv_cache,
        parameter_counts=model and ParameterCounts(**model_parameter_counts(model)),
        config=record.config,
        note=record.note,
        sources=source_documents(record.sources),
    )
