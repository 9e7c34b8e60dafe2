"""Mixers that keep a state of fixed size instead of keys and values."""

from collections.abc import Iterator
from dataclasses import dataclass

from service.sizing.architectures.building_blocks import Layers, linear, vector
from service.sizing.language_model import Component, LayerGroup, LayerKind, WeightTensor


@dataclass(frozen=True, slots=True)
class Mamba1:
    """The first selective state space: every channel has a state of its own and a step size of low rank.

    State per sequence: ``kernel - 1`` columns of the convolution and ``state_size`` elements, for each channel.
    ``has_norms`` are Jamba's, on step sizes and inputs. Source: Gu and Dao, "Mamba", arXiv 2312.00752.
    """

    hidden_size: int
    inner_width: int
    state_size: int
    kernel_width: int
    step_rank: int
    bias: bool = False
    convolution_bias: bool = True
    has_norms: bool = False

    def tensors(self, at: str, layers: Layers) -> Iterator[WeightTensor]:
        inner, kind = self.inner_width, Component.STATE_SPACE
        yield from linear(
            f"{at}.in_proj", kind, (2 * inner, self.hidden_size), layers, bias=self.bias, bias_component=kind
        )
        yield from linear(
            f"{at}.x_proj", kind, (self.step_rank + 2 * self.state_size, inner), layers, row_parallel=True
        )
        yield from linear(f"{at}.dt_proj", kind, (inner, self.step_rank), layers, bias=True, bias_component=kind)
        yield from linear(
            f"{at}.out_proj",
            kind,
            (self.hidden_size, inner),
            layers,
            bias=self.bias,
            bias_component=kind,
            row_parallel=True,
        )
        yield WeightTensor(f"{at}.conv1d", kind, (inner, 1, self.kernel_width), layers)
        if self.convolution_bias:
            yield WeightTensor(f"{at}.conv1d.bias", kind, (inner,), layers)
        yield WeightTensor(f"{at}.A_log", kind, (inner, self.state_size), layers)
        yield WeightTensor(f"{at}.D", kind, (inner,), layers)
        if self.has_norms:
            yield vector(f"{at}.dt_layernorm", self.step_rank, layers, component=kind)
            for name in ("b_layernorm", "c_layernorm"):
                yield vector(f"{at}.{name}", self.state_size, layers, component=kind)

    def layer_group(self, layers: Layers) -> LayerGroup:
        return LayerGroup(
            LayerKind.MAMBA1,
            layers,
            conv_state_elements=self.inner_width * (self.kernel_width - 1),
            recurrent_state_elements=self.inner_width * self.state_size,
            state_head_count=self.inner_width,
        )


@dataclass(frozen=True, slots=True)
class Mamba2:
    """A state-space mixer with one scalar decay per head, its inputs shared by groups of heads.

    State per sequence: the last ``kernel - 1`` columns of the convolution over values and the groups'
    inputs, and a matrix of head width by state size for each head.
    Source: Dao and Gu, "Transformers are SSMs", arXiv 2405.21060.
    """

    hidden_size: int
    head_count: int
    head_width: int
    group_count: int
    state_size: int
    kernel_width: int
    bias: bool = False
    convolution_bias: bool = True
    has_norm: bool = True

    @property
    def inner_width(self) -> int:
        return self.head_count * self.head_width

    @property
    def group_width(self) -> int:
        return 2 * self.group_count * self.state_size

    def tensors(self, at: str, layers: Layers) -> Iterator[WeightTensor]:
        yield from self._inputs(at, layers)
        yield from linear(
            f"{at}.out_proj",
            Component.STATE_SPACE,
            (self.hidden_size, self.inner_width),
            layers,
            bias=self.bias,
            bias_component=Component.STATE_SPACE,
            shard_limit=self.head_count,
            row_parallel=True,
        )
        for rows, limit in ((self.inner_width, self.head_count), (self.group_width, self.group_count)):
            shape = (rows, 1, self.kernel_width)
            yield WeightTensor(f"{at}.conv1d", Component.STATE_SPACE, shape, layers, shard_limit=limit)
            if self.convolution_bias:
                yield WeightTensor(f"{at}.conv1d.bias", Component.STATE_SPACE, (rows,), layers, shard_limit=limit)
        for name in ("A_log", "D", "dt_bias"):
            yield WeightTensor(
                f"{at}.{name}", Component.STATE_SPACE, (self.head_count,), layers, shard_limit=self.head_count
            )
        if self.has_norm:
            widths = (self.inner_width,)
            yield WeightTensor(f"{at}.norm", Component.STATE_SPACE, widths, layers, shard_limit=self.head_count)

    def _inputs(self, at: str, layers: Layers) -> Iterator[WeightTensor]:
        """One matrix: gate, value and step size divide by heads, the rest by groups."""
        parts = ((2 * self.inner_width + self.head_count, self.head_count), (self.group_width, self.group_count))
        for part, (rows, limit) in enumerate(parts):
            yield WeightTensor(
                f"{at}.in_proj",
                Component.STATE_SPACE,
                (rows, self.hidden_size),
                layers,
                quantisable=True,
                shard_limit=limit,
                continues_matrix=part > 0,
            )
            if self.bias:
                yield WeightTensor(f"{at}.in_proj.bias", Component.STATE_SPACE, (rows,), layers, shard_limit=limit)

    def layer_group(self, layers: Layers) -> LayerGroup:
        columns = self.kernel_width - 1
        return LayerGroup(
            LayerKind.MAMBA2,
            layers,
            conv_state_elements=(self.inner_width + self.group_width) * columns,
            conv_group_state_elements=self.group_width * columns,
            recurrent_state_elements=self.inner_width * self.state_size,
            state_head_count=self.head_count,
            state_group_count=self.group_count,
        )


@dataclass(frozen=True, slots=True)
class GatedDeltaNet:
    """Linear attention whose heads each keep a matrix of key by value width, updated by the delta rule.

    The convolution runs over queries, keys and values. ``fused`` tells whether the input projections are
    two matrices (Qwen3-Next) or four (Qwen3.5).
    Source: Yang, Kautz and Hatamizadeh, "Gated Delta Networks", arXiv 2412.06464.
    """

    hidden_size: int
    key_head_count: int
    value_head_count: int
    key_width: int
    value_width: int
    kernel_width: int
    fused: bool

    @property
    def _key_rows(self) -> int:
        """Of queries and keys together."""
        return 2 * self.key_head_count * self.key_width

    @property
    def _value_rows(self) -> int:
        return self.value_head_count * self.value_width

    def tensors(self, at: str, layers: Layers) -> Iterator[WeightTensor]:
        yield from self._inputs(at, layers)
        yield from linear(
            f"{at}.out_proj",
            Component.STATE_SPACE,
            (self.hidden_size, self._value_rows),
            layers,
            shard_limit=self.value_head_count,
            row_parallel=True,
        )
        for rows, limit in ((self._key_rows, self.key_head_count), (self._value_rows, self.value_head_count)):
            shape = (rows, 1, self.kernel_width)
            yield WeightTensor(f"{at}.conv1d", Component.STATE_SPACE, shape, layers, shard_limit=limit)
        heads = self.value_head_count
        for name in ("A_log", "dt_bias"):
            yield WeightTensor(f"{at}.{name}", Component.STATE_SPACE, (heads,), layers, shard_limit=heads)
        yield vector(f"{at}.norm", self.value_width, layers, component=Component.STATE_SPACE)

    def _inputs(self, at: str, layers: Layers) -> Iterator[WeightTensor]:
        keys, values = (self._key_rows, self.key_head_count), (self._value_rows, self.value_head_count)
        heads = (self.value_head_count, self.value_head_count)
        if self.fused:
            matrices = {"in_proj_qkvz": (keys, (2 * values[0], values[1])), "in_proj_ba": ((2 * heads[0], heads[1]),)}
        else:
            matrices = {
                "in_proj_qkv": (keys, values),
                "in_proj_z": (values,),
                "in_proj_b": (heads,),
                "in_proj_a": (heads,),
            }
        for name, parts in matrices.items():
            for part, (rows, limit) in enumerate(parts):
                yield WeightTensor(
                    f"{at}.{name}",
                    Component.STATE_SPACE,
                    (rows, self.hidden_size),
                    layers,
                    quantisable=True,
                    shard_limit=limit,
                    continues_matrix=part > 0,
                )

    def layer_group(self, layers: Layers) -> LayerGroup:
        columns = self.kernel_width - 1
        return LayerGroup(
            LayerKind.GATED_DELTA,
            layers,
            conv_state_elements=(self._key_rows + self._value_rows) * columns,
            conv_group_state_elements=self._key_rows * columns,
            recurrent_state_elements=self._value_rows * self.key_width,
            state_head_count=self.value_head_count,
            state_group_count=self.key_head_count,
        )
