"""Lists by whichever index hold what a look at every run finds, and kept counts are the counts."""

from collections import Counter

import pytest
from sqlalchemy import Engine, func, select
from sqlmodel import Session

from service.catalogue.benchmark_queries import FEW_RUNS, Order, Range, RunFilter, every_run, facets, list_runs
from service.catalogue.benchmark_records import BenchmarkRun, RunScenario
from service.catalogue.benchmarks import RUNS, delete_run, evidence_writing, save_runs
from service.catalogue.tables import RUN_FACETS
from tests.catalogue.test_benchmarks import a_run

MOST = 100_000
CLOSED_LOOP = RunScenario.CLOSED_LOOP.value


def matches(run: BenchmarkRun, wanted: RunFilter) -> bool:
    by_value = all(getattr(run, name) in values for name, values in wanted.any_of.items())
    return by_value and all(
        (value := getattr(run, name)) is not None
        and (span.low is None or value >= span.low)
        and (span.high is None or value <= span.high)
        for name, span in wanted.ranges.items()
    )


@pytest.mark.parametrize(
    "wanted",
    [
        RunFilter(),
        RunFilter(any_of={"origin": ["shipped"]}),
        RunFilter(any_of={"scenario": [CLOSED_LOOP], "accelerator": ["mi325x"]}),
        RunFilter(any_of={"accelerator": ["b200-sxm"], "model": ["deepseek-r1"]}),
        RunFilter(any_of={"accelerator": ["b200-sxm", "h100-sxm"]}),
        RunFilter(any_of={"scenario": [CLOSED_LOOP, "mlperf_offline"], "calibrates": [True, False]}),
        RunFilter(any_of={"scenario": [CLOSED_LOOP]}, ranges={"concurrency": Range(4, 64)}),
        RunFilter(ranges={"concurrency": Range(low=256)}),
        RunFilter(any_of={"accelerator": ["no such"]}),
    ],
    ids=lambda wanted: str((dict(wanted.any_of), dict(wanted.ranges))),
)
@pytest.mark.parametrize("order", [Order("id", descending=True), Order("output_tokens_per_s"), Order("concurrency")])
def test_a_list_holds_what_a_look_at_every_run_finds(engine: Engine, wanted: RunFilter, order: Order) -> None:
    with Session(engine) as session:
        runs = [run for some in every_run(session, RunFilter(), Order()) for run in some]
        listed = list_runs(session, wanted, order, limit=MOST)
        page = list_runs(session, wanted, order, limit=20, after=order.key(listed[9])) if len(listed) > 9 else []
    found = [run for run in runs if matches(run, wanted) and getattr(run, order.column) is not None]
    expected = sorted(found, key=order.key, reverse=order.descending)
    assert [run.id for run in listed] == [run.id for run in expected]
    assert [run.id for run in page] == [run.id for run in expected[10:30]]


def test_kept_counts_are_the_counts_after_writes_and_deletions(engine: Engine) -> None:
    runs = [a_run(1, tp=97), a_run(2, tp=97), a_run(3, tp=None, calibrates=False)]
    with evidence_writing(engine) as (session, revision):
        save_runs(session, runs, revision=revision)
    with evidence_writing(engine) as (session, revision):
        delete_run(session, runs[0].id, revision=revision)
    with Session(engine) as session:
        kept = facets(session, RunFilter(), RUN_FACETS)
        stored = [run for some in every_run(session, RunFilter(), Order()) for run in some]
    assert kept.is_complete
    assert kept.counted_run_count == len(stored)
    assert dict(kept.counts["tp"])[97] == 1
    for name in RUN_FACETS:
        assert dict(kept.counts[name]) == dict(Counter(getattr(run, name) for run in stored).most_common(200))


def test_the_last_run_of_a_value_takes_the_value_away(engine: Engine) -> None:
    run = a_run(1, tp=97)
    with evidence_writing(engine) as (session, revision):
        save_runs(session, [run], revision=revision)
    with evidence_writing(engine) as (session, revision):
        delete_run(session, run.id, revision=revision)
    with Session(engine) as session:
        assert 97 not in dict(facets(session, RunFilter(), ["tp"]).counts["tp"])


def test_facets_of_many_runs_are_of_the_newest_and_say_so(engine: Engine) -> None:
    wanted = RunFilter(any_of={"origin": ["shipped"]})
    with Session(engine) as session:
        counted = facets(session, wanted, ["scenario", "calibrates"])
        newest = list_runs(session, wanted, Order("id", descending=True), limit=FEW_RUNS)
        total = session.connection().execute(select(func.count()).select_from(RUNS)).scalar_one()
    assert total > FEW_RUNS
    assert (counted.counted_run_count, counted.is_complete) == (2000, False)
    assert dict(counted.counts["scenario"]) == Counter(run.scenario for run in newest)
    assert sum(count for _, count in counted.counts["calibrates"]) == 2000
