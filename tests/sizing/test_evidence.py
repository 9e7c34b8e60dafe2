from collections import Counter
from dataclasses import replace
from math import exp, log, sqrt

import pytest

from service.sizing.estimate import Basis
from service.sizing.evidence import ANSWERED, EvidenceStore
from service.sizing.evidence_index import POOL_SIZE, names, numbers_of
from service.sizing.kernel import COMMON, COORDINATE_COUNT, RATES_KERNEL, TTFT_KERNEL, Kernel
from service.sizing.neighbourhood import PHASE_ALIKE, Lean
from service.sizing.run_identity import Configuration, EngineFlags, Point, Run
from service.sizing.run_terms import PHASES, Phase

CONFIGURATION = Configuration(
    phase=Phase.SERVING,
    accelerator="h100-sxm",
    architecture="80x8192",
    engine="vllm",
    engine_version="0.19.0",
    weight_class="8",
    kind="dense",
    family="Hopper fabric",
    layout=(4, 1, 1, 1),
    device_count=4,
)
SHARES = (0.5, 0.0, 0.2, 0.1, 0.1, 0.05, 0.05)
POINT = Point(batch=32, isl_tokens=1024, osl_tokens=1024, shares=SHARES)
RUN = Run("measured", CONFIGURATION, POINT, log_residual=0.2, measured_s=0.03)

# One component of sd 0.1, shared by every run, and as much noise: what is left is easy to work out.
REGIME_ALONE = Kernel(
    regime=0.1,
    common=(0.0,) * len(COMMON),
    run=0.0,
    noise=0.1,
    regime_distance=1.0,
    distances=(1.0, 1.0, 1.0, 1.0),
    run_distances=(1.0, 1.0, 1.0),
)
PLAIN_WIDTHS = dict.fromkeys(Phase, (1.0,) * 5)


def store_of(*runs: Run) -> EvidenceStore:
    return EvidenceStore.of(runs, kernels=(REGIME_ALONE, REGIME_ALONE), width_factors=PLAIN_WIDTHS)


def many_runs(count: int) -> list[Run]:
    """Runs that differ in everything that can differ, some of them alike."""
    runs = []
    for number in range(count):
        configuration = replace(
            CONFIGURATION,
            phase=PHASES[number % 4],
            accelerator=("h100-sxm", "b200-sxm", "mi300x")[number % 3],
            architecture=("80x8192", "32x4096")[number // 3 % 2],
            engine=("vllm", "sglang", None)[number // 5 % 3],
            engine_version=("0.19.0", None, "0.5.9")[number // 7 % 3],
            device_count=2 ** (number // 11 % 4),
            campaign=f"campaign {number // 13 % 5}",
        )
        point = Point(1 + number % 97, 128 + 31 * (number % 41), 64 + 17 * (number % 29), SHARES)
        runs.append(Run(f"run-{number:04}", configuration, point, 0.4 * ((number * 37 % 100) / 100 - 0.5), 0.03))
    return runs


def test_without_runs_the_answer_is_the_physics_and_its_prior() -> None:
    found = store_of().refine(CONFIGURATION, POINT)
    assert (found.shift, found.sd, found.distance) == (0.0, sqrt(0.1**2 + 0.1**2), 1.0)
    assert found.basis is Basis.MODELLED
    # a run right there would leave 0.01 * 0.01 / (0.01 + 0.01) of the 0.01 that is not noise
    assert found.sd_if_measured == pytest.approx(sqrt(0.005 + 0.01))
    assert found.ratio == 1


def test_one_run_moves_the_answer_by_its_share_of_the_variance() -> None:
    # weight = K / (K + noise^2) = 0.01 / (0.01 + 0.01) = 1/2; left of the variance: 0.01 - 0.01^2 / 0.02 + 0.01
    found = store_of(RUN).refine(CONFIGURATION, POINT)
    assert found.ratio == pytest.approx(exp(0.2 / 2))
    assert found.sd == pytest.approx(sqrt(0.01 - 0.01**2 / 0.02 + 0.01))
    assert found.factor == pytest.approx(exp(1.2816 * sqrt(0.015)))
    near = store_of(RUN).about(CONFIGURATION)
    (lean,) = near.leans_on(near.at(POINT))
    assert lean == Lean("measured", Phase.SERVING, lean.weight, 0.03, 0.03 / exp(0.2))
    assert lean.weight == pytest.approx(0.5)
    assert found.sd_if_measured == pytest.approx(sqrt(0.01 / 3 + 0.01))  # two equal observations of a common 0.01
    assert found.basis is Basis.MEASURED


def test_measuring_the_point_itself_narrows_it_as_much_as_was_said() -> None:
    store = EvidenceStore.of(many_runs(300))
    asked = replace(CONFIGURATION, engine_version="1.0")
    before = store.refine(asked, POINT)
    after = store.with_runs([Run("new", asked, POINT, log_residual=before.shift, measured_s=0.03)])
    assert after.refine(asked, POINT).sd == pytest.approx(before.sd_if_measured, rel=0.02)


def test_a_run_of_some_release_narrows_a_question_about_none_as_much_as_was_said() -> None:
    store = EvidenceStore.of(many_runs(300))
    asked = replace(CONFIGURATION, engine_version=None)
    before = store.refine(asked, POINT)
    measured = replace(asked, engine_version="1.0")
    after = store.with_runs([Run("new", measured, POINT, log_residual=before.shift, measured_s=0.03)])
    assert before.sd_if_measured < before.sd
    assert after.refine(asked, POINT).sd == pytest.approx(before.sd_if_measured, rel=0.02)


def test_two_agreeing_runs_are_trusted_more_than_one_and_disagreeing_ones_average() -> None:
    # two equal observations of a common 0.01: weight 0.01 / (2 * 0.01 + 0.01) = 1/3 each
    second = replace(RUN, id="again", log_residual=-0.05)
    found = store_of(RUN, second).refine(CONFIGURATION, POINT)
    assert found.ratio == pytest.approx(exp((0.2 - 0.05) / 3))
    assert found.sd < store_of(RUN).refine(CONFIGURATION, POINT).sd


def test_a_run_limited_by_something_else_says_less() -> None:
    # all of one run's time is prefill, none of the other's: squared distance of roots is 2, so RS = exp(-1)
    elsewhere = replace(RUN, point=replace(POINT, shares=(0.0,) * 6 + (1.0,)))
    asked = replace(POINT, shares=(1.0,) + (0.0,) * 6)
    found = store_of(elsewhere).refine(CONFIGURATION, asked)
    assert log(found.ratio) == pytest.approx(0.2 * exp(-1) * 0.01 / 0.02)


def test_another_phase_of_decode_counts_half_and_prefill_not_at_all() -> None:
    single = replace(CONFIGURATION, phase=Phase.SINGLE_STREAM)
    prefill = replace(CONFIGURATION, phase=Phase.PREFILL)
    store = store_of(RUN)
    assert log(store.refine(single, POINT).ratio) == pytest.approx(0.2 * 0.5 * 0.01 / 0.02)
    assert store.refine(prefill, POINT).distance == 1


def test_what_is_unknown_equals_nothing() -> None:
    unknown = replace(CONFIGURATION, engine=None, engine_version=None)
    store = EvidenceStore.of([replace(RUN, configuration=unknown)])
    known_store = EvidenceStore.of([RUN])
    assert store.refine(unknown, POINT).distance > known_store.refine(CONFIGURATION, POINT).distance
    assert store.refine(unknown, POINT).basis is not Basis.MEASURED


def test_what_is_unknown_of_a_run_counts_as_its_own() -> None:
    """A run of an unknown engine shares less with the question and is as uncertain as any: K / (prior + noise)."""
    unknown = replace(CONFIGURATION, engine=None, engine_version=None)
    near = EvidenceStore.of([replace(RUN, configuration=unknown)]).about(CONFIGURATION)
    k = RATES_KERNEL
    common = dict(zip(COMMON, k.common, strict=True))
    shared = k.regime**2 + common["accelerator"] ** 2 + common["model"] ** 2 + common["model_accelerator"] ** 2
    (lean,) = near.leans_on(near.at(POINT))
    assert lean.weight == pytest.approx(shared / (k.variance + k.noise**2))


def test_repeats_of_one_point_keep_no_other_point_out() -> None:
    repeats = [
        replace(
            RUN,
            id=f"night {number:03}",
            log_residual=0.1,
            configuration=replace(CONFIGURATION, campaign=f"colleague {number % 60}"),
        )
        for number in range(POOL_SIZE + 40)
    ]
    far = replace(POINT, batch=512.0)
    store = EvidenceStore.of([*repeats, replace(RUN, id="far", point=far, log_residual=0.4)])
    near = store.about(CONFIGURATION)
    assert near.leans_on(near.at(far))[0].run == "far"
    assert near.at(far).basis is Basis.MEASURED


def test_a_question_leaves_nothing_behind() -> None:
    store = EvidenceStore.of([RUN])
    for version in range(3):
        store.refine(replace(CONFIGURATION, engine_version=f"asked {version}"), POINT)
    assert len(store._codes._codes) == sum(name is not None for name in names(CONFIGURATION))


def test_an_absurd_run_is_kept_out() -> None:
    absurd = replace(RUN, id="absurd", log_residual=1.3)  # 3.7 times slower than the physics; the limit is e^1.2
    store = EvidenceStore.of([absurd])
    assert store.run_count == 0
    assert store.refine(CONFIGURATION, POINT).ratio == 1


def test_an_outlier_among_agreeing_runs_loses_its_weight() -> None:
    agreeing = [replace(RUN, id=f"run {number}", log_residual=0.1) for number in range(12)]
    outlier = replace(RUN, id="outlier", log_residual=-1.0)
    found = EvidenceStore.of([*agreeing, outlier]).refine(CONFIGURATION, POINT)
    assert log(found.ratio) == pytest.approx(0.1, abs=0.02)


def test_an_interval_never_excludes_what_was_measured_right_there() -> None:
    """Twelve runs around agree on 10 % slower; one of the very point is 2.7 times faster: unlikely, yet measured."""
    around = [
        replace(RUN, id=f"run {number}", log_residual=0.1, point=replace(POINT, batch=33.0 + number))
        for number in range(12)
    ]
    outlier = replace(RUN, id="outlier", log_residual=-1.0)
    found = EvidenceStore.of([*around, outlier]).refine(CONFIGURATION, POINT)
    assert found.shift == pytest.approx(0.1, abs=0.05)
    assert found.basis is Basis.CALIBRATED
    assert found.disagreement == pytest.approx(-1.0 - found.shift)
    assert found.shift - log(found.factor) == pytest.approx(-1.0)
    agreeing = EvidenceStore.of([*around, replace(outlier, log_residual=0.12)]).refine(CONFIGURATION, POINT)
    assert agreeing.basis is Basis.MEASURED
    assert agreeing.disagreement == 0


def test_answers_do_not_depend_on_the_order_of_storing() -> None:
    runs = many_runs(400)
    forward, backward = EvidenceStore.of(runs), EvidenceStore.of(reversed(runs))
    piecewise = EvidenceStore.of(runs[:100]).with_runs(runs[250:]).with_runs(runs[100:250])
    for run in runs[::23]:
        answer = forward.refine(run.configuration, run.point)
        assert backward.refine(run.configuration, run.point) == answer
        assert piecewise.refine(run.configuration, run.point) == answer


def test_removing_what_was_added_takes_it_back() -> None:
    runs = many_runs(200)
    before = EvidenceStore.of(runs)
    after = before.with_runs([RUN]).without_runs([RUN.id])
    assert after.run_count == before.run_count == 200
    assert after.refine(CONFIGURATION, POINT) == before.refine(CONFIGURATION, POINT)
    assert before.with_runs([RUN]).refine(CONFIGURATION, POINT).sd < before.refine(CONFIGURATION, POINT).sd


def test_the_same_run_twice_is_one_run() -> None:
    assert EvidenceStore.of([RUN, RUN]).with_runs([RUN]).run_count == 1


def test_a_question_alone_and_among_many_has_one_answer() -> None:
    runs = many_runs(300)
    store = EvidenceStore.of(runs)
    points = [run.point for run in runs[:40]]
    near = store.about(CONFIGURATION)
    together = [near.at(point) for point in points]
    assert together == [EvidenceStore.of(runs).refine(CONFIGURATION, point) for point in points]
    # and so for all phases of an answer at once: only rounding differs between one matrix product and many
    answering = store.answering(CONFIGURATION)
    one = points[:1]
    expected = pytest.approx([answer.shift for answer in together], rel=1e-12, abs=1e-14)
    assert answering.shifts([points, points])[0] == expected
    (serving, *others) = answering.at([points, one, one, one])
    assert [answer.shift for answer in serving] == expected
    assert [answer.sd for answer in serving] == pytest.approx([answer.sd for answer in together], rel=1e-9)
    for phase, (answer,) in zip(ANSWERED[1:], others, strict=True):
        alone = store.refine(replace(CONFIGURATION, phase=phase), one[0])
        assert (answer.shift, answer.sd) == pytest.approx((alone.shift, alone.sd), rel=1e-9)


@pytest.mark.parametrize("asked", [0, 1, 2, 3, 17, 101, 255])
def test_the_index_finds_the_runs_that_a_scan_of_all_finds(asked: int) -> None:
    runs = many_runs(700)
    assert_found(EvidenceStore.of(runs), runs, replace(runs[asked].configuration, campaign=None))


@pytest.mark.parametrize("asked", [0, 1, 2, 3, 4, 17, 101])
def test_among_thousands_of_configurations_of_one_release_the_index_finds_the_same(asked: int) -> None:
    """What is asked about differs from the others in its flags and layout alone, and colleagues measured it too."""
    runs = one_release(5000)
    store = EvidenceStore.of(runs)
    assert len(store.cells) > 4000
    configuration = replace(runs[asked].configuration, campaign=None)
    assert_found(store, runs, configuration)
    assert_found(store, runs, replace(configuration, flags=EngineFlags(max_num_seqs=99_999)))
    gone = [run.id for run in runs if run.configuration.flags == configuration.flags]
    left = [run for run in runs if run.configuration.flags != configuration.flags]
    assert_found(store.without_runs(gone), left, configuration)


def one_release(count: int) -> list[Run]:
    """A third are of one of ten settings. Half are of one of forty points, the others each of its own."""
    runs = []
    for number in range(count):
        configuration = replace(
            CONFIGURATION,
            phase=(Phase.SERVING, Phase.STATIC_BATCH)[number % 7 == 0],
            device_count=(4, 8, 2)[number % 5 % 3],
            flags=EngineFlags(max_num_seqs=1 + (number % 10 if number % 3 == 0 else number)),
            campaign=f"colleague {number}",
        )
        batch = 1 + number * 613 % (40 if number % 2 else count)
        runs.append(Run(f"run-{number:04}", configuration, replace(POINT, batch=batch), 0.1, 0.03))
    return runs


def assert_found(store: EvidenceStore, runs: list[Run], configuration: Configuration) -> None:
    """What the index finds is what a scan of all these runs finds."""
    kernel = TTFT_KERNEL if configuration.phase is Phase.TTFT else RATES_KERNEL
    earlier: Counter[tuple[object, ...]] = Counter()
    ranked = []
    for likeness, apart, distance, run_id, point in sorted(_rank(kernel, configuration, run) for run in runs):
        ranked.append((likeness, apart, earlier[likeness, apart, point], distance, run_id))
        earlier[likeness, apart, point] += 1
    found = {cell.ids[row] for cell, row in store._nearest_runs(configuration)}
    assert found == {run_id for likeness, *_, run_id in sorted(ranked)[:POOL_SIZE] if likeness < 0}


def _rank(kernel: Kernel, configuration: Configuration, run: Run) -> tuple[float, float, float, str, tuple[float, ...]]:
    """Likeness at no distance (negative: most alike first), device count, reference distance, id; and the point."""
    alike = PHASE_ALIKE[PHASES.index(configuration.phase), PHASES.index(run.configuration.phase)]
    mine, its = names(configuration), names(run.configuration)
    shared = [own is not None and own == other for own, other in zip(mine, its, strict=True)]
    likeness = alike * (kernel.regime**2 + sum(sd**2 for sd, same in zip(kernel.common, shared, strict=False) if same))
    likeness += kernel.run**2 * shared[-1]
    apart = abs(log(configuration.device_count / run.configuration.device_count))
    numbers = numbers_of(run)
    return -round(float(likeness), 12), round(apart, 12), numbers[-1], run.id, tuple(numbers[:COORDINATE_COUNT])
