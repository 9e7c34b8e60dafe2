"""Published engine start-ups, as facts: what was asked and what the engine printed (``data/memory_cases.yaml``)."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.catalogue.snapshot import Snapshot
from service.catalogue.sources import read_catalogue_yaml
from service.sizing.accelerator import Accelerator
from service.sizing.architectures import language_model_from_config
from service.sizing.language_model import (
    Component,
    LanguageModel,
    Sharding,
    StoredTensor,
    WeightTensor,
    parameter_counts,
)
from service.sizing.parallelism import Parallelism
from service.sizing.precision import Precision
from service.sizing.question import EngineAsked, PrecisionAsked, SizingInputs, SpeculationAsked, WorkloadAsked
from service.sizing.workload import Length

SHIPPED_CASES = Path(__file__).parent / "data" / "memory_cases.yaml"
GIB = 2**30
ANY_ACCELERATOR = "h100-sxm"  # stands in where a log does not name its device, and only its pool is looked at


class CasePart(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CaseModel(CasePart):
    """The shape of a model that the catalogue does not ship."""

    name: str
    config: dict[str, Any]
    total_parameter_count: int | None = Field(None, description="published; the rest of it is a replicated tower")


class CaseLayout(CasePart):
    tp: int = 1
    pp: int = 1
    ep: int = 1
    dp: int = 1


class CaseEngine(CasePart):
    name: str
    version: str
    memory_fraction: float | None = None
    max_model_len_tokens: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    prefix_caching: bool | None = None
    cuda_graphs: bool | None = None
    free_memory_gib: float | None = None


class Printed(CasePart):
    """Per rank; absent what the log does not show."""

    total_gib: float | None = None
    weight_gib: float | None = None
    activation_gib: float | None = None
    runtime_gib: float | None = None
    graph_gib: float | None = None
    graph_estimate_gib: float | None = None
    pool_gib: float | None = None
    needed_gib: float | None = None
    tokens: int | None = None
    blocks: int | None = None
    block_tokens: int | None = None
    concurrency: float | None = None
    longest_tokens: int | None = None
    cache_mib: float | None = None
    compute_buffer_mib: float | None = None


class CitedPage(CasePart):
    title: str
    url: str


class MemoryCase(CasePart):
    """``known_difference`` says, for a figure, why the log and the accounting cannot agree."""

    id: str
    family: Literal["dense", "moe", "multimodal", "hybrid"]
    model: str | None = None
    weights: str | None = None
    kv_cache: Precision | None = None
    accelerator: str | None = None
    layout: CaseLayout = CaseLayout()
    engine: CaseEngine
    engine_as_printed: str | None = None
    draft_tokens: int = 0
    drafter_keeps_cache: bool = True
    printed: Printed
    starts: bool
    fraction_stated: bool = True
    not_computed: str | None = None
    note: str | None = None
    known_difference: dict[Literal["tokens", "pool", "outcome"], str] = {}
    source: CitedPage

    @property
    def is_held_out(self) -> bool:
        """Constants were set on the cases with odd numbers."""
        return int(self.id.rpartition("-")[2]) % 2 == 0


class MemoryCases(CasePart):
    models: dict[str, CaseModel]
    cases: tuple[MemoryCase, ...]


@cache
def load_memory_cases() -> MemoryCases:
    return MemoryCases.model_validate(read_catalogue_yaml(SHIPPED_CASES))


def case_model(name: str, models: Mapping[str, CaseModel], snapshot: Snapshot) -> LanguageModel:
    """Of the catalogue, or out of the shape that the cases bring."""
    given = models.get(name)
    if given is None:
        return snapshot.language_model(name).model
    model = language_model_from_config(given.config, slug=name, name=given.name)
    if given.total_parameter_count is None:
        return model
    rest = given.total_parameter_count - sum(parameter_counts(model.tensors).values())
    tower = WeightTensor("vision_tower", Component.VISION, (rest,), sharding=Sharding.REPLICATED)
    return replace(
        model,
        tensors=(*model.tensors, tower),
        checkpoint=(*model.checkpoint, StoredTensor(tower, Precision.BF16.value)),
    )


def case_inputs(case: MemoryCase, model: LanguageModel, accelerator: Accelerator) -> SizingInputs:
    """The question that the start-up answered: one request of a single token in and out."""
    engine, layout = case.engine, case.layout
    return SizingInputs(
        model=model,
        accelerator=accelerator,
        precision=PrecisionAsked(weights=case.weights, kv_cache=case.kv_cache),
        parallelism=Parallelism(layout.tp, layout.pp, layout.ep, layout.dp),
        workload=WorkloadAsked(isl=Length(1), osl=Length(1)),
        engine=EngineAsked(
            name=engine.name,
            version=engine.version,
            memory_fraction=engine.memory_fraction,
            max_model_len_tokens=engine.max_model_len_tokens,
            max_num_batched_tokens=engine.max_num_batched_tokens,
            max_num_seqs=engine.max_num_seqs,
            prefix_caching=engine.prefix_caching,
            cuda_graphs=engine.cuda_graphs,
            free_memory_bytes=None if engine.free_memory_gib is None else engine.free_memory_gib * GIB,
        ),
        speculation=_speculation(case),
    )


def _speculation(case: MemoryCase) -> SpeculationAsked | None:
    """A drafter that reads the model's own cache keeps as little as looking up n-grams does."""
    if not case.draft_tokens:
        return None
    return SpeculationAsked("mtp" if case.drafter_keeps_cache else "ngram", case.draft_tokens, 1.0)


def case_accelerator(case: MemoryCase, snapshot: Snapshot) -> Accelerator:
    return snapshot.accelerator(case.accelerator or ANY_ACCELERATOR).accelerator
