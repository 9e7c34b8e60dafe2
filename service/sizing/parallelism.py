"""How one replica of a model is spread over GPUs."""

from typing import NamedTuple


class Parallelism(NamedTuple):
    """Tensor, pipeline, expert and (attention) data parallelism of one replica.

    A replica has ``tp * pp * dp`` devices. Expert parallelism spreads whole experts over ``ep`` of the
    ``tp * dp`` devices of a stage; it adds no devices of its own.
    """

    tp: int = 1
    pp: int = 1
    ep: int = 1
    dp: int = 1

    @property
    def device_count(self) -> int:
        return self.tp * self.pp * self.dp
