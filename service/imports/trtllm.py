"""TensorRT-LLM's ``trtllm-bench`` report.

``issue_rate`` is no arrival rate: a measured gap in time, converted as if it were a rate; it is ignored. The percentile
blocks carry no unit in their keys: milliseconds. The mean stands outside of the block; the block's "average" is of the
older layout. Schema: tensorrt_llm/bench/dataclasses/reporting.py of github.com/NVIDIA/TensorRT-LLM.
"""

from typing import BinaryIO

from service.imports.fields import Fields
from service.imports.measures import MILLISECOND_S, Measures
from service.imports.report import Ask, Kind, Parsed
from service.imports.run import MEAN, OVERALL, ConcurrencyBasis, ImportedRun, Meaning
from service.imports.vllm import records

ASKS = (Ask.MODEL, Ask.SCENARIO, Ask.ACCELERATOR, Ask.GPU_COUNT, Ask.PRECISION, Ask.ISL_TOKENS, Ask.OSL_TOKENS)
REPORT_ASKS = (*ASKS, Ask.STARTED_AT)


def report_measures(fields: Fields) -> Measures:
    measures = Measures()
    performance, streaming = fields.child("performance"), fields.child("streaming_metrics")
    measures.take(performance, "avg_request_latency_ms", Meaning.E2E_LATENCY, MEAN, scale=MILLISECOND_S)
    measures.take(streaming, "avg_ttft_ms", Meaning.TTFT, MEAN, scale=MILLISECOND_S)
    measures.take(streaming, "avg_tpot_ms", Meaning.TPOT, MEAN, scale=MILLISECOND_S)
    blocks = (
        (performance, "request_latency_percentiles_ms", Meaning.E2E_LATENCY),
        (streaming, "ttft_percentiles", Meaning.TTFT),
        (streaming, "tpot_percentiles", Meaning.TPOT),
        (streaming, "itl_percentiles", Meaning.TPOT),
    )
    for parent, key, meaning in blocks:
        measures.take_all(parent.child(key), key, meaning, scale=MILLISECOND_S)
    measures.take(performance, "system_output_throughput_tok_s", Meaning.OUTPUT_RATE)
    measures.take(performance, "system_total_throughput_tok_s", Meaning.TOTAL_RATE)
    measures.take(performance, "request_throughput_req_s", Meaning.REQUEST_RATE)
    measures.take(performance, "output_throughput_per_user_tok_s", Meaning.OUTPUT_RATE_PER_USER, MEAN)
    measures.take(performance, "output_throughput_per_gpu_tok_s", Meaning.OUTPUT_RATE_PER_GPU)
    requests = fields.child("request_info")
    measures.take(requests, "avg_num_concurrent_requests", Meaning.MEASURED_CONCURRENCY, OVERALL)
    return measures


def report_run(fields: Fields) -> ImportedRun:
    engine, world, requests = fields.child("engine"), fields.child("world_info"), fields.child("request_info")
    measures = report_measures(fields)
    in_flight = requests.positive("avg_num_concurrent_requests")
    return ImportedRun(
        tool=Kind.TRTLLM_BENCH.value,
        position=fields.where,
        engine="tensorrt-llm",
        engine_version=engine.text("version"),
        client_backend=engine.text("backend"),
        model_name=engine.text("model"),
        weight_precision=engine.text("quantization") or engine.text("dtype"),
        kv_precision=engine.text("kv_cache_dtype"),
        duration_s=fields.child("performance").seconds("total_latency_ms", scale=MILLISECOND_S),
        concurrency=in_flight,
        concurrency_basis=ConcurrencyBasis.MEASURED_MEAN if in_flight else None,
        isl_mean_tokens=requests.positive("avg_input_length"),
        osl_mean_tokens=requests.positive("avg_output_length"),
        completed_count=requests.count("num_requests"),
        accelerator_name=fields.child("machine").text("name"),
        accelerator_count=world.count("world_size") or None,
        tp=world.count("tp_size") or None,
        pp=world.count("pp_size") or None,
        ep=world.count("ep_size") or None,
        metrics=measures.metrics,
        dropped_keys=tuple(measures.not_finite),
    )


def parse(stream: BinaryIO) -> Parsed:
    warnings = (
        "issue_rate is not an arrival rate and is ignored",
        "the concurrency is the measured mean, not a limit; the report does not say how requests were offered",
        "the report has no time and no count of failures; the machine's name is that of the first GPU",
    )
    return Parsed(tuple(report_run(fields) for fields in records(stream)), REPORT_ASKS, warnings)
