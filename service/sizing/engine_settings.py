"""An engine's flags: as asked, or the release's own default on the device, with its origin."""

from service.errors import Invalid, UnknownChoice
from service.sizing.accelerator import Accelerator
from service.sizing.engines import ENGINES
from service.sizing.engines.engine import Batching, Device, Engine, FractionOf, Release
from service.sizing.language_model import LanguageModel
from service.sizing.question import EngineAsked, Installed, SizingInputs
from service.sizing.rank_memory import EngineSettings
from service.sizing.remarks import Remarks, WarningCode

DEFAULT_ENGINE = "vllm"
REDUCED_BATCHING = ("a100", "dgx-spark-gb10")  # vLLM gives these its smallest batches whatever their memory
LONGEST_UNCHUNKED_TOKENS = 32_768  # beyond it vLLM V0 chunked prompts, 2,048 tokens at a time
CHUNK_TOKENS = 2048


def engine_settings(
    inputs: SizingInputs | Installed, device: Accelerator, *, request_tokens: int, remarks: Remarks
) -> EngineSettings:
    """Every flag resolved. The computed default of a memory fraction counts the devices of the asked layout, or one."""
    asked = inputs.engine
    engine, release = _release(asked, remarks)
    _refuse_what_the_engine_lacks(asked, engine, release)
    _warn_about_the_cache(inputs.model, remarks)
    origin = f"{engine.title} {release.version}"
    seen = Device(
        device.usable_memory_bytes,
        device.slug.startswith(REDUCED_BATCHING),
        inputs.decode_layout.device_count if inputs.decode_layout else 1,
    )
    max_model_len = _max_model_len(inputs, request_tokens, remarks)
    batching = _batching(engine, release, seen, max_model_len)
    return EngineSettings(
        engine=engine,
        release=release,
        memory_fraction=asked.memory_fraction
        or remarks.assume(
            "engine.memory_fraction",
            engine.memory_fraction(release, seen, batching),
            f"{origin}, of {engine.fraction_of.value}",
        ),
        max_model_len_tokens=max_model_len,
        max_num_batched_tokens=asked.max_num_batched_tokens
        or remarks.assume("engine.max_num_batched_tokens", batching.max_num_batched_tokens, origin),
        max_num_seqs=asked.max_num_seqs or remarks.assume("engine.max_num_seqs", batching.max_num_seqs, origin),
        prefix_caching=asked.prefix_caching
        if asked.prefix_caching is not None
        else remarks.assume("engine.prefix_caching", release.prefix_caching, origin),
        cuda_graphs=asked.cuda_graphs is not False,
        kv_cache_memory_bytes=asked.kv_cache_memory_bytes,
        context_shards=_context_shards(inputs, asked),
        free_memory_bytes=_free_memory(asked, device),
    )


def _release(asked: EngineAsked, remarks: Remarks) -> tuple[Engine, Release]:
    name = asked.name or remarks.assume("engine.name", DEFAULT_ENGINE, "default")
    if name not in ENGINES:
        raise UnknownChoice(name, ENGINES, field=("engine", "name"))
    engine = ENGINES[name]
    release, is_known = engine.release(asked.version)
    if asked.version is None:
        remarks.assume(
            "engine.version", release.version, f"the newest {engine.title} release whose rules are known here"
        )
    if not is_known:
        remarks.warn(
            WarningCode.ENGINE_VERSION_UNKNOWN,
            f"the rules of {engine.title} {asked.version} are not known; those of {release.version} are used",
        )
    return engine, release


def _refuse_what_the_engine_lacks(asked: EngineAsked, engine: Engine, release: Release) -> None:
    if engine.fraction_of is FractionOf.NOTHING and asked.memory_fraction is not None:
        raise Invalid(
            f"{engine.title} {release.version} has no memory fraction: it allocates the cache of the maximum length "
            "in full; set engine.max_model_len_tokens",
            field=("engine", "memory_fraction"),
        )


def _warn_about_the_cache(model: LanguageModel, remarks: Remarks) -> None:
    """Start-ups of DeepSeek-V4-Flash need about 4.4 GiB a request whatever its length (vLLM issue 44376)."""
    if any(group.tokens_per_entry > 1 for group in model.layer_groups):
        remarks.warn(
            WarningCode.OUTSIDE_EVIDENCE,
            f"engines keep several GiB of fixed state for each request of {model.name} that are not in its KV cache "
            "here: the concurrency is an upper bound",
        )


def _batching(engine: Engine, release: Release, device: Device, max_model_len_tokens: int) -> Batching:
    """vLLM V0 batched whole prompts of the maximum length, and at most 256 sequences."""
    if not release.profiles_whole_prompts:
        return engine.batching(device)
    is_chunked = max_model_len_tokens > LONGEST_UNCHUNKED_TOKENS
    return Batching(CHUNK_TOKENS if is_chunked else max(max_model_len_tokens, CHUNK_TOKENS), 256)


def check_length(inputs: SizingInputs | Installed, request_tokens: int) -> int | None:
    """The asked maximum, the model's, or none. A request that exceeds it would be refused by the engine."""
    asked = inputs.engine.max_model_len_tokens
    limit = asked or inputs.model.max_context_tokens
    if limit is not None and request_tokens > limit:
        raise Invalid(
            f"requests of {request_tokens} tokens exceed the maximum length of {limit}; shorten them, or set "
            "engine.max_model_len_tokens if the model is run with an extended context",
            field=("engine", "max_model_len_tokens") if asked else ("workload",),
        )
    return limit


def _max_model_len(inputs: SizingInputs | Installed, request_tokens: int, remarks: Remarks) -> int:
    limit = check_length(inputs, request_tokens)
    if limit is None:
        return remarks.assume(
            "engine.max_model_len_tokens", request_tokens, "input + output, as the model states no maximum"
        )
    if inputs.engine.max_model_len_tokens:
        return limit
    return remarks.assume("engine.max_model_len_tokens", limit, "the model's max_position_embeddings")


def _context_shards(inputs: SizingInputs | Installed, asked: EngineAsked) -> int:
    """Decode context parallel divides the tokens of a request among ranks that would hold copies of the same heads."""
    shards = asked.decode_context_parallel_count or 1
    if shards == 1:
        return 1
    if inputs.decode_layout is None:
        raise Invalid(
            "decode context parallel divides the tp ranks; give a parallelism",
            field=("engine", "decode_context_parallel_count"),
        )
    copies = kv_copies(inputs.model, inputs.decode_layout.tp)
    if copies % shards:
        raise Invalid(
            f"decode context parallel {shards} does not divide the {copies} ranks that hold the same KV heads at tp "
            f"{inputs.decode_layout.tp}",
            field=("engine", "decode_context_parallel_count"),
        )
    return shards


def kv_copies(model: LanguageModel, tp: int) -> int:
    """Ranks that hold the same KV heads: all of them for a latent.

    vLLM requires decode context parallel to divide ``tp / kv_heads``, or tp itself for MLA.
    """
    if model.has_latent_attention:
        return tp
    return max(1, tp // max(1, model.kv_head_count))


def _free_memory(asked: EngineAsked, device: Accelerator) -> float | None:
    if asked.free_memory_bytes is not None and asked.free_memory_bytes > device.usable_memory_bytes:
        raise Invalid(
            f"{asked.free_memory_bytes:.0f} bytes cannot be free of the {device.usable_memory_bytes:.0f} that "
            f"{device.name} has",
            field=("engine", "free_memory_bytes"),
        )
    return asked.free_memory_bytes
