"""The one list of endings that the name of a number may have (STYLE.md, Units)."""

import re

BASE = r"(bytes|s|tokens|flop|w|j|h|kwh|usd|count|counts|fraction|probability|requests|parameters)"
PER = "byte|s|token|flop|w|gpu|sequence|h|kwh|replica|parameter|rank|layer|user|input_token|output_token"
RATE = rf"{BASE}(_per_({PER}))*"
QUALIFIER = r"(_(total|one_way|per_gpu|per_sequence|at_batch|below))*"
MEASURED = re.compile(rf"(.*_)?{RATE}{QUALIFIER}")

# Dimensionless, and named by what they are.
BARE = re.compile(
    r"(.*_)?(tp|pp|ep|dp|batch|batches|concurrency|mfu|mbu|pue|revision|limit|port|index)"
    r"|p50|p95|hidden_size|vocabulary_size|(.*_)?dies_per_gpu|(.*_)?devices_per_gpu|experts_per_token"
    r"|(.*_)?num_seqs|(.*_)?(width|rows|columns)|usd_per_(h|kwh|gpu_h|(input|cached_input|output)_token)|minimum_(memory|bandwidth)_.*_per_gpu"
)


def names_its_unit(name: str) -> bool:
    """
    >>> [names_its_unit(name) for name in ("ttft_s", "bandwidth_bytes_per_s_per_gpu_one_way", "mfu", "usd_per_kwh")]
    [True, True, True, True]
    >>> [names_its_unit(name) for name in ("ttft_ms", "memory_gb", "bandwidth", "latency", "load_percent")]
    [False, False, False, False, False]
    """
    return bool(MEASURED.fullmatch(name) or BARE.fullmatch(name))
