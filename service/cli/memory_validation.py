"""Published start-ups against the accounting: tokens out of the printed pool, the pool out of flags, and outcomes."""

from collections.abc import Iterable
from dataclasses import dataclass

from service.catalogue.memory_cases import (
    GIB,
    MemoryCase,
    case_accelerator,
    case_inputs,
    case_model,
    load_memory_cases,
)
from service.catalogue.snapshot import Snapshot
from service.errors import ServiceError
from service.sizing.memory import MemoryFit, memory_fit, reported_tokens
from service.sizing.parallelism import Parallelism
from service.sizing.rank_memory import Deployment, RankMemory
from service.sizing.resolution import resolve

PRINTED_TO_GIB = 0.005  # a pool printed to a hundredth of a GiB lies this close
TOKENS_BAR = 0.001
POOL_BARS = {"dense": 0.02, "moe": 0.02, "multimodal": 0.05, "hybrid": 0.05}
OTHER_ENGINES_BAR = 0.05
POOL_BAR_BYTES = 0.5 * GIB
SHARE_OF_CASES = 0.9


@dataclass(frozen=True, slots=True)
class Comparison:
    """One start-up: what could be compared, and how far off. ``None`` where the log or the facts do not reach.

    ``tokens_error`` and ``pool_error`` are relative, the former beyond what the printing of the pool rounds away.
    """

    case: MemoryCase
    not_computed: str | None = None
    tokens_error: float | None = None
    pool_error: float | None = None
    pool_error_bytes: float | None = None
    predicted_pool_bytes: float | None = None
    starts: bool | None = None
    refusal: str | None = None
    weight_error_bytes: float | None = None
    activation_error_bytes: float | None = None
    runtime_error_bytes: float | None = None

    def knows(self, figure: str) -> bool:
        """Whether the case says why that figure cannot agree."""
        return figure in self.case.known_difference

    @property
    def pool_within(self) -> bool | None:
        """2 % or half a GiB for vLLM's dense and expert models, 5 % for its others and the other engines."""
        if self.pool_error is None or self.pool_error_bytes is None:
            return None
        if self.case.engine.name != "vllm":
            return abs(self.pool_error) <= OTHER_ENGINES_BAR
        bar = POOL_BARS[self.case.family]
        is_small = self.case.family in ("dense", "moe") and abs(self.pool_error_bytes) <= POOL_BAR_BYTES
        return is_small or abs(self.pool_error) <= bar

    @property
    def tokens_within(self) -> bool | None:
        return None if self.tokens_error is None else abs(self.tokens_error) <= TOKENS_BAR

    @property
    def outcome_right(self) -> bool | None:
        return None if self.starts is None else self.starts == self.case.starts


@dataclass(frozen=True, slots=True)
class Bar:
    title: str
    within: int
    count: int
    share: float

    @property
    def is_kept(self) -> bool:
        return self.within >= self.share * self.count


def bars(comparisons: list[Comparison]) -> tuple[Bar, ...]:
    """Cases known to disagree are out of them, and listed."""
    vllm = [each for each in comparisons if each.case.engine.name == "vllm" and not each.knows("pool")]
    text, other = ("dense", "moe"), ("multimodal", "hybrid")
    return (
        _bar(
            "tokens out of the printed pool",
            (each.tokens_within for each in comparisons if not each.knows("tokens")),
            1,
        ),
        _bar("vLLM pool from flags, dense and MoE", (e.pool_within for e in vllm if e.case.family in text)),
        _bar("the same, held out", (e.pool_within for e in vllm if e.case.family in text and e.case.is_held_out)),
        _bar("vLLM pool from flags, multimodal and hybrid", (e.pool_within for e in vllm if e.case.family in other)),
        _bar(
            "pool from flags, other engines",
            (e.pool_within for e in comparisons if e.case.engine.name != "vllm" and not e.knows("pool")),
        ),
        _bar("starts or not", (e.outcome_right for e in comparisons if not e.knows("outcome")), 1),
    )


def _bar(title: str, verdicts: Iterable[bool | None], share: float = SHARE_OF_CASES) -> Bar:
    known = [verdict for verdict in verdicts if verdict is not None]
    return Bar(title, sum(known), len(known), share)


def compare_all(snapshot: Snapshot) -> list[Comparison]:
    return [compare(case, snapshot) for case in load_memory_cases().cases]


def compare(case: MemoryCase, snapshot: Snapshot) -> Comparison:
    if case.not_computed is not None or case.model is None:
        return Comparison(case, case.not_computed or "the model is not stated")
    try:
        model = case_model(case.model, load_memory_cases().models, snapshot)
        resolved = resolve(case_inputs(case, model, case_accelerator(case, snapshot)))
    except ServiceError as error:
        return Comparison(case, error.detail)
    layout = case.layout
    parallelism = Parallelism(layout.tp, layout.pp, layout.ep, layout.dp)
    fit = memory_fit(resolved.deployment, parallelism, length_tokens=resolved.request_tokens)
    from_flags = case.accelerator is not None and case.fraction_stated
    printed = case.printed
    pool, printed_pool = fit.fullest.budget_bytes, _printed_pool_bytes(case, fit.fullest, resolved.deployment)
    off = pool - printed_pool if from_flags and printed_pool is not None else None
    return Comparison(
        case,
        tokens_error=_tokens_error(case, fit, resolved.deployment),
        pool_error=None if off is None or not printed_pool else off / abs(printed_pool),
        pool_error_bytes=off,
        predicted_pool_bytes=pool if from_flags else None,
        starts=_starts(case, fit) if from_flags else None,
        refusal=fit.refusal,
        weight_error_bytes=_off(fit.fullest.weight_bytes, printed.weight_gib),
        activation_error_bytes=_off(fit.fullest.activation_bytes, printed.activation_gib) if from_flags else None,
        runtime_error_bytes=_off(fit.fullest.runtime_bytes, printed.runtime_gib) if from_flags else None,
    )


def _printed_pool_bytes(case: MemoryCase, rank: RankMemory, deployment: Deployment) -> float | None:
    """Of the fullest rank: its blocks where they are printed, else the GiB, else out of the tokens.

    A log's GiB may be another rank's.
    """
    printed = case.printed
    if printed.blocks is not None:
        return printed.blocks * rank.pool.block_bytes
    if printed.pool_gib is not None:
        return printed.pool_gib * GIB
    if printed.tokens is None or deployment.settings.release.tokens_follow_concurrency:
        return None
    return printed.tokens / rank.pool.block_tokens * rank.pool.group_count * rank.pool.block_bytes


def _starts(case: MemoryCase, fit: MemoryFit) -> bool | None:
    """Whether it would; unknown where all hangs on a maximum length that the log does not say."""
    is_known = case.engine.max_model_len_tokens is not None or case.engine.free_memory_gib is not None
    if fit.would_start or is_known or fit.fullest.budget_bytes <= 0:
        return fit.would_start
    return None


def _off(predicted_bytes: float, printed_gib: float | None) -> float | None:
    return None if printed_gib is None else predicted_bytes - printed_gib * GIB


def _tokens_error(case: MemoryCase, fit: MemoryFit, deployment: Deployment) -> float | None:
    """Of what the cache itself decides, whatever the budget: the first of these that the log shows.

    The cache of llama.cpp, the need of one request, the grown block of a hybrid, and the tokens.
    """
    printed = case.printed
    if printed.cache_mib is not None:
        held = sum(each.needed_bytes(deployment.settings.max_model_len_tokens) for each in fit.ranks)
        return held / (printed.cache_mib * 2**20) - 1
    if printed.needed_gib is not None:
        return _beyond(printed.needed_gib, *_around(fit.needed_bytes / GIB))
    if printed.block_tokens is not None:
        return fit.fullest.pool.block_tokens / printed.block_tokens - 1
    return None if printed.tokens is None else _pool_tokens_error(case, printed.tokens, fit.fullest, deployment)


def _pool_tokens_error(case: MemoryCase, tokens: int, rank: RankMemory, deployment: Deployment) -> float | None:
    """Of the tokens in the printed pool by the engine's own formula; 0 within the rounding of the pool."""
    if case.printed.blocks is not None:
        return reported_tokens(rank, deployment.settings, case.printed.blocks) / tokens - 1
    if case.printed.pool_gib is None:
        return _whole_blocks_error(tokens, rank, deployment)
    low, high = (_tokens_in(rank, deployment, gib) for gib in _around(case.printed.pool_gib))
    return _beyond(tokens, low, high)


def _whole_blocks_error(tokens: int, rank: RankMemory, deployment: Deployment) -> float | None:
    """Without the pool: tokens that follow concurrency are those of a whole number of blocks, or nothing is learnt."""
    settings = deployment.settings
    if not settings.release.tokens_follow_concurrency:
        return None
    per_request = rank.pool.blocks_per_request(settings.max_model_len_tokens)
    blocks = round(tokens * per_request / settings.max_model_len_tokens)
    is_whole = abs(reported_tokens(rank, settings, blocks) - tokens) <= 1
    return 0.0 if is_whole and blocks < tokens // 1000 else None


def _around(gib: float) -> tuple[float, float]:
    return gib - PRINTED_TO_GIB, gib + PRINTED_TO_GIB


def _tokens_in(rank: RankMemory, deployment: Deployment, pool_gib: float) -> float:
    return reported_tokens(rank, deployment.settings, rank.blocks_in(pool_gib * GIB))


def _beyond(printed: float, low: float, high: float) -> float:
    if low <= printed <= high:
        return 0.0
    return (low if printed < low else high) / printed - 1
