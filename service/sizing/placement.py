"""On how many GPUs a layout stands, how many replicas a system holds, and what to beware of in a layout."""

from math import ceil
from typing import NamedTuple

from service.sizing.accelerator import Accelerator
from service.sizing.interconnect import group_link, scale_up_reach
from service.sizing.memory import MemoryFit
from service.sizing.parallelism import Parallelism
from service.sizing.question import SizingInputs
from service.sizing.remarks import WarningCode
from service.sizing.resolution import Resolved


class Replicas(NamedTuple):
    """How many copies of the layout, on how many GPUs, and how many of the system are left over."""

    gpu_count_per_replica: int
    replica_count: int
    idle_gpu_count: int


def gpu_count(accelerator: Accelerator, parallelism: Parallelism) -> int:
    return ceil(parallelism.device_count / accelerator.devices_per_gpu)


def replicas_of(inputs: SizingInputs, per_replica: int, *, fits: bool) -> Replicas:
    """As asked, or as many as the system holds: the rack or board, or what a single chip reaches.

    A replica that does not fit, or is larger than the system, fills none of it.
    """
    accelerator = inputs.accelerator
    system = accelerator.gpu_count if accelerator.gpu_count > 1 else scale_up_reach(accelerator)
    if inputs.replica_count is not None:
        return Replicas(
            per_replica, inputs.replica_count, -(inputs.replica_count * per_replica) % accelerator.gpu_count
        )
    count = system // per_replica if fits else 0
    return Replicas(per_replica, count, system - count * per_replica)


def warn_about_layout(
    resolved: Resolved,
    parallelism: Parallelism,
    fit: MemoryFit,
    *,
    length_tokens: int,
    is_joinable: bool,
    whose: str = "",
) -> None:
    """``whose`` begins each sentence where an answer has several layouts. ``is_joinable``: some layout would fit."""
    remarks, settings = resolved.remarks, resolved.deployment.settings
    _warn_about_links(resolved, parallelism, whose)
    if not fit.fits:
        remarks.warn(
            WarningCode.DOES_NOT_FIT,
            f"{whose}{fit.shortfall_bytes:.0f} bytes are missing on each GPU for one request of {length_tokens} "
            "tokens; no speed is given for what cannot run"
            + ("" if is_joinable else "; no layout that published links can join holds it either"),
        )
    elif not fit.would_start:
        advice = (
            f"at its maximum length of {settings.max_model_len_tokens} tokens; set engine.max_model_len_tokens to at "
            f"most {fit.max_context_tokens}"
            if fit.max_context_tokens < settings.max_model_len_tokens
            else f"({fit.refusal})"
        )
        remarks.warn(WarningCode.ENGINE_WOULD_NOT_START, f"{whose}the engine would refuse to start {advice}")


def _warn_about_links(resolved: Resolved, parallelism: Parallelism, whose: str) -> None:
    model, remarks = resolved.deployment.model, resolved.remarks
    if model.has_latent_attention and parallelism.tp > 1:
        remarks.warn(
            WarningCode.KV_HEADS_REPLICATED,
            f"{whose}the latent KV cache is copied on each of the {parallelism.tp} tp ranks: tp adds no KV capacity "
            "per token",
        )
    elif parallelism.tp > model.kv_head_count > 0:
        remarks.warn(
            WarningCode.KV_HEADS_REPLICATED,
            f"{whose}tp {parallelism.tp} exceeds the {model.kv_head_count} KV heads: each is copied on "
            f"{parallelism.tp // model.kv_head_count} ranks",
        )
    if parallelism.device_count > 1:
        link = group_link(resolved.deployment.device, group_size=parallelism.device_count)
        if link.leaves_scale_up_domain:
            remarks.warn(
                WarningCode.LEAVES_SCALE_UP_DOMAIN,
                f"{whose}{parallelism.device_count} devices exceed what {resolved.inputs.accelerator.name} reaches on "
                f"its scale-up fabric; beyond it a device sends {link.bandwidth_bytes_per_s / 1e9:g} GB/s",
            )
