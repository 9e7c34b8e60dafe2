"""What the words of a published run say: scheme, lengths, layout, batch and engine, as the physics needs them."""

from collections.abc import Mapping
from typing import NamedTuple

from service.catalogue.benchmark_facts import PublishedRun
from service.catalogue.disaggregated_layout import pools_of
from service.sizing.accelerator import Accelerator
from service.sizing.engine_releases import age_years
from service.sizing.language_model import LanguageModel
from service.sizing.parallelism import Parallelism
from service.sizing.precision import Precision
from service.sizing.run_terms import LLAMA_CPP, TENSORRT_LLM, Phase, RunSetup, engine_number

MOST_DEVICES = 4096
DECODE_ALONE_FLAGS = ("decode phase only", "output window excludes the first prefill")
UNIFORM_LENGTHS_FRACTION = 0.9  # InferenceX draws lengths evenly between 0.8 and 1.0 of the nominal ones
UNIFORM_LENGTHS = "drawn from 0.8 to 1.0 of the nominal lengths"
SHORT_PROMPT_TOKENS, SHORT_ANSWER_TOKENS = 128.0, 256.0  # of single-stream rows that do not say

SCHEMES_BY_WEIGHTS: Mapping[str, str] = {
    "bf16": "bf16",
    "fp16": "fp16",
    "int8": "int8",
    "w8a16": "w8a16",
    "q4_k_m": "gguf-q4_k_m",
    "q4_k_xl": "gguf-q4_k_m",
    "q8_0": "gguf-q8_0",
    "q8_k_xl": "gguf-q8_0",
}
BACK_ENDS_BY_WORD = (
    ("vulkan", "vulkan"),
    ("hip", "hip"),
    ("rocm", "hip"),
    ("rocwmma", "hip"),
    ("cuda", "cuda"),
    ("metal", "metal"),
)
BACK_ENDS_BY_VENDOR: Mapping[str, str] = {"NVIDIA": "cuda", "Apple": "metal"}


def is_decode_alone(run: PublishedRun) -> bool:
    """A batch whose rate leaves prefill out."""
    return (run.flag or "") in DECODE_ALONE_FLAGS


def run_setup(run: PublishedRun, phase: Phase, *, accelerator: Accelerator, model: LanguageModel) -> RunSetup | str:
    """Or what is missing."""
    scheme, lengths = _scheme(run, model), _lengths(run, phase)
    if scheme is None:
        return f"weights in {run.weights}" if run.weights else "weights not stated"
    if lengths is None:
        return "lengths not stated, or of less than a token"
    if phase is not Phase.DISAGGREGATED and run.tp and not run.tp.isdecimal():
        return f"the layout {run.tp} is of a disaggregated system"
    engine = run.engine or ""
    placed = _decode_worker(run, model, lengths[1]) if phase is Phase.DISAGGREGATED else _replica(run, phase)
    if placed is None:
        return "workers or concurrency of a disaggregated system not stated"
    layout, split, batch = placed
    if unfit := _unfit(run, phase, placed, accelerator, model):
        return unfit
    return RunSetup(
        phase=phase,
        model=model,
        accelerator=accelerator,
        scheme=scheme,
        kv_cache=_kv_cache(run, engine),
        engine=engine,
        engine_version=run.engine_version,
        parallelism=layout,
        isl_tokens=lengths[0],
        osl_tokens=lengths[1],
        batch=batch,
        is_drafted=_is_drafted(run),
        engine_age_years=age_years(engine, _release_named(run, phase), run.measured_on),
        layer_split_devices=split,
        back_end=_back_end(run, accelerator),
        has_fused_attention=_has_fused_attention(run),
    )


def _unfit(
    run: PublishedRun, phase: Phase, placed: "Placed", accelerator: Accelerator, model: LanguageModel
) -> str | None:
    """What is said of devices and load, and does not go together."""
    if placed.layout.pp > model.layer_count or placed.layout.device_count > MOST_DEVICES:
        return f"{placed.layout.pp} pipeline stages, {placed.layout.device_count} devices of one replica"
    if phase is not Phase.DISAGGREGATED and placed.batch is not None and placed.batch <= 0.5:
        return f"a batch of {placed.batch:.3g}"
    if phase is not Phase.DISAGGREGATED:
        if run.gpu_count is None:
            return "GPU count not stated"
        if placed.layout.device_count > run.gpu_count * accelerator.devices_per_gpu:
            return f"a layout of {placed.layout.device_count} devices on {run.gpu_count} GPUs"
    if phase is Phase.TTFT and placed.batch and run.concurrency and placed.batch < run.concurrency:
        return "requests waited for a place among those that run at once"
    return None


def _release_named(run: PublishedRun, phase: Phase) -> str | None:
    """Published disaggregated runs name the version of the layer above the engine."""
    return None if phase is Phase.DISAGGREGATED else run.engine_version


def _has_fused_attention(run: PublishedRun) -> bool:
    """As the run states it, else as llama.cpp had it: off until the spring of 2024."""
    said = run.meaning or ""
    if "flash attention o" in said:
        return "flash attention on" in said
    return not (run.engine == "llama.cpp" and (run.measured_on or "") <= "2024-06")


def _back_end(run: PublishedRun, accelerator: Accelerator) -> str | None:
    """Of llama.cpp, by the words of the run, else the one that the vendor's parts are used with."""
    if engine_number(run.engine or "") != LLAMA_CPP:
        return None
    said = f"{run.engine_version} {run.meaning}".lower()
    return next((name for word, name in BACK_ENDS_BY_WORD if word in said), BACK_ENDS_BY_VENDOR.get(accelerator.vendor))


def _scheme(run: PublishedRun, model: LanguageModel) -> str | None:
    """The checkpoint's own scheme where it has the published width, else the plainest of that width.

    MoE checkpoints in 4 bits keep attention and dense layers in 16.
    """
    own, published = model.checkpoint_scheme, run.weights or ""
    if published == "fp8":
        return own if own.startswith("fp8") else "fp8"
    if published == "fp4":
        if own.startswith(("nvfp4", "mxfp4")):
            return own
        return "nvfp4-experts" if model.is_moe else "nvfp4"
    if published == "int4":
        return own if "int4" in own or own.startswith("w4a16") else "awq-int4"
    return SCHEMES_BY_WEIGHTS.get(published)


def _kv_cache(run: PublishedRun, engine: str) -> Precision:
    if run.kv_cache:
        return Precision.FP8 if "fp8" in run.kv_cache else Precision.BF16
    is_narrow = run.weights in ("fp8", "fp4") and engine_number(engine) == TENSORRT_LLM
    return Precision.FP8 if is_narrow else Precision.BF16


def _lengths(run: PublishedRun, phase: Phase) -> tuple[float, float] | None:
    isl, osl = run.isl_tokens, run.osl_tokens
    if phase is Phase.SINGLE_STREAM:
        isl, osl = SHORT_PROMPT_TOKENS if isl is None else isl, SHORT_ANSWER_TOKENS if osl is None else osl
    if phase is Phase.PREFILL:
        osl = 1.0
    if isl is None or osl is None or osl < 1 or 0 < isl < 1:
        return None
    of_shipped_table = run.source.startswith("InferenceX") and not run.is_of_user  # a user's words name no lengths
    is_drawn = of_shipped_table or run.lengths_note == UNIFORM_LENGTHS
    share = UNIFORM_LENGTHS_FRACTION if is_drawn else 1.0
    return isl * share, osl * share


class Placed(NamedTuple):
    """What a run's words say of one replica. llama.cpp splits the layers over devices that work in turn."""

    layout: Parallelism
    layer_split_devices: int
    batch: float | None


def _replica(run: PublishedRun, phase: Phase) -> Placed:
    """As many sequences as the load asks for, or as the engine was told to run at once."""
    layout, split = _layout(run)
    batch, limit = _batch(run, phase), run.flags.max_num_seqs
    return Placed(layout, split, min(batch, limit * layout.dp) if batch and limit else batch)


def _decode_worker(run: PublishedRun, model: LanguageModel, osl_tokens: float) -> Placed | None:
    """One of the workers that decode. By Little's law they hold the requests in flight for R / (R + TTFT) of the time.

    That batch is what the step was measured at, whether or not a limit kept requests waiting. A run without a TTFT is
    taken to have waited for nothing.
    """
    pools = pools_of(run.tp, is_moe=model.is_moe)
    if pools is None or run.concurrency is None or run.tpot_s is None:
        return None
    decode_s = (osl_tokens - 1) * run.tpot_s
    share = decode_s / (decode_s + (run.ttft_s or 0.0)) if decode_s else 0.0
    return Placed(pools.decode.parallelism, 1, share * run.concurrency / pools.decode.worker_count)


def _layout(run: PublishedRun) -> tuple[Parallelism, int]:
    """And over how many devices llama.cpp splits the layers."""
    count = run.gpu_count or 1
    if engine_number(run.engine or "") == LLAMA_CPP:
        return Parallelism(), count
    pp, dp = int(run.pp or 1), int(run.dp or 0)
    tp = int(run.tp) if run.tp else max(1, count // (pp * max(dp, 1)))
    return Parallelism(tp, pp, int(run.ep or 1), dp or max(1, count // (tp * pp))), 1


def _batch(run: PublishedRun, phase: Phase) -> float | None:
    if phase is Phase.OFFLINE:
        return None
    if phase is Phase.PREFILL or (phase is Phase.SINGLE_STREAM and not is_decode_alone(run)):
        return 1.0
    return run.concurrency


def _is_drafted(run: PublishedRun) -> bool:
    """As said; published rows do not mark it, and InferenceX's change log names it with these images."""
    if run.flags.speculation is not None:
        return run.flags.is_drafted
    if run.checkpoint != "deepseek-ai/DeepSeek-R1" or run.engine != "TensorRT-LLM":
        return False
    return run.engine_version == "1.2.0rc6.post3" or (
        run.engine_version == "1.1.0rc2.post2" and (run.measured_on or "").startswith("2026")
    )
