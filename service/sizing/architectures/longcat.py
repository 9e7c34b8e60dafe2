"""LongCat-Flash: two latent attentions and two feed-forwards in a layer, and experts that do nothing."""

from service.sizing.architectures.building_blocks import FeedForward, RoutedExperts, norms, router
from service.sizing.architectures.config_reader import MAXIMUM_EXPERTS, ConfigReader
from service.sizing.architectures.decoder import Architecture, read_expert_counts, read_frame
from service.sizing.architectures.deepseek import read_latent_attention
from service.sizing.language_model import Component

HALVES = (0, 1)


def longcat_flash(config: ConfigReader) -> Architecture:
    """A token meets ``moe_topk`` experts, of which on average so many are real: top * real / (real + zero).

    Each attention keeps a cache, so there are twice as many caches as layers.
    Source: "LongCat-Flash Technical Report", arXiv 2509.01322: 560B parameters, 27B active on average.
    """
    frame = read_frame(config)
    latent = read_latent_attention(config, frame.hidden_size)
    real, top = read_expert_counts(config)
    zero = config.count("zero_expert_num", default=0, minimum=0, maximum=MAXIMUM_EXPERTS)
    if config.text("zero_expert_type", default="identity") != "identity":
        raise config.refuse("zero_expert_type", "must be identity: other experts without parameters are not modelled")
    experts = RoutedExperts(frame.hidden_size, config.count("expert_ffn_hidden_size"), real, top)
    feed_forward = FeedForward(frame.hidden_size, config.count("ffn_hidden_size"))
    at = frame.at("mlp")
    tensors = (
        *frame.tensors(),
        *(each for half in HALVES for each in latent.tensors(frame.at(f"self_attn.{half}"), frame.layers)),
        *(each for half in HALVES for each in feed_forward.tensors(frame.at(f"mlps.{half}"), frame.layers)),
        router(f"{at}.router.classifier", real + zero, frame.hidden_size, frame.layers),
        *(each for each in experts.tensors(at, frame.layers) if each.component is Component.EXPERTS),
        *(
            each
            for half in HALVES
            for name in (f"input_layernorm.{half}", f"post_attention_layernorm.{half}")
            for each in norms(frame.at(""), (name,), frame.hidden_size, frame.layers)
        ),
    )
    twice = tuple(sorted(frame.layers + frame.layers))
    return frame.architecture(
        tensors,
        (latent.layer_group(twice),),
        head_count=latent.head_count,
        kv_head_count=latent.head_count,
        experts=(real, max(1, round(top * real / (real + zero)))),
        router_bias_count=(real + zero) * frame.layer_count,
    )
