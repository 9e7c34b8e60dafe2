"""Tells the kind of a file by what stands at its beginning; its name is not evidence."""

import re

from service.imports.report import Kind
from service.imports.text_stream import decoded_head

HEAD_BYTES = 1 << 16
KEY = re.compile(r'"([^"\\\n]{1,100})"\s*:')

JSON_SIGNS: tuple[tuple[Kind, frozenset[str]], ...] = (
    (Kind.AIPERF_JSON, frozenset({"aiperf_version"})),
    (Kind.AIPERF_JSON, frozenset({"schema_version", "request_latency"})),
    (Kind.MLPERF_RESULTS, frozenset({"Performance_Result", "Performance_Units"})),
    (Kind.MLPERF_SYSTEM, frozenset({"accelerator_model_name", "accelerators_per_node"})),
    (Kind.INFERENCEX, frozenset({"hw", "conc", "framework"})),
    (Kind.INFERENCEX, frozenset({"tput_per_gpu", "conc"})),
    (Kind.LLAMA_BENCH_JSON, frozenset({"n_prompt", "n_gen", "avg_ts"})),
    (Kind.LLAMA_BATCHED_JSON, frozenset({"speed_pp", "speed_tg", "pl"})),
    (Kind.SGLANG_ONE_BATCH, frozenset({"prefill_latency", "batch_size"})),
    (Kind.VLLM_SERVE, frozenset({"num_prompts", "request_rate", "tokenizer_id"})),  # may name a dataset, too
    (Kind.SGLANG_SERVING, frozenset({"dataset_name", "random_input_len"})),
    (Kind.SGLANG_SERVING, frozenset({"dataset_name", "max_concurrency", "backend", "request_rate"})),
    (Kind.SGLANG_SERVING, frozenset({"input_throughput", "output_throughput"})),
    (Kind.VLLM_SERVE, frozenset({"request_throughput", "output_throughput", "total_input_tokens"})),
    (Kind.VLLM_LATENCY, frozenset({"avg_latency", "percentiles"})),
    (Kind.VLLM_LATENCY, frozenset({"avg_latency", "latencies"})),
    (Kind.VLLM_THROUGHPUT, frozenset({"elapsed_time", "num_requests", "tokens_per_second"})),
    (Kind.LLMPERF, frozenset({"num_concurrent_requests", "mean_input_tokens"})),
    (Kind.TRTLLM_BENCH, frozenset({"engine", "world_info"})),
    (Kind.TRTLLM_BENCH, frozenset({"request_info", "performance"})),
    (Kind.GUIDELLM_JSON, frozenset({"benchmarks", "guidellm_version"})),
    (Kind.GUIDELLM_JSON, frozenset({"benchmarks", "type_"})),
    (Kind.POWER_AMD_SMI, frozenset({"socket_power"})),
    (Kind.GENAI_PERF_JSON, frozenset({"request_throughput", "request_latency", "unit"})),
)
TEXT_SIGNS: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    (Kind.MLPERF_SUMMARY_LOG, re.compile(r"MLPerf Results Summary")),
    (Kind.MLPERF_DETAIL_LOG, re.compile(r"^:::MLLOG ", re.MULTILINE)),
    (Kind.POWER_DCGM, re.compile(r"^DCGM_FI_DEV_POWER_USAGE\{", re.MULTILINE)),
    (Kind.POWER_NVIDIA_SMI, re.compile(r"^[^\n]*\bpower\.draw\b")),
    (Kind.GENAI_PERF_CSV, re.compile(r'^"?Metric"?,"?avg"?,"?min"?,"?max"?,"?p99\b')),
    (Kind.AIPERF_CSV, re.compile(r'^"?Metric"?,"?avg"?,')),
    (Kind.LLAMA_BENCH_CSV, re.compile(r'^"?build_commit"?,[^\n]*\bavg_ts\b')),
    (Kind.LLAMA_BENCH_SQL, re.compile(r"^(?:CREATE TABLE|INSERT INTO)[^;]*\bavg_ts\b", re.IGNORECASE | re.MULTILINE)),
    (Kind.LLAMA_BATCHED_MARKDOWN, re.compile(r"^\s*\|.*\bS_TG t/s\b", re.MULTILINE)),
    (Kind.LLAMA_BENCH_MARKDOWN, re.compile(r"^\s*\|\s*model\b.*\btest\b.*\bt/s\b", re.MULTILINE)),
    (Kind.GUIDELLM_CSV, re.compile(r"^(?:Run Info,|Type,Run Id,Id,Name,)")),
    (Kind.GUIDELLM_YAML, re.compile(r"^(?:benchmarks:|metadata:[\s\S]*?^\s+guidellm_version:)", re.MULTILINE)),
)


def detect_kind(name: str, head: bytes) -> Kind | None:
    """The kind of the file that begins so, or ``None``. ``name`` is taken for a caller's messages only.

    >>> detect_kind("a.txt", b'{"avg_latency": 1.2, "latencies": [1.2]}')
    <Kind.VLLM_LATENCY: 'vllm-bench-latency'>
    """
    del name
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return Kind.ZIP
    text = decoded_head(head[:HEAD_BYTES]).lstrip("\ufeff \t\r\n")
    if text.startswith(("{", "[")):
        return _json_kind(text)
    return next((kind for kind, sign in TEXT_SIGNS if sign.search(text)), None)


def _json_kind(text: str) -> Kind | None:
    keys = set(KEY.findall(text))
    if any("Package Power (W)" in key for key in keys):
        return Kind.POWER_ROCM_SMI
    return next((kind for kind, signs in JSON_SIGNS if signs <= keys), None)
