"""Result files in, reports with runs out. Whatever a file holds, the answer is a report; nothing is stored here.

Files are read one by one; then those that belong together are joined: MLPerf's logs and ``system.json`` of one
submission, and a power log with the runs whose time it covers.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import BinaryIO

from service.imports import (
    aiperf,
    guidellm,
    guidellm_csv,
    inferencex,
    llama_batched,
    llama_bench,
    llama_bench_text,
    llmperf,
    mlperf,
    mlperf_results,
    perf_csv,
    power_readings,
    sglang,
    trtllm,
    vllm,
)
from service.imports.archive import members, plain_name
from service.imports.completion import Metadata, completed, still_missing
from service.imports.detection import HEAD_BYTES, detect_kind
from service.imports.joining import FileRead, join_mlperf, join_power
from service.imports.report import FileReport, Kind, Parsed, Refused
from service.imports.run import ImportedRun, QualityFlag
from service.imports.text_stream import content_digest

NOTHING_SAID = Metadata()
MOST_WARNINGS = 100
OFFSET_UNUSED = "`utc_offset` changed nothing: no file of this upload states a time without its zone"

IMPORTERS: dict[Kind, Callable[[BinaryIO], Parsed]] = {
    Kind.VLLM_SERVE: vllm.parse_serve,
    Kind.VLLM_LATENCY: vllm.parse_latency,
    Kind.VLLM_THROUGHPUT: vllm.parse_throughput,
    Kind.SGLANG_SERVING: sglang.parse_serving,
    Kind.SGLANG_ONE_BATCH: sglang.parse_one_batch,
    Kind.AIPERF_JSON: aiperf.parse_aiperf,
    Kind.AIPERF_CSV: lambda stream: perf_csv.parse_perf_csv(stream, Kind.AIPERF_CSV),
    Kind.GENAI_PERF_JSON: aiperf.parse_genai_perf,
    Kind.GENAI_PERF_CSV: lambda stream: perf_csv.parse_perf_csv(stream, Kind.GENAI_PERF_CSV),
    Kind.GUIDELLM_JSON: guidellm.parse_json,
    Kind.GUIDELLM_YAML: guidellm.parse_yaml,
    Kind.GUIDELLM_CSV: guidellm_csv.parse_csv,
    Kind.TRTLLM_BENCH: trtllm.parse,
    Kind.LLAMA_BENCH_JSON: llama_bench.parse_json,
    Kind.LLAMA_BENCH_CSV: llama_bench.parse_csv,
    Kind.LLAMA_BENCH_MARKDOWN: llama_bench_text.parse_markdown,
    Kind.LLAMA_BENCH_SQL: llama_bench_text.parse_sql,
    Kind.LLAMA_BATCHED_JSON: llama_batched.parse_json,
    Kind.LLAMA_BATCHED_MARKDOWN: llama_batched.parse_markdown,
    Kind.MLPERF_RESULTS: mlperf_results.parse,
    Kind.INFERENCEX: inferencex.parse,
    Kind.LLMPERF: llmperf.parse,
    Kind.POWER_NVIDIA_SMI: power_readings.parse_nvidia_smi,
    Kind.POWER_DCGM: power_readings.parse_dcgm,
    Kind.POWER_ROCM_SMI: power_readings.parse_rocm_smi,
    Kind.POWER_AMD_SMI: power_readings.parse_amd_smi,
}


def import_file(
    name: str, stream: BinaryIO, *, kind: Kind | None = None, metadata: Metadata = NOTHING_SAID
) -> FileReport:
    """The report of one file; that of a zip has a report for each file in it.

    ``stream`` must be seekable. ``kind`` states what is otherwise told by the content; where the content tells another,
    the file is refused.
    """
    reports = import_files([(name, stream)], kind=kind, metadata=metadata)
    if len(reports) == 1 and reports[0].name == plain_name(name):
        return reports[0]
    return FileReport(
        name=plain_name(name),
        kind=Kind.ZIP,
        accepted=any(each.accepted for each in reports),
        content_digest=content_digest(stream),
        reason=None if any(each.accepted for each in reports) else "no file in the archive could be read",
        members=reports,
    )


def import_files(
    files: Iterable[tuple[str, BinaryIO]], *, kind: Kind | None = None, metadata: Metadata = NOTHING_SAID
) -> tuple[FileReport, ...]:
    """A report for each file, those inside of archives included; files that belong together are joined."""
    read = [each for name, stream in files for each in _read_upload(plain_name(name), stream, kind)]
    for each in read:
        each.runs = each.parsed.runs if each.parsed else ()
    join_mlperf(read)
    for each in read:
        conflicts: list[str] = []
        filled = []
        for run in each.runs:
            complete, disagreements = completed(run, metadata)
            filled.append(complete)
            conflicts += disagreements
        each.runs = tuple(filled)
        each.notes += dict.fromkeys(conflicts)
    join_power(read, metadata.utc_offset)
    if metadata.utc_offset is not None and not any(map(_reads_a_clock, read)):
        for each in read:
            if each.runs:
                each.notes.append(OFFSET_UNUSED)
    return tuple(_report(each, metadata) for each in read)


def _reads_a_clock(read: FileRead) -> bool:
    """Whether it has times without a zone, which the caller's offset places."""
    power = read.parsed.power if read.parsed else None
    if power is not None:
        return not power.zone_known
    return any(run.local_started_at or run.local_finished_at for run in read.runs)


def _read_upload(name: str, stream: BinaryIO, kind: Kind | None) -> list[FileRead]:
    stream.seek(0)
    head = stream.read(HEAD_BYTES)
    if Kind.ZIP not in (kind, detect_kind(name, head)):
        return [_read_file(name, stream, kind)]
    digest = content_digest(stream)
    found = []
    try:
        for member in members(stream):
            label = f"{name}/{member.name}"
            if member.stream is None:
                found.append(FileRead(label, None, "", refusal=member.refusal))
                continue
            with member.stream:
                stated = kind if kind is not Kind.ZIP else None
                found.append(_read_file(label, member.stream, stated, in_archive=True))
    except Refused as refusal:
        return [FileRead(name, Kind.ZIP, digest, refusal=str(refusal))]
    return found or [FileRead(name, Kind.ZIP, digest, refusal="the archive is empty")]


def _read_file(name: str, stream: BinaryIO, kind: Kind | None, *, in_archive: bool = False) -> FileRead:
    digest = content_digest(stream)
    head = stream.read(HEAD_BYTES)
    stream.seek(0)
    detected = detect_kind(name, head)
    stated, kind = kind, kind or detected
    read = FileRead(name, kind, digest)
    try:
        if not head.strip():
            raise Refused("the file is empty")
        if in_archive and detected is Kind.ZIP:
            raise Refused("an archive inside an archive is not read")
        if stated and detected and stated is not detected:
            raise Refused(f"it looks like {detected}, not like the {stated} that is stated: leave `kind` out")
        if kind is None:
            raise Refused("no known tool writes such a file; state its `kind` if one does")
        _take(read, kind, stream)
    except Refused as refusal:
        read.refusal = str(refusal)
    return read


def _take(read: FileRead, kind: Kind, stream: BinaryIO) -> None:
    if kind is Kind.MLPERF_DETAIL_LOG:
        read.detail = mlperf.read_detail(stream)
    elif kind is Kind.MLPERF_SYSTEM:
        read.system = mlperf.read_system(stream)
    else:
        parsed = mlperf.parse_summary(stream, read.name) if kind is Kind.MLPERF_SUMMARY_LOG else IMPORTERS[kind](stream)
        read.parsed = _measured(parsed)


def _measured(parsed: Parsed) -> Parsed:
    """Without the runs that measured nothing: their zeros are no figures."""
    if parsed.power is not None:
        return parsed
    runs = tuple(run for run in parsed.runs if run.metrics and run.completed_count != 0)
    empty = [run for run in parsed.runs if not (run.metrics and run.completed_count != 0)]
    if not runs:
        none_completed = any(run.completed_count == 0 for run in empty)
        reason = "no request completed: its zeros are not measurements" if none_completed else "it has no figures"
        raise Refused(reason)
    warnings = [f"{run.position}: nothing was measured, and the run is left out" for run in empty]
    warnings += [
        f"{run.position or 'the run'}: not finite, and left out: {', '.join(run.dropped_keys[:10])}"
        for run in runs
        if run.dropped_keys
    ]
    runs = tuple(_flagged(run) for run in runs)
    return replace(parsed, runs=runs, warnings=(*parsed.warnings, *warnings))


def _flagged(run: ImportedRun) -> ImportedRun:
    return replace(run, flags=(*run.flags, QualityFlag.NOT_FINITE_DROPPED)) if run.dropped_keys else run


def _report(read: FileRead, metadata: Metadata) -> FileReport:
    beside = read.detail is not None or read.system is not None
    if read.refusal is None and beside and not read.is_joined:
        read.refusal = "it belongs to an mlperf_log_summary.txt, which was not sent with it"
    if read.refusal is not None or read.parsed is None:
        return FileReport(
            read.name,
            read.kind,
            accepted=beside and read.refusal is None,
            content_digest=read.digest,
            warnings=tuple(read.notes[:MOST_WARNINGS]),
            reason=read.refusal,
            is_joined=read.is_joined,
        )
    parsed = read.parsed
    power_stands_alone = parsed.power is not None and not read.is_joined
    if power_stands_alone:
        read.notes.append("it belongs to no run of this upload: send it with the run's file, and say `utc_offset`")
    warnings = (*parsed.warnings, *read.notes)
    hidden = len(warnings) - MOST_WARNINGS
    more = (f"{hidden} more warnings",) if hidden > 0 else ()
    needs = () if parsed.power is not None and read.is_joined else still_missing(parsed, read.runs, metadata)
    return FileReport(
        name=read.name,
        kind=read.kind,
        accepted=True,
        content_digest=read.digest,
        runs=read.runs,
        missing=needs,
        warnings=(*warnings[:MOST_WARNINGS], *more),
        suggested=parsed.suggested,
        power=parsed.power,
        is_joined=read.is_joined,
    )
