"""``size()``: the only composition. A question in, every block of the answer out, nothing rounded."""

from dataclasses import replace
from typing import NamedTuple

from service.sizing.cost import Allocation, Cost, cost
from service.sizing.costs import ComputeRates, step_costs
from service.sizing.crossover import Crossover, crossover
from service.sizing.decode import decode_curve
from service.sizing.disaggregated import Pools
from service.sizing.disaggregated_speed import disaggregated_speed
from service.sizing.energy import PowerScope, ScopedPower, scoped_powers
from service.sizing.estimate import Estimate
from service.sizing.evidence import EvidenceStore
from service.sizing.installation import main_choice
from service.sizing.interconnect import group_link
from service.sizing.memory import MemoryFit, memory_fit, smallest_layouts
from service.sizing.parallelism import Parallelism
from service.sizing.placement import Replicas, gpu_count, replicas_of, warn_about_layout
from service.sizing.question import SizingInputs
from service.sizing.remarks import Remarks, WarningCode
from service.sizing.resolution import Resolved, resolve
from service.sizing.speed import Speed, speed
from service.sizing.step import StepCosts
from service.sizing.verdict import Verdict, does_not_fit, speeds_unknown, verdict
from service.sizing.weight_schemes import SCHEMES
from service.sizing.weights import check_divisible
from service.sizing.worker_pools import PoolFits, pool_fits, warn_about_pools


class AtTarget(NamedTuple):
    """The most efficient point that keeps the target: its concurrency and what a watt yields there."""

    concurrency: int
    scope: PowerScope
    output_tokens_per_s_per_gpu: Estimate
    output_tokens_per_s_per_w: Estimate | None


class SizingResult(NamedTuple):
    """Blocks are ``None`` where they cannot be said; the warnings say why.

    ``parallelism`` and ``fit`` are of what decodes: the replica, or a worker of the decode pool. ``pools`` is of
    disaggregated systems alone.
    """

    resolved: Resolved
    parallelism: Parallelism
    pools: PoolFits | None
    replicas: Replicas
    fit: MemoryFit
    minimum_gpu_count: int | None
    crossover: Crossover | None
    speed: Speed | None
    powers: tuple[ScopedPower, ...]
    at_target: AtTarget | None
    cost: Cost | None
    verdict: Verdict


def size(inputs: SizingInputs, evidence: EvidenceStore | None = None) -> SizingResult:
    """Fit, crossover, speed, energy, cost and verdict of a model on an accelerator.

    With ``evidence`` the speeds lean on the stored runs nearest to the question; without, on physics alone.
    """
    resolved, asked = resolve(inputs), inputs.parallelism
    pools = pool_fits(resolved, asked) if isinstance(asked, Pools) else None
    parallelism, minimum_gpu_count = _layout(resolved)
    fit = pools.fit if pools else memory_fit(resolved.deployment, parallelism, length_tokens=resolved.request_tokens)
    is_joinable = minimum_gpu_count is not None
    if pools:
        warn_about_pools(resolved, pools, is_joinable=is_joinable)
    else:
        warn_about_layout(resolved, parallelism, fit, length_tokens=resolved.request_tokens, is_joinable=is_joinable)
    per_replica = pools.gpu_count if pools else gpu_count(inputs.accelerator, parallelism)
    replicas = replicas_of(inputs, per_replica, fits=fit.fits)
    rates, costs, reached = resolved.rates, None, None
    if rates:
        costs = _costs(resolved, rates, parallelism)
        if fit.fits:
            reached = _speed(resolved, rates, costs, parallelism, fit, pools=pools, evidence=evidence)
    powers = scoped_powers(
        inputs.accelerator,
        limit_w=inputs.power.limit_w_per_gpu,
        pue=inputs.power.pue,
        coverage=resolved.coverage_fraction,
    )
    _warn_about_power(resolved, powers)
    return SizingResult(
        resolved=resolved,
        parallelism=parallelism,
        pools=pools,
        replicas=replicas,
        fit=fit,
        minimum_gpu_count=minimum_gpu_count,
        crossover=_crossover(resolved, rates, costs, reached) if rates and costs else None,
        speed=reached,
        powers=powers,
        at_target=_at_target(inputs, reached, powers),
        cost=_cost(resolved, reached, powers, replicas, pools),
        verdict=_verdict(resolved, fit, reached),
    )


def _layout(resolved: Resolved) -> tuple[Parallelism, int | None]:
    """The asked layout, or the smallest that fits and of those the fastest; and the smallest GPU count."""
    deployment, asked = resolved.deployment, resolved.inputs.decode_layout
    if asked is not None:
        check_divisible(deployment.model, asked)
        group_link(deployment.device, group_size=asked.device_count)
    smallest = smallest_layouts(deployment, length_tokens=resolved.request_tokens)
    minimum = gpu_count(resolved.inputs.accelerator, smallest[0]) if smallest else None
    if asked is not None:
        return asked, minimum
    remarks = resolved.remarks
    if not smallest:
        return remarks.assume("parallelism", Parallelism(), "auto: no layout that can be joined fits; one device"), None
    best = smallest[0] if len(smallest) == 1 else min(smallest, key=lambda layout: _slowness(resolved, layout))
    return remarks.assume("parallelism", best, "auto: the smallest that fits, then the best for the target"), minimum


def _slowness(resolved: Resolved, parallelism: Parallelism) -> tuple[float, float]:
    """To choose among layouts of one size: output within the target first, then the step at the asked load."""
    rates = resolved.rates
    if rates is None:
        return 0.0, float(parallelism.tp)
    costs = _costs(resolved, rates, parallelism)
    curve = decode_curve(costs, resolved.parameters, context_tokens=resolved.mean_context_tokens)
    step_time_s = float(curve.time_s(resolved.inputs.workload.concurrency or 1))
    if not resolved.inputs.target.is_set:
        return 0.0, step_time_s
    tried = replace(resolved, remarks=Remarks())
    fit = memory_fit(resolved.deployment, parallelism, length_tokens=resolved.request_tokens)
    reached = _speed(tried, rates, costs, parallelism, fit, pools=None, evidence=None)
    at_target = reached.at_target
    return -at_target.output_tokens_per_s_per_gpu.value if at_target else 0.0, step_time_s


def _costs(resolved: Resolved, rates: ComputeRates, parallelism: Parallelism) -> StepCosts:
    """At printed rates."""
    deployment = resolved.deployment
    return step_costs(
        model=deployment.model,
        weights=deployment.weights,
        device=deployment.device,
        parallelism=parallelism,
        kv_cache=deployment.kv_cache,
        rates=rates,
    )


def _speed(
    resolved: Resolved,
    rates: ComputeRates,
    costs: StepCosts,
    parallelism: Parallelism,
    fit: MemoryFit,
    *,
    pools: PoolFits | None,
    evidence: EvidenceStore | None,
) -> Speed:
    clock_fraction = _clock_fraction(resolved)
    if pools:
        return disaggregated_speed(
            resolved,
            pools,
            prefill_costs=_costs(resolved, rates, pools.prefill.pool.parallelism),
            decode_costs=costs,
            clock_fraction=clock_fraction,
            evidence=evidence,
        )
    return speed(
        resolved,
        costs,
        parallelism,
        fit,
        gpu_count=gpu_count(resolved.inputs.accelerator, parallelism),
        clock_fraction=clock_fraction,
        evidence=evidence,
    )


def _clock_fraction(resolved: Resolved) -> float:
    """Under a power limit clocks fall with its cube root: P ~ f V^2 and V ~ f, the dynamic power of CMOS."""
    limit_w, tdp_w = resolved.inputs.power.limit_w_per_gpu, resolved.inputs.accelerator.tdp_w
    if limit_w is None or tdp_w is None or limit_w == tdp_w:
        return 1.0
    if limit_w > tdp_w:
        resolved.remarks.warn(
            WarningCode.POWER_LIMIT_MODELLED,
            f"a limit of {limit_w:g} W above the rated {tdp_w:g} W changes nothing",
        )
        return 1.0
    clock: float = (limit_w / tdp_w) ** (1 / 3)
    resolved.remarks.warn(
        WarningCode.POWER_LIMIT_MODELLED,
        f"a limit of {limit_w:g} W below the rated {tdp_w:g} W is taken to lower arithmetic rates to {clock:.2f} "
        "of the printed ones (cube root) and to leave memory bandwidth as it is",
    )
    return clock


def _crossover(resolved: Resolved, rates: ComputeRates, costs: StepCosts, reached: Speed | None) -> Crossover:
    """At the batch that runs, or for one sequence where nothing does."""
    weights, context_tokens = resolved.deployment.weights, resolved.mean_context_tokens
    return crossover(
        costs,
        reached.plain if reached else decode_curve(costs, resolved.parameters, context_tokens=context_tokens),
        batch=reached.point.running if reached else 1,
        context_tokens=context_tokens,
        weight_element_bytes=SCHEMES[weights.main_scheme].element.element_bytes,
        compute_flop_per_s=main_choice(rates, weights).flop_per_s,
    )


def _at_target(inputs: SizingInputs, reached: Speed | None, powers: tuple[ScopedPower, ...]) -> AtTarget | None:
    if reached is None or reached.at_target is None:
        return None
    power = _power_of(powers, inputs.power.scope)
    rate = reached.at_target.output_tokens_per_s_per_gpu
    return AtTarget(
        reached.at_target.concurrency,
        inputs.power.scope,
        rate,
        rate.per(power.power_w_per_gpu) if power.power_w_per_gpu else None,
    )


def _power_of(powers: tuple[ScopedPower, ...], scope: PowerScope) -> ScopedPower:
    return next(each for each in powers if each.scope is scope)


def _cost(
    resolved: Resolved,
    reached: Speed | None,
    powers: tuple[ScopedPower, ...],
    replicas: Replicas,
    pools: PoolFits | None,
) -> Cost | None:
    """Of pools that do one thing each, the prefill pool's GPUs are what the input costs."""
    asked = resolved.inputs.economics
    if asked is None or reached is None:
        return None
    resolved.remarks.warn(
        WarningCode.PRICE_DATED,
        f"prices are the caller's, as of {asked.on}" if asked.on else "the prices were given without a date",
    )
    power = _power_of(powers, resolved.inputs.power.scope).power_w_per_gpu
    if asked.usd_per_kwh and power is None:
        resolved.remarks.warn(WarningCode.POWER_UNKNOWN, "energy is not in the cost: the power is not known")
    return cost(
        usd_per_gpu_h=asked.usd_per_gpu_h,
        usd_per_kwh=asked.usd_per_kwh or 0.0,
        power_w_per_gpu=power,
        gpu_count=replicas.gpu_count_per_replica,
        replica_count=replicas.replica_count,
        requests_per_s=reached.requests_per_s,
        new_prompt_tokens=reached.load.new_prompt_tokens,
        cached_prefix_tokens=reached.load.cached_prefix_tokens,
        osl_tokens=reached.load.osl_tokens,
        prefill_fraction=pools.prefill.gpu_count / pools.gpu_count if pools else reached.point.prefill_time_fraction,
        cached_share_of_prefill=reached.cached_share_of_prefill,
        allocation=Allocation.GPU_COUNT if pools else Allocation.STEP_TIME,
    )


def _verdict(resolved: Resolved, fit: MemoryFit, reached: Speed | None) -> Verdict:
    if not fit.fits:
        return does_not_fit()
    if reached is None:
        return speeds_unknown()
    return verdict(
        target=resolved.inputs.target,
        meets_target_probability=reached.meets_target_probability,
        single_user_tokens_per_s=reached.single_user_tokens_per_s,
        full_weights_fraction=reached.full_weights_fraction,
        full_concurrency=reached.full_concurrency,
        output_tokens_per_s_per_gpu=reached.output_tokens_per_s_per_gpu,
    )


def _warn_about_power(resolved: Resolved, powers: tuple[ScopedPower, ...]) -> None:
    asked = _power_of(powers, resolved.inputs.power.scope)
    board = _power_of(powers, PowerScope.ACCELERATOR)
    for each in {board.scope: board, asked.scope: asked}.values():
        if each.power_w_per_gpu is None:
            resolved.remarks.warn(
                WarningCode.POWER_UNKNOWN,
                f"{each.because}: no tokens per watt at scope {each.scope}, not rankable by it",
            )
