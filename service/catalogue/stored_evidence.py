"""A stored run in the form of a published line, which is what evidence is made of (``benchmark_evidence``).

``series`` is the run's id, so that what an answer leans on leads back to ``GET /benchmark-runs/{id}``.
"""

from collections.abc import Mapping

from service.catalogue.benchmark_facts import PublishedRun
from service.catalogue.benchmark_records import BenchmarkRun, RunScenario, StoredMetric
from service.catalogue.run_setups import UNIFORM_LENGTHS
from service.catalogue.tables import Origin
from service.sizing.run_identity import EngineFlags

SCENARIOS: Mapping[str, str] = {
    RunScenario.CLOSED_LOOP: "closed-loop-concurrency aggregated",
    RunScenario.CLOSED_LOOP_DISAGGREGATED: "closed-loop-concurrency disaggregated",
    RunScenario.STATIC_BATCH: "static-batch",
    RunScenario.OFFLINE_MAX: "offline-max-throughput",
    RunScenario.PREFILL: "prefill-throughput",
    RunScenario.SINGLE_STREAM: "single-stream-decode",
}
WIDTHS: Mapping[str, str] = {
    "nvfp4": "fp4",
    "nvfp4-experts": "fp4",
    "mxfp4": "fp4",
    "fp8-block": "fp8",
    "awq-int4": "int4",
    "gptq-int4": "int4",
    "w4a16": "int4",
}
INFERENCEX = "inferencex-aggregate"  # the kind of an imported file
PREFILL_RATE, DECODE_RATE, PREFILL_TIME = "prefill_tokens_per_s", "decode_tokens_per_s", "prefill_time_s"


def published_of(run: BenchmarkRun) -> PublishedRun:
    """A shipped run gives back the line it was made of; a user's, the line that would have published it."""
    details = run.read_details
    extras = details.extras
    is_shipped = run.origin is Origin.SHIPPED
    name = run.model_name or run.model or ""
    statistics = {each.meaning: each.statistic for each in reversed(details.metrics)}
    return PublishedRun(
        model=extras.get("model_as_published", name),
        checkpoint=run.model_name if is_shipped else run.model or run.model_name,
        accelerator=run.accelerator,
        accelerator_as_published=run.accelerator_name or run.accelerator or "",
        gpu_count=run.gpu_count,
        tp=run.layout or _text(run.tp),
        pp=_text(run.pp),
        ep=_text(run.ep),
        dp=_text(run.dp),
        weights=run.weights if is_shipped else _width(run.weights),
        kv_cache=run.kv_cache,
        engine=extras.get("engine_as_published", run.engine),
        engine_version=run.engine_version,
        isl_tokens=run.isl_mean_tokens,
        osl_tokens=run.osl_mean_tokens,
        concurrency=run.concurrency,
        request_rate_per_s=run.request_rate_per_s,
        scenario=extras.get("scenario_as_published") or _scenario(run, details.metrics),
        output_tokens_per_s=run.output_tokens_per_s,
        input_tokens_per_s=run.input_tokens_per_s,
        output_tokens_per_s_per_gpu=run.output_tokens_per_s_per_gpu,
        output_tokens_per_s_per_user=run.output_tokens_per_s_per_user or _rate(details.metrics, DECODE_RATE),
        ttft_s=run.ttft_central_s or _rate(details.metrics, PREFILL_TIME),
        ttft_statistic=statistics.get("ttft_s"),
        tpot_s=run.tpot_central_s,
        tpot_statistic=statistics.get("tpot_s"),
        e2e_s=_rate(details.metrics, "e2e_latency_s"),
        power_w=run.power_w,
        power_scope=run.power_scope,
        meaning=extras.get("meaning") or _meaning(extras),
        basis=extras.get("basis"),
        flag="; ".join(details.quality_remarks) or None if is_shipped or not run.calibrates else None,
        series=run.id,
        source=run.source_title or run.measured_by or "a user's run",
        source_ref=run.source_ref,
        measured_on=run.measured_on,
        lengths_note=UNIFORM_LENGTHS if extras.get("kind") == INFERENCEX else extras.get("lengths_note"),
        inferred=details.inferred,
        flags=EngineFlags() if is_shipped else _flags(run),
        is_of_user=not is_shipped,
    )


def _flags(run: BenchmarkRun) -> EngineFlags:
    extras = run.read_details.extras
    sequences, tokens = (_count(extras.get(name)) for name in ("max_num_seqs", "max_num_batched_tokens"))
    return EngineFlags(
        speculation=run.speculation.lower() if run.speculation else None,
        max_num_seqs=sequences,
        max_num_batched_tokens=tokens,
        prefix_caching=run.prefix_caching,
    )


def _count(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def _meaning(extras: Mapping[str, str]) -> str | None:
    """Back end and attention of a tool's run, in the words of published lines."""
    said = (("back end", extras.get("client_backend")), ("flash attention", extras.get("flash_attention")))
    return ", ".join(f"{what} {state}" for what, state in said if state) or None


def _scenario(run: BenchmarkRun, metrics: tuple[StoredMetric, ...]) -> str:
    """One sequence that only reads its prompt is a prefill, whatever the tool calls its test."""
    has_decode = run.tpot_central_s or run.output_tokens_per_s or _rate(metrics, DECODE_RATE)
    if run.scenario == RunScenario.SINGLE_STREAM and not has_decode and _rate(metrics, PREFILL_RATE):
        return SCENARIOS[RunScenario.PREFILL]
    return SCENARIOS.get(run.scenario or "", run.scenario or "not stated")


def _width(weights: str | None) -> str | None:
    if weights is None:
        return None
    return WIDTHS.get(weights, weights.removeprefix("gguf-"))


def _text(width: int | None) -> str | None:
    return None if width is None else str(width)


def _rate(metrics: tuple[StoredMetric, ...], meaning: str) -> float | None:
    return next((each.value for each in metrics if each.meaning == meaning and each.statistic != "std"), None)
