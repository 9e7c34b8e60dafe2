"""What a language model is: its tensors, and what each layer keeps per token and per sequence.

Everything the calculation needs follows from two lists. ``tensors`` is the checkpoint, one entry per
distinct tensor of a layer (not per layer), so parameters and bytes are sums over shapes. ``layer_groups``
is what decoding remembers: keys and values, a latent, or a recurrent state.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import prod

from service.sizing.precision import Precision


class Component(StrEnum):
    """What a tensor is for. The sum over all components is the parameter count of the checkpoint."""

    EMBEDDING = "embedding"
    LM_HEAD = "lm_head"
    ATTENTION = "attention"
    MLP = "mlp"
    EXPERTS = "experts"  # routed
    SHARED_EXPERTS = "shared_experts"
    ROUTER = "router"
    STATE_SPACE = "state_space"  # Mamba and linear attention
    VISION = "vision"  # towers and projectors of other modalities
    OTHER = "other"  # norms, sinks, scalars


class Sharding(StrEnum):
    """How a tensor is divided among the ranks of a layout."""

    TENSOR = "tensor"  # over the tp ranks
    EXPERT = "expert"  # over the tp x dp ranks, whole experts or slices of each
    REPLICATED = "replicated"  # a copy on every rank


@dataclass(frozen=True, slots=True)
class WeightTensor:
    """``copies`` equal tensors in each of ``layers`` (the experts of a layer, say), or outside the layers.

    ``module`` is the tensor's name in the checkpoint without its ``.weight``, with ``{layer}`` and
    ``{expert}`` where the numbers stand, so that a checkpoint's ignore lists can be applied to it.
    A matrix has the shape (output features, input features). ``quantisable`` marks the matrices that
    quantisation schemes cover; norms, biases, embeddings, heads and routers keep 16 bits.
    ``shard_limit`` is the largest number of ranks that still divide it, such as the count of KV heads.
    ``continues_matrix`` marks further rows of a fused matrix, listed apart because they shard otherwise.
    """

    module: str
    component: Component
    shape: tuple[int, ...]
    layers: tuple[int, ...] = ()
    copies: int = 1
    sharding: Sharding = Sharding.TENSOR
    quantisable: bool = False
    shard_limit: int | None = None
    continues_matrix: bool = False

    @property
    def element_count(self) -> int:
        """Elements of all copies in all layers."""
        return prod(self.shape) * self.copies * max(1, len(self.layers))


class LayerKind(StrEnum):
    """What a decoder layer remembers of the tokens it has seen."""

    FULL = "full"  # keys and values of every token
    SLIDING = "sliding"  # of the last window_tokens tokens
    CHUNKED = "chunked"  # of the current chunk of window_tokens tokens
    MLA = "mla"  # one latent per token, shared by all heads
    COMPRESSED = "compressed"  # one latent for every tokens_per_entry tokens
    CROSS = "cross"  # keys and values of an encoder's positions alone, none of the text
    KV_SHARED = "kv_shared"  # nothing of its own: it reads the cache of an earlier layer
    MAMBA1 = "mamba1"
    MAMBA2 = "mamba2"
    GATED_DELTA = "gdn"
    KDA = "kda"
    LIGHTNING = "lightning"
    SHORT_CONVOLUTION = "short_convolution"
    NONE = "none"  # an MLP or expert layer of a hybrid, or one pruned away


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """The decoder layers of one kind and shape, in elements; the KV precision is the caller's choice.

    A layer stands in several groups if it keeps several things (a window and a state, say), and several times
    in one if it keeps that many caches of the kind: caches are counted, not layers.
    Per token and layer the cache holds ``kv_head_count * (key_width + value_width)`` elements and
    ``index_key_width`` more under sparse attention. MLA is one KV head whose key is the latent with its
    rotary part and whose value is empty. ``attention_width_decode`` and ``…_prefill`` are the
    multiply-adds per pair of tokens: query heads times score and value width (MLA decodes in the latent,
    so its width differs between the phases). The recurrent state divides by its own heads, except
    ``conv_group_state_elements`` of the convolution, which stop dividing at ``state_group_count``.

    ``tokens_per_entry`` above one means that the cache holds an entry for so many tokens. Cross-attention keeps
    ``source_kv_head_count`` heads for each position of the source (an encoder's, or an image's patches), whatever
    the context. ``shared_kv_head_count`` heads are read here and kept by another layer.
    """

    kind: LayerKind
    layers: tuple[int, ...]
    kv_head_count: int = 0
    key_width: int = 0
    value_width: int = 0
    window_tokens: int | None = None
    attention_width_decode: int = 0
    attention_width_prefill: int = 0
    index_key_width: int = 0
    index_head_count: int = 0
    index_top_k_tokens: int | None = None
    conv_state_elements: int = 0
    recurrent_state_elements: int = 0
    state_head_count: int = 0
    conv_group_state_elements: int = 0
    state_group_count: int = 0
    tokens_per_entry: int = 1
    source_kv_head_count: int = 0
    shared_kv_head_count: int = 0

    @property
    def layer_count(self) -> int:
        """How many caches or states of the kind there are."""
        return len(self.layers)

    @property
    def kv_elements_per_token(self) -> int:
        """Of one layer, without the index key. A compressed cache holds them for ``tokens_per_entry`` tokens."""
        return self.kv_head_count * (self.key_width + self.value_width)

    @property
    def kv_elements_per_source_token(self) -> int:
        """Of one layer, for each position of an encoder or an image."""
        return self.source_kv_head_count * (self.key_width + self.value_width)


@dataclass(frozen=True, slots=True)
class MultiTokenPrediction:
    """The extra layers that draft tokens; in the checkpoint, but resident only when they are used."""

    layer_count: int
    parameter_count: int
    kv_elements_per_token: int


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor and the scheme in which the checkpoint stores it."""

    tensor: WeightTensor
    scheme: str


@dataclass(frozen=True, slots=True, eq=False)
class LanguageModel:
    """One checkpoint, compared by identity, so that what is derived from it can be remembered cheaply.

    ``checkpoint`` holds the same tensors as ``tensors``, split where schemes differ. Where layers differ in how many
    experts a token meets, ``experts_per_token`` is the mean by parameters and ``active_expert_parameter_count`` exact.
    ``file_weight_bytes`` are the checkpoint's own, where its files were read (``weight_bytes_source`` says which).
    """

    slug: str
    name: str
    family: str
    layer_count: int
    hidden_size: int
    vocabulary_size: int
    max_context_tokens: int | None
    attention_head_count: int
    kv_head_count: int
    expert_count: int
    experts_per_token: int
    tied_embedding: bool
    tensors: tuple[WeightTensor, ...]
    layer_groups: tuple[LayerGroup, ...]
    checkpoint: tuple[StoredTensor, ...]
    checkpoint_scheme: str
    checkpoint_kv_cache: Precision | None = None
    element_precision: Precision = Precision.BF16
    conv_state_precision: Precision = Precision.BF16
    recurrent_state_precision: Precision = Precision.BF16
    router_bias_count: int = 0
    mtp: MultiTokenPrediction | None = None
    active_expert_parameter_count: int | None = None
    file_weight_bytes: int | None = None
    weight_bytes_source: str = "config"

    @property
    def is_moe(self) -> bool:
        return self.expert_count > 0

    @property
    def has_latent_attention(self) -> bool:
        return any(group.kind is LayerKind.MLA for group in self.layer_groups)

    @property
    def has_recurrent_state(self) -> bool:
        return any(group.state_head_count for group in self.layer_groups)


def parameter_counts(tensors: Iterable[WeightTensor]) -> dict[Component, int]:
    """Parameters by component, every component present; tied matrices count once, MTP modules never."""
    counts = dict.fromkeys(Component, 0)
    for tensor in tensors:
        counts[tensor.component] += tensor.element_count
    return counts


def active_parameter_count(model: LanguageModel) -> int:
    """Parameters that one token passes through: the text decoder with embedding and head, k of E experts.

    Vendors count differently (with or without embedding and head); this is the convention under which
    DeepSeek-V3 has 37,552,282,624.
    """
    counts = parameter_counts(model.tensors)
    text = sum(counts.values()) - counts[Component.VISION] - counts[Component.EXPERTS]
    if not model.is_moe:
        return text
    if model.active_expert_parameter_count is not None:
        return text + model.active_expert_parameter_count
    return text + counts[Component.EXPERTS] * model.experts_per_token // model.expert_count
