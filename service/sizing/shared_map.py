"""A mapping that never changes, and of which another is made at the cost of what differs."""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

BUCKETS: Final = 1024  # a change copies their list and each that it touches: least where both are about as long


class SharedMap(Generic[K, V]):
    """Values by key, in buckets by the key's hash; ``changed`` shares the buckets that it does not touch."""

    __slots__ = ("_buckets",)

    def __init__(self) -> None:
        self._buckets: list[dict[K, V]] = [{}] * BUCKETS

    def __len__(self) -> int:
        return sum(map(len, self._buckets))

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self._buckets)

    def __contains__(self, key: K) -> bool:
        return key in self._buckets[hash(key) % BUCKETS]

    def __getitem__(self, key: K) -> V:
        return self._buckets[hash(key) % BUCKETS][key]

    def get(self, key: K) -> V | None:
        return self._buckets[hash(key) % BUCKETS].get(key)

    def values(self) -> Iterator[V]:
        return chain.from_iterable(bucket.values() for bucket in self._buckets)

    def items(self) -> Iterator[tuple[K, V]]:
        return chain.from_iterable(bucket.items() for bucket in self._buckets)

    def changed(self, changes: Mapping[K, V | None]) -> "SharedMap[K, V]":
        """With these values in place of those of the same keys; without the keys whose value is ``None``."""
        other: SharedMap[K, V] = SharedMap()
        other._buckets = list(self._buckets)
        own: set[int] = set()
        for key, value in changes.items():
            place = hash(key) % BUCKETS
            if place not in own:
                own.add(place)
                other._buckets[place] = dict(self._buckets[place])
            if value is None:
                other._buckets[place].pop(key, None)
            else:
                other._buckets[place][key] = value
        return other
