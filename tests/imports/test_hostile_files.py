"""Whatever a file holds, the answer is a report that says what is wrong with it."""

import io
import json
import zipfile
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.imports import Ask, Kind, Metadata, QualityFlag, detect_kind, import_file, import_files
from service.imports.json_stream import json_values
from service.imports.report import Refused
from tests.imports.reading import SAMPLES, only_run, read, vllm_serve

SERVE = json.dumps(vllm_serve())


def zipped(**members: bytes) -> bytes:
    """A zip whose members are named with "__" for a dot."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "."), content)
    return buffer.getvalue()


@pytest.mark.parametrize("content", [b"", b"  \n", b"\xff\xfe"])
def test_an_empty_file_is_refused(content: bytes) -> None:
    report = read(content)
    assert not report.accepted
    assert report.reason


def test_a_file_that_no_tool_writes_is_refused_and_its_kind_asked_for() -> None:
    report = read("Dear all, the run was fast.")
    assert (report.kind, report.accepted) == (None, False)
    assert report.reason is not None
    assert "state its `kind`" in report.reason


@pytest.mark.parametrize("length", [200, 400, len(SERVE) - 1])
def test_a_truncated_file_is_refused_as_cut_off(length: int) -> None:
    report = read(SERVE[:length])
    assert not report.accepted
    assert report.reason is not None
    assert "cut off" in report.reason


def test_a_file_of_lines_cut_in_its_second_line_is_refused_whole() -> None:
    report = read(SERVE + "\n" + SERVE[:300])
    assert not report.accepted
    assert report.runs == ()
    assert report.reason == "the file ends after 1 whole values: it is empty or was cut off"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "utf-32"])
def test_what_a_windows_shell_redirected_reads_the_same(encoding: str) -> None:
    assert only_run(read(SERVE.encode(encoding))).metrics == only_run(read(SERVE)).metrics


def test_bytes_of_another_encoding_are_refused_and_not_guessed() -> None:
    report = read(json.dumps(vllm_serve(model_id="modèle"), ensure_ascii=False).encode("latin-1"))
    assert not report.accepted
    assert report.reason is not None
    assert "not utf-8" in report.reason


def test_figures_that_are_not_finite_are_left_out_and_named() -> None:
    report = read(vllm_serve(mean_tpot_ms=float("nan"), p99_ttft_ms=float("inf")))
    run = only_run(report)
    assert run.dropped_keys == ("p99_ttft_ms", "mean_tpot_ms")
    assert QualityFlag.NOT_FINITE_DROPPED in run.flags
    assert any("mean_tpot_ms" in warning for warning in report.warnings)


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_deep_nesting_is_refused(opening: str) -> None:
    report = read(opening * 100_000, kind=Kind.VLLM_SERVE)
    assert not report.accepted
    assert report.reason is not None
    assert "deeper" in report.reason


def test_nesting_inside_of_what_is_skipped_is_bounded_too() -> None:
    report = read('{"num_prompts": 1, "itls": [' + "[]," * 100 + "[" * 100_000, kind=Kind.VLLM_SERVE)
    assert report.reason is not None
    assert "deeper" in report.reason


def test_more_runs_than_the_bound_are_refused() -> None:
    report = read((json.dumps({"avg_latency": 1.0, "latencies": [1]}) + "\n") * 10_001)
    assert report.reason is not None
    assert "more than 10000 records" in report.reason


@pytest.mark.parametrize(
    "text",
    [
        '{"num_prompts": 1e999}',
        '{"num_prompts": ' + "9" * 5000 + "}",
        '{"num_prompts": 1e300}',
        '{"completed": -3}',
        '{"completed": 2.5}',
        '{"completed": true}',
        '{"completed": [1]}',
        '{"request_rate": -1}',
        '{"request_rate": {"a": 1}}',
        "[1, 2, 3]",
        '"text"',
        "null",
        "{]",
        '{"a" "b"}',
    ],
)
def test_values_that_cannot_be_are_refused(text: str) -> None:
    assert not read(text, kind=Kind.VLLM_SERVE).accepted


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.ZIP])
@pytest.mark.parametrize("content", [b"{}", b"[]", b"[[1]]", b"a,b\n1,2\n", b"\x00\x01\x02\x03", b"null", b"- 1\n"])
def test_a_kind_stated_wrongly_gives_a_report(kind: Kind, content: bytes) -> None:
    report = read(content, kind=kind)
    assert not report.accepted
    assert report.reason


def test_a_kind_that_the_content_contradicts_is_refused_and_the_likely_one_named() -> None:
    for content in (SERVE.encode(), zipped(serve__json=SERVE.encode())):
        report = read(content, kind=Kind.SGLANG_SERVING)
        (refused,) = report.members or (report,)
        assert not refused.accepted
        assert refused.reason == (
            "it looks like vllm-bench-serve, not like the sglang-bench-serving that is stated: leave `kind` out"
        )
    assert only_run(read(SERVE, kind=Kind.VLLM_SERVE)).engine == "vllm"
    with (SAMPLES / "sglang-serving-0.5.5.jsonl").open("rb") as stream:
        assert "looks like sglang" in str(import_file("serve.jsonl", stream, kind=Kind.VLLM_SERVE).reason)


def test_the_files_of_a_zip_are_of_the_kind_that_is_stated() -> None:
    bare = b'{"completed": 24, "mean_tpot_ms": 7.25, "output_throughput": 384.0}'
    assert not read(zipped(a__json=bare)).accepted
    assert read(zipped(a__json=bare), kind=Kind.VLLM_SERVE).members[0].kind is Kind.VLLM_SERVE


def test_a_dataset_that_a_caller_of_vllm_named_makes_no_sglang_of_it() -> None:
    assert read(vllm_serve(dataset_name="sharegpt")).kind is Kind.VLLM_SERVE


@given(st.binary(max_size=400), st.sampled_from(list(Kind)))
def test_no_bytes_raise_anything(content: bytes, kind: Kind) -> None:
    read(content, kind=kind)


@pytest.mark.parametrize("path", sorted(SAMPLES.iterdir()), ids=lambda path: path.name)
def test_a_sample_cut_anywhere_gives_a_report(path: Any) -> None:
    content = path.read_bytes()
    for share in range(1, 12):
        read(content[: len(content) * share // 12], path.name)


def test_the_kind_is_told_by_content_and_not_by_name() -> None:
    assert detect_kind("power.csv", SERVE.encode()) is Kind.VLLM_SERVE
    assert detect_kind("serve.json", b"timestamp, index, power.draw [W]\n") is Kind.POWER_NVIDIA_SMI


def test_each_file_of_a_zip_has_its_own_report() -> None:
    content = zipped(run__json=SERVE.encode(), notes__txt=b"nothing here", cut__json=SERVE[:300].encode())
    report = read(content, "runs.zip")
    assert report.accepted
    assert [(each.name, each.accepted) for each in report.members] == [
        ("runs.zip/run.json", True),
        ("runs.zip/notes.txt", False),
        ("runs.zip/cut.json", False),
    ]
    flat = import_files([("runs.zip", io.BytesIO(content))])
    assert [each.name for each in flat] == [each.name for each in report.members]


def test_names_in_a_zip_lead_nowhere() -> None:
    report = read(zipped(**{"../../etc/passwd": SERVE.encode(), "/srv/a__json": SERVE.encode()}), "x.zip")
    assert [each.name for each in report.members] == ["x.zip/etc/passwd", "x.zip/srv/a.json"]


def test_a_zip_bomb_is_stopped_while_it_unpacks() -> None:
    report = read(zipped(bomb__json=b"0" * 50_000_000), "bomb.zip")
    assert not report.accepted
    assert report.members[0].reason == "the file unpacks to more than 200 times its size"


def test_a_zip_inside_a_zip_too_many_files_and_a_cut_zip_are_refused() -> None:
    for kind in (None, Kind.ZIP, Kind.VLLM_SERVE):
        inner = read(zipped(inner__zip=zipped(run__json=SERVE.encode())), "outer.zip", kind=kind)
        assert inner.members[0].reason == "an archive inside an archive is not read"
    many = read(zipped(**{f"f{i}": b"x" for i in range(1001)}), "many.zip")
    assert many.reason is not None
    assert "1001 files" in many.reason
    cut = read(zipped(run__json=SERVE.encode())[:80], "cut.zip")
    assert cut.reason == "the archive is damaged or cut off"


def test_a_yaml_file_with_aliases_is_refused() -> None:
    report = read("benchmarks: &a [1]\nmore: [*a, *a]\n")
    assert report.kind is Kind.GUIDELLM_YAML
    assert report.reason == "the file uses YAML anchors; write it without"


def test_a_file_sent_twice_has_one_digest() -> None:
    assert read(SERVE, "a.json").content_digest == read(SERVE, "b.json").content_digest
    assert read(SERVE).content_digest != read(SERVE + "\n").content_digest


def test_the_caller_fills_what_the_file_leaves_open_and_changes_no_figure() -> None:
    said = Metadata(accelerator="h200-sxm", gpu_count=8, precision="fp8", engine="sglang", engine_version="0.11")
    report = read(SERVE, metadata=said)
    run = only_run(report)
    assert report.missing == ()
    assert report.storable
    assert (run.accelerator_name, run.accelerator_count, run.weight_precision) == ("h200-sxm", 8, "fp8")
    assert run.engine == "vllm"
    assert any("the file says vllm, the caller sglang" in warning for warning in report.warnings)
    assert set(run.from_caller) == {"accelerator_name", "accelerator_count", "weight_precision", "engine_version"}


def test_what_nobody_knows_is_asked_no_more_except_accelerator_and_model() -> None:
    report = read(SERVE, metadata=Metadata(nobody_knows=frozenset(Ask)))
    assert report.missing == (Ask.ACCELERATOR,)
    assert not report.storable


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(),
        lambda inner: st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=20,
    ).filter(lambda value: not isinstance(value, list)),
    st.integers(1, 7),
)
def test_json_is_read_the_same_in_pieces_of_any_size(value: Any, size: int) -> None:
    class InPieces(io.BytesIO):
        def read(self, wanted: int | None = -1, /) -> bytes:
            return super().read(size if wanted is None or wanted < 0 else min(size, wanted))

    text = json.dumps({"Infinity \\": value, "x": float("-inf"), "y": 'NaN " Infinity'})
    (found,) = json_values(InPieces(text.encode()))
    assert found == {"Infinity \\": value, "x": "-Infinity", "y": 'NaN " Infinity'}


def test_a_text_beyond_any_reason_is_refused_without_being_held() -> None:
    class Endless(io.BytesIO):
        """A JSON text that never closes its first string."""

        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(size) or b"x" * 100_000

    with pytest.raises(Refused, match="longer than"):
        list(json_values(Endless(b'{"a": "')))


def test_the_stream_is_read_from_its_beginning_wherever_it_stood() -> None:
    stream = io.BytesIO(SERVE.encode())
    stream.read(100)
    assert import_file("run.json", stream).accepted
