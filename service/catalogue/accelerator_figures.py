"""The parts of an accelerator record: a figure as it was published, and what one GPU's share of it is.

A figure keeps what was printed (``"13.4 TB"`` for 72 GPUs) and is divided only when it is read, so that the
total stays the published one and the share names its division.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from service.catalogue.quantities import Quantity, Unit, read_quantity
from service.catalogue.sources import Many, SourceId
from service.errors import Invalid
from service.sizing.accelerator import Topology
from service.sizing.precision import Density, Precision

Written = Annotated[
    float | str,
    Field(description='a published quantity such as "13.4 TB" or "720 PFLOPS", or a number in base units'),
]
Text = Annotated[str, Field(min_length=1, max_length=2000)]
GpuCount = Annotated[int, Field(ge=1, le=1_000_000)]


class Basis(StrEnum):
    """How the written value came about."""

    PUBLISHED = "published"
    HALVED_BY_FOOTNOTE = "halved_by_footnote"  # the vendor prints sparse and notes that dense is one half of it
    DERIVED = "derived"  # worked out; the derivation says how
    MEASURED = "measured"  # printed by an inference engine on the device
    DRIVER_REPORTED = "driver_reported"


class Headline(StrEnum):
    """Which rate the vendor leads with."""

    DENSE = "dense"
    SPARSE = "sparse"
    BOTH = "both"
    UNSTATED = "unstated"


class ExecutionUnit(StrEnum):
    """Which units reach the rate, where a vendor publishes two at one precision."""

    VECTOR = "vector"
    MATRIX = "matrix"


class Direction(StrEnum):
    """What a printed link bandwidth counts."""

    ONE_WAY = "one_way"
    BIDIRECTIONAL = "bidirectional"


class RecordPart(BaseModel):
    """Refuses unknown keys, numbers in quotes, NaN and infinity."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, frozen=True)


def readable(written: str | float, unit: Unit) -> Quantity:
    """As ``read_quantity``, failing the way a validator must."""
    try:
        return read_quantity(written, unit)
    except Invalid as error:
        raise ValueError(error.detail) from error


class Alternative(RecordPart):
    """A published value that contradicts the one used; kept, never averaged."""

    per_gpu: Written | None = None
    total: Written | None = None
    as_published: Text | None = None
    note: Text | None = None
    sources: Many[SourceId] = ()
    unverified: bool = False

    @model_validator(mode="after")
    def _names_one_value(self) -> Self:
        if (self.per_gpu is None) == (self.total is None):
            raise ValueError("give either per_gpu or total")
        return self


class Figure(RecordPart):
    """A published figure. ``total`` is of ``total_gpu_count`` GPUs, by default of all in the system."""

    unit: ClassVar[Unit]

    per_gpu: Written | None = None
    total: Written | None = None
    total_gpu_count: GpuCount | None = None
    basis: Annotated[Basis, Field(strict=False)] = Basis.PUBLISHED
    derivation: Text | None = Field(None, description="how the written value was worked out of the printed ones")
    as_published: Text | None = Field(None, description="the vendor's words, verbatim")
    alternatives: Many[Alternative] = ()
    note: Text | None = None
    sources: Many[SourceId] = Field((), description="ids among the record's sources")
    unverified: bool = Field(False, description="recalled or inferred; no source confirms it")

    @model_validator(mode="after")
    def _is_readable(self) -> Self:
        if self.per_gpu is None and self.total is None:
            raise ValueError("give per_gpu or total; leave the figure out where it is unknown")
        for written in (self.per_gpu, self.total):
            if written is not None:
                readable(written, self.unit)
        for alternative in self.alternatives:
            for written in (alternative.per_gpu, alternative.total):
                if written is not None:
                    readable(written, self.unit)
        if self.basis in (Basis.DERIVED, Basis.HALVED_BY_FOOTNOTE) and self.derivation is None:
            raise ValueError(f"a figure whose basis is {self.basis} needs its derivation")
        return self

    def value_per_gpu(self, gpu_count: int) -> float:
        """One GPU's share in base units: the printed one, else the total divided."""
        if self.per_gpu is not None:
            return read_quantity(self.per_gpu, self.unit).value
        return self.printed_total().value / (self.total_gpu_count or gpu_count)

    def value_total(self, gpu_count: int) -> float:
        """Of the whole system: the printed total if it is of just that many GPUs, else shares added up."""
        if self.total is not None and self.total_gpu_count in (None, gpu_count):
            return self.printed_total().value
        return self.value_per_gpu(gpu_count) * gpu_count

    def derivation_per_gpu(self, gpu_count: int) -> str | None:
        """How the share follows from what was printed, such as ``13.4 TB / 72``."""
        if self.per_gpu is not None or self.total is None:
            return self.derivation
        total = self.derivation or (self.total if isinstance(self.total, str) else f"{self.total:g} {self.unit}")
        return f"{total} / {self.total_gpu_count or gpu_count}"

    def printed_total(self) -> Quantity:
        if self.total is None:
            raise ValueError("the figure has no printed total")
        return read_quantity(self.total, self.unit)

    def disagreement(self, gpu_count: int) -> str | None:
        """Says so where total and share are both printed and differ by more than their last printed digits.

        The total may be off by one step of its last digit, each share by half a step of its own.
        """
        if self.per_gpu is None or self.total is None:
            return None
        count = self.total_gpu_count or gpu_count
        total, share = self.printed_total(), read_quantity(self.per_gpu, self.unit)
        tolerance = total.last_digit + count * share.last_digit / 2 + 1e-9 * total.value
        if abs(share.value * count - total.value) <= tolerance:
            return None
        return f"{self.per_gpu} per GPU times {count} is not the printed total of {self.total}"


class CapacityFigure(Figure):
    unit = Unit.BYTE


class BandwidthFigure(Figure):
    unit = Unit.BYTE_PER_S


class RateFigure(Figure):
    unit = Unit.FLOP_PER_S


class PowerFigure(Figure):
    unit = Unit.WATT


class LinkFigure(Figure):
    """A link's bandwidth; vendors print it in one direction or both."""

    unit = Unit.BYTE_PER_S

    direction: Annotated[Direction, Field(strict=False)]

    def one_way_per_gpu(self, gpu_count: int) -> float:
        value = self.value_per_gpu(gpu_count)
        return value / 2 if self.direction is Direction.BIDIRECTIONAL else value

    def one_way_derivation(self, gpu_count: int) -> str | None:
        derivation = self.derivation_per_gpu(gpu_count)
        if self.direction is Direction.ONE_WAY:
            return derivation
        return f"{derivation or self.per_gpu} / 2 directions"


class Rate(RecordPart):
    """The peak at one precision: dense and sparse apart, whichever of them was published."""

    precision: Annotated[Precision, Field(strict=False)]
    execution_unit: Annotated[ExecutionUnit | None, Field(strict=False)] = None
    headline: Annotated[Headline, Field(strict=False)]
    as_published: Text | None = None
    dense: RateFigure | None = None
    sparse: RateFigure | None = None
    note: Text | None = None
    sources: Many[SourceId] = ()
    unverified: bool = False

    def by_density(self) -> Iterator[tuple[Density, RateFigure]]:
        if self.dense is not None:
            yield Density.DENSE, self.dense
        if self.sparse is not None:
            yield Density.SPARSE, self.sparse

    @model_validator(mode="after")
    def _densities_agree(self) -> Self:
        if self.dense is None and self.sparse is None:
            raise ValueError("give the dense or the sparse rate")
        if self.dense is None or self.sparse is None:
            if self.dense is not None and self.dense.basis is Basis.HALVED_BY_FOOTNOTE:
                raise ValueError("dense is said to be half of a sparse rate that is not given")
            return self
        dense, sparse = self.dense.value_per_gpu(1), self.sparse.value_per_gpu(1)
        if self.dense.total_gpu_count == self.sparse.total_gpu_count and sparse < dense:
            raise ValueError("the sparse rate is below the dense one")
        if self.dense.basis is Basis.HALVED_BY_FOOTNOTE and abs(dense * 2 - sparse) > 0.01 * sparse:
            raise ValueError("dense is said to be half of sparse by the vendor's footnote, and is not")
        return self


class Memory(RecordPart):
    type: Text
    capacity: CapacityFigure
    usable: CapacityFigure = Field(description="what software can use, on its own evidence")
    bandwidth: BandwidthFigure | None = None
    as_published: Text | None = None
    note: Text | None = None


class ScaleUpPart(RecordPart):
    """The memory-speed fabric. ``direct_peer_count`` is among how many peers a GPU's links are split."""

    name: Text
    topology: Annotated[Topology | None, Field(strict=False)] = None
    domain_gpu_count: GpuCount | None = None
    direct_peer_count: GpuCount | None = None
    bandwidth: LinkFigure | None = None
    note: Text | None = None
    sources: Many[SourceId] = ()
    unverified: bool = False

    @model_validator(mode="after")
    def _peers_fit_the_domain(self) -> Self:
        peers, domain = self.direct_peer_count, self.domain_gpu_count
        if peers is not None and domain is not None and peers >= domain:
            raise ValueError("direct_peer_count must be below domain_gpu_count")
        return self


class LinkPart(RecordPart):
    """A link out of the domain or to the host: the vendor's words, and the number where they give one."""

    text: Text
    bandwidth: LinkFigure | None = None


class SystemPower(RecordPart):
    """Power of a board, node or rack. ``is_load`` is false for ratings of installed supplies."""

    scope: Annotated[str, Field(pattern=r"^[a-z0-9_]{1,60}$")]
    power: Written
    gpu_count: GpuCount
    is_load: bool = True
    note: Text | None = None
    sources: Many[SourceId] = ()
    unverified: bool = False

    @model_validator(mode="after")
    def _is_readable(self) -> Self:
        readable(self.power, Unit.WATT)
        return self

    @property
    def power_w(self) -> float:
        return read_quantity(self.power, Unit.WATT).value


class Power(RecordPart):
    """``tdp`` is absent where the vendor publishes none. The first load of ``system`` is used in sizing."""

    tdp: PowerFigure | None = None
    vendor_term: Text | None = None
    configurable: Text | None = None
    system: Many[SystemPower] = ()
    provisioned: PowerFigure | None = None
    note: Text | None = None

    def system_w_per_gpu(self) -> float | None:
        loads = [each for each in self.system if each.is_load]
        return loads[0].power_w / loads[0].gpu_count if loads else None
