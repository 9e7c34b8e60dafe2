"""What routes ask for: the snapshot, the engine for writes, the revision that a caller has read, an ETag's answer."""

import re
from typing import Annotated, Any

from fastapi import Depends, Header, Path, Request, Response
from sqlalchemy import Engine

from service.api.problems import PreconditionInvalid
from service.catalogue.benchmark_queries import FacetCounts
from service.catalogue.live import LiveCatalogue
from service.catalogue.snapshot import Snapshot
from service.errors import RevisionRequired

ETAG = re.compile(r'(?:W/)?"(?:[a-z0-9.-]+@)?([0-9]{1,18})"')


async def live_catalogue(request: Request) -> LiveCatalogue:
    catalogue: LiveCatalogue = request.app.state.catalogue
    return catalogue


async def current_snapshot(request: Request) -> Snapshot:
    catalogue: LiveCatalogue = request.app.state.catalogue
    return catalogue.snapshot


async def database_engine(request: Request) -> Engine:
    catalogue: LiveCatalogue = request.app.state.catalogue
    return catalogue.engine


async def facet_counts(request: Request) -> FacetCounts:
    counts: FacetCounts = request.app.state.facet_counts
    return counts


CatalogueDep = Annotated[LiveCatalogue, Depends(live_catalogue)]
SnapshotDep = Annotated[Snapshot, Depends(current_snapshot)]
EngineDep = Annotated[Engine, Depends(database_engine)]
FacetCountsDep = Annotated[FacetCounts, Depends(facet_counts)]


async def expected_revision(
    if_match: Annotated[
        str | None,
        Header(description='the ETag of the revision that you have read, such as `"3"`; `*` means whichever it is'),
    ] = None,
) -> int | None:
    """The revision that a write replaces; ``None`` for whichever it is.

    Without If-Match the write is refused with 428: two writers must not overwrite each other unknowingly.
    """
    if if_match is None:
        raise RevisionRequired("send If-Match with the ETag that GET answered (or * for whichever revision it is)")
    if if_match.strip() == "*":
        return None
    match = ETAG.fullmatch(if_match.strip())
    if match is None:
        raise PreconditionInvalid('If-Match is one ETag of this resource, such as "3", or *')
    return int(match.group(1))


ExpectedRevision = Annotated[int | None, Depends(expected_revision)]
SlugPath = Annotated[str, Path(min_length=1, max_length=200, description="slug of the record, in lower case")]


NOT_MODIFIED: dict[int | str, dict[str, Any]] = {304: {"description": "Not modified since the ETag in If-None-Match"}}


def record_etag(revision: int) -> str:
    """Strong: a revision never changes.

    >>> record_etag(3)
    '"3"'
    """
    return f'"{revision}"'


def list_etag(snapshot: Snapshot) -> str:
    """Weak, of the whole catalogue: any write changes it."""
    return f'W/"catalogue-{snapshot.revision}"'


def not_modified(request: Request, etag: str) -> Response | None:
    """A 304 when the caller's ``If-None-Match`` names the ETag; put the ETag on the 200 otherwise."""
    asked = request.headers.get("if-none-match")
    if asked is None:
        return None
    bare = etag.removeprefix("W/")
    tags = [tag.strip().removeprefix("W/") for tag in asked.split(",")]
    return Response(status_code=304, headers={"ETag": etag}) if bare in tags or "*" in tags else None
