"""Power and money, as the answer of ``POST /sizing`` writes them."""

from typing import Any

from service.api.estimate_document import estimate
from service.sizing.plan import SizingResult


def energy_document(result: SizingResult) -> dict[str, Any]:
    rate = result.speed.output_tokens_per_s_per_gpu if result.speed else None
    at_target = result.at_target
    return {
        "scopes": [
            {
                "scope": each.scope._value_,
                "kind": each.kind._value_,
                "because": each.because,
                "power_w_per_gpu": estimate(each.power_w_per_gpu),
                "output_tokens_per_s_per_w": estimate(rate.per(each.power_w_per_gpu))
                if rate and each.power_w_per_gpu
                else None,
                "energy_j_per_output_token": estimate(each.power_w_per_gpu.per(rate))
                if rate and each.power_w_per_gpu
                else None,
            }
            for each in result.powers
        ],
        "at_target": {
            "concurrency": at_target.concurrency,
            "scope": at_target.scope._value_,
            "output_tokens_per_s_per_gpu": estimate(at_target.output_tokens_per_s_per_gpu),
            "output_tokens_per_s_per_w": estimate(at_target.output_tokens_per_s_per_w),
        }
        if at_target
        else None,
    }


def cost_document(result: SizingResult) -> dict[str, Any] | None:
    cost = result.cost
    if cost is None:
        return None
    return {
        "usd_per_input_token": estimate(cost.usd_per_input_token),
        "usd_per_cached_input_token": estimate(cost.usd_per_cached_input_token),
        "usd_per_output_token": estimate(cost.usd_per_output_token),
        "usd_per_h_per_replica": estimate(cost.usd_per_h_per_replica),
        "usd_per_h_total": estimate(cost.usd_per_h_total),
        "allocation": cost.allocation._value_,
    }
