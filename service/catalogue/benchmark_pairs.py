"""MLPerf runs in pairs: Offline beside another scenario of the same system."""

from dataclasses import dataclass, replace

from sqlalchemy import ColumnElement, func, select
from sqlmodel import Session

from service.catalogue.benchmark_queries import FEW_RUNS, Order, RunFilter, best_index, kept_count, read_by
from service.catalogue.benchmark_records import BenchmarkRun, RunScenario
from service.catalogue.benchmarks import COLUMNS, RUNS, run_of


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
    others = {name: values for name, values in wanted.any_of.items() if name != "scenario"}
    is_offline = replace(wanted, any_of={"scenario": [str(RunScenario.MLPERF_OFFLINE)], **others})
    partner = RUNS.alias("partner")
    partners = select(partner.c.pair_key).where(partner.c.scenario == str(other))
    paired: ColumnElement[bool]
    if kept_count(connection, "scenario", str(other)) <= FEW_RUNS:
        index, paired = "ix_benchmark_run_pair_key", RUNS.c.pair_key.in_(partners)
    else:
        index = best_index(connection, is_offline, Order()) or "ix_benchmark_run_scenario"
        by_key = partners.with_hint(partner, "INDEXED BY ix_benchmark_run_pair_key", "sqlite")
        paired = by_key.where(partner.c.pair_key == RUNS.c.pair_key).exists()
    query = read_by(index, COLUMNS, is_offline, Order(), limit=limit, after=None if after is None else (after,))
    query = query.where(RUNS.c.pair_key.is_not(None), paired, *wanted.by_column().get("scenario", ()))
    offline = [run_of(row) for row in connection.execute(query)]
    keys = sorted({str(run.pair_key) for run in offline})
    first = (
        select(func.min(RUNS.c.id))
        .where(RUNS.c.pair_key.in_(keys), RUNS.c.scenario == str(other))
        .group_by(RUNS.c.pair_key)
    )
    found = [run_of(row) for row in connection.execute(select(*COLUMNS).where(RUNS.c.id.in_(first)))]
    partner_of = {run.pair_key: run for run in found}
    return [RunPair(run, partner_of[run.pair_key]) for run in offline if run.pair_key in partner_of]
