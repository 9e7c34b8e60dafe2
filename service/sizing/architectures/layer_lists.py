"""Lists in a config that say of each layer what it is."""

from collections.abc import Iterable

from service.sizing.architectures.building_blocks import Layers
from service.sizing.architectures.config_reader import ConfigReader


def layers_by_word(config: ConfigReader, name: str, words: Iterable[str], layer_count: int) -> dict[str, Layers]:
    """The layers that a list of words marks with each of the known ones; the list must cover every layer."""
    known, stated = tuple(words), config.texts(name)
    if stated is None:
        raise config.refuse(name, "is missing, and nothing else says what the layers are")
    if len(stated) != layer_count:
        raise config.refuse(name, f"names {len(stated)} layers, but there are {layer_count}")
    unknown = next((each for each in stated if each not in known), None)
    if unknown is not None:
        raise config.refuse(name, f"holds {unknown[:60]!r}; known here are {', '.join(known)}")
    return {word: tuple(i for i, each in enumerate(stated) if each == word) for word in known}


def layers_with_experts(config: ConfigReader, layer_count: int, layers: Layers) -> Layers:
    """Those that ``mlp_layer_types`` marks, where the file has it, otherwise those of the family's rule."""
    if not config.has("mlp_layer_types"):
        return layers
    return layers_by_word(config, "mlp_layer_types", ("sparse", "dense"), layer_count)["sparse"]
