"""What the model routes take and answer, as the contract declares it."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, Field

from service.api.accelerator_schemas import SourceRead
from service.api.pages import MAX_LIMIT
from service.api.strict_json import Choice, RequestModel
from service.catalogue.accelerator_records import Slug
from service.catalogue.checkpoint_uploads import CheckpointKind
from service.catalogue.model_records import ConfigKind, ModelName
from service.catalogue.tables import Event, Origin
from service.sizing.checkpoint_file import WeightBytesSource
from service.sizing.language_model import LayerKind
from service.sizing.precision import Precision

MAX_CONTEXT_TOKENS = 1_000_000_000
MAX_TP = 100_000

Config = Annotated[
    dict[str, Any],
    Field(description="the checkpoint's config.json as it is: read, never executed. Infinity and NaN may stand in it"),
]


class CheckpointGiven(RequestModel):
    """Of the checkpoint's own files, for exact bytes; only sizes and names are read, and nothing is executed.

    Made so: `gzip -c model.safetensors.index.json | base64 -w0`. A GGUF header is the file's first bytes, up to the end
    of its list of tensors (a few megabytes).
    """

    kind: Choice[CheckpointKind] = Field(
        description="`model.safetensors.index.json`, the headers of all safetensors files, or a GGUF file's header"
    )
    content_base64: list[str] = Field(
        min_length=1,
        max_length=1000,
        description="each content in base64, compressed with gzip or not, at most 24 MiB unpacked together: one index, "
        "one GGUF header, or a header for each safetensors file (its JSON, or the file's first bytes up to its end)",
    )


class LanguageModelReplacement(RequestModel):
    """A model by its config.json, with or without what its files say of their sizes."""

    config: Config
    checkpoint: CheckpointGiven | None = Field(
        None, description="left out, the weights' bytes follow from the shapes and the quantisation in the config"
    )
    aliases: list[ModelName] = Field(default=[], max_length=50, description="further names, slashes allowed")
    name: str | None = Field(None, pattern=r"\S", max_length=200, description="for display; left out, the slug")


class LanguageModelCreate(LanguageModelReplacement):
    """A new model by its config.json."""

    slug: Slug = Field(
        description="the name in paths: lower case, digits, dots and dashes", examples=["llama-3.3-70b-instruct"]
    )


class MemoryQuestion(BaseModel):
    """Query parameters of a model's memory."""

    context_tokens: int = Field(8192, ge=1, le=MAX_CONTEXT_TOKENS, description="of the one sequence that is cached")
    kv_cache: Precision = Field(Precision.BF16, description="format of the KV cache")
    tp: int = Field(1, ge=1, le=MAX_TP, description="tensor-parallel ranks; cache and layers are then of one rank")


class ReadQuestion(BaseModel):
    """Query parameters of one model."""

    revision: int | None = Field(None, ge=1, le=2**31 - 1, description="an older one; left out, the newest")


class ListQuestion(BaseModel):
    """Query parameters of the list of models."""

    family: str | None = Field(None, max_length=200, description="`model_type` of the config.json, such as `llama`")
    name: str | None = Field(
        None, max_length=200, description="slug or alias, exactly; one that means several models is refused with them"
    )
    limit: int = Field(50, ge=1, le=MAX_LIMIT, description="records per page")
    cursor: str | None = Field(None, max_length=1000, description="`next_cursor` of the page before, same filters")


class ParameterCounts(BaseModel):
    """Parameters of the checkpoint: tied matrices once; `router_bias` and `mtp` stand apart from `total`."""

    total: int
    active: int = Field(description="that one token passes through, embedding and head included")
    embedding: int
    lm_head: int
    attention: int
    mlp: int
    experts: int
    shared_experts: int
    router: int
    state_space: int
    vision: int
    other: int
    router_bias: int
    mtp: int


class LanguageModelSummary(BaseModel):
    """Figures are null only where this release cannot read the stored config."""

    slug: str
    aliases: list[str]
    ambiguous_aliases: list[str] = Field(description="names that also mean other models, and are refused for that")
    name: str
    family: str | None
    revision: int
    total_parameter_count: int | None
    active_parameter_count: int | None
    max_context_tokens: int | None
    checkpoint_scheme: str | None = Field(description="how the checkpoint stores its weights")
    checkpoint_weight_bytes: int | None = Field(description="of the checkpoint's weights, drafting layers apart")
    weight_bytes_source: WeightBytesSource | None = Field(
        description="of `checkpoint_weight_bytes`: the config's shapes, or the checkpoint's own files"
    )


class LanguageModelRead(LanguageModelSummary):
    origin: Origin = Field(description="of this revision: shipped with a release, or written by a user")
    retired_at: datetime | None
    config_kind: ConfigKind = Field(description="where the config's facts come from")
    layer_count: int | None
    hidden_size: int | None
    vocabulary_size: int | None
    attention_head_count: int | None
    kv_head_count: int | None
    expert_count: int | None
    experts_per_token: int | None
    tied_embedding: bool | None
    checkpoint_kv_cache: Precision | None = Field(description="that the checkpoint asks for, if it does")
    parameter_counts: ParameterCounts | None
    config: dict[str, Any]
    note: str | None
    sources: list[SourceRead]


class CacheMemoryRead(BaseModel):
    """Of one sequence on one of the `tp` ranks."""

    ideal_bytes: int = Field(description="each layer keeping no more than its window")
    engine_bytes: int = Field(description="every layer charged for every token, as engines may")
    bytes_per_token: int = Field(description="what one more token adds below every window")
    source_bytes_per_token: int = Field(
        description="what cross-attention keeps for each position of an encoder or an image, beside the context"
    )
    state_bytes_per_sequence: int = Field(description="recurrent and convolution state, constant in the context")


class LayerMemoryRead(BaseModel):
    kind: LayerKind
    count: int
    kv_bytes_per_token: int = Field(description="of one layer on one rank")
    window_tokens: int | None
    source_kv_bytes_per_token: int = Field(description="of one layer, for each position of an encoder or an image")


class MemoryRowRead(BaseModel):
    """A line of the sum, for checking by hand."""

    component: str = Field(description="that the tensors are for, or `kv_cache` or `state`")
    formula: str = Field(
        description="multiplies out to `element_count`; `state` on one rank of several, before division"
    )
    element_count: int
    formats: list[str] = Field(description="that the elements are stored in, scales included in the bytes")
    size_bytes: int = Field(description="weights: of the whole model; cache and state: of one sequence on one rank")


class LanguageModelMemory(BaseModel):
    slug: str
    revision: int
    context_tokens: int
    kv_cache_precision: Precision
    tp: int
    parameter_counts: ParameterCounts
    weight_bytes: dict[str, int] = Field(description="of the whole model by scheme; `checkpoint` is as published")
    weight_bytes_source: WeightBytesSource = Field(description="of the `checkpoint` figure")
    kv_cache: CacheMemoryRead
    layers: list[LayerMemoryRead]
    rows: list[MemoryRowRead] = Field(description="weights as the checkpoint stores them, then cache and state")


class LanguageModelRevisionRead(BaseModel):
    revision: int
    event: Event
    origin: Origin
    created_at: datetime


class LanguageModelRevisions(BaseModel):
    slug: str
    revisions: list[LanguageModelRevisionRead] = Field(description="newest first")


class ModelArchitectures(BaseModel):
    items: list[str] = Field(description="`model_type` values of config.json files that are modelled exactly")
