"""From a stored run, named in words, to evidence: which records it belongs to and what the physics says of it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import log
from typing import NamedTuple

from service.catalogue.benchmark_facts import PublishedRun
from service.catalogue.disaggregated_layout import pools_of
from service.catalogue.engine_releases import engine_age_years
from service.catalogue.snapshot import Snapshot
from service.errors import AmbiguousName, ServiceError
from service.sizing.accelerator import Accelerator
from service.sizing.language_model import LanguageModel
from service.sizing.parallelism import Parallelism
from service.sizing.precision import Precision
from service.sizing.run_identity import Configuration, Point, Run, configuration_of
from service.sizing.run_terms import (
    LLAMA_CPP,
    TENSORRT_LLM,
    Phase,
    RunSetup,
    RunTerms,
    engine_number,
    most_sequences,
    run_terms,
    stacked,
)
from service.sizing.run_time import FITTED_VALUES, run_time

# A flag keeps a run out of calibration, except where it does not touch the time that is compared.
HARMLESS_FLAGS = ("secondary source", "power sensor scope", "power summed or per GPU", "power mean may")
DECODE_ALONE_FLAGS = ("decode phase only", "output window excludes the first prefill")
UNIFORM_LENGTHS_FRACTION = 0.9  # InferenceX draws lengths evenly between 0.8 and 1.0 of the nominal ones
UNIFORM_LENGTHS = "drawn from 0.8 to 1.0 of the nominal lengths"
MOST_TIME_BEFORE_FIRST_TOKEN = 0.25  # of a request's time, where nothing but prompts is waited for
MOST_OVERSUBSCRIBED = 2.0  # requests over those that memory holds: KV caches may be half as wide as is assumed
SHORT_PROMPT_TOKENS, SHORT_ANSWER_TOKENS = 128.0, 256.0  # of single-stream rows that do not say

PHASES_BY_SCENARIO: Mapping[str, Phase] = {
    "closed-loop-concurrency aggregated": Phase.SERVING,
    "single-stream-decode": Phase.SINGLE_STREAM,
    "single-stream": Phase.SINGLE_STREAM,
    "static-batch": Phase.STATIC_BATCH,
    "offline-max-throughput": Phase.OFFLINE,
    "prefill-throughput": Phase.PREFILL,
    "prefill-latency": Phase.PREFILL,
    "closed-loop-concurrency disaggregated": Phase.DISAGGREGATED,
}
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
MODELS_BY_NAME: Mapping[str, str] = {
    "Mistral-7B": "mistral-7b-v0.1",
    "Gemma-3-27B": "gemma-3-27b-it",
    "Gemma-3-4B": "gemma-3-4b-it",
}


@dataclass(frozen=True, slots=True)
class Measurement:
    """A published run whose records are known, for one phase. ``value_s`` is the time that the phase is about."""

    id: str
    published: PublishedRun
    setup: RunSetup
    terms: RunTerms
    configuration: Configuration
    value_s: float


@dataclass(frozen=True, slots=True)
class Measurements:
    """``left_out`` counts the reasons for which other runs are not here."""

    usable: tuple[Measurement, ...]
    left_out: Mapping[str, int]


def measurements(published: Iterable[PublishedRun], snapshot: Snapshot) -> Measurements:
    """The published runs that can be compared with the physics; each serving run gives TPOT and TTFT."""
    usable: list[Measurement] = []
    left_out: Counter[str] = Counter()
    for row, run in enumerate(published):
        for phase in _phases(run):
            found = _measurement(f"{run.series}-{row}-{phase}", run, phase, snapshot)
            if isinstance(found, Measurement):
                usable.append(found)
            else:
                left_out[found] += 1
    return Measurements(tuple(usable), left_out)


def evidence_runs(usable: Iterable[Measurement], numbers: Mapping[str, float] = FITTED_VALUES) -> list[Run]:
    """As evidence, with residuals against the physics of these numbers."""
    listed = list(usable)
    if not listed:
        return []
    predicted = run_time(stacked(each.terms for each in listed), numbers)
    return [
        Run(each.id, each.configuration, point_of(each, tuple(shares)), log(each.value_s / float(time_s)), each.value_s)
        for each, time_s, shares in zip(listed, predicted.time_s, predicted.shares.tolist(), strict=True)
    ]


def point_of(measurement: Measurement, shares: tuple[float, ...]) -> Point:
    setup = measurement.setup
    return Point(float(measurement.terms.batch), setup.isl_tokens, setup.osl_tokens, shares)


def is_decode_alone(run: PublishedRun) -> bool:
    """A batch whose rate leaves prefill out."""
    return (run.flag or "") in DECODE_ALONE_FLAGS


def is_usable(run: PublishedRun) -> bool:
    return run.flag is None or is_decode_alone(run) or run.flag.startswith(HARMLESS_FLAGS)


def waits_for_a_place(run: PublishedRun) -> bool:
    """Requests that spend a quarter of their time before the first token wait for a limit on running sequences.

    Where nobody states that limit, neither the batch that ran nor the wait can be predicted.
    """
    if run.flags.max_num_seqs is not None or run.ttft_s is None or run.tpot_s is None or run.osl_tokens is None:
        return False
    return run.ttft_s > MOST_TIME_BEFORE_FIRST_TOKEN * (run.ttft_s + (run.osl_tokens - 1) * run.tpot_s)


def _phases(run: PublishedRun) -> tuple[Phase, ...]:
    phase = PHASES_BY_SCENARIO.get(run.scenario)
    if phase is None:
        return ()
    if is_decode_alone(run):
        return (Phase.SINGLE_STREAM,) if phase in (Phase.STATIC_BATCH, Phase.SINGLE_STREAM) else ()
    if phase is Phase.SERVING:
        return tuple(each for each, value in ((phase, run.tpot_s), (Phase.TTFT, run.ttft_s)) if value)
    return (phase,)


def _measurement(name: str, run: PublishedRun, phase: Phase, snapshot: Snapshot) -> Measurement | str:
    """Or why not."""
    if unusable := _unusable(run, phase):
        return unusable
    value_s, model = _value_s(run, phase), _model(run, snapshot)
    if run.accelerator is None:
        return f"accelerator {run.accelerator_as_published} is not in the catalogue"
    if model is None:
        return f"model {run.model} is not in the catalogue"
    if value_s is None:
        return "value not stated"
    accelerator = snapshot.accelerators.find(run.accelerator).accelerator
    try:
        return _taken_apart(name, run, Records(phase, accelerator, model), value_s)
    except ServiceError as error:
        return f"{type(error).__name__}: {run.accelerator} {run.model}"


def _unusable(run: PublishedRun, phase: Phase) -> str | None:
    if not is_usable(run) or run.is_percentile_row:
        return "quality flag"
    if phase in (Phase.SERVING, Phase.TTFT) and waits_for_a_place(run):
        return "requests waited for a place, and the limit is not stated"
    return None


class Records(NamedTuple):
    """What a run's words resolve to."""

    phase: Phase
    accelerator: Accelerator
    model: LanguageModel


def _taken_apart(name: str, run: PublishedRun, records: Records, value_s: float) -> Measurement | str:
    phase, accelerator, model = records
    scheme, lengths = _scheme(run, model), _lengths(run, phase)
    if scheme is None:
        return f"weights in {run.weights}"
    if lengths is None:
        return "lengths not stated"
    engine = run.engine or ""
    placed = _decode_worker(run, model, lengths[1]) if phase is Phase.DISAGGREGATED else _replica(run, phase)
    if placed is None:
        return "workers or concurrency of a disaggregated system not stated"
    layout, split, batch = placed
    if phase is Phase.TTFT and batch and run.concurrency and batch < run.concurrency:
        return "requests waited for a place among those that run at once"
    setup = RunSetup(
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
        engine_age_years=engine_age_years(engine, run.engine_version, run.measured_on),
        layer_split_devices=split,
        back_end=_back_end(run, accelerator),
        has_fused_attention=_has_fused_attention(run),
    )
    if phase in (Phase.SERVING, Phase.TTFT) and _is_oversubscribed(setup):
        return "more than twice the requests that the stated devices hold"
    configuration = configuration_of(
        phase=phase,
        accelerator=accelerator,
        model=model,
        engine=_engine_identity(setup),
        engine_version=run.engine_version,
        scheme=scheme,
        parallelism=layout,
        device_count=max(layout.device_count, split),
        is_drafted=setup.is_drafted,
        flags=run.flags._replace(kv_cache=setup.kv_cache if run.kv_cache else None),
        campaign=f"{run.source} / {run.engine_version or '-'}",
    )
    return Measurement(name, run, setup, run_terms(setup), configuration, value_s)


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


def _engine_identity(setup: RunSetup) -> str | None:
    """llama.cpp's back ends err as engines of their own do, and so does each with and without fused attention."""
    if setup.back_end is None:
        return setup.engine or None
    return f"{setup.engine} {setup.back_end}{'' if setup.has_fused_attention else ' unfused'}"


def _is_oversubscribed(setup: RunSetup) -> bool:
    """Whether requests waited, or more devices ran than are stated, no source says; the rule looks at no time."""
    return setup.batch is not None and setup.batch > MOST_OVERSUBSCRIBED * most_sequences(setup)


def _value_s(run: PublishedRun, phase: Phase) -> float | None:
    rate, batch, per_user = run.output_tokens_per_s, run.concurrency, run.output_tokens_per_s_per_user
    match phase:
        case Phase.SERVING | Phase.DISAGGREGATED:
            return run.tpot_s
        case Phase.TTFT:
            return run.ttft_s
        case Phase.SINGLE_STREAM:
            per_user = per_user or (rate / (batch or 1) if rate else None)
            return run.tpot_s or (1 / per_user if per_user else None)
        case Phase.STATIC_BATCH:
            return batch / rate if rate and batch else None
        case Phase.OFFLINE:
            return 1 / rate if rate else None
        case Phase.PREFILL:
            read, rate = run.isl_tokens, run.input_tokens_per_s
            return run.ttft_s or (read / rate if read and rate else None)


def _model(run: PublishedRun, snapshot: Snapshot) -> LanguageModel | None:
    for name in (run.checkpoint, run.model, MODELS_BY_NAME.get(run.model)):
        if name and (found := _named(snapshot, name)):
            return found
    return None


def _named(snapshot: Snapshot, name: str) -> LanguageModel | None:
    """A retired model is still what was measured; a name of several is nobody's."""
    try:
        entry = snapshot.language_models.named(name)
    except AmbiguousName:
        return None
    return entry.model if entry else None


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
    if isl is None or osl is None:
        return None
    is_drawn = run.source.startswith("InferenceX") or run.lengths_note == UNIFORM_LENGTHS
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
