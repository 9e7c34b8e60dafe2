"""What a neighbourhood says at a point is plain kriging with the kernel, worked out here the long way."""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

from service.sizing.evidence import EvidenceStore
from service.sizing.evidence_index import RESIDUAL_AT, SHARES_AT, numbers_of
from service.sizing.kernel import COORDINATE_COUNT, RATES_KERNEL, TTFT_KERNEL, Kernel, Runs, covariance
from service.sizing.neighbourhood import PHASE_ALIKE
from service.sizing.run_identity import Configuration, Point, Run
from service.sizing.run_terms import PHASES, Phase
from tests.sizing.test_evidence import CONFIGURATION, PLAIN_WIDTHS


def random_point(random: np.random.Generator) -> Point:
    batch, isl, osl = np.exp2(random.uniform((0, 5, 5), (9, 14, 12))).tolist()
    return Point(batch, isl, osl, tuple(random.dirichlet(np.ones(7)).tolist()))


def as_arrays(store: EvidenceStore, lines: list[tuple[Configuration, Point]]) -> Runs:
    numbers = np.array([numbers_of(Run("", configuration, point, 0.0, 1.0)) for configuration, point in lines])
    return Runs(
        codes=np.array([store._codes.of_stored(configuration) for configuration, _ in lines]),
        phases=np.array([PHASES.index(configuration.phase) for configuration, _ in lines]),
        coordinates=numbers[:, :COORDINATE_COUNT],
        root_shares=numbers[:, SHARES_AT:RESIDUAL_AT],
    )


@pytest.mark.parametrize(("kernel", "phase"), [(RATES_KERNEL, Phase.SERVING), (TTFT_KERNEL, Phase.TTFT)])
def test_a_neighbourhood_says_what_plain_kriging_says(kernel: Kernel, phase: Phase) -> None:
    """``shift = K A^-1 r`` and ``variance = prior - K A^-1 K + noise^2``, ``A = covariance + noise^2``.

    Half of the runs are of the very configuration, at loads near and far, so that what only they share (R2) counts.
    Residuals are small beside the noise: no run is an outlier, and all are trusted alike.
    """
    random = np.random.default_rng(20261202)
    asked = replace(CONFIGURATION, phase=phase)
    others = (replace(asked, architecture="32x4096"), replace(asked, engine_version="0.18.0"))
    measured = [(asked if number % 2 else others[number // 2 % 2], random_point(random)) for number in range(40)]
    residuals = random.normal(0, 0.02, len(measured))
    runs = [
        Run(f"run {number:02}", configuration, point, residual, 0.03)
        for number, ((configuration, point), residual) in enumerate(zip(measured, residuals.tolist(), strict=True))
    ]
    store = EvidenceStore.of(runs, width_factors=PLAIN_WIDTHS)
    near, pool = store.about(asked), as_arrays(store, measured)
    inverse = np.linalg.inv(covariance(kernel, PHASE_ALIKE, pool, pool) + kernel.noise**2 * np.eye(len(runs)))
    for _ in range(50):
        point = random_point(random)
        (k,) = covariance(kernel, PHASE_ALIKE, as_arrays(store, [(asked, point)]), pool)
        found = near.at(point)
        assert found.shift == pytest.approx(k @ inverse @ residuals, abs=1e-9)
        assert found.sd == pytest.approx(sqrt(kernel.variance - k @ inverse @ k + kernel.noise**2), rel=1e-6)


def test_what_runs_of_one_configuration_share_fades_with_the_distance_of_their_loads() -> None:
    """R2 alone: a kernel of nothing else. Eight times the batch is 3 powers of two, over a distance of 6: exp(-1/2)."""
    none = (0.0,) * len(RATES_KERNEL.common)
    kernel = replace(RATES_KERNEL, regime=0.0, common=none, run=0.1, noise=0.1, run_distances=(6.0, 6.0, 6.0))
    shares = (1.0,) + (0.0,) * 6
    run = Run("measured", CONFIGURATION, Point(8.0, 1024, 1024, shares), 0.1, 0.03)
    store = EvidenceStore.of([run], kernels=(kernel, kernel), width_factors=PLAIN_WIDTHS)
    # pool: 0.01 of its own and 0.01 of noise; so the weight at the run itself is 1/2
    assert store.refine(CONFIGURATION, run.point).shift == pytest.approx(0.1 / 2, rel=1e-4)
    away = replace(run.point, batch=64.0)
    assert store.refine(CONFIGURATION, away).shift == pytest.approx(0.1 * np.exp(-1 / 2) / 2)
    assert store.refine(replace(CONFIGURATION, layout=(2, 1, 2, 1)), away).shift == 0
