"""Options made of a schema of the API: what a request may say can be said on the command line, in the same words.

A field ``gpu_count`` is the option ``--gpu-count``, its description the help. Left out, it is not said. What the API
answers names fields; ``in_options`` puts it in terms of the options.
"""

import argparse
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from service.api.explained_errors import explained, plain_message
from service.api.request_forms import UNION_TAGS

MARKED_FIELD = re.compile(r"`([a-z][a-z_]*)`")  # as the texts of the API write the name of a field


def add_options(parser: argparse.ArgumentParser, title: str, fields: Mapping[str, FieldInfo]) -> None:
    group = parser.add_argument_group(title)
    for name, field in fields.items():
        group.add_argument(option(name), help=_help(field), **_form(field.annotation))


def given(arguments: argparse.Namespace, fields: Iterable[str]) -> dict[str, Any]:
    """What was said, by field."""
    return {name: value for name in fields if (value := getattr(arguments, name)) is not None}


def option(name: str) -> str:
    """
    >>> option("gpu_count")
    '--gpu-count'
    """
    return "--" + name.replace("_", "-")


def option_at(path: Sequence[str | int], fields: Iterable[str]) -> str:
    """The option of the field at that place of the document: of a part of a field, or else of the whole.

    >>> fields = ("precision", "kv_cache", "nobody_knows")
    >>> option_at(("precision", "(object)", "kv_cache"), fields), option_at(("precision", "weights"), fields)
    ('--kv-cache', '--precision')
    >>> option_at(("nobody_knows", 3), fields)
    '--nobody-knows'
    """
    names = [str(part) for part in path if part not in UNION_TAGS]
    return option(next((name for name in reversed(names) if name in fields), names[0]))


def complaint(error: ValidationError, fields: Iterable[str], form: type[BaseModel]) -> str:
    """What cannot be used, option by option, in one line."""
    found = (explained(each, form) for each in error.errors(include_url=False, include_input=False))
    return "; ".join(f"{option_at(each['loc'], fields)}: {plain_message(each)}" for each in found)


def in_options(text: str, fields: Iterable[str]) -> str:
    """
    >>> in_options("it does not say `gpu_count`; see `serve.json`", ("gpu_count",))
    'it does not say --gpu-count; see `serve.json`'
    """
    return MARKED_FIELD.sub(lambda found: option(found[1]) if found[1] in fields else found[0], text)


def _form(annotation: Any) -> dict[str, Any]:
    """How the values of a type are written."""
    kinds = set(_kinds(annotation))
    if bool in kinds:
        return {"action": argparse.BooleanOptionalAction}
    action = "append" if list in kinds else "store"
    if int in kinds:
        return {"action": action, "type": int, "metavar": "N"}
    if float in kinds:
        return {"action": action, "type": float, "metavar": "X"}
    return {"action": action, "metavar": "WORD"}


def _help(field: FieldInfo) -> str:
    kinds = list(_kinds(field.annotation))
    words = [str(member) for kind in kinds if issubclass(kind, Enum) for member in kind]
    parts = (
        field.description,
        f"one of {', '.join(words)}" if words else None,
        "may be given several times" if list in kinds else None,
    )
    return "; ".join(filter(None, parts)).replace("%", "%%")


def _kinds(annotation: Any) -> Iterator[type[Any]]:
    """The types in an annotation, a list before what it lists."""
    if get_origin(annotation) is list:
        yield list
    if isinstance(annotation, type):
        yield annotation
    for part in get_args(annotation):
        yield from _kinds(part)
