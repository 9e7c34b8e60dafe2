"""The parts that decoders are built of, each as the tensors it has in the checkpoint.

A family's declaration picks parts and gives them the widths it read from its config. Biases and norms
count as ``OTHER``, so that a component's count is that of its matrices.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from service.sizing.language_model import Component, LayerGroup, LayerKind, Sharding, WeightTensor

Layers = tuple[int, ...]


def linear(
    module: str,
    component: Component,
    shape: tuple[int, int],
    layers: Layers,
    *,
    bias: bool = False,
    bias_component: Component = Component.OTHER,
    copies: int = 1,
    sharding: Sharding = Sharding.TENSOR,
    shard_limit: int | None = None,
    row_parallel: bool = False,
) -> Iterator[WeightTensor]:
    """A matrix that quantisation covers, and its bias.

    The bias of a ``row_parallel`` matrix (one that is split along its inputs) is added once, after the
    ranks' sums, so each rank holds it whole.
    """
    yield WeightTensor(module, component, shape, layers, copies, sharding, True, shard_limit)
    if bias:
        bias_sharding = Sharding.REPLICATED if row_parallel and sharding is Sharding.TENSOR else sharding
        yield WeightTensor(
            f"{module}.bias", bias_component, shape[:1], layers, copies, bias_sharding, False, shard_limit
        )


def vector(
    module: str, width: int, layers: Layers = (), *, component: Component = Component.OTHER, copies: int = 1
) -> WeightTensor:
    """A norm or another small tensor that every rank holds whole."""
    return WeightTensor(module, component, (width,), layers, copies, Sharding.REPLICATED)


def norms(at: str, names: Iterable[str], width: int, layers: Layers, *, bias: bool = False) -> Iterator[WeightTensor]:
    for name in names:
        yield vector(f"{at}.{name}", width, layers)
        if bias:
            yield vector(f"{at}.{name}.bias", width, layers)


@dataclass(frozen=True, slots=True)
class GroupedQueryAttention:
    """Query heads that share key and value heads; MHA where there are as many, MQA where there is one.

    ``query_norm_width`` and ``key_norm_width`` are the widths of the norms on queries and keys, 0 for none.
    ``gated`` doubles the query projection by an output gate; ``gate_width`` is that of a gate with a matrix of its
    own. ``keys_are_values`` keeps both, made by one matrix; without ``has_own_cache`` both are an earlier layer's.
    """

    hidden_size: int
    head_count: int
    kv_head_count: int
    key_width: int
    value_width: int
    bias: bool = False
    output_bias: bool = False
    query_norm_width: int = 0
    key_norm_width: int = 0
    gated: bool = False
    has_sinks: bool = False
    fused: bool = False
    gate_width: int = 0
    keys_are_values: bool = False
    has_own_cache: bool = True
    norm_bias: bool = False
    query_norm: str = "q_norm"
    key_norm: str = "k_norm"
    fused_name: str = "qkv_proj"
    output_name: str = "o_proj"
    gate_name: str = "g_proj"

    def tensors(self, at: str, layers: Layers) -> Iterator[WeightTensor]:
        yield from self._projections(at, layers)
        yield from linear(
            f"{at}.{self.output_name}",
            Component.ATTENTION,
            (self.hidden_size, self.head_count * self.value_width),
            layers,
            bias=self.output_bias,
            shard_limit=self.head_count,
            row_parallel=True,
        )
        if self.gate_width:
            shape = (self.gate_width, self.hidden_size)
            yield from linear(f"{at}.{self.gate_name}", Component.ATTENTION, shape, layers, shard_limit=self.head_count)
        if self.query_norm_width:
            yield from norms(at, (self.query_norm,), self.query_norm_width, layers, bias=self.norm_bias)
        if self.key_norm_width and self.has_own_cache:
            yield from norms(at, (self.key_norm,), self.key_norm_width, layers, bias=self.norm_bias)
        if self.has_sinks:
            yield WeightTensor(f"{at}.sinks", Component.OTHER, (self.head_count,), layers, shard_limit=self.head_count)

    def _projections(self, at: str, layers: Layers) -> Iterator[WeightTensor]:
        """A fused matrix is listed in two parts, since its key and value rows stop dividing at the KV heads."""
        query_width = self.head_count * self.key_width * (2 if self.gated else 1)
        parts = [("q_proj", query_width, self.head_count)]
        key_rows, value_rows = self.kv_head_count * self.key_width, self.kv_head_count * self.value_width
        if self.fused:
            parts.append(("k_proj", key_rows + value_rows, self.kv_head_count))
        elif self.has_own_cache:
            parts.append(("k_proj", key_rows, self.kv_head_count))
            if not self.keys_are_values:
                parts.append(("v_proj", value_rows, self.kv_head_count))
        for name, rows, head_count in parts:
            module = f"{at}.{self.fused_name}" if self.fused else f"{at}.{name}"
            yield WeightTensor(
                module,
                Component.ATTENTION,
                (rows, self.hidden_size),
                layers,
                quantisable=True,
                shard_limit=head_count,
                continues_matrix=self.fused and name != "q_proj",
            )
            if self.bias:
                yield WeightTensor(f"{module}.bias", Component.OTHER, (rows,), layers, shard_limit=head_count)

    def layer_group(self, kind: LayerKind, layers: Layers, window_tokens: int | None = None) -> LayerGroup:
        """Layers of kind ``CROSS`` keep the source's positions, those without a cache of their own nothing."""
        width = self.head_count * (self.key_width + self.value_width)
        is_cross = kind is LayerKind.CROSS
        return LayerGroup(
            kind if self.has_own_cache else LayerKind.KV_SHARED,
            layers,
            kv_head_count=self.kv_head_count if self.has_own_cache and not is_cross else 0,
            source_kv_head_count=self.kv_head_count if is_cross else 0,
            shared_kv_head_count=0 if self.has_own_cache else self.kv_head_count,
            key_width=self.key_width,
            value_width=self.value_width,
            window_tokens=window_tokens,
            attention_width_decode=width,
            attention_width_prefill=width,
        )


@dataclass(frozen=True, slots=True)
class FeedForward:
    """Up and down projections, with a gate beside the up projection unless the family has none.

    ``up_names`` and ``down_name`` are the checkpoint's, where it has other ones.
    """

    hidden_size: int
    width: int
    gated: bool = True
    bias: bool = False
    fused: bool = False
    component: Component = Component.MLP
    up_names: tuple[str, ...] = ()
    down_name: str = "down_proj"

    def tensors(self, at: str, layers: Layers) -> Iterator[WeightTensor]:
        usual = ("gate_up_proj",) if self.fused else ("gate_proj", "up_proj") if self.gated else ("up_proj",)
        ups = self.up_names or usual
        rows = 2 * self.width if self.fused else self.width
        for name in ups:
            yield from linear(f"{at}.{name}", self.component, (rows, self.hidden_size), layers, bias=self.bias)
        yield from linear(
            f"{at}.{self.down_name}",
            self.component,
            (self.hidden_size, self.width),
            layers,
            bias=self.bias,
            row_parallel=True,
        )


@dataclass(frozen=True, slots=True)
class RoutedExperts:
    """A router and the experts it chooses from. ``matrices`` names the up, gate and down projections."""

    hidden_size: int
    width: int
    expert_count: int
    experts_per_token: int
    gated: bool = True
    router: str = "gate"
    up_matrices: tuple[str, ...] = ("gate_proj", "up_proj")
    down_matrix: str = "down_proj"
    router_hidden_size: int = 0

    def tensors(self, at: str, layers: Layers) -> Iterator[WeightTensor]:
        yield router(f"{at}.{self.router}", self.expert_count, self.router_hidden_size or self.hidden_size, layers)
        up_matrices = self.up_matrices if self.gated else self.up_matrices[-1:]
        shapes = [(name, (self.width, self.hidden_size)) for name in up_matrices]
        shapes.append((self.down_matrix, (self.hidden_size, self.width)))
        for name, shape in shapes:
            yield from linear(
                f"{at}.experts.{{expert}}.{name}",
                Component.EXPERTS,
                shape,
                layers,
                copies=self.expert_count,
                sharding=Sharding.EXPERT,
            )


def router(module: str, expert_count: int, hidden_size: int, layers: Layers) -> WeightTensor:
    return WeightTensor(module, Component.ROUTER, (expert_count, hidden_size), layers, 1, Sharding.REPLICATED)


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """MLA: the cache holds one compressed latent and one rotary key per token, whatever the heads.

    The projections into the latents serve all heads and are held whole by every rank; those out of them
    divide by heads. Decoding works in the latent itself, so its scores and values are as wide as it is.
    An index, where there is one, keeps one more key per token and scores it for all ranks alike.
    Source: DeepSeek-V2, arXiv 2405.04434, section 2.1; DeepSeek-V3.2, arXiv 2512.02556, section 2.
    """

    hidden_size: int
    head_count: int
    query_latent_width: int | None
    kv_latent_width: int
    content_width: int
    rotary_width: int
    value_width: int
    bias: bool = False
    index_head_count: int = 0
    index_key_width: int = 0
    index_top_k_tokens: int | None = None

    def tensors(self, at: str, layers: Layers) -> Iterator[WeightTensor]:
        hidden, heads = self.hidden_size, self.head_count
        query_rows = heads * (self.content_width + self.rotary_width)

        def matrix(
            name: str, rows: int, columns: int, sharding: Sharding, *, bias: bool = False
        ) -> Iterator[WeightTensor]:
            limit = heads if sharding is Sharding.TENSOR else None
            return linear(
                f"{at}.{name}",
                Component.ATTENTION,
                (rows, columns),
                layers,
                bias=bias,
                sharding=sharding,
                shard_limit=limit,
                row_parallel=name == "o_proj",
            )

        if self.query_latent_width is None:
            yield from matrix("q_proj", query_rows, hidden, Sharding.TENSOR)
        else:
            yield from matrix("q_a_proj", self.query_latent_width, hidden, Sharding.REPLICATED, bias=self.bias)
            yield vector(f"{at}.q_a_layernorm", self.query_latent_width, layers)
            yield from matrix("q_b_proj", query_rows, self.query_latent_width, Sharding.TENSOR)
        cached_width = self.kv_latent_width + self.rotary_width
        yield from matrix("kv_a_proj_with_mqa", cached_width, hidden, Sharding.REPLICATED, bias=self.bias)
        yield vector(f"{at}.kv_a_layernorm", self.kv_latent_width, layers)
        kv_rows = heads * (self.content_width + self.value_width)
        yield from matrix("kv_b_proj", kv_rows, self.kv_latent_width, Sharding.TENSOR)
        yield from matrix("o_proj", hidden, heads * self.value_width, Sharding.TENSOR, bias=self.bias)
        if self.index_key_width and self.query_latent_width is not None:
            index_rows = self.index_head_count * self.index_key_width
            yield from matrix("indexer.wq_b", index_rows, self.query_latent_width, Sharding.REPLICATED)
            yield from matrix("indexer.wk", self.index_key_width, hidden, Sharding.REPLICATED)
            yield from matrix("indexer.weights_proj", self.index_head_count, hidden, Sharding.REPLICATED)
            yield from norms(f"{at}.indexer", ("k_norm",), self.index_key_width, layers, bias=True)

    def layer_group(self, layers: Layers) -> LayerGroup:
        return LayerGroup(
            LayerKind.MLA,
            layers,
            kv_head_count=1,
            key_width=self.kv_latent_width + self.rotary_width,
            attention_width_decode=self.head_count * (2 * self.kv_latent_width + self.rotary_width),
            attention_width_prefill=self.head_count * (self.content_width + self.rotary_width + self.value_width),
            index_key_width=self.index_key_width,
            index_head_count=self.index_head_count,
            index_top_k_tokens=self.index_top_k_tokens,
        )
