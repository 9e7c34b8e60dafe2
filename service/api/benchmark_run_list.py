"""Lists of benchmark runs, page by page: for the routes and for the command line."""

from typing import Any

from sqlalchemy import Engine
from sqlmodel import Session

from service.api.benchmark_run_document import read_of
from service.api.benchmark_run_schemas import FIGURES, BenchmarkRunPage, FacetValue, RunsQuestion
from service.api.pages import CursorInvalid, read_cursor, write_cursor
from service.catalogue.benchmark_queries import FacetCounts, Facets, Order, RunFilter, list_runs
from service.errors import Invalid


class ScenarioRequired(Invalid):
    code = "scenario_required"
    title = "A ranking is of one scenario"


def order_of(question: RunsQuestion) -> Order:
    """Runs of different scenarios are different experiments: a ranking by a figure wants one scenario."""
    order = Order(question.sort.removeprefix("-"), question.sort.startswith("-"))
    if order.column in FIGURES and len(question.scenario) != 1 and not question.mixed_scenarios:
        raise ScenarioRequired(
            f"a ranking by {order.column} over several scenarios would compare different experiments: give one "
            "`scenario`, or `mixed_scenarios` to rank them all the same",
            field=("scenario",),
        )
    return order


def page_of_runs(
    question: RunsQuestion, wanted: RunFilter, order: Order, engine: Engine, counts: FacetCounts
) -> BenchmarkRunPage:
    asked = question.model_dump(mode="json", exclude={"limit", "cursor", "facets", "format"})
    after = read_cursor(question.cursor, asked) if question.cursor else None
    if after is not None and not is_key_of(after, order):
        raise CursorInvalid("the cursor is not one of this list")
    with Session(engine) as session:
        runs = list_runs(session, wanted, order, limit=question.limit + 1, after=after)
        counted = counts.of(session, wanted, question.facets) if question.facets else None
    page = runs[: question.limit]
    more = len(runs) > question.limit
    return BenchmarkRunPage(
        items=[read_of(run) for run in page],
        next_cursor=write_cursor(order.key(page[-1]), asked) if more else None,
        **_facets_of(counted),
    )


def _facets_of(counted: Facets | None) -> dict[str, Any]:
    if counted is None:
        return {}
    return {
        "facets": {
            name: [FacetValue(value=value, run_count=count) for value, count in values]
            for name, values in counted.counts.items()
        },
        "facets_run_count": counted.counted_run_count,
        "facets_are_complete": counted.is_complete,
    }


def is_key_of(key: tuple[Any, ...], order: Order) -> bool:
    """Whether a cursor's key is of the types of this order: a text never meets a number in the database."""
    *value, last = key or (None,)
    if not (isinstance(last, str) and last.isprintable()):
        return False
    if order.column == "id":
        return not value
    kind: Any = str if order.column == "measured_on" else (int, float)
    return len(value) == 1 and isinstance(value[0], kind) and str(value[0]).isprintable()
