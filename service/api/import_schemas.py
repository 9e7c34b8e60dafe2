"""What is said beside the files of an import, and the report that answers it."""

import re
from datetime import timedelta
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BaseModel, Discriminator, Field

from service.api.benchmark_run_document import known_precision
from service.api.benchmark_run_schemas import Count, EngineLimits, EngineVersion, Name, Positive, Text
from service.api.imported_runs import Said
from service.api.measured_time import measured_at
from service.api.problems import named_in_body
from service.api.request_forms import AsObject, AsWord, word_or_object
from service.api.strict_json import Choice, RequestModel
from service.catalogue.snapshot import Snapshot
from service.errors import Invalid
from service.imports import Ask, Kind, Metadata, Scenario

Moment = Annotated[Choice[AwareDatetime], AfterValidator(measured_at)]
UTC_OFFSET = re.compile(r"([+-])(\d{2}):(\d{2})")


class PrecisionSaid(RequestModel):
    weights: Text | None = Field(None, description="of the weights, such as fp8 or awq-int4", examples=["fp8"])
    kv_cache: Text | None = Field(None, description="of the KV cache, such as fp8")
    compute: Text | None = Field(None, description="of the arithmetic, such as bf16")


PrecisionOf = Annotated[Annotated[Text, AsWord] | Annotated[PrecisionSaid, AsObject], Discriminator(word_or_object)]


class ImportMetadata(EngineLimits):
    """What the files do not say. It fills what they leave open, and changes no figure that they state."""

    accelerator: Name | None = Field(None, description="slug or alias, such as h100-sxm")
    gpu_count: Count | None = Field(None, description="GPUs that the run was on")
    node_count: Count | None = Field(None, description="machines that the GPUs are in")
    model: Name | None = Field(None, description="slug, alias or Hub name")
    precision: PrecisionOf | None = Field(None, description="of the weights, or of weights, KV cache and compute")
    engine: Text | None = Field(None, description="such as vllm")
    engine_version: EngineVersion | None = Field(None, description="such as 0.33.0, of llama.cpp the build: b5000")
    tool_version: Text | None = Field(None, description="of the benchmark tool")
    tp: Count | None = Field(None, description="tensor parallelism")
    pp: Count | None = Field(None, description="pipeline parallelism")
    ep: Count | None = Field(None, description="expert parallelism")
    dp: Count | None = Field(None, description="data parallelism")
    isl_tokens: Positive | None = Field(None, description="mean input length")
    osl_tokens: Positive | None = Field(None, description="mean output length")
    batch: Count | None = Field(None, description="sequences of a static batch")
    concurrency: Positive | None = Field(None, description="limit on the requests in flight")
    request_rate_per_s: Positive | None = Field(None, description="rate at which requests were sent")
    scenario: Choice[Scenario] | None = Field(None, description="how the load was offered")
    output_tokens_per_s: Positive | None = Field(None, description="of all requests together")
    started_at: Moment | None = Field(None, description="with its zone: 2026-12-01T09:30:00+01:00")
    finished_at: Moment | None = Field(None, description="with its zone: 2026-12-01T09:45:00+01:00")
    duration_s: Positive | None = Field(None, description="from the first request to the last answer")
    failed_count: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = Field(
        None, description="requests that failed; 0 where none did"
    )
    speculation: Text | None = Field(None, description="method of speculative decoding, or none")
    prefix_caching: bool | None = Field(None, description="whether the engine reused the caches of like beginnings")
    utc_offset: Annotated[str, Field(pattern=r"^[+-]([01]\d|2[0-3]):[0-5]\d$", examples=["+01:00"])] | None = Field(
        None, description="of clock readings that files state without a zone, such as +02:00"
    )
    measured_by: Text | None = Field(None, description="who measured")
    source_title: Name | None = Field(None, description="where the runs were published")
    source_ref: Name | None = Field(None, description="its address")
    kind: Choice[Kind] | None = Field(None, description="tool that wrote every file; left out, told by the content")
    nobody_knows: list[Choice[Ask]] = Field(
        [], max_length=30, description="fields that were asked for and that nobody knows: stored as unknown"
    )

    @property
    def _precision(self) -> PrecisionSaid:
        if self.precision is None or isinstance(self.precision, PrecisionSaid):
            return self.precision or PrecisionSaid()
        return PrecisionSaid(weights=self.precision)

    def resolved(self, snapshot: Snapshot) -> Said:
        """The records that are named. Unknown ones are a problem of the metadata, not of a file."""
        self._refuse_contradictions()
        with named_in_body("metadata", "accelerator"):
            accelerator = snapshot.accelerator(self.accelerator) if self.accelerator else None
        with named_in_body("metadata", "model"):
            model = snapshot.language_model(self.model) if self.model else None
        return Said(
            accelerator=accelerator,
            model=model,
            compute=known_precision(self._precision.compute, "metadata", "precision", "compute"),
            prefix_caching=self.prefix_caching,
            engine_limits=self.engine_limits,
            measured_by=self.measured_by,
            source_title=self.source_title,
            source_ref=self.source_ref,
        )

    def _refuse_contradictions(self) -> None:
        if self.started_at and self.finished_at and self.finished_at < self.started_at:
            raise Invalid("`finished_at` is before `started_at`", field=("metadata", "finished_at"))
        if self.node_count and self.gpu_count and self.node_count > self.gpu_count:
            raise Invalid(
                f"{self.node_count} machines for {self.gpu_count} GPUs: `gpu_count` is of all machines together",
                field=("metadata", "node_count"),
            )

    def for_importers(self) -> Metadata:
        precision = self._precision
        return Metadata(
            accelerator=self.accelerator,
            gpu_count=self.gpu_count,
            node_count=self.node_count,
            model=self.model,
            precision=known_precision(precision.weights, "metadata", "precision"),
            kv_cache=known_precision(precision.kv_cache, "metadata", "precision", "kv_cache"),
            engine=self.engine.lower() if self.engine else None,
            engine_version=self.engine_version,
            tool_version=self.tool_version,
            tp=self.tp,
            pp=self.pp,
            ep=self.ep,
            dp=self.dp,
            isl_tokens=self.isl_tokens,
            osl_tokens=self.osl_tokens,
            batch=self.batch,
            concurrency=self.concurrency,
            request_rate_per_s=self.request_rate_per_s,
            scenario=self.scenario,
            output_tokens_per_s=self.output_tokens_per_s,
            started_at=self.started_at,
            finished_at=self.finished_at,
            duration_s=self.duration_s,
            failed_count=self.failed_count,
            speculation=self.speculation,
            utc_offset=_offset(self.utc_offset),
            nobody_knows=frozenset(self.nobody_knows),
        )


def _offset(text: str | None) -> timedelta | None:
    if text is None or not (match := UTC_OFFSET.fullmatch(text)):
        return None
    size = timedelta(hours=int(match[2]), minutes=int(match[3]))
    return -size if match[1] == "-" else size


class NotTakenOver(BaseModel):
    """What an import says of a run that is stored already; the run says something else, and keeps it."""

    field: str = Field(description="of the run, or of its `extras`")
    stored: str | int | float | bool | None
    sent: str | int | float | bool


class ImportedRunRead(BaseModel):
    id: str
    already_stored: bool = Field(description="by an earlier import of the same content; the run is not changed")
    not_taken_over: list[NotTakenOver] = Field(
        description="what this import says otherwise of a run that is stored already: to store that, delete the run "
        "and import the file again"
    )
    not_leant_on: list[str] = Field(description="why estimates do not lean on it, or on a part of it; empty: they do")


class ImportedFileRead(BaseModel):
    """What became of one file; each file of an archive has its own."""

    name: str
    kind: Kind | None = Field(description="the tool, and where it writes several, the layout of its file")
    accepted: bool = Field(description="its runs are stored")
    content_digest: str = Field(description="SHA-256; empty where the content could not be read")
    runs: list[ImportedRunRead]
    missing: list[Ask] = Field(description="fields of the metadata that the file leaves open")
    suggested: dict[str, str | int] = Field(description="answers to them that the file hints at, for you to judge")
    warnings: list[str]
    reason: str | None = Field(description="why it was not accepted")


class ImportReport(BaseModel):
    files: list[ImportedFileRead]
