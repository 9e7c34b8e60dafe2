"""How old the engine of a run was: an old release may be measured late, and many sources state no day at all."""

from collections.abc import Mapping

# Days by which releases were out, with where that is seen.
RELEASED_BY: Mapping[tuple[str, str], str] = {
    ("tensorrt-llm", "1.0.0rc3"): "2025-07-16",  # NVIDIA/TensorRT-LLM pull request 6086 begins the next
    ("vllm", "0.7.3"): "2025-02-22",  # its release page is cited in ModelCloud/GPTQModel pull request 1332
    ("vllm", "0.12.0"): "2025-12-17",  # ai-dynamo/aiconfigurator pull request 181 supports it
}

OLDEST_YEARS = 10.0  # no engine of today is older
MIDDLE = (0, 7, 15)  # the month and day that stand for those not stated


def engine_age_years(engine: str | None, version: str | None, measured_on: str | None) -> float:
    """Of the release at the start of 2026, 0 for later ones; where it is not known, the day of the run stands in.

    A day may be a year or a month alone: its middle is taken.

    >>> round(engine_age_years("vLLM", "0.7.3", "2026-04-15"), 3)  # 22 February 2025: 1 - (1 / 12 + 21 / 365)
    0.859
    >>> round(engine_age_years("vLLM", None, "2025"), 3)  # 15 July: 1 - (6 / 12 + 14 / 365)
    0.462
    >>> engine_age_years("vLLM", "0.19.0", None)
    0.0
    """
    day_out = RELEASED_BY.get(((engine or "").lower(), version or ""), measured_on)
    if not day_out:
        return 0.0
    stated = [int(part) for part in day_out.split("-")]
    year, month, day = (*stated, *MIDDLE[len(stated) :])
    return min(max(0.0, 2026.0 - (year + (month - 1) / 12 + (day - 1) / 365)), OLDEST_YEARS)
