"""Vision towers beside the Llama, Gemma 4, Mistral and Kimi decoders."""

from collections.abc import Iterator

from service.sizing.architectures.config_reader import MAXIMUM_HEADS, MAXIMUM_LAYERS, ConfigReader
from service.sizing.architectures.vision import vision_linear, vision_norm, vision_tensor
from service.sizing.language_model import WeightTensor


def _matrices(at: str, shapes: dict[str, tuple[int, int]], copies: int) -> Iterator[WeightTensor]:
    """Without biases."""
    for name, shape in shapes.items():
        yield vision_tensor(f"{at}.{name}", shape, copies)


def mllama_tower(config: ConfigReader, text_hidden_size: int, at: str = "vision_model") -> Iterator[WeightTensor]:
    """Llama 3.2 Vision: local layers, gated global ones, embeddings of tiles for every shape of a picture.

    A tile is a picture of ``image_size`` patches and a class token; shape 0 stands for none.
    """
    width, inner = config.count("hidden_size", default=1280), config.count("intermediate_size", default=5120)
    patch, image = config.count("patch_size", default=14), config.count("image_size", default=448)
    tiles = config.count("max_num_tiles", default=4, maximum=1024)
    shapes = 1 + config.length("supported_aspect_ratios", default=8)
    positions = (image // patch) ** 2 + 1
    yield vision_tensor(f"{at}.class_embedding", (width,))
    yield vision_tensor(f"{at}.patch_embedding", (width, config.count("num_channels", default=3), patch, patch))
    yield vision_tensor(f"{at}.gated_positional_embedding.embedding", (positions, width))
    yield vision_tensor(f"{at}.gated_positional_embedding.tile_embedding", (shapes, tiles * positions * width))
    yield vision_tensor(f"{at}.gated_positional_embedding.gate", (1,))
    for name in ("pre_tile_positional_embedding", "post_tile_positional_embedding"):
        yield vision_tensor(f"{at}.{name}.embedding", (shapes, tiles * width))
        yield vision_tensor(f"{at}.{name}.gate", (1,))
    for name in ("layernorm_pre", "layernorm_post"):
        yield from vision_norm(f"{at}.{name}", width)
    local = config.count("num_hidden_layers", default=32, maximum=MAXIMUM_LAYERS)
    whole = config.count("num_global_layers", default=8, maximum=MAXIMUM_LAYERS)
    for stack, count in (("transformer", local), ("global_transformer", whole)):
        layers = f"{at}.{stack}.layers"
        yield from _matrices(f"{layers}.self_attn", dict.fromkeys(("q", "k", "v", "o"), (width, width)), count)
        yield from vision_linear(f"{layers}.mlp.fc1", inner, width, count)
        yield from vision_linear(f"{layers}.mlp.fc2", width, inner, count)
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield from vision_norm(f"{layers}.{name}", width, count)
    for name in ("gate_attn", "gate_ffn"):
        yield vision_tensor(f"{at}.global_transformer.layers.{name}", (1,), whole)
    out = config.count("vision_output_dim", default=7680)
    yield from vision_linear("multi_modal_projector", text_hidden_size, out)


def llama4_tower(config: ConfigReader, text_hidden_size: int, at: str = "vision_model") -> Iterator[WeightTensor]:
    """Layers with biases throughout, then an adapter over shuffled patches, without."""
    width, inner = config.count("hidden_size"), config.count("intermediate_size")
    patch, channels = config.count("patch_size"), config.count("num_channels", default=3)
    layer_count = config.count("num_hidden_layers", maximum=MAXIMUM_LAYERS)
    positions = (config.count("image_size") // patch) ** 2 + 1
    yield vision_tensor(f"{at}.class_embedding", (width,))
    yield vision_tensor(f"{at}.positional_embedding_vlm", (positions, width))
    yield vision_tensor(f"{at}.patch_embedding.linear", (width, channels * patch**2))
    for name in ("layernorm_pre", "layernorm_post"):
        yield from vision_norm(f"{at}.{name}", width)
    layers = f"{at}.model.layers"
    for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
        yield from vision_linear(f"{layers}.self_attn.{name}", width, width, layer_count)
    yield from vision_linear(f"{layers}.mlp.fc1", inner, width, layer_count)
    yield from vision_linear(f"{layers}.mlp.fc2", width, inner, layer_count)
    for name in ("input_layernorm", "post_attention_layernorm"):
        yield from vision_norm(f"{layers}.{name}", width, layer_count)
    middle, out = config.count("projector_input_dim", default=4096), config.count("projector_output_dim", default=4096)
    yield vision_tensor(f"{at}.vision_adapter.mlp.fc1", (middle, inner))
    yield vision_tensor(f"{at}.vision_adapter.mlp.fc2", (out, middle))
    yield vision_tensor("multi_modal_projector.linear_1", (text_hidden_size, config.count("vision_output_dim")))


def gemma4_tower(config: ConfigReader, text_hidden_size: int, at: str = "model.vision_tower") -> Iterator[WeightTensor]:
    """Gated feed-forwards and sandwich norms as in the decoder; positions along either side of the picture."""
    width, inner = config.count("hidden_size"), config.count("intermediate_size")
    heads = config.count("num_attention_heads", maximum=MAXIMUM_HEADS)
    kv_heads = config.count("num_key_value_heads", default=heads, maximum=MAXIMUM_HEADS)
    head_width = config.count("head_dim", default=max(1, width // heads))
    layer_count = config.count("num_hidden_layers", maximum=MAXIMUM_LAYERS)
    positions, patch = config.count("position_embedding_size", default=10_240), config.count("patch_size", default=16)
    yield vision_tensor(f"{at}.patch_embedder.position_embedding_table", (2, positions, width))
    yield vision_tensor(f"{at}.patch_embedder.input_proj", (width, 3 * patch**2))
    layers = f"{at}.encoder.layers"
    attention = {
        "q_proj": (heads * head_width, width),
        "k_proj": (kv_heads * head_width, width),
        "v_proj": (kv_heads * head_width, width),
        "o_proj": (width, heads * head_width),
    }
    yield from _matrices(f"{layers}.self_attn", attention, layer_count)
    feed_forward = {"gate_proj": (inner, width), "up_proj": (inner, width), "down_proj": (width, inner)}
    yield from _matrices(f"{layers}.mlp", feed_forward, layer_count)
    for name in ("q_norm", "k_norm"):
        yield vision_tensor(f"{layers}.self_attn.{name}", (head_width,), layer_count)
    for name in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
        yield vision_tensor(f"{layers}.{name}_layernorm", (width,), layer_count)
    yield vision_tensor("model.embed_vision.embedding_projection", (text_hidden_size, width))


def pixtral_tower(config: ConfigReader, at: str = "vision_tower") -> Iterator[WeightTensor]:
    """Pixtral: no biases, rotary positions, gated feed-forwards. Source: Agrawal et al., arXiv 2410.07073."""
    width, inner = config.count("hidden_size", default=1024), config.count("intermediate_size", default=4096)
    layer_count = config.count("num_hidden_layers", default=24, maximum=MAXIMUM_LAYERS)
    patch, channels = config.count("patch_size", default=16), config.count("num_channels", default=3)
    yield vision_tensor(f"{at}.patch_conv", (width, channels, patch, patch))
    yield vision_tensor(f"{at}.ln_pre", (width,))
    layers = f"{at}.transformer.layers"
    names = ("q_proj", "k_proj", "v_proj", "o_proj")
    yield from _matrices(f"{layers}.attention", dict.fromkeys(names, (width, width)), layer_count)
    feed_forward = {"gate_proj": (inner, width), "up_proj": (inner, width), "down_proj": (width, inner)}
    yield from _matrices(f"{layers}.feed_forward", feed_forward, layer_count)
    for name in ("attention_norm", "ffn_norm"):
        yield vision_tensor(f"{layers}.{name}", (width,), layer_count)


def mistral_projector(config: ConfigReader, vision_width: int, text_hidden_size: int) -> Iterator[WeightTensor]:
    """Merges squares of patches, then two matrices. ``config`` is that of the whole model."""
    at, merged = "multi_modal_projector", config.count("spatial_merge_size", default=2) ** 2
    has_bias = config.flag("multimodal_projector_bias", default=False)
    yield vision_tensor(f"{at}.norm", (vision_width,))
    yield vision_tensor(f"{at}.patch_merger.merging_layer", (vision_width, merged * vision_width))
    for name, columns in (("linear_1", vision_width), ("linear_2", text_hidden_size)):
        yield vision_tensor(f"{at}.{name}", (text_hidden_size, columns))
        if has_bias:
            yield vision_tensor(f"{at}.{name}.bias", (text_hidden_size,))


def clip_tower(config: ConfigReader, at: str = "vision_tower.vision_model") -> Iterator[WeightTensor]:
    """CLIP ViT, with all of its layers. Source: Radford et al., arXiv 2103.00020."""
    width, inner = config.count("hidden_size", default=1024), config.count("intermediate_size", default=4096)
    layer_count = config.count("num_hidden_layers", default=24, maximum=MAXIMUM_LAYERS)
    patch, image = config.count("patch_size", default=14), config.count("image_size", default=336)
    yield vision_tensor(f"{at}.embeddings.class_embedding", (width,))
    yield vision_tensor(
        f"{at}.embeddings.patch_embedding", (width, config.count("num_channels", default=3), patch, patch)
    )
    yield vision_tensor(f"{at}.embeddings.position_embedding", ((image // patch) ** 2 + 1, width))
    for name in ("pre_layrnorm", "post_layernorm"):
        yield from vision_norm(f"{at}.{name}", width)
    layers = f"{at}.encoder.layers"
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        yield from vision_linear(f"{layers}.self_attn.{name}", width, width, layer_count)
    yield from vision_linear(f"{layers}.mlp.fc1", inner, width, layer_count)
    yield from vision_linear(f"{layers}.mlp.fc2", width, inner, layer_count)
    for name in ("layer_norm1", "layer_norm2"):
        yield from vision_norm(f"{layers}.{name}", width, layer_count)


def moonvit_tower(config: ConfigReader, text_hidden_size: int, at: str = "vision_tower") -> Iterator[WeightTensor]:
    """MoonViT of Kimi-K2.5, and the projector over squares of patches. Source: Kimi-VL, arXiv 2504.07491."""
    width = config.count("vt_hidden_size", "hidden_size", default=1152)
    inner = config.count("vt_intermediate_size", "intermediate_size", default=4304)
    layer_count = config.count("vt_num_hidden_layers", "num_hidden_layers", default=27, maximum=MAXIMUM_LAYERS)
    patch = config.count("patch_size", default=14)
    rows = config.count("init_pos_emb_height", "pos_emb_height", default=64)
    columns = config.count("init_pos_emb_width", "pos_emb_width", default=64)
    kernel = config.counts("merge_kernel_size", minimum=1, length=2) or (2, 2)
    merged = width * kernel[0] * kernel[1]
    yield vision_tensor(f"{at}.patch_embed.proj", (width, 3, patch, patch))
    yield vision_tensor(f"{at}.patch_embed.proj.bias", (width,))
    yield vision_tensor(f"{at}.patch_embed.pos_emb", (rows, columns, width))
    blocks = f"{at}.encoder.blocks"
    yield from vision_linear(f"{blocks}.wqkv", 3 * width, width, layer_count)
    yield from vision_linear(f"{blocks}.wo", width, width, layer_count)
    yield from vision_linear(f"{blocks}.mlp.fc0", inner, width, layer_count)
    yield from vision_linear(f"{blocks}.mlp.fc1", width, inner, layer_count)
    for name in ("norm0", "norm1"):
        yield from vision_norm(f"{blocks}.{name}", width, layer_count)
    yield from vision_norm(f"{at}.encoder.final_layernorm", width)
    yield from vision_norm("mm_projector.pre_norm", width)
    yield from vision_linear("mm_projector.proj.0", merged, merged)
    yield from vision_linear("mm_projector.proj.2", text_hidden_size, merged)
