"""Layouts in questions and answers: of one replica, or of the two pools of a disaggregated system."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field

from service.api.estimate_schemas import AnswerModel
from service.api.request_forms import POOLS, AsObject, AsPools, AsWord, word_or_object
from service.api.strict_json import RequestModel
from service.sizing.disaggregated import Pools, WorkerPool
from service.sizing.parallelism import Parallelism
from service.sizing.plan import SizingResult
from service.sizing.worker_pools import PoolFit, PoolFits

Ranks = Annotated[int, Field(ge=1, le=1024)]


class ParallelismRequest(RequestModel):
    """Of one replica: tp x pp x dp devices, ep among them."""

    tp: Ranks = Field(1, examples=[2])
    pp: Ranks = 1
    ep: Ranks = 1
    dp: Ranks = 1


class WorkerPoolRequest(ParallelismRequest):
    """Workers of one layout, each a replica of its own. Workers are not modelled as pipelines: pp is 1."""

    worker_count: Annotated[int, Field(ge=1, le=10_000)] = 1


class PoolsRequest(RequestModel):
    """A disaggregated system: one pool of workers reads the prompts, another decodes. The system is one replica."""

    prefill: WorkerPoolRequest
    decode: WorkerPoolRequest
    decode_max_batch: Annotated[int, Field(ge=1, le=10_000_000)] | None = Field(
        None,
        description="sequences of one decode worker over all of its dp ranks; left out, what its memory holds, at most "
        "max_num_seqs a rank",
    )


def _form(value: Any) -> str:
    if isinstance(value, PoolsRequest):
        return POOLS
    if isinstance(value, dict) and not PoolsRequest.model_fields.keys().isdisjoint(value):
        return POOLS
    return word_or_object(value)


LayoutRequest = Annotated[
    Annotated[Literal["auto"], AsWord] | Annotated[ParallelismRequest, AsObject] | Annotated[PoolsRequest, AsPools],
    Discriminator(_form),
    Field(
        description='left out or "auto": the smallest legal layout that fits, then the fastest; or the layout of one '
        "replica; or the pools of a disaggregated system"
    ),
]


def layout_asked(request: Literal["auto"] | ParallelismRequest | PoolsRequest) -> Parallelism | Pools | None:
    if isinstance(request, PoolsRequest):
        return Pools(_pool(request.prefill), _pool(request.decode), request.decode_max_batch)
    return None if request == "auto" else _parallelism(request)


def _pool(request: WorkerPoolRequest) -> WorkerPool:
    return WorkerPool(request.worker_count, _parallelism(request))


def _parallelism(request: ParallelismRequest) -> Parallelism:
    return Parallelism(request.tp, request.pp, request.ep, request.dp)


class ParallelismInputs(AnswerModel):
    tp: int
    pp: int
    ep: int
    dp: int


class WorkerPoolInputs(ParallelismInputs):
    worker_count: int


class PoolsInputs(AnswerModel):
    prefill: WorkerPoolInputs
    decode: WorkerPoolInputs
    decode_max_batch: int = Field(description="sequences that one decode worker runs at once")


class WorkerMemoryRead(AnswerModel):
    """Of one worker, on its fullest GPU. A GPU of several devices is given per device."""

    length_tokens: int = Field(description="of the requests that it holds: ISL for prefill, ISL + OSL for decode")
    fits: bool = Field(description="weights, overheads and one such request fit on every GPU of the worker")
    memory_fraction: float = Field(description="of the engine; its computed default may differ between layouts")
    weight_bytes_per_gpu: int
    kv_cache_budget_bytes_per_gpu: int
    max_concurrency: int = Field(description="such requests that the worker's KV caches hold")
    shortfall_bytes_per_gpu: int = Field(description="missing for one such request; 0 when it fits")


class WorkerPoolRead(AnswerModel):
    worker_count: int
    parallelism: ParallelismInputs = Field(description="of one worker")
    gpu_count: int = Field(description="of all workers")
    memory_fit: WorkerMemoryRead


class PoolsRead(AnswerModel):
    """The two pools of a disaggregated system; null for other layouts."""

    prefill: WorkerPoolRead
    decode: WorkerPoolRead


def layout_document(result: SizingResult) -> dict[str, Any]:
    pools = result.pools
    if pools is None:
        return parallelism_document(result.parallelism)
    return {
        "prefill": _pool_inputs(pools.prefill.pool),
        "decode": _pool_inputs(pools.decode.pool),
        "decode_max_batch": pools.decode_max_batch,
    }


def parallelism_document(layout: Parallelism) -> dict[str, int]:
    return {"tp": layout.tp, "pp": layout.pp, "ep": layout.ep, "dp": layout.dp}


def _pool_inputs(pool: WorkerPool) -> dict[str, int]:
    return {"worker_count": pool.worker_count, **parallelism_document(pool.parallelism)}


def pools_document(pools: PoolFits | None) -> dict[str, Any] | None:
    return {"prefill": _pool_read(pools.prefill), "decode": _pool_read(pools.decode)} if pools else None


def _pool_read(each: PoolFit) -> dict[str, Any]:
    fit = each.fit
    return {
        "worker_count": each.pool.worker_count,
        "parallelism": parallelism_document(each.pool.parallelism),
        "gpu_count": each.gpu_count,
        "memory_fit": {
            "length_tokens": each.length_tokens,
            "fits": fit.fits,
            "memory_fraction": each.settings.memory_fraction,
            "weight_bytes_per_gpu": round(fit.fullest.weight_bytes),
            "kv_cache_budget_bytes_per_gpu": round(max(0.0, fit.fullest.budget_bytes)),
            "max_concurrency": fit.max_concurrency,
            "shortfall_bytes_per_gpu": round(fit.shortfall_bytes),
        },
    }
