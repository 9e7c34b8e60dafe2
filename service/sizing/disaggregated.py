"""Disaggregated serving: one pool of workers reads the prompts, another decodes, each worker a replica of its own.

A worker that decodes is never stalled by prefill, so its step is the TPOT; what is left is a closed loop over both
pools. Times of a prompt and of a step are those of ``prefill.py`` and ``decode.py`` and come in as numbers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from service.sizing.parallelism import Parallelism

SATURATION_SHARPNESS: Final = 8  # of the smaller of two rates: at equal rates a pool serves 2^(-1/8), 92 %, of either
HALVINGS: Final = 50  # of the interval that holds the batch


@dataclass(frozen=True, slots=True)
class WorkerPool:
    """``worker_count`` replicas of one layout."""

    worker_count: int
    parallelism: Parallelism

    @property
    def device_count(self) -> int:
        return self.worker_count * self.parallelism.device_count


@dataclass(frozen=True, slots=True)
class Pools:
    """``decode_max_batch`` limits the sequences of one decode worker; ``None`` where nobody states it."""

    prefill: WorkerPool
    decode: WorkerPool
    decode_max_batch: int | None = None

    @property
    def device_count(self) -> int:
        return self.prefill.device_count + self.decode.device_count


@dataclass(frozen=True, slots=True)
class Handover:
    """What an engine adds before the first token of the decode pool.

    ``slowdown`` multiplies a prompt's prefill, ``request_s`` is handling and moving the KV cache, ``step_count``
    decode steps are waited or shared, ``queue_fraction`` is the share of the requests in flight that are ahead in the
    prefill queue.
    """

    slowdown: float
    request_s: float
    step_count: float
    queue_fraction: float


# The aggregated TTFT numbers rounded by hand after one look at 163 published disaggregated runs, and not fitted to
# them: runs that wait for a limit on the decode batch, which nobody states, would pull a fit.
HANDOVERS: Final[Mapping[str, Handover]] = {
    "tensorrt-llm": Handover(slowdown=1.0, request_s=0.10, step_count=5.0, queue_fraction=0.08),
    "vllm": Handover(slowdown=1.0, request_s=0.10, step_count=5.0, queue_fraction=0.10),
    "sglang": Handover(slowdown=1.35, request_s=0.20, step_count=5.0, queue_fraction=0.30),
}


@dataclass(frozen=True, slots=True)
class PrefillPool:
    """``prompts_per_s`` when it never idles, and how long one prompt takes on a worker whose dp ranks are all busy."""

    prompts_per_s: float
    prompt_latency_s: float

    @classmethod
    def of(cls, pool: WorkerPool, *, prompt_share_s: float, layer_overhead_s: float) -> "PrefillPool":
        """From what a prompt takes of one busy worker, and the launches of its pass.

        ::

            latency = share * dp + overhead
            prompts/s = workers * dp / latency

        >>> PrefillPool.of(WorkerPool(2, Parallelism(dp=4)), prompt_share_s=0.1, layer_overhead_s=0.1)
        PrefillPool(prompts_per_s=16.0, prompt_latency_s=0.5)
        """
        dp = pool.parallelism.dp
        latency_s = prompt_share_s * dp + layer_overhead_s
        return cls(pool.worker_count * dp / latency_s, latency_s)


class DisaggregatedPoint(NamedTuple):
    """One concurrency. ``decode_batch`` is the mean of a decode worker; with one output token nothing is decoded.

    ``ttft_s`` has no bound of its own where the decode pool is full: requests wait there for a place, ``waiting_s`` of
    it.
    """

    concurrency: float
    decode_batch: float
    requests_per_s: float
    ttft_s: float
    waiting_s: float
    tpot_s: float | None

    def output_tokens_per_s_per_gpu(self, *, osl_tokens: float, gpu_count: int) -> float:
        return self.requests_per_s * osl_tokens / gpu_count


@dataclass(frozen=True, slots=True)
class DisaggregatedSystem:
    """Both pools and their load; ``at`` gives any concurrency.

    ``step_time_s`` is of one decode worker at a batch. ``decode_max_batch`` limits the sequences of one decode worker;
    left out there is no limit, and the TTFT holds only while the decode pool is not full.
    """

    prefill: PrefillPool
    decode_worker_count: int
    step_time_s: Callable[[float], float]
    handover: Handover
    osl_tokens: float
    decode_max_batch: float | None = None

    def at(self, concurrency: float) -> DisaggregatedPoint:
        """The closed loop, by Little's law over both pools.

        ::

            R = (osl - 1) * step(batch)                        the time of a request in the decode pool
            hold = request + latency + step_count * step(batch) + queue_fraction * concurrency / mu    and before it
            rate = ((concurrency / (R + hold))^-8 + mu^-8)^(-1/8)        mu: prompts/s of the prefill pool
            batch = rate * R / workers, at most decode_max_batch: then rate = decode_max_batch * workers / R
            TPOT = step(batch),  TTFT = max(concurrency / rate - R, hold)

        A full decode pool therefore keeps requests waiting for ``(concurrency / (workers * decode_max_batch) - 1) R``.
        Assumes: workers share the load evenly; a step grows with the batch, and less than in proportion to it.
        """
        batch = self._batch(concurrency)
        gaps, step_s = self.osl_tokens - 1, self.step_time_s(batch)
        decode_s, hold_s = gaps * step_s, self.hold_s(step_s, concurrency)
        rate = unlimited_rate = self._requests_per_s(decode_s, hold_s, concurrency)
        if self.decode_max_batch is not None and decode_s:
            rate = min(rate, self.decode_max_batch * self.decode_worker_count / decode_s)
        return DisaggregatedPoint(
            concurrency=concurrency,
            decode_batch=batch,
            requests_per_s=rate,
            ttft_s=max(concurrency / rate - decode_s, hold_s),
            waiting_s=concurrency / rate - concurrency / unlimited_rate,
            tpot_s=step_s if gaps else None,
        )

    def hold_s(self, step_s: float, concurrency: float) -> float:
        """A request's time before decode, while the decode pool has a place for it."""
        queued_s = self.handover.queue_fraction * concurrency / self.prefill.prompts_per_s
        return self.handover.request_s + self.prefill.prompt_latency_s + self.handover.step_count * step_s + queued_s

    def _requests_per_s(self, decode_s: float, hold_s: float, concurrency: float) -> float:
        return smooth_minimum(concurrency / (decode_s + hold_s), self.prefill.prompts_per_s)

    def _batch(self, concurrency: float) -> float:
        """Where the batch that a step's time leads to is the batch of that step, by halving.

        Little's law puts it below an even share of all requests; no request at all leads to some, so that one lies
        between.
        """
        low, high = 0.0, concurrency / self.decode_worker_count
        if self.decode_max_batch is not None:
            high = min(high, self.decode_max_batch)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            step_s = self.step_time_s(middle)
            decode_s = (self.osl_tokens - 1) * step_s
            rate = self._requests_per_s(decode_s, self.hold_s(step_s, concurrency), concurrency)
            if rate * decode_s / self.decode_worker_count > middle:
                low = middle
            else:
                high = middle
        return high


def smooth_minimum(one: float, other: float) -> float:
    """``(one^-8 + other^-8)^(-1/8)``: a queue forms before a pool is full.

    >>> smooth_minimum(1.0, 1000.0)
    1.0
    >>> round(smooth_minimum(1.0, 1.0), 3)
    0.917
    """
    smaller, larger = min(one, other), max(one, other)
    slowed: float = (1 + (smaller / larger) ** SATURATION_SHARPNESS) ** (-1 / SATURATION_SHARPNESS)
    return smaller * slowed
