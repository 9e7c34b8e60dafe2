"""How old an engine is: overheads fall from release to release, and an old release may still be run or asked about.

A run and a question of one release have to be of one age, or a run would not bear out the answer that leans on it. So
the age is that of the release wherever it is stated; the day of a measurement stands in where it is not.
"""

import re
from bisect import bisect_right
from collections.abc import Mapping
from functools import lru_cache
from math import inf
from typing import Final, NamedTuple

from service.sizing.engines.engine import version_key


class Out(NamedTuple):
    """A release, the day by which it was out, and where that is seen."""

    version: str
    day: str
    source: str


# In the order of their versions. A release between two of them counts as the one before it.
RELEASES: Final[Mapping[str, tuple[Out, ...]]] = {
    "vllm": (
        Out("0.6.0", "2024-09-05", "France-Travail/happy_vllm pull request 31"),
        Out("0.6.6", "2025-01-03", "France-Travail/happy_vllm pull request 52"),
        Out("0.7.3", "2025-02-22", "ModelCloud/GPTQModel pull request 1332"),
        Out("0.8.2", "2025-03-25", "groundlight/r1_vlm issue 48"),
        Out("0.8.4", "2025-04-15", "torch-spyre/sendnn-inference pull request 89"),
        Out("0.9.0", "2025-05-28", "vllm-project/vllm-ascend pull request 959"),
        Out("0.9.2", "2025-07-13", "sasha0552/pascal-pkgs-ci issue 36"),
        Out("0.10.0", "2025-08-09", "PrimeIntellect-ai/prime-rl pull request 696"),
        Out("0.10.1", "2025-08-21", "oracle-devrel/technology-engineering pull request 1966"),
        Out("0.11.0", "2025-10-07", "CentML/mlperf-inference pull request 4"),
        Out("0.12.0", "2025-12-17", "ai-dynamo/aiconfigurator pull request 181"),
        Out("0.15.1", "2026-02-25", "InferenceX, published run of that day"),
    ),
    "sglang": (
        Out("0.4.5", "2025-04-22", "Michaelvll/llm-ie-benchmarks issue 3"),
        Out("0.4.8", "2025-06-26", "verl-project/verl pull request 2206"),
        Out("0.5.1", "2025-08-23", "sgl-project/sglang pull request 9533, before 9544 of that day"),
        Out("0.5.2", "2025-09-25", "verl-project/verl pull request 3613"),
        Out("0.5.5", "2025-12-21", "InferenceX, published run of that day"),
        Out("0.5.7", "2026-01-05", "InferenceX issue 385"),
    ),
    "tensorrt-llm": (
        Out("0.9.0", "2024-04", "NVIDIA/TensorRT-LLM, performance overview of 0.9.0"),
        Out("0.10.0", "2024-06-05", "NVIDIA/TensorRT-LLM, release page of 0.10.0"),
        Out("0.14.0", "2024-11", "NVIDIA/TensorRT-LLM, performance overview of 0.14.0"),
        Out("0.17.0", "2025-02", "NVIDIA/TensorRT-LLM, performance overview of 0.17"),
        Out("1.0.0rc3", "2025-07-16", "NVIDIA/TensorRT-LLM pull request 6086, which begins the next"),
        Out("1.0.0", "2025-09", "NVIDIA/TensorRT-LLM, performance overview of 1.0"),
        Out("1.1.0rc2", "2025-12-15", "InferenceX, published run of that day"),
        Out("1.2.0rc2", "2025-12-17", "InferenceX, published run of that day"),
        Out("1.2.0rc6", "2026-01-23", "InferenceX, published run of that day"),
    ),
}

OLDEST_YEARS: Final = 10.0  # no engine of today is older
MIDDLE: Final = (0, 7, 15)  # the month and day that stand for those not stated
CANDIDATE: Final = re.compile(r"[0-9][-.]?rc\.?([0-9]{1,4})")
FIRST_YEAR: Final = 1000  # "2024" is no number of a release


def age_years(engine: str | None, version: str | None, measured_on: str | None = None) -> float:
    """Of the release at the start of 2026, 0 for later ones; where it is not known, the day of the run stands in.

    >>> round(age_years("vLLM", "0.7.3", "2026-04-15"), 3)  # out by 22 February 2025: 1 - (1 / 12 + 21 / 365)
    0.859
    >>> round(age_years("vLLM", None, "2025"), 3)  # 15 July: 1 - (6 / 12 + 14 / 365)
    0.462
    >>> age_years("vLLM", "0.19.0")
    0.0
    """
    release = release_of(engine, version)
    return years_before_2026(release.day if release else measured_on)


@lru_cache(maxsize=1024)
def release_of(engine: str | None, version: str | None) -> Out | None:
    """The newest one listed that is not newer, else the oldest; ``None`` for engines and versions of other kinds.

    >>> release_of("vLLM", "0.7.3.post1").version, release_of("vLLM", "v0.5.1").version
    ('0.7.3', '0.6.0')
    >>> release_of("vLLM", "0.10.x").version, release_of("vLLM", "nightly"), release_of("vLLM", "2024")
    ('0.10.0', None, None)
    >>> release_of("TensorRT-LLM", "1.0.0rc2").version, release_of("TensorRT-LLM", "1.0").version
    ('0.17.0', '1.0.0')
    """
    listed, asked = RELEASES.get((engine or "").lower()), _order(version or "")
    if not listed or asked is None:
        return None
    return listed[max(0, bisect_right([_order(each.version) or () for each in listed], asked) - 1)]


def _order(version: str) -> tuple[float, ...] | None:
    """Of its numbers, a release candidate before the release; ``None`` for a name or a year."""
    numbers, candidate = version_key(version), CANDIDATE.search(version)
    if not numbers or numbers[0] >= FIRST_YEAR:
        return None
    return *numbers, int(candidate.group(1)) if candidate else inf


def years_before_2026(day: str | None) -> float:
    """A day may be a year or a month alone: its middle is taken."""
    if not day:
        return 0.0
    stated = [int(part) for part in day.split("-")]
    year, month, day_of_month = (*stated, *MIDDLE[len(stated) :])
    return min(max(0.0, 2026.0 - (year + (month - 1) / 12 + (day_of_month - 1) / 365)), OLDEST_YEARS)
