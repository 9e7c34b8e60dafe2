"""Evidence follows what is written, by this process and by others, and the records that it is compared with."""

import json
from collections.abc import Iterator
from dataclasses import replace
from math import log2

import pytest
from sqlalchemy import Engine

from service.catalogue.accelerator_records import AcceleratorRecord
from service.catalogue.accelerators import ACCELERATORS
from service.catalogue.benchmark_records import BenchmarkRun, Details, RunScenario, StoredMetric, main_figures
from service.catalogue.benchmarks import delete_run, evidence_writing, save_runs
from service.catalogue.live import LiveCatalogue
from service.catalogue.live_evidence import Evidence, evidence_about, evidence_ids, evidence_of
from service.catalogue.records import replace_record, writing
from service.sizing.evidence import EvidenceStore
from service.sizing.evidence_index import RESIDUAL_AT
from service.sizing.precision import Precision
from service.sizing.run_identity import NO_FLAGS, Configuration, EngineFlags
from tests.catalogue.test_benchmarks import a_run


@pytest.fixture
def live(engine: Engine) -> LiveCatalogue:
    catalogue = LiveCatalogue(engine)
    catalogue.refresh()
    return catalogue


def measured(index: int, **fields: object) -> BenchmarkRun:
    metrics = [StoredMetric("tpot_s", "p50", 0.02 + index / 1e4)]
    known: dict[str, object] = {
        "scenario": RunScenario.CLOSED_LOOP,
        "model": "phi-4",
        "gpu_count": 1,
        "tp": 1,
        "weights": "bf16",
        "engine": "vllm",
        "engine_version": "0.19.0",
        "concurrency": 8.0 + index,
        "isl_mean_tokens": 1024.0,
        "osl_mean_tokens": 256.0,
        **main_figures(metrics, gpu_count=1),
    }
    return a_run(index, **{**known, **fields})


def store(engine: Engine, *runs: BenchmarkRun) -> None:
    with evidence_writing(engine) as (session, revision):
        save_runs(session, runs, revision=revision)


def evidence(live: LiveCatalogue) -> Evidence:
    assert live.current.evidence is not None
    return live.current.evidence


def held(live: LiveCatalogue) -> EvidenceStore:
    return evidence(live).store


def residuals(live: LiveCatalogue, run: BenchmarkRun) -> Iterator[float]:
    wanted = set(evidence_ids([run.id]))
    for cell in held(live).cells.values():
        for evidence_id, numbers in zip(cell.ids, cell.numbers, strict=True):
            if evidence_id in wanted:
                yield float(numbers[RESIDUAL_AT])


def test_writes_of_another_process_appear_and_go(engine: Engine, live: LiveCatalogue) -> None:
    before = evidence(live)
    assert before.is_complete
    one, two = measured(1), measured(2)
    store(engine, one, two)
    assert evidence(live) is before
    live.refresh()
    assert held(live).run_count == before.store.run_count + 2
    with evidence_writing(engine) as (session, revision):
        delete_run(session, one.id, revision=revision)
    live.refresh()
    assert held(live).run_count == before.store.run_count + 1
    assert list(residuals(live, one)) == []
    assert len(list(residuals(live, two))) == 1


def test_a_run_that_must_not_calibrate_is_no_evidence(engine: Engine, live: LiveCatalogue) -> None:
    before = held(live).run_count
    store(engine, measured(1, calibrates=False), measured(2, accelerator=None), measured(3, model=None))
    live.refresh()
    assert held(live).run_count == before


def test_a_new_revision_of_a_record_moves_the_physics_that_its_runs_are_compared_with(
    engine: Engine, live: LiveCatalogue
) -> None:
    run = measured(1)
    store(engine, run)
    live.refresh()
    (before,) = residuals(live, run)
    document = json.loads(live.snapshot.accelerator("h100-sxm").document)
    document["memory"]["bandwidth"] = {"total": "1.675 TB/s", "sources": document["memory"]["bandwidth"]["sources"]}
    with writing(engine) as session:
        replace_record(session, ACCELERATORS, AcceleratorRecord.model_validate(document), expected_revision=1)
    live.refresh()
    (after,) = residuals(live, run)
    # At half of 3.35 TB/s reading takes twice as long. A step of 14.7e9 bf16 parameters is 9.5 ms of reading and some
    # 4 ms of fixed overheads: predicted (19 + 4) / (9.5 + 4) = e^0.53 times as slow, so that the run is that much less
    assert after == pytest.approx(before - 0.53, abs=0.05)


def stored_configuration(live: LiveCatalogue, run: BenchmarkRun) -> Configuration:
    wanted = set(evidence_ids([run.id]))
    (found,) = (key for key, cell in held(live).cells.items() if not wanted.isdisjoint(cell.ids))
    return found


def test_flags_that_change_the_speed_tell_runs_apart(engine: Engine, live: LiveCatalogue) -> None:
    plain = measured(1)
    limited = measured(2, details=Details(extras={"max_num_seqs": "4", "max_num_batched_tokens": "2048"}).text())
    narrow = measured(3, kv_cache="fp8_e4m3", prefix_caching=False)
    drafted, undrafted = measured(4, speculation="mtp"), measured(5, speculation="none")
    store(engine, plain, limited, narrow, drafted, undrafted)
    live.refresh()
    found = {run.id: stored_configuration(live, run) for run in (plain, limited, narrow, drafted, undrafted)}
    assert len(set(found.values())) == 4
    assert found[undrafted.id] == found[plain.id]  # no speculation is what an engine does unless told
    assert found[plain.id].flags == NO_FLAGS
    assert found[limited.id].flags == EngineFlags(max_num_seqs=4, max_num_batched_tokens=2048)
    assert found[narrow.id].flags == EngineFlags(kv_cache=Precision.FP8, prefix_caching=False)
    assert (found[drafted.id].is_drafted, found[undrafted.id].is_drafted) == (True, False)


def test_a_stated_limit_on_running_sequences_is_the_batch_that_ran(engine: Engine, live: LiveCatalogue) -> None:
    """Ten requests in flight of which four run: predicted as four, and the wait for a place is no TTFT to lean on."""
    figures = main_figures([StoredMetric("tpot_s", "p50", 0.02), StoredMetric("ttft_s", "p50", 8.0)], gpu_count=1)
    limited = measured(2, details=Details(extras={"max_num_seqs": "4"}).text(), **figures)
    unstated = measured(3, **figures)
    store(engine, limited, unstated)
    live.refresh()
    (cell,) = (cell for cell in held(live).cells.values() if f"{limited.id} serving" in cell.ids)
    assert cell.numbers[cell.ids.index(f"{limited.id} serving"), 0] == log2(4)
    known = {evidence_id for cell in held(live).cells.values() for evidence_id in cell.ids}
    assert f"{limited.id} ttft" not in known
    assert (
        not {f"{unstated.id} serving", f"{unstated.id} ttft"} & known
    )  # 8 s of some 13: it waited, for what nobody says


def test_lengths_that_inferencex_draws_are_nine_tenths_of_the_nominal_ones(engine: Engine, live: LiveCatalogue) -> None:
    drawn = measured(1, details=Details(extras={"kind": "inferencex-aggregate"}).text())
    exact = measured(2)
    named = measured(3, source_title="InferenceX, our own sweep", measured_by="InferenceX team")
    store(engine, drawn, exact, named)
    live.refresh()
    isl = {
        evidence_id: float(numbers[1])
        for cell in held(live).cells.values()
        for evidence_id, numbers in zip(cell.ids, cell.numbers, strict=True)
    }
    assert isl[f"{drawn.id} serving"] == pytest.approx(log2(0.9 * 1024 + 128))
    assert isl[f"{exact.id} serving"] == pytest.approx(log2(1024 + 128))
    assert isl[f"{named.id} serving"] == pytest.approx(log2(1024 + 128))  # what a user calls a source says no lengths


@pytest.mark.parametrize(
    "absurd",
    [
        {"isl_mean_tokens": 0.1, "osl_mean_tokens": 0.1},
        {"tpot_central_s": 1e-300},
        {"tpot_central_s": 1e300},
        {"concurrency": 1e18},
        {"gpu_count": None, "tp": None},
        {"tp": 8},
        {"pp": 2**30, "gpu_count": 2**31 - 1},
        {"layout": "P8/D16 GPUs"},
        {"scenario": RunScenario.CLOSED_LOOP_DISAGGREGATED, "layout": "P1xTP1/D1xTP1", "tpot_central_s": 0.0},
    ],
)
def test_figures_of_no_real_machine_are_no_evidence_and_stop_no_other(
    live: LiveCatalogue, absurd: dict[str, object]
) -> None:
    runs = [measured(1, **absurd), measured(2)]
    found = evidence_of([replace(run, id=str(number)) for number, run in enumerate(runs)], live.snapshot)
    assert [each.id for each in found] == ["1 serving"]
    assert evidence_about(runs[0], live.snapshot)[1]
    assert evidence_about(runs[1], live.snapshot)[1] == []
