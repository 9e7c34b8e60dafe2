"""InferenceX (formerly InferenceMAX) aggregates: a vLLM or SGLang client run, divided by the GPUs.

Latencies are in seconds though the keys lost ``_ms``. ``tput_per_gpu`` counts prompt and output. ``…_intvty`` is
1 / TPOT of the same statistic, so ``p99_intvty`` is the slow tail: by meaning the first percentile of the speed.
Disaggregated runs divide the output by the decode GPUs and the input by the prefill GPUs.
Schema: utils/process_result.py of github.com/SemiAnalysisAI/InferenceX.
"""

import re
from typing import BinaryIO

from service.imports.fields import Fields
from service.imports.measures import Measures, statistic_named
from service.imports.report import Ask, Parsed
from service.imports.run import (
    OVERALL,
    P50,
    ConcurrencyBasis,
    ImportedRun,
    Meaning,
    Scenario,
    StatisticKind,
    percentile,
)
from service.imports.vllm import records

ASKS = (Ask.MODEL, Ask.ACCELERATOR, Ask.GPU_COUNT, Ask.PRECISION, Ask.ISL_TOKENS, Ask.OSL_TOKENS, Ask.STARTED_AT)
LATENCIES = {
    "ttft": Meaning.TTFT,
    "tpot": Meaning.TPOT,
    "itl": Meaning.INTER_CHUNK_GAP,
    "e2el": Meaning.E2E_LATENCY,
}
KEY = re.compile(r"([a-z]+|p\d{1,2}(?:\.\d+)?)_(ttft|tpot|itl|e2el|intvty)", re.ASCII)
WARNINGS = (
    "latencies are in seconds; tput_per_gpu counts prompt and output",
    "percentiles of intvty run the other way: p99_intvty is the slow tail, kept as the first percentile of the speed",
)


def gpu_count(fields: Fields) -> int | None:
    """GPUs by which the file divided its rates."""
    disaggregated = (fields.count("num_prefill_gpu") or 0) + (fields.count("num_decode_gpu") or 0)
    if disaggregated:
        return disaggregated
    tp = fields.count("tp")
    return tp * (fields.count("pp") or 1) * (fields.count("pcp_size") or 1) if tp else None


def engine_name(framework: str | None) -> str | None:
    """The engine inside, whatever routes requests to its workers.

    >>> [engine_name(each) for each in ("vllm", "dynamo-trt", "mori-sglang")]
    ['vllm', 'tensorrt-llm', 'sglang']
    """
    if framework is None:
        return None
    engine = framework.removeprefix("dynamo-").removeprefix("mori-")
    return "tensorrt-llm" if engine in ("trt", "trtllm") else engine


def layout(fields: Fields) -> str | None:
    """Workers of both pools, as ``P4xTP1.DP4/D1xTP8.DP1``; ``None`` where a pool's workers do not make up its GPUs.

    ``…_tp`` is the width of a worker; with data-parallel attention its ranks are dp ranks.
    """
    pools = []
    for letter, pool in (("P", "prefill"), ("D", "decode")):
        workers, width = fields.count(f"{pool}_num_workers"), fields.count(f"{pool}_tp")
        if not workers or not width or workers * width != fields.count(f"num_{pool}_gpu"):
            return None
        is_data_parallel = fields.truth(f"{pool}_dp_attention")
        pools.append(f"{letter}{workers}x" + (f"TP1.DP{width}" if is_data_parallel else f"TP{width}.DP1"))
    return "/".join(pools)


def aggregate_measures(fields: Fields) -> Measures:
    measures = Measures()
    for key in fields:
        match = KEY.fullmatch(key)
        statistic = statistic_named(match.group(1)) if match else None
        if match is None or statistic is None:
            continue
        if match.group(2) != "intvty":
            measures.take(fields, key, LATENCIES[match.group(2)], statistic)
        elif statistic.kind is StatisticKind.PERCENTILE and statistic.percentile is not None:
            inverted = P50 if statistic == P50 else percentile(100 - statistic.percentile)
            measures.take(fields, key, Meaning.OUTPUT_RATE_PER_USER, inverted)
    take_rates(measures, fields)
    return measures


def take_rates(measures: Measures, fields: Fields) -> None:
    """The shares as they stand, and the totals they were divided from."""
    gpus, decode, prefill = gpu_count(fields), fields.count("num_decode_gpu"), fields.count("num_prefill_gpu")
    apart = bool(prefill)
    measures.take(fields, "tput_per_gpu", Meaning.TOTAL_RATE_PER_GPU)
    per_output = Meaning.OUTPUT_RATE_PER_DECODE_GPU if apart and decode else Meaning.OUTPUT_RATE_PER_GPU
    measures.take(fields, "output_tput_per_gpu", per_output)
    per_input = Meaning.INPUT_RATE_PER_PREFILL_GPU if apart else Meaning.INPUT_RATE_PER_GPU
    measures.take(fields, "input_tput_per_gpu", per_input)
    output_gpus = decode if apart and decode else gpus
    totals = (
        ("tput_per_gpu", Meaning.TOTAL_RATE, gpus),
        ("output_tput_per_gpu", Meaning.OUTPUT_RATE, output_gpus),
        ("input_tput_per_gpu", Meaning.INPUT_RATE, prefill if apart else gpus),
    )
    for key, meaning, divisor in totals:
        share = fields.number(key)
        if share and divisor:
            measures.add(meaning, OVERALL, share * divisor, f"{key} * {divisor} GPUs")


def aggregate_run(fields: Fields) -> ImportedRun:
    measures, limit = aggregate_measures(fields), fields.count("conc") or None
    scenario = Scenario.SINGLE_STREAM if limit == 1 else Scenario.CLOSED_LOOP
    speculative = fields.text("spec_decoding") or fields.text("mtp")
    attention, framework = fields.truth("dp_attention"), fields.text("framework")
    return ImportedRun(
        tool="inferencemax",
        position=fields.where,
        engine=engine_name(framework),
        model_name=fields.text("model"),
        weight_precision=fields.text("precision"),
        scenario=scenario if limit else None,
        concurrency=limit,
        concurrency_basis=ConcurrencyBasis.LIMIT if limit else None,
        isl_mean_tokens=fields.positive("isl"),
        osl_mean_tokens=fields.positive("osl"),
        accelerator_name=fields.text("hw"),
        accelerator_count=gpu_count(fields),
        prefill_gpu_count=fields.count("num_prefill_gpu") or None,
        decode_gpu_count=fields.count("num_decode_gpu") or None,
        tp=fields.count("tp") or None,
        pp=fields.count("pp") or None,
        ep=fields.count("ep") or None,
        layout=layout(fields),
        speculative_decoding=speculative,
        metrics=measures.metrics,
        dropped_keys=tuple(measures.not_finite),
        extras={
            key: text
            for key, text in (
                ("image", fields.text("image")),
                ("dp_attention", str(attention).lower()),
                ("framework", framework if framework != engine_name(framework) else None),
            )
            if text and text != "none"
        },
    )


def parse(stream: BinaryIO) -> Parsed:
    return Parsed(tuple(aggregate_run(fields) for fields in records(stream)), ASKS, WARNINGS)
