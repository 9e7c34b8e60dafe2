"""What one rank holds and reads of a checkpoint's weights under a layout."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from service.errors import ParallelismNotLegal
from service.sizing.language_model import Component, LanguageModel, Sharding
from service.sizing.parallelism import Parallelism
from service.sizing.weight_schemes import StoredEntry, stored_weights

FIRST_STAGE = (Component.EMBEDDING, Component.VISION)
LAST_STAGE = (Component.LM_HEAD, Component.OTHER)
NOT_DENSE_READ = (Component.EMBEDDING, Component.VISION, Component.EXPERTS)
NO_MATRIX_WORK = (Component.EMBEDDING, Component.VISION, Component.OTHER)


@dataclass(frozen=True, slots=True)
class Stage:
    """The decoder layers ``first <= layer < end`` of one pipeline stage."""

    first_layer: int
    end_layer: int
    is_first: bool
    is_last: bool


@lru_cache(maxsize=1024)
def pipeline_stages(layer_count: int, pp: int) -> tuple[Stage, ...]:
    """Layers per stage as vLLM divides them: what is left over goes to the stages before the last one.

    >>> [stage.end_layer - stage.first_layer for stage in pipeline_stages(10, 4)]
    [2, 3, 3, 2]
    """
    sizes = [layer_count // pp] * pp
    for offset in range(layer_count % pp):
        sizes[-2 - offset] += 1
    ends = list(accumulate(sizes))
    return tuple(
        Stage(end - size, end, end == sizes[0], end == layer_count) for size, end in zip(sizes, ends, strict=True)
    )


@dataclass(frozen=True, slots=True)
class ShardClass:
    """The tensors that a layout divides alike: ``bytes_below[i]`` is held in the layers before layer i."""

    sharding: Sharding
    shard_limit: int | None
    bytes_below: tuple[int, ...]
    first_stage_bytes: int
    last_stage_bytes: int

    def bytes_per_rank(self, parallelism: Parallelism, stage: Stage) -> float:
        held = self.bytes_below[stage.end_layer] - self.bytes_below[stage.first_layer]
        held += self.first_stage_bytes * stage.is_first + self.last_stage_bytes * stage.is_last
        return held / shard_count(self.sharding, self.shard_limit, parallelism)


def shard_count(sharding: Sharding, shard_limit: int | None, parallelism: Parallelism) -> int:
    """Into how many parts a tensor falls; a limit (KV heads) leaves copies on the ranks beyond it."""
    match sharding:
        case Sharding.REPLICATED:
            return 1
        case Sharding.TENSOR:
            return min(parallelism.tp, shard_limit or parallelism.tp)
        case Sharding.EXPERT:
            return parallelism.tp * parallelism.dp


@dataclass(frozen=True, slots=True)
class MatrixWork:
    """Parameters that a token is multiplied with in decode, stored in one scheme."""

    scheme: str
    dense_parameter_count: int
    head_parameter_count: int
    expert_parameter_count: int


@dataclass(frozen=True, slots=True, eq=False)
class ServedWeights:
    """A model's weights in one scheme, summed the ways in which the formulas need them.

    ``dense_read_classes`` and ``expert_read_bytes`` are what a decode step reads: of an embedding table a token
    looks up one row, so only one that doubles as the head counts, and a vision tower sees no decode step.
    """

    scheme: str
    total_bytes: int
    classes: tuple[ShardClass, ...]
    dense_read_classes: tuple[ShardClass, ...]
    expert_read_bytes: int
    head_bytes: int
    moe_layer_count: int
    has_vision: bool
    work: tuple[MatrixWork, ...]

    @lru_cache(maxsize=256)  # noqa: B019 - kept with the weights, which are kept for good
    def bytes_per_rank(self, parallelism: Parallelism, stage: Stage) -> float:
        """Resident bytes on each rank of a stage."""
        return sum(each.bytes_per_rank(parallelism, stage) for each in self.classes)

    def dense_read_bytes_per_rank(self, parallelism: Parallelism, whole: Stage) -> float:
        """All that is read in every step whatever the batch, over all stages, of one tp rank."""
        return sum(each.bytes_per_rank(parallelism, whole) for each in self.dense_read_classes)


@lru_cache(maxsize=256)
def served_weights(model: LanguageModel, scheme: str | None) -> ServedWeights:
    """The sums for a model in a scheme (``None``: as the checkpoint stores it), worked out once for each."""
    stored = stored_weights(model, scheme)
    dense_read = [entry for entry in stored.entries if entry.component not in NOT_DENSE_READ or _is_head(entry, model)]
    return ServedWeights(
        scheme=stored.scheme,
        total_bytes=stored.total_bytes,
        classes=_shard_classes(stored.entries, model),
        dense_read_classes=_shard_classes(dense_read, model),
        expert_read_bytes=sum(e.size_bytes for e in stored.entries if e.component is Component.EXPERTS),
        head_bytes=sum(e.size_bytes for e in stored.entries if _is_head(e, model)),
        moe_layer_count=len({layer for e in stored.entries if e.component is Component.EXPERTS for layer in e.layers}),
        has_vision=any(e.component is Component.VISION for e in stored.entries),
        work=_matrix_work(stored.entries, model),
    )


def _shard_classes(entries: Iterable[StoredEntry], model: LanguageModel) -> tuple[ShardClass, ...]:
    """Group entries by how they are divided. A tied embedding is held again by the last of several stages."""
    by_class: dict[tuple[Sharding, int | None], list[StoredEntry]] = {}
    for entry in entries:
        by_class.setdefault((entry.sharding, entry.shard_limit), []).append(entry)
    return tuple(_shard_class(key, group, model) for key, group in by_class.items())


def _shard_class(key: tuple[Sharding, int | None], entries: list[StoredEntry], model: LanguageModel) -> ShardClass:
    per_layer = [0.0] * model.layer_count
    first = last = 0
    for entry in entries:
        if entry.layers:
            for layer in entry.layers:
                per_layer[layer] += entry.size_bytes / len(entry.layers)
        elif entry.component in LAST_STAGE:
            last += entry.size_bytes
        else:
            first += entry.size_bytes
    below = tuple(round(total) for total in accumulate(per_layer, initial=0.0))
    return ShardClass(*key, bytes_below=below, first_stage_bytes=first, last_stage_bytes=last)


def _matrix_work(entries: Iterable[StoredEntry], model: LanguageModel) -> tuple[MatrixWork, ...]:
    """Parameters by scheme and use. Norms and biases do no matrix work; a tied embedding is the head."""
    sums: dict[str, list[int]] = {}
    for entry in entries:
        is_head = _is_head(entry, model)
        if entry.component in NO_MATRIX_WORK and not is_head:
            continue
        counts = sums.setdefault(entry.scheme, [0, 0, 0])
        counts[1 if is_head else 2 if entry.component is Component.EXPERTS else 0] += entry.element_count
    return tuple(MatrixWork(scheme, *counts) for scheme, counts in sums.items())


def _is_head(entry: StoredEntry, model: LanguageModel) -> bool:
    return entry.component is Component.LM_HEAD or (entry.component is Component.EMBEDDING and model.tied_embedding)


def check_divisible(model: LanguageModel, parallelism: Parallelism) -> None:
    """Refuse a layout that engines refuse: heads, vocabulary or experts that do not divide.

    Source: vLLM's start-up checks (heads and padded vocabulary by tp; layers by pp; experts by ep).
    """
    if problem := layout_problem(model, parallelism):
        field, detail = problem
        raise ParallelismNotLegal(detail, field=("parallelism", field))


VOCABULARY_PADDING = 64  # vLLM pads the embedding to a multiple of this before dividing it


def layout_problem(model: LanguageModel, parallelism: Parallelism) -> tuple[str, str] | None:
    """The field that is wrong and why, or nothing."""
    tp, pp, ep, dp = parallelism.tp, parallelism.pp, parallelism.ep, parallelism.dp
    padded_vocabulary = -(-model.vocabulary_size // VOCABULARY_PADDING) * VOCABULARY_PADDING
    kv_heads = model.kv_head_count
    checks = (
        ("tp", model.attention_head_count % tp == 0, f"tp {tp} does not divide {model.attention_head_count} heads"),
        (
            "tp",
            kv_heads % tp == 0 or tp % kv_heads == 0,
            f"tp {tp} neither divides nor is divided by {kv_heads} KV heads",
        ),
        ("tp", padded_vocabulary % tp == 0, f"tp {tp} does not divide the padded vocabulary of {padded_vocabulary}"),
        ("pp", pp <= model.layer_count, f"pp {pp} exceeds {model.layer_count} layers"),
        ("ep", ep == 1 or model.is_moe, f"ep {ep} needs experts, and there are none"),
        ("ep", (tp * dp) % ep == 0, f"ep {ep} does not divide the tp x dp = {tp * dp} devices of a stage"),
        ("ep", ep == 1 or model.expert_count % ep == 0, f"ep {ep} does not divide {model.expert_count} experts"),
    )
    return next(((field, f"{model.name}: {reason}") for field, legal, reason in checks if not legal), None)
