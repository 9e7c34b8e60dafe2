"""What an accelerator is, for the calculation: per GPU, in base units, without its sources."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from service.errors import RateNotPublished
from service.sizing.precision import Density, Precision


class Kind(StrEnum):
    """What one orders: a chip on a baseboard, a card, a module with its CPU, or a whole rack."""

    CHIP = "chip"
    BOARD = "board"
    SUPERCHIP = "superchip"
    RACK = "rack"


class Topology(StrEnum):
    """How the GPUs of a scale-up domain reach each other."""

    SWITCHED = "switched"  # any group has each member's full link
    DIRECT = "direct"  # full mesh of peer links: a group of g uses g - 1 of them
    BRIDGE = "bridge"  # a link between the two to four cards that share a bridge
    TORUS = "torus"
    RING = "ring"
    PCIE = "pcie"  # the host's bus
    NONE = "none"  # a single device


@dataclass(frozen=True, slots=True)
class ScaleUp:
    """The memory-speed fabric of the accelerators that act as one machine.

    ``bandwidth_bytes_per_s_per_gpu_one_way`` is what one GPU can send in all, ``peer_…`` what it can
    send to a single other one. ``None`` where the vendor publishes neither.
    """

    name: str
    topology: Topology
    domain_gpu_count: int
    bandwidth_bytes_per_s_per_gpu_one_way: float | None = None
    peer_bandwidth_bytes_per_s_one_way: float | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Accelerator:
    """One GPU of a system, and the system it comes in; compared by identity, as models are.

    "GPU" is the unit that a buyer counts; ``devices_per_gpu`` is how many devices software sees in it.
    ``unverified_figures`` names those that no source of weight carries, as paths of the catalogue's record.
    ``usable_memory_bytes`` is what a driver reports (measured, or derived and said so in its sources).
    """

    slug: str
    name: str
    vendor: str
    architecture: str
    kind: Kind
    gpu_count: int
    memory_capacity_bytes: float
    usable_memory_bytes: float
    memory_bandwidth_bytes_per_s: float | None
    scale_up: ScaleUp
    peak_rates_flop_per_s: Mapping[tuple[Precision, Density], float] = field(default_factory=dict)
    host_link_bytes_per_s_one_way: float | None = None
    scale_out_bytes_per_s_one_way: float | None = None
    devices_per_gpu: int = 1
    unified_memory: bool = False
    tdp_w: float | None = None
    system_power_w_per_gpu: float | None = None
    provisioned_w_per_gpu: float | None = None
    unverified_figures: frozenset[str] = frozenset()

    def peak_flop_per_s(self, precision: Precision, density: Density) -> float:
        """The published rate, or an error that lists what is published: never a ratio of another rate."""
        rate = self.peak_rates_flop_per_s.get((precision, density))
        if rate is None:
            published = ", ".join(f"{p} {d}" for p, d in self.peak_rates_flop_per_s) or "no rate at all"
            raise RateNotPublished(
                f"{self.slug} has no published {density} rate at {precision}; published: {published}",
                field=("precision", "compute"),
            )
        return rate

    def has_rate(self, precision: Precision, density: Density) -> bool:
        return (precision, density) in self.peak_rates_flop_per_s
