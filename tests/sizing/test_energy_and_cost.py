"""Watts and dollars, by hand."""

import pytest

from service.sizing.cost import cost
from service.sizing.energy import PowerScope, scoped_powers
from service.sizing.estimate import Estimate
from service.sizing.plan import SizingResult
from service.sizing.question import EconomicsAsked, PowerAsked, WorkloadAsked
from service.sizing.remarks import WarningCode
from service.sizing.workload import Length, Target
from tests.sizing.examples import accelerator, answer, warning_codes


def power_w(slug: str, scope: PowerScope, **given: float) -> Estimate | None:
    powers = scoped_powers(accelerator(slug), limit_w=given.get("limit_w"), pue=given.get("pue"), coverage=0.8)
    return next(each.power_w_per_gpu for each in powers if each.scope is scope)


def test_board_power_is_a_measured_share_of_the_rating() -> None:
    power = power_w("h100-sxm", PowerScope.ACCELERATOR)
    assert power is not None
    assert (power.low, power.value, power.high) == pytest.approx((700 * 0.535, 700 * 0.756, 700 * 0.943))


def test_a_power_limit_caps_the_board() -> None:
    power = power_w("h100-sxm", PowerScope.ACCELERATOR, limit_w=500)
    assert power is not None
    assert (power.value, power.high) == (500, 500)


def test_a_rack_draws_its_published_power_in_proportion_to_its_boards() -> None:
    # GB200 NVL72: 120 kW / 72 = 1,666.7 W per GPU at most; boards at 0.756 of their rating.
    system = power_w("gb200-nvl72", PowerScope.SYSTEM)
    assert system is not None
    assert system.value == pytest.approx(0.756 * 120_000 / 72)
    assert system.coverage_fraction is None


def test_a_server_of_modules_draws_what_was_measured_at_the_wall() -> None:
    # MLPerf v5.1, 8 x B200 at 1,000 W: 1,126 to 1,305 W per GPU.
    system = power_w("b200-sxm", PowerScope.SYSTEM)
    assert system is not None
    assert (system.low, system.high) == pytest.approx((1130, 1310))
    assert system.low < 1200 < system.high


def test_facility_power_needs_a_pue() -> None:
    system = power_w("gb200-nvl72", PowerScope.SYSTEM)
    facility = power_w("gb200-nvl72", PowerScope.FACILITY, pue=1.25)
    assert power_w("gb200-nvl72", PowerScope.FACILITY) is None
    assert system is not None
    assert facility is not None
    assert facility.value == pytest.approx(1.25 * system.value)


def test_provisioned_power_is_the_published_figure() -> None:
    power = power_w("gb200-nvl72", PowerScope.PROVISIONED)
    assert power is not None
    assert power.value == 2100


def test_unknown_power_is_null_with_a_warning() -> None:
    result = answer("llama-3.1-8b-instruct", "tpu-v6e", workload=WorkloadAsked(concurrency=1))
    assert WarningCode.POWER_UNKNOWN in warning_codes(result)
    assert all(each.power_w_per_gpu is None for each in result.powers)


def exact(value: float) -> Estimate:
    return Estimate(value, value, value, 0.8)


def test_cost_per_token_by_hand() -> None:
    # 2 GPUs at 3 $/h and 1,000 W at 0.10 $/kWh: 6.20 $/h, at 10 requests/s 1.7222e-4 $ a request. Prefill takes 0.4 of
    # the time: 0.4 of it over 1,000 input tokens, 0.6 over 200 output tokens.
    costs = cost(
        usd_per_gpu_h=3.0,
        usd_per_kwh=0.10,
        power_w_per_gpu=exact(1000.0),
        gpu_count=2,
        replica_count=5,
        requests_per_s=exact(10.0),
        new_prompt_tokens=1000,
        cached_prefix_tokens=0,
        osl_tokens=200,
        prefill_fraction=0.4,
        cached_share_of_prefill=0.0,
    )
    request = (2 * 3.0 + 2 * 1.0 * 0.10) / 3600 / 10
    assert costs.usd_per_h_per_replica.value == pytest.approx(6.20)
    assert costs.usd_per_h_total.value == pytest.approx(31.0)
    assert costs.usd_per_input_token.value == pytest.approx(0.4 * request / 1000)
    assert costs.usd_per_output_token.value == pytest.approx(0.6 * request / 200)
    assert costs.usd_per_cached_input_token is None


def priced(**asked: object) -> SizingResult:
    return answer(
        "llama-3.1-8b-instruct",
        "h100-sxm",
        workload=WorkloadAsked(Length(1000), Length(200), 16, None, 400),
        economics=EconomicsAsked(usd_per_gpu_h=2.0, on="2026-11-01"),
        **asked,
    )


def test_what_tokens_cost_adds_up_to_what_the_replica_costs() -> None:
    result = priced()
    costs, speed = result.cost, result.speed
    assert costs is not None
    assert speed is not None
    assert costs.usd_per_cached_input_token is not None
    per_request = (
        600 * costs.usd_per_input_token.value
        + 400 * costs.usd_per_cached_input_token.value
        + 200 * costs.usd_per_output_token.value
    )
    assert per_request * speed.requests_per_s.value * 3600 == pytest.approx(2.0)
    assert WarningCode.PRICE_DATED in warning_codes(result)


def test_there_is_no_cost_without_a_price() -> None:
    assert answer("llama-3.1-8b-instruct", "h100-sxm").cost is None


def test_tokens_per_watt_at_the_target() -> None:
    result = priced(target=Target(tpot_s=0.02), power=PowerAsked(scope=PowerScope.ACCELERATOR))
    at_target = result.at_target
    assert at_target is not None
    assert at_target.output_tokens_per_s_per_w is not None
    rate = at_target.output_tokens_per_s_per_gpu.value
    assert at_target.output_tokens_per_s_per_w.value == pytest.approx(rate / (700 * 0.756))
    assert at_target.output_tokens_per_s_per_w.coverage_fraction is None
