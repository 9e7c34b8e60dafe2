"""Is the process alive, and can it do its work?"""

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from service import __version__
from service.api.dependencies import CatalogueDep
from service.api.problems import NotReady, problem_responses
from service.api.strict_json import StrictJsonRoute
from service.catalogue.migrating import database_revision, head_revision, is_behind

router = APIRouter(tags=["health"], route_class=StrictJsonRoute)


class Live(BaseModel):
    """The process answers."""

    status: Literal["live"] = "live"
    version: str = Field(description="of the service")


class Ready(BaseModel):
    """The database answers and has the tables of this release."""

    status: Literal["ready"] = "ready"
    version: str = Field(description="of the service")
    database: str = Field(description="kind of database", examples=["sqlite", "postgresql"])
    migration: str = Field(description="newest migration of the database")
    catalogue_revision: int = Field(description="of the snapshot that answers are computed from")
    evidence_revision: int | None = Field(description="of the stored runs that answers lean on; null: on none")
    evidence_count: int | None = Field(description="measured times among them")


@router.get("/health/live", summary="Is the process alive?")
async def get_live() -> Live:
    """Touches nothing: for restarting a process that hangs."""
    return Live(version=__version__)


@router.get("/health/ready", summary="Can the service do its work?", responses=problem_responses(NotReady))
def get_ready(catalogue: CatalogueDep) -> Ready:
    """For taking a replica out of a balancer. Reads keep answering from memory while the database is away."""
    known = catalogue.current
    snapshot, evidence = known.snapshot, known.evidence
    try:
        with catalogue.engine.connect() as connection:
            connection.execute(text("SELECT 1"))
            migration = database_revision(connection)
    except SQLAlchemyError:
        raise NotReady(
            f"the database does not answer; reads are answered from catalogue revision {snapshot.revision}"
        ) from None
    if migration is None or is_behind(migration):
        needed = head_revision()
        raise NotReady(f"the database is at migration {migration}, this release needs {needed}: run sizing migrate")
    if evidence and not evidence.is_complete:
        raise NotReady(f"the stored runs are being read: {evidence.store.run_count} measured times so far")
    return Ready(
        version=__version__,
        database=catalogue.engine.dialect.name,
        migration=migration,
        catalogue_revision=snapshot.revision,
        evidence_revision=evidence.revision if evidence else None,
        evidence_count=evidence.store.run_count if evidence else None,
    )
