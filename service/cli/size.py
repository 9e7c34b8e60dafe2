"""``sizing size``: the answer of ``POST /sizing`` as a table, or with ``--json`` as the same document."""

# ruff: noqa: PLC0415 - a command imports what it needs when it runs, so that --help answers at once

import argparse
import json
from pathlib import Path
from typing import Any

from service.cli.catalogue import open_evidence, open_snapshot
from service.cli.settings import add_database_argument, settings_of
from service.errors import ServiceError

EPILOG = """\
examples:
  sizing size llama-3.3-70b-instruct gb200-nvl72
  sizing size llama-3.3-70b-instruct h100-sxm --weights fp8 --tp 2 --isl 4096 --osl 512 --concurrency 64
  sizing size deepseek-r1 gb200-nvl72 --tp 8 --replicas fill --tpot 0.03
  sizing size ./config.json b200 --json | jq .serving

MODEL is a slug, an alias, or the path of a config.json. What is left out takes a default, which the table lists."""

GIB = 2**30
FIELDS: dict[str, tuple[tuple[str, ...], type, str]] = {
    "--weights": (("precision", "weights"), str, "numeric format or checkpoint scheme of the weights"),
    "--kv-cache": (("precision", "kv_cache"), str, "precision of the KV cache"),
    "--compute": (("precision", "compute"), str, "precision of the arithmetic"),
    "--density": (("density",), str, "dense or sparse rates"),
    "--tp": (("parallelism", "tp"), int, "tensor parallelism; without any of these the layout is chosen"),
    "--pp": (("parallelism", "pp"), int, "pipeline parallelism"),
    "--ep": (("parallelism", "ep"), int, "expert parallelism"),
    "--dp": (("parallelism", "dp"), int, "data parallelism of attention"),
    "--isl": (("workload", "isl_tokens"), int, "mean input length, tokens"),
    "--osl": (("workload", "osl_tokens"), int, "mean output length, tokens"),
    "--concurrency": (("workload", "concurrency"), int, "requests in flight in one replica"),
    "--rate": (("workload", "request_rate_per_s"), float, "requests per second, in place of concurrency"),
    "--cached": (("workload", "cached_prefix_tokens"), int, "input tokens found in the prefix cache"),
    "--ttft": (("target", "ttft_s"), float, "target time to first token, seconds"),
    "--tpot": (("target", "tpot_s"), float, "target time per output token, seconds"),
    "--statistic": (("target", "statistic"), str, "mean, p50, p90 or p99"),
    "--engine": (("engine", "name"), str, "vllm, sglang, tensorrt-llm or llama.cpp"),
    "--engine-version": (("engine", "version"), str, "such as 0.33.0"),
    "--memory-fraction": (("engine", "memory_fraction"), float, "the engine's memory fraction"),
    "--max-model-len": (("engine", "max_model_len_tokens"), int, "longest request that the engine admits"),
    "--max-num-batched-tokens": (("engine", "max_num_batched_tokens"), int, "tokens of one step"),
    "--max-num-seqs": (("engine", "max_num_seqs"), int, "sequences of one step"),
    "--power-limit": (("power", "limit_w_per_gpu"), float, "watts per GPU"),
    "--pue": (("power", "pue"), float, "of the site"),
    "--scope": (("power", "scope"), str, "accelerator, system, facility or provisioned"),
    "--usd-per-gpu-h": (("economics", "usd_per_gpu_h"), float, "price of a GPU-hour"),
    "--usd-per-kwh": (("economics", "usd_per_kwh"), float, "price of electricity"),
    "--priced-on": (("economics", "on"), str, "date of the prices, YYYY-MM-DD"),
}


class QuestionInvalid(ServiceError):
    code = "question_invalid"
    title = "The question cannot be asked"


def add_size_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("accelerator", metavar="ACCELERATOR", help="a slug or an alias")
    for flag, (_, kind, text) in FIELDS.items():
        parser.add_argument(flag, type=kind, metavar={int: "N", float: "X", str: "WORD"}[kind], help=text)
    parser.add_argument("--replicas", metavar="N", help='copies of the layout, or "fill" for what the system holds')
    parser.add_argument("--physics-alone", action="store_true", help="do not lean on stored runs; faster")
    parser.add_argument("--json", action="store_true", help="the document that POST /sizing answers")
    add_database_argument(parser)


def size(arguments: argparse.Namespace) -> int:
    from pydantic import ValidationError

    from service.api.sizing import SizingRequest, sizing_answer

    question = _question(arguments)
    try:
        request = SizingRequest.model_validate(question)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"] if not str(part).startswith("("))
        raise QuestionInvalid(f"{place}: {first['msg']}") from None
    settings = settings_of(arguments)
    snapshot = open_snapshot(settings)
    evidence = None if arguments.physics_alone else open_evidence(settings, snapshot)
    document = sizing_answer(request, snapshot, evidence)
    print(json.dumps(document, indent=2) if arguments.json else table(document))
    return 0


def _question(arguments: argparse.Namespace) -> dict[str, Any]:
    """The request body that the flags stand for."""
    question: dict[str, Any] = {"model": _model(arguments.model), "accelerator": arguments.accelerator}
    for flag, (path, _, _) in FIELDS.items():
        value = getattr(arguments, flag.removeprefix("--").replace("-", "_"))
        if value is not None:
            part = question
            for name in path[:-1]:
                part = part.setdefault(name, {})
            part[path[-1]] = value
    if arguments.replicas is not None:
        number = arguments.replicas
        question["replica_count"] = int(number) if number.isdecimal() and len(number) < 10 else number
    return question


def _model(named: str) -> str | dict[str, Any]:
    """A name, or the config.json of that path."""
    from service.sizing.architectures import parse_config

    if not named.endswith(".json"):
        return named
    return {"config": parse_config(Path(named).read_bytes())}


def table(answer: dict[str, Any]) -> str:
    """The answer for a person: one figure a line, with its interval, then what was assumed and warned of."""
    inputs, fit = answer["inputs"], answer["memory_fit"]
    layout = " ".join(f"{name} {number}" for name, number in inputs["parallelism"].items())
    lines = [
        f"{inputs['model']} on {inputs['accelerator']}",
        f"  {inputs['replica_count']} x {inputs['gpu_count_per_replica']} GPU ({layout}), weights "
        f"{inputs['precision']['weights']}, KV cache {inputs['precision']['kv_cache']}, compute "
        f"{inputs['precision']['compute'] or '-'}, {inputs['engine']['name']} {inputs['engine']['version']}",
        "",
        "memory per GPU",
        *_rows(
            [
                ("fits", "yes" if fit["fits"] else f"no: {_gib(fit['shortfall_bytes_per_gpu'])} missing"),
                ("smallest GPU count", fit["minimum_gpu_count"] or "none fits"),
                ("usable", _gib(fit["usable_bytes_per_gpu"])),
                ("weights", _gib(fit["weight_bytes_per_gpu"])),
                ("activations", _gib(fit["activation_bytes_per_gpu"])),
                ("runtime", _gib(fit["runtime_bytes_per_gpu"])),
                ("reserved by the fraction", _gib(fit["reserved_bytes_per_gpu"])),
                ("KV cache", _gib(fit["kv_cache_budget_bytes_per_gpu"])),
                ("requests at once", fit["max_concurrency"]),
                ("longest request", f"{fit['max_context_tokens']} tokens"),
                ("engine would start", "yes" if fit["engine"]["would_start"] else "no, at its maximum length"),
            ]
        ),
        *_speed_lines(answer),
        *_energy_lines(answer),
        *_evidence_lines(answer),
        "",
        "verdict",
        *_rows([(name, _verdict(answer["verdict"][name])) for name in ("interactive", "batch")]),
    ]
    assumed = [f"{each['field']} = {_plain(each['value'])} ({each['origin']})" for each in answer["assumptions"]]
    warned = [f"{each['code']}: {each['detail']}" for each in answer["warnings"]]
    for title, items in (("assumed", assumed), ("warnings", warned)):
        if items:
            lines += ["", title, *(f"  {item}" for item in items)]
    return "\n".join(lines)


def _speed_lines(answer: dict[str, Any]) -> list[str]:
    crossover, decode, serving, prefill = (answer[name] for name in ("crossover", "decode", "serving", "prefill"))
    lines = []
    if crossover:
        batch = crossover["batch"]
        lines += [
            "",
            "crossover",
            *_rows(
                [
                    ("balance point", f"{crossover['balance_point_flop_per_byte']:.4g} FLOP/byte"),
                    ("textbook, weights only", f"batch {crossover['weights_only_batch']:.4g}"),
                    ("with KV and experts", "never" if batch is None else f"batch {batch:.4g}"),
                ]
            ),
        ]
    if serving:
        chance = serving["meets_target_probability"]
        lines += [
            "",
            f"speed at {serving['concurrency']} requests in flight (value, the interval it is expected in, its basis)",
            *_rows(
                [
                    ("prefill of one prompt", f"{_span(prefill['time_s'])} s, {prefill['bound']}-bound"),
                    ("decode step", f"{_span(decode['step_time_s'])} s, {decode['bound']}-bound"),
                    ("one user alone", f"{_span(decode['single_user_tokens_per_s'])} tokens/s"),
                    ("TTFT", f"{_span(serving['ttft_s'])} s"),
                    ("TPOT", f"{_span(serving['tpot_s'])} s" if serving["tpot_s"] else "-"),
                    ("requests", f"{_span(serving['requests_per_s'])} per s"),
                    ("output", f"{_span(serving['output_tokens_per_s'])} tokens/s"),
                    ("output per GPU", f"{_span(serving['output_tokens_per_s_per_gpu'])} tokens/s"),
                    ("meets the target", "no target given" if chance is None else f"probability {chance:.2f}"),
                ]
            ),
        ]
    return lines


def _energy_lines(answer: dict[str, Any]) -> list[str]:
    rows = [
        (scope["scope"], f"{_span(scope['power_w_per_gpu'])} W per GPU, {scope['kind']}" + _per_watt(scope))
        for scope in answer["energy"]["scopes"]
        if scope["power_w_per_gpu"]
    ]
    lines = ["", "power", *_rows(rows)] if rows else []
    if cost := answer["cost"]:
        per_million = [(name, cost[f"usd_per_{name}_token"]) for name in ("input", "cached_input", "output")]
        lines += [
            "",
            "cost",
            *_rows(
                [
                    (f"million {name.replace('_', ' ')} tokens", f"{_span(usd, scale=1e6)} USD")
                    for name, usd in per_million
                    if usd
                ]
            ),
        ]
    return lines


def _evidence_lines(answer: dict[str, Any]) -> list[str]:
    """How far from measurements the estimates are, whose runs TPOT leans on most, and what to measure next."""
    evidence = answer["evidence"]
    if not evidence["estimates"]:
        return []
    distances = (f"{each['estimate']} {each['distance_fraction']:.2f}" for each in evidence["estimates"])
    leans_on = (
        f"{each['benchmark_run']} ({each['weight_fraction']:.2f})"
        for each in evidence["runs"]
        if each["estimate"] == "serving.tpot_s"
    )
    rows = [
        ("distance (1: none near)", ", ".join(distances)),
        ("TPOT leans on (weight)", ", ".join(leans_on) or "no run"),
    ]
    if found := evidence["next_measurement"]:
        narrows = ", ".join(
            f"{each['estimate']} from {each['interval_width_fraction']:.0%} to "
            f"{each['expected_interval_width_fraction']:.0%} of the value"
            for each in found["narrows"]
        )
        rows.append(
            ("would narrow most", f"a {found['scenario']} run at concurrency {found['concurrency']}: {narrows}")
        )
    return ["", "evidence", *_rows(rows)]


def _per_watt(scope: dict[str, Any]) -> str:
    rate = scope["output_tokens_per_s_per_w"]
    return f", {_span(rate)} tokens/s/W" if rate else ""


def _rows(rows: list[tuple[str, Any]]) -> list[str]:
    return [f"  {name:<25} {value}" for name, value in rows]


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / GIB:.2f} GiB"


def _span(estimate: dict[str, Any], *, scale: float = 1.0) -> str:
    value, low, high = (estimate[name] * scale for name in ("value", "low", "high"))
    return f"{value:.4g}" if low == high else f"{value:.4g} ({low:.3g} to {high:.3g}, {estimate['basis']})"


def _verdict(suits: dict[str, Any]) -> str:
    word = {True: "suits", False: "does not suit", None: "unknown"}[suits["suits"]]
    return f"{word}: {suits['because']}"


def _plain(value: Any) -> str:
    return " ".join(f"{name} {number}" for name, number in value.items()) if isinstance(value, dict) else str(value)
