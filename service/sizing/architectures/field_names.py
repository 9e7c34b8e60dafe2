"""The names that publishers give a field; the first is the usual one, which error messages say."""

from typing import Final

LAYER_COUNT_NAMES: Final = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
WIDTH_NAMES: Final = ("hidden_size", "n_embd", "n_embed", "d_model")
HEAD_COUNT_NAMES: Final = ("num_attention_heads", "n_head", "n_heads", "num_heads")
KV_HEAD_COUNT_NAMES: Final = (
    "num_key_value_heads",
    "num_kv_heads",
    "n_head_kv",
    "multi_query_group_num",
    "num_attention_groups",
)
HEAD_WIDTH_NAMES: Final = ("head_dim", "attention_head_dim", "kv_channels")
CONTEXT_NAMES: Final = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "max_sequence_length",
    "model_max_length",
    "seq_length",
)
EXPERT_COUNT_NAMES: Final = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
TOP_EXPERT_NAMES: Final = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "moe_topk",
    "moe_top_k",
    "moe_k",
    "top_k_experts",
    "experts_per_token",
)
