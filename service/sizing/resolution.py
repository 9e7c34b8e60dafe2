"""From the question as asked to one with every value resolved, each default with its origin."""

from dataclasses import dataclass

from service.errors import Invalid
from service.sizing.costs import ComputeRates
from service.sizing.engine_settings import check_length
from service.sizing.installation import installation
from service.sizing.parameters import StepParameters
from service.sizing.question import SizingInputs
from service.sizing.rank_memory import Deployment
from service.sizing.remarks import Remarks, WarningCode
from service.sizing.serving import Drafting
from service.sizing.workload import Length

DEFAULT_LENGTH_TOKENS = 1024
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
    isl, osl = _lengths(inputs, remarks)
    request_tokens = isl.mean_tokens + osl.mean_tokens
    found = installation(inputs.installed, check_length(inputs, request_tokens) or request_tokens)
    remarks.add(found.remarks)
    _warn_outside_evidence(inputs, isl, osl, remarks)
    return Resolved(
        inputs=inputs,
        deployment=found.deployment,
        rates=found.rates,
        parameters=found.parameters,
        isl=isl,
        osl=osl,
        drafting=found.drafting,
        coverage_fraction=found.coverage_fraction,
        remarks=remarks,
    )


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


def _warn_outside_evidence(inputs: SizingInputs, isl: Length, osl: Length, remarks: Remarks) -> None:
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
