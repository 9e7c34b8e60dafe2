"""Where the numbers of the method were published: of the fitted parameters, the power shares and the tails."""

from typing import NamedTuple


class Citation(NamedTuple):
    title: str
    url: str


FITTED_RUNS = (
    Citation(
        "Runs of the fit: InferenceX and NVIDIA measurements in aiconfigurator's silicon_sample.csv",
        "https://github.com/ai-dynamo/aiconfigurator",
    ),
    Citation(
        "Runs of the fit: TensorRT-LLM performance overview, releases 0.9 to 1.2",
        "https://github.com/NVIDIA/TensorRT-LLM",
    ),
    Citation(
        "Runs of the fit: llama.cpp on many GPUs and Macs",
        "https://github.com/XiongjieDai/GPU-Benchmarks-on-LLM-Inference",
    ),
    Citation("Runs of the fit: AccelMark suites", "https://github.com/FreedomIntelligence/AccelMark"),
)
BOARD_POWER_RUNS = (
    Citation("Board power under load: ml-energy leaderboard (H100, B200)", "https://github.com/ml-energy/leaderboard"),
    Citation(
        "Board power under load: LLM-Inference-Bench (A100, H100)", "https://github.com/argonne-lcf/LLM-Inference-Bench"
    ),
)
WALL_POWER_RUNS = (
    Citation(
        "Wall power of 8 x B200: MLPerf Inference v5.1, closed division, power results",
        "https://github.com/mlcommons/inference_results_v5.1",
    ),
)
TAIL_RUNS = (
    Citation("Percentiles over medians: ROCm ATOM recipes (MI355X)", "https://github.com/ROCm/ATOM"),
    Citation(
        "Percentiles over medians: server benchmarks (RTX PRO 6000, H200, RTX 4090, L40S)",
        "https://github.com/cloudrift-ai/server-benchmark",
    ),
    Citation(
        "Percentiles over medians: InferenceX issues 870 and 890 (H200, MI325X)",
        "https://github.com/SemiAnalysisAI/InferenceX",
    ),
)
MLPERF_LIMITS = Citation(
    "Interactive latency limits: mlperf.conf of MLPerf Inference v5.1",
    "https://github.com/mlcommons/inference",
)
