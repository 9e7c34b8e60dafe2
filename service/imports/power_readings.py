"""Power as nvidia-smi, DCGM, rocm-smi and amd-smi write it, summed over the accelerators at each time.

"[N/A]" is not 0 W: a time at which one accelerator was not read is left out. On MI250 the first of two dies reports
both, and "N/A (Secondary die)" is no missing value. DCGM's energy is in millijoules since the driver was loaded: only
differences mean something. What is measured is a board or a package, never the wall.
"""

import re
from array import array
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import BinaryIO

from service.imports.fields import SAYS_NOTHING, Fields, number_in
from service.imports.json_stream import Array, json_values
from service.imports.power_log import PowerLog
from service.imports.report import Ask, Parsed, Refused
from service.imports.run import PowerScope
from service.imports.text_stream import csv_rows, lines

MOST_ROWS = 2_000_000
ROUND_WITHIN_S = 0.5
MILLIJOULE_J = 1e-3
SAMPLE_LINE = re.compile(r"(\w+)\{([^}]*)\}\s+(\S+)(?:\s+(\d{1,18})\b)?")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
TIME_ASKS = (Ask.STARTED_AT, Ask.FINISHED_AT)
IDENTITY_COLUMNS = ("index", "uuid", "pci.bus_id", "serial")
BOARD_WARNING = "this is the power of boards or packages, not of the server or at the wall"


class Rounds:
    """Collects readings in rounds: one of each accelerator at about one time; incomplete rounds are left out."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.times, self.totals, self.busy, self.sizes = array("d"), array("d"), array("b"), array("L")
        self.unread = 0
        self._watts: dict[str, float | None] = {}
        self._time = 0.0
        self._any_busy = False

    def add(self, time_s: float, gpu: str, watts: float | None, *, busy: bool | None) -> None:
        late = self._watts and time_s - self._time > ROUND_WITHIN_S
        if gpu in self._watts or late:
            self.end_round()
        if not self._watts:
            self._time = time_s
        self._watts[gpu] = watts
        self._any_busy = self._any_busy or bool(busy)

    def end_round(self) -> None:
        if self._watts:
            read = [watts for watts in self._watts.values() if watts is not None]
            if len(read) == len(self._watts):
                self.times.append(self._time)
                self.totals.append(sum(read))
                self.busy.append(self._any_busy)
                self.sizes.append(len(read))
            else:
                self.unread += 1
        self._watts, self._any_busy = {}, False

    def log(self, source: str, *, knows_busy: bool) -> tuple[PowerLog, int]:
        """The rounds of all accelerators in time's order, and how many were left out."""
        self.end_round()
        full = max(self.sizes, default=0)
        kept = sorted((i for i, size in enumerate(self.sizes) if size == full), key=lambda i: self.times[i])
        log = PowerLog(
            source=source,
            scope=PowerScope.BOARD,
            accelerator_names=tuple(sorted(set(self.names.values()))),
            accelerator_count=full,
            times_s=array("d", (self.times[i] for i in kept)),
            totals_w=array("d", (self.totals[i] for i in kept)),
            busy=[bool(self.busy[i]) for i in kept] if knows_busy else None,
        )
        return log, self.unread + len(self.sizes) - len(kept)


def clock_s(text: str, where: str) -> float:
    """A time in no known zone, counted as if it were of UTC."""
    for layout in ("%Y/%m/%d %H:%M:%S.%f", "%Y/%m/%d %H:%M:%S", "%Y-%m-%d %H:%M:%S.%f", "%Y-%m-%d %H:%M:%S"):
        try:
            return datetime.strptime(text, layout).replace(tzinfo=UTC).timestamp()
        except ValueError:
            continue
    raise Refused(f"{text[:40]!r} is not a time", where=where)


def watts_in(text: str, where: str) -> float | None:
    bare = text.strip().removesuffix("W").strip()
    if bare.lower() in SAYS_NOTHING or bare.startswith("["):
        return None
    value = number_in(bare)
    if value is None or not 0 <= value < 1e6:
        raise Refused(f"{text[:40]!r} is not a power in watts", where=where)
    return value


def parse_nvidia_smi(stream: BinaryIO) -> Parsed:
    rounds = Rounds()
    rows = csv_rows(stream, skip_spaces=True)
    header = [cell.strip().split(" [")[0] for cell in next(rows, [])]
    power = next((i for i, name in enumerate(header) if name in ("power.draw", "power.draw.average")), None)
    if power is None or "timestamp" not in header:
        raise Refused("columns timestamp and power.draw are needed", where="line 1")
    busy = header.index("utilization.gpu") if "utilization.gpu" in header else None
    identity = next((header.index(name) for name in IDENTITY_COLUMNS if name in header), None)
    name = header.index("name") if "name" in header else None
    for number, row in enumerate(rows, start=2):
        if number > MOST_ROWS:
            raise Refused(f"there are more than {MOST_ROWS} rows")
        if len(row) != len(header):
            if row:
                raise Refused(f"{len(row)} cells under {len(header)} columns", where=f"line {number}")
            continue
        where = f"line {number}"
        gpu = row[identity].strip() if identity is not None else ""
        if name is not None and len(rounds.names) < 4096:
            rounds.names[gpu] = row[name].strip()[:200]
        at_work = (number_in(row[busy].strip().removesuffix("%").strip()) or 0) > 0 if busy is not None else None
        rounds.add(
            clock_s(row[header.index("timestamp")].strip(), where), gpu, watts_in(row[power], where), busy=at_work
        )
    log, left_out = rounds.log("nvidia-smi", knows_busy=busy is not None)
    return power_parsed(log, (*TIME_ASKS, Ask.UTC_OFFSET), left_out)


def power_parsed(log: PowerLog, asks: tuple[Ask, ...], left_out: int = 0) -> Parsed:
    if log.mean_w is None:
        raise Refused("there is no reading of power in it")
    warnings = [BOARD_WARNING, "power is summed over the accelerators at each time, then averaged over time"]
    if left_out:
        warnings.append(f"{left_out} times at which not every accelerator was read were left out")
    return Parsed((), asks, tuple(warnings), power=log)


def prometheus_samples(stream: BinaryIO) -> Iterator[tuple[str, dict[str, str], float, float | None, str]]:
    for number, line in enumerate(lines(stream), start=1):
        match = SAMPLE_LINE.match(line)
        if match is None:
            continue
        value, where = number_in(match.group(3)), f"line {number}"
        if value is None:
            raise Refused(f"{match.group(3)[:40]!r} is not a number", where=where)
        time_s = int(match.group(4)) / 1000 if match.group(4) else None
        yield match.group(1), dict(LABEL.findall(match.group(2))), value, time_s, where


def parse_dcgm(stream: BinaryIO) -> Parsed:
    """One scrape, or several one after the other with times in milliseconds."""
    rounds, first, last, timed = Rounds(), dict[str, float](), dict[str, float](), True
    for metric, labels, value, time_s, _ in prometheus_samples(stream):
        gpu = labels.get("UUID") or labels.get("gpu") or ""
        if metric == "DCGM_FI_DEV_POWER_USAGE":
            timed = timed and time_s is not None
            rounds.names[gpu] = labels.get("modelName", "")
            rounds.add(time_s or 0.0, gpu, value, busy=None)
        elif metric == "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION":
            first.setdefault(labels.get("gpu", gpu), value * MILLIJOULE_J)
            last[labels.get("gpu", gpu)] = value * MILLIJOULE_J
    log, left_out = rounds.log("dcgm-exporter", knows_busy=False)
    log = PowerLog(
        source=log.source,
        scope=log.scope,
        accelerator_names=tuple(name for name in log.accelerator_names if name),
        accelerator_count=log.accelerator_count,
        totals_w=log.totals_w,
        times_s=log.times_s if timed else None,
        zone_known=timed,
        energy_counters_j=last,
    )
    parsed = power_parsed(log, TIME_ASKS, left_out)
    counter = "energy counts millijoules since the driver was loaded: only differences mean something"
    return Parsed((), parsed.asks, (*parsed.warnings, counter), power=log) if first else parsed


def parse_rocm_smi(stream: BinaryIO) -> Parsed:
    """A snapshot by ``rocm-smi --showpower --json``; the key's name moved with the chip and the version."""
    fields = Fields(next(json_values(stream), None), "")
    watts: list[float] = []
    secondary = 0
    for card in (key for key in fields if key.startswith("card")):
        values = fields.child(card)
        key = next((each for each in values if "Package Power (W)" in each), None)
        if key is None:
            continue
        text = str(values.values[key])
        if "secondary die" in text.lower():
            secondary += 1
            continue
        read = watts_in(text, values.place(key))
        if read is None:
            raise Refused("the power of a package was not read: a sum without it would be too low", where=card)
        watts.append(read)
    log = PowerLog(
        source="rocm-smi",
        scope=PowerScope.PACKAGE,
        accelerator_names=(),
        accelerator_count=len(watts),
        totals_w=(sum(watts),) if watts else (),
        die_count=len(watts) + secondary,
    )
    return power_parsed(log, (*TIME_ASKS, Ask.ACCELERATOR))


def parse_amd_smi(stream: BinaryIO) -> Parsed:
    """A snapshot by ``amd-smi metric --power --json``: objects of a value and a unit, or "N/A"."""
    watts: list[float] = []
    for number, value in enumerate(_amd_gpus(stream), start=1):
        power = Fields(value, f"gpu {number}").child("power")
        socket = power.values.get("socket_power")
        read = Fields(socket, power.place("socket_power")).number("value") if isinstance(socket, dict) else None
        if read is None:
            raise Refused("the power of a package was not read: a sum without it would be too low", where=power.where)
        watts.append(read)
    log = PowerLog("amd-smi", PowerScope.PACKAGE, (), len(watts), (sum(watts),) if watts else ())
    return power_parsed(log, (*TIME_ASKS, Ask.ACCELERATOR))


def _amd_gpus(stream: BinaryIO) -> Iterator[object]:
    for value in json_values(stream):
        listed = value.get("gpu_data") if isinstance(value, dict) else None
        if isinstance(listed, Array):
            yield from listed.items
        else:
            yield value
