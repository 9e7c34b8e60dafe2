"""Vision towers: every rank holds them whole, and quantised checkpoints leave them in 16 bits."""

from collections.abc import Iterator

from service.sizing.architectures.config_reader import MAXIMUM_LAYERS, ConfigReader
from service.sizing.language_model import Component, Sharding, WeightTensor


def vision_tensor(module: str, shape: tuple[int, ...], copies: int = 1) -> WeightTensor:
    return WeightTensor(module, Component.VISION, shape, (), copies, Sharding.REPLICATED)


def vision_linear(module: str, rows: int, columns: int, copies: int = 1) -> Iterator[WeightTensor]:
    """A matrix and its bias."""
    yield vision_tensor(module, (rows, columns), copies)
    yield vision_tensor(f"{module}.bias", (rows,), copies)


def vision_norm(module: str, width: int, copies: int = 1) -> Iterator[WeightTensor]:
    yield vision_tensor(module, (width,), copies)
    yield vision_tensor(f"{module}.bias", (width,), copies)


def siglip_tower(config: ConfigReader, at: str = "vision_tower.vision_model") -> Iterator[WeightTensor]:
    """A SigLIP encoder: patch and position embeddings, pre-norm layers with biases, a final norm.

    Source: SigLIP, arXiv 2303.15343; Gemma 3 leaves out its pooling head.
    """
    if config.flag("vision_use_head", default=False):
        raise config.refuse("vision_use_head", "is true, and the pooling head is not modelled")
    width, inner = config.count("hidden_size"), config.count("intermediate_size")
    layer_count = config.count("num_hidden_layers", maximum=MAXIMUM_LAYERS)
    channels, patch = config.count("num_channels", default=3), config.count("patch_size")
    patches = (config.count("image_size") // patch) ** 2
    yield vision_tensor(f"{at}.embeddings.patch_embedding", (width, channels, patch, patch))
    yield vision_tensor(f"{at}.embeddings.patch_embedding.bias", (width,))
    yield vision_tensor(f"{at}.embeddings.position_embedding", (patches, width))
    layers = f"{at}.encoder.layers"
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        yield from vision_linear(f"{layers}.self_attn.{name}", width, width, layer_count)
    yield from vision_linear(f"{layers}.mlp.fc1", inner, width, layer_count)
    yield from vision_linear(f"{layers}.mlp.fc2", width, inner, layer_count)
    for name in ("layer_norm1", "layer_norm2"):
        yield from vision_norm(f"{layers}.{name}", width, layer_count)
    yield from vision_norm(f"{at}.post_layernorm", width)


def gemma_projector(config: ConfigReader, text_hidden_size: int) -> Iterator[WeightTensor]:
    width = config.count("hidden_size")
    yield vision_tensor("multi_modal_projector.mm_input_projection_weight", (width, text_hidden_size))
    yield vision_tensor("multi_modal_projector.mm_soft_emb_norm", (width,))


def qwen3_tower(config: ConfigReader, at: str = "model.visual") -> Iterator[WeightTensor]:
    """The encoder of Qwen3-VL and Qwen3.5, and the mergers that hand its patches to the decoder.

    A merger also stands at each depth whose features enter the decoder's first layers.
    """
    width, inner = config.count("hidden_size"), config.count("intermediate_size")
    depth = config.count("depth", maximum=MAXIMUM_LAYERS)
    patch, frames = config.count("patch_size"), config.count("temporal_patch_size", default=2)
    merged, out = width * config.count("spatial_merge_size", default=2) ** 2, config.count("out_hidden_size")
    yield vision_tensor(f"{at}.patch_embed.proj", (width, config.count("in_channels", default=3), frames, patch, patch))
    yield vision_tensor(f"{at}.patch_embed.proj.bias", (width,))
    yield vision_tensor(f"{at}.pos_embed", (config.count("num_position_embeddings"), width))
    blocks = f"{at}.blocks"
    yield from vision_linear(f"{blocks}.attn.qkv", 3 * width, width, depth)
    yield from vision_linear(f"{blocks}.attn.proj", width, width, depth)
    yield from vision_linear(f"{blocks}.mlp.linear_fc1", inner, width, depth)
    yield from vision_linear(f"{blocks}.mlp.linear_fc2", width, inner, depth)
    for name in ("norm1", "norm2"):
        yield from vision_norm(f"{blocks}.{name}", width, depth)
    yield from vision_norm(f"{at}.merger.norm", width)
    deep_count = len(config.counts("deepstack_visual_indexes") or ())
    if deep_count:
        yield from vision_norm(f"{at}.deepstack_merger_list.norm", merged, deep_count)
    for name, copies in (("merger", 1), ("deepstack_merger_list", deep_count)):
        if copies:
            yield from vision_linear(f"{at}.{name}.linear_fc1", merged, merged, copies)
            yield from vision_linear(f"{at}.{name}.linear_fc2", out, merged, copies)


def qwen2_5_tower(config: ConfigReader, text_hidden_size: int, at: str = "visual") -> Iterator[WeightTensor]:
    """The encoder of Qwen2.5-VL: gated feed-forwards, norms without biases, a merger of neighbouring patches."""
    width, inner = config.count("hidden_size"), config.count("intermediate_size")
    depth = config.count("depth", maximum=MAXIMUM_LAYERS)
    patch, frames = config.count("patch_size"), config.count("temporal_patch_size", default=2)
    merged = width * config.count("spatial_merge_size", default=2) ** 2
    channels = config.count("in_chans", "in_channels", default=3)
    yield vision_tensor(f"{at}.patch_embed.proj", (width, channels, frames, patch, patch))
    blocks = f"{at}.blocks"
    yield from vision_linear(f"{blocks}.attn.qkv", 3 * width, width, depth)
    yield from vision_linear(f"{blocks}.attn.proj", width, width, depth)
    for name in ("gate_proj", "up_proj"):
        yield from vision_linear(f"{blocks}.mlp.{name}", inner, width, depth)
    yield from vision_linear(f"{blocks}.mlp.down_proj", width, inner, depth)
    for name in ("norm1", "norm2"):
        yield vision_tensor(f"{blocks}.{name}", (width,), depth)
    yield vision_tensor(f"{at}.merger.ln_q", (width,))
    yield from vision_linear(f"{at}.merger.mlp.0", merged, merged)
    yield from vision_linear(f"{at}.merger.mlp.2", config.count("out_hidden_size", default=text_hidden_size), merged)


def qwen2_tower(config: ConfigReader, at: str = "visual") -> Iterator[WeightTensor]:
    """The encoder of Qwen2-VL: its ``hidden_size`` is the decoder's, ``embed_dim`` its own."""
    width, out = config.count("embed_dim", default=1280), config.count("hidden_size")
    depth = config.count("depth", default=32, maximum=MAXIMUM_LAYERS)
    inner = config.scaled("mlp_ratio", width, default=4)
    patch, frames = config.count("patch_size", default=14), config.count("temporal_patch_size", default=2)
    channels = config.count("in_chans", "in_channels", default=3)
    merged = width * config.count("spatial_merge_size", default=2) ** 2
    yield vision_tensor(f"{at}.patch_embed.proj", (width, channels, frames, patch, patch))
    blocks = f"{at}.blocks"
    yield from vision_linear(f"{blocks}.attn.qkv", 3 * width, width, depth)
    yield from vision_linear(f"{blocks}.attn.proj", width, width, depth)
    yield from vision_linear(f"{blocks}.mlp.fc1", inner, width, depth)
    yield from vision_linear(f"{blocks}.mlp.fc2", width, inner, depth)
    for name in ("norm1", "norm2"):
        yield from vision_norm(f"{blocks}.{name}", width, depth)
    yield from vision_norm(f"{at}.merger.ln_q", width)
    yield from vision_linear(f"{at}.merger.mlp.0", merged, merged)
    yield from vision_linear(f"{at}.merger.mlp.2", out, merged)
