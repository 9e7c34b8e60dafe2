"""From a stored run, named in words, to evidence: which records it belongs to and what the physics says of it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import log

from service.catalogue.benchmark_facts import PublishedRun
from service.catalogue.run_setups import is_decode_alone, run_setup
from service.catalogue.snapshot import Snapshot
from service.errors import AmbiguousName, ServiceError
from service.sizing.accelerator import Accelerator
from service.sizing.language_model import LanguageModel
from service.sizing.run_identity import Configuration, Point, Run, configuration_of
from service.sizing.run_terms import (
    Phase,
    RunSetup,
    RunTerms,
    most_sequences,
    run_terms,
    stacked,
)
from service.sizing.run_time import FITTED_VALUES, run_time

# A remark keeps a run out of calibration, except where it does not touch the time that is compared.
HARMLESS_FLAGS = ("secondary source", "power sensor scope", "power summed or per GPU", "power mean may")
MOST_TIME_BEFORE_FIRST_TOKEN = 0.25  # of a request's time, where nothing but prompts is waited for
SHORTEST_S, LONGEST_S = 1e-9, 1e9
MOST_OVERSUBSCRIBED = 2.0  # requests over those that memory holds: KV caches may be half as wide as is assumed

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
    """As evidence, with residuals against the physics of these numbers; without those that it has no time for."""
    listed = list(usable)
    if not listed:
        return []
    predicted = run_time(stacked(each.terms for each in listed), numbers)
    return [
        Run(each.id, each.configuration, point_of(each, tuple(shares)), log(each.value_s / time_s), each.value_s)
        for each, time_s, shares in zip(listed, predicted.time_s.tolist(), predicted.shares.tolist(), strict=True)
        if SHORTEST_S < time_s < LONGEST_S
    ]


def point_of(measurement: Measurement, shares: tuple[float, ...]) -> Point:
    setup = measurement.setup
    return Point(float(measurement.terms.batch), setup.isl_tokens, setup.osl_tokens, shares)


def is_usable(run: PublishedRun) -> bool:
    if run.flag is None or is_decode_alone(run):
        return True
    return all(remark.strip().startswith(HARMLESS_FLAGS) for remark in run.flag.split(";"))


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
    value_s = _value_s(run, phase)
    if value_s is None:
        return f"its {phase} time is not stated"
    if unusable := _unusable(run, phase, value_s):
        return unusable
    records = _records(run, snapshot)
    if isinstance(records, str):
        return records
    accelerator, model = records
    try:
        setup = run_setup(run, phase, accelerator=accelerator, model=model)
        return setup if isinstance(setup, str) else _compared(name, run, setup, value_s)
    except ServiceError as error:
        return f"{type(error).__name__}: {run.accelerator} {run.model}"
    except (ArithmeticError, ValueError, MemoryError):  # figures of no real machine: one run must not stop all others
        return f"what it states of {run.accelerator} and {run.model} leads to no time"


def _records(run: PublishedRun, snapshot: Snapshot) -> tuple[Accelerator, LanguageModel] | str:
    """The accelerator and the model, retired ones included; or which of them is not known."""
    accelerator, model = snapshot.accelerators.named(run.accelerator or ""), _model(run, snapshot)
    if accelerator is None:
        return f"accelerator {run.accelerator_as_published} is not in the catalogue"
    if model is None:
        return f"model {run.model} is not in the catalogue"
    return accelerator.accelerator, model


def _unusable(run: PublishedRun, phase: Phase, value_s: float) -> str | None:
    if not SHORTEST_S < value_s < LONGEST_S:
        return f"a {phase} time of {value_s:.3g} s is no measurement"
    if not is_usable(run) or run.is_percentile_row:
        return "quality remarks"
    if phase in (Phase.SERVING, Phase.TTFT) and waits_for_a_place(run):
        return "requests waited for a place among those that run at once, and that limit (`max_num_seqs`) is not stated"
    return None


def _compared(name: str, run: PublishedRun, setup: RunSetup, value_s: float) -> Measurement | str:
    if setup.phase in (Phase.SERVING, Phase.TTFT) and _is_oversubscribed(setup):
        return "more than twice the requests that the stated devices hold"
    configuration = configuration_of(
        phase=setup.phase,
        accelerator=setup.accelerator,
        model=setup.model,
        engine=_engine_identity(setup),
        engine_version=run.engine_version,
        scheme=setup.scheme,
        parallelism=setup.parallelism,
        device_count=max(setup.parallelism.device_count, setup.layer_split_devices),
        is_drafted=setup.is_drafted,
        flags=run.flags._replace(
            kv_cache=setup.kv_cache if run.kv_cache else None,
            speculation=run.flags.speculation if run.flags.is_drafted else None,
        ),
        campaign=f"{run.source} / {run.engine_version or '-'}",
    )
    return Measurement(name, run, setup, run_terms(setup), configuration, value_s)


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
