"""Mixers that keep a state of fixed size instead of keys and values."""

from collections.abc import Iterator
from dataclasses import dataclass

from service.sizing.architectures.building_blocks import Layers, linear
from service.sizing.language_model import Component, LayerGroup, LayerKind, WeightTensor


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
        yield WeightTensor(
            f"{at}.norm", Component.STATE_SPACE, (self.inner_width,), layers, shard_limit=self.head_count
        )

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
