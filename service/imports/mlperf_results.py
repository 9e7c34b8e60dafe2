"""``summary_results.json`` of MLCommons' results repositories: one row a published result of a round.

Only rows in tokens a second are of language models; the others are counted and left out. The accelerators are those of
a node times the nodes, unless the accelerator's name says "(x87)". Example:
github.com/mlcommons/inference_results_v5.1.
"""

import re
from typing import BinaryIO

from service.imports.fields import Fields
from service.imports.measures import Measures
from service.imports.mlperf import SCENARIOS
from service.imports.report import Ask, Parsed, Refused
from service.imports.run import ImportedRun, Meaning, Mlperf, Power, PowerScope, QualityFlag
from service.imports.vllm import records

ASKS = (Ask.MODEL, Ask.PRECISION, Ask.ACCELERATOR, Ask.GPU_COUNT)
STATED_COUNT = re.compile(r"\(x\s*(\d{1,6})\)")
TOKENS_PER_SAMPLE = re.compile(r"TOKENS_PER_SAMPLE: (\d{1,9}(?:\.\d+)?)")
TOKEN_UNITS = frozenset({"Tokens/s", "Tokens/sec"})


def accelerator_count(fields: Fields) -> int | None:
    stated = STATED_COUNT.search(fields.text("Accelerator") or "")
    if stated:
        return int(stated.group(1))
    per_node, nodes = fields.count("a#"), fields.count("Nodes")
    return per_node * nodes if per_node and nodes else None


def measured_power(fields: Fields, count: int | None) -> Power | None:
    """MLPerf Power measures the whole system at the wall."""
    watts = fields.positive("Power_Result") if fields.text("Power_Units") == "Watts" else None
    if watts is None:
        return None
    return Power(watts, PowerScope.SYSTEM_WALL, count or 0, 0, None, None, "mlperf-power", cut_to_run=True)


def result_run(fields: Fields) -> ImportedRun:
    scenario = fields.text("Scenario") or ""
    if scenario not in SCENARIOS:
        raise fields.refuse("Scenario", f"one of {', '.join(SCENARIOS)}")
    measures = Measures()
    measures.take(fields, "Performance_Result", Meaning.OUTPUT_RATE)
    length = TOKENS_PER_SAMPLE.search(fields.text("Accuracy") or "")
    count = accelerator_count(fields)
    flags = [QualityFlag.INFERRED] if fields.truth("inferred") else []
    return ImportedRun(
        tool="mlperf-loadgen",
        position=f"{fields.where}, {fields.text('ID') or 'no ID'}",
        engine=fields.text("Software"),
        model_name=fields.text("UsedModel") or fields.text("Model"),
        weight_precision=fields.text("weight_data_types"),
        scenario=SCENARIOS[scenario],
        osl_mean_tokens=float(length.group(1)) if length else None,
        accelerator_name=fields.text("Accelerator"),
        accelerator_count=count,
        node_count=fields.count("Nodes") or None,
        metrics=measures.metrics,
        dropped_keys=tuple(measures.not_finite),
        power=measured_power(fields, count),
        mlperf=Mlperf(
            scenario_as_logged=scenario,
            valid=True,
            version=fields.text("version"),
            division=fields.text("Category"),
            availability=fields.text("Availability"),
            submitter=fields.text("Submitter"),
            system_name=fields.text("System"),
            location=fields.text("Location"),
        ),
        flags=tuple(flags),
    )


def parse(stream: BinaryIO) -> Parsed:
    runs, others = [], 0
    for fields in records(stream):
        if fields.text("Performance_Units") in TOKEN_UNITS:
            runs.append(result_run(fields))
        else:
            others += 1
    if not runs:
        raise Refused("no row is in tokens a second: these are not results of language models")
    warnings = (f"{others} rows are not in tokens a second and were left out",) if others else ()
    return Parsed(tuple(runs), ASKS, warnings)
