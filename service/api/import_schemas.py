"""What is said beside the files of an import, and the report that answers it."""

import re
from datetime import timedelta
from typing import Annotated

from pydantic import AwareDatetime, BaseModel, Discriminator, Field

from service.api.benchmark_run_document import known_precision
from service.api.benchmark_run_schemas import Count, EngineLimits, Name, Positive, Text
from service.api.imported_runs import Said
from service.api.problems import named_in_body
from service.api.request_forms import AsObject, AsWord, word_or_object
from service.api.strict_json import Choice, RequestModel
from service.catalogue.snapshot import Snapshot
from service.imports import Ask, Kind, Metadata, Scenario

UTC_OFFSET = re.compile(r"([+-])(\d{2}):(\d{2})")


class PrecisionSaid(RequestModel):
    weights: Text | None = None
    kv_cache: Text | None = None
    compute: Text | None = None


PrecisionOf = Annotated[Annotated[Text, AsWord] | Annotated[PrecisionSaid, AsObject], Discriminator(word_or_object)]


class ImportMetadata(EngineLimits):
    """What the files do not say. It fills what they leave open, and changes no figure that they state."""

    accelerator: Name | None = Field(None, description="slug or alias")
    gpu_count: Count | None = None
    node_count: Count | None = None
    model: Name | None = Field(None, description="slug, alias or Hub name")
    precision: PrecisionOf | None = Field(None, description="of the weights, or of weights, KV cache and compute")
    engine: Text | None = None
    engine_version: Text | None = None
    tool_version: Text | None = None
    tp: Count | None = None
    pp: Count | None = None
    ep: Count | None = None
    dp: Count | None = None
    isl_tokens: Positive | None = Field(None, description="mean")
    osl_tokens: Positive | None = Field(None, description="mean")
    batch: Count | None = None
    concurrency: Positive | None = None
    request_rate_per_s: Positive | None = None
    scenario: Choice[Scenario] | None = None
    output_tokens_per_s: Positive | None = None
    started_at: Choice[AwareDatetime] | None = None
    finished_at: Choice[AwareDatetime] | None = None
    duration_s: Positive | None = None
    failed_count: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    speculation: Text | None = Field(None, description="the method, or none")
    prefix_caching: bool | None = None
    utc_offset: Annotated[str, Field(pattern=r"^[+-]([01]\d|2[0-3]):[0-5]\d$")] | None = Field(
        None, description="of clock readings that files state without a zone, such as +02:00"
    )
    measured_by: Text | None = None
    source_title: Name | None = None
    source_ref: Name | None = None
    kind: Choice[Kind] | None = Field(None, description="of every file; left out, told by the content")
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

    def for_importers(self) -> Metadata:
        precision = self._precision
        return Metadata(
            accelerator=self.accelerator,
            gpu_count=self.gpu_count,
            node_count=self.node_count,
            model=self.model,
            precision=known_precision(precision.weights, "metadata", "precision"),
            kv_precision=known_precision(precision.kv_cache, "metadata", "precision", "kv_cache"),
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
            speculative_decoding=self.speculation,
            utc_offset=_offset(self.utc_offset),
            nobody_knows=frozenset(self.nobody_knows),
        )


def _offset(text: str | None) -> timedelta | None:
    if text is None or not (match := UTC_OFFSET.fullmatch(text)):
        return None
    size = timedelta(hours=int(match[2]), minutes=int(match[3]))
    return -size if match[1] == "-" else size


class ImportedRunRead(BaseModel):
    id: str
    already_stored: bool = Field(description="by an earlier import of the same content")
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
