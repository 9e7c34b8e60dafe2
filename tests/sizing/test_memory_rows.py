"""The working of a model's memory: every formula multiplies out, and the rows add up to the figures beside them."""

import re

import pytest

from service.sizing.cache import kv_cache_bytes, state_bytes_per_sequence
from service.sizing.language_model import LanguageModel, parameter_counts
from service.sizing.memory_rows import MemoryRow, memory_rows
from service.sizing.precision import Precision
from service.sizing.weight_schemes import stored_weights
from tests.sizing.architectures import family_facts, published_facts
from tests.sizing.architectures.published_facts import model_of

MODELS = {
    "Llama-3.1-8B": published_facts.LLAMA_3_1_8B,
    "gpt-oss-120b": published_facts.GPT_OSS_120B,
    "DeepSeek-V3": published_facts.DEEPSEEK_V3,
    "Nemotron-3-Super": published_facts.NEMOTRON_3_SUPER,
    "Gemma-4-E4B": family_facts.GEMMA_4_E4B,
    "DeepSeek-V4-Flash": family_facts.DEEPSEEK_V4_FLASH,
    "Nemotron-Super-49B": family_facts.NEMOTRON_SUPER_49B,
}
WORD = re.compile(
    r" (layers?|experts?|copies|tokens|entries|KV heads?|index key|full|sliding|mla|compressed|convolution|recurrent)\b"
    r"|(?<=\d) (mamba2|gdn|kda)\b"
)


def multiplied_out(formula: str) -> int:
    """The formula as arithmetic: without its words, x as times, floor as a whole division."""
    arithmetic = WORD.sub("", formula).replace(" x ", " * ")
    arithmetic = re.sub(r"floor\((\d+) / (\d+)\)", r"(\1 // \2)", arithmetic)
    assert re.fullmatch(r"(min|[\d\s+*/(),])+", arithmetic), arithmetic
    return int(eval(arithmetic))  # noqa: S307 - digits and signs alone, as asserted


def rows_of(model: LanguageModel) -> tuple[MemoryRow, ...]:
    return memory_rows(model, context_tokens=5000, kv_cache=Precision.BF16)


@pytest.mark.parametrize("name", MODELS)
def test_every_formula_multiplies_out_to_its_count(name: str) -> None:
    for row in rows_of(model_of(MODELS[name])):
        assert multiplied_out(row.formula) == row.element_count, row


@pytest.mark.parametrize("name", MODELS)
def test_the_rows_add_up_to_the_figures(name: str) -> None:
    model = model_of(MODELS[name])
    rows = rows_of(model)
    weights = [row for row in rows if row.component not in {"kv_cache", "state"}]
    assert sum(row.element_count for row in weights) == sum(parameter_counts(model.tensors).values())
    assert sum(row.size_bytes for row in weights) == stored_weights(model).total_bytes
    cache = [row for row in rows if row.component == "kv_cache"]
    assert sum(row.size_bytes for row in cache) == kv_cache_bytes(model, context_tokens=5000, kv_cache=Precision.BF16)
    states = [row for row in rows if row.component == "state"]
    assert sum(row.size_bytes for row in states) == state_bytes_per_sequence(model)


def test_a_reader_can_check_llama_by_hand() -> None:
    by_component = {row.component: row for row in rows_of(model_of(published_facts.LLAMA_3_1_8B))}
    assert by_component["embedding"].formula == "128256 x 4096"
    assert by_component["attention"].formula == "32 layers x (2 x 4096 x 4096 + 2 x 1024 x 4096)"
    assert by_component["mlp"].formula == "32 layers x (2 x 14336 x 4096 + 4096 x 14336)"
    assert by_component["mlp"].formats == ("bf16",)
    assert by_component["mlp"].size_bytes == 32 * 3 * 14336 * 4096 * 2
    assert by_component["kv_cache"].formula == "32 full x 5000 tokens x 8 KV heads x (128 + 128)"


def test_a_window_and_a_tensor_parallel_rank_are_in_the_formula() -> None:
    rows = memory_rows(model_of(published_facts.GPT_OSS_120B), context_tokens=5000, kv_cache=Precision.FP8, tp=4)
    cache = [row for row in rows if row.component == "kv_cache"]
    assert cache[0].formula == "18 sliding x min(5000, 128) tokens x 2 KV heads x (64 + 64)"
    assert cache[0].size_bytes == 18 * 128 * 2 * 128
