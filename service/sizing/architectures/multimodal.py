"""A decoder of a known family under ``text_config``, beside a tower for pictures."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from service.sizing.architectures.building_blocks import FeedForward, norms, vector
from service.sizing.architectures.config_reader import MAXIMUM_LAYERS, ConfigReader
from service.sizing.architectures.decoder import Architecture, read_attention, read_frame
from service.sizing.architectures.deepseek import deepseek_v3
from service.sizing.architectures.dense import PRE_NORMS, llama, mistral, qwen2, qwen3
from service.sizing.architectures.dense_variants import ministral3
from service.sizing.architectures.vision import qwen2_5_tower, qwen2_tower, siglip_tower, vision_linear
from service.sizing.architectures.vision_towers import (
    clip_tower,
    mistral_projector,
    mllama_tower,
    moonvit_tower,
    pixtral_tower,
)
from service.sizing.language_model import LayerKind, WeightTensor

TEXT_FAMILIES: Final[Mapping[str, Callable[[ConfigReader], Architecture]]] = {
    "llama": llama,
    "mistral": mistral,
    "ministral3": ministral3,
    "qwen2": qwen2,
    "qwen3": qwen3,
}
CROSS_EVERY, FIRST_CROSS = 5, 3  # of a Llama 3.2 Vision file that does not list its cross-attention layers
FURTHER_EMBEDDING_ROWS = 8  # of the same family: tokens that are read and never written


def _text(config: ConfigReader) -> Architecture:
    """The decoder of the section, whose tensors the checkpoint has under ``language_model``."""
    text = config.section("text_config").taking(config, "tie_word_embeddings")
    family = text.text("model_type")
    if family not in TEXT_FAMILIES:
        raise text.refuse("model_type", f"is {family[:60]!r}; known beside a tower are {', '.join(TEXT_FAMILIES)}")
    return TEXT_FAMILIES[family](text)


def _beside(decoder: Architecture, tower: Iterable[WeightTensor]) -> Architecture:
    renamed = (replace(each, module=f"language_model.{each.module}") for each in decoder.tensors)
    return replace(decoder, tensors=(*renamed, *tower))


def mistral3(config: ConfigReader) -> Architecture:
    """Mistral Small 3.1 and later: a Pixtral tower and a merger of patches."""
    decoder = _text(config)
    tower = config.optional_section("vision_config")
    if tower is None:
        return _beside(decoder, ())
    width = tower.count("hidden_size", default=1024)
    projector = mistral_projector(config, width, decoder.hidden_size)
    return _beside(decoder, (*pixtral_tower(tower), *projector))


def llava(config: ConfigReader) -> Architecture:
    """A CLIP, SigLIP or Pixtral tower and a projector of two matrices."""
    decoder = _text(config)
    section = config.section("vision_config")
    towers = {"clip_vision_model": clip_tower, "siglip_vision_model": siglip_tower, "pixtral": pixtral_tower}
    kind = section.text("model_type", default="clip_vision_model")
    if kind not in towers:
        raise section.refuse("model_type", f"is {kind[:60]!r}; known are {', '.join(towers)}")
    width = section.count("hidden_size", default=1024)
    if not config.flag("multimodal_projector_bias", default=True):
        raise config.refuse("multimodal_projector_bias", "is false, which is not modelled for this family")
    projector = (
        *vision_linear("multi_modal_projector.linear_1", decoder.hidden_size, width),
        *vision_linear("multi_modal_projector.linear_2", decoder.hidden_size, decoder.hidden_size),
    )
    return _beside(decoder, (*towers[kind](section), *projector))


def kimi_k25(config: ConfigReader) -> Architecture:
    """Kimi-VL and Kimi-K2.5: a decoder of DeepSeek-V3's layers beside MoonViT."""
    text = config.section("text_config").taking(config, "tie_word_embeddings")
    decoder = deepseek_v3(text)
    tower = config.optional_section("vision_config")
    return _beside(decoder, moonvit_tower(tower, decoder.hidden_size) if tower else ())


def qwen2_5_vl(config: ConfigReader) -> Architecture:
    """The older files keep the decoder's fields at the top and nest the tower's alone."""
    text = config.optional_section("text_config")
    decoder = qwen2(text.taking(config, "tie_word_embeddings") if text else config)
    tower = qwen2_5_tower(config.section("vision_config"), decoder.hidden_size)
    return replace(decoder, tensors=(*decoder.tensors, *tower))


def qwen2_vl(config: ConfigReader) -> Architecture:
    text = config.optional_section("text_config")
    decoder = qwen2(text.taking(config, "tie_word_embeddings") if text else config)
    return replace(decoder, tensors=(*decoder.tensors, *qwen2_tower(config.section("vision_config"))))


def mllama(config: ConfigReader) -> Architecture:
    """Llama 3.2 Vision: every fifth layer attends to the picture alone, and keeps nothing of the text."""
    text = config.optional_section("text_config") or config
    tower = config.optional_section("vision_config")
    frame = replace(
        read_frame(text, prefix="language_model.model"),
        head="language_model.lm_head",
        further_embedding_rows=FURTHER_EMBEDDING_ROWS,
    )
    named = text.counts("cross_attention_layers", maximum=MAXIMUM_LAYERS)
    if named is None:
        named = tuple(range(FIRST_CROSS, frame.layer_count, CROSS_EVERY))
    if any(layer >= frame.layer_count for layer in named):
        raise text.refuse("cross_attention_layers", f"must name layers below {frame.layer_count}")
    cross = tuple(layer for layer in frame.layers if layer in set(named))
    rest = tuple(layer for layer in frame.layers if layer not in set(named))
    attention = read_attention(text, frame.hidden_size)
    normed = replace(attention, query_norm_width=attention.key_width, key_norm_width=attention.key_width)

    def tensors() -> Iterator[WeightTensor]:
        yield from frame.tensors()
        if rest:
            yield from attention.tensors(frame.at("self_attn"), rest)
        if cross:
            yield from normed.tensors(frame.at("cross_attn"), cross)
            for name in ("cross_attn_attn_gate", "cross_attn_mlp_gate"):
                yield vector(frame.at(name), 1, cross)
        yield from FeedForward(frame.hidden_size, text.count("intermediate_size")).tensors(
            frame.at("mlp"), frame.layers
        )
        yield from norms(frame.at(""), PRE_NORMS, frame.hidden_size, frame.layers)
        if tower is not None:
            yield from mllama_tower(tower, frame.hidden_size)

    return frame.architecture(
        tensors(),
        (attention.layer_group(LayerKind.FULL, rest), attention.layer_group(LayerKind.CROSS, cross)),
        head_count=attention.head_count,
        kv_head_count=attention.kv_head_count,
    )
