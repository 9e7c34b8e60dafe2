"""``/accelerators``: the catalogue of accelerators, its history, and writing to it.

Reads answer from the snapshot in memory; an old revision and all writes go to the database, off the event loop.
"""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Literal

import anyio.to_thread
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from sqlmodel import Session

from service.api.accelerator_document import accelerator_document
from service.api.accelerator_schemas import AcceleratorRead, AcceleratorRevisions, AcceleratorSummary
from service.api.dependencies import (
    CatalogueDep,
    ExpectedRevision,
    SlugPath,
    SnapshotDep,
    list_etag,
    not_modified,
    record_etag,
)
from service.api.pages import MAX_LIMIT, CursorInvalid, Key, Page, page_of
from service.api.problems import PreconditionInvalid, problem_responses
from service.api.strict_json import StrictJsonRoute
from service.catalogue.accelerator_records import AcceleratorRecord, Status
from service.catalogue.accelerators import ACCELERATORS
from service.catalogue.live import LiveCatalogue
from service.catalogue.records import (
    create_record,
    get_document,
    list_revisions,
    replace_record,
    retire_record,
    writing,
)
from service.catalogue.snapshot import SnapshotAccelerator
from service.errors import (
    Invalid,
    NameTaken,
    RevisionMismatch,
    RevisionRequired,
    UnknownAccelerator,
    UnknownRevision,
)
from service.sizing.accelerator import Kind
from service.sizing.precision import Density, Precision

router = APIRouter(tags=["accelerators"], route_class=StrictJsonRoute)

SORTS: dict[str, Callable[[SnapshotAccelerator], str | float]] = {
    "slug": lambda entry: entry.slug,
    "vendor": lambda entry: entry.accelerator.vendor.lower(),
    "usable_memory": lambda entry: entry.accelerator.usable_memory_bytes,
    "memory_bandwidth": lambda entry: entry.accelerator.memory_bandwidth_bytes_per_s or 0.0,
}
Sort = Literal[
    "slug", "-slug", "vendor", "-vendor", "usable_memory", "-usable_memory", "memory_bandwidth", "-memory_bandwidth"
]


class AcceleratorQuery(BaseModel):
    """Filters, order and page of a list."""

    model_config = ConfigDict(allow_inf_nan=False)

    vendor: str | None = Field(None, max_length=200, description="exactly, in any case")
    kind: Kind | None = None
    status: Status | None = None
    precision: Precision | None = Field(None, description="a rate at this precision is published")
    density: Density | None = Field(None, description="of the rate asked for with `precision`; either when left out")
    minimum_memory_bytes_per_gpu: float | None = Field(None, ge=0, description="of usable memory")
    minimum_bandwidth_bytes_per_s_per_gpu: float | None = Field(None, ge=0, description="of memory bandwidth")
    sort: Sort = Field("slug", description="a minus sign sorts the other way; an unknown bandwidth counts as 0")
    limit: int = Field(50, ge=1, le=MAX_LIMIT, description="records per page")
    cursor: str | None = Field(
        None, max_length=1000, description="`next_cursor` of the page before, with the same filters and sort"
    )


class ReadQuery(BaseModel):
    """Which revision, and in which form."""

    revision: int | None = Field(None, ge=1, le=2**31 - 1, description="an older one; left out, the newest")
    form: Literal["document", "record"] = Field(
        "document", description="`record` is the form that POST and PUT take: figures as they were printed"
    )


@router.get(
    "/accelerators",
    summary="Accelerators, filtered and sorted",
    response_model=Page[AcceleratorSummary],
    responses=problem_responses(CursorInvalid, Invalid),
)
async def list_accelerators(
    request: Request, snapshot: SnapshotDep, query: Annotated[AcceleratorQuery, Query()]
) -> Response:
    """The figures without their provenance; `GET /accelerators/{slug}` has both. Retired records are left out."""
    if query.density is not None and query.precision is None:
        raise Invalid("density filters the rates at a precision: give precision too", field=("density",))
    etag = list_etag(snapshot)
    if unchanged := not_modified(request, etag):
        return unchanged
    value = SORTS[query.sort.removeprefix("-")]

    def key(entry: SnapshotAccelerator) -> Key:
        return (value(entry), entry.slug)

    page, next_cursor = page_of(
        [entry for entry in snapshot.accelerators.in_use if _matches(entry, query)],
        key=key,
        question=query.model_dump(mode="json", exclude={"limit", "cursor"}),
        limit=query.limit,
        cursor=query.cursor,
        descending=query.sort.startswith("-"),
    )
    return _json({"items": [_summary(entry) for entry in page], "next_cursor": next_cursor}, etag=etag)


@router.post(
    "/accelerators",
    summary="Add an accelerator",
    status_code=201,
    response_model=AcceleratorRead,
    responses=problem_responses(NameTaken),
)
def create_accelerator(record: AcceleratorRecord, catalogue: CatalogueDep) -> Response:
    """The body is a record: each figure as it was printed, with its source or marked unverified."""
    with writing(catalogue.engine) as session:
        revision = create_record(session, ACCELERATORS, record)
    catalogue.refresh()
    answer = _record_answer(record, revision)
    answer.status_code = 201
    answer.headers["Location"] = f"/accelerators/{record.slug}"
    return answer


@router.get(
    "/accelerators/{slug}",
    summary="One accelerator, every figure with its derivation and sources",
    response_model=AcceleratorRead | AcceleratorRecord,
    responses=problem_responses(UnknownAccelerator, UnknownRevision),
)
async def get_accelerator(
    slug: SlugPath, request: Request, catalogue: CatalogueDep, query: Annotated[ReadQuery, Query()]
) -> Response:
    """By slug or alias, exactly. A retired record is still answered, with `retired_at`."""
    entry = catalogue.snapshot.accelerators.find(slug)
    revision = query.revision or entry.revision
    record = entry.record
    if revision != entry.revision:
        record = await anyio.to_thread.run_sync(_stored_record, catalogue, entry.slug, revision)
    if unchanged := not_modified(request, record_etag(revision)):
        return unchanged
    if query.form == "record":
        return Response(
            record.model_dump_json(), media_type="application/json", headers={"ETag": record_etag(revision)}
        )
    return _record_answer(record, revision, entry.retired_at)


@router.put(
    "/accelerators/{slug}",
    summary="Replace an accelerator by a new revision",
    response_model=AcceleratorRead,
    responses=problem_responses(
        UnknownAccelerator, NameTaken, Invalid, RevisionRequired, RevisionMismatch, PreconditionInvalid
    ),
)
def replace_accelerator(
    slug: SlugPath, record: AcceleratorRecord, expected: ExpectedRevision, catalogue: CatalogueDep
) -> Response:
    """`If-Match` names the revision that is replaced. Also brings a retired record back."""
    if record.slug != slug:
        raise Invalid(f"the body is of {record.slug!r}, the path of {slug[:200]!r}", field=("slug",))
    with writing(catalogue.engine) as session:
        revision = replace_record(session, ACCELERATORS, record, expected_revision=expected)
    catalogue.refresh()
    return _record_answer(record, revision)


@router.delete(
    "/accelerators/{slug}",
    summary="Retire an accelerator",
    status_code=204,
    responses=problem_responses(UnknownAccelerator, Invalid, RevisionRequired, RevisionMismatch, PreconditionInvalid),
)
def retire_accelerator(slug: SlugPath, expected: ExpectedRevision, catalogue: CatalogueDep) -> Response:
    """It can no longer be sized; its history stays."""
    found = catalogue.refresh().accelerators.find(slug).slug  # other text never reaches the database
    if found != slug:
        raise Invalid(f"{slug!r} is an alias of {found}: writes name the slug itself", field=("slug",))
    with writing(catalogue.engine) as session:
        revision = retire_record(session, ACCELERATORS, found, expected_revision=expected)
    catalogue.refresh()
    return Response(status_code=204, headers={"ETag": record_etag(revision)})


@router.get(
    "/accelerators/{slug}/revisions",
    summary="The history of an accelerator",
    responses=problem_responses(UnknownAccelerator),
)
def list_accelerator_revisions(slug: SlugPath, catalogue: CatalogueDep) -> AcceleratorRevisions:
    """Newest first; `GET /accelerators/{slug}?revision=n` reads one of them."""
    found = catalogue.snapshot.accelerators.find(slug).slug
    with Session(catalogue.engine) as session:
        revisions = list_revisions(session, ACCELERATORS, found)
    return AcceleratorRevisions.model_validate(
        {
            "slug": found,
            "revisions": [
                {
                    "revision": each.revision,
                    "event": each.event,
                    "origin": each.origin,
                    "created_at": each.created_at,
                }
                for each in revisions
            ],
        }
    )


def _stored_record(catalogue: LiveCatalogue, slug: str, revision: int) -> AcceleratorRecord:
    with Session(catalogue.engine) as session:
        return AcceleratorRecord.model_validate_json(get_document(session, ACCELERATORS, slug, revision).document)


def _record_answer(record: AcceleratorRecord, revision: int, retired_at: datetime | None = None) -> Response:
    document = accelerator_document(record, revision=revision)
    document["retired_at"] = retired_at.isoformat() if retired_at else None
    return _json(document, etag=record_etag(revision))


def _json(document: Any, *, etag: str) -> Response:
    return _response(
        json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode(), etag=etag
    )


def _response(body: bytes, *, etag: str) -> Response:
    return Response(body, media_type="application/json", headers={"ETag": etag})


def _matches(entry: SnapshotAccelerator, query: AcceleratorQuery) -> bool:
    accelerator = entry.accelerator
    wanted = [query.density] if query.density else list(Density)
    return (
        (query.vendor is None or accelerator.vendor.lower() == query.vendor.lower())
        and (query.kind is None or accelerator.kind is query.kind)
        and (query.status is None or entry.record.status is query.status)
        and (query.precision is None or any(accelerator.has_rate(query.precision, density) for density in wanted))
        and accelerator.usable_memory_bytes >= (query.minimum_memory_bytes_per_gpu or 0)
        and (accelerator.memory_bandwidth_bytes_per_s or 0) >= (query.minimum_bandwidth_bytes_per_s_per_gpu or 0)
    )


def _summary(entry: SnapshotAccelerator) -> dict[str, Any]:
    record, accelerator = entry.record, entry.accelerator
    return {
        "slug": record.slug,
        "aliases": list(record.aliases),
        "name": record.name,
        "vendor": record.vendor,
        "architecture": record.architecture,
        "kind": record.kind.value,
        "status": record.status.value,
        "revision": entry.revision,
        "gpu_count": record.gpu_count,
        "devices_per_gpu": record.devices_per_gpu,
        "unified_memory": record.unified_memory,
        "memory": {
            "type": record.memory.type,
            "capacity_bytes_total": record.memory.capacity.value_total(record.gpu_count),
            "capacity_bytes_per_gpu": accelerator.memory_capacity_bytes,
            "usable_bytes_per_gpu": accelerator.usable_memory_bytes,
            "usable_basis": record.memory.usable.basis.value,
            "bandwidth_bytes_per_s_per_gpu": accelerator.memory_bandwidth_bytes_per_s,
        },
        "peak_rates": [
            {
                "precision": rate.precision.value,
                "execution_unit": rate.execution_unit and rate.execution_unit.value,
                "density": density.value,
                "flop_per_s_per_gpu": figure.value_per_gpu(record.gpu_count),
                "unverified": figure.unverified or rate.unverified,
            }
            for rate in record.peak_rates
            for density, figure in rate.by_density()
        ],
        "scale_up": {
            "name": record.scale_up.name,
            "topology": record.scale_up.topology and record.scale_up.topology.value,
            "bandwidth_bytes_per_s_per_gpu_one_way": accelerator.scale_up.bandwidth_bytes_per_s_per_gpu_one_way,
            "peer_bandwidth_bytes_per_s_one_way": accelerator.scale_up.peer_bandwidth_bytes_per_s_one_way,
            "domain_gpu_count": record.scale_up.domain_gpu_count,
        },
        "power": {
            "tdp_w_per_gpu": accelerator.tdp_w,
            "provisioned_w_per_gpu": accelerator.provisioned_w_per_gpu,
        },
        "confidence": record.confidence.value,
    }
