"""What identifies a measured run, and where in its configuration it lies: what makes two runs alike."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp
from typing import Final, NamedTuple

from service.sizing.accelerator import Accelerator, Topology
from service.sizing.language_model import Component, LanguageModel, parameter_counts
from service.sizing.parallelism import Parallelism
from service.sizing.precision import Precision
from service.sizing.run_terms import Phase
from service.sizing.weight_schemes import SCHEMES

# Beyond, a log residual says more about the record than about the machine.
QUARANTINE: Final[Mapping[Phase, float]] = {phase: 1.8 if phase is Phase.TTFT else 1.2 for phase in Phase}


class EngineFlags(NamedTuple):
    """What was said of the engine's settings that change its speed; ``None`` is the default of its release."""

    speculation: str | None = None
    kv_cache: Precision | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    prefix_caching: bool | None = None

    @property
    def is_drafted(self) -> bool:
        return self.speculation not in (None, "none")


NO_FLAGS: Final = EngineFlags()


@dataclass(frozen=True, slots=True)
class Configuration:
    """What identifies a run besides its load. ``None`` is unknown and equals nothing.

    ``architecture`` is the same for models of one shape, ``family`` for accelerators of one generation with the same
    kind of fabric. ``campaign`` is who measured; a question has none. ``hardware_group`` is whose coverage was measured
    together.
    """

    phase: Phase
    accelerator: str
    architecture: str
    engine: str | None
    engine_version: str | None
    weight_class: str
    kind: str
    family: str
    layout: tuple[int, int, int, int]
    device_count: int
    is_drafted: bool = False
    flags: EngineFlags = NO_FLAGS
    campaign: str | None = None
    hardware_group: str | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """Where in its configuration a run or question lies, and what its predicted time consists of."""

    batch: float
    isl_tokens: float
    osl_tokens: float
    shares: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """One measured time. ``log_residual`` is ln(measured / predicted): above 0 it was slower."""

    id: str
    configuration: Configuration
    point: Point
    log_residual: float
    measured_s: float

    @property
    def predicted_s(self) -> float:
        """By physics alone."""
        return self.measured_s / exp(self.log_residual)

    @property
    def is_quarantined(self) -> bool:
        """So far off that it says more about the record than about the machine."""
        return abs(self.log_residual) > QUARANTINE[self.configuration.phase]


@lru_cache(maxsize=1024)
def architecture_id(model: LanguageModel) -> str:
    """The same for models of the same layers, whatever their vocabulary: Llama 3, 3.1 and 3.3 70B are one."""
    counts = parameter_counts(model.tensors)
    body = sum(counts[each] for each in (Component.ATTENTION, Component.MLP, Component.EXPERTS, Component.STATE_SPACE))
    return (
        f"{model.layer_count}x{model.hidden_size}-{model.attention_head_count}/{model.kv_head_count}"
        f"-{model.expert_count}/{model.experts_per_token}-{body}"
    )


def hardware_family(accelerator: Accelerator) -> str:
    """Generation and kind of fabric: an H100 on a switch and one on PCIe err apart.

    Every member of a generation shares a first word ("Blackwell", "Blackwell Ultra"; "CDNA 3", "CDNA 4").
    """
    fabric = accelerator.scale_up.topology
    on_fabric = fabric in (Topology.SWITCHED, Topology.DIRECT, Topology.TORUS, Topology.RING)
    return f"{accelerator.architecture.split()[0]} {'fabric' if on_fabric else 'host bus'}"


DATA_CENTRE, GEFORCE = "NVIDIA data centre", "NVIDIA GeForce"
HOST_BUS_CARDS, OLDER = "NVIDIA workstation and inference cards", "NVIDIA Volta and Turing"
INSTINCT, RADEON = "AMD Instinct", "AMD Radeon"


def hardware_group(accelerator: Accelerator) -> str:
    """Parts whose speeds are off alike: a vendor, or a class of parts of one that most runs are on."""
    if accelerator.vendor == "AMD":
        return INSTINCT if accelerator.architecture.startswith("CDNA") else RADEON
    if accelerator.vendor != "NVIDIA":
        return accelerator.vendor
    if "GeForce" in accelerator.name:
        return GEFORCE
    if accelerator.architecture.startswith(("Volta", "Turing")):
        return OLDER
    return HOST_BUS_CARDS if hardware_family(accelerator).endswith("host bus") else DATA_CENTRE


def weight_class(scheme: str) -> str:
    """How matrices are stored and multiplied, as far as errors of speed go."""
    if scheme.startswith("gguf"):
        return "gguf"
    layout = SCHEMES[scheme]
    bits = layout.element.element_bytes * 8
    if bits == 4:
        return "4" if layout.compute is not None else "int4"
    return "8" if bits == 8 else "16"


def model_kind(model: LanguageModel) -> str:
    if not model.is_moe:
        return "dense"
    return "mla moe" if model.has_latent_attention else "moe"


def as_question(configuration: Configuration) -> Configuration:
    """As one who has not measured it yet would ask: of no campaign."""
    return replace(configuration, campaign=None)


@lru_cache(maxsize=1024)
def configuration_of(
    *,
    phase: Phase,
    accelerator: Accelerator,
    model: LanguageModel,
    engine: str | None,
    engine_version: str | None,
    scheme: str,
    parallelism: Parallelism,
    device_count: int,
    is_drafted: bool = False,
    flags: EngineFlags = NO_FLAGS,
    campaign: str | None = None,
) -> Configuration:
    return Configuration(
        phase=phase,
        accelerator=accelerator.slug,
        architecture=architecture_id(model),
        engine=engine.lower() if engine else None,
        engine_version=engine_version,
        weight_class=weight_class(scheme),
        kind=model_kind(model),
        family=hardware_family(accelerator),
        layout=(parallelism.tp, parallelism.pp, parallelism.dp, parallelism.ep),
        device_count=device_count,
        is_drafted=is_drafted,
        flags=flags,
        campaign=campaign,
        hardware_group=hardware_group(accelerator),
    )
