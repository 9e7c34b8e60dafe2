"""How fast: prefill and decode apart, the closed loop at the asked load, and how likely the target is met."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp

from service.sizing.closed_loop import ClosedLoop, Estimates, ReplicaLoop, Worker
from service.sizing.decode import DecodeCurve
from service.sizing.estimate import Basis, Estimate
from service.sizing.evidence import EvidenceStore
from service.sizing.memory import MemoryFit
from service.sizing.parallelism import Parallelism
from service.sizing.precision import Precision
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
)
from service.sizing.step import Step, StepCosts
from service.sizing.workload import Statistic, Target


@dataclass(frozen=True, slots=True)
class RateAtTarget:
    concurrency: int
    output_tokens_per_s_per_gpu: Estimate


@dataclass(frozen=True, slots=True)
class Speed:
    """Estimates of one replica. ``point`` is the closed loop at the asked load.

    ``full_weights_fraction`` is of the decode step at ``full_concurrency``, the most that fits, for reading weights.

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
    full_weights_fraction: float
    full_concurrency: int
    plain: DecodeCurve
    cached_share_of_prefill: float
    clock_fraction: float
    beliefs: Mapping[Phase, Belief]


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
    worker = worker_of(
        resolved,
        costs,
        parallelism,
        running_limit=max(1, min(fit.max_concurrency, resolved.deployment.settings.max_num_seqs * parallelism.dp)),
        gpu_count=gpu_count,
        clock_fraction=clock_fraction,
        evidence=evidence,
    )
    reached = speed_of(resolved, ReplicaLoop.of(worker), reader=worker, decoder=worker, clock_fraction=clock_fraction)
    if reached.point.waiting_s > 0:
        resolved.remarks.warn(
            WarningCode.REQUESTS_QUEUE,
            f"{reached.point.concurrency} requests in flight exceed the {reached.load.running_limit} that run at once: "
            "the rest wait",
        )
    return reached


def worker_of(
    resolved: Resolved,
    costs: StepCosts,
    parallelism: Parallelism,
    *,
    running_limit: int,
    gpu_count: int,
    clock_fraction: float,
    evidence: EvidenceStore | None,
) -> Worker:
    load = Load(
        isl_tokens=resolved.isl.mean_tokens,
        osl_tokens=resolved.osl.mean_tokens,
        cached_prefix_tokens=resolved.inputs.workload.cached_prefix_tokens,
        running_limit=running_limit,
        tokens_per_pass=resolved.deployment.settings.max_num_batched_tokens,
        drafting=resolved.drafting,
    )
    replica = ReplicaUnderLoad.of(
        costs,
        resolved.parameters.at_clock(clock_fraction),
        load,
        layer_count=resolved.deployment.model.layer_count,
    )
    prompt = prefill_step(
        costs,
        replica.parameters,
        prompt_tokens=round(load.new_prompt_tokens),
        cached_tokens=load.cached_prefix_tokens,
        tokens_per_pass=load.tokens_per_pass,
    )
    return Worker(replica, prompt, _beliefs(resolved, replica, prompt, parallelism, evidence), gpu_count)


def speed_of(resolved: Resolved, loop: ClosedLoop, *, reader: Worker, decoder: Worker, clock_fraction: float) -> Speed:
    """``reader`` reads the prompts of the loop and ``decoder`` writes its answers: of one replica they are the same."""
    load, target = loop.load, _target(resolved)
    most_at_target = loop.largest_within(target) if target.is_set else None
    (here, *at_target), about_single, about_prefill = loop.estimates(
        _concurrency(resolved, loop, most_at_target), *filter(None, [most_at_target])
    )
    prompt = reader.prompt
    prefill_time = about_prefill.around(prompt.time_s * about_prefill.ratio)
    step, step_time = loop.decode_step(here, about_single)
    requests, plain = here.requests_per_s, decoder.replica.plain
    beliefs = {
        loop.tpot_phase: here.about_tpot,
        Phase.TTFT: here.about_ttft,
        Phase.SINGLE_STREAM: about_single,
        Phase.PREFILL: about_prefill,
    }
    _warn_about_evidence(resolved.remarks, beliefs)
    return Speed(
        load=load,
        prefill=prompt,
        prefill_time_s=prefill_time,
        input_tokens_per_s_per_gpu=prefill_time.reciprocal_of(load.new_prompt_tokens / reader.gpu_count),
        point=here.point,
        step=step,
        step_time_s=step_time,
        single_user_tokens_per_s=decoder.single_stream(about_single),
        ttft_s=here.ttft_s,
        tpot_s=here.tpot_s,
        requests_per_s=requests,
        output_tokens_per_s=requests.scaled(load.osl_tokens),
        output_tokens_per_s_per_gpu=requests.scaled(load.osl_tokens / loop.gpu_count),
        meets_target_probability=here.target_probability(target),
        at_target=_rate_at_target(loop, *at_target),
        full_weights_fraction=plain.weights_time_fraction(loop.fullest_batch),
        full_concurrency=loop.most,
        plain=plain,
        cached_share_of_prefill=_cached_share(reader.replica),
        clock_fraction=clock_fraction,
        beliefs=beliefs,
    )


def _beliefs(
    resolved: Resolved,
    replica: ReplicaUnderLoad,
    prompt: Step,
    parallelism: Parallelism,
    evidence: EvidenceStore | None,
) -> Beliefs:
    """The question as the stored runs know it: the release only where it was asked for, no campaign."""
    if evidence is None:
        return WithoutRuns(hardware_group(resolved.inputs.accelerator))
    inputs, deployment = resolved.inputs, resolved.deployment
    return LeaningOnRuns.of(
        replica,
        prompt,
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
                kv_cache=Precision.BF16 if inputs.precision.kv_cache is Precision.FP16 else inputs.precision.kv_cache,
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


def _concurrency(resolved: Resolved, loop: ClosedLoop, most_at_target: int | None) -> int:
    """The asked concurrency, the one that serves the asked rate, or the largest that fits and keeps the target."""
    asked, remarks, most = resolved.inputs.workload, resolved.remarks, loop.most
    if asked.concurrency is not None:
        return asked.concurrency
    if asked.request_rate_per_s is not None:
        rate = asked.request_rate_per_s
        below = largest_concurrency(lambda number: loop.at(number).requests_per_s / rate * JUST_BELOW, most=most)
        if below == most:
            remarks.warn(
                WarningCode.RATE_NOT_SUSTAINED,
                f"one replica serves {loop.at(most).requests_per_s:.4g} requests/s with {most} in flight, "
                f"{loop.most_is}: less than the {rate:g} asked for; shown at these {most}",
            )
        return remarks.assume("workload.concurrency", min(below + 1, most), "Little's law at request_rate_per_s")
    if most_at_target is None:
        return remarks.assume("workload.concurrency", most, f"{loop.most_is}, as no target was given")
    return remarks.assume(
        "workload.concurrency",
        max(1, most_at_target),
        f"{loop.most_is} and meets the target" if most_at_target else "one request alone misses the target",
    )


JUST_BELOW = 1 + 1e-12  # a rate that is reached exactly is not below


def _rate_at_target(loop: ClosedLoop, there: Estimates | None = None) -> RateAtTarget | None:
    if there is None:
        return None
    rate = there.requests_per_s.scaled(loop.load.osl_tokens / loop.gpu_count)
    return RateAtTarget(there.point.concurrency, rate)


def _cached_share(replica: ReplicaUnderLoad) -> float:
    """Share of a prompt's prefill that is attention reaching back over the cached prefix."""
    load, costs, parameters = replica.load, replica.curve.costs, replica.parameters
    if not load.cached_prefix_tokens:
        return 0.0
    total, uncached = (
        prompt_share_s(costs, parameters, prompt_tokens=load.new_prompt_tokens, cached_tokens=cached)
        for cached in (load.cached_prefix_tokens, 0)
    )
    return (total - uncached) / total
