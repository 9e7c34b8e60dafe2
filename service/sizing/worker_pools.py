"""The pools of a disaggregated system as asked: what is refused, and what a worker of each pool holds."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from service.errors import Invalid, ParallelismNotLegal
from service.sizing.disaggregated import HANDOVERS, Pools, WorkerPool
from service.sizing.engine_settings import engine_settings
from service.sizing.interconnect import group_link
from service.sizing.memory import MemoryFit, memory_fit
from service.sizing.parallelism import Parallelism
from service.sizing.placement import gpu_count, warn_about_layout
from service.sizing.rank_memory import Deployment, EngineSettings
from service.sizing.remarks import Remarks, WarningCode
from service.sizing.resolution import Resolved
from service.sizing.weights import check_divisible

PREFILL, DECODE = "prefill", "decode"
MAX_BATCH: Final = ("parallelism", "decode_max_batch")


@dataclass(frozen=True, slots=True)
class PoolFit:
    """A pool, and the memory of one of its workers for requests of ``length_tokens``."""

    pool: WorkerPool
    settings: EngineSettings
    worker_gpu_count: int
    length_tokens: int
    fit: MemoryFit

    @property
    def gpu_count(self) -> int:
        return self.pool.worker_count * self.worker_gpu_count


@dataclass(frozen=True, slots=True)
class PoolFits:
    """Both pools, and how many sequences one decode worker runs at once."""

    prefill: PoolFit
    decode: PoolFit
    decode_max_batch: int

    @property
    def gpu_count(self) -> int:
        return self.prefill.gpu_count + self.decode.gpu_count

    @property
    def fit(self) -> MemoryFit:
        """The decode worker's, as an answer gives it: it fits where both do, and lacks what the emptier one lacks."""
        prefill, decode = self.prefill.fit, self.decode.fit
        return decode._replace(
            fits=prefill.fits and decode.fits,
            shortfall_bytes=max(prefill.shortfall_bytes, decode.shortfall_bytes),
        )


def pool_fits(resolved: Resolved, pools: Pools) -> PoolFits:
    """A prefill worker holds a prompt at least, a decode worker a whole request."""
    for detail, field in _refused(resolved, pools):
        raise Invalid(detail, field=field)
    _check_layout(resolved, pools.prefill.parallelism, PREFILL)
    _check_layout(resolved, pools.decode.parallelism, DECODE)
    decode = _pool_fit(resolved, pools.decode, resolved.deployment, length_tokens=resolved.request_tokens)
    reading = resolved.deployment._replace(settings=_settings(resolved, pools.prefill.parallelism))
    prefill = _pool_fit(resolved, pools.prefill, reading, length_tokens=resolved.isl.mean_tokens)
    return PoolFits(prefill, decode, _decode_max_batch(resolved, pools, decode.fit))


def warn_about_pools(resolved: Resolved, pools: PoolFits, *, is_joinable: bool) -> None:
    """``is_joinable``: some layout would hold a whole request."""
    for name, each in ((PREFILL, pools.prefill), (DECODE, pools.decode)):
        warn_about_layout(
            resolved,
            each.pool.parallelism,
            each.fit,
            length_tokens=each.length_tokens,
            is_joinable=is_joinable or name == PREFILL,
            whose=f"{name} pool: ",
        )


def _refused(resolved: Resolved, pools: Pools) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What could only be ignored: the closed form of both pools does not know it."""
    inputs, engine = resolved.inputs, resolved.deployment.settings.engine
    for name, pool in ((PREFILL, pools.prefill), (DECODE, pools.decode)):
        if pool.parallelism.pp > 1:
            yield "workers of a pool are not modelled as pipelines; give pp 1", ("parallelism", name, "pp")
    if inputs.speculation is not None:
        yield "drafting is not modelled in disaggregated systems; leave speculation out", ("speculation",)
    if inputs.replica_count is None:
        yield 'a disaggregated system is one replica; give a number instead of "fill"', ("replica_count",)
    if (inputs.engine.decode_context_parallel_count or 1) > 1:
        field = ("engine", "decode_context_parallel_count")
        yield "decode context parallel is not modelled in disaggregated systems; give 1, or leave it out", field
    if engine.name not in HANDOVERS:
        known = ", ".join(HANDOVERS)
        yield f"the hand-over between pools is not known of {engine.title}; known are {known}", ("engine", "name")


def _check_layout(resolved: Resolved, parallelism: Parallelism, name: str) -> None:
    """As of a replica, naming the pool."""
    try:
        check_divisible(resolved.deployment.model, parallelism)
        group_link(resolved.deployment.device, group_size=parallelism.device_count)
    except ParallelismNotLegal as error:
        raise ParallelismNotLegal(error.detail, field=("parallelism", name, *error.field[1:])) from None


def _settings(resolved: Resolved, parallelism: Parallelism) -> EngineSettings:
    """The engine's computed defaults depend on the layout; what is assumed is said of the decode worker."""
    return engine_settings(
        resolved.inputs._replace(parallelism=parallelism),
        resolved.deployment.device,
        request_tokens=resolved.request_tokens,
        remarks=Remarks(),
    )


def _pool_fit(resolved: Resolved, pool: WorkerPool, deployment: Deployment, *, length_tokens: int) -> PoolFit:
    return PoolFit(
        pool,
        deployment.settings,
        gpu_count(resolved.inputs.accelerator, pool.parallelism),
        length_tokens,
        memory_fit(deployment, pool.parallelism, length_tokens=length_tokens),
    )


def _decode_max_batch(resolved: Resolved, pools: Pools, fit: MemoryFit) -> int:
    """As asked, at most what memory holds; or that, at most the engine's own limit of each dp rank."""
    asked, remarks = pools.decode_max_batch, resolved.remarks
    held = max(1, fit.max_concurrency)
    if asked is None:
        limit = min(held, resolved.deployment.settings.max_num_seqs * pools.decode.parallelism.dp)
        return remarks.assume(
            ".".join(MAX_BATCH), limit, "the requests that a decode worker holds, at most engine.max_num_seqs a dp rank"
        )
    if fit.fits and asked > held:
        remarks.warn(
            WarningCode.REQUESTS_QUEUE,
            f"a decode worker holds {held} requests of {resolved.request_tokens} tokens: no more of the "
            f"{asked} of decode_max_batch run at once",
        )
    return min(asked, held)
