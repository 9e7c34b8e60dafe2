from service.sizing.shared_map import BUCKETS, SharedMap


def test_a_change_makes_another_and_leaves_the_first_as_it_was() -> None:
    first = SharedMap[int, str]().changed({1: "one", 2: "two", 1 + BUCKETS: "in the bucket of one"})
    second = first.changed({1: None, 2: "zwei", 3: "three"})
    assert dict(first.items()) == {1: "one", 2: "two", 1 + BUCKETS: "in the bucket of one"}
    assert dict(second.items()) == {2: "zwei", 3: "three", 1 + BUCKETS: "in the bucket of one"}
    assert (len(first), len(second)) == (3, 3)
    assert (first.get(3), second[3], 1 in second) == (None, "three", False)


def test_taking_away_what_is_not_there_changes_nothing() -> None:
    assert list(SharedMap[int, str]().changed({1: None})) == []


def test_only_the_buckets_that_a_change_touches_are_copied() -> None:
    first = SharedMap[int, int]().changed({key: key for key in range(3 * BUCKETS)})
    second = first.changed({5: 0, 5 + BUCKETS: 0, 6: 0})
    copied = [place for place in range(BUCKETS) if first._buckets[place] is not second._buckets[place]]
    assert copied == [5, 6]  # 5 and 5 + BUCKETS share one
