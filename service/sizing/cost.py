"""Money per token, out of a price per GPU-hour that the caller gives: there is no default price."""

from enum import StrEnum
from typing import NamedTuple

from service.sizing.estimate import Estimate

SECONDS_PER_HOUR = 3600
JOULES_PER_KWH = 3.6e6


class Allocation(StrEnum):
    """By what a replica's cost is divided between its input and its output."""

    STEP_TIME = "share of step time"
    GPU_COUNT = "share of GPUs"  # of pools that do one or the other


class Cost(NamedTuple):
    """Per token, and per hour for the replica and for all replicas."""

    usd_per_input_token: Estimate
    usd_per_cached_input_token: Estimate | None
    usd_per_output_token: Estimate
    usd_per_h_per_replica: Estimate
    usd_per_h_total: Estimate
    allocation: Allocation


def cost(
    *,
    usd_per_gpu_h: float,
    usd_per_kwh: float,
    power_w_per_gpu: Estimate | None,
    gpu_count: int,
    replica_count: int,
    requests_per_s: Estimate,
    new_prompt_tokens: float,
    cached_prefix_tokens: int,
    osl_tokens: float,
    prefill_fraction: float,
    cached_share_of_prefill: float,
    allocation: Allocation = Allocation.STEP_TIME,
) -> Cost:
    """The replica's cost per second, divided by what it serves in that second.

    Prefill's share, of the time or of the GPUs, is charged to the input, the rest to the output. Of the input's share,
    cached tokens carry the attention that reaches back over them.
    """
    energy_usd_per_h = (
        power_w_per_gpu.scaled(gpu_count * SECONDS_PER_HOUR / JOULES_PER_KWH * usd_per_kwh)
        if power_w_per_gpu and usd_per_kwh
        else Estimate(0.0, 0.0, 0.0, requests_per_s.coverage_fraction)
    )
    per_hour = energy_usd_per_h.plus(usd_per_gpu_h * gpu_count)
    per_request = per_hour.scaled(1 / SECONDS_PER_HOUR).per(requests_per_s)
    input_share = per_request.scaled(prefill_fraction)
    return Cost(
        usd_per_input_token=input_share.scaled((1 - cached_share_of_prefill) / new_prompt_tokens),
        usd_per_cached_input_token=input_share.scaled(cached_share_of_prefill / cached_prefix_tokens)
        if cached_prefix_tokens
        else None,
        usd_per_output_token=per_request.scaled((1 - prefill_fraction) / osl_tokens),
        usd_per_h_per_replica=per_hour,
        usd_per_h_total=per_hour.scaled(replica_count),
        allocation=allocation,
    )
