"""From model, weights, accelerator and layout to the costs of a step at the rates that vendors print."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil

from service.errors import RateNotPublished
from service.sizing.accelerator import Accelerator
from service.sizing.cache import elements_bytes, state_bytes_per_sequence
from service.sizing.interconnect import ALL_REDUCES_PER_LAYER, all_reduce_bytes, all_to_all_bytes, group_link
from service.sizing.language_model import LanguageModel, LayerGroup
from service.sizing.parallelism import Parallelism
from service.sizing.precision import Density, Precision
from service.sizing.step import AttentionCost, Launches, MatrixCost, StepCosts
from service.sizing.weight_schemes import SCHEMES
from service.sizing.weights import ServedWeights, pipeline_stages

INDEX_KEY_BYTES = 1  # sparse attention keeps its index keys in 8 bits
STATE_PASSES = 2  # a recurrent state is read and written in every step


@lru_cache(maxsize=512)
def device_of(accelerator: Accelerator) -> Accelerator:
    """The accelerator as software sees it: each device of a GPU with its share of memory, rates and links.

    What tensor parallelism splits over are devices: the two dies of an MI250X, the two chiplets of a TPU v7.
    """
    count = accelerator.devices_per_gpu
    if count == 1:
        return accelerator
    fabric = accelerator.scale_up
    link = fabric.bandwidth_bytes_per_s_per_gpu_one_way
    bandwidth = accelerator.memory_bandwidth_bytes_per_s
    return replace(
        accelerator,
        gpu_count=accelerator.gpu_count * count,
        devices_per_gpu=1,
        memory_capacity_bytes=accelerator.memory_capacity_bytes / count,
        usable_memory_bytes=accelerator.usable_memory_bytes / count,
        memory_bandwidth_bytes_per_s=bandwidth / count if bandwidth else None,
        peak_rates_flop_per_s={key: rate / count for key, rate in accelerator.peak_rates_flop_per_s.items()},
        scale_up=replace(
            fabric,
            domain_gpu_count=fabric.domain_gpu_count * count,
            bandwidth_bytes_per_s_per_gpu_one_way=link / count if link else None,
        ),
    )


@dataclass(frozen=True, slots=True)
class ComputeChoice:
    """In which precision a scheme's matrices are multiplied, at which rate, and why not in its own."""

    precision: Precision
    flop_per_s: float
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class ComputeRates:
    """The rate of everything in 16 bits, and of each scheme of the checkpoint; compared by identity."""

    sixteen_bit: ComputeChoice
    by_scheme: Mapping[str, ComputeChoice]


def sixteen_bit_choice(device: Accelerator, density: Density) -> ComputeChoice:
    """BF16, or FP16 on parts that publish only that."""
    for precision in (Precision.BF16, Precision.FP16):
        if device.has_rate(precision, density):
            return ComputeChoice(precision, device.peak_flop_per_s(precision, density), "16-bit matrices")
    published = ", ".join(f"{p} {d}" for p, d in device.peak_rates_flop_per_s) or "none"
    raise RateNotPublished(
        f"{device.slug} has no published {density} BF16 or FP16 rate, in which attention computes; "
        f"published: {published}",
        field=("accelerator",),
    )


def compute_choice(
    device: Accelerator, *, scheme: str, asked: Precision | None, density: Density, sixteen_bit: ComputeChoice
) -> ComputeChoice:
    """The asked precision; else the scheme's native one where a rate is published; else 16 bits."""
    layout = SCHEMES[scheme]
    if asked is not None:
        return ComputeChoice(asked, device.peak_flop_per_s(asked, density), "asked for")
    if layout.compute is None:
        return replace(
            sixteen_bit, reason=f"{scheme} is a weight-only scheme: it is widened to {sixteen_bit.precision}"
        )
    if layout.element.element_bytes == SIXTEEN_BITS_BYTES:
        return sixteen_bit
    for precision in (layout.compute, *EQUIVALENT_RATES.get(layout.compute, ())):
        if device.has_rate(precision, density):
            return ComputeChoice(precision, device.peak_flop_per_s(precision, density), f"native rate of {scheme}")
    return replace(
        sixteen_bit,
        reason=f"{device.slug} publishes no {density} {layout.compute} rate: computed in {sixteen_bit.precision}",
    )


SIXTEEN_BITS_BYTES = 2

EQUIVALENT_RATES = {  # one data path, two block formats: vendors print one name for both
    Precision.MXFP4: (Precision.NVFP4,),
    Precision.MXFP8: (Precision.FP8,),
}


@lru_cache(maxsize=512)
def compute_rates(
    device: Accelerator, *, weights: ServedWeights, asked: Precision | None, density: Density
) -> ComputeRates:
    """The rate of each scheme in the checkpoint. What is asked for holds for the scheme that names the checkpoint.

    What such a checkpoint leaves in 16 bits (heads, routers, attention of some) computes in 16 bits all the same.
    """
    sixteen_bit = sixteen_bit_choice(device, density)
    return ComputeRates(
        sixteen_bit,
        {
            work.scheme: compute_choice(
                device,
                scheme=work.scheme,
                asked=asked if work.scheme == weights.main_scheme else None,
                density=density,
                sixteen_bit=sixteen_bit,
            )
            for work in weights.work
        },
    )


@lru_cache(maxsize=512)
def step_costs(
    *,
    model: LanguageModel,
    weights: ServedWeights,
    device: Accelerator,
    parallelism: Parallelism,
    kv_cache: Precision,
    rates: ComputeRates,
) -> StepCosts:
    """Seconds per unit of work of one replica of the model on ``tp * pp * dp`` devices.

    Assumes: a pipeline of pp stages works on pp micro-batches, each reading its stage's weights once, so the
    time for all sequences to advance by a token reads the whole model once per tp rank, and a stage's devices
    exchange the activations of its own layers. Experts are spread over all tp x dp devices of a stage.
    """
    bandwidth = device.memory_bandwidth_bytes_per_s
    if bandwidth is None:
        raise RateNotPublished(f"{device.slug} has no published memory bandwidth", field=("accelerator",))
    tp, pp, ep, dp = parallelism.tp, parallelism.pp, parallelism.ep, parallelism.dp
    (whole,) = pipeline_stages(model.layer_count, 1)
    index_flop_per_s = device.peak_rates_flop_per_s.get((Precision.FP8, Density.DENSE), rates.sixteen_bit.flop_per_s)
    all_reduces = (1 if ep > 1 else ALL_REDUCES_PER_LAYER) * model.layer_count
    reduce_bytes = all_reduces / pp * all_reduce_bytes(tokens=1, hidden_size=model.hidden_size, tp=tp)
    exchange_bytes = (
        weights.moe_layer_count
        / pp
        * all_to_all_bytes(
            tokens=1 / tp, hidden_size=model.hidden_size, experts_per_token=model.experts_per_token, ep=ep
        )
    )
    state_bytes = state_bytes_per_sequence(model, tp=tp)
    return StepCosts(
        dense_read_s=weights.dense_read_bytes_per_rank(parallelism, whole) / bandwidth,
        expert_read_s=weights.expert_read_bytes / (tp * dp) / bandwidth,
        expert_count=model.expert_count,
        experts_per_token=model.experts_per_token,
        state_s_per_sequence=STATE_PASSES * state_bytes / pp / bandwidth,
        attention=tuple(
            _attention_cost(
                group,
                parallelism,
                kv_cache=kv_cache,
                bandwidth=bandwidth,
                sixteen_bit_flop_per_s=rates.sixteen_bit.flop_per_s,
                index_flop_per_s=index_flop_per_s,
            )
            for group in model.layer_groups
            if group.kv_elements_per_token or group.shared_kv_head_count
        ),
        dense_matrices=_dense_matrices(weights, rates, parallelism),
        head_read_s=weights.head_bytes / tp / bandwidth,
        head_flop_per_sequence=2 * weights.head_parameter_count / (tp * pp),
        expert_matrices=_expert_matrices(weights, rates, parallelism, model),
        all_reduce_s_per_token=reduce_bytes / group_link(device, group_size=tp).bandwidth_bytes_per_s,
        all_to_all_s_per_token=exchange_bytes
        / group_link(device, group_size=tp * dp if ep > 1 else 1).bandwidth_bytes_per_s,
        memory_bandwidth_bytes_per_s=bandwidth,
        sixteen_bit_flop_per_s=rates.sixteen_bit.flop_per_s,
        index_flop_per_s=index_flop_per_s,
        layer_count=model.layer_count,
        launches=_launches(model),
        pp=pp,
        dp=dp,
    )


def _dense_matrices(weights: ServedWeights, rates: ComputeRates, parallelism: Parallelism) -> MatrixCost:
    """2 FLOP for each parameter that every token passes, over tp x pp."""
    shards = parallelism.tp * parallelism.pp
    return _matrix_cost([(work.scheme, 2 * work.dense_parameter_count / shards) for work in weights.work], rates)


def _expert_matrices(
    weights: ServedWeights, rates: ComputeRates, parallelism: Parallelism, model: LanguageModel
) -> MatrixCost:
    """2 FLOP for each parameter of k of E experts, over all devices."""
    if not model.is_moe:
        return MatrixCost(0.0, 0.0, ())
    share = 2 * model.experts_per_token / model.expert_count / parallelism.device_count
    return _matrix_cost([(work.scheme, share * work.expert_parameter_count) for work in weights.work], rates)


def _matrix_cost(flop_by_scheme: list[tuple[str, float]], rates: ComputeRates) -> MatrixCost:
    sixteen_bit = rates.sixteen_bit.flop_per_s
    worked = [(flop, rates.by_scheme[scheme].flop_per_s) for scheme, flop in flop_by_scheme if flop]
    parts = tuple([(flop / rate, rate / sixteen_bit) for flop, rate in worked])
    return MatrixCost(
        flop_per_token=sum([flop for flop, _ in worked]),
        spec_s_per_token=sum([seconds for seconds, _ in parts]),
        parts=parts,
    )


def _attention_cost(
    group: LayerGroup,
    parallelism: Parallelism,
    *,
    kv_cache: Precision,
    bandwidth: float,
    sixteen_bit_flop_per_s: float,
    index_flop_per_s: float,
) -> AttentionCost:
    """Per token of context; a compressed cache has an entry for ``tokens_per_entry`` of them."""
    tp, pp = parallelism.tp, parallelism.pp
    entries_per_token = group.layer_count / group.tokens_per_entry
    read_heads = ceil((group.kv_head_count or group.shared_kv_head_count) / tp)
    read_bytes = entries_per_token * elements_bytes(read_heads * (group.key_width + group.value_width), kv_cache)
    index_elements = entries_per_token * group.index_key_width
    multiply_adds = 2 * entries_per_token / (tp * pp)
    compute = multiply_adds / sixteen_bit_flop_per_s
    return AttentionCost(
        cap_tokens=attention_cap_tokens(group),
        read_s_per_token=read_bytes / pp / bandwidth,
        decode_compute_s_per_token=compute * group.attention_width_decode,
        prefill_compute_s_per_token=compute * group.attention_width_prefill,
        index_read_s_per_token=index_elements * INDEX_KEY_BYTES / pp / bandwidth,
        index_compute_s_per_token=multiply_adds * group.index_key_width * group.index_head_count / index_flop_per_s,
    )


def _launches(model: LanguageModel) -> Launches:
    if any(group.index_top_k_tokens for group in model.layer_groups):
        return Launches.INDEXED
    if model.has_latent_attention or model.has_recurrent_state:
        return Launches.LATENT
    return Launches.PLAIN


def attention_cap_tokens(group: LayerGroup) -> float:
    """How many tokens of context a layer attends to at most."""
    if group.index_top_k_tokens:
        return group.index_top_k_tokens
    if group.window_tokens:
        return group.window_tokens
    return float("inf")
