"""``GET /benchmark-runs/{id}/prediction``: what would have been predicted for a run, had it never been measured."""

from typing import Any

from fastapi import APIRouter
from pydantic import Field
from sqlmodel import Session

from service.api.benchmark_runs import RunId, checked
from service.api.dependencies import CatalogueDep
from service.api.estimate_document import estimate
from service.api.estimate_schemas import AnswerModel, EstimateRead, EvidenceRunRead
from service.api.evidence_document import MEASURES, leant_on
from service.api.problems import problem_responses
from service.api.strict_json import StrictJsonRoute
from service.catalogue.benchmarks import UnknownBenchmarkRun, get_run
from service.catalogue.live import LiveCatalogue
from service.catalogue.live_evidence import evidence_about, evidence_ids
from service.sizing.estimate import Estimate
from service.sizing.evidence import EvidenceStore
from service.sizing.run_identity import Run, as_question
from service.sizing.run_terms import Phase

router = APIRouter(tags=["benchmark runs"], route_class=StrictJsonRoute)


class MeasuredAndPredicted(AnswerModel):
    """One measured time, beside what the other runs and the physics say."""

    measure: str
    phase: Phase
    measured_s: float
    predicted_s: EstimateRead
    physics_s: float
    measured_over_predicted_fraction: float
    is_inside_interval: bool
    is_quarantined: bool
    distance_fraction: float
    runs: list[EvidenceRunRead]


class RunPrediction(AnswerModel):
    """What can be predicted of a run; `not_leant_on` says why the rest cannot be."""

    benchmark_run: str
    evidence_revision: int | None
    predictions: list[MeasuredAndPredicted]
    not_leant_on: list[str] = Field(description="why estimates do not lean on the run, or on a part of it")


@router.get(
    "/benchmark-runs/{id}/prediction",
    summary="Predicted, the run itself left out, against measured",
    response_model=RunPrediction,
    responses=problem_responses(UnknownBenchmarkRun),
)
def get_benchmark_run_prediction(id: RunId, catalogue: CatalogueDep) -> Any:
    """As a question would have been answered without this run; who measured it is not known to the prediction."""
    return run_prediction(checked(id), catalogue)


def run_prediction(run_id: str, catalogue: LiveCatalogue) -> dict[str, Any]:
    """The answer as a document, also for the command line."""
    with Session(catalogue.engine) as session:
        run = get_run(session, run_id)
    known = catalogue.current
    evidence = known.evidence
    store = evidence.store.without_runs(evidence_ids([run.id])) if evidence else EvidenceStore.of()
    runs, reasons = evidence_about(run, known.snapshot)
    return {
        "benchmark_run": run.id,
        "evidence_revision": evidence.revision if evidence else None,
        "predictions": [_prediction(each, store) for each in runs],
        "not_leant_on": reasons,
    }


def _prediction(run: Run, store: EvidenceStore) -> dict[str, Any]:
    near = store.about(as_question(run.configuration))
    refined = near.at(run.point)
    predicted_s = run.predicted_s * refined.ratio
    low, high = predicted_s / refined.factor, predicted_s * refined.factor
    measure = MEASURES[run.configuration.phase]
    return {
        "measure": measure,
        "phase": run.configuration.phase.value,
        "measured_s": run.measured_s,
        "predicted_s": estimate(Estimate(predicted_s, low, high, refined.coverage_fraction, refined.basis)),
        "physics_s": run.predicted_s,
        "measured_over_predicted_fraction": run.measured_s / predicted_s,
        "is_inside_interval": low <= run.measured_s <= high,
        "is_quarantined": run.is_quarantined,
        "distance_fraction": refined.distance,
        "runs": leant_on(measure, near.leans_on(refined)),
    }
