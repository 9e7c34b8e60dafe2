"""``POST /sizing``: the question, and the way from it to the answer."""

from datetime import date
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Body, Request, Response
from pydantic import AfterValidator, Discriminator, Field
from pydantic_core import to_json

from service.api.layouts import LayoutRequest, layout_asked
from service.api.problems import (
    MalformedBody,
    MediaTypeNotSupported,
    RequestInvalid,
    named_in_body,
    problem_responses,
    within_body,
)
from service.api.request_forms import AsNumber, AsObject, AsWord, number_or_object, word_or_number, word_or_object
from service.api.sizing_answer import SizingAnswer
from service.api.sizing_document import sizing_document
from service.api.sizing_examples import EXAMPLES
from service.api.strict_json import Choice, RequestModel, StrictJsonRoute
from service.catalogue.live import LiveCatalogue
from service.catalogue.live_evidence import Evidence
from service.catalogue.snapshot import Snapshot
from service.errors import (
    ArchitectureNotSupported,
    ConfigInvalid,
    Invalid,
    ParallelismNotLegal,
    RateNotPublished,
    UnknownChoice,
)
from service.sizing.architectures import language_model_from_config
from service.sizing.energy import PowerScope
from service.sizing.engines.engine import plain_version
from service.sizing.language_model import LanguageModel
from service.sizing.plan import size
from service.sizing.precision import Density, Precision
from service.sizing.question import (
    EconomicsAsked,
    EngineAsked,
    PowerAsked,
    PrecisionAsked,
    SizingInputs,
    SpeculationAsked,
    WorkloadAsked,
)
from service.sizing.remarks import Assumption
from service.sizing.workload import Length, Statistic, Target

router = APIRouter(route_class=StrictJsonRoute, tags=["sizing"])

Positive = Annotated[float, Field(ge=1e-9, le=1e15)]
Watts = Annotated[float, Field(ge=1, le=1e6)]
Tokens = Annotated[int, Field(ge=1, le=100_000_000)]
RELEASE = r"^[vb]?[0-9]{1,9}(\.[0-9]{1,9}){0,5}[A-Za-z0-9.+_-]{0,30}$"
Name = Annotated[str, Field(min_length=1, max_length=200)]


def _calendar_date(text: str) -> str:
    """ISO 8601, and a day that exists."""
    return date.fromisoformat(text).isoformat()


CalendarDate = Annotated[
    str, Field(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$", examples=["2026-12-01"]), AfterValidator(_calendar_date)
]


class GivenConfig(RequestModel):
    config: dict[str, Any] = Field(description="a Hugging Face config.json; nothing in it is executed")


class PrecisionRequest(RequestModel):
    weights: Name | None = Field(
        None, description="numeric format or scheme of a checkpoint; left out, its own", examples=["fp8"]
    )
    kv_cache: Choice[Precision] | None = Field(
        None, description="fp32, bf16, fp16, fp8 or int8; left out, the checkpoint's or the engine's default"
    )
    compute: Choice[Precision] | None = Field(
        None, description="left out, the native rate of the weights' format if published, else 16 bits"
    )


class LengthPercentiles(RequestModel):
    p50: Tokens = Field(examples=[1024])
    p95: Tokens = Field(examples=[4096])


LengthRequest = Annotated[
    Annotated[Tokens, AsNumber] | Annotated[LengthPercentiles, AsObject],
    Discriminator(number_or_object),
    Field(description="a mean, or the 50th and 95th percentile of a log-normal length"),
]


class WorkloadRequest(RequestModel):
    isl_tokens: LengthRequest | None = Field(None, examples=[1024])
    osl_tokens: LengthRequest | None = None
    profile: Literal["1k-1k", "1k-8k", "8k-1k"] | None = Field(
        None, description="input and output of the InferenceX profiles, in place of both lengths"
    )
    concurrency: Annotated[int, Field(ge=1, le=10_000_000)] | None = Field(
        None,
        description="requests in flight in one replica, over all of its dp ranks or both of its pools",
    )
    request_rate_per_s: Positive | None = Field(None, description="in place of concurrency")
    cached_prefix_tokens: Annotated[int, Field(ge=0, le=100_000_000)] = 0


class TargetRequest(RequestModel):
    ttft_s: Positive | None = Field(None, examples=[2.0])
    tpot_s: Positive | None = None
    statistic: Choice[Statistic] | None = Field(None, description="left out, p50")


class EngineRequest(RequestModel):
    """A flag left out takes the engine version's own default on the device."""

    name: Name | None = Field(None, examples=["vllm"])
    version: (
        Annotated[str, Field(min_length=1, max_length=64, pattern=RELEASE), AfterValidator(plain_version)] | None
    ) = Field(None, description="of llama.cpp the build, such as b5000", examples=["0.33.0"])
    memory_fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    max_model_len_tokens: Tokens | None = None
    max_num_batched_tokens: Tokens | None = None
    max_num_seqs: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    prefix_caching: bool | None = None
    cuda_graphs: bool | None = None
    kv_cache_memory_bytes: Annotated[int, Field(ge=1, le=10**15)] | None = Field(
        None, description="of each GPU's KV cache, past the memory fraction"
    )
    decode_context_parallel_count: Annotated[int, Field(ge=1, le=1024)] | None = Field(
        None, description="tp ranks that divide the tokens of a request among them; speeds are not modelled above 1"
    )
    free_memory_bytes: Annotated[int, Field(ge=0, le=10**15)] | None = Field(
        None, description="of each GPU before the engine starts; left out, nothing else uses it"
    )


class SpeculationRequest(RequestModel):
    """A step verifies ``draft_tokens + 1`` positions and yields ``acceptance_length_tokens`` of them on average."""

    method: Literal["mtp", "eagle", "ngram"] = Field(examples=["mtp"])
    draft_tokens: int = Field(ge=1, le=64, examples=[3])
    acceptance_length_tokens: float = Field(ge=1, le=65, examples=[2.1])


class PowerRequest(RequestModel):
    limit_w_per_gpu: Watts | None = Field(None, examples=[700])
    pue: Annotated[float, Field(ge=1, le=5)] | None = None
    scope: Choice[PowerScope] = PowerScope.ACCELERATOR


class EconomicsRequest(RequestModel):
    """Prices are the caller's; there is no default."""

    usd_per_gpu_h: Positive = Field(examples=[3.0])
    usd_per_kwh: Positive | None = Field(None, description="left out, energy is not in the cost")
    on: CalendarDate | None = Field(None, description="date of the prices")


class SizingRequest(RequestModel):
    """Only ``model`` and ``accelerator`` are required; every default taken is listed in the answer."""

    model: Annotated[
        Annotated[Name, AsWord] | Annotated[GivenConfig, AsObject],
        Discriminator(word_or_object),
        Field(description="a slug, an alias, or a config.json under `config`", examples=["gpt-oss-120b"]),
    ]
    accelerator: Name = Field(description="a slug or an alias", examples=["gb200-nvl72"])
    precision: PrecisionRequest = PrecisionRequest()
    density: Choice[Density] = Density.DENSE
    parallelism: LayoutRequest = "auto"
    replica_count: Annotated[
        Annotated[Literal["fill"], AsWord] | Annotated[int, Field(ge=1, le=1_000_000), AsNumber],
        Discriminator(word_or_number),
        Field(description='"fill": as many as the system holds'),
    ] = 1
    workload: WorkloadRequest = WorkloadRequest()
    target: TargetRequest = TargetRequest()
    engine: EngineRequest = EngineRequest()
    speculation: SpeculationRequest | None = None
    power: PowerRequest = PowerRequest()
    economics: EconomicsRequest | None = None


@router.post(
    "/sizing",
    name="create_sizing",
    summary="Does it fit, how fast is it, at what power and cost?",
    response_model=SizingAnswer,
    responses=problem_responses(
        ArchitectureNotSupported,
        ConfigInvalid,
        Invalid,
        MalformedBody,
        MediaTypeNotSupported,
        ParallelismNotLegal,
        RateNotPublished,
        RequestInvalid,
        UnknownChoice,
    ),
)
async def create_sizing(
    request: Annotated[SizingRequest, Body(openapi_examples=EXAMPLES)],
    http: Request,
) -> Response:
    """Nothing is stored: the same question to the same catalogue and the same stored runs gives the same bytes.

    "Does not fit" is an answer, with the shortfall. Every block is present; what cannot be said is null, with a
    warning. Estimates carry an interval and what it rests on.
    """
    catalogue: LiveCatalogue = http.app.state.catalogue  # as a dependency it would cost as much as the search
    known = catalogue.current
    answer = sizing_answer(request, known.snapshot, known.evidence)
    return Response(_as_json(answer), media_type="application/json")


def _as_json(answer: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(answer)
    except orjson.JSONEncodeError:  # a whole number of more than 64 bits, of a config that no machine holds
        return to_json(answer)


def sizing_answer(request: SizingRequest, snapshot: Snapshot, evidence: Evidence | None) -> dict[str, Any]:
    """The answer as a document, also for the command line. Without ``evidence`` by physics alone."""
    with named_in_body("accelerator"):
        accelerator = snapshot.accelerator(request.accelerator)
    if isinstance(request.model, str):
        with named_in_body("model"):
            stored = snapshot.language_model(request.model)
        model = stored.model
    else:
        stored, model = None, _given_model(request.model)
    inputs = sizing_inputs(request, model=model, accelerator=accelerator.accelerator)
    result = size(inputs, evidence.store if evidence else None)
    return sizing_document(
        result,
        accelerator=accelerator,
        stored_model=stored,
        catalogue_revision=snapshot.revision,
        evidence=evidence,
        defaults=_defaults(request),
    )


def _defaults(request: SizingRequest) -> list[Assumption]:
    """Of this interface: what the request left out and the calculation was given all the same."""
    defaults = (
        (request, "density", "density", request.density.value, "sparse rates need a pruned model"),
        (request, "replica_count", "replica_count", request.replica_count, "one replica unless asked otherwise"),
        (request.power, "scope", "power.scope", request.power.scope.value, "the board alone unless asked otherwise"),
        (request.engine, "cuda_graphs", "engine.cuda_graphs", True, "the engines' default"),
    )
    return [
        Assumption(field, value, origin)
        for part, name, field, value, origin in defaults
        if name not in part.model_fields_set
    ]


def _given_model(given: GivenConfig) -> LanguageModel:
    with within_body("model"):
        return language_model_from_config(given.config, slug="given-config", name="the given config")


PROFILES = {"1k-1k": (1024, 1024), "1k-8k": (1024, 8192), "8k-1k": (8192, 1024)}


def sizing_inputs(request: SizingRequest, *, model: LanguageModel, accelerator: Any) -> SizingInputs:
    """The request in the calculation's own terms."""
    return SizingInputs(
        model=model,
        accelerator=accelerator,
        precision=PrecisionAsked(request.precision.weights, request.precision.kv_cache, request.precision.compute),
        density=request.density,
        parallelism=layout_asked(request.parallelism),
        replica_count=None if request.replica_count == "fill" else request.replica_count,
        workload=_workload(request.workload),
        target=Target(request.target.ttft_s, request.target.tpot_s, request.target.statistic),
        engine=_engine(request.engine),
        speculation=_speculation(request.speculation) if request.speculation else None,
        power=PowerAsked(request.power.limit_w_per_gpu, request.power.pue, request.power.scope),
        economics=_economics(request.economics) if request.economics else None,
    )


def _speculation(asked: SpeculationRequest) -> SpeculationAsked:
    return SpeculationAsked(asked.method, asked.draft_tokens, asked.acceptance_length_tokens)


def _economics(asked: EconomicsRequest) -> EconomicsAsked:
    return EconomicsAsked(asked.usd_per_gpu_h, asked.usd_per_kwh, asked.on)


def _workload(asked: WorkloadRequest) -> WorkloadAsked:
    if asked.concurrency is not None and asked.request_rate_per_s is not None:
        raise Invalid(
            "concurrency and request_rate_per_s are two ways to say the load; give one",
            field=("workload", "request_rate_per_s"),
        )
    isl, osl = _length(asked.isl_tokens, "isl_tokens"), _length(asked.osl_tokens, "osl_tokens")
    if asked.profile is not None:
        if isl or osl:
            raise Invalid(
                "a profile is both lengths; leave isl_tokens and osl_tokens out", field=("workload", "profile")
            )
        isl, osl = (Length(tokens) for tokens in PROFILES[asked.profile])
    return WorkloadAsked(isl, osl, asked.concurrency, asked.request_rate_per_s, asked.cached_prefix_tokens)


def _length(asked: int | LengthPercentiles | None, name: str) -> Length | None:
    if asked is None or isinstance(asked, int):
        return None if asked is None else Length(asked)
    if asked.p95 < asked.p50:
        raise Invalid("the 95th percentile lies below the 50th", field=("workload", name, "p95"))
    return Length.of_percentiles(p50_tokens=asked.p50, p95_tokens=asked.p95)


def _engine(asked: EngineRequest) -> EngineAsked:
    return EngineAsked(
        name=asked.name,
        version=asked.version,
        memory_fraction=asked.memory_fraction,
        max_model_len_tokens=asked.max_model_len_tokens,
        max_num_batched_tokens=asked.max_num_batched_tokens,
        max_num_seqs=asked.max_num_seqs,
        prefix_caching=asked.prefix_caching,
        cuda_graphs=asked.cuda_graphs,
        kv_cache_memory_bytes=asked.kv_cache_memory_bytes,
        decode_context_parallel_count=asked.decode_context_parallel_count,
        free_memory_bytes=asked.free_memory_bytes,
    )
