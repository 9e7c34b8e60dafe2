"""From model, weights, accelerator and layout to the costs of a step at the rates that vendors print."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from service.errors import RateNotPublished
from service.sizing.accelerator import Accelerator
from service.sizing.cache import elements_bytes, kv_elements_per_token, state_bytes_per_sequence
from service.sizing.interconnect import all_reduce_bytes, all_to_all_bytes, group_link
from service.sizing.language_model import LanguageModel, LayerGroup, LayerKind
from service.sizing.parallelism import Parallelism
from service.sizing.parameters import StepParameters
from service.sizing.precision import Density, Precision
from service.sizing.step import AttentionCost, MatrixCost, StepCosts
from service.sizing.weight_schemes import SCHEMES
from service.sizing.weights import ServedWeights, pipeline_stages

REFERENCE_BANDWIDTH_BYTES_PER_S = 3.35e12  # where the per-layer overhead was fitted: H100 SXM
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


@dataclass(frozen=True, slots=True)
class ComputeRates:
    """The rate of everything in 16 bits, and of each scheme of the checkpoint."""

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
    if not layout.quantised:
        return sixteen_bit
    if asked is not None:
        return ComputeChoice(asked, device.peak_flop_per_s(asked, density), "asked for")
    if layout.compute is None:
        return replace(
            sixteen_bit, reason=f"{scheme} is a weight-only scheme: it is widened to {sixteen_bit.precision}"
        )
    for precision in (layout.compute, *EQUIVALENT_RATES.get(layout.compute, ())):
        if device.has_rate(precision, density):
            return ComputeChoice(precision, device.peak_flop_per_s(precision, density), f"native rate of {scheme}")
    return replace(
        sixteen_bit,
        reason=f"{device.slug} publishes no {density} {layout.compute} rate: computed in {sixteen_bit.precision}",
    )


EQUIVALENT_RATES = {  # one data path, two block formats: vendors print one name for both
    Precision.MXFP4: (Precision.NVFP4,),
    Precision.MXFP8: (Precision.FP8,),
}


def compute_rates(
    device: Accelerator, *, weights: ServedWeights, asked: Precision | None, density: Density
) -> ComputeRates:
    sixteen_bit = sixteen_bit_choice(device, density)
    return ComputeRates(
        sixteen_bit,
        {
            work.scheme: compute_choice(
                device, scheme=work.scheme, asked=asked, density=density, sixteen_bit=sixteen_bit
            )
            for work in weights.work
        },
    )


def step_costs(
    *,
    model: LanguageModel,
    weights: ServedWeights,
    device: Accelerator,
    parallelism: Parallelism,
    kv_cache: Precision,
    rates: ComputeRates,
    parameters: StepParameters,
) -> StepCosts:
    """Seconds per unit of work of one replica of the model on ``tp * pp * dp`` devices.

    Assumes: a pipeline of pp stages works on pp micro-batches, each reading its stage's weights once, so the
    time for all sequences to advance by a token reads the whole model once per tp rank. Experts are spread
    over all tp x dp devices of a stage.
    """
    bandwidth = device.memory_bandwidth_bytes_per_s
    if bandwidth is None:
        raise RateNotPublished(f"{device.slug} has no published memory bandwidth", field=("accelerator",))
    tp, pp, ep, dp = parallelism.tp, parallelism.pp, parallelism.ep, parallelism.dp
    (whole,) = pipeline_stages(model.layer_count, 1)
    dense, experts, head_s = _matrix_costs(weights, rates, parameters, parallelism, model)
    all_reduces = (1 if ep > 1 else 2) * model.layer_count
    reduce_bytes = all_reduces * all_reduce_bytes(tokens=1, hidden_size=model.hidden_size, tp=tp)
    exchange_bytes = weights.moe_layer_count * all_to_all_bytes(
        tokens=1 / tp, hidden_size=model.hidden_size, experts_per_token=model.experts_per_token, ep=ep
    )
    state_bytes = state_bytes_per_sequence(model, tp=tp)
    return StepCosts(
        dense_read_s=weights.dense_read_bytes_per_rank(parallelism, whole) / bandwidth,
        expert_read_s=weights.expert_read_bytes / (tp * dp) / bandwidth,
        expert_count=model.expert_count,
        experts_per_token=model.experts_per_token,
        state_s_per_sequence=STATE_PASSES * state_bytes / pp / bandwidth,
        attention=tuple(
            _attention_cost(group, parallelism, kv_cache, bandwidth, rates)
            for group in model.layer_groups
            if group.kv_elements_per_token
        ),
        dense_matrices=dense,
        head_read_s=weights.head_bytes / tp / bandwidth,
        head_s_per_sequence=head_s,
        expert_matrices=experts,
        all_reduce_s_per_token=reduce_bytes / group_link(device, group_size=tp).bandwidth_bytes_per_s,
        all_to_all_s_per_token=exchange_bytes
        / group_link(device, group_size=tp * dp if ep > 1 else 1).bandwidth_bytes_per_s,
        overhead_s=layer_overhead_s(model, parameters, memory_bandwidth_bytes_per_s=bandwidth),
        memory_bandwidth_bytes_per_s=bandwidth,
        pp=pp,
        dp=dp,
    )


def _matrix_costs(
    weights: ServedWeights,
    rates: ComputeRates,
    parameters: StepParameters,
    parallelism: Parallelism,
    model: LanguageModel,
) -> tuple[MatrixCost, MatrixCost, float]:
    """2 FLOP for each parameter: dense matrices and heads over tp x pp, k of E experts over all devices."""
    dense_s = dense_reached_s = expert_s = expert_reached_s = 0.0
    head_count = 0
    share = model.experts_per_token / model.expert_count if model.is_moe else 0.0
    for work in weights.work:
        choice = rates.by_scheme[work.scheme]
        reach = low_precision_reach(
            rate_to_bf16=choice.flop_per_s / rates.sixteen_bit.flop_per_s, exponent=parameters.low_precision_exponent
        )
        dense = 2 * work.dense_parameter_count / (parallelism.tp * parallelism.pp) / choice.flop_per_s
        expert = 2 * work.expert_parameter_count * share / parallelism.device_count / choice.flop_per_s
        dense_s += dense
        dense_reached_s += dense * reach
        expert_s += expert
        expert_reached_s += expert * reach
        head_count += work.head_parameter_count
    head_s = 2 * head_count / (parallelism.tp * parallelism.pp) / rates.sixteen_bit.flop_per_s
    return MatrixCost(dense_s, dense_reached_s), MatrixCost(expert_s, expert_reached_s), head_s


def _attention_cost(
    group: LayerGroup, parallelism: Parallelism, kv_cache: Precision, bandwidth: float, rates: ComputeRates
) -> AttentionCost:
    tp, pp = parallelism.tp, parallelism.pp
    cached_elements = kv_elements_per_token(group, tp=tp) - group.index_key_width
    read_bytes = group.layer_count * elements_bytes(cached_elements, kv_cache)
    index_elements = group.layer_count * group.index_key_width
    compute = 2 * group.layer_count / (tp * pp) / rates.sixteen_bit.flop_per_s
    return AttentionCost(
        cap_tokens=attention_cap_tokens(group),
        read_s_per_token=read_bytes / pp / bandwidth,
        decode_compute_s_per_token=compute * group.attention_width_decode,
        prefill_compute_s_per_token=compute * group.attention_width_prefill,
        index_read_s_per_token=index_elements * INDEX_KEY_BYTES / pp / bandwidth,
        index_compute_s_per_token=compute * group.index_key_width * group.index_head_count,
    )


def layer_overhead_s(model: LanguageModel, parameters: StepParameters, *, memory_bandwidth_bytes_per_s: float) -> float:
    """Fixed cost of a step: kernel launches and small kernels, per layer.

    Latent and linear attention launch more kernels per layer; sparse attention's indexer twice the extra.
    """
    latent = 1.0
    if model.has_latent_attention or model.has_recurrent_state:
        latent = parameters.layer_overhead_latent
    if any(group.index_top_k_tokens for group in model.layer_groups):
        latent = 2 * parameters.layer_overhead_latent - 1
    slower: float = (
        memory_bandwidth_bytes_per_s / REFERENCE_BANDWIDTH_BYTES_PER_S
    ) ** -parameters.overhead_bandwidth_exponent
    return parameters.layer_overhead_s * latent * model.layer_count * slower


def attention_cap_tokens(group: LayerGroup) -> float:
    """How many tokens of context a layer attends to at most."""
    if group.index_top_k_tokens:
        return group.index_top_k_tokens
    if group.window_tokens and group.kind in (LayerKind.SLIDING, LayerKind.CHUNKED):
        return group.window_tokens
    return float("inf")


def low_precision_reach(*, rate_to_bf16: float, exponent: float) -> float:
    """Factor on the time of arithmetic in a narrow format: its rate counts as BF16 x (rate / BF16)^exponent.

    >>> low_precision_reach(rate_to_bf16=4.0, exponent=0.5)  # a fourfold rate reaches twofold
    2.0
    """
    reach: float = max(1.0, rate_to_bf16) ** (1 - exponent)
    return reach
