"""What a benchmark run looks like over HTTP: read, listed, written."""

from datetime import datetime
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model, model_validator

from service.api.measured_time import existing_day, measured_day
from service.api.pages import MAX_LIMIT, Page
from service.api.strict_json import Choice, RequestModel
from service.catalogue.benchmark_records import PowerScope, RunScenario
from service.catalogue.tables import RUN_FACETS, Origin
from service.imports import Meaning
from service.sizing.engines.engine import plain_version

Text = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
Name = Annotated[str, Field(min_length=1, max_length=300, pattern=r"^[^\x00-\x1f\x7f]+$")]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Positive = Annotated[float, Field(gt=0, le=1e15)]
EngineVersion = Annotated[Text, Field(max_length=100), AfterValidator(plain_version)]
MeasuredOn = Annotated[
    str,
    Field(pattern=r"^\d{4}(-\d{2}(-\d{2})?)?$", description="a day, a month or a year", examples=["2026-12-01"]),
    AfterValidator(existing_day),
]


class MetricRead(BaseModel):
    """One statistic of one quantity. The unit ends `meaning`; `source_key` is where the file had it."""

    meaning: str
    statistic: str = Field(description="mean, std, min, max, p50, p99 …, overall, or unstated")
    value: float
    source_key: str | None


class BenchmarkRunRead(BaseModel):
    """A measured run. `null` is unknown; the figures at the top level are the ones that lists sort by.

    `ttft_central_s` and `tpot_central_s` are the median where it is stated, else the published central value whose
    statistic is not stated, else the mean; `metrics` says which. `calibrates` is false where remarks on its quality
    keep estimates from leaning on the run; other reasons not to stand in its prediction, under `not_leant_on`.
    """

    id: str
    origin: Origin
    created_at: datetime
    content_digest: str = Field(description="SHA-256 of the file, or of the facts, that the run was read from")
    file_index: int = Field(description="position of the run in its file")
    file_name: str | None
    tool: str | None
    tool_version: str | None
    accelerator: str | None = Field(description="slug; null where the catalogue has no such record")
    accelerator_revision: int | None
    accelerator_name: str | None = Field(description="as the source writes it")
    gpu_count: int | None
    node_count: int | None
    model: str | None = Field(description="slug; null where the catalogue has no such record")
    model_name: str | None = Field(description="as the source writes it")
    weights: str | None
    kv_cache: str | None
    compute: str | None
    engine: str | None
    engine_version: str | None
    tp: int | None
    pp: int | None
    ep: int | None
    dp: int | None
    layout: str | None = Field(description="of a disaggregated system, as published")
    speculation: str | None
    prefix_caching: bool | None
    scenario: RunScenario | None
    concurrency: float | None
    request_rate_per_s: float | None
    isl_mean_tokens: float | None
    isl_std_tokens: float | None
    osl_mean_tokens: float | None
    osl_std_tokens: float | None
    mlperf_version: str | None
    mlperf_division: str | None
    mlperf_availability: str | None
    mlperf_valid: bool | None = Field(description="as LoadGen judged")
    submitter: str | None
    system_name: str | None
    ttft_limit_s: float | None = Field(description="that the 99th percentile had to keep")
    tpot_limit_s: float | None = Field(description="that the 99th percentile had to keep")
    ttft_p50_s: float | None
    ttft_p99_s: float | None
    ttft_central_s: float | None
    tpot_p50_s: float | None
    tpot_mean_s: float | None
    tpot_p99_s: float | None
    tpot_central_s: float | None
    output_tokens_per_s: float | None = Field(description="of the whole system")
    output_tokens_per_s_per_gpu: float | None
    output_tokens_per_s_per_user: float | None
    input_tokens_per_s: float | None
    power_w: float | None = Field(description="of all that `power_scope` names, together")
    power_scope: PowerScope | None
    measured_by: str | None
    measured_on: str | None
    source_title: str | None
    source_ref: str | None
    calibrates: bool
    metrics: list[MetricRead]
    quality_remarks: list[str]
    inferred: list[str] = Field(description="fields that the source does not state itself")
    extras: dict[str, str] = Field(description="what else the source says")


class FacetValue(BaseModel):
    value: str | int | bool | None
    run_count: int


class BenchmarkRunPage(Page[BenchmarkRunRead]):
    facets: dict[str, list[FacetValue]] | None = Field(
        None, description="for each facet asked for, how many of the counted runs have each value, at most 200 values"
    )
    facets_run_count: int | None = Field(None, description="how many runs were counted for the facets")
    facets_are_complete: bool | None = Field(
        None,
        description="whether those are all that match. Without filters they are; with filters the newest 2,000 that "
        "match are counted",
    )


class BenchmarkRunPair(BaseModel):
    """The MLPerf runs of one system and model side by side."""

    offline: BenchmarkRunRead
    other: BenchmarkRunRead
    other_over_offline_fraction: float | None = Field(description="of output tokens per second; may pass 1 a little")


class EngineLimits(RequestModel):
    """Settings that change an engine's speed, of runs that state them."""

    max_num_seqs: Count | None = Field(None, description="the engine's limit on running sequences, of one dp rank")
    max_num_batched_tokens: Count | None = Field(None, description="the engine's limit on the tokens of one step")

    @property
    def engine_limits(self) -> dict[str, int]:
        said = {"max_num_seqs": self.max_num_seqs, "max_num_batched_tokens": self.max_num_batched_tokens}
        return {name: limit for name, limit in said.items() if limit is not None}


class MetricWrite(RequestModel):
    meaning: Choice[Meaning] = Field(description="the unit ends the name", examples=["tpot_s"])
    statistic: str = Field("mean", pattern=r"^(overall|mean|std|min|max|p\d{1,2}(\.\d{1,3})?)$", examples=["p50"])
    value: Positive = Field(examples=[0.0191])
    source_key: Text | None = None


class BenchmarkRunCreate(EngineLimits):
    """A run of your own. What is left out is unknown, and is never guessed."""

    accelerator: Name = Field(description="slug or alias")
    gpu_count: Count
    model: Name = Field(description="slug, alias or Hub name")
    scenario: Choice[RunScenario]
    metrics: list[MetricWrite] = Field(min_length=1, max_length=200)
    weights: Text | None = Field(None, description="a numeric format or the scheme of a checkpoint")
    kv_cache: Text | None = None
    compute: Text | None = None
    node_count: Count | None = None
    engine: Text | None = None
    engine_version: EngineVersion | None = None
    tp: Count | None = None
    pp: Count | None = None
    ep: Count | None = None
    dp: Count | None = None
    speculation: Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")] | None = Field(
        None, description="the method, or none"
    )
    prefix_caching: bool | None = None
    concurrency: Positive | None = None
    request_rate_per_s: Positive | None = None
    isl_mean_tokens: Positive | None = None
    isl_std_tokens: Annotated[float, Field(ge=0, le=1e15)] | None = None
    osl_mean_tokens: Positive | None = None
    osl_std_tokens: Annotated[float, Field(ge=0, le=1e15)] | None = None
    power_w: Positive | None = Field(None, description="mean over the run, of all that `power_scope` names")
    power_scope: Choice[PowerScope] | None = None
    measured_by: Text | None = None
    measured_on: Annotated[MeasuredOn, AfterValidator(measured_day)] | None = None
    source_title: Name | None = None
    source_ref: Name | None = None
    quality_remarks: list[Name] = Field(
        [], max_length=20, description="with any, the run is shown and estimates do not lean on it"
    )

    @model_validator(mode="after")
    def _power_says_its_scope(self) -> "BenchmarkRunCreate":
        if (self.power_w is None) != (self.power_scope is None):
            raise ValueError("power_w and power_scope belong together: a watt without its scope cannot be compared")
        statistics = {(each.meaning, each.statistic) for each in self.metrics}
        if len(statistics) != len(self.metrics):
            raise ValueError("metrics: one meaning and statistic is given twice")
        return self


# --- listing ---------------------------------------------------------------------------------------------------------

Figure = Literal[
    "ttft_central_s",
    "ttft_p50_s",
    "ttft_p99_s",
    "tpot_central_s",
    "tpot_p50_s",
    "tpot_mean_s",
    "tpot_p99_s",
    "output_tokens_per_s",
    "output_tokens_per_s_per_gpu",
    "output_tokens_per_s_per_user",
    "input_tokens_per_s",
    "power_w",
]
FIGURES: tuple[str, ...] = get_args(Figure)
RANGED = (*FIGURES, "concurrency", "request_rate_per_s", "isl_mean_tokens", "osl_mean_tokens", "gpu_count")
SORTS = tuple(
    sign + name for name in ("id", "measured_on", "concurrency", "isl_mean_tokens", *FIGURES) for sign in ("", "-")
)

Texts = Annotated[list[Text], Field(max_length=50)]
Counts = Annotated[list[Annotated[int, Field(ge=0, le=2**31 - 1)]], Field(max_length=50)]  # some systems have no GPU


class RunFilters(BaseModel):
    """Each may be given several times: a run matches one of the values."""

    model_config = ConfigDict(allow_inf_nan=False)

    accelerator: Texts = Field([], description="slug or alias, exactly")
    accelerator_name: Texts = Field([], description="as the source writes it: also of parts without a record")
    model: Texts = Field([], description="slug, alias or Hub name, exactly")
    model_name: Texts = Field([], description="as the source writes it: also of models without a record")
    weights: Texts = Field([], description="precision of the weights, such as fp8")
    kv_cache: Texts = Field([], description="precision of the KV cache")
    compute: Texts = Field([], description="precision of the arithmetic")
    engine: Texts = Field([], description="in lower case, such as vllm")
    engine_version: Annotated[list[EngineVersion], Field(max_length=50)] = Field([], description="such as 0.33.0")
    gpu_count: Counts = Field([], description="GPUs that the run was on")
    node_count: Counts = Field([], description="machines that the GPUs are in")
    tp: Counts = Field([], description="tensor parallelism")
    pp: Counts = Field([], description="pipeline parallelism")
    ep: Counts = Field([], description="expert parallelism")
    dp: Counts = Field([], description="data parallelism")
    speculation: Texts = Field([], description="method of speculative decoding, or none")
    prefix_caching: bool | None = Field(None, description="whether the engine reused the caches of like beginnings")
    scenario: list[RunScenario] = Field([], max_length=20, description="how the load was offered")
    mlperf_version: Texts = Field([], description="of MLPerf Inference, such as v5.1")
    mlperf_division: Texts = Field([], description="closed or open")
    mlperf_availability: Texts = Field([], description="as submitted, such as available")
    mlperf_valid: bool | None = Field(None, description="as LoadGen judged")
    submitter: Texts = Field([], description="of an MLPerf result")
    system_name: Texts = Field([], description="of an MLPerf result")
    power_scope: list[PowerScope] = Field([], max_length=4, description="what was inside the measurement of power")
    tool: Texts = Field([], description="that measured, such as vllm-bench-serve")
    origin: Origin | None = Field(None, description="shipped with a release, or stored by a user")
    calibrates: bool | None = Field(
        None, description="false: the runs that remarks on their quality keep estimates from leaning on"
    )
    content_digest: Texts = Field([], description="SHA-256 of a file")
    measured_by: Texts = Field([], description="who measured")
    measured_on: MeasuredOn | None = Field(None, description="that day, or any of that month or year")


_Ranged: Any = create_model(  # type: ignore[call-overload]  # a definition of fields by name
    "RangedRunFilters",
    __base__=RunFilters,
    **{
        f"{end}_{name}": (Annotated[float | None, Field(ge=0, description=f"{word} of `{name}`, included")], None)
        for name in RANGED
        for end, word in (("min", "lower end"), ("max", "upper end"))
    },
)


class RunsQuestion(_Ranged):
    """Filters, order, form and page of a list."""

    sort: Literal[SORTS] = Field(  # type: ignore[valid-type]  # made of the lists above
        "-id",
        description="a minus sign sorts the other way. Runs without the figure are not in the list. A sort by a figure "
        "is a ranking, and wants one `scenario`",
    )
    mixed_scenarios: bool = Field(False, description="rank runs of several scenarios all the same; each row names its")
    facets: Annotated[list[Literal[RUN_FACETS]], Field(max_length=len(RUN_FACETS))] = Field(  # type: ignore[valid-type]
        [], description="count the runs that match by these"
    )
    format: Literal["json", "csv", "parquet"] | None = Field(
        None, description="stands over Accept. CSV and Parquet hold every run that matches, not a page"
    )
    limit: int = Field(50, ge=1, le=MAX_LIMIT, description="runs per page")
    cursor: str | None = Field(
        None, max_length=1000, description="`next_cursor` of the page before, with the same filters and sort"
    )


class PairsQuestion(RunFilters):
    """Filters of the Offline run, which other scenario, and the page."""

    other: Literal["server", "interactive", "single_stream"] = "server"
    limit: int = Field(50, ge=1, le=MAX_LIMIT, description="pairs per page")
    cursor: str | None = Field(None, max_length=1000, description="`next_cursor` of the page before")
