"""From the question as asked to one with every value resolved, each default with its origin."""

from dataclasses import dataclass

from service.errors import Invalid, RateNotPublished, UnknownChoice
from service.sizing.accelerator import Accelerator
from service.sizing.costs import ComputeChoice, ComputeRates, compute_rates, device_of
from service.sizing.coverage import coverage_fraction
from service.sizing.engine_releases import age_years, release_of
from service.sizing.engine_settings import engine_settings
from service.sizing.engines.engine import Engine
from service.sizing.parameters import StepParameters
from service.sizing.precision import Density, Precision
from service.sizing.question import SizingInputs
from service.sizing.rank_memory import Deployment, EngineSettings
from service.sizing.remarks import Remarks, WarningCode
from service.sizing.run_identity import hardware_group
from service.sizing.run_terms import Phase
from service.sizing.serving import NO_DRAFTING, Drafting
from service.sizing.weight_schemes import SCHEMES, weight_scheme
from service.sizing.weights import ServedWeights, served_weights
from service.sizing.workload import Length

DEFAULT_LENGTH_TOKENS = 1024
KV_CACHE_PRECISIONS = (Precision.FP32, Precision.BF16, Precision.FP16, Precision.FP8, Precision.INT8)
LONGEST_FITTED_ISL_TOKENS, LONGEST_FITTED_OSL_TOKENS = 32_784, 8_192
LARGEST_FITTED_CONCURRENCY = 8_192


@dataclass(frozen=True, slots=True)
class Resolved:
    """``rates`` is ``None`` where the vendor publishes too little to say how fast anything is."""

    inputs: SizingInputs
    deployment: Deployment
    rates: ComputeRates | None
    parameters: StepParameters
    isl: Length
    osl: Length
    drafting: Drafting
    coverage_fraction: float | None
    remarks: Remarks

    @property
    def request_tokens(self) -> int:
        return self.isl.mean_tokens + self.osl.mean_tokens

    @property
    def mean_context_tokens(self) -> float:
        """Of a running sequence, over its life in decode."""
        return self.isl.mean_tokens + self.osl.mean_tokens / 2


def resolve(inputs: SizingInputs) -> Resolved:
    _check_target_and_power(inputs)
    remarks = Remarks()
    device = device_of(inputs.accelerator)
    _warn_about_the_accelerator(inputs.accelerator, remarks)
    scheme = _weight_scheme(inputs, remarks)
    isl, osl = _lengths(inputs, remarks)
    settings = engine_settings(inputs, device, request_tokens=isl.mean_tokens + osl.mean_tokens, remarks=remarks)
    kv_cache = _kv_cache(inputs, scheme, remarks)
    weights = served_weights(inputs.model, scheme)
    drafting, draft_weight_bytes = _drafting(inputs, total_bytes=weights.total_bytes, remarks=remarks)
    coverage = coverage_fraction(hardware_group(inputs.accelerator), Phase.SERVING)
    _warn_outside_evidence(inputs, isl, osl, coverage, remarks)
    remarks.assume(
        "memory.usable_bytes_per_gpu",
        round(device.usable_memory_bytes),
        "what a driver or an engine reports, or derived: see memory of the accelerator's record; printed GB may be GiB",
    )
    deployment = Deployment(
        inputs.model,
        weights,
        device,
        settings,
        kv_cache,
        draft_weight_bytes,
        draft_tokens=drafting.draft_tokens,
        draft_layer_count=_draft_layer_count(inputs, drafting),
    )
    return Resolved(
        inputs=inputs,
        deployment=deployment,
        rates=_rates(inputs, deployment, remarks),
        parameters=_parameters(settings.engine, inputs.engine.version, remarks),
        isl=isl,
        osl=osl,
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


LOWEST_POWER_LIMIT_FRACTION = 0.25  # of the rating; drivers refuse lower ones, and the cube root holds no longer


def _check_target_and_power(inputs: SizingInputs) -> None:
    """Refuse what could only be ignored."""
    target, osl, limit_w = inputs.target, inputs.workload.osl, inputs.power.limit_w_per_gpu
    tdp_w = inputs.accelerator.tdp_w
    if target.statistic is not None and not target.is_set:
        raise Invalid("a statistic needs a limit: give ttft_s or tpot_s", field=("target", "statistic"))
    if target.tpot_s is not None and osl is not None and osl.mean_tokens == 1:
        raise Invalid("a single output token has no time per output token", field=("target", "tpot_s"))
    if limit_w is None:
        return
    if tdp_w is None:
        raise Invalid(
            f"no rated power is published for {inputs.accelerator.slug}, so that a limit could be set against it",
            field=("power", "limit_w_per_gpu"),
        )
    if limit_w < LOWEST_POWER_LIMIT_FRACTION * tdp_w:
        raise Invalid(
            f"a limit is modelled down to a quarter of the rated {tdp_w:g} W",
            field=("power", "limit_w_per_gpu"),
        )


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


def _weight_scheme(inputs: SizingInputs, remarks: Remarks) -> str:
    asked, own = inputs.precision.weights, inputs.model.checkpoint_scheme
    if asked is None:
        return remarks.assume("precision.weights", own, "the checkpoint's own")
    if asked != own:
        weight_scheme(asked)
        if SCHEMES[asked].element.element_bytes < SCHEMES[own].element.element_bytes:
            remarks.warn(
                WarningCode.QUALITY_UNVERIFIED,
                f"{asked} is narrower than the checkpoint's {own}: its accuracy is yours to check",
            )
    return asked


def _kv_cache(inputs: SizingInputs, scheme: str, remarks: Remarks) -> Precision:
    asked, model = inputs.precision.kv_cache, inputs.model
    if asked is None:
        if model.checkpoint_kv_cache is not None:
            return remarks.assume("precision.kv_cache", model.checkpoint_kv_cache, "the checkpoint's own")
        served = Precision.FP32 if scheme == Precision.FP32.value else model.element_precision
        if served is Precision.FP32 and scheme != Precision.FP32.value:
            served = Precision.BF16  # the engine's own element for a checkpoint that is not served as it is stored
        return remarks.assume("precision.kv_cache", served, "the engine's auto: the model's dtype")
    if asked not in KV_CACHE_PRECISIONS:
        raise UnknownChoice(asked, KV_CACHE_PRECISIONS, field=("precision", "kv_cache"))
    if asked.element_bytes < Precision.BF16.element_bytes and asked != model.checkpoint_kv_cache:
        remarks.warn(
            WarningCode.QUALITY_UNVERIFIED, f"a KV cache in {asked} changes outputs: its accuracy is yours to check"
        )
    return asked


def _lengths(inputs: SizingInputs, remarks: Remarks) -> tuple[Length, Length]:
    asked = inputs.workload
    isl = asked.isl or Length(remarks.assume("workload.isl_tokens", DEFAULT_LENGTH_TOKENS, "default"))
    osl = asked.osl or Length(remarks.assume("workload.osl_tokens", DEFAULT_LENGTH_TOKENS, "default"))
    if asked.cached_prefix_tokens >= isl.mean_tokens:
        raise Invalid(
            f"{asked.cached_prefix_tokens} cached tokens leave nothing of an input of {isl.mean_tokens} tokens to "
            "prefill; give fewer, or a longer input",
            field=("workload", "cached_prefix_tokens"),
        )
    if asked.cached_prefix_tokens and inputs.engine.prefix_caching is False:
        raise Invalid(
            "cached_prefix_tokens needs prefix caching, which engine.prefix_caching turns off",
            field=("engine", "prefix_caching"),
        )
    return isl, osl


def _drafting(inputs: SizingInputs, *, total_bytes: int, remarks: Remarks) -> tuple[Drafting, float]:
    """The drafter, and the bytes that its layer adds. A checkpoint without one is given a layer of its own shape."""
    asked, model = inputs.speculation, inputs.model
    if asked is None:
        return NO_DRAFTING, 0.0
    if asked.acceptance_length_tokens > asked.draft_tokens + 1:
        raise Invalid(
            f"a step that drafts {asked.draft_tokens} tokens yields at most {asked.draft_tokens + 1}; "
            "acceptance_length_tokens counts the accepted drafts and the verified token",
            field=("speculation", "acceptance_length_tokens"),
        )
    with_layer = asked.method != "ngram"
    drafting = Drafting(asked.draft_tokens, asked.acceptance_length_tokens, with_layer)
    if not with_layer:
        return drafting, 0.0
    if model.mtp is not None and asked.method == "mtp":
        return drafting, model.mtp.parameter_count * Precision.BF16.element_bytes
    remarks.warn(
        WarningCode.DRAFTER_NOT_IN_CHECKPOINT,
        f"{model.name} brings no {asked.method} module: a drafter of one layer of the model's own shape is assumed",
    )
    return drafting, total_bytes / model.layer_count


def _draft_layer_count(inputs: SizingInputs, drafting: Drafting) -> int:
    """Layers that draft and keep keys and values: the checkpoint's own modules, or one."""
    if not drafting.drafts_with_a_layer or inputs.speculation is None:
        return 0
    if inputs.speculation.method == "mtp" and inputs.model.mtp is not None:
        return inputs.model.mtp.layer_count
    return 1


def _rates(inputs: SizingInputs, deployment: Deployment, remarks: Remarks) -> ComputeRates | None:
    """Rates of every scheme; what falls back to 16 bits says so. ``None`` where nothing usable is published."""
    device, density, asked = deployment.device, inputs.density, inputs.precision.compute
    if reason := _speed_not_modelled(deployment.settings):
        remarks.warn(WarningCode.SPEED_NOT_MODELLED, f"{reason}; no speeds")
        return None
    if device.memory_bandwidth_bytes_per_s is None:
        remarks.warn(WarningCode.RATE_NOT_PUBLISHED, f"{device.name}: no memory bandwidth is published; no speeds")
        return None
    try:
        rates = compute_rates(device, weights=deployment.weights, asked=asked, density=density)
    except RateNotPublished as error:
        if asked is not None or density is not Density.DENSE:
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
        if asked is not None or native is None or choice.precision is native or not SCHEMES[scheme].quantised:
            continue
        if choice.precision is rates.sixteen_bit.precision:
            only_sparse = device.has_rate(native, Density.SPARSE)
            code = WarningCode.SPARSE_RATE_ONLY if only_sparse else WarningCode.PRECISION_NOT_NATIVE
            remarks.warn(code, choice.reason)
    _warn_about_figures(device, rates, density, remarks)
    if asked is None:
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


def _warn_outside_evidence(
    inputs: SizingInputs, isl: Length, osl: Length, coverage: float | None, remarks: Remarks
) -> None:
    if isl.mean_tokens > LONGEST_FITTED_ISL_TOKENS or osl.mean_tokens > LONGEST_FITTED_OSL_TOKENS:
        remarks.warn(
            WarningCode.OUTSIDE_EVIDENCE,
            f"the model of time was fitted to inputs of at most {LONGEST_FITTED_ISL_TOKENS} and outputs of at most "
            f"{LONGEST_FITTED_OSL_TOKENS} tokens",
        )
    if (inputs.workload.concurrency or 0) > LARGEST_FITTED_CONCURRENCY:
        remarks.warn(
            WarningCode.OUTSIDE_EVIDENCE,
            f"no run in the fit had more than {LARGEST_FITTED_CONCURRENCY} requests in flight",
        )
    if coverage is None:
        remarks.warn(
            WarningCode.NO_COVERAGE_MEASURED,
            f"too few serving runs on {hardware_group(inputs.accelerator)} parts were in the fit: how often the "
            "intervals hold is not known, and the hardware lies outside the evidence",
        )
