"""Pydantic's errors in words that say what to send: a known field, an example, an object with its fields."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic.fields import FieldInfo

from service.api.unknown_fields import fields_at, unknown_field


def explained(error: Mapping[str, Any], form: Any) -> dict[str, Any]:
    """The error about a document of that form."""
    location = error["loc"]
    match error["type"]:
        case "extra_forbidden":
            return {**error, **unknown_field(location, list(fields_at(form, location[:-1])))}
        case "string_pattern_mismatch":
            example = next(_examples(fields_at(form, location[:-1]).get(str(location[-1]))), None)
            return {**error, "msg": f"it is not written as it should be, such as {example}"} if example else dict(error)
        case "model_type" | "model_attributes_type":
            return {**error, "msg": object_wanted(fields_at(form, location))}
        case "dict_type":
            return {**error, "msg": "an object is wanted"}
        case _:
            return dict(error)


def plain_message(error: Mapping[str, Any]) -> str:
    """Without the words that pydantic puts before those of our own checks."""
    return str(error["msg"]).removeprefix("Value error, ")


def object_wanted(fields: Mapping[str, FieldInfo]) -> str:
    """An example has what is required, else the first field of which there is an example.

    >>> object_wanted({"name": FieldInfo(default=None, examples=["vllm"]), "version": FieldInfo(default=None)})
    'an object is wanted, such as {"name": "vllm"}; its fields are name, version'
    """
    examples = {name: example for name, field in fields.items() for example in [*_examples(field)][:1]}
    required = {name: example for name, example in examples.items() if fields[name].is_required()}
    shown = required or dict([*examples.items()][:1])
    return f"an object is wanted{f', such as {json.dumps(shown)}' if shown else ''}; its fields are {', '.join(fields)}"


def _examples(form: Any) -> Iterator[Any]:
    """Of a field, or of a type that it is made of."""
    if isinstance(form, FieldInfo):
        yield from form.examples or ()
        form = form.annotation
    for part in get_args(form):
        yield from _examples(part)
