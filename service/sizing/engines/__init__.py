"""Serving engines: what their memory fraction is a fraction of, what they set aside, and their defaults."""

from service.sizing.engines import llama_cpp, sglang, tensorrt_llm, vllm
from service.sizing.engines.engine import Engine

ENGINES: dict[str, Engine] = {
    engine.name: engine for engine in (vllm.ENGINE, sglang.ENGINE, tensorrt_llm.ENGINE, llama_cpp.ENGINE)
}
