"""llama-bench in its five layouts, and llama-batched-bench."""

import json
from typing import Any

from service.imports import Ask, Kind, Meaning, Scenario
from tests.imports.reading import MEAN, STD, near, only_run, read, sample, value

# Figures of a published llama-bench report on an RTX 5090 (Ternary Bonsai 2 27B, build 10743, 2026-09-30).
COMMON = {
    "build_commit": "adfffbe41",
    "build_number": 10743,
    "gpu_info": "NVIDIA GeForce RTX 5090",
    "backends": "CUDA",
    "model_filename": "models/Ternary-Bonsai-2-27B-PQ2_0.gguf",
    "model_type": "qwen35 27B PQ2_0",
    "model_size": 7195047936,
    "model_n_params": 26895998464,
    "type_k": "f16",
    "n_gpu_layers": 99,
    "n_depth": 0,
}
PROMPT = {**COMMON, "n_prompt": 512, "n_gen": 0, "test_time": "2026-09-30T02:25:06Z", "avg_ts": 4074.886213}
PROMPT |= {"stddev_ts": 266.188932}
GENERATION = {**COMMON, "n_prompt": 0, "n_gen": 128, "test_time": "2026-09-30T02:25:13Z", "avg_ts": 142.965539}
GENERATION |= {"stddev_ts": 1.103893}
TESTS: list[dict[str, Any]] = [PROMPT, GENERATION]


def check(report: Any) -> None:
    prompt, generation = report.runs
    assert value(prompt, Meaning.PREFILL_RATE, MEAN) == near(4074.886213)
    assert value(prompt, Meaning.PREFILL_RATE, STD) == near(266.188932)
    assert value(prompt, Meaning.DECODE_RATE, MEAN) is None
    assert value(generation, Meaning.DECODE_RATE, MEAN) == near(142.965539)
    assert value(generation, Meaning.TPOT, MEAN) == near(1 / 142.965539)
    assert (prompt.isl_mean_tokens, prompt.osl_mean_tokens) == (512, None)
    assert (generation.isl_mean_tokens, generation.osl_mean_tokens) == (None, 128)
    assert prompt.scenario is Scenario.SINGLE_STREAM
    assert (prompt.tool_version, prompt.engine_version) == ("b10743 (adfffbe41)", "10743")
    assert prompt.model_file == "Ternary-Bonsai-2-27B-PQ2_0.gguf"
    assert prompt.started_at.isoformat() == "2026-09-30T02:25:06+00:00"
    assert report.missing == (Ask.GPU_COUNT,)


def test_the_json_array_of_llama_bench_is_a_run_a_test() -> None:
    check(read(json.dumps(TESTS)))


def test_flash_attention_is_kept_where_the_file_says_on_or_off() -> None:
    said = (True, 1, False, "0", "auto", None)
    runs = read(json.dumps([{**PROMPT, "flash_attn": state} for state in said]).encode(), "bench.json").runs
    assert [run.extras.get("flash_attention") for run in runs] == ["on", "on", "off", "off", None, None]


def test_json_lines_of_llama_bench_read_the_same() -> None:
    check(read("\n".join(json.dumps(test) for test in TESTS) + "\n"))


def test_the_csv_of_llama_bench_reads_the_same() -> None:
    rows = [",".join(PROMPT), *(",".join(f'"{cell}"' for cell in test.values()) for test in TESTS)]
    report = read("\n".join(rows) + "\n")
    assert report.kind is Kind.LLAMA_BENCH_CSV
    check(report)


def test_the_sql_of_llama_bench_is_parsed_and_never_run() -> None:
    insert = f"INSERT INTO llama_bench ({', '.join(PROMPT)}) VALUES ("  # noqa: S608 - text to be read, never run
    rows = [insert + ", ".join(f"'{cell}'" for cell in test.values()) + ");" for test in TESTS]
    report = read("CREATE TABLE IF NOT EXISTS llama_bench (\n  avg_ts REAL\n);\n\n" + "\n".join(rows) + "\n")
    assert report.kind is Kind.LLAMA_BENCH_SQL
    check(report)
    hostile = read(insert + "(SELECT 1));\nDROP TABLE runs; -- avg_ts\n")
    assert hostile.reason == "line 1: a value is not a text or a number"


def test_the_table_of_llama_bench_names_no_accelerator() -> None:
    report = read(
        "| model            |     size |  params | backend | ngl |            test |             t/s |\n"
        "| ---------------- | -------: | ------: | ------- | --: | --------------: | --------------: |\n"
        "| qwen35 27B PQ2_0 | 6.70 GiB | 26.90 B | CUDA    |  99 |           pp512 | 4074.89 ± 266.19 |\n"
        "| qwen35 27B PQ2_0 | 6.70 GiB | 26.90 B | CUDA    |  99 |  tg128 @ d4096  |   142.97 ± 1.10 |\n"
        "\nbuild: adfffbe41 (10743)\n"
    )
    prompt, generation = report.runs
    assert value(prompt, Meaning.PREFILL_RATE, MEAN) == 4074.89
    assert value(generation, Meaning.DECODE_RATE, MEAN) == 142.97
    assert generation.context_depth_tokens == 4096
    assert prompt.model_bytes == round(6.70 * 2**30)
    assert prompt.tool_version == "b10743 (adfffbe41)"
    assert {Ask.ACCELERATOR, Ask.STARTED_AT} <= set(report.missing)


def test_a_test_of_prompt_and_generation_together_is_a_third_quantity() -> None:
    run = only_run(read(json.dumps([{**PROMPT, "n_gen": 128}])))
    assert value(run, Meaning.PHASES_RATE, MEAN) == near(4074.886213)
    assert value(run, Meaning.PREFILL_RATE, MEAN) is None


def test_several_gpus_are_counted_where_the_file_lists_them() -> None:
    run = only_run(read(json.dumps([{**PROMPT, "gpu_info": "NVIDIA H200, NVIDIA H200"}])))
    assert (run.accelerator_name, run.accelerator_count) == ("NVIDIA H200", 2)


def test_each_row_of_batched_bench_is_a_static_batch() -> None:
    report = sample("llama-batched.jsonl")
    assert [run.concurrency for run in report.runs] == [1, 4, 8]
    last = report.runs[-1]
    assert last.scenario is Scenario.STATIC_BATCH
    assert value(last, Meaning.DECODE_RATE) == near(8 * 128 / 1.08)  # pl * tg / t_tg
    assert value(last, Meaning.TOTAL_RATE) == near(5120 / 2.04)  # n_kv / t
    assert value(last, Meaning.OUTPUT_RATE) is None


def test_the_table_of_batched_bench_reads_as_its_json_lines() -> None:
    report = read(
        "|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |\n"
        "|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|\n"
        "|   512 |    128 |    8 |   5120 |    0.960 |  4266.67 |    1.080 |   948.15 |    2.040 |  2509.80 |\n"
    )
    run = only_run(report)
    assert (run.concurrency, run.isl_mean_tokens, run.osl_mean_tokens) == (8, 512, 128)
    assert value(run, Meaning.DECODE_RATE) == 948.15
