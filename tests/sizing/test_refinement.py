from dataclasses import replace

import pytest

from service.catalogue.benchmark_evidence import evidence_runs, measurements
from service.catalogue.benchmark_facts import published_runs
from service.sizing.estimate import Basis
from service.sizing.evidence import EvidenceStore
from service.sizing.parallelism import Parallelism
from service.sizing.plan import SizingResult, size
from service.sizing.question import EngineAsked, PrecisionAsked, SizingInputs, WorkloadAsked
from service.sizing.run_terms import Phase
from service.sizing.workload import Length
from tests.sizing.examples import accelerator, model, shipped


def asked(evidence: EvidenceStore | None, concurrency: int = 32) -> SizingResult:
    inputs = SizingInputs(
        model=model("qwen3-32b"),
        accelerator=accelerator("h100-sxm"),
        precision=PrecisionAsked(weights="fp8"),
        parallelism=Parallelism(tp=2),
        workload=WorkloadAsked(Length(1024), Length(1024), concurrency),
        engine=EngineAsked(name="vllm", version="0.12.0"),
    )
    return size(inputs, evidence)


def test_an_empty_store_leaves_every_value_to_the_physics() -> None:
    without, empty = asked(None).speed, asked(EvidenceStore.of()).speed
    assert without is not None
    assert empty is not None
    assert empty.point == without.point
    assert empty.tpot_s is not None
    assert empty.tpot_s.basis is Basis.MODELLED


def test_stored_runs_narrow_the_answer_and_are_named(shipped_evidence: EvidenceStore) -> None:
    without, leaning = asked(None).speed, asked(shipped_evidence).speed
    assert without is not None
    assert leaning is not None
    assert without.tpot_s is not None
    assert leaning.tpot_s is not None
    assert leaning.tpot_s.high / leaning.tpot_s.low < without.tpot_s.high / without.tpot_s.low
    assert leaning.tpot_s.basis in (Basis.CALIBRATED, Basis.MEASURED)
    assert leaning.beliefs[Phase.SERVING].leans_on
    assert without.beliefs[Phase.SERVING].leans_on == ()


def test_rates_follow_from_the_corrected_times(shipped_evidence: EvidenceStore) -> None:
    speed = asked(shipped_evidence).speed
    assert speed is not None
    assert speed.tpot_s is not None
    residence_s = speed.ttft_s.value + 1023 * speed.tpot_s.value  # Little's law over first token and 1,023 gaps
    assert speed.requests_per_s.value == pytest.approx(32 / residence_s)


def test_a_run_that_is_added_sharpens_the_next_answer_and_removing_it_takes_that_back(
    shipped_evidence: EvidenceStore,
) -> None:
    before = asked(shipped_evidence).speed
    assert before is not None
    nearest = before.beliefs[Phase.SERVING].leans_on[0].run
    runs = evidence_runs(measurements(published_runs(), shipped()).usable)
    example = next(run for run in runs if run.id == nearest)
    own = replace(
        example,
        id="own",
        configuration=replace(
            example.configuration, engine="vllm", engine_version="0.12.0", layout=(2, 1, 1, 1), device_count=2
        ),
        point=replace(example.point, batch=32.0, isl_tokens=1024.0, osl_tokens=1024.0),
    )
    after_store = shipped_evidence.with_runs([own])
    after, back = asked(after_store).speed, asked(after_store.without_runs(["own"])).speed
    assert after is not None
    assert back is not None
    assert after.beliefs[Phase.SERVING].factor < before.beliefs[Phase.SERVING].factor
    assert replace(back, beliefs={}) == replace(before, beliefs={})
