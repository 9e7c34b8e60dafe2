"""For whom the configuration suits: somebody who watches, or a queue that nobody watches.

If a person watches, the speed of a single stream decides; if nobody waits, what the whole machine delivers at the
concurrency that it holds. The thresholds stand in the sentence.
"""

from typing import NamedTuple

from service.sizing.estimate import Estimate
from service.sizing.workload import Target

# MLPerf Inference, llama2-70b Interactive: p99 TPOT of at most 40 ms (mlperf.conf of the v5.1 results).
INTERACTIVE_TPOT_S = 0.040
AMORTISED_WEIGHTS_FRACTION = 0.5  # below it, sharing the weights' reads among more sequences has paid off


class Suits(NamedTuple):
    suits: bool | None
    because: str


class Verdict(NamedTuple):
    interactive: Suits
    batch: Suits


def does_not_fit() -> Verdict:
    no = Suits(False, "it does not fit: see memory_fit.shortfall_bytes_per_gpu and minimum_gpu_count")
    return Verdict(no, no)


def speeds_unknown() -> Verdict:
    unknown = Suits(None, "it fits, but how fast it is cannot be said: see the warnings")
    return Verdict(unknown, unknown)


def verdict(
    *,
    target: Target,
    meets_target_probability: float | None,
    single_user_tokens_per_s: Estimate,
    full_weights_fraction: float,
    full_concurrency: int,
    output_tokens_per_s_per_gpu: Estimate,
) -> Verdict:
    """``full_weights_fraction``: of a decode step with ``full_concurrency`` requests, the most that run together."""
    if target.is_set and meets_target_probability is not None:
        interactive = Suits(
            meets_target_probability >= 0.5,
            f"the target is met with a probability of {meets_target_probability:.2f}, and 0.50 is asked for; one user "
            f"alone decodes {_span(single_user_tokens_per_s)} tokens/s",
        )
    else:
        interactive = Suits(
            single_user_tokens_per_s.value >= 1 / INTERACTIVE_TPOT_S,
            f"one user alone decodes {_span(single_user_tokens_per_s)} tokens/s; the threshold is "
            f"{1 / INTERACTIVE_TPOT_S:g}, MLPerf's Interactive limit of {INTERACTIVE_TPOT_S * 1000:g} ms per token "
            "for llama2-70b; a target of your own replaces it",
        )
    requests = "1 request" if full_concurrency == 1 else f"{full_concurrency} requests"
    batch = Suits(
        full_weights_fraction < AMORTISED_WEIGHTS_FRACTION,
        f"with {requests} at once, the most that run together, a decode step spends {full_weights_fraction:.2f} of its "
        f"time on reading weights, and batch work wants less than {AMORTISED_WEIGHTS_FRACTION:.2f}: requests share "
        f"that reading; at the load of this answer each GPU writes {_span(output_tokens_per_s_per_gpu)} output "
        "tokens/s",
    )
    return Verdict(interactive, batch)


def _span(estimate: Estimate) -> str:
    return f"{estimate.value:.4g} ({estimate.low:.4g} to {estimate.high:.4g})"
