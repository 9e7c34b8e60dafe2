"""Which of several forms was sent, so that an error speaks of that form alone; problems leave the tag out."""

from typing import Any, Final

from pydantic import Tag

from service.api.strict_json import RequestModel

WORD, NUMBER, OBJECT, POOLS = "(word)", "(number)", "(object)", "(pools)"
UNION_TAGS: Final = (WORD, NUMBER, OBJECT, POOLS)  # in pydantic's paths, not in the body
AsWord, AsNumber, AsObject, AsPools = (Tag(each) for each in UNION_TAGS)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict | RequestModel)


def word_or_object(value: Any) -> str:
    return OBJECT if _is_object(value) else WORD


def number_or_object(value: Any) -> str:
    return OBJECT if _is_object(value) else NUMBER


def word_or_number(value: Any) -> str:
    return WORD if isinstance(value, str) else NUMBER
