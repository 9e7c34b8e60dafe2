"""The activation peak of an engine's profiling step: what the model and the sampler hold at once.

The larger of two moments, and the buffers that outlive both::

    forward   batched_tokens * element * (layer's MLP widths / tp + 4 * hidden) + the experts' workspaces
    sampler   rows * vocabulary * (logit_bytes + element) + 1.2 * batched_tokens * hidden * element
    lasting   the vision encoder's outputs + 0.04 GiB, and since vLLM 0.17 the experts' workspaces

Set by least squares on the text-only H100 start-ups of llm-d planner pull request 205 (vLLM 0.19) whose numbers in
``memory_cases.yaml`` are odd: logit_bytes 12.51, 1.21 hidden states, 0.038 GiB over 14 start-ups, none off by more than
0.006 GiB. The 9 even ones, held out, give 12.45, 1.14 and 0.050 by themselves. The sampler is the larger moment for
every model but one: the peak of granite-3.1-8b, whose vocabulary is small, is its forward pass.
Experts' workspaces are those of vLLM's modular kernels: per token and chosen expert the wider of input and output of
each of two products. Kernels for MXFP4 experts keep none (gpt-oss-20b: 2.87 GiB, of which the sampler 2.83).
"""

from dataclasses import dataclass
from functools import lru_cache

from service.sizing.engines.engine import GIB, Constant, Engine, Release
from service.sizing.language_model import Component, LanguageModel, WeightTensor
from service.sizing.parallelism import Parallelism
from service.sizing.precision import Precision
from service.sizing.weights import ServedWeights, Stage

LASTING = Constant(0.04 * GIB, 0.02 * GIB, "remainder of the H100 start-ups")
HIDDEN_COPIES_BESIDE_LOGITS = 1.2
VISION = Constant(0.08 * GIB, 0.08 * GIB, "beside the encoder's outputs: 0.01 (granite-vision) to 0.15 (Gemma 3)")
HIDDEN_COPIES_IN_A_LAYER = 4  # of the hidden states at the widest point of a layer: input, residual, norm and output
WORKSPACE_ELEMENT_BYTES = 2
MATRICES_OF_AN_EXPERT = 3


@dataclass(frozen=True, slots=True)
class Widths:
    """Columns that a layer's MLP, and one of its experts, spread a token over."""

    mlp: float
    expert: float


@lru_cache(maxsize=256)
def layer_widths(model: LanguageModel) -> Widths:
    """From the shapes: matrices of an MLP, over the hidden size, are its gate, up and activated widths.

    The widest layer counts. Vision towers have run by then.
    """
    by_layer: dict[int, float] = {}
    expert_elements = 0
    first_expert_layer = _first_expert_layer(model)
    for tensor in model.tensors:
        if tensor.component in (Component.MLP, Component.SHARED_EXPERTS) and len(tensor.shape) == 2:
            for layer in tensor.layers:
                by_layer[layer] = by_layer.get(layer, 0.0) + _elements(tensor) / model.hidden_size
        elif tensor.component is Component.EXPERTS and tensor.quantisable and first_expert_layer in tensor.layers:
            expert_elements += _elements(tensor)
    expert = expert_elements / (MATRICES_OF_AN_EXPERT * model.hidden_size * max(1, model.expert_count))
    return Widths(max(by_layer.values(), default=0.0), expert)


def _elements(tensor: WeightTensor) -> int:
    """Of all copies in one layer."""
    return tensor.element_count // max(1, len(tensor.layers))


def _first_expert_layer(model: LanguageModel) -> int:
    return min((t.layers[0] for t in model.tensors if t.component is Component.EXPERTS and t.layers), default=0)


@dataclass(frozen=True, slots=True)
class Activation:
    size_bytes: float
    plus_minus_bytes: float


def activation(
    model: LanguageModel,
    weights: ServedWeights,
    parallelism: Parallelism,
    stage: Stage,
    *,
    engine: Engine,
    release: Release,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    max_model_len_tokens: int,
) -> Activation:
    """The peak on a rank of a stage, and how far the constants may be off."""
    widths, element = layer_widths(model), element_bytes(weights)
    tokens, hidden = max_num_batched_tokens, model.hidden_size
    workspace = expert_workspace_bytes(model, weights, parallelism, tokens=tokens)
    peak = tokens * element * (widths.mlp / parallelism.tp + HIDDEN_COPIES_IN_A_LAYER * hidden) + workspace
    if release.keeps_scores:
        peak += model.attention_head_count / parallelism.tp * tokens * max_model_len_tokens * 4
    plus_minus = tokens * hidden * element  # a copy more or less of the hidden states
    if stage.is_last:
        rows = min(max_num_seqs, tokens, engine.sampled_sequences_limit or max_num_seqs)
        logits = rows * model.vocabulary_size
        sampler = logits * (release.logit_bytes.value + element)
        sampler += HIDDEN_COPIES_BESIDE_LOGITS * tokens * hidden * element
        if release.experts_keep_workspace:
            sampler += workspace
        if sampler > peak:
            peak, plus_minus = sampler, logits * release.logit_bytes.plus_minus
    lasting, off = LASTING.value, LASTING.plus_minus
    if weights.has_vision:
        lasting += VISION.value + tokens * hidden * element
        off += VISION.plus_minus
    return Activation(peak + lasting, plus_minus + off)


def element_bytes(weights: ServedWeights) -> float:
    """Of hidden states and logits: 4 where weights are served in FP32, else 2."""
    wide = weights.scheme == Precision.FP32.value
    return (Precision.FP32 if wide else Precision.BF16).element_bytes


def expert_workspace_bytes(
    model: LanguageModel, weights: ServedWeights, parallelism: Parallelism, *, tokens: int
) -> float:
    """Two buffers for the tokens of a step, each as wide as the wider side of its product.

    ``tokens * chosen experts * (max(expert, hidden) + max(2 * expert, hidden)) * 2``; experts that lie whole on a
    rank (ep) are as wide as they are. Qwen3-30B-A3B, 8,192 tokens: 8192 * 8 * (2048 + 2048) * 2 = 0.5 GiB, printed
    2.68 - 2.18.
    """
    if not model.is_moe or weights.scheme.startswith("mxfp4"):
        return 0.0
    width = layer_widths(model).expert / (parallelism.tp if parallelism.ep == 1 else 1)
    widest = max(width, model.hidden_size) + max(2 * width, model.hidden_size)
    return tokens * model.experts_per_token * widest * WORKSPACE_ELEMENT_BYTES
