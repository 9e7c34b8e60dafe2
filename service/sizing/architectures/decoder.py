"""What every decoder has around its layers, and what a family's declaration hands back."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Final

from service.sizing.architectures.building_blocks import GroupedQueryAttention, Layers, vector
from service.sizing.architectures.config_reader import (
    MAXIMUM_EXPERTS,
    MAXIMUM_HEADS,
    MAXIMUM_TOKENS,
    ConfigReader,
)
from service.sizing.architectures.field_names import (
    CONTEXT_NAMES,
    EXPERT_COUNT_NAMES,
    HEAD_COUNT_NAMES,
    HEAD_WIDTH_NAMES,
    KV_HEAD_COUNT_NAMES,
    LAYER_COUNT_NAMES,
    TOP_EXPERT_NAMES,
    WIDTH_NAMES,
)
from service.sizing.language_model import (
    Component,
    LayerGroup,
    LayerKind,
    MultiTokenPrediction,
    WeightTensor,
)
from service.sizing.precision import Precision

# Words for the precision of a recurrent state; "auto" is that of the other elements.
STATE_PRECISIONS: Final[Mapping[str, Precision | None]] = {
    "float32": Precision.FP32,
    "bfloat16": Precision.BF16,
    "float16": Precision.FP16,
    "auto": None,
}


@dataclass(frozen=True, slots=True)
class Architecture:
    """A model without its name and without what its checkpoint does to the widths of its elements."""

    layer_count: int
    hidden_size: int
    vocabulary_size: int
    max_context_tokens: int | None
    attention_head_count: int
    kv_head_count: int
    tied_embedding: bool
    tensors: tuple[WeightTensor, ...]
    layer_groups: tuple[LayerGroup, ...]
    expert_count: int = 0
    experts_per_token: int = 0
    recurrent_state_precision: Precision | None = None  # the elements' own, unless the config says another
    router_bias_count: int = 0
    mtp: MultiTokenPrediction | None = None
    active_expert_parameter_count: int | None = None  # where layers differ in how many experts a token meets


@dataclass(frozen=True, slots=True)
class Frame:
    """The sizes around the layers: embedding, final norm, head."""

    hidden_size: int
    vocabulary_size: int
    layer_count: int
    tied: bool
    max_context_tokens: int | None
    prefix: str = "model"
    head: str = "lm_head"
    embedding: str = "embed_tokens"
    final_norm: str = "norm"
    final_norm_bias: bool = False
    head_bias: bool = False
    stack: str = "layers"
    further_embedding_rows: int = 0

    @property
    def layers(self) -> Layers:
        return tuple(range(self.layer_count))

    def at(self, name: str) -> str:
        """The checkpoint's name of a layer's part."""
        return f"{self.prefix}.{self.stack}.{{layer}}.{name}" if name else f"{self.prefix}.{self.stack}.{{layer}}"

    def tensors(self) -> Iterator[WeightTensor]:
        """Embedding, final norm and, unless it is tied to the embedding, the head."""
        table = (self.vocabulary_size, self.hidden_size)
        rows = self.vocabulary_size + self.further_embedding_rows
        yield WeightTensor(f"{self.prefix}.{self.embedding}", Component.EMBEDDING, (rows, self.hidden_size))
        yield vector(f"{self.prefix}.{self.final_norm}", self.hidden_size)
        if self.final_norm_bias:
            yield vector(f"{self.prefix}.{self.final_norm}.bias", self.hidden_size)
        if not self.tied:
            yield WeightTensor(self.head, Component.LM_HEAD, table)
        if self.head_bias:
            yield vector(f"{self.head}.bias", self.vocabulary_size)

    def architecture(
        self,
        tensors: Iterable[WeightTensor],
        layer_groups: Iterable[LayerGroup],
        *,
        head_count: int,
        kv_head_count: int,
        experts: tuple[int, int] = (0, 0),
        recurrent_state_precision: Precision | None = None,
        router_bias_count: int = 0,
        mtp: MultiTokenPrediction | None = None,
    ) -> Architecture:
        """What the family's declaration hands back. ``experts`` are how many there are and how many a token meets."""
        return Architecture(
            layer_count=self.layer_count,
            hidden_size=self.hidden_size,
            vocabulary_size=self.vocabulary_size,
            max_context_tokens=self.max_context_tokens,
            attention_head_count=head_count,
            kv_head_count=kv_head_count,
            tied_embedding=self.tied,
            tensors=tuple(tensors),
            layer_groups=tuple(group for group in layer_groups if group.layers),
            expert_count=experts[0],
            experts_per_token=experts[1],
            recurrent_state_precision=recurrent_state_precision,
            router_bias_count=router_bias_count,
            mtp=mtp,
        )


def read_frame(
    config: ConfigReader,
    *,
    tied_by_default: bool = False,
    prefix: str = "model",
    default_vocabulary_size: int | None = None,
    layer_count: int | None = None,
) -> Frame:
    """The sizes under any of the names that publishers give them."""
    return Frame(
        hidden_size=config.count(*WIDTH_NAMES),
        vocabulary_size=config.count("padded_vocab_size", "vocab_size", default=default_vocabulary_size),
        layer_count=config.layer_count(*LAYER_COUNT_NAMES) if layer_count is None else layer_count,
        tied=config.flag("tie_word_embeddings", "tie_embedding", "tie_embeddings", default=tied_by_default),
        max_context_tokens=config.optional_count(*CONTEXT_NAMES, maximum=MAXIMUM_TOKENS),
        prefix=prefix,
    )


def read_head_counts(
    config: ConfigReader, *, default: int | None = None, kv_default: int | None = None
) -> tuple[int, int]:
    """Query heads and KV heads; a file that says no KV heads has as many as queries."""
    head_count = config.count(*HEAD_COUNT_NAMES, default=default, maximum=MAXIMUM_HEADS)
    kv_head_count = config.count(*KV_HEAD_COUNT_NAMES, default=kv_default or head_count, maximum=MAXIMUM_HEADS)
    if head_count % kv_head_count:
        raise config.refuse(
            config.name_of(*KV_HEAD_COUNT_NAMES), f"is {kv_head_count}, which does not divide {head_count} heads"
        )
    return head_count, kv_head_count


def read_head_width(config: ConfigReader, hidden_size: int, head_count: int, *, default: int | None = None) -> int:
    """The file's own width of a head; only a file without one means hidden size over heads."""
    stated = config.optional_count(*HEAD_WIDTH_NAMES)
    if stated is not None:
        return stated
    if default is not None:
        return default
    if hidden_size % head_count:
        raise config.refuse(
            "hidden_size", f"is {hidden_size}, which does not divide by {head_count} heads, and there is no head_dim"
        )
    return hidden_size // head_count


def read_attention(
    config: ConfigReader,
    hidden_size: int,
    *,
    bias: bool = False,
    output_bias: bool = False,
    head_norms: bool = False,
    width_norms: bool = False,
    has_sinks: bool = False,
    fused: bool = False,
    gated: bool = False,
) -> GroupedQueryAttention:
    """``head_norms`` normalises each head alike, ``width_norms`` all heads together."""
    head_count, kv_head_count = read_head_counts(config)
    width = read_head_width(config, hidden_size, head_count)
    query_norm_width = width if head_norms else head_count * width if width_norms else 0
    key_norm_width = width if head_norms else kv_head_count * width if width_norms else 0
    return GroupedQueryAttention(
        hidden_size,
        head_count,
        kv_head_count,
        width,
        width,
        bias=bias,
        output_bias=output_bias,
        query_norm_width=query_norm_width,
        key_norm_width=key_norm_width,
        gated=gated,
        has_sinks=has_sinks,
        fused=fused,
    )


LAYER_TYPES = {
    "full_attention": LayerKind.FULL,
    "sliding_attention": LayerKind.SLIDING,
    "chunked_attention": LayerKind.CHUNKED,
}


def layers_by_type(config: ConfigReader, layer_count: int, slides: Callable[[int], bool]) -> dict[LayerKind, Layers]:
    """The file's ``layer_types`` where it has them, otherwise the family's rule."""
    stated = config.texts("layer_types")
    if stated is None:
        kinds = [LayerKind.SLIDING if slides(layer) else LayerKind.FULL for layer in range(layer_count)]
    else:
        stated = _without_drafting_layers(config, stated, layer_count)
        unknown = next((each for each in stated if each not in LAYER_TYPES), None)
        if unknown is not None:
            raise config.refuse("layer_types", f"holds {unknown[:60]!r}; known here are {', '.join(LAYER_TYPES)}")
        kinds = [LAYER_TYPES[each] for each in stated]
    return {kind: tuple(i for i, each in enumerate(kinds) if each is kind) for kind in dict.fromkeys(kinds)}


def _without_drafting_layers(config: ConfigReader, stated: tuple[str, ...], layer_count: int) -> tuple[str, ...]:
    """Some files go on with the layers that draft tokens."""
    drafting = config.count("num_nextn_predict_layers", default=0, minimum=0, maximum=16)
    if len(stated) == layer_count + drafting:
        return stated[:layer_count]
    if len(stated) != layer_count:
        raise config.refuse("layer_types", f"names {len(stated)} layers, but there are {layer_count}")
    return stated


def attention_groups(
    config: ConfigReader,
    attention: GroupedQueryAttention,
    frame: Frame,
    *,
    slides: Callable[[int], bool] = lambda _: False,
    window_tokens: int | None = None,
) -> tuple[LayerGroup, ...]:
    """Layer groups by window. A window that no context can outgrow is none."""
    if window_tokens is None or (frame.max_context_tokens is not None and window_tokens >= frame.max_context_tokens):
        return (attention.layer_group(LayerKind.FULL, frame.layers),)
    return tuple(
        attention.layer_group(kind, layers, None if kind is LayerKind.FULL else window_tokens)
        for kind, layers in layers_by_type(config, frame.layer_count, slides).items()
    )


def read_window(config: ConfigReader, *, default: int | None = None) -> int | None:
    return config.optional_count("sliding_window", maximum=MAXIMUM_TOKENS) or default


def read_expert_counts(
    config: ConfigReader,
    count_names: tuple[str, ...] = (),
    top_names: tuple[str, ...] = (),
) -> tuple[int, int]:
    """How many experts a layer has, and how many of them a token passes through.

    A family's own names come first, and any other publisher's after them.
    """
    count_names, top_names = (*count_names, *EXPERT_COUNT_NAMES), (*top_names, *TOP_EXPERT_NAMES)
    expert_count = config.count(*count_names, maximum=MAXIMUM_EXPERTS)
    experts_per_token = config.count(*top_names, maximum=MAXIMUM_EXPERTS)
    if experts_per_token > expert_count:
        raise config.refuse(
            config.name_of(*top_names), f"is {experts_per_token}, more than the {expert_count} experts that there are"
        )
    return expert_count, experts_per_token


def layer_element_count(tensors: Iterable[WeightTensor], layer: int) -> int:
    """Parameters of one layer."""
    return sum(prod(tensor.shape) * tensor.copies for tensor in tensors if layer in tensor.layers)


def multi_token_prediction(
    layer_count: int, *, decoder_layer_count: int, hidden_size: int, kv_elements_per_token: int
) -> MultiTokenPrediction | None:
    """``layer_count`` modules, each a decoder layer, a projection of two hidden states into one, three norms.

    Assumes: no private copy of the embedding and the head, which engines share with the model's.
    Source: DeepSeek-V3, arXiv 2412.19437, section 2.2; its module has 11.61e9 parameters beside them.
    """
    if not layer_count:
        return None
    module = decoder_layer_count + 2 * hidden_size**2 + 3 * hidden_size
    return MultiTokenPrediction(layer_count, layer_count * module, layer_count * kv_elements_per_token)
