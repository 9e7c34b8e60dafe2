"""Benchmark runs in the database: stored once, found by key, deleted for good, followed by revision."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from sqlalchemy import Engine, func, select
from sqlalchemy.exc import IntegrityError
from sqlmodel import Session

from service.catalogue.benchmark_evidence import Measurements, measurements
from service.catalogue.benchmark_facts import published_runs
from service.catalogue.benchmark_pairs import list_pairs
from service.catalogue.benchmark_queries import (
    FEW_RUNS,
    Order,
    Range,
    RunFilter,
    every_run,
    facets,
    list_runs,
)
from service.catalogue.benchmark_records import (
    BenchmarkRun,
    Details,
    RunScenario,
    StoredMetric,
    main_figures,
    new_ids,
    shipped_id,
)
from service.catalogue.benchmarks import (
    RUNS,
    ShippedRunKept,
    UnknownBenchmarkRun,
    changes_since,
    delete_run,
    evidence_revision,
    evidence_writing,
    get_run,
    runs_of_content,
    save_runs,
)
from service.catalogue.shipped_benchmarks import load_shipped_runs, shipped_runs
from service.catalogue.snapshot import shipped_snapshot
from service.catalogue.stored_evidence import published_of
from service.catalogue.tables import Origin

MORNING = datetime(2026, 12, 1, 8, tzinfo=UTC)
MINE = RunFilter(any_of={"origin": ["user"]})


def a_run(index: int = 0, **fields: object) -> BenchmarkRun:
    (run_id,) = new_ids(MORNING, 1)
    own = {"scenario": RunScenario.CLOSED_LOOP, "accelerator": "h100-sxm", "output_tokens_per_s": 100.0 + index}
    run = BenchmarkRun(
        id=run_id, origin=Origin.USER, created_at=MORNING, content_digest=f"{index:064d}", details=Details().text()
    )
    return replace(run, **{**own, **fields})  # type: ignore[arg-type]  # fields by name


def save(engine: Engine, *runs: BenchmarkRun) -> int:
    with evidence_writing(engine) as (session, revision):
        save_runs(session, runs, revision=revision)
    return revision


def test_a_run_comes_back_as_it_was_stored(engine: Engine) -> None:
    details = Details(
        metrics=(StoredMetric("ttft_s", "p99", 0.25, "p99_ttft_ms"),),
        quality_remarks=("one node was slow",),
        inferred=("tp",),
        extras={"host": "a7"},
    )
    run = a_run(tp=4, prefix_caching=False, concurrency=32.0, measured_on="2026-11-30", details=details.text())
    revision = save(engine, run)
    with Session(engine) as session:
        stored = get_run(session, run.id)
    assert stored == replace(run, evidence_revision=revision)
    assert stored.read_details == details
    assert (stored.power_w, stored.node_count, stored.mlperf_valid) == (None, None, None)


def test_the_same_run_of_the_same_file_is_stored_once(engine: Engine) -> None:
    first = a_run(7)
    save(engine, first)
    with Session(engine) as session:
        known = runs_of_content(session, [first.content_digest])
    assert {key: run.id for key, run in known.items()} == {(first.content_digest, 0): first.id}
    with pytest.raises(IntegrityError):
        save(engine, replace(a_run(7), content_digest=first.content_digest))


def test_a_shipped_run_is_not_deleted_and_a_users_is(engine: Engine) -> None:
    mine = a_run()
    save(engine, mine)
    with Session(engine) as session:
        shipped = list_runs(session, RunFilter(any_of={"origin": ["shipped"]}), Order(), limit=1)[0]
    with pytest.raises(ShippedRunKept), evidence_writing(engine) as (session, revision):
        delete_run(session, shipped.id, revision=revision)
    with evidence_writing(engine) as (session, revision):
        delete_run(session, mine.id, revision=revision)
    with Session(engine) as session, pytest.raises(UnknownBenchmarkRun):
        get_run(session, mine.id)


def test_another_process_follows_the_writes_without_reading_everything_again(engine: Engine) -> None:
    with Session(engine) as session:
        start = evidence_revision(session.connection())
        assert list(changes_since(session, start).added) == []
        assert (
            len(list(changes_since(session, 0).added))
            == session.connection().execute(select(func.count()).select_from(RUNS)).scalar_one()
        )
    one, two = a_run(1), a_run(2)
    save(engine, one, two)
    with evidence_writing(engine) as (session, revision):
        delete_run(session, one.id, revision=revision)
    with Session(engine) as session:
        changes = changes_since(session, start)
        assert [run.id for run in changes.added] == [two.id]
    assert changes.revision == start + 2
    assert changes.deleted == [one.id]


def test_identifiers_sort_by_time_and_by_position() -> None:
    early, late = new_ids(MORNING, 3), new_ids(MORNING.replace(hour=9), 2)
    assert sorted([*late, *early]) == [*early, *late]
    assert shipped_id("a line") < early[0]
    assert {len(each) for each in (*early, *late, shipped_id("a line"))} == {18}


def test_pages_by_key_neither_repeat_nor_leave_out_a_run(engine: Engine) -> None:
    runs = [replace(a_run(n), output_tokens_per_s=float(n // 3)) for n in range(10)]  # three runs share each rate
    save(engine, *runs, replace(a_run(99), output_tokens_per_s=None))
    for order in (Order("output_tokens_per_s"), Order("output_tokens_per_s", descending=True), Order()):
        seen: list[BenchmarkRun] = []
        with Session(engine) as session:
            while page := list_runs(session, MINE, order, limit=4, after=order.key(seen[-1]) if seen else None):
                seen += page
        assert len({run.id for run in seen}) == len(seen) == (11 if order.column == "id" else 10)
        keys = [order.key(run) for run in seen]
        assert keys == sorted(keys, reverse=order.descending)


def test_filters_hold_for_every_run_and_a_range_leaves_out_the_unknown(engine: Engine) -> None:
    save(engine, a_run(1, tp=4), a_run(2, tp=8), a_run(3, tp=None), a_run(4, tp=4, measured_on="2026-11-30"))
    with Session(engine) as session:

        def count(**filters: object) -> int:
            any_of = {**MINE.any_of, **filters.pop("any_of", {})}  # type: ignore[dict-item]  # a mapping
            return len(list_runs(session, RunFilter(any_of=any_of, **filters), Order(), limit=50))  # type: ignore[arg-type]

        assert count(any_of={"tp": [4]}) == 2
        assert count(any_of={"tp": [4, 8]}) == 3
        assert count(ranges={"tp": Range(low=1)}) == 3
        assert count(ranges={"tp": Range(4.5, 1e300)}) == 1  # 8 alone
        assert count(ranges={"tp": Range(1e300, None)}) == 0
        assert count(ranges={"output_tokens_per_s": Range(101.0, 102.0)}) == 2
        assert count(any_of={"measured_year": ["2026"]}) == 1
        assert count(any_of={"measured_month": ["2026-11"]}) == 1
        assert count(any_of={"measured_month": ["2026-12"]}) == 0
        counted = facets(session, MINE, ["tp"])
    assert (counted.counts["tp"], counted.counted_run_count, counted.is_complete) == (
        [(4, 2), (8, 1), (None, 1)],
        4,
        True,
    )


def test_a_long_list_is_read_in_parts(engine: Engine) -> None:
    with Session(engine) as session:
        parts = list(every_run(session, RunFilter(), Order()))
        total = session.connection().execute(select(func.count()).select_from(RUNS)).scalar_one()
    assert sum(len(part) for part in parts) == total > 8000
    assert max(len(part) for part in parts) == 2000


def test_the_main_figures_are_taken_by_exact_meaning_and_statistic() -> None:
    figures = main_figures(
        [
            StoredMetric("tpot_s", "mean", 0.020),
            StoredMetric("inter_chunk_gap_s", "p50", 0.015),
            StoredMetric("tpot_token_weighted_s", "p50", 0.016),
            StoredMetric("ttft_s", "p99", 0.9),
            StoredMetric("total_tokens_per_s", "overall", 5000.0),
        ],
        gpu_count=8,
    )
    assert figures["tpot_p50_s"] is None
    assert figures["tpot_mean_s"] == figures["tpot_central_s"] == 0.020
    assert (figures["ttft_p50_s"], figures["ttft_central_s"], figures["ttft_p99_s"]) == (None, None, 0.9)
    assert figures["output_tokens_per_s"] is None
    assert figures["output_tokens_per_s_per_gpu"] is None


# --- shipped runs ----------------------------------------------------------------------------------------------------


def test_loading_again_changes_nothing(engine: Engine) -> None:
    with engine.connect() as connection:
        before = evidence_revision(connection)
    assert load_shipped_runs(engine) == 0
    with engine.connect() as connection:
        assert evidence_revision(connection) == before


def test_a_release_brings_back_what_differs_and_leaves_users_runs_alone(engine: Engine) -> None:
    mine = a_run()
    save(engine, mine)
    with engine.begin() as connection:
        victim = connection.execute(select(RUNS.c.id).where(RUNS.c.origin == "shipped").limit(1)).scalar_one()
        connection.execute(RUNS.update().where(RUNS.c.id == victim).values(weights="of an older release"))
        connection.exec_driver_sql("UPDATE evidence_state SET shipped_digest = 'of an older release'")
    assert load_shipped_runs(engine) == 1
    with Session(engine) as session:
        assert get_run(session, victim).weights != "of an older release"
        assert get_run(session, mine.id).id == mine.id


def test_the_percentile_lines_of_a_published_run_are_its_metrics(engine: Engine) -> None:
    """9,234 published lines, of which 1,330 state other percentiles of a run of another line, and 693 of MLPerf."""
    with Session(engine) as session:
        total = session.connection().execute(select(func.count()).select_from(RUNS)).scalar_one()
        both = RunFilter(ranges={"ttft_p99_s": Range(0.0), "ttft_p50_s": Range(0.0)})
        some = list_runs(session, both, Order(), limit=200)
    assert total == 9234 - 1330 + 693
    assert some
    for run in some:
        statistics = {(each.meaning, each.statistic) for each in run.read_details.metrics}
        assert {("ttft_s", "p50"), ("ttft_s", "p99")} <= statistics


def test_flagged_runs_are_kept_with_their_flag_and_do_not_calibrate(engine: Engine) -> None:
    with Session(engine) as session:
        flagged = list_runs(session, RunFilter(any_of={"calibrates": [False]}), Order(), limit=2000)
    assert len(flagged) > 1000
    assert all(run.read_details.quality_remarks for run in flagged)
    assert any("worker counts missing" in run.read_details.quality_remarks[0] for run in flagged)


def test_stored_runs_are_the_evidence_that_their_published_lines_are() -> None:
    """The same times of the same things, whether read from the shipped tables or from what was stored of them."""
    snapshot = shipped_snapshot()
    published = measurements(published_runs(), snapshot)
    stored = measurements(map(published_of, shipped_runs(snapshot)), snapshot)

    def compared(found: Measurements) -> Counter[object]:
        return Counter(
            (each.configuration, each.setup.batch, each.setup.isl_tokens, each.value_s) for each in found.usable
        )

    assert compared(stored) == compared(published)
    assert len(stored.usable) > 2000


def test_the_founding_documents_runs_are_there_with_what_was_inferred(engine: Engine) -> None:
    """Llama 3.3 70B AWQ: 6.0 tokens/s for one user, 485 for 128 (2026-09-02); the hardware is not named there."""
    with Session(engine) as session:
        question = RunFilter(any_of={"source_title": ["founding documents, 2026-09-02"], "weights": ["int4"]})
        runs = list_runs(session, question, Order("output_tokens_per_s"), limit=10)
    assert [(run.output_tokens_per_s, run.concurrency) for run in runs] == [(6.0, 1.0), (485.0, 128.0)]
    assert {run.model for run in runs} == {"llama-3.3-70b-instruct"}
    assert all("accelerator" in run.read_details.inferred and not run.calibrates for run in runs)


def test_offline_and_server_of_one_system_are_a_pair(engine: Engine) -> None:
    """AMD's 1xMI300X, llama2-70b-99, v4.1: Offline 3,062.72, Server 2,520.27 tokens/s; 2520.27 / 3062.72 = 0.8229."""
    with Session(engine) as session:
        question = RunFilter(any_of={"mlperf_version": ["v4.1"], "submitter": ["AMD"], "gpu_count": [1]})
        pairs = list_pairs(session, question, RunScenario.MLPERF_SERVER, limit=50)
        every = list_pairs(session, RunFilter(), RunScenario.MLPERF_SERVER, limit=500)
        rest = list_pairs(session, RunFilter(), RunScenario.MLPERF_SERVER, limit=500, after=every[99].offline.id)
    (ratio,) = {pair.ratio for pair in pairs if pair.offline.output_tokens_per_s == 3062.72}
    assert ratio == pytest.approx(0.8229, abs=1e-4)
    assert [pair.offline.id for pair in rest] == [pair.offline.id for pair in every[100:]]
    for pair in every:
        assert pair.offline.gpu_count == pair.other.gpu_count
        assert pair.offline.model_name == pair.other.model_name
        assert pair.offline.submitter == pair.other.submitter


def test_pairs_are_found_where_most_offline_runs_have_no_partner(engine: Engine) -> None:
    """Of 300 Offline runs the 1st, 101st and 201st have two Server runs each; all the other Server runs stand alone."""
    offline_ids, server_ids = new_ids(MORNING, 300), new_ids(MORNING.replace(hour=9), FEW_RUNS + 6)
    keys = [f"system {number}" for number in (0, 100, 200, 200, 100, 0, *range(1000, 1000 + FEW_RUNS))]
    save(
        engine,
        *(
            a_run(index, id=run_id, scenario=RunScenario.MLPERF_OFFLINE, pair_key=f"system {index}")
            for index, run_id in enumerate(offline_ids)
        ),
        *(
            a_run(1000 + index, id=run_id, scenario=RunScenario.MLPERF_SERVER, pair_key=key)
            for index, (run_id, key) in enumerate(zip(server_ids, keys, strict=True))
        ),
    )
    expected = [(offline_ids[0], server_ids[0]), (offline_ids[100], server_ids[1]), (offline_ids[200], server_ids[2])]
    with Session(engine) as session:

        def page(after: str | None = None) -> list[tuple[str, str]]:
            pairs = list_pairs(session, MINE, RunScenario.MLPERF_SERVER, limit=2, after=after)
            return [(pair.offline.id, pair.other.id) for pair in pairs]

        assert page() == expected[:2]
        assert page(after=offline_ids[100]) == expected[2:]
        assert page(after=offline_ids[200]) == []
