"""Language models over HTTP: by known name, or from an uploaded config.json."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from sqlmodel import Session
from starlette.concurrency import run_in_threadpool

from service.api.dependencies import (
    NOT_MODIFIED,
    CatalogueDep,
    ExpectedRevision,
    SlugPath,
    SnapshotDep,
    list_etag,
    not_modified,
    record_etag,
)
from service.api.language_model_document import family_of, read_of, summary_of
from service.api.language_model_schemas import (
    LanguageModelCreate,
    LanguageModelMemory,
    LanguageModelRead,
    LanguageModelReplacement,
    LanguageModelRevisionRead,
    LanguageModelRevisions,
    LanguageModelSummary,
    ListQuestion,
    MemoryQuestion,
    ModelArchitectures,
    ReadQuestion,
)
from service.api.pages import CursorInvalid, Page, page_of
from service.api.problems import PreconditionInvalid, problem_responses
from service.api.strict_json import StrictJsonRoute
from service.catalogue.language_models import LANGUAGE_MODELS
from service.catalogue.live import LiveCatalogue
from service.catalogue.model_records import LanguageModelRecord, uploaded_record
from service.catalogue.records import (
    create_record,
    get_document,
    list_revisions,
    replace_record,
    retire_record,
    writing,
)
from service.catalogue.snapshot import SnapshotLanguageModel
from service.errors import (
    AmbiguousName,
    ArchitectureNotSupported,
    CheckpointInvalid,
    ConfigInvalid,
    NameTaken,
    ParallelismNotLegal,
    RecordRetired,
    RevisionMismatch,
    RevisionRequired,
    UnknownLanguageModel,
    UnknownRevision,
)
from service.sizing.architectures import SUPPORTED_ARCHITECTURES
from service.sizing.model_memory import model_memory
from service.sizing.parallelism import Parallelism
from service.sizing.weights import layout_problem

router = APIRouter(tags=["models"], route_class=StrictJsonRoute)

TINY_CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
CREATE_EXAMPLES: dict[str, Any] = {
    "a model of your own": {"value": {"slug": "tiny-llama", "config": TINY_CONFIG, "aliases": ["acme/Tiny-Llama"]}}
}
REPLACE_EXAMPLES: dict[str, Any] = {
    "longer context": {"value": {"config": {**TINY_CONFIG, "max_position_embeddings": 8192}, "name": "Tiny Llama"}}
}


@router.get(
    "/models",
    summary="List models",
    responses={**NOT_MODIFIED, **problem_responses(UnknownLanguageModel, RecordRetired, AmbiguousName, CursorInvalid)},
)
async def list_models(
    question: Annotated[ListQuestion, Query()], snapshot: SnapshotDep, request: Request, response: Response
) -> Page[LanguageModelSummary]:
    """The models in use, by slug. `name` resolves one name exactly, slashes and all."""
    etag = list_etag(snapshot)
    if unchanged := not_modified(request, etag):
        return unchanged  # type: ignore[return-value]  # FastAPI passes a Response through
    response.headers["ETag"] = etag
    entries: Sequence[SnapshotLanguageModel] = snapshot.language_models.in_use
    if question.name is not None:
        entries = [snapshot.language_model(question.name)]
    if question.family is not None:
        entries = [entry for entry in entries if family_of(entry) == question.family.lower()]
    page, next_cursor = page_of(
        entries,
        key=lambda entry: (entry.slug,),
        question={"name": question.name, "family": question.family},
        limit=question.limit,
        cursor=question.cursor,
    )
    return Page(items=[summary_of(entry) for entry in page], next_cursor=next_cursor)


@router.post(
    "/models",
    status_code=201,
    summary="Store a model from its config.json",
    responses=problem_responses(NameTaken, ArchitectureNotSupported, ConfigInvalid, CheckpointInvalid),
)
def create_model(
    body: Annotated[LanguageModelCreate, Body(openapi_examples=CREATE_EXAMPLES)],
    catalogue: CatalogueDep,
    response: Response,
) -> LanguageModelRead:
    """An architecture that is not modelled is refused by name; `GET /model-architectures` lists those that are."""
    record = _record_of(body.slug, body)
    with writing(catalogue.engine) as session:
        create_record(session, LANGUAGE_MODELS, record)
    response.headers["Location"] = f"/models/{record.slug}"
    return _after_write(catalogue, record.slug, response)


@router.get(
    "/models/{slug}",
    summary="One model",
    responses={**NOT_MODIFIED, **problem_responses(UnknownLanguageModel, UnknownRevision, AmbiguousName)},
)
async def get_model(
    slug: SlugPath,
    question: Annotated[ReadQuestion, Query()],
    catalogue: CatalogueDep,
    request: Request,
    response: Response,
) -> LanguageModelRead:
    """By slug, or by an alias without a slash. A retired model is still answered, with `retired_at`."""
    entry = catalogue.snapshot.language_models.find(slug)
    if question.revision is not None and question.revision != entry.revision:
        entry = await run_in_threadpool(_old_revision, catalogue, entry, question.revision)
    etag = record_etag(entry.revision)
    if unchanged := not_modified(request, etag):
        return unchanged  # type: ignore[return-value]  # FastAPI passes a Response through
    response.headers["ETag"] = etag
    return read_of(entry)


@router.get(
    "/models/{slug}/revisions",
    summary="History of a model",
    responses=problem_responses(UnknownLanguageModel, AmbiguousName),
)
def list_model_revisions(slug: SlugPath, catalogue: CatalogueDep) -> LanguageModelRevisions:
    """Newest first. Revisions never change."""
    entry = catalogue.snapshot.language_models.find(slug)
    with Session(catalogue.engine) as session:
        history = list_revisions(session, LANGUAGE_MODELS, entry.slug)
    return LanguageModelRevisions(
        slug=entry.slug,
        revisions=[
            LanguageModelRevisionRead(
                revision=each.revision, event=each.event, origin=each.origin, created_at=each.created_at
            )
            for each in history
        ],
    )


@router.put(
    "/models/{slug}",
    summary="Replace a model",
    responses=problem_responses(
        UnknownLanguageModel,
        NameTaken,
        RevisionMismatch,
        RevisionRequired,
        PreconditionInvalid,
        ArchitectureNotSupported,
        ConfigInvalid,
        CheckpointInvalid,
    ),
)
def replace_model(
    slug: SlugPath,
    body: Annotated[LanguageModelReplacement, Body(openapi_examples=REPLACE_EXAMPLES)],
    expected: ExpectedRevision,
    catalogue: CatalogueDep,
    response: Response,
) -> LanguageModelRead:
    """A new revision; the old ones stay readable. Brings a retired model back."""
    known = _known_slug(catalogue, slug)
    record = _record_of(known, body)
    with writing(catalogue.engine) as session:
        replace_record(session, LANGUAGE_MODELS, record, expected_revision=expected)
    return _after_write(catalogue, known, response)


@router.delete(
    "/models/{slug}",
    status_code=204,
    summary="Retire a model",
    responses=problem_responses(UnknownLanguageModel, RevisionMismatch, RevisionRequired, PreconditionInvalid),
)
def retire_model(slug: SlugPath, expected: ExpectedRevision, catalogue: CatalogueDep) -> Response:
    """It is listed and sized no longer; its history stays, and a PUT brings it back."""
    with writing(catalogue.engine) as session:
        revision = retire_record(session, LANGUAGE_MODELS, _known_slug(catalogue, slug), expected_revision=expected)
    catalogue.refresh()
    return Response(status_code=204, headers={"ETag": record_etag(revision)})


@router.get(
    "/models/{slug}/memory",
    summary="Parameters, weight bytes per scheme, KV cache and state at a context",
    responses=problem_responses(
        UnknownLanguageModel, AmbiguousName, RecordRetired, ParallelismNotLegal, ArchitectureNotSupported, ConfigInvalid
    ),
)
async def get_model_memory(
    slug: SlugPath, question: Annotated[MemoryQuestion, Query()], snapshot: SnapshotDep
) -> LanguageModelMemory:
    """Exact, from the shapes in the config, with a line of working for each part in `rows`.

    Whether it fits a GPU is what `POST /sizing` answers.
    """
    entry = snapshot.language_model(slug)
    if problem := layout_problem(entry.model, Parallelism(tp=question.tp)):
        raise ParallelismNotLegal(problem[1])
    memory = model_memory(
        entry.model, context_tokens=question.context_tokens, kv_cache=question.kv_cache, tp=question.tp
    )
    return LanguageModelMemory.model_validate(
        {
            "slug": entry.slug,
            "revision": entry.revision,
            "context_tokens": question.context_tokens,
            "kv_cache_precision": question.kv_cache,
            "tp": question.tp,
            "parameter_counts": dict(memory.parameter_counts),
            "weight_bytes": dict(memory.weight_bytes),
            "weight_bytes_source": entry.model.weight_bytes_source,
            "kv_cache": memory.kv_cache,
            "layers": list(memory.layers),
            "rows": list(memory.rows),
        },
        from_attributes=True,
    )


@router.get("/model-architectures", summary="Architectures that are modelled")
async def list_model_architectures() -> ModelArchitectures:
    """Any other `model_type` is refused by name, never approximated by a similar one."""
    return ModelArchitectures(items=list(SUPPORTED_ARCHITECTURES))


def _record_of(slug: str, body: LanguageModelReplacement) -> LanguageModelRecord:
    try:
        return uploaded_record(
            slug=slug,
            config=body.config,
            aliases=tuple(body.aliases),
            name=body.name,
            checkpoint=(body.checkpoint.kind, body.checkpoint.content_base64) if body.checkpoint else None,
        )
    except ValidationError as error:  # what the members say together, such as an alias given twice
        found = error.errors(include_url=False, include_input=False)
        raise RequestValidationError([{**each, "loc": ("body", *each["loc"])} for each in found]) from None


def _known_slug(catalogue: LiveCatalogue, slug: str) -> str:
    """Writes take slugs alone: an alias would hide which record is meant. Other text never reaches the database."""
    known = catalogue.refresh().language_models.by_slug
    if slug.lower() not in known:
        raise UnknownLanguageModel(slug, known)
    return slug.lower()


def _after_write(catalogue: LiveCatalogue, slug: str, response: Response) -> LanguageModelRead:
    entry = catalogue.refresh().language_models.find(slug)
    response.headers["ETag"] = record_etag(entry.revision)
    return read_of(entry)


def _old_revision(catalogue: LiveCatalogue, entry: SnapshotLanguageModel, revision: int) -> SnapshotLanguageModel:
    with Session(catalogue.engine) as session:
        stored = get_document(session, LANGUAGE_MODELS, entry.slug, revision)
    return SnapshotLanguageModel(
        slug=entry.slug,
        revision=revision,
        origin=stored.revision.origin,
        retired_at=entry.retired_at,
        document=stored.document,
    )
