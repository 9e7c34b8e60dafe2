"""What a question settles before its load is looked at: weights, engine, rates and drafter, defaults with their origin.

Remembered, since dashboards ask many loads of few installations. Models and accelerators are compared by identity, and
a record that changes becomes another object.
"""

from dataclasses import dataclass
from functools import lru_cache

from service.errors import Invalid, RateNotPublished, UnknownChoice
from service.sizing.accelerator import Accelerator
from service.sizing.costs import ComputeChoice, ComputeRates, compute_rates, device_of
from service.sizing.coverage import coverage_fraction
from service.sizing.engine_releases import age_years, release_of
from service.sizing.engine_settings import engine_settings
from service.sizing.engines.engine import Engine
from service.sizing.parameters import StepParameters
from service.sizing.precision import Density, Precision
from service.sizing.question import Installed
from service.sizing.rank_memory import Deployment, EngineSettings
from service.sizing.remarks import Remarks, WarningCode
from service.sizing.run_identity import hardware_group
from service.sizing.run_terms import Phase
from service.sizing.serving import NO_DRAFTING, Drafting
from service.sizing.weight_schemes import SCHEMES, weight_scheme
from service.sizing.weights import ServedWeights, served_weights

KV_CACHE_PRECISIONS = (Precision.FP32, Precision.BF16, Precision.FP16, Precision.FP8, Precision.INT8)


@dataclass(frozen=True, slots=True, eq=False)
class Installation:
    """``rates`` is ``None`` where the vendor publishes too little to say how fast anything is.

    ``remarks`` belong to every answer about it.
    """

    deployment: Deployment
    rates: ComputeRates | None
    parameters: StepParameters
    drafting: Drafting
    coverage_fraction: float | None
    remarks: Remarks


@lru_cache(maxsize=512)
def installation(asked: Installed, longest_tokens: int) -> Installation:
    """``longest_tokens``: the longest request that engine or model allow, or the asked one where neither says."""
    remarks = Remarks()
    device = device_of(asked.accelerator)
    _warn_about_the_accelerator(asked.accelerator, remarks)
    scheme = _weight_scheme(asked, remarks)
    settings = engine_settings(asked, device, request_tokens=longest_tokens, remarks=remarks)
    kv_cache = _kv_cache(asked, scheme, remarks)
    weights = served_weights(asked.model, scheme)
    drafting, draft_weight_bytes = _drafting(asked, total_bytes=weights.total_bytes, remarks=remarks)
    coverage = coverage_fraction(hardware_group(asked.accelerator), Phase.SERVING)
    _warn_about_coverage(asked.accelerator, coverage, remarks)
    remarks.assume(
        "memory.usable_bytes_per_gpu",
        round(device.usable_memory_bytes),
        "what a driver or an engine reports, or derived: see memory of the accelerator's record; printed GB may be GiB",
    )
    deployment = Deployment(
        asked.model,
        weights,
        device,
        settings,
        kv_cache,
        draft_weight_bytes,
        draft_tokens=drafting.draft_tokens,
        draft_layer_count=_draft_layer_count(asked, drafting),
    )
    return Installation(
        deployment=deployment,
        rates=_rates(asked, deployment, remarks),
        parameters=_parameters(settings.engine, asked.engine.version, remarks),
        drafting=drafting,
        coverage_fraction=coverage,
        remarks=remarks,
    )


def _parameters(engine: Engine, version: str | None, remarks: Remarks) -> StepParameters:
    """Of the asked release; without one, of the newest."""
    if not engine.has_speed_model:
        return StepParameters.roofline()
    fitted, release = StepParameters.fitted(engine.name), release_of(engine.name, version)
    aged = fitted.aged(age_years(engine.name, version))
    if release and aged is not fitted:
        remarks.assume(
            "engine.layer_overhead_ratio",
            round(aged.layer_overhead_s / fitted.layer_overhead_s, 4),
            f"{engine.title} {release.version} was out by {release.day} ({release.source}): overheads of older "
            "releases are larger, as fitted to published runs",
        )
    return aged


def _warn_about_the_accelerator(accelerator: Accelerator, remarks: Remarks) -> None:
    if accelerator.devices_per_gpu > 1:
        remarks.assume(
            "devices_per_gpu",
            accelerator.devices_per_gpu,
            "software sees each GPU as that many devices; tp, pp and dp count devices and sizes are per device",
        )
    if accelerator.unified_memory:
        remarks.warn(
            WarningCode.MEMORY_IS_SHARED,
            f"{accelerator.name} shares its memory with the operating system and the page cache, which can take "
            "several GiB of what is counted as usable here",
        )


def _weight_scheme(asked: Installed, remarks: Remarks) -> str:
    scheme, own = asked.precision.weights, asked.model.checkpoint_scheme
    if scheme is None:
        return remarks.assume("precision.weights", own, "the checkpoint's own")
    if scheme != own:
        weight_scheme(scheme)
        if SCHEMES[scheme].element.element_bytes < SCHEMES[own].element.element_bytes:
            remarks.warn(
                WarningCode.QUALITY_UNVERIFIED,
                f"{scheme} is narrower than the checkpoint's {own}: its accuracy is yours to check",
            )
    return scheme


def _kv_cache(asked: Installed, scheme: str, remarks: Remarks) -> Precision:
    precision, model = asked.precision.kv_cache, asked.model
    if precision is None:
        if model.checkpoint_kv_cache is not None:
            return remarks.assume("precision.kv_cache", model.checkpoint_kv_cache, "the checkpoint's own")
        served = Precision.FP32 if scheme == Precision.FP32.value else model.element_precision
        if served is Precision.FP32 and scheme != Precision.FP32.value:
            served = Precision.BF16  # the engine's own element for a checkpoint that is not served as it is stored
        return remarks.assume("precision.kv_cache", served, "the engine's auto: the model's dtype")
    if precision not in KV_CACHE_PRECISIONS:
        raise UnknownChoice(precision, KV_CACHE_PRECISIONS, field=("precision", "kv_cache"))
    if precision.element_bytes < Precision.BF16.element_bytes and precision != model.checkpoint_kv_cache:
        remarks.warn(
            WarningCode.QUALITY_UNVERIFIED, f"a KV cache in {precision} changes outputs: its accuracy is yours to check"
        )
    return precision


def _drafting(asked: Installed, *, total_bytes: int, remarks: Remarks) -> tuple[Drafting, float]:
    """The drafter, and the bytes that its layer adds. A checkpoint without one is given a layer of its own shape."""
    speculation, model = asked.speculation, asked.model
    if speculation is None:
        return NO_DRAFTING, 0.0
    if speculation.acceptance_length_tokens > speculation.draft_tokens + 1:
        raise Invalid(
            f"a step that drafts {speculation.draft_tokens} tokens yields at most {speculation.draft_tokens + 1}; "
            "acceptance_length_tokens counts the accepted drafts and the verified token",
            field=("speculation", "acceptance_length_tokens"),
        )
    with_layer = speculation.method != "ngram"
    drafting = Drafting(speculation.draft_tokens, speculation.acceptance_length_tokens, with_layer)
    if not with_layer:
        return drafting, 0.0
    if model.mtp is not None and speculation.method == "mtp":
        return drafting, model.mtp.parameter_count * Precision.BF16.element_bytes
    remarks.warn(
        WarningCode.DRAFTER_NOT_IN_CHECKPOINT,
        f"{model.name} brings no {speculation.method} module: a drafter of one layer of the model's own shape is "
        "assumed",
    )
    return drafting, total_bytes / model.layer_count


def _draft_layer_count(asked: Installed, drafting: Drafting) -> int:
    """Layers that draft and keep keys and values: the checkpoint's own modules, or one."""
    if not drafting.drafts_with_a_layer or asked.speculation is None:
        return 0
    if asked.speculation.method == "mtp" and asked.model.mtp is not None:
        return asked.model.mtp.layer_count
    return 1


def _rates(asked: Installed, deployment: Deployment, remarks: Remarks) -> ComputeRates | None:
    """Rates of every scheme; what falls back to 16 bits says so. ``None`` where nothing usable is published."""
    device, density, compute = deployment.device, asked.density, asked.precision.compute
    if reason := _speed_not_modelled(deployment.settings):
        remarks.warn(WarningCode.SPEED_NOT_MODELLED, f"{reason}; no speeds")
        return None
    if device.memory_bandwidth_bytes_per_s is None:
        remarks.warn(WarningCode.RATE_NOT_PUBLISHED, f"{device.name}: no memory bandwidth is published; no speeds")
        return None
    try:
        rates = compute_rates(device, weights=deployment.weights, asked=compute, density=density)
    except RateNotPublished as error:
        if compute is not None or density is not Density.DENSE:
            raise
        remarks.warn(WarningCode.RATE_NOT_PUBLISHED, f"{error.detail}; no speeds")
        return None
    if density is Density.SPARSE:
        remarks.warn(
            WarningCode.SPARSE_RATE_USED,
            "sparse rates hold only for a model pruned to the hardware's pattern, which published checkpoints are not",
        )
    for scheme, choice in rates.by_scheme.items():
        native = SCHEMES[scheme].compute
        if compute is not None or native is None or choice.precision is native or not SCHEMES[scheme].quantised:
            continue
        if choice.precision is rates.sixteen_bit.precision:
            only_sparse = device.has_rate(native, Density.SPARSE)
            code = WarningCode.SPARSE_RATE_ONLY if only_sparse else WarningCode.PRECISION_NOT_NATIVE
            remarks.warn(code, choice.reason)
    _warn_about_figures(device, rates, density, remarks)
    if compute is None:
        main = main_choice(rates, deployment.weights)
        remarks.assume("precision.compute", main.precision, main.reason)
    return rates


def _speed_not_modelled(settings: EngineSettings) -> str | None:
    """Why memory can be answered and time cannot."""
    if not settings.engine.has_speed_model:
        return f"the time of a step under {settings.engine.title} is not modelled"
    if not settings.cuda_graphs:
        return "the time of a step without CUDA graphs is not modelled"
    if settings.context_shards > 1:
        return "the time of a step with decode context parallel is not modelled"
    return None


def _warn_about_figures(device: Accelerator, rates: ComputeRates, density: Density, remarks: Remarks) -> None:
    """Name the figures behind this answer that are marked unverified in the catalogue."""
    used = {f"peak_rates.{choice.precision}.{density}" for choice in (rates.sixteen_bit, *rates.by_scheme.values())}
    used |= {"memory.capacity", "memory.usable", "memory.bandwidth"}
    if weak := sorted(used & device.unverified_figures):
        remarks.warn(
            WarningCode.FIGURE_UNVERIFIED,
            f"{', '.join(weak)} of {device.slug}: derived or recalled, and marked unverified in its record",
        )


def main_choice(rates: ComputeRates, weights: ServedWeights) -> ComputeChoice:
    """The precision that the bulk of the matrices computes in: that of the checkpoint's main scheme."""
    return rates.by_scheme.get(weights.main_scheme, rates.sixteen_bit)


def _warn_about_coverage(accelerator: Accelerator, coverage: float | None, remarks: Remarks) -> None:
    if coverage is None:
        remarks.warn(
            WarningCode.NO_COVERAGE_MEASURED,
            f"too few serving runs on {hardware_group(accelerator)} parts were in the fit: how often the "
            "intervals hold is not known, and the hardware lies outside the evidence",
        )
