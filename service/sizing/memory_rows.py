"""A model's memory written out for a person who checks it by hand: a row per component, with its sum."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from service.sizing.cache import elements_bytes, kv_elements_per_entry, layer_state_bytes
from service.sizing.language_model import Component, LanguageModel, LayerGroup, Sharding, WeightTensor
from service.sizing.precision import Precision
from service.sizing.weight_schemes import stored_weights


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """``formula`` multiplies out to ``element_count``, which the formats of ``formats`` make ``size_bytes`` of.

    ``component`` is that of the tensors, ``kv_cache`` or ``state``.
    """

    component: str
    formula: str
    element_count: int
    formats: tuple[str, ...]
    size_bytes: int


def memory_rows(
    model: LanguageModel, *, context_tokens: int, kv_cache: Precision, tp: int = 1
) -> tuple[MemoryRow, ...]:
    """Weights of the whole model as its checkpoint stores them, then cache and state of a sequence on one rank."""
    return (
        *_weight_rows(model),
        *_cache_rows(model, context_tokens=context_tokens, kv_cache=kv_cache, tp=tp),
        *_state_rows(model, tp=tp),
    )


def _weight_rows(model: LanguageModel) -> Iterator[MemoryRow]:
    stored = stored_weights(model)
    for component in Component:
        tensors = [tensor for tensor in model.tensors if tensor.component is component]
        entries = [entry for entry in stored.entries if entry.component is component]
        if tensors:
            yield MemoryRow(
                component.value,
                tensor_formula(tensors),
                sum(tensor.element_count for tensor in tensors),
                tuple(sorted({entry.scheme for entry in entries})),
                sum(entry.size_bytes for entry in entries),
            )


def tensor_formula(tensors: Iterable[WeightTensor]) -> str:
    """Shapes, those of the same layers in one bracket.

    >>> layers = (0, 1)
    >>> tensor_formula(
    ...     [
    ...         WeightTensor("q_proj", Component.ATTENTION, (64, 64), layers),
    ...         WeightTensor("k_proj", Component.ATTENTION, (32, 64), layers),
    ...         WeightTensor("v_proj", Component.ATTENTION, (32, 64), layers),
    ...     ]
    ... )
    '2 layers x (64 x 64 + 2 x 32 x 64)'
    >>> tensor_formula([WeightTensor("up", Component.EXPERTS, (8, 4), (0,), 16, Sharding.EXPERT)])
    '1 layer x 16 experts x 8 x 4'
    """
    brackets: dict[str, Counter[str]] = {}
    for tensor in tensors:
        factors = []
        if tensor.layers:
            factors.append(f"{len(tensor.layers)} layer{'s' if len(tensor.layers) > 1 else ''}")
        if tensor.copies > 1:
            factors.append(f"{tensor.copies} {'experts' if tensor.sharding is Sharding.EXPERT else 'copies'}")
        shape = " x ".join(str(width) for width in tensor.shape)
        brackets.setdefault(" x ".join(factors), Counter())[shape] += 1
    return " + ".join(_bracket(factors, shapes) for factors, shapes in brackets.items())


def _bracket(factors: str, shapes: Counter[str]) -> str:
    terms = [f"{count} x {shape}" if count > 1 else shape for shape, count in shapes.items()]
    if not factors:
        return " + ".join(terms)
    return f"{factors} x {terms[0]}" if len(terms) == 1 else f"{factors} x ({' + '.join(terms)})"


def _cache_rows(model: LanguageModel, *, context_tokens: int, kv_cache: Precision, tp: int) -> Iterator[MemoryRow]:
    for group in model.layer_groups:
        entry_elements = kv_elements_per_entry(group, tp=tp)
        if not entry_elements:
            continue
        tokens = min(context_tokens, group.window_tokens or context_tokens)
        element_count = group.layer_count * (tokens // group.tokens_per_entry) * entry_elements
        yield MemoryRow(
            "kv_cache",
            _cache_formula(group, context_tokens=context_tokens, tp=tp),
            element_count,
            (kv_cache.value,),
            elements_bytes(element_count, kv_cache),
        )


def _cache_formula(group: LayerGroup, *, context_tokens: int, tp: int) -> str:
    """Caches, tokens (or entries of several tokens) and what each holds.

    >>> from service.sizing.language_model import LayerKind
    >>> full = LayerGroup(LayerKind.FULL, (0, 1, 2), kv_head_count=8, key_width=64, value_width=64)
    >>> _cache_formula(full, context_tokens=4096, tp=2)
    '3 full x 4096 tokens x 4 KV heads x (64 + 64)'
    """
    tokens = f"{context_tokens} tokens"
    if group.window_tokens is not None:
        tokens = f"min({context_tokens}, {group.window_tokens}) tokens"
    if group.tokens_per_entry > 1:
        tokens = f"floor({context_tokens} / {group.tokens_per_entry}) entries"
    heads = -(-group.kv_head_count // tp)
    widths = f"({group.key_width} + {group.value_width})" if group.value_width else f"{group.key_width}"
    held = f"{heads} KV head{'s' if heads > 1 else ''} x {widths}"
    if group.index_key_width:
        held = f"({held} + {group.index_key_width} index key)"
    return f"{group.layer_count} {group.kind.value} x {tokens} x {held}"


def _state_rows(model: LanguageModel, *, tp: int) -> Iterator[MemoryRow]:
    for group in model.layer_groups:
        if not group.state_head_count:
            continue
        formats = (model.conv_state_precision.value, model.recurrent_state_precision.value)
        parts = [("convolution", group.conv_state_elements), ("recurrent", group.recurrent_state_elements)]
        held = " + ".join(f"{count} {name}" for name, count in parts if count)
        share = f" over {tp} ranks" if tp > 1 else ""
        yield MemoryRow(
            "state",
            f"{group.layer_count} {group.kind.value} x ({held}){share}",
            group.layer_count * (group.conv_state_elements + group.recurrent_state_elements),
            tuple(fmt for fmt, (_, count) in zip(formats, parts, strict=True) if count),
            group.layer_count * layer_state_bytes(group, model, tp=tp),
        )
