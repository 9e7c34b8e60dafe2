"""Lays a quantisation over the tensors of a model: which scheme stores each of them."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from service.errors import ConfigInvalid
from service.sizing.architectures.quantisation import Quantisation
from service.sizing.gguf import MIXTURES
from service.sizing.language_model import StoredTensor, WeightTensor
from service.sizing.weight_schemes import REST_SCHEME

MAXIMUM_MATCHES: Final = 5_000_000


def stored_tensors(
    tensors: tuple[WeightTensor, ...], quantisation: Quantisation | None, plain: str
) -> tuple[StoredTensor, ...]:
    """The tensors of a model, split by layer or expert wherever the checkpoint treats them differently."""
    if quantisation is None:
        return tuple(StoredTensor(tensor, plain) for tensor in tensors)
    if quantisation.scheme in MIXTURES:
        return tuple(StoredTensor(tensor, quantisation.scheme) for tensor in tensors)
    _refuse_endless_matching(tensors, quantisation)
    return tuple(each for tensor in tensors for each in _stored(tensor, quantisation))


def _refuse_endless_matching(tensors: tuple[WeightTensor, ...], quantisation: Quantisation) -> None:
    """Lists that name experts are held against every one of them, which no published file makes many."""
    modules = sum(
        max(1, len(tensor.layers)) * (tensor.copies if quantisation.distinguishes_experts else 1)
        for tensor in tensors
        if quantisation.reaches(tensor)
    )
    matches = modules * (1 + quantisation.expression_count)
    if matches > MAXIMUM_MATCHES:
        raise ConfigInvalid(
            f"quantization_config tells {modules} modules apart by {quantisation.expression_count} expressions: "
            f"at most {MAXIMUM_MATCHES} comparisons are made",
            key="quantization_config",
        )


def _stored(tensor: WeightTensor, quantisation: Quantisation) -> Iterator[StoredTensor]:
    if not quantisation.reaches(tensor):
        yield StoredTensor(tensor, REST_SCHEME)
        return
    covered = tensor if tensor.quantisable else replace(tensor, quantisable=True)
    split: dict[tuple[str, int], list[int]] = {}
    for layer in tensor.layers or (-1,):
        for scheme, copies in _copies_by_scheme(tensor, layer, quantisation).items():
            split.setdefault((scheme, copies), []).append(layer)
    for (scheme, copies), layers in split.items():
        part = replace(covered, copies=copies, layers=tuple(layers) if tensor.layers else ())
        yield StoredTensor(part, scheme)


def _copies_by_scheme(tensor: WeightTensor, layer: int, quantisation: Quantisation) -> dict[str, int]:
    module = tensor.module.replace("{layer}", str(layer))
    if "{expert}" not in module:
        return {quantisation.scheme_of(module, tensor.component): tensor.copies}
    if not quantisation.distinguishes_experts:
        return {quantisation.scheme_of(module.replace("{expert}", "0"), tensor.component): tensor.copies}
    copies: dict[str, int] = {}
    for expert in range(tensor.copies):
        scheme = quantisation.scheme_of(module.replace("{expert}", str(expert)), tensor.component)
        copies[scheme] = copies.get(scheme, 0) + 1
    return copies
