"""How far apart measurements of the very same thing are: no prediction can be closer than that.

Repeats share everything that a run states, the release of the engine included; ``between_releases`` are points that
were measured under several releases and are otherwise the same.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from service.catalogue.benchmark_evidence import Measurement
from service.sizing.run_terms import Phase


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """Points measured more than once, and the median over them of largest / smallest time - 1."""

    phase: Phase
    repeated_count: int
    repeats_differ_fraction: float | None
    release_count: int
    releases_differ_fraction: float | None


def noise_floors(rows: Sequence[Measurement]) -> Iterator[NoiseFloor]:
    """Of each phase that has any."""
    for phase in Phase:
        of_phase = [row for row in rows if row.configuration.phase is phase]
        repeats = _apart(((_point(row), row.configuration.engine_version), row.value_s) for row in of_phase)
        by_release: dict[tuple[object, ...], dict[str | None, list[float]]] = {}
        for row in of_phase:
            releases = by_release.setdefault(_point(row), {})
            releases.setdefault(row.configuration.engine_version, []).append(row.value_s)
        centres = ((point, median(times)) for point, releases in by_release.items() for times in releases.values())
        between = _apart(centres)
        if repeats or between:
            yield NoiseFloor(phase, len(repeats), _middle(repeats), len(between), _middle(between))


def _point(row: Measurement) -> tuple[object, ...]:
    configuration = replace(row.configuration, campaign=None, engine_version=None)
    return configuration, row.setup.batch, row.setup.isl_tokens, row.setup.osl_tokens


def _apart(times: Iterable[tuple[object, float]]) -> list[float]:
    groups: dict[object, list[float]] = {}
    for key, time_s in times:
        groups.setdefault(key, []).append(time_s)
    return [max(group) / min(group) - 1 for group in groups.values() if len(group) > 1]


def _middle(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def noise_table(rows: Sequence[Measurement]) -> str:
    lines = [
        "| phase | points repeated | median difference % | points under several releases | median difference % |",
        "|---|---|---|---|---|",
    ]
    for each in noise_floors(rows):
        repeats, releases = (
            "." if value is None else f"{100 * value:.1f}"
            for value in (each.repeats_differ_fraction, each.releases_differ_fraction)
        )
        lines.append(f"| {each.phase} | {each.repeated_count} | {repeats} | {each.release_count} | {releases} |")
    return "\n".join(lines)
