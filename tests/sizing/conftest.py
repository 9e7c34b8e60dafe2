"""The shipped runs as evidence, read once: that takes a second."""

import pytest

from service.catalogue.benchmark_evidence import evidence_runs, measurements
from service.catalogue.benchmark_facts import published_runs
from service.sizing.evidence import EvidenceStore
from tests.sizing.examples import shipped


@pytest.fixture(scope="session")
def shipped_evidence() -> EvidenceStore:
    return EvidenceStore.of(evidence_runs(measurements(published_runs(), shipped()).usable))
