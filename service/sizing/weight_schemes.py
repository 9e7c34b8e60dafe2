"""The schemes in which checkpoints store weights, and the bytes that each really takes.

A quantised matrix is its packed elements and what it needs to be read back: scales, zero points, an
order of its columns. Embeddings, heads, norms, biases and routers keep 16 bits unless a scheme says
otherwise, which is why "8 bits" is not half of 16.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import ceil, prod

from service.errors import UnknownChoice
from service.sizing.gguf import MIXTURES, gguf_tensor_bytes
from service.sizing.language_model import Component, LanguageModel, Sharding, StoredTensor, WeightTensor
from service.sizing.precision import Precision

REST_SCHEME = "bf16"  # what a quantised checkpoint keeps the rest in; fp16 has the same width
GGUF_REST_SCHEME = "fp32"  # GGUF files keep norms, biases and routers in 32 bits


@dataclass(frozen=True, slots=True)
class WeightScheme:
    """How a matrix of ``o`` output rows and ``i`` input columns is stored.

    ``element`` is the textbook width. ``compute`` is the precision in which the scheme is meant to
    multiply; ``None`` marks a weight-only scheme, which is widened and computed in BF16. One scale (and
    zero point) serves ``group_rows`` rows by ``group_columns`` columns, ``None`` being the whole row.
    ``quantised`` is false for the plain formats, which store every tensor alike.
    """

    slug: str
    title: str
    element: Precision
    compute: Precision | None
    quantised: bool = True
    experts_only: bool = False
    group_rows: int = 1
    group_columns: int | None = None
    scale_bytes: int = 0
    zero_point_bits: int = 0
    bytes_per_column: int = 0
    bytes_per_matrix: int = 0

    def covers(self, tensor: WeightTensor) -> bool:
        """Whether the scheme stores this tensor in its own format rather than leaving it in 16 bits."""
        if not self.quantised:
            return True
        return tensor.quantisable and (not self.experts_only or tensor.component is Component.EXPERTS)


def _plain(slug: str, precision: Precision) -> WeightScheme:
    return WeightScheme(slug, slug.upper(), precision, precision, quantised=False)


def _four_bit(slug: str, title: str, group: int | None, zero_point_bits: int = 0, column: int = 0) -> WeightScheme:
    return WeightScheme(
        slug,
        f"{title}, groups of {group or 'a row'}",
        Precision.INT4,
        None,
        group_columns=group,
        scale_bytes=2,
        zero_point_bits=zero_point_bits,
        bytes_per_column=column,
    )


def _block_float(slug: str, title: str, precision: Precision, *, experts_only: bool = False) -> WeightScheme:
    if precision is Precision.NVFP4:  # an E4M3 scale per 16, and fp32 weight and input scales per matrix
        return WeightScheme(
            slug, title, precision, precision, True, experts_only, group_columns=16, scale_bytes=1, bytes_per_matrix=8
        )
    return WeightScheme(slug, title, precision, precision, True, experts_only, group_columns=32, scale_bytes=1)


_GROUPS = (("", 128), ("-g64", 64), ("-g32", 32), ("-channel", None))

SCHEMES: Mapping[str, WeightScheme] = {
    scheme.slug: scheme
    for scheme in (
        _plain("bf16", Precision.BF16),
        _plain("fp16", Precision.FP16),
        _plain("fp32", Precision.FP32),
        WeightScheme("fp8", "FP8, a BF16 scale per output row", Precision.FP8, Precision.FP8, scale_bytes=2),
        WeightScheme("fp8-tensor", "FP8, scales per matrix", Precision.FP8, Precision.FP8, bytes_per_matrix=8),
        WeightScheme(
            "fp8-block",
            "FP8, an FP32 scale per 128 x 128 block",
            Precision.FP8,
            Precision.FP8,
            group_rows=128,
            group_columns=128,
            scale_bytes=4,
        ),
        WeightScheme("mxfp8", "MXFP8, an E8M0 scale per 32", Precision.MXFP8, Precision.MXFP8, True, False, 1, 32, 1),
        WeightScheme("int8", "INT8, an FP32 scale per output row", Precision.INT8, Precision.INT8, scale_bytes=4),
        WeightScheme("w8a16", "INT8 weights only, a BF16 scale per output row", Precision.INT8, None, scale_bytes=2),
        WeightScheme(
            "gptq-int8",
            "GPTQ, 8 bits, groups of 128",
            Precision.INT8,
            None,
            group_columns=128,
            scale_bytes=2,
            zero_point_bits=8,
            bytes_per_column=4,
        ),
        _block_float("nvfp4", "NVFP4, an E4M3 scale per 16", Precision.NVFP4),
        _block_float("nvfp4-experts", "NVFP4 in the routed experts alone", Precision.NVFP4, experts_only=True),
        _block_float("mxfp4", "MXFP4, an E8M0 scale per 32", Precision.MXFP4),
        _block_float("mxfp4-experts", "MXFP4 in the routed experts alone", Precision.MXFP4, experts_only=True),
        *(_four_bit(f"awq-int4{ending}", "AWQ", group, 4) for ending, group in _GROUPS),
        *(_four_bit(f"gptq-int4{ending}", "GPTQ", group, 4, 4) for ending, group in _GROUPS),
        *(_four_bit(f"w4a16{ending}", "symmetric INT4 weights", group) for ending, group in _GROUPS),
        WeightScheme(
            "w4a16-nvfp4",
            "NVFP4 weights only",
            Precision.NVFP4,
            None,
            group_columns=16,
            scale_bytes=1,
            bytes_per_matrix=4,
        ),
        *(
            WeightScheme(slug, f"GGUF {slug[5:].upper()}", Precision.INT8 if slug[6] in "568" else Precision.INT4, None)
            for slug in MIXTURES
        ),
    )
}


def weight_scheme(slug: str) -> WeightScheme:
    """The scheme of that name; ``UnknownChoice`` lists the known ones."""
    if slug not in SCHEMES:
        raise UnknownChoice(slug, SCHEMES, field=("precision", "weights"))
    return SCHEMES[slug]


def tensor_bytes(tensor: WeightTensor, scheme: WeightScheme) -> int:
    """Stored bytes of all copies of a tensor in all its layers.

    ::

        o*i*bits/8 + ceil(o/group_rows) * ceil(i/group_columns) * (scale + zero point) + i*column + matrix

    A tensor that the scheme does not cover takes 2 bytes an element. A tensor that continues a fused
    matrix has no scales per matrix or column order of its own.

    Assumes: the layouts of the public checkpoint formats: AutoAWQ and AutoGPTQ packing, compressed-tensors,
    ModelOpt NVFP4, OCP MX 1.0. A GGUF mixture depends on the model, see ``stored_weights``.
    Source: "AWQ" (arXiv 2306.00978), "OCP Microscaling Formats (MX) Specification" 1.0, and the formats' code.

    >>> projection = WeightTensor("q_proj", Component.ATTENTION, (8192, 8192), quantisable=True)
    >>> tensor_bytes(projection, SCHEMES["bf16"])  # 2**26 elements of 2 bytes
    134217728
    >>> tensor_bytes(projection, SCHEMES["awq-int4"])  # 2**25, and 8192 * 64 groups of 2.5 bytes
    34865152
    """
    repeats = tensor.copies * max(1, len(tensor.layers))
    elements = prod(tensor.shape)
    if not scheme.covers(tensor):
        return 2 * elements * repeats
    if not scheme.quantised:
        return int(scheme.element.element_bytes * elements) * repeats
    rows, columns = tensor.shape
    groups = ceil(rows / scheme.group_rows) * ceil(columns / (scheme.group_columns or columns))
    size_bytes = ceil(elements * scheme.element.element_bytes)
    size_bytes += groups * scheme.scale_bytes + ceil(groups * scheme.zero_point_bits / 8)
    if not tensor.continues_matrix:
        size_bytes += columns * scheme.bytes_per_column + scheme.bytes_per_matrix
    return size_bytes * repeats


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """Tensors of one component that are divided alike, lie in the same layers and are stored alike.

    ``scheme`` is the format they are really in: the rest of a quantised checkpoint says ``bf16``.
    """

    component: Component
    sharding: Sharding
    shard_limit: int | None
    layers: tuple[int, ...]
    element_count: int
    size_bytes: int
    scheme: str


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """A checkpoint in ``scheme``; the MTP modules are apart, in ``LanguageModel.mtp``."""

    scheme: str
    entries: tuple[StoredEntry, ...]
    total_bytes: int


def stored_weights(model: LanguageModel, scheme: str | None = None) -> StoredWeights:
    """What the weights take in a scheme.

    Left out, or the checkpoint's own scheme: the checkpoint as it is, with all that its ignore lists leave
    in 16 bits. Another scheme is laid over every quantisable tensor, the rest keeping 16 bits.
    """
    if scheme is None or scheme == model.checkpoint_scheme:
        return _as_filed(_collected(model.checkpoint_scheme, model.checkpoint, model), model.file_weight_bytes)
    wanted = weight_scheme(scheme)
    return _collected(scheme, (StoredTensor(tensor, wanted.slug) for tensor in model.tensors), model)


def _as_filed(stored: StoredWeights, file_bytes: int | None) -> StoredWeights:
    """With the bytes that the files have, where they were read: every entry by one factor, the largest the rest."""
    if file_bytes is None or file_bytes == stored.total_bytes:
        return stored
    factor = file_bytes / stored.total_bytes
    sizes = [round(entry.size_bytes * factor) for entry in stored.entries]
    largest = max(range(len(sizes)), key=sizes.__getitem__)
    sizes[largest] += file_bytes - sum(sizes)
    entries = tuple(replace(entry, size_bytes=size) for entry, size in zip(stored.entries, sizes, strict=True))
    return StoredWeights(stored.scheme, entries, file_bytes)


def _collected(scheme: str, stored: Iterable[StoredTensor], model: LanguageModel) -> StoredWeights:
    totals: dict[tuple[Component, Sharding, int | None, tuple[int, ...], str], list[int]] = {}
    for each in stored:
        for tensor, stored_as, size_bytes in _sized(each, model):
            key = (tensor.component, tensor.sharding, tensor.shard_limit, tensor.layers, stored_as)
            counts = totals.setdefault(key, [0, 0])
            counts[0] += tensor.element_count
            counts[1] += size_bytes
    entries = tuple(
        StoredEntry(component, sharding, limit, layers, elements, size_bytes, stored_as)
        for (component, sharding, limit, layers, stored_as), (elements, size_bytes) in totals.items()
    )
    return StoredWeights(scheme, entries, sum(entry.size_bytes for entry in entries))


def _sized(stored: StoredTensor, model: LanguageModel) -> Iterable[tuple[WeightTensor, str, int]]:
    """The tensor's parts, the scheme each is really in, and its bytes."""
    tensor, scheme = stored.tensor, weight_scheme(stored.scheme)
    if scheme.slug in MIXTURES:
        for part, quantised, size_bytes in gguf_tensor_bytes(tensor, scheme.slug, model):
            yield part, scheme.slug if quantised else GGUF_REST_SCHEME, size_bytes
        return
    yield tensor, scheme.slug if scheme.covers(tensor) else REST_SCHEME, tensor_bytes(tensor, scheme)
