"""From the question as asked to one with every value resolved, each default with its origin."""

from dataclasses import dataclass

from service.errors import FieldNotActedOn, Invalid, RateNotPublished, UnknownChoice
from service.sizing.accelerator import Accelerator
from service.sizing.costs import ComputeChoice, ComputeRates, compute_rates, device_of
from service.sizing.engines import ENGINES
from service.sizing.memory import Deployment, EngineSettings
from service.sizing.parameters import StepParameters
from service.sizing.precision import Density, Precision
from service.sizing.question import EngineAsked, SizingInputs
from service.sizing.remarks import Remarks, WarningCode
from service.sizing.serving import NO_DRAFTING, Drafting
from service.sizing.weight_schemes import SCHEMES, weight_scheme
from service.sizing.weights import served_weights
from service.sizing.workload import Length

DEFAULT_LENGTH_TOKENS = 1024
DEFAULT_ENGINE = "vllm"
REDUCED_BATCHING = ("a100", "gb10")  # vLLM gives these its smallest batching defaults whatever their memory
KV_CACHE_PRECISIONS = (Precision.FP32, Precision.BF16, Precision.FP16, Precision.FP8, Precision.INT8)
LONGEST_FITTED_ISL_TOKENS, LONGEST_FITTED_OSL_TOKENS = 32_784, 8_192
VENDORS_WITH_COVERAGE = ("NVIDIA",)


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
    remarks = Remarks()
    device = device_of(inputs.accelerator)
    _warn_about_the_accelerator(inputs.accelerator, remarks)
    scheme = _weight_scheme(inputs, remarks)
    isl, osl = _lengths(inputs, remarks)
    settings = _engine_settings(inputs, device, request_tokens=isl.mean_tokens + osl.mean_tokens, remarks=remarks)
    kv_cache = _kv_cache(inputs, remarks)
    weights = served_weights(inputs.model, scheme)
    drafting, draft_weight_bytes = _drafting(inputs, total_bytes=weights.total_bytes, remarks=remarks)
    coverage = 0.8 if inputs.accelerator.vendor in VENDORS_WITH_COVERAGE else None
    _warn_outside_evidence(inputs, isl, osl, coverage, remarks)
    deployment = Deployment(inputs.model, weights, device, settings, kv_cache, draft_weight_bytes)
    return Resolved(
        inputs=inputs,
        deployment=deployment,
        rates=_rates(inputs, deployment, remarks),
        parameters=StepParameters.fitted(settings.engine.name),
        isl=isl,
        osl=osl,
        drafting=drafting,
        coverage_fraction=coverage,
        remarks=remarks,
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


def _kv_cache(inputs: SizingInputs, remarks: Remarks) -> Precision:
    asked, model = inputs.precision.kv_cache, inputs.model
    if asked is None:
        if model.checkpoint_kv_cache is not None:
            return remarks.assume("precision.kv_cache", model.checkpoint_kv_cache, "the checkpoint's own")
        return remarks.assume("precision.kv_cache", model.element_precision, "the engine's auto: the model's dtype")
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


def _engine_settings(
    inputs: SizingInputs, device: Accelerator, *, request_tokens: int, remarks: Remarks
) -> EngineSettings:
    asked = inputs.engine
    name = asked.name or remarks.assume("engine.name", DEFAULT_ENGINE, "default")
    if name not in ENGINES:
        raise UnknownChoice(name, ENGINES, field=("engine", "name"))
    engine = ENGINES[name]
    release, exact = engine.release(asked.version)
    if asked.version is None:
        remarks.assume(
            "engine.version", release.version, f"the newest {engine.title} release whose rules are known here"
        )
    if not exact:
        remarks.warn(
            WarningCode.ENGINE_VERSION_UNKNOWN,
            f"the rules of {engine.title} {asked.version} are not known; those of {release.version} are used",
        )
    if asked.cuda_graphs is False:
        raise FieldNotActedOn(
            "the time of a step without CUDA graphs is not modelled; leave cuda_graphs out or true",
            field=("engine", "cuda_graphs"),
        )
    origin = f"{engine.title} {release.version}"
    batching = engine.batching(device.usable_memory_bytes, device.slug.startswith(REDUCED_BATCHING))
    return EngineSettings(
        engine=engine,
        release=release,
        memory_fraction=asked.memory_fraction
        or remarks.assume(
            "engine.memory_fraction", release.memory_fraction, f"{origin}, of {engine.fraction_of.value}"
        ),
        max_model_len_tokens=_max_model_len(inputs, asked, request_tokens, remarks),
        max_num_batched_tokens=asked.max_num_batched_tokens
        or remarks.assume("engine.max_num_batched_tokens", batching.max_num_batched_tokens, origin),
        max_num_seqs=asked.max_num_seqs or remarks.assume("engine.max_num_seqs", batching.max_num_seqs, origin),
        prefix_caching=asked.prefix_caching
        if asked.prefix_caching is not None
        else remarks.assume("engine.prefix_caching", True, origin),
        cuda_graphs=True,
    )


def _max_model_len(inputs: SizingInputs, asked: EngineAsked, request_tokens: int, remarks: Remarks) -> int:
    """The asked maximum, or the model's. A request that exceeds it would be refused by the engine."""
    own = inputs.model.max_context_tokens
    limit = asked.max_model_len_tokens or own
    if limit is not None and request_tokens > limit:
        raise Invalid(
            f"requests of {request_tokens} tokens exceed the maximum length of {limit}; shorten them, or set "
            "engine.max_model_len_tokens if the model is run with an extended context",
            field=("engine", "max_model_len_tokens") if asked.max_model_len_tokens else ("workload",),
        )
    if asked.max_model_len_tokens:
        return asked.max_model_len_tokens
    if own is not None:
        return remarks.assume("engine.max_model_len_tokens", own, "the model's max_position_embeddings")
    return remarks.assume(
        "engine.max_model_len_tokens", request_tokens, "input + output, as the model states no maximum"
    )


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


def _rates(inputs: SizingInputs, deployment: Deployment, remarks: Remarks) -> ComputeRates | None:
    """Rates of every scheme; what falls back to 16 bits says so. ``None`` where nothing usable is published."""
    device, density, asked = deployment.device, inputs.density, inputs.precision.compute
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
    if asked is None:
        scheme = deployment.weights.scheme
        main = main_choice(rates, scheme)
        remarks.assume("precision.compute", main.precision, main.reason)
    return rates


def main_choice(rates: ComputeRates, scheme: str) -> ComputeChoice:
    """The precision that the bulk of the matrices computes in: that of the checkpoint's scheme."""
    return rates.by_scheme.get(scheme, rates.sixteen_bit)


def _warn_outside_evidence(
    inputs: SizingInputs, isl: Length, osl: Length, coverage: float | None, remarks: Remarks
) -> None:
    if isl.mean_tokens > LONGEST_FITTED_ISL_TOKENS or osl.mean_tokens > LONGEST_FITTED_OSL_TOKENS:
        remarks.warn(
            WarningCode.OUTSIDE_EVIDENCE,
            f"the model of time was fitted to inputs of at most {LONGEST_FITTED_ISL_TOKENS} and outputs of at most "
            f"{LONGEST_FITTED_OSL_TOKENS} tokens",
        )
    if coverage is None:
        remarks.warn(
            WarningCode.NO_COVERAGE_MEASURED,
            f"no serving run on {inputs.accelerator.vendor} hardware was in the fit: how often the intervals hold is "
            "not known",
        )
