"""YAML read through the parser's events into the same bounded values as JSON.

Only what a program writes is read: no aliases, by which a short file can stand for an endless one, and no tags.
"""

from collections.abc import Iterator
from typing import Any, BinaryIO

import yaml

from service.imports.fields import number_in
from service.imports.json_stream import Builder, Event
from service.imports.report import Refused
from service.imports.text_stream import Utf8Reader, text_chunks

WORDS = {"null": None, "~": None, "": None, "true": True, "false": False}
NOT_FINITE = {".inf": "Infinity", "+.inf": "Infinity", "-.inf": "-Infinity", ".nan": "NaN"}
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def scalar(event: yaml.ScalarEvent) -> Any:
    """The value of a scalar; what stands in quotes is text."""
    text: str = event.value
    if event.style in ("'", '"', "|", ">"):
        return text
    lowered = text.lower()
    if lowered in WORDS:
        return WORDS[lowered]
    if lowered in NOT_FINITE:
        return NOT_FINITE[lowered]
    if text[:1].isdigit() or text[:1] in "+-.":
        read = number_in(text) if "," not in text else None
        if read is not None:
            return int(read) if read.is_integer() and text.lstrip("+-").isdigit() else read
    return text


def parser_events(stream: BinaryIO) -> Iterator[Event]:
    """The events of YAML's parser, named as those of the JSON parser."""
    expects_key: list[bool] = []

    def after_value() -> None:
        if expects_key:
            expects_key[-1] = not expects_key[-1] if in_map[-1] else False

    in_map: list[bool] = []
    for event in yaml.parse(Utf8Reader(text_chunks(stream)), Loader=LOADER):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise Refused("the file uses YAML anchors; write it without")
        match event:
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                if in_map and in_map[-1] and expects_key[-1]:
                    raise Refused("a key is not a text")
                is_map = isinstance(event, yaml.MappingStartEvent)
                in_map.append(is_map)
                expects_key.append(is_map)
                yield ("start_map" if is_map else "start_array"), None
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                expects_key.pop()
                yield ("end_map" if in_map.pop() else "end_array"), None
                after_value()
            case yaml.ScalarEvent():
                is_key = bool(in_map) and in_map[-1] and expects_key[-1]
                yield ("map_key" if is_key else "scalar"), (event.value if is_key else scalar(event))
                after_value()


def yaml_values(stream: BinaryIO) -> Iterator[Any]:
    """Each document of the file."""
    try:
        yield from Builder().values(parser_events(stream))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}" if mark else None
        raise Refused(f"this is not YAML ({getattr(error, 'problem', None) or 'malformed'})", where=where) from None
    except RecursionError:
        raise Refused("the nesting is too deep") from None
