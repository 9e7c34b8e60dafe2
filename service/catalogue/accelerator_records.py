"""The form of an accelerator record: of a YAML file in ``data/accelerators`` and of the body of a write.

Loading refuses a bad file by name, field and reason. A record is self-contained: its sources stand in it.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, model_validator

from service.catalogue.accelerator_figures import (
    BandwidthFigure,
    ExecutionUnit,
    Figure,
    GpuCount,
    LinkFigure,
    LinkPart,
    Memory,
    Power,
    Rate,
    RecordPart,
    ScaleUpPart,
    Text,
)
from service.catalogue.sources import Many, Source, SourceId, load_sources, read_catalogue_yaml
from service.errors import CatalogueFileInvalid
from service.sizing.accelerator import Accelerator, Kind, ScaleUp, Topology
from service.sizing.precision import Density, Precision

SHIPPED_RECORDS = Path(__file__).parent / "data" / "accelerators"
USABLE_OF_PRINTED_LIMIT = 1.08  # 2**30 / 10**9 = 1.0737: a driver's GiB against a page's GB

Slug = Annotated[str, Field(pattern=r"^[a-z0-9](?:[a-z0-9.-]{0,62}[a-z0-9])?$")]


class Status(StrEnum):
    """Where a part stands in its life."""

    SHIPPING = "shipping"
    ANNOUNCED = "announced"
    EXPORT_CONTROLLED = "export_controlled"
    END_OF_SALE = "end_of_sale"
    REMOVED = "removed"


class Confidence(StrEnum):
    """How well the record as a whole is supported; single figures may be marked weaker."""

    VENDOR_PUBLISHED = "vendor-published"
    CROSS_CHECKED_SECONDARY = "cross-checked-secondary"
    SINGLE_SECONDARY = "single-secondary"
    FROM_MEMORY = "from-memory"


class Launch(RecordPart):
    """A date, or a year and month, or a year."""

    date: str = Field(pattern=r"^\d{4}(-\d{2}(-\d{2})?)?$", examples=["2026-12-01"])
    sources: Many[SourceId] = ()
    unverified: bool = False


class AcceleratorRecord(RecordPart):
    """One accelerator or system, every figure with its source."""

    slug: Slug = Field(examples=["gb200-nvl72"])
    name: Text
    aliases: Many[Slug] = ()
    vendor: Text
    architecture: Text
    kind: Annotated[Kind, Field(strict=False)]
    form_factor: Text | None = None
    status: Annotated[Status, Field(strict=False)]
    status_detail: Text | None = None
    launch: Launch | None = None
    gpu_count: GpuCount
    compute_dies_per_gpu: Annotated[int, Field(ge=1, le=1000)] = 1
    devices_per_gpu: Annotated[int, Field(ge=1, le=1000)] = 1
    devices_per_gpu_reason: Text | None = None
    unified_memory: bool = False
    memory: Memory
    peak_rates: Many[Rate] = ()
    scale_up: ScaleUpPart
    scale_out: LinkPart | None = None
    host_link: LinkPart | None = None
    die_to_die: BandwidthFigure | None = None
    power: Power = Power()
    system_published: dict[Text, Text] = Field(default_factory=dict, description="rows of the vendor's system table")
    confidence: Annotated[Confidence, Field(strict=False)]
    caveats: Many[Text] = ()
    sources: Many[Source] = ()

    def figures(self) -> Iterator[tuple[str, Figure, tuple[str, ...], bool]]:
        """Every figure: its path, itself, the source ids that hold for it, whether it is marked unverified."""
        memory, power = self.memory, self.power
        parts: dict[str, Figure | None] = {
            "memory.capacity": memory.capacity,
            "memory.usable": memory.usable,
            "memory.bandwidth": memory.bandwidth,
            "scale_up.bandwidth": self.scale_up.bandwidth,
            "scale_out.bandwidth": _bandwidth(self.scale_out),
            "host_link.bandwidth": _bandwidth(self.host_link),
            "die_to_die": self.die_to_die,
            "power.tdp": power.tdp,
            "power.provisioned": power.provisioned,
        }
        for path, figure in parts.items():
            if figure is not None:
                yield path, figure, figure.sources, figure.unverified
        for rate in self.peak_rates:
            for density, peak in rate.by_density():
                path = f"peak_rates.{rate.precision}.{density}"
                yield path, peak, peak.sources or rate.sources, peak.unverified or rate.unverified

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        for check in (_names_clash, _rates_clash, _usable_is_impossible, _sources_are_missing):
            if reason := check(self):
                raise ValueError(reason)
        for path, figure, _, _ in self.figures():
            if reason := figure.disagreement(self.gpu_count):
                raise ValueError(f"{path}: {reason}")
        if self.devices_per_gpu > 1 and self.devices_per_gpu_reason is None:
            raise ValueError("devices_per_gpu above 1 needs devices_per_gpu_reason")
        return self

    def to_accelerator(self) -> Accelerator:
        """Per GPU, in base units, for the calculation. A rate that only exists sparse has no dense entry."""
        count, memory, power = self.gpu_count, self.memory, self.power
        return Accelerator(
            slug=self.slug,
            name=self.name,
            vendor=self.vendor,
            architecture=self.architecture,
            kind=self.kind,
            gpu_count=count,
            memory_capacity_bytes=memory.capacity.value_per_gpu(count),
            usable_memory_bytes=memory.usable.value_per_gpu(count),
            memory_bandwidth_bytes_per_s=_per_gpu(memory.bandwidth, count),
            scale_up=self._scale_up(),
            peak_rates_flop_per_s=self._peak_rates_flop_per_s(),
            host_link_bytes_per_s_one_way=_one_way(_bandwidth(self.host_link), count),
            scale_out_bytes_per_s_one_way=_one_way(_bandwidth(self.scale_out), count),
            devices_per_gpu=self.devices_per_gpu,
            unified_memory=self.unified_memory,
            tdp_w=_per_gpu(power.tdp, count),
            system_power_w_per_gpu=power.system_w_per_gpu(),
            provisioned_w_per_gpu=_per_gpu(power.provisioned, count),
            unverified_figures=frozenset(path for path, _, _, unverified in self.figures() if unverified),
        )

    def _scale_up(self) -> ScaleUp:
        """Where topology or domain are unknown, only what is certain: a single GPU, or the system's own."""
        part = self.scale_up
        if part.topology is None:
            return ScaleUp(name=part.name, topology=Topology.NONE, domain_gpu_count=1)
        return ScaleUp(
            name=part.name,
            topology=part.topology,
            domain_gpu_count=part.domain_gpu_count or self.gpu_count,
            bandwidth_bytes_per_s_per_gpu_one_way=_one_way(part.bandwidth, self.gpu_count),
            peer_bandwidth_bytes_per_s_one_way=self.peer_bandwidth_bytes_per_s_one_way(),
        )

    def peer_bandwidth_bytes_per_s_one_way(self) -> float | None:
        """What one GPU can send to a single other one: all of a switched link, else its share of direct links."""
        part = self.scale_up
        if part.bandwidth is None:
            return None
        link = part.bandwidth.one_way_per_gpu(self.gpu_count)
        if part.topology in (Topology.SWITCHED, Topology.PCIE):
            return link
        return link / part.direct_peer_count if part.direct_peer_count else None

    def _peak_rates_flop_per_s(self) -> dict[tuple[Precision, Density], float]:
        """Of two execution units at one precision the matrix units count: they do a model's multiplications."""
        rates = {}
        for rate in sorted(self.peak_rates, key=lambda each: each.execution_unit is ExecutionUnit.MATRIX):
            for density, figure in rate.by_density():
                rates[rate.precision, density] = figure.value_per_gpu(self.gpu_count)
        return rates


def _per_gpu(figure: Figure | None, gpu_count: int) -> float | None:
    return None if figure is None else figure.value_per_gpu(gpu_count)


def _one_way(link: LinkFigure | None, gpu_count: int) -> float | None:
    return None if link is None else link.one_way_per_gpu(gpu_count)


def _bandwidth(link: LinkPart | None) -> LinkFigure | None:
    return None if link is None else link.bandwidth


def _names_clash(record: AcceleratorRecord) -> str | None:
    names = (record.slug, *record.aliases)
    return None if len(set(names)) == len(names) else "a name stands twice among slug and aliases"


def _rates_clash(record: AcceleratorRecord) -> str | None:
    keys = [(rate.precision, rate.execution_unit) for rate in record.peak_rates]
    twice = {f"{precision}" for precision, unit in keys if keys.count((precision, unit)) > 1}
    return f"peak_rates: written twice: {', '.join(sorted(twice))}" if twice else None


def _usable_is_impossible(record: AcceleratorRecord) -> str | None:
    usable = record.memory.usable.value_per_gpu(record.gpu_count)
    printed = record.memory.capacity.value_per_gpu(record.gpu_count)
    if usable <= printed * USABLE_OF_PRINTED_LIMIT:
        return None
    return f"memory.usable: {usable:g} bytes per GPU exceed the {printed:g} that the capacity allows"


def _sources_are_missing(record: AcceleratorRecord) -> str | None:
    known = [source.id for source in record.sources]
    if len(set(known)) < len(known):
        return "sources: an id stands twice"
    cited = [(path, sources) for path, _, sources, _ in record.figures()]
    cited += [(f"power.system.{each.scope}", each.sources) for each in record.power.system]
    cited += [
        (f"{path}.alternatives", alternative.sources)
        for path, figure, _, _ in record.figures()
        for alternative in figure.alternatives
    ]
    cited += [("launch", record.launch.sources)] if record.launch else []
    cited += [("scale_up", record.scale_up.sources)]
    for path, sources in cited:
        for source_id in sources:
            if source_id not in known:
                return f"{path}: the source {source_id!r} is not among the record's sources"
    for path, _, sources, unverified in record.figures():
        if not sources and not unverified:
            return f"{path}: has no source; name one, or mark the figure unverified"
    for each in record.power.system:
        if not each.sources and not each.unverified:
            return f"power.system.{each.scope}: has no source; name one, or mark it unverified"
    return None


def load_accelerator_records(
    directory: Path = SHIPPED_RECORDS, *, sources: Mapping[str, Source] | None = None
) -> dict[str, AcceleratorRecord]:
    """All records of the directory's YAML files by slug, or ``CatalogueFileInvalid`` for the first bad one.

    A file holds one record or a list of them. ``sources`` in a file lists ids of the registry.
    """
    registry = load_sources() if sources is None else sources
    records: dict[str, AcceleratorRecord] = {}
    owners: dict[str, str] = {}
    for path in sorted(directory.glob("*.yaml")):
        content = read_catalogue_yaml(path)
        for entry in content if isinstance(content, list) else [content]:
            record = _read_record(path.name, entry, registry)
            for name in (record.slug, *record.aliases):
                if name in owners:
                    raise CatalogueFileInvalid(path.name, "slug", f"{name!r} already belongs to {owners[name]}")
                owners[name] = record.slug
            records[record.slug] = record
    return records


def _read_record(file: str, entry: Any, registry: Mapping[str, Source]) -> AcceleratorRecord:
    if not isinstance(entry, dict):
        raise CatalogueFileInvalid(file, "(file)", "must be a record, or a list of records")
    cited = entry.get("sources", [])
    if not isinstance(cited, list):
        raise CatalogueFileInvalid(file, "sources", "must be a list of source ids")
    for source_id in cited:
        if not isinstance(source_id, str) or source_id not in registry:
            raise CatalogueFileInvalid(file, "sources", f"{source_id!r} is not an id of the registry of sources")
    try:
        return AcceleratorRecord.model_validate({**entry, "sources": [registry[source_id] for source_id in cited]})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or str(entry.get("slug", "(record)"))
        raise CatalogueFileInvalid(file, field, first["msg"].removeprefix("Value error, ")) from error
