"""What the ``type`` of a problem refers to: every kind of problem, by its code."""

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import BaseModel

from service.api.problems import NoSuchResource, problem_kinds, problem_responses, status_of
from service.api.strict_json import StrictJsonRoute

router = APIRouter(tags=["problems"], route_class=StrictJsonRoute)


class ProblemKind(BaseModel):
    code: str
    title: str
    status: int


class ProblemKinds(BaseModel):
    items: list[ProblemKind]


@router.get("/problems", summary="Every kind of problem")
async def list_problem_kinds() -> ProblemKinds:
    """By code. The status is that of a path; an unknown name in a body is a 422 of the same code."""
    return ProblemKinds(
        items=[
            ProblemKind(code=code, title=kind.title, status=status_of(kind)) for code, kind in problem_kinds().items()
        ]
    )


@router.get("/problems/{code}", summary="One kind of problem", responses=problem_responses(NoSuchResource))
async def get_problem_kind(code: Annotated[str, Path(max_length=100)]) -> ProblemKind:
    """By the code that a problem carries."""
    kind = problem_kinds().get(code)
    if kind is None:
        raise NoSuchResource("no problem has this code; GET /problems lists them all")
    return ProblemKind(code=code, title=kind.title, status=status_of(kind))
