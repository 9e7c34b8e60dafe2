"""What an engine's release does with memory, declared once per engine."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

GIB = 2**30


class FractionOf(StrEnum):
    """What the engine's memory fraction is a fraction of: the same 0.9 means three different things."""

    TOTAL = "total"  # of all memory; weights, activations and graphs are inside
    FREE_BEFORE_LOAD = "free_before_load"  # weights are inside, activations and graphs outside
    FREE_AFTER_LOAD = "free_after_load"  # of what weights, activations and graphs leave


class Batching(NamedTuple):
    """How many tokens one step may hold, and how many sequences; ``None`` sets no limit of its own."""

    max_num_batched_tokens: int
    max_num_seqs: int


@dataclass(frozen=True, slots=True)
class Release:
    """One release and what changed in it.

    ``logit_bytes``: peak bytes per sampled logit. ``graphs_are_charged``: whether CUDA graphs come out of the
    KV budget. ``tokens_follow_concurrency``: whether the printed tokens are concurrency x maximum length.
    """

    version: str
    memory_fraction: float
    logit_bytes: int
    graphs_are_charged: bool
    tokens_follow_concurrency: bool


@dataclass(frozen=True, slots=True, eq=False)
class Engine:
    """A serving engine, compared by identity. ``releases`` ascend; ``source`` says where the constants were read."""

    name: str
    title: str
    source: str
    fraction_of: FractionOf
    releases: tuple[Release, ...]
    block_tokens: int
    pools_layers_in_groups: bool
    batching: Callable[[float, bool], Batching]
    runtime_bytes: Callable[[int], float]
    graph_bytes: float

    def release(self, version: str | None) -> tuple[Release, bool]:
        """The newest known release at or below the asked one (else the oldest), and whether it is exactly that.

        Left out, the newest.
        """
        if version is None:
            return self.releases[-1], True
        asked = version_key(version)
        older = [each for each in self.releases if version_key(each.version) <= asked]
        nearest = older[-1] if older else self.releases[0]
        return nearest, version_key(nearest.version) == asked


@lru_cache(maxsize=256)
def version_key(version: str) -> tuple[int, ...]:
    """Orders releases by their leading numbers; suffixes such as rc1 or post3 are not told apart.

    >>> version_key("0.5.10.post1") > version_key("0.5.9")
    True
    """
    numbers = []
    for part in version.lstrip("v").split("."):
        digits = "".join(character for character in part if character.isdigit()) if part[:1].isdigit() else ""
        if not digits:
            break
        numbers.append(int(digits[:9]))
    return tuple(numbers)
