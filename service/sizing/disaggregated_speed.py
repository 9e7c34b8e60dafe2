"""How fast a disaggregated system is: the closed form over both pools, its decode step as stored runs correct it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import exp, log
from typing import ClassVar, Final

import numpy as np

from service.sizing.closed_loop import Estimates, LoopEstimates, Worker, share_of_target
from service.sizing.disaggregated import HANDOVERS, DisaggregatedSystem, PrefillPool
from service.sizing.estimate import Estimate
from service.sizing.evidence import EvidenceStore
from service.sizing.refinement import Belief
from service.sizing.remarks import WarningCode
from service.sizing.resolution import Resolved
from service.sizing.run_terms import Phase
from service.sizing.serving import Load, ServingPoint, largest_concurrency
from service.sizing.speed import Speed, speed_of, worker_of
from service.sizing.step import Step, StepCosts, layer_overhead_s
from service.sizing.worker_pools import PoolFit, PoolFits
from service.sizing.workload import Target

BATCHES: Final = 9  # at which the stored runs are asked: between them the correction hardly bends
ENDLESS: Final = 1e9  # requests in flight, of which nearly all wait


def disaggregated_speed(
    resolved: Resolved,
    pools: PoolFits,
    *,
    prefill_costs: StepCosts,
    decode_costs: StepCosts,
    clock_fraction: float,
    evidence: EvidenceStore | None,
) -> Speed:
    """Every speed of a system whose workers fit, its replica being both pools."""

    def worker(pool: PoolFit, costs: StepCosts) -> Worker:
        return worker_of(
            resolved,
            costs,
            pool.pool.parallelism,
            running_limit=pools.decode_max_batch,
            gpu_count=pool.worker_gpu_count,
            clock_fraction=clock_fraction,
            evidence=evidence,
        )

    reader, decoder = worker(pools.prefill, prefill_costs), worker(pools.decode, decode_costs)
    handover = HANDOVERS[resolved.deployment.settings.engine.name]
    system = DisaggregatedSystem(
        prefill=PrefillPool.of(
            pools.prefill.pool,
            prompt_share_s=handover.slowdown * reader.replica.prompt_s,
            layer_overhead_s=layer_overhead_s(prefill_costs, reader.replica.parameters),
        ),
        decode_worker_count=pools.decode.pool.worker_count,
        step_time_s=_corrected_step(decoder, pools.decode_max_batch),
        handover=handover,
        osl_tokens=decoder.replica.load.osl_tokens,
        decode_max_batch=pools.decode_max_batch,
    )
    loop = DisaggregatedLoop(system, reader, decoder, pools.gpu_count)
    reached = speed_of(resolved, loop, reader=reader, decoder=decoder, clock_fraction=clock_fraction)
    _warn(resolved, pools, reached, most=loop.most)
    return reached


def _corrected_step(decoder: Worker, max_batch: int) -> Callable[[float], float]:
    """Seconds of a step at a mean batch: by physics, times what the stored runs say near it.

    A worker with less than one sequence on average still takes the step of one whenever it has one.
    """
    batches = np.unique(np.geomspace(1.0, max_batch, BATCHES))
    shifts = np.array([log(decoder.beliefs.decode_worker(batch).ratio) for batch in batches.tolist()])
    curve = decoder.replica.curve

    def step_time_s(batch: float) -> float:
        filled = max(1.0, batch)
        return float(curve.time_s(filled)) * exp(np.interp(filled, batches, shifts))

    return step_time_s


@dataclass(frozen=True)
class DisaggregatedLoop:
    system: DisaggregatedSystem
    reader: Worker
    decoder: Worker
    gpu_count: int

    tpot_phase: ClassVar[Phase] = Phase.DISAGGREGATED
    most_is: ClassVar[str] = "the largest that the slower pool serves without a queue"

    @property
    def load(self) -> Load:
        return self.decoder.replica.load

    @cached_property
    def most(self) -> int:
        """What keeps the slower pool busy, by Little's law, if nobody queued; more requests only wait.

        ``rate * (R + hold)``, with the rate and the time in decode ``R`` of a system that is never idle.
        """
        busy = self.system.at(ENDLESS)
        step_s = self.system.step_time_s(busy.decode_batch)
        decode_s = (self.load.osl_tokens - 1) * step_s
        return max(1, int(busy.requests_per_s * (decode_s + self.system.hold_s(step_s, 0))))

    @property
    def fullest_batch(self) -> float:
        return self._point(self.most)[1]

    def at(self, concurrency: int) -> ServingPoint:
        """``running`` is of one decode worker, its mean rounded; prefill's share is of the time of its own pool."""
        return self._point(concurrency)[0]

    def _point(self, concurrency: int) -> tuple[ServingPoint, float]:
        """And the mean batch of a decode worker."""
        found = self.system.at(concurrency)
        batch = max(1.0, found.decode_batch)
        point = ServingPoint(
            concurrency=concurrency,
            running=round(batch),
            step_time_s=self.system.step_time_s(batch),
            ttft_s=found.ttft_s,
            waiting_s=found.waiting_s,
            tpot_s=found.tpot_s,
            requests_per_s=found.requests_per_s,
            prefill_time_fraction=found.requests_per_s / self.system.prefill.prompts_per_s,
        )
        return point, batch

    def estimates(self, *concurrencies: int) -> LoopEstimates:
        reader, decoder = (worker.beliefs.answers([worker.replica.at(1)]) for worker in (self.reader, self.decoder))
        return LoopEstimates([self._estimates(each) for each in concurrencies], decoder.single_stream, reader.prefill)

    def _estimates(self, concurrency: int) -> Estimates:
        """How far off the TTFT is has been measured of no kind of hardware: its prior claims nothing."""
        point, batch = self._point(concurrency)
        return Estimates(
            point,
            about_tpot=self.decoder.beliefs.decode_worker(batch),
            about_ttft=Belief.of_prior(Phase.TTFT, None),
            osl_tokens=self.load.osl_tokens,
            batch=batch,
        )

    def largest_within(self, target: Target) -> int:
        share = share_of_target(target)
        return largest_concurrency(lambda concurrency: share(self.at(concurrency)), most=self.most)

    def decode_step(self, here: Estimates, about_single: Belief) -> tuple[Step, Estimate]:  # noqa: ARG002 - of any batch
        return self.decoder.replica.step(here.batch), here.about_tpot.around(here.point.step_time_s)


def _warn(resolved: Resolved, pools: PoolFits, reached: Speed, *, most: int) -> None:
    point, remarks = reached.point, resolved.remarks
    remarks.warn(
        WarningCode.NO_COVERAGE_MEASURED,
        "how often intervals of disaggregated systems hold is not claimed: the TTFT of published ones was off by more "
        "than a third in the median, and their hand-over is taken whatever joins these pools",
    )
    if point.waiting_s > 0:
        workers, limit = pools.decode.pool.worker_count, pools.decode_max_batch
        remarks.warn(
            WarningCode.REQUESTS_QUEUE,
            f"the decode pool is full: of {point.concurrency} requests in flight {workers} x {limit} decode, and the "
            f"others wait {point.waiting_s:.3g} s of the TTFT for a place",
        )
    elif point.concurrency > most:
        remarks.warn(
            WarningCode.REQUESTS_QUEUE,
            f"the prefill pool is the slower one: {most} requests in flight keep it busy, and the others of "
            f"{point.concurrency} wait to be read",
        )
