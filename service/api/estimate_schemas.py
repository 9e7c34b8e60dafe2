"""Predicted numbers and what they lean on, as every answer has them."""

from pydantic import BaseModel, ConfigDict, Field

from service.sizing.estimate import Basis
from service.sizing.next_measurement import Experiment
from service.sizing.run_terms import Phase


class AnswerModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class EstimateRead(AnswerModel):
    """A predicted number and the interval in which the truth is expected."""

    value: float
    low: float
    high: float
    coverage_fraction: float | None = Field(
        description="share of cases in which low to high held the truth; null where that was never measured"
    )
    basis: Basis


class EvidenceRunRead(AnswerModel):
    """A stored run that an estimate leans on: `GET /benchmark-runs/{id}` has it whole."""

    estimate: str = Field(description="which one leans on it", examples=["serving.tpot_s"])
    benchmark_run: str
    phase: Phase = Field(description="what it measured")
    weight_fraction: float = Field(
        description="share of its error, ln(measured / predicted), that the estimate takes over; negative where runs "
        "that measured much the same are weighed against each other"
    )
    measured: dict[str, float] = Field(description="seconds, by what was measured")
    predicted: dict[str, float] = Field(description="the same by physics alone")


class EstimateEvidenceRead(AnswerModel):
    estimate: str
    distance_fraction: float = Field(ge=0, le=1)
    noise_floor_fraction: float | None = Field(
        description="spread between runs of the very same thing, as fitted: one sd of the logarithm"
    )


class NarrowedRead(AnswerModel):
    estimate: str
    interval_width_fraction: float = Field(description="(high - low) / value of its 80 % interval now")
    expected_interval_width_fraction: float = Field(description="the same with that run stored")


class NextMeasurementRead(AnswerModel):
    """The one run, of the asked model, accelerator, engine and layout, that would narrow the answer most."""

    scenario: Experiment
    concurrency: int
    isl_tokens: float
    osl_tokens: float | None = Field(description="null where nothing is decoded")
    metrics: list[str] = Field(description="what to measure, by the names of POST /benchmark-runs")
    narrows: list[NarrowedRead]


class EvidenceRead(AnswerModel):
    """The stored runs that the estimates lean on, at most five each."""

    distance_fraction: float = Field(
        ge=0, le=1, description="of TPOT: the spread left over that of the model alone. 1: nothing is near"
    )
    revision: int | None = Field(description="of the stored runs; null where the service leans on none")
    estimates: list[EstimateEvidenceRead]
    runs: list[EvidenceRunRead]
    next_measurement: NextMeasurementRead | None = Field(description="null where none is known to narrow the answer")
