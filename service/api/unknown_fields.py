"""A field or parameter that nobody knows is refused, and the refusal says which one is meant, or which there are."""

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo

UNKNOWN = "unknown_field"  # of the error, as pydantic's types are
LONGEST_NAME = 100


def unknown_field(location: Sequence[str | int], known: Sequence[str]) -> dict[str, Any]:
    """The error, in pydantic's form."""
    return {"type": UNKNOWN, "loc": tuple(location), "msg": unknown(str(location[-1]), known)}


def unknown(name: str, known: Sequence[str]) -> str:
    """What to say of a name that is not among the known ones.

    >>> unknown("gpu_cuont", ["gpu_count", "isl_tokens"]), unknown("isl", ["gpu_count", "isl_tokens"])
    ('not known here; did you mean gpu_count?', 'not known here; did you mean isl_tokens?')
    >>> unknown("tp", ["tp", "prefill"])
    'does not go with the other fields here'
    >>> unknown("colour", ["gpu_count", "isl_tokens"]), unknown("colour", [])
    ('not known here; known are gpu_count, isl_tokens', 'not known here; nothing can be given')
    """
    if name in known:
        return "does not go with the other fields here"
    asked = name.lower().replace("-", "_")[:LONGEST_NAME]
    near = get_close_matches(asked, known, n=1) or [each for each in known if asked and each.startswith(asked)]
    if near:
        return f"not known here; did you mean {' or '.join(near)}?"
    return f"not known here; known are {', '.join(known)}" if known else "not known here; nothing can be given"


def fields_at(form: Any, path: Iterable[str | int] = ()) -> dict[str, FieldInfo]:
    """Of the models that may stand there. What names no field, as an index or the tag of a form, is passed.

    >>> class Layout(BaseModel):
    ...     tp: int
    >>> class Question(BaseModel):
    ...     layouts: list[Layout] | None
    >>> list(fields_at(Question)), list(fields_at(Question, ("layouts", 0)))
    (['layouts'], ['tp'])
    """
    models = list(_models(form))
    for part in path:
        models = [
            below
            for model in models
            if part in model.model_fields
            for below in _models(model.model_fields[str(part)].annotation)
        ] or models
    return {name: field for model in models for name, field in model.model_fields.items()}


def _models(form: Any) -> Iterator[type[BaseModel]]:
    """The form itself, or the members of a union or list or of several forms, as far as they are models."""
    if isinstance(form, type) and issubclass(form, BaseModel):
        yield form
    for part in form if isinstance(form, tuple) else get_args(form):
        yield from _models(part)
