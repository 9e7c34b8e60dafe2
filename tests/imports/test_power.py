"""Power logs: summed over accelerators, averaged over time, cut to a run."""

import io
import json
from datetime import timedelta

import pytest

from service.imports import Ask, Kind, Metadata, PowerLog, PowerScope, import_files
from tests.imports.reading import SAMPLES, near, read, sample, vllm_serve

HEADER = "timestamp, index, name, power.draw [W], utilization.gpu [%]\n"


def power_of(text: str, name: str = "power") -> PowerLog:
    report = read(text, name)
    assert report.accepted, report.reason
    assert report.power is not None
    return report.power


def test_nvidia_smi_is_summed_over_gpus_at_each_time_and_then_averaged() -> None:
    report = sample("nvidia-smi.csv")
    log = report.power
    assert log is not None
    rounds = [126.74, 798.62, 816.24, 818.00, 805.20, 127.40]  # 62.87 + 63.87 and so on
    assert list(log.totals_w) == pytest.approx(rounds, rel=1e-6)
    assert log.mean_w == near(sum(rounds) / 6)
    assert log.busy_mean_w == near((798.62 + 816.24 + 818.00 + 805.20) / 4)
    assert log.energy_j == near(sum(rounds) - (126.74 + 127.40) / 2)  # trapezoids one second wide
    assert (log.accelerator_count, log.interval_s, log.scope) == (2, near(1.0), PowerScope.BOARD)
    assert report.missing == (Ask.STARTED_AT, Ask.FINISHED_AT, Ask.UTC_OFFSET)


def test_a_gpu_that_was_not_read_leaves_its_time_out_instead_of_counting_as_zero() -> None:
    report = read(
        HEADER
        + "2026/05/09 03:57:48.100, 0, H100, 400 W, 90 %\n2026/05/09 03:57:48.101, 1, H100, [N/A], 90 %\n"
        + "2026/05/09 03:57:49.100, 0, H100, 410 W, 90 %\n2026/05/09 03:57:49.101, 1, H100, 390 W, 90 %\n"
    )
    assert report.power is not None
    assert list(report.power.totals_w) == [800.0]
    assert any("1 times" in warning for warning in report.warnings)


def test_a_power_log_is_cut_to_the_time_of_the_run_it_came_with() -> None:
    rows = "".join(f"2026/12/01 19:55:{second:02}.000, 0, H100, {watt} W, 90 %\n" for second, watt in WATTS)
    run = vllm_serve(date="20261201-195553", duration=2.0)  # 19:55:51 to 19:55:53 on the same clock
    reports = import_files(
        [("run.json", io.BytesIO(json.dumps(run).encode())), ("gpu.csv", io.BytesIO((HEADER + rows).encode()))]
    )
    power = reports[0].runs[0].power
    assert power is not None
    assert power.mean_w == near((300 + 500 + 400) / 3)
    assert power.energy_j == near((300 + 500) / 2 + (500 + 400) / 2)
    assert (power.sample_count, power.cut_to_run, power.scope) == (3, True, PowerScope.BOARD)
    assert reports[1].missing == ()


WATTS = ((49, 60), (50, 70), (51, 300), (52, 500), (53, 400), (54, 65))


def test_an_offset_that_only_the_power_log_needs_is_not_called_useless() -> None:
    run = (SAMPLES / "guidellm-0.8.1.json").read_bytes()  # whose times have a zone
    log = (HEADER + "2026/12/02 10:00:00.000, 0, H100, 300 W, 90 %\n").encode()
    files = [("run.json", io.BytesIO(run)), ("gpu.csv", io.BytesIO(log))]
    reports = import_files(files, metadata=Metadata(utc_offset=timedelta()))
    assert reports[0].runs[0].started_at is not None
    assert not any("changed nothing" in warning for report in reports for warning in report.warnings)


def test_a_log_of_another_time_is_given_to_no_run() -> None:
    rows = "2026/12/02 10:00:00.000, 0, H100, 300 W, 90 %\n"
    reports = import_files(
        [("run.json", io.BytesIO(json.dumps(vllm_serve()).encode())), ("g.csv", io.BytesIO((HEADER + rows).encode()))]
    )
    assert reports[0].runs[0].power is None
    assert any("belongs to no run" in warning for warning in reports[1].warnings)


def test_dcgm_power_is_summed_and_its_energy_counter_is_in_millijoules() -> None:
    report = sample("dcgm-exporter.prom")
    assert report.kind is Kind.POWER_DCGM
    assert report.power is not None
    assert report.power.mean_w == near(611.3 + 602.7)
    assert report.power.accelerator_names == ("NVIDIA H200",)
    assert report.power.energy_counters_j == {"0": near(8123456.789)}
    assert any("since the driver was loaded" in warning for warning in report.warnings)


@pytest.mark.parametrize("key", ["Average Graphics Package Power (W)", "Current Socket Graphics Package Power (W)"])
def test_the_second_die_of_an_mi250_is_no_missing_value_under_either_key(key: str) -> None:
    cards = {"card0": "237.0", "card1": "N/A (Secondary die)", "card2": "230.0", "card3": "N/A (Secondary die)"}
    log = power_of(json.dumps({card: {key: watt} for card, watt in cards.items()}))
    assert log.mean_w == near(237 + 230)
    assert (log.accelerator_count, log.die_count) == (2, 4)


def test_a_package_that_was_not_read_refuses_the_sum() -> None:
    key = "Average Graphics Package Power (W)"
    report = read(json.dumps({"card0": {key: "237.0"}, "card1": {key: "N/A"}}))
    assert not report.accepted
    assert report.reason is not None
    assert "too low" in report.reason


def test_amd_smi_writes_values_with_units() -> None:
    log = sample("amd-smi.json").power
    assert log is not None
    assert (log.mean_w, log.accelerator_count, log.scope) == (717 + 702, 2, PowerScope.PACKAGE)
