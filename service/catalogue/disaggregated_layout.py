"""Reads the layout of a disaggregated system as runs publish it: ``P4xTP1.DP4/D1xTP1.DP32``."""

import re

from service.sizing.disaggregated import Pools, WorkerPool
from service.sizing.parallelism import Parallelism

COUNT = r"([1-9]\d{0,3})"
POOL = rf"{COUNT}xTP{COUNT}(?:\.DP{COUNT})?"
NOTATION = re.compile(f"P{POOL}/D{POOL}", re.ASCII)


def pools_of(layout: str | None, *, is_moe: bool) -> Pools | None:
    """Prefill and decode workers, each with its tensor and attention-data parallelism; ``None`` for other texts.

    The notation leaves expert parallelism out: a MoE whose attention is data-parallel spreads its experts over the
    whole worker, as every published recipe does.

    >>> pools_of("P4xTP1.DP4/D1xTP8", is_moe=True).prefill
    WorkerPool(worker_count=4, parallelism=Parallelism(tp=1, pp=1, ep=4, dp=4))
    >>> pools_of("P8/D16 GPUs", is_moe=True)
    """
    found = NOTATION.fullmatch(layout or "")
    if found is None:
        return None
    count, tp, dp, decode_count, decode_tp, decode_dp = (int(text or 1) for text in found.groups())
    return Pools(_pool(count, tp, dp, is_moe=is_moe), _pool(decode_count, decode_tp, decode_dp, is_moe=is_moe))


def _pool(worker_count: int, tp: int, dp: int, *, is_moe: bool) -> WorkerPool:
    return WorkerPool(worker_count, Parallelism(tp=tp, ep=tp * dp if is_moe and dp > 1 else 1, dp=dp))
