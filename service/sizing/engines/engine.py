"""What an engine's release does with memory, declared once per engine."""

import re
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
    NOTHING = "nothing"  # the cache of the asked context is allocated in full, whatever is free


class Constant(NamedTuple):
    """A measured number: ``plus_minus`` is the largest deviation in the logs that it was read from."""

    value: float
    plus_minus: float
    source: str


class Int8Scales(NamedTuple):
    """What an 8-bit integer cache keeps beside its elements: ``size_bytes`` for so many, or for each key and value."""

    size_bytes: int
    element_count: int | None


class Batching(NamedTuple):
    """How many tokens one step may hold, and how many sequences."""

    max_num_batched_tokens: int
    max_num_seqs: int


class Device(NamedTuple):
    """What engines look at when they choose their defaults."""

    memory_bytes: float
    is_reduced: bool  # A100 and GB10, which vLLM gives its smallest batches whatever their memory
    device_count: int


class Layering(StrEnum):
    """How the layers of a model share the cache."""

    GROUPS = "groups"  # one pool, layers in groups of equal size, each group drawing its own blocks
    UNIFORM = "uniform"  # one pool, every layer charged for every token
    SHARES = "shares"  # pools for all tokens, for windows and for states, in fixed proportions
    PER_LAYER = "per_layer"  # every layer keeps what it needs and no more


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """One release and what changed in it, compared by identity.

    ``memory_fraction`` of ``None`` is computed (``Engine.computed_fraction``). ``logit_bytes`` is the sampler's
    peak per sampled logit beside the element that the model itself writes. ``graphs_are_charged``: whether CUDA
    graphs come out of the KV budget. ``tokens_follow_concurrency``: whether the printed tokens are concurrency
    x maximum length. ``profiles_whole_prompts``: whether the profiling pass prefills a request of the maximum
    length. ``runtime_alone`` and ``runtime_together``: bytes outside the allocator on one device, and on each
    of several. ``experts_keep_workspace``: whether the buffers of the experts outlive their layer.
    ``has_latent_attention``: whether MLA models keep the latent, or keys and values of every head.
    ``keeps_scores``: attention writes out the scores of a batch. ``seen``: further versions whose logs close
    under these rules.
    """

    version: str
    memory_fraction: float | None
    logit_bytes: Constant
    runtime_alone: Constant
    runtime_together: Constant
    layering: Layering
    graphs_are_charged: bool = False
    tokens_follow_concurrency: bool = False
    profiles_whole_prompts: bool = False
    prefix_caching: bool = True
    experts_keep_workspace: bool = False
    has_latent_attention: bool = True
    keeps_scores: bool = False
    seen: tuple[str, ...] = ()

    def runtime(self, device_count: int) -> Constant:
        return self.runtime_alone if device_count == 1 else self.runtime_together


@dataclass(frozen=True, slots=True, eq=False)
class Engine:
    """A serving engine, compared by identity. ``releases`` ascend; ``source`` says where the constants were read.

    ``sampled_sequences_limit``: the most sequences whose logits stand in memory at once, where below the batch.
    """

    name: str
    title: str
    source: str
    fraction_of: FractionOf
    releases: tuple[Release, ...]
    block_tokens: int
    int8_scale_bytes: Int8Scales
    batching: Callable[[Device], Batching]
    sampled_sequences_limit: int | None = None
    has_speed_model: bool = True
    computed_fraction: Callable[[Device, Batching], float] | None = None

    def release(self, version: str | None) -> tuple[Release, bool]:
        """The newest known release at or below the asked one (else the oldest), and whether its rules are known.

        Left out, the newest.
        """
        if version is None:
            return self.releases[-1], True
        asked = version_key(version)
        older = [each for each in self.releases if version_key(each.version) <= asked]
        nearest = older[-1] if older else self.releases[0]
        return nearest, any(version_key(each) == asked for each in (nearest.version, *nearest.seen))

    def memory_fraction(self, release: Release, device: Device, batching: Batching) -> float:
        """The default on that device."""
        if release.memory_fraction is not None:
            return release.memory_fraction
        assert self.computed_fraction is not None  # noqa: S101 - declared with every release that states none
        return self.computed_fraction(device, batching)


TAG = re.compile(r"[vb](?=[0-9])")
NUMBERS = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?(?:\.([0-9]{1,9}))?")


def plain_version(version: str) -> str:
    """Without the letter that tags begin with, so that a release has one name.

    >>> plain_version("v0.9.1"), plain_version("b5000"), plain_version("beta")  # llama.cpp counts builds
    ('0.9.1', '5000', 'beta')
    """
    return version[1:] if TAG.match(version) else version


@lru_cache(maxsize=256)
def version_key(version: str) -> tuple[int, ...]:
    """Orders releases by their first three numbers; suffixes such as rc1, post3 or +cu121 are not told apart.

    What is left out is 0, and so is the x of "0.9.x". Empty for what does not begin with a number.

    >>> version_key("0.5.10.post1") > version_key("0.5.9"), version_key("v0.9") == version_key("0.9.0+cu121")
    (True, True)
    """
    found = NUMBERS.match(plain_version(version))
    return tuple(int(number or 0) for number in found.groups()) if found else ()
