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
NO_MATRIX_WORK = (Component.EMBEDDING, Component.LM_HEAD, Component.VISION, Component.OTHER)


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
    """The tensors that a layout divides alike: ``bytes_below[i]`` is held in the layers before layer i.

    ``repeated_bytes`` are of the first stage and held again by the last one: an embedding that is the head too.
    """

    sharding: Sharding
    shard_limit: int | None
    bytes_below: tuple[int, ...]
    first_stage_bytes: int
    last_stage_bytes: int
    repeated_bytes: int

    def bytes_per_rank(self, parallelism: Parallelism, stage: Stage) -> float:
        held = self.bytes_below[stage.end_layer] - self.bytes_below[stage.first_layer]
        held += self.first_stage_bytes * stage.is_first + self.last_stage_bytes * stage.is_last
        held += self.repeated_bytes * (stage.is_last and not stage.is_first)
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
    head_parameter_count: int
    main_scheme: str
    moe_layer_count: int
    has_vision: bool
    work: tuple[MatrixWork, ...]

    @lru_cache(maxsize=256)  # noqa: B019 - bounded, and what it keeps is small
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
    heads = [entry for entry in stored.entries if _is_head(entry, model)]
    experts = [entry for entry in stored.entries if entry.component is Component.EXPERTS]
    work = _matrix_work(stored.entries)
    return ServedWeights(
        scheme=stored.scheme,
        total_bytes=stored.total_bytes,
        classes=_shard_classes(stored.entries, model),
        dense_read_classes=_shard_classes(dense_read, model),
        expert_read_bytes=sum(entry.size_bytes for entry in experts),
        head_bytes=sum(entry.size_bytes for entry in heads),
        head_parameter_count=sum(entry.element_count for entry in heads),
        main_scheme=_main_scheme(stored.scheme, work),
        moe_layer_count=len({layer for entry in experts for layer in entry.layers}),
        has_vision=any(entry.component is Component.VISION for entry in stored.entries),
        work=work,
    )


def _shard_classes(entries: Iterable[StoredEntry], model: LanguageModel) -> tuple[ShardClass, ...]:
    """Group entries by how they are divided."""
    by_class: dict[tuple[Sharding, int | None], list[StoredEntry]] = {}
    for entry in entries:
        by_class.setdefault((entry.sharding, entry.shard_limit), []).append(entry)
    return tuple(_shard_class(key, group, model) for key, group in by_class.items())


def _shard_class(key: tuple[Sharding, int | None], entries: list[StoredEntry], model: LanguageModel) -> ShardClass:
    per_layer = [0.0] * model.layer_count
    first = last = repeated = 0
    for entry in entries:
        if entry.layers:
            for layer in entry.layers:
                per_layer[layer] += entry.size_bytes / len(entry.layers)
        elif entry.component in LAST_STAGE:
            last += entry.size_bytes
        else:
            first += entry.size_bytes
            repeated += entry.size_bytes * _is_head(entry, model)
    below = tuple(round(total) for total in accumulate(per_layer, initial=0.0))
    return ShardClass(*key, bytes_below=below, first_stage_bytes=first, last_stage_bytes=last, repeated_bytes=repeated)


def _matrix_work(entries: Iterable[StoredEntry]) -> tuple[MatrixWork, ...]:
    """Parameters by scheme and use, without the head, which computes in 16 bits whatever it is stored in."""
    sums: dict[str, list[int]] = {}
    for entry in entries:
        if entry.component not in NO_MATRIX_WORK:
            counts = sums.setdefault(entry.scheme, [0, 0])
            counts[entry.component is Component.EXPERTS] += entry.element_count
    return tuple(MatrixWork(scheme, *counts) for scheme, counts in sums.items())


def _main_scheme(scheme: str, work: tuple[MatrixWork, ...]) -> str:
    """The checkpoint's own name, or the scheme of most parameters where a mixture has a name of its own."""
    if any(each.scheme == scheme for each in work):
        return scheme
    return max(work, key=lambda each: each.dense_parameter_count + each.expert_parameter_count).scheme


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
    heads, kv_heads = model.attention_head_count, model.kv_head_count
    problem = None
    if heads % tp:
        problem = "tp", f"tp {tp} does not divide {heads} heads"
    elif kv_heads % tp and tp % kv_heads:
        problem = "tp", f"tp {tp} neither divides nor is divided by {kv_heads} KV heads"
    elif padded_vocabulary % tp:
        problem = "tp", f"tp {tp} does not divide the padded vocabulary of {padded_vocabulary}"
    elif pp > model.layer_count:
        problem = "pp", f"pp {pp} exceeds {model.layer_count} layers"
    elif ep > 1 and not model.is_moe:
        problem = "ep", f"ep {ep} needs experts, and there are none"
    elif (tp * dp) % ep:
        problem = "ep", f"ep {ep} does not divide the tp x dp = {tp * dp} devices of a stage"
    elif ep > 1 and model.expert_count % ep:
        problem = "ep", f"ep {ep} does not divide {model.expert_count} experts"
    return (problem[0], f"{model.name}: {problem[1]}") if problem else None
