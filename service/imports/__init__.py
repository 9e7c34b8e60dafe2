"""Result files of benchmark tools, read into runs; one file per tool. It knows no database and no HTTP."""

from service.imports.completion import Metadata
from service.imports.detection import HEAD_BYTES, detect_kind
from service.imports.importing import import_file, import_files
from service.imports.power_log import PowerLog
from service.imports.report import Ask, FileReport, Kind
from service.imports.run import (
    ConcurrencyBasis,
    ImportedRun,
    Meaning,
    Metric,
    Mlperf,
    Power,
    PowerScope,
    QualityFlag,
    Scenario,
    Statistic,
    StatisticKind,
)

__all__ = [
    "HEAD_BYTES",
    "Ask",
    "ConcurrencyBasis",
    "FileReport",
    "ImportedRun",
    "Kind",
    "Meaning",
    "Metadata",
    "Metric",
    "Mlperf",
    "Power",
    "PowerLog",
    "PowerScope",
    "QualityFlag",
    "Scenario",
    "Statistic",
    "StatisticKind",
    "detect_kind",
    "import_file",
    "import_files",
]
