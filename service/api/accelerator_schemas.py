"""What the accelerator routes answer, as the contract declares it."""

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from service.catalogue.accelerator_figures import Basis, Direction, ExecutionUnit, Headline
from service.catalogue.accelerator_records import Confidence, Status
from service.catalogue.sources import SourceKind
from service.catalogue.tables import Event, Origin
from service.sizing.accelerator import Kind, Topology
from service.sizing.precision import Density, Precision


class Answer(BaseModel):
    """Exactly these fields, so that the tests notice one that the contract does not declare."""

    model_config = ConfigDict(extra="forbid")


class CitedSource(Answer):
    id: str = Field(description="among the document's `sources`")
    title: str
    url: str


class SourceRead(Answer):
    id: str
    title: str
    url: str = Field(description="the first of `urls`")
    urls: list[str]
    kind: SourceKind = Field(description="how near the publisher: the vendor itself, a transcription, a tool …")
    read_on: str | None
    note: str | None


class AlternativeRead(Answer):
    """A published value that contradicts the one used; kept, never averaged."""

    capacity_bytes_per_gpu: float | None = None
    bandwidth_bytes_per_s_per_gpu: float | None = None
    bandwidth_bytes_per_s_per_gpu_one_way: float | None = None
    flop_per_s_per_gpu: float | None = None
    as_published: str | None
    note: str | None
    unverified: bool
    sources: list[CitedSource]


class MemoryRead(Answer):
    type: str
    capacity_bytes_total: float
    capacity_bytes_per_gpu: float
    usable_bytes_per_gpu: float = Field(description="what software can use; may exceed the printed decimal gigabytes")
    usable_basis: Basis
    usable_derivation: str | None
    usable_note: str | None
    usable_unverified: bool
    usable_sources: list[CitedSource]
    bandwidth_bytes_per_s_total: float | None
    bandwidth_bytes_per_s_per_gpu: float | None
    as_published: str | None
    derivation: str | None
    alternatives: list[AlternativeRead]
    notes: list[str]
    sources: list[CitedSource]


class PeakRateRead(Answer):
    precision: Precision
    execution_unit: ExecutionUnit | None = Field(description="where a vendor publishes two rates at one precision")
    density: Density
    flop_per_s_per_gpu: float
    flop_per_s_total: float
    headline: Headline = Field(description="which rate the vendor leads with")
    basis: Basis
    as_published: str | None
    derivation: str | None
    alternatives: list[AlternativeRead]
    notes: list[str]
    unverified: bool
    sources: list[CitedSource]


class BalancePointRead(Answer):
    precision: Precision
    execution_unit: ExecutionUnit | None
    density: Density
    flop_per_byte: float = Field(description="peak rate / memory bandwidth, at this precision and density")
    crossover_batches: dict[str, float] = Field(
        description="by weight format: balance point x bytes per parameter / 2, element width alone, no KV cache"
    )


class LinkRead(Answer):
    text: str | None
    bandwidth_bytes_per_s_per_gpu_one_way: float | None
    as_published: str | None
    direction_as_published: Direction | None
    derivation: str | None
    alternatives: list[AlternativeRead]
    note: str | None
    unverified: bool
    sources: list[CitedSource]


class ScaleUpRead(Answer):
    name: str
    topology: Topology | None
    bandwidth_bytes_per_s_per_gpu_one_way: float | None
    peer_bandwidth_bytes_per_s_one_way: float | None = Field(description="to a single other GPU; null when unknown")
    domain_gpu_count: int | None
    direct_peer_count: int | None = Field(description="among how many peers a GPU's links are split")
    as_published: str | None
    direction_as_published: Direction | None
    derivation: str | None
    alternatives: list[AlternativeRead]
    note: str | None
    unverified: bool
    sources: list[CitedSource]


class SystemPowerRead(Answer):
    scope: str
    power_w: float
    gpu_count: int = Field(description="GPUs that the figure covers")
    is_load: bool = Field(description="false for a rating of installed supplies")
    note: str | None
    unverified: bool
    sources: list[CitedSource]


class PowerRead(Answer):
    tdp_w_per_gpu: float | None
    tdp_unverified: bool
    vendor_term: str | None
    configurable: str | None
    system: list[SystemPowerRead]
    provisioned_w_per_gpu: float | None = Field(description="all-in, for planning feeds rather than for the bill")
    provisioned_note: str | None
    provisioned_unverified: bool
    note: str | None
    sources: list[CitedSource]


class AcceleratorRead(Answer):
    slug: str
    aliases: list[str]
    name: str
    vendor: str
    architecture: str
    kind: Kind
    form_factor: str | None
    status: Status
    status_detail: str | None
    launched_on: str | None = Field(description="a date, a month or a year")
    revision: int
    retired_at: datetime | None = Field(description="since when it can no longer be sized; null while in use")
    gpu_count: int = Field(description='GPUs in the system; "GPU" is the unit that a buyer counts')
    compute_dies_per_gpu: int
    devices_per_gpu: int = Field(description="devices that software sees in one GPU, which is what TP splits over")
    devices_per_gpu_reason: str | None
    unified_memory: bool = Field(description="the GPU shares its memory with the operating system")
    memory: MemoryRead
    peak_rates: list[PeakRateRead]
    balance_points: list[BalancePointRead]
    scale_up: ScaleUpRead
    scale_out: LinkRead
    host_link: LinkRead
    die_to_die_bandwidth_bytes_per_s: float | None
    power: PowerRead
    system_published: dict[str, str] = Field(description="rows of the vendor's system table, verbatim")
    confidence: Confidence
    unverified: list[str] = Field(description="figures that no source confirms")
    caveats: list[str]
    sources: list[SourceRead]


class MemorySummary(Answer):
    type: str
    capacity_bytes_total: float
    capacity_bytes_per_gpu: float
    usable_bytes_per_gpu: float
    usable_basis: Basis
    bandwidth_bytes_per_s_per_gpu: float | None


class PeakRateSummary(Answer):
    precision: Precision
    execution_unit: ExecutionUnit | None
    density: Density
    flop_per_s_per_gpu: float
    unverified: bool


class ScaleUpSummary(Answer):
    name: str
    topology: Topology | None
    bandwidth_bytes_per_s_per_gpu_one_way: float | None
    peer_bandwidth_bytes_per_s_one_way: float | None
    domain_gpu_count: int | None


class PowerSummary(Answer):
    tdp_w_per_gpu: float | None
    provisioned_w_per_gpu: float | None


class AcceleratorSummary(Answer):
    """The figures of the record without their provenance, in the same places."""

    slug: str
    aliases: list[str]
    name: str
    vendor: str
    architecture: str
    kind: Kind
    status: Status
    revision: int
    gpu_count: int
    devices_per_gpu: int
    unified_memory: bool
    memory: MemorySummary
    peak_rates: list[PeakRateSummary]
    scale_up: ScaleUpSummary
    power: PowerSummary
    confidence: Confidence


class AcceleratorRevisionRead(Answer):
    revision: int
    event: Event
    origin: Origin = Field(description="shipped with a release of this service, or written by a user")
    created_at: datetime


class AcceleratorRevisions(Answer):
    slug: str
    revisions: list[AcceleratorRevisionRead] = Field(description="newest first")
