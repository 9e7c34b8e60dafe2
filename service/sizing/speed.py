"""How fast: prefill and decode apart, the closed loop at the asked load, and how likely the target is met."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from math import exp, inf

from service.sizing.decode import DecodeCurve
from service.sizing.estimate import Basis, Estimate, probability_at_most
from service.sizing.evidence import EvidenceStore
from service.sizing.memory import MemoryFit
from service.sizing.parallelism import Parallelism
from service.sizing.parameters import (
    NO_TAIL,
    P90_SHARE_OF_P99,
    TPOT_P99,
    TTFT_P99,
    StepParameters,
    Tail,
)
from service.sizing.prefill import prefill_step, prompt_share_s
from service.sizing.refinement import Belief, Beliefs, LeaningOnRuns, WithoutRuns
from service.sizing.remarks import Remarks, WarningCode
from service.sizing.resolution import Resolved
from service.sizing.run_identity import EngineFlags, configuration_of, hardware_group
from service.sizing.run_terms import Phase
from service.sizing.serving import (
    Load,
    ReplicaUnderLoad,
    ServingPoint,
    largest_concurrency,
    largest_concurrency_near,
)
from service.sizing.step import Step, StepCosts
from service.sizing.workload import Statistic, Target


@dataclass(frozen=True, slots=True)
class RateAtTarget:
    concurrency: int
    output_tokens_per_s_per_gpu: Estimate


@dataclass(frozen=True, slots=True)
class Speed:
    """Estimates of one replica. ``point`` is the closed loop at the asked load, ``full_step`` at the most that fits.

    ``beliefs`` are what stored runs say about each phase, for the answer to name them.
    """

    load: Load
    prefill: Step
    prefill_time_s: Estimate
    input_tokens_per_s_per_gpu: Estimate
    point: ServingPoint
    step: Step
    step_time_s: Estimate
    single_user_tokens_per_s: Estimate
    ttft_s: Estimate
    tpot_s: Estimate | None
    requests_per_s: Estimate
    output_tokens_per_s: Estimate
    output_tokens_per_s_per_gpu: Estimate
    meets_target_probability: float | None
    at_target: RateAtTarget | None
    full_step: Step
    full_concurrency: int
    plain: DecodeCurve
    cached_share_of_prefill: float
    clock_fraction: float
    beliefs: Mapping[Phase, Belief]


@dataclass(frozen=True, slots=True)
class _Loop:
    """The closed loop of one replica at any concurrency, and the estimates at a point of it."""

    replica: ReplicaUnderLoad
    beliefs: Beliefs
    gpu_count: int
    by_physics: Callable[[int], ServingPoint]

    @classmethod
    def of(cls, replica: ReplicaUnderLoad, beliefs: Beliefs, gpu_count: int) -> "_Loop":
        return cls(replica, beliefs, gpu_count, cache(replica.at))

    def at(self, concurrency: int) -> ServingPoint:
        """As the physics has it, corrected by what was measured near it."""
        return self.beliefs.corrected(self.by_physics(concurrency))

    def estimates(self, concurrency: int) -> "_Estimates":
        by_physics = self.by_physics(concurrency)
        refined = self.beliefs.at(by_physics)
        return _Estimates(*refined, self.replica.load.osl_tokens, by_physics.step_time_s)

    def largest_within(self, target: Target, *, most: int) -> int:
        """The largest concurrency whose central estimate keeps the target at its statistic, 0 if none does."""
        by_physics = self._share_of(target, self.by_physics)
        if isinstance(self.beliefs, WithoutRuns):
            return largest_concurrency(by_physics, most=most)
        return largest_concurrency_near(self._share_of(target, self.at), by_physics, most=most)

    @staticmethod
    def _share_of(target: Target, at: Callable[[int], ServingPoint]) -> Callable[[int], float]:
        """How much of the target a concurrency uses up."""
        ttft, tpot = tails(target.statistic)
        longest_ttft_s = inf if target.ttft_s is None else target.ttft_s / ttft.ratio
        longest_tpot_s = inf if target.tpot_s is None else target.tpot_s / tpot.ratio

        def share(concurrency: int) -> float:
            point = at(concurrency)
            return max(point.ttft_s / longest_ttft_s, (point.tpot_s or 0.0) / longest_tpot_s)

        return share


@dataclass(frozen=True, slots=True)
class _Estimates:
    """Of one concurrency. ``step_time_s`` is the physics' own."""

    point: ServingPoint
    about_tpot: Belief
    about_ttft: Belief
    osl_tokens: float
    step_time_s: float

    @property
    def ttft_s(self) -> Estimate:
        """What a request waits for a place is as uncertain as the TPOT of the ones before it."""
        point = self.point
        waiting = self.about_tpot.around(point.waiting_s)
        rest = self.about_ttft.around(point.ttft_s - point.waiting_s)
        low, high = rest.low + waiting.low, rest.high + waiting.high
        return Estimate(point.ttft_s, low, high, rest.coverage_fraction, rest.basis)

    @property
    def tpot_s(self) -> Estimate | None:
        if self.point.tpot_s is None:
            return None
        return self.about_tpot.around(self.point.tpot_s)

    @property
    def requests_per_s(self) -> Estimate:
        """Little's law over the residence time, its low and high ends with TTFT and TPOT both off alike.

        How often that holds was measured for TTFT and TPOT, not for the rate, so it claims no coverage.
        """
        point, ttft, tpot = self.point, self.ttft_s, self.tpot_s
        gaps = self.osl_tokens - 1
        low = ttft.low + gaps * (tpot.low if tpot else 0.0)
        high = ttft.high + gaps * (tpot.high if tpot else 0.0)
        basis = tpot.basis if tpot else ttft.basis
        return Estimate(point.requests_per_s, point.concurrency / high, point.concurrency / low, None, basis)

    def target_probability(self, target: Target) -> float | None:
        """That both limits are kept: the smaller of the two, since their errors go together."""
        ttft_tail, tpot_tail = tails(target.statistic)
        point, chances = self.point, []
        if target.ttft_s is not None:
            chances.append(
                probability_at_most(target.ttft_s, median=point.ttft_s, sd=self.about_ttft.sd, tail=ttft_tail)
            )
        if target.tpot_s is not None and point.tpot_s is not None:
            chances.append(
                probability_at_most(target.tpot_s, median=point.tpot_s, sd=self.about_tpot.sd, tail=tpot_tail)
            )
        return min(chances, default=None)


def tails(statistic: Statistic | None) -> tuple[Tail, Tail]:
    """Of TTFT and TPOT. The closed form gives a run's median; mean and median are not told apart."""
    match statistic:
        case Statistic.P99:
            return TTFT_P99, TPOT_P99
        case Statistic.P90:
            return TTFT_P99.at(P90_SHARE_OF_P99), TPOT_P99.at(P90_SHARE_OF_P99)
        case Statistic.MEAN | Statistic.P50 | None:
            return NO_TAIL, NO_TAIL


def speed(
    resolved: Resolved,
    costs: StepCosts,
    parallelism: Parallelism,
    fit: MemoryFit,
    *,
    gpu_count: int,
    clock_fraction: float,
    evidence: EvidenceStore | None = None,
) -> Speed:
    """Every speed of a layout that fits, at the asked load or at the largest that keeps the target.

    With ``evidence`` corrected by the stored runs nearest to the question; without, by physics alone.
    """
    parameters = resolved.parameters.at_clock(clock_fraction)
    running_limit = max(1, min(fit.max_concurrency, resolved.deployment.settings.max_num_seqs * parallelism.dp))
    load = Load(
        isl_tokens=resolved.isl.mean_tokens,
        osl_tokens=resolved.osl.mean_tokens,
        cached_prefix_tokens=resolved.inputs.workload.cached_prefix_tokens,
        running_limit=running_limit,
        tokens_per_pass=resolved.deployment.settings.max_num_batched_tokens,
        drafting=resolved.drafting,
    )
    replica = ReplicaUnderLoad.of(costs, parameters, load, layer_count=resolved.deployment.model.layer_count)
    loop = _Loop.of(replica, _beliefs(resolved, replica, parallelism, evidence), gpu_count)
    target = _target(resolved)
    most_at_target = None
    if target.is_set:
        most_at_target = loop.largest_within(target, most=running_limit)
    here = loop.estimates(_concurrency(resolved, loop, running_limit, most_at_target))
    prefill = prefill_step(
        costs,
        parameters,
        prompt_tokens=round(load.new_prompt_tokens),
        cached_tokens=load.cached_prefix_tokens,
        tokens_per_pass=load.tokens_per_pass,
    )
    about_prefill = loop.beliefs.prefill(prefill)
    prefill_time = about_prefill.around(prefill.time_s * about_prefill.ratio)
    about_single = loop.beliefs.single_stream()
    single_step_s = loop.by_physics(1).step_time_s * about_single.ratio
    requests, running = here.requests_per_s, here.point.running
    about_step = about_single if running == 1 else here.about_tpot
    beliefs = {
        Phase.SERVING: here.about_tpot,
        Phase.TTFT: here.about_ttft,
        Phase.SINGLE_STREAM: about_single,
        Phase.PREFILL: about_prefill,
    }
    _warn_about_evidence(resolved.remarks, beliefs)
    return Speed(
        load=load,
        prefill=prefill,
        prefill_time_s=prefill_time,
        input_tokens_per_s_per_gpu=prefill_time.reciprocal_of(load.new_prompt_tokens / gpu_count),
        point=here.point,
        step=replica.step(running),
        step_time_s=about_step.around(here.step_time_s * about_step.ratio),
        single_user_tokens_per_s=about_single.around(load.drafting.acceptance_length_tokens / single_step_s),
        ttft_s=here.ttft_s,
        tpot_s=here.tpot_s,
        requests_per_s=requests,
        output_tokens_per_s=requests.scaled(load.osl_tokens),
        output_tokens_per_s_per_gpu=requests.scaled(load.osl_tokens / gpu_count),
        meets_target_probability=here.target_probability(target),
        at_target=_rate_at_target(loop, most_at_target),
        full_step=replica.plain.step(running_limit),
        full_concurrency=running_limit,
        plain=replica.plain,
        cached_share_of_prefill=_cached_share(costs, parameters, load),
        clock_fraction=clock_fraction,
        beliefs=beliefs,
    )


def _beliefs(
    resolved: Resolved, replica: ReplicaUnderLoad, parallelism: Parallelism, evidence: EvidenceStore | None
) -> Beliefs:
    """The question as the stored runs know it: the release only where it was asked for, no campaign."""
    if evidence is None:
        return WithoutRuns(hardware_group(resolved.inputs.accelerator))
    inputs, deployment = resolved.inputs, resolved.deployment
    return LeaningOnRuns.of(
        replica,
        evidence,
        configuration_of(
            phase=Phase.SERVING,
            accelerator=inputs.accelerator,
            model=inputs.model,
            engine=deployment.settings.engine.name,
            engine_version=inputs.engine.version,
            scheme=deployment.weights.scheme,
            parallelism=parallelism,
            device_count=parallelism.device_count,
            is_drafted=resolved.drafting.draft_tokens > 0,
            flags=EngineFlags(
                speculation=inputs.speculation.method if inputs.speculation else None,
                kv_cache=inputs.precision.kv_cache,
                max_num_seqs=inputs.engine.max_num_seqs,
                max_num_batched_tokens=inputs.engine.max_num_batched_tokens,
                prefix_caching=inputs.engine.prefix_caching,
            ),
        ),
    )


def _warn_about_evidence(remarks: Remarks, beliefs: Mapping[Phase, Belief]) -> None:
    far = [phase for phase, belief in beliefs.items() if belief.near and belief.basis is Basis.MODELLED]
    if far:
        remarks.warn(
            WarningCode.OUTSIDE_EVIDENCE,
            f"no stored run is near enough to say anything about {', '.join(far)}: there, times rest on physics alone",
        )
    for phase, belief in beliefs.items():
        if belief.disagreement:
            remarks.warn(
                WarningCode.EVIDENCE_DISAGREES,
                f"a stored {phase} run of this very point took {exp(belief.disagreement):.2f} times what the runs "
                "around it lead to expect: it has little weight, and the interval is widened to hold it. Check it, or "
                "measure once more: a second run that agrees is believed",
            )


def _target(resolved: Resolved) -> Target:
    """The target with its statistic said; percentiles of requests rest on few runs and unknown lengths."""
    target, remarks = resolved.inputs.target, resolved.remarks
    if not target.is_set:
        return target
    statistic = target.statistic or remarks.assume("target.statistic", Statistic.P50, "default")
    if statistic in (Statistic.P90, Statistic.P99):
        remarks.warn(
            WarningCode.TAIL_FROM_FEW_RUNS,
            f"{statistic} of TTFT and TPOT is taken from the median by ratios seen in 25 and 23 published runs",
        )
        if resolved.isl.p95_tokens is None or resolved.osl.p95_tokens is None:
            remarks.warn(
                WarningCode.TAIL_LENGTH_UNKNOWN,
                f"a target at {statistic} depends on the longest requests, and only mean lengths were given",
            )
    return Target(target.ttft_s, target.tpot_s, statistic)


def _concurrency(resolved: Resolved, loop: _Loop, running_limit: int, most_at_target: int | None) -> int:
    """The asked concurrency, the one that serves the asked rate, or the largest that fits and keeps the target."""
    asked, remarks = resolved.inputs.workload, resolved.remarks
    if asked.concurrency is not None:
        if asked.concurrency > running_limit:
            remarks.warn(
                WarningCode.REQUESTS_QUEUE,
                f"{asked.concurrency} requests in flight exceed the {running_limit} that run at once: the rest wait",
            )
        return asked.concurrency
    if asked.request_rate_per_s is not None:
        rate = asked.request_rate_per_s
        below = largest_concurrency(
            lambda number: loop.at(number).requests_per_s / rate * JUST_BELOW, most=running_limit
        )
        if below == running_limit:
            remarks.warn(
                WarningCode.RATE_NOT_SUSTAINED,
                f"one replica serves at most {loop.at(running_limit).requests_per_s:.4g} requests/s, less than the "
                f"{rate:g} asked for; shown at the {running_limit} requests that run at once",
            )
        return remarks.assume(
            "workload.concurrency", min(below + 1, running_limit), "Little's law at request_rate_per_s"
        )
    if most_at_target is None:
        return remarks.assume("workload.concurrency", running_limit, "the largest that fits, as no target was given")
    return remarks.assume(
        "workload.concurrency",
        max(1, most_at_target),
        "the largest that fits and meets the target" if most_at_target else "one request alone misses the target",
    )


JUST_BELOW = 1 + 1e-12  # a rate that is reached exactly is not below


def _rate_at_target(loop: _Loop, concurrency: int | None) -> RateAtTarget | None:
    if not concurrency:
        return None
    requests = loop.estimates(concurrency).requests_per_s
    return RateAtTarget(concurrency, requests.scaled(loop.replica.load.osl_tokens / loop.gpu_count))


def _cached_share(costs: StepCosts, parameters: StepParameters, load: Load) -> float:
    """Share of a prompt's prefill that is attention reaching back over the cached prefix."""
    if not load.cached_prefix_tokens:
        return 0.0
    total, uncached = (
        prompt_share_s(costs, parameters, prompt_tokens=load.new_prompt_tokens, cached_tokens=cached)
        for cached in (load.cached_prefix_tokens, 0)
    )
    return (total - uncached) / total
