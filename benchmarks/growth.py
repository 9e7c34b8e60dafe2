"""The store of benchmark runs at 10,000 and at 1,000,000 runs: each query's latency at both, as a ratio.

Two databases are filled with the shipped catalogue, its runs and generated ones, then every query of
``/benchmark-runs`` is timed on both, the shortest of several. It fails when a query takes more than 1.5 times as long
among a million runs as among ten thousand, and longer than what nobody notices. Filters by several frequent values that
seldom meet are shown and have no bar (CONTRIBUTING, "Decisions").

    python -m benchmarks.growth [--postgres] [--small 10000] [--large 1000000]
"""

import argparse
import gc
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, func, select
from sqlmodel import Session

from benchmarks.growth_runs import CONCURRENCIES, RARE_TEXT, RARE_VALUES, WORDS, flattened, generated_runs
from service.api.benchmark_run_document import ANY_OF, EXACTLY
from service.api.benchmark_run_schemas import FIGURES, RANGED, SORTS
from service.catalogue.benchmark_pairs import list_pairs
from service.catalogue.benchmark_queries import Order, Range, RunFilter, facets, list_runs
from service.catalogue.benchmark_records import RunScenario, new_ids
from service.catalogue.benchmarks import (
    RUNS,
    changes_since,
    delete_run,
    evidence_revision,
    evidence_writing,
    get_run,
    runs_of_content,
    save_runs,
)
from service.catalogue.database import create_database_engine
from service.catalogue.loading import load_shipped_catalogue
from service.catalogue.migrating import migrate
from service.catalogue.shipped_benchmarks import load_shipped_runs
from service.catalogue.snapshot import shipped_snapshot
from service.catalogue.tables import RUN_FACETS
from tests.postgres import running_postgres

BAR = 1.5
UNBOUNDED = "(no bar)"
UNNOTICED_S = 0.005
PAGE = 51  # a page of 50, and one to see whether there are more
REPEATS, MOST_REPEATS, LONGEST_S = 5, 40, 3.0  # more often while a ratio misses the bar: it may be the machine
RUNS_AT_ONCE = 20_000
NEW_RUNS = 1_000  # of them the files that are imported, more than are ever timed

Query = Callable[[Session], object]


def fill(engine: Engine, count: int) -> None:
    migrate(engine)
    load_shipped_catalogue(engine)
    load_shipped_runs(engine)
    started = time.perf_counter()
    with engine.begin() as connection:
        for index in RUNS.indexes:  # made again at the end: faster than to keep them up to date
            index.drop(connection)
    done = 0
    for some in flattened(generated_runs(count, shipped_snapshot()), RUNS_AT_ONCE):
        with evidence_writing(engine) as (session, revision):
            save_runs(session, some, revision=revision)
        done += len(some)
        print(f"\r{done:9,} runs after {time.perf_counter() - started:4.0f} s", end="", flush=True)
    with engine.begin() as connection:
        for index in RUNS.indexes:
            index.create(connection)
        connection.exec_driver_sql("ANALYZE")
    if engine.dialect.name == "postgresql":  # as its own service does before long: pages are marked when first read
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM")
    print(f", with indexes after {time.perf_counter() - started:4.0f} s")


def lists(wanted: RunFilter, sort: str = "-id", after: tuple[object, ...] | None = None) -> Query:
    order = Order(sort.removeprefix("-"), sort.startswith("-"))
    return lambda session: list_runs(session, wanted, order, limit=PAGE, after=after)  # type: ignore[arg-type]


def of(**any_of: Any) -> RunFilter:
    return RunFilter(any_of={name: value if isinstance(value, list) else [value] for name, value in any_of.items()})


def counts(wanted: RunFilter, *columns: str) -> Query:
    return lambda session: facets(session, wanted, columns)


def pairs(wanted: RunFilter, other: RunScenario = RunScenario.MLPERF_SERVER, limit: int = PAGE) -> Query:
    return lambda session: list_pairs(session, wanted, other, limit=limit)


FREQUENT: dict[str, Any] = {name: values[0] for name, values in WORDS.items() if values[0] is not None} | {
    "accelerator": sorted(shipped_snapshot().accelerators.by_slug)[0],
    "accelerator_name": sorted(shipped_snapshot().accelerators.by_slug)[0],
    "model": sorted(shipped_snapshot().language_models.by_slug)[0],
    "model_name": sorted(shipped_snapshot().language_models.by_slug)[0],
    "engine_version": "0.1",
    "speculation": "eagle",
    "scenario": RunScenario.CLOSED_LOOP,
    "mlperf_version": "v5.0",
    "mlperf_division": "closed",
    "mlperf_availability": "available",
    "submitter": "submitter 3",
    "system_name": "system 30",
    "content_digest": f"{77:064d}",
}
BOTH = of(accelerator=FREQUENT["accelerator"], model=FREQUENT["model"])
A_CLOSED_LOOP = of(scenario=RunScenario.CLOSED_LOOP)


def list_queries() -> Iterator[tuple[str, Query]]:
    for sort in SORTS:
        yield f"every run, sort {sort}", lists(RunFilter(), sort)
    for name in (*ANY_OF, "accelerator", "model"):
        yield f"{name}: frequent", lists(of(**{name: FREQUENT[name]}))
        if name in RARE_VALUES:
            yield f"{name}: rare", lists(of(**{name: RARE_VALUES[name]}))
            yield f"{name}: one of two", lists(of(**{name: [FREQUENT[name], RARE_VALUES[name]]}))
        yield f"{name}: none such", lists(of(**{name: 12345 if isinstance(FREQUENT[name], int) else "none such"}))
    for name in EXACTLY:
        for value in ("shipped", "user") if name == "origin" else (True, False):
            yield f"{name}: {value}", lists(of(**{name: value}))
    for name, value in (("measured_year", "2024"), ("measured_month", "2024-12"), ("measured_on", "2025-01-01")):
        yield f"{name}: {value}", lists(of(**{name: value}))
    yield "measured_on: none such", lists(of(measured_on="1999-01-01"))


def ranking_queries() -> Iterator[tuple[str, Query]]:
    for sort in FIGURES:
        yield f"closed loop, sort -{sort}", lists(A_CLOSED_LOOP, f"-{sort}")
    yield "rare scenario, sort -power_w", lists(of(scenario=RARE_VALUES["scenario"]), "-power_w")
    for name in ("accelerator", "model", "engine", "submitter"):
        for word, value in (("frequent", FREQUENT[name]), ("rare", RARE_VALUES[name]), ("no such", "none such")):
            wanted = of(scenario=RunScenario.CLOSED_LOOP, **{name: value})
            yield f"{word} {name} in closed loop, sort -output_tokens_per_s", lists(wanted, "-output_tokens_per_s")
            yield f"{word} {name} in closed loop", lists(wanted)
    yield "accelerator and model", lists(BOTH)
    for sort in ("-id", "-output_tokens_per_s"):  # values that nearly always meet, as few other runs have either
        wanted = of(scenario=RunScenario.MLPERF_OFFLINE, mlperf_division="closed")
        yield f"Offline in the closed division, sort {sort}", lists(wanted, sort)
    for word, span in (("wide", Range(0.001, 1e9)), ("high end", Range(1e12, None)), ("narrow", Range(100.0, 100.001))):
        for name in RANGED:
            yield f"{name}: {word} range", lists(RunFilter(ranges={name: span}))
        wanted = RunFilter(any_of=A_CLOSED_LOOP.any_of, ranges={"output_tokens_per_s": span})
        yield f"output_tokens_per_s: {word} range, sorted by it", lists(wanted, "-output_tokens_per_s")
        yield f"output_tokens_per_s: {word} range, sort -tpot_p50_s", lists(wanted, "-tpot_p50_s")


def unbounded_queries() -> Iterator[tuple[str, Query]]:
    """Many runs have each of the values and few or none have all: no index of one value finds those at once."""
    whole = {name: FREQUENT[name] for name in ("accelerator", "model", "weights", "engine", "scenario", "tp")}
    yield "accelerator and model, sort concurrency", lists(BOTH, "concurrency")
    yield "six frequent values", lists(of(**whole))
    yield "six frequent values, sort tpot_p50_s", lists(of(**whole), "tpot_p50_s")
    yield "two frequent values that never meet", lists(of(engine_version="0.1", measured_year="2026"))


def other_queries() -> Iterator[tuple[str, Query]]:
    for name in RUN_FACETS:
        yield f"facet {name}", counts(RunFilter(), name)
    frequent, rare = of(accelerator=FREQUENT["accelerator"]), of(submitter=RARE_TEXT)
    for word, wanted in (
        ("a frequent accelerator", frequent),
        ("a rare submitter", rare),
        ("closed loop", A_CLOSED_LOOP),
    ):
        yield f"every facet of {word}", counts(wanted, *RUN_FACETS)
    for word, wanted in (
        ("all", RunFilter()),
        ("the closed division", of(mlperf_division="closed")),
        ("one version", of(mlperf_version="v5.0")),
        ("a rare submitter", rare),
    ):
        yield f"pairs: {word}", pairs(wanted)
    yield "pairs: two of a submitter", pairs(of(submitter=FREQUENT["submitter"]), limit=2)  # all that ten thousand hold
    yield "pairs: a scenario without any", pairs(RunFilter(), RunScenario.MLPERF_MULTI_STREAM)
    yield "runs of a file", lambda session: runs_of_content(session, [f"{77:064d}"])
    yield "nothing changed since", lambda session: changes_since(session, evidence_revision(session.connection()))


def time_s(engine: Engine, query: Query) -> float:
    with Session(engine) as session:
        started = time.perf_counter()
        query(session)
        return time.perf_counter() - started


def middle_id(engine: Engine) -> str:
    with engine.connect() as connection:
        half = connection.execute(select(func.count()).select_from(RUNS)).scalar_one() // 2
        found: str = connection.execute(select(RUNS.c.id).order_by(RUNS.c.id).offset(half).limit(1)).scalar_one()
    return found


def page_queries(engine: Engine) -> Iterator[tuple[str, Query]]:
    """One run, and pages from the middle of a list on."""
    run_id = middle_id(engine)
    with Session(engine) as session:
        run = get_run(session, run_id)
    yield "one run by id", lambda session: get_run(session, run_id)
    for sort in ("-id", "measured_on", "-concurrency", "-output_tokens_per_s"):
        order = Order(sort.removeprefix("-"), sort.startswith("-"))
        yield f"page from the middle, sort {sort}", lists(RunFilter(), sort, order.key(run))
    yield "page from the middle of one scenario", lists(A_CLOSED_LOOP, "-tpot_p99_s", (0.04, run_id))
    yield "page from the middle of one accelerator", lists(of(accelerator=FREQUENT["accelerator"]), "-id", (run_id,))


def imports(engine: Engine) -> Callable[[], float]:
    """Times a file of ten new runs, each time another: one that was there before finds its pages warm."""
    files = (file for file in generated_runs(NEW_RUNS, shipped_snapshot()) if len(file) == len(CONCURRENCIES))

    def import_s() -> float:
        file = next(files)
        digest, ids = f"imported {time.time_ns()}", new_ids(datetime.now(UTC), len(file))
        runs = [replace(run, id=run_id, content_digest=digest) for run, run_id in zip(file, ids, strict=True)]
        started = time.perf_counter()
        with evidence_writing(engine) as (session, revision):
            save_runs(session, runs, revision=revision)
        return time.perf_counter() - started

    return import_s


def deletes(engine: Engine) -> Callable[[], float]:
    """Times the deletion of one generated run after the other."""
    with Session(engine) as session:
        runs = iter(list_runs(session, of(origin="user"), Order(), limit=MOST_REPEATS))

    def delete_s() -> float:
        run_id = next(runs).id
        started = time.perf_counter()
        with evidence_writing(engine) as (session, revision):
            delete_run(session, run_id, revision=revision)
        return time.perf_counter() - started

    return delete_s


def timings(engine: Engine) -> Iterator[tuple[str, Callable[[], float]]]:
    """Each kind of question with what times it once."""
    for name, query in chain(list_queries(), ranking_queries(), other_queries(), page_queries(engine)):
        yield name, partial(time_s, engine, query)
    yield "import of a file of ten runs", imports(engine)
    yield "delete one run", deletes(engine)
    for name, query in unbounded_queries():
        yield f"{UNBOUNDED} {name}", partial(time_s, engine, query)


def compare(small: Engine, large: Engine) -> int:
    """How many queries miss the bar. The two take turns, so that other work on the machine disturbs both."""
    missed = 0
    print("    small     large   ratio")
    for (name, small_time_s), (_, large_time_s) in zip(timings(small), timings(large), strict=True):
        small_s, large_s, done = math.inf, math.inf, 0
        while done < REPEATS or (misses(small_s, large_s) and done < MOST_REPEATS and done * large_s < LONGEST_S):
            small_s, large_s, done = min(small_s, small_time_s()), min(large_s, large_time_s()), done + 1
        is_missed = misses(small_s, large_s) and not name.startswith(UNBOUNDED)
        word = "   MISSED" if is_missed else ""
        missed += is_missed
        print(f"{1e3 * small_s:6.2f} ms {1e3 * large_s:6.2f} ms {large_s / small_s:7.2f}  {name}{word}", flush=True)
    return missed


def misses(small_s: float, large_s: float) -> bool:
    return large_s > BAR * small_s and large_s > UNNOTICED_S


@contextmanager
def databases(*, on_postgres: bool) -> Iterator[Callable[[str], str]]:
    """Gives the URL of a new database by its name."""
    if on_postgres:
        with running_postgres() as server:
            yield lambda _: server.create_database()
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield lambda name: f"sqlite:///{Path(folder) / name}.db"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--postgres", action="store_true", help="on a throw-away Postgres rather than SQLite")
    parser.add_argument("--small", type=int, default=10_000, help="generated runs of the small database")
    parser.add_argument("--large", type=int, default=1_000_000, help="generated runs of the large database")
    asked = parser.parse_args()
    with databases(on_postgres=asked.postgres) as url_of:
        engines = []
        for name, count in (("small", asked.small), ("large", asked.large)):
            engines.append(create_database_engine(url_of(name)))
            fill(engines[-1], count)
        gc.freeze()
        missed = compare(*engines)
        for engine in engines:
            engine.dispose()
    print(f"{missed} queries miss the bar of {BAR}" if missed else f"every query keeps the bar of {BAR}")
    raise SystemExit(1 if missed else 0)


if __name__ == "__main__":
    main()
