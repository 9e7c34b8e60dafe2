"""llama.cpp's ``llama-batched-bench``: one row a batch, as JSON lines or a Markdown table.

``pl`` sequences run at once; ``speed_tg`` is over the decode phase alone. With ``is_pp_shared`` the prompt was read
once for all of them. Schema: tools/batched-bench of github.com/ggml-org/llama.cpp.
"""

from typing import BinaryIO

from service.imports.fields import Fields
from service.imports.llama_bench_text import cells_of
from service.imports.measures import Measures
from service.imports.report import Ask, Parsed
from service.imports.run import ConcurrencyBasis, ImportedRun, Meaning, Scenario
from service.imports.text_stream import lines
from service.imports.vllm import records

ASKS = (Ask.MODEL, Ask.ACCELERATOR, Ask.GPU_COUNT, Ask.PRECISION, Ask.ENGINE_VERSION, Ask.STARTED_AT)
WARNINGS = (
    "speed_tg is over the decode phase alone, speed over prefill and decode together",
    "pl is the batch: one row is one run",
)
COLUMNS = {
    "PP": "pp",
    "TG": "tg",
    "B": "pl",
    "N_KV": "n_kv",
    "T_PP s": "t_pp",
    "S_PP t/s": "speed_pp",
    "T_TG s": "t_tg",
    "S_TG t/s": "speed_tg",
    "T s": "t",
    "S t/s": "speed",
}


def batch_run(fields: Fields) -> ImportedRun:
    measures = Measures()
    measures.take(fields, "speed_pp", Meaning.PREFILL_RATE)
    measures.take(fields, "speed_tg", Meaning.DECODE_RATE)
    measures.take(fields, "speed", Meaning.TOTAL_RATE)
    measures.take(fields, "t_pp", Meaning.PREFILL_TIME)
    shared = fields.truth("is_pp_shared")
    return ImportedRun(
        tool="llama-batched-bench",
        position=fields.where,
        engine="llama.cpp",
        duration_s=fields.seconds("t"),
        scenario=Scenario.STATIC_BATCH,
        concurrency=fields.count("pl"),
        concurrency_basis=ConcurrencyBasis.BATCH,
        isl_mean_tokens=fields.positive("pp"),
        osl_mean_tokens=fields.positive("tg"),
        gpu_layer_count=fields.count("n_gpu_layers"),
        metrics=measures.metrics,
        dropped_keys=tuple(measures.not_finite),
        extras={"is_pp_shared": "1"} if shared else {},
    )


def parse_json(stream: BinaryIO) -> Parsed:
    return parsed([batch_run(fields) for fields in records(stream)])


def parse_markdown(stream: BinaryIO) -> Parsed:
    header: list[str] = []
    runs = []
    for number, line in enumerate(lines(stream), start=1):
        if not line.lstrip().startswith("|"):
            continue
        cells = cells_of(line)
        if "S_TG t/s" in cells:
            header = [COLUMNS.get(cell, cell) for cell in cells]
        elif header and len(cells) == len(header) and cells[0].isdigit():
            runs.append(batch_run(Fields(dict(zip(header, cells, strict=True)), f"line {number}")))
    return parsed(runs)


def parsed(runs: list[ImportedRun]) -> Parsed:
    shared = ("is_pp_shared: the prompt was read once for the whole batch",)
    warnings = WARNINGS + (shared if any("is_pp_shared" in run.extras for run in runs) else ())
    return Parsed(tuple(runs), ASKS, warnings)
