"""Pages go on where the last one ended, whatever has come or gone meanwhile."""

import pytest

from service.api.pages import CursorInvalid, page_of, read_cursor, write_cursor

QUESTION = {"vendor": "NVIDIA", "sort": "slug"}


def pages(items: list[str], *, limit: int, descending: bool = False) -> list[list[str]]:
    found, cursor = [], None
    while True:
        page, cursor = page_of(
            items, key=lambda item: (item,), question=QUESTION, limit=limit, cursor=cursor, descending=descending
        )
        found.append(page)
        if cursor is None:
            return found


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6])
def test_pages_hold_every_item_once_and_in_order(limit: int, descending: bool) -> None:
    items = ["c", "a", "e", "b", "d"]
    found = pages(items, limit=limit, descending=descending)
    assert [item for page in found for item in page] == sorted(items, reverse=descending)
    assert all(len(page) == limit for page in found[:-1])
    assert found[-1]


def test_an_empty_list_is_one_empty_page() -> None:
    assert pages([], limit=10) == [[]]


def test_items_that_come_or_go_between_pages_neither_repeat_nor_hide_others() -> None:
    first, cursor = page_of(["b", "c", "d"], key=lambda item: (item,), question=QUESTION, limit=2, cursor=None)
    second, _ = page_of(["a", "c", "d", "e"], key=lambda item: (item,), question=QUESTION, limit=2, cursor=cursor)
    assert (first, second) == (["b", "c"], ["d", "e"])


def test_items_of_equal_value_are_told_apart_by_the_rest_of_the_key() -> None:
    items = [(8e12, "b200"), (8e12, "gb200"), (3.35e12, "h100")]
    first, cursor = page_of(items, key=lambda item: item, question=QUESTION, limit=2, cursor=None)
    second, end = page_of(items, key=lambda item: item, question=QUESTION, limit=2, cursor=cursor)
    assert (first, second, end) == ([(3.35e12, "h100"), (8e12, "b200")], [(8e12, "gb200")], None)


@pytest.mark.parametrize("cursor", ["", "!", "e30", "bnVsbA", "WzEsMl0", "W10", "é", "A" * 999, "W1tbW1tb"])
def test_what_is_no_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(CursorInvalid):
        read_cursor(cursor, QUESTION)


def test_a_cursor_fits_its_own_question_only() -> None:
    cursor = write_cursor(("h100",), QUESTION)
    assert read_cursor(cursor, dict(reversed(QUESTION.items()))) == ("h100",)
    with pytest.raises(CursorInvalid, match="other filters"):
        read_cursor(cursor, {**QUESTION, "vendor": "AMD"})


def test_a_forged_key_of_another_type_is_refused() -> None:
    cursor = write_cursor((1.5,), QUESTION)
    with pytest.raises(CursorInvalid):
        page_of(["a"], key=lambda item: (item,), question=QUESTION, limit=1, cursor=cursor)
