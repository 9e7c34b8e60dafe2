"""Whatever is done to a real config, it gives a model or an error that names a field, and soon."""

import time
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.errors import ServiceError
from service.sizing.architectures import language_model_from_config
from service.sizing.cache import kv_cache_bytes, state_bytes_per_sequence
from service.sizing.language_model import active_parameter_count
from service.sizing.precision import Precision
from service.sizing.weight_schemes import stored_weights
from tests.sizing.architectures import family_facts, published_facts

LONGEST_S = 2.0  # far above what any of these takes; a hang or a product without end is what it catches

CONFIGS = [
    value
    for module in (published_facts, family_facts)
    for value in vars(module).values()
    if isinstance(value, dict) and "model_type" in value
]
HOSTILE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.integers(-3, 200),
    st.floats(),
    st.sampled_from(["", "auto", "0", "full_attention", "mamba", "MEM*", "\x00", "é" * 50]),
    st.lists(st.one_of(st.integers(-5, 200), st.text(max_size=3), st.none()), max_size=90),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document, the first of each list only."""
    found = [path] if path else []
    if isinstance(value, dict):
        for key, each in value.items():
            found += places(each, (*path, key))
    if isinstance(value, list) and value:
        found += places(value[0], (*path, 0))
    return found


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """The document with another value at a place; ``...`` takes the place away."""
    if not path:
        return new
    first, rest = path[0], path[1:]
    copy = dict(value) if isinstance(value, dict) else list(value)
    if new is ... and not rest:
        del copy[first]
    else:
        copy[first] = changed(value[first], rest, new)
    return copy


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(config=st.sampled_from(CONFIGS), data=st.data())
def test_a_spoilt_config_gives_a_model_or_says_what_is_wrong(config: dict[str, Any], data: st.DataObject) -> None:
    spoilt: Any = config
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(places(spoilt)))
        spoilt = changed(spoilt, path, data.draw(st.one_of(HOSTILE, st.just(...))))
    started = time.perf_counter()
    try:
        model = language_model_from_config(spoilt, slug="a-model", name="A model")
    except ServiceError as error:
        assert error.detail  # noqa: PT017 - either outcome is right
    else:
        assert active_parameter_count(model) >= 0
        assert stored_weights(model).total_bytes > 0
        assert kv_cache_bytes(model, context_tokens=1000, kv_cache=Precision.BF16) >= 0
        assert state_bytes_per_sequence(model, tp=2) >= 0
    assert time.perf_counter() - started < LONGEST_S
