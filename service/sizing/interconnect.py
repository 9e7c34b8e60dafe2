"""What a group of devices can exchange, and what the collectives of a step move.

A group inside the scale-up domain uses its fabric; a larger one is as fast as each device's network adapter.
"""

from dataclasses import dataclass
from math import inf

from service.errors import ParallelismNotLegal
from service.sizing.accelerator import Accelerator, Topology

ALL_REDUCES_PER_LAYER = 2  # after attention and after the MLP; expert parallelism exchanges tokens for the latter
EXPERT_DISPATCH_AND_COMBINE_BYTES = 3  # a token goes out in 8 bits and comes back in 16


@dataclass(frozen=True, slots=True)
class GroupLink:
    """What each device of a group can send, one way, while all of them exchange."""

    bandwidth_bytes_per_s: float
    leaves_scale_up_domain: bool


def group_link(accelerator: Accelerator, *, group_size: int) -> GroupLink:
    """The link of each device in a group of ``group_size`` devices.

    - switched, torus and ring fabrics: the device's whole link (for a torus an upper bound);
    - a full mesh of direct links: a group of g uses g - 1 of the domain's n - 1 links of a device;
    - cards on a host's bus, and groups of cards larger than a bridge: the host link, up to eight cards;
    - larger groups: the device's network adapter (scale-out).

    Raises ``ParallelismNotLegal`` where nothing is published that could carry the group: a guess would look
    like a fact.
    """
    if group_size <= 1:
        return GroupLink(inf, leaves_scale_up_domain=False)
    fabric = accelerator.scale_up
    fabric_link = fabric.bandwidth_bytes_per_s_per_gpu_one_way
    inside = group_size <= fabric.domain_gpu_count and fabric.topology not in ON_THE_HOST_BUS
    if inside and fabric_link is not None:
        if fabric.topology is Topology.DIRECT:
            fabric_link *= (group_size - 1) / (fabric.domain_gpu_count - 1)
        return GroupLink(fabric_link, leaves_scale_up_domain=False)
    if group_size <= scale_up_reach(accelerator) and accelerator.host_link_bytes_per_s_one_way:
        return GroupLink(accelerator.host_link_bytes_per_s_one_way, leaves_scale_up_domain=False)
    if accelerator.scale_out_bytes_per_s_one_way:
        return GroupLink(accelerator.scale_out_bytes_per_s_one_way, leaves_scale_up_domain=True)
    raise ParallelismNotLegal(
        f"{accelerator.slug} has no published link that reaches {group_size} devices: at most "
        f"{scale_up_reach(accelerator)} are in reach of each other and no scale-out bandwidth is recorded; "
        "ask for a smaller layout",
        field=("parallelism",),
    )


HOST_SLOTS = 8  # cards that share a host's bus in the largest common servers
ON_THE_HOST_BUS = (Topology.PCIE, Topology.NONE)


def scale_up_reach(accelerator: Accelerator) -> int:
    """How many devices exchange without leaving the machine: the fabric's domain, or the cards of a host."""
    domain = accelerator.scale_up.domain_gpu_count
    if accelerator.scale_up.topology in (Topology.PCIE, Topology.BRIDGE) and accelerator.host_link_bytes_per_s_one_way:
        return max(domain, HOST_SLOTS)
    return domain


def joined_device_count(accelerator: Accelerator, most: int) -> int:
    """How many devices a published link can join: any number over a network adapter, else those in reach."""
    return most if accelerator.scale_out_bytes_per_s_one_way else min(most, scale_up_reach(accelerator))


def all_reduce_bytes(*, tokens: float, hidden_size: int, tp: int) -> float:
    """Bytes that each rank sends to sum one 16-bit activation over ``tp`` ranks (ring or in-switch halves).

    ``2 * (tp - 1) / tp`` of the tensor: reduce-scatter, then all-gather.

    >>> all_reduce_bytes(tokens=1, hidden_size=8192, tp=2)
    16384.0
    """
    return 2 * tokens * hidden_size * 2 * (tp - 1) / tp


def all_to_all_bytes(*, tokens: float, hidden_size: int, experts_per_token: int, ep: int) -> float:
    """Bytes that each rank exchanges to bring its tokens to their experts and back, one layer.

    >>> all_to_all_bytes(tokens=1, hidden_size=7168, experts_per_token=8, ep=8)
    150528.0
    """
    return tokens * experts_per_token * hidden_size * EXPERT_DISPATCH_AND_COMBINE_BYTES * (ep - 1) / ep
