"""Where coverage is claimed, and how much wider intervals are where no run of the hardware group is stored."""

from dataclasses import replace
from math import log

import pytest

from service.sizing.coverage import UNSEEN, UNSEEN_ELSEWHERE, coverage_fraction, unseen_width
from service.sizing.evidence import EvidenceStore
from service.sizing.run_identity import DATA_CENTRE, HOST_BUS_CARDS, INSTINCT, RADEON, hardware_group
from service.sizing.run_terms import Phase
from tests.sizing.examples import accelerator
from tests.sizing.test_evidence import CONFIGURATION, POINT, RUN


@pytest.mark.parametrize(
    ("slug", "group"),
    [
        ("h100-sxm", DATA_CENTRE),
        ("gb200-nvl72", DATA_CENTRE),
        ("l40s", HOST_BUS_CARDS),
        ("rtx-4090", "NVIDIA GeForce"),
        ("mi300x", INSTINCT),
        ("strix-halo", RADEON),
        ("apple-m2-ultra", "Apple"),
    ],
)
def test_parts_of_a_vendor_are_told_apart_by_their_kind(slug: str, group: str) -> None:
    assert hardware_group(accelerator(slug)) == group


def test_no_coverage_is_claimed_for_a_phase_that_was_not_measured_on_such_parts() -> None:
    assert coverage_fraction(DATA_CENTRE, Phase.SERVING) == 0.8
    assert coverage_fraction(INSTINCT, Phase.SERVING) is None  # one campaign: ATOM on MI355X
    assert coverage_fraction(HOST_BUS_CARDS, Phase.SERVING) is None
    assert coverage_fraction(None, Phase.SERVING) is None
    answer = EvidenceStore.of([RUN]).refine(replace(CONFIGURATION, hardware_group=INSTINCT), POINT)
    assert answer.coverage_fraction is None


def test_an_interval_is_wider_until_a_run_of_the_group_is_stored() -> None:
    asked = replace(CONFIGURATION, hardware_group="Google")
    elsewhere = replace(RUN, configuration=replace(asked, accelerator="h100-sxm", hardware_group=DATA_CENTRE))
    unknown = replace(asked, hardware_group=None)  # no width was measured for parts of no group
    store = EvidenceStore.of([elsewhere])
    wide, plain = store.refine(asked, POINT), store.refine(unknown, POINT)
    assert log(wide.factor) == pytest.approx(UNSEEN["Google"][Phase.SERVING] * log(plain.factor))
    own = replace(RUN, id="own", configuration=replace(asked, accelerator="another", architecture="another"))
    seen = store.with_runs([own])
    assert seen.refine(asked, POINT).factor == seen.refine(unknown, POINT).factor


def test_a_width_is_never_below_that_of_the_seen() -> None:
    assert all(width >= 1 for widths in (*UNSEEN.values(), UNSEEN_ELSEWHERE) for width in widths.values())
    assert unseen_width(DATA_CENTRE, Phase.SERVING) == unseen_width(None, Phase.SERVING) == 1
    assert unseen_width("a vendor nobody measured", Phase.SERVING) == UNSEEN_ELSEWHERE[Phase.SERVING]
    assert set(UNSEEN_ELSEWHERE) == set(Phase)  # whatever a run or a question is of
