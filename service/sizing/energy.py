"""Power at named scopes. A rated, a measured and a modelled watt are three things, and say so."""

from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from service.sizing.accelerator import Accelerator, Kind
from service.sizing.estimate import INTERVAL_COVERAGE_FRACTION, Estimate


class PowerScope(StrEnum):
    ACCELERATOR = "accelerator"  # the board or module
    SYSTEM = "system"  # with its share of host, fans and switches
    FACILITY = "facility"  # times PUE
    PROVISIONED = "provisioned"  # for planning feeds


class PowerKind(StrEnum):
    MODELLED = "modelled"
    PUBLISHED = "published"


# Share of the rated board power drawn while serving: 10th, 50th and 90th percentile of 433 runs on A100, H100 and
# B200 with NVML or nvidia-smi means (ml-energy leaderboard; argonne-lcf LLM-Inference-Bench; InferenceX issue 828).
BOARD_POWER_FRACTION = Estimate(0.756, 0.535, 0.943, INTERVAL_COVERAGE_FRACTION)

# Wall power of a whole server over the rated power of its boards: 8 x B200 at 1,000 W drew 1,126 to 1,305 W per GPU
# while serving (MLPerf Inference v5.1 power results, closed division).
WALL_TO_BOARD_RATING = Estimate(1.21, 1.13, 1.31, None)


@dataclass(frozen=True, slots=True)
class ScopedPower:
    scope: PowerScope
    power_w_per_gpu: Estimate | None
    kind: PowerKind
    because: str


def accelerator_power(accelerator: Accelerator, *, limit_w: float | None, coverage: float | None) -> ScopedPower:
    """Of the board under load: a share of its rating, never above a limit that the caller sets."""
    if accelerator.tdp_w is None:
        return ScopedPower(
            PowerScope.ACCELERATOR, None, PowerKind.MODELLED, f"no board power is published for {accelerator.slug}"
        )
    power = BOARD_POWER_FRACTION.scaled(accelerator.tdp_w)
    ceiling = min(accelerator.tdp_w, limit_w or accelerator.tdp_w)
    capped = Estimate(min(power.value, ceiling), min(power.low, ceiling), min(power.high, ceiling), coverage)
    return ScopedPower(
        PowerScope.ACCELERATOR,
        capped,
        PowerKind.MODELLED,
        f"0.756 (0.535 to 0.943) of the rated {accelerator.tdp_w:g} W, as in 433 measured runs on A100, H100 and B200",
    )


def system_power(accelerator: Accelerator, board: ScopedPower) -> ScopedPower:
    """Power of the whole system per GPU, under load.

    Servers of NVIDIA modules: the measured ratio of wall power to the boards' rating, in proportion under a limit.
    Racks and others: the published system power, which is a maximum, in proportion to the boards' share of theirs.
    """
    if board.power_w_per_gpu is None or accelerator.tdp_w is None:
        return ScopedPower(PowerScope.SYSTEM, None, PowerKind.MODELLED, board.because)
    loaded = board.power_w_per_gpu.scaled(1 / accelerator.tdp_w)
    if accelerator.vendor == "NVIDIA" and accelerator.kind is Kind.CHIP:
        limited = min(1.0, loaded.high / BOARD_POWER_FRACTION.high)
        return ScopedPower(
            PowerScope.SYSTEM,
            WALL_TO_BOARD_RATING.scaled(accelerator.tdp_w * limited),
            PowerKind.MODELLED,
            "1.21 (1.13 to 1.31) of the boards' rating, as measured at the wall of 8 x B200 in MLPerf v5.1",
        )
    if accelerator.system_power_w_per_gpu is not None:
        published = accelerator.system_power_w_per_gpu
        return ScopedPower(
            PowerScope.SYSTEM,
            loaded.scaled(published).without_coverage(),
            PowerKind.MODELLED,
            f"the boards' share of their rating, of the published {published:.0f} W per GPU of the system",
        )
    return ScopedPower(
        PowerScope.SYSTEM, None, PowerKind.MODELLED, f"no system power is published for {accelerator.slug}"
    )


def facility_power(system: ScopedPower, *, pue: float | None) -> ScopedPower:
    """System power times PUE. There is no default PUE: sites differ from 1.04 to 1.6."""
    if pue is None:
        return ScopedPower(PowerScope.FACILITY, None, PowerKind.MODELLED, "no PUE was given")
    power = system.power_w_per_gpu
    return ScopedPower(
        PowerScope.FACILITY,
        power.scaled(pue) if power else None,
        PowerKind.MODELLED,
        f"system power x PUE {pue:g}" if power else system.because,
    )


def provisioned_power(accelerator: Accelerator) -> ScopedPower:
    """What a feed is planned with: the published all-in figure."""
    provisioned = accelerator.provisioned_w_per_gpu
    if provisioned is None:
        return ScopedPower(
            PowerScope.PROVISIONED,
            None,
            PowerKind.PUBLISHED,
            f"no all-in power is published for {accelerator.slug}",
        )
    return ScopedPower(
        PowerScope.PROVISIONED,
        Estimate(provisioned, provisioned, provisioned, None),
        PowerKind.PUBLISHED,
        "published all-in power per GPU, a build-up from ratings",
    )


@lru_cache(maxsize=512)
def scoped_powers(
    accelerator: Accelerator, *, limit_w: float | None, pue: float | None, coverage: float | None
) -> tuple[ScopedPower, ...]:
    board = accelerator_power(accelerator, limit_w=limit_w, coverage=coverage)
    system = system_power(accelerator, board)
    return board, system, facility_power(system, pue=pue), provisioned_power(accelerator)
