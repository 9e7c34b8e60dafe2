"""MLPerf runs in pairs: Offline beside another scenario of the same system."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Row, func, select
from sqlmodel import Session

from service.catalogue.benchmark_queries import (
    FEW_RUNS,
    ROWS_AT_ONCE,
    Order,
    RunFilter,
    best_index,
    kept_count,
    read_by,
)
from service.catalogue.benchmark_records import BenchmarkRun, RunScenario
from service.catalogue.benchmarks import COLUMNS, RUNS, in_parts, run_of

BY_PAIR_KEY = "ix_benchmark_run_pair_key"


@dataclass(frozen=True, slots=True)
class RunPair:
    """Two runs of one system and model. ``ratio`` is the other's output rate over the Offline one's."""

    offline: BenchmarkRun
    other: BenchmarkRun

    @property
    def ratio(self) -> float | None:
        offline, other = self.offline.output_tokens_per_s, self.other.output_tokens_per_s
        return other / offline if offline and other else None


def list_pairs(
    session: Session, wanted: RunFilter, other: RunScenario, *, limit: int, after: str | None = None
) -> list[RunPair]:
    """Offline runs that have a partner in the other scenario, by id, each with its first partner.

    A pair is of one benchmark version, division, submitter, system, model variant and hardware.
    """
    connection = session.connection()
    pairs: list[tuple[str, str]] = []
    for some in _ids_in_parts(connection, wanted, other, at_once=2 * limit, after=after):
        pairs += [(row.id, row.partner_id) for row in some if row.partner_id is not None]
        if len(pairs) >= limit:
            break
    page = pairs[:limit]
    runs: dict[str, BenchmarkRun] = {}
    for ids in in_parts([run_id for pair in page for run_id in pair]):
        runs |= {row.id: run_of(row) for row in connection.execute(select(*COLUMNS).where(RUNS.c.id.in_(ids)))}
    return [RunPair(runs[offline_id], runs[other_id]) for offline_id, other_id in page]


def _ids_in_parts(
    connection: Connection, wanted: RunFilter, other: RunScenario, *, at_once: int, after: str | None
) -> Iterator[Sequence[Row[Any]]]:
    """Offline runs by id, each with the id of its first partner or ``None``: few at first, then more.

    Partners are looked up once the runs are in order: asked for the paired runs alone, Postgres joins and sorts every
    pair there is for one page.
    """
    others = {name: values for name, values in wanted.any_of.items() if name != "scenario"}
    is_offline = replace(wanted, any_of={"scenario": [str(RunScenario.MLPERF_OFFLINE)], **others})
    also = wanted.by_column().get("scenario", [])
    partner = RUNS.alias("partner")
    if kept_count(connection, "scenario", str(other)) <= FEW_RUNS:
        index = BY_PAIR_KEY
        also.append(RUNS.c.pair_key.in_(select(partner.c.pair_key).where(partner.c.scenario == str(other))))
    else:
        index = best_index(connection, is_offline, Order()) or "ix_benchmark_run_scenario"
    first_id = (
        select(func.min(partner.c.id))
        .with_hint(partner, f"INDEXED BY {BY_PAIR_KEY}", "sqlite")
        .where(partner.c.pair_key == RUNS.c.pair_key, partner.c.scenario == str(other))
        .scalar_subquery()
    )
    last = None if after is None else (after,)
    while True:
        query = read_by(
            index, (RUNS.c.id, first_id.label("partner_id")), is_offline, Order(), limit=at_once, after=last
        )
        some = connection.execute(query.where(*also)).all()
        yield some
        if len(some) < at_once:
            return
        last, at_once = (some[-1].id,), min(2 * at_once, ROWS_AT_ONCE)
