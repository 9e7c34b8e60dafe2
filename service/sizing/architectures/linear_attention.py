"""Linear attention and short convolutions: mixers beside the state spaces that keep a state of fixed size."""

from collections.abc import Iterator
from dataclasses import dataclass

from service.sizing.architectures.building_blocks import Layers, linear, vector
from service.sizing.language_model import Component, LayerGroup, LayerKind, Sharding, WeightTensor


@dataclass(frozen=True, slots=True)
class KimiDelta:
    """Kimi Delta Attention: a delta rule with a decay for every channel, made by a projection of low rank.

    State per sequence: ``kernel - 1`` columns of queries, keys and values, and a matrix of key by value per head.
    Source: "Kimi Linear", arXiv 2510.26692.
    """

    hidden_size: int
    head_count: int
    head_width: int
    kernel_width: int

    @property
    def inner_width(self) -> int:
        return self.head_count * self.head_width

    def tensors(self, at: str, layers: Layers) -> Iterator[WeightTensor]:
        inner, hidden, heads = self.inner_width, self.hidden_size, self.head_count
        by_head = [("q_proj", inner, hidden), ("k_proj", inner, hidden), ("v_proj", inner, hidden)]
        by_head += [("f_b_proj", inner, self.head_width), ("g_b_proj", inner, self.head_width)]
        by_head.append(("b_proj", heads, hidden))
        for name, rows, columns in by_head:
            yield from linear(f"{at}.{name}", Component.STATE_SPACE, (rows, columns), layers, shard_limit=heads)
        for name in ("f_a_proj", "g_a_proj"):
            shape = (self.head_width, hidden)
            yield from linear(f"{at}.{name}", Component.STATE_SPACE, shape, layers, sharding=Sharding.REPLICATED)
        yield from linear(
            f"{at}.o_proj", Component.STATE_SPACE, (hidden, inner), layers, shard_limit=heads, row_parallel=True
        )
        for name in ("q_conv1d", "k_conv1d", "v_conv1d"):
            shape3 = (inner, 1, self.kernel_width)
            yield WeightTensor(f"{at}.{name}", Component.STATE_SPACE, shape3, layers, shard_limit=heads)
        yield WeightTensor(f"{at}.dt_bias", Component.STATE_SPACE, (inner,), layers, shard_limit=heads)
        yield WeightTensor(f"{at}.A_log", Component.STATE_SPACE, (heads,), layers, shard_limit=heads)
        yield vector(f"{at}.o_norm", self.head_width, layers)

    def layer_group(self, layers: Layers) -> LayerGroup:
        return LayerGroup(
            LayerKind.KDA,
            layers,
            conv_state_elements=3 * self.inner_width * (self.kernel_width - 1),
            recurrent_state_elements=self.inner_width * self.head_width,
            state_head_count=self.head_count,
        )


@dataclass(frozen=True, slots=True)
class LightningAttention:
    """Linear attention with a fixed decay: a matrix of head width by head width per head, and no convolution.

    Source: "MiniMax-01", arXiv 2501.08313, section 2.2.
    """

    hidden_size: int
    head_count: int
    head_width: int

    def tensors(self, at: str, layers: Layers) -> Iterator[WeightTensor]:
        inner, heads = self.head_count * self.head_width, self.head_count
        shapes = {"qkv_proj": (3 * inner, self.hidden_size), "output_gate": (inner, self.hidden_size)}
        for name, shape in shapes.items():
            yield from linear(f"{at}.{name}", Component.STATE_SPACE, shape, layers, shard_limit=heads)
        yield from linear(
            f"{at}.out_proj",
            Component.STATE_SPACE,
            (self.hidden_size, inner),
            layers,
            shard_limit=heads,
            row_parallel=True,
        )
        yield WeightTensor(f"{at}.norm", Component.STATE_SPACE, (inner,), layers, shard_limit=heads)

    def layer_group(self, layers: Layers) -> LayerGroup:
        return LayerGroup(
            LayerKind.LIGHTNING,
            layers,
            recurrent_state_elements=self.head_count * self.head_width**2,
            state_head_count=self.head_count,
        )


@dataclass(frozen=True, slots=True)
class ShortConvolution:
    """A gated convolution over a few tokens, which keeps all but one of them: ``hidden_size * (kernel - 1)``.

    Source: Liquid AI's LFM2 in Hugging Face Transformers, ``Lfm2ShortConv``.
    """

    hidden_size: int
    kernel_width: int
    bias: bool = False

    def tensors(self, at: str, layers: Layers) -> Iterator[WeightTensor]:
        hidden, kind = self.hidden_size, Component.STATE_SPACE
        yield from linear(f"{at}.in_proj", kind, (3 * hidden, hidden), layers, bias=self.bias, bias_component=kind)
        yield from linear(
            f"{at}.out_proj",
            kind,
            (hidden, hidden),
            layers,
            bias=self.bias,
            bias_component=kind,
            row_parallel=True,
        )
        yield WeightTensor(f"{at}.conv", kind, (hidden, 1, self.kernel_width), layers)
        if self.bias:
            yield WeightTensor(f"{at}.conv.bias", kind, (hidden,), layers)

    def layer_group(self, layers: Layers) -> LayerGroup:
        return LayerGroup(
            LayerKind.SHORT_CONVOLUTION,
            layers,
            conv_state_elements=self.hidden_size * (self.kernel_width - 1),
            state_head_count=self.hidden_size,
        )
