"""From a result file to a stored run to evidence."""

import pytest

from service.api.imported_runs import Said, stored_run
from service.catalogue.benchmark_evidence import measurements
from service.catalogue.benchmark_records import RunScenario
from service.catalogue.stored_evidence import published_of
from service.sizing.parallelism import Parallelism
from service.sizing.run_terms import Phase
from tests.imports.reading import only_run, read
from tests.sizing.examples import shipped

RACK = {
    "hw": "gb200",
    "conc": 120,
    "framework": "dynamo-trt",
    "model": "deepseek-ai/DeepSeek-R1",
    "precision": "fp4",
    "isl": 1024,
    "osl": 1001,
    "num_prefill_gpu": 8,
    "prefill_num_workers": 2,
    "prefill_tp": 4,
    "prefill_dp_attention": "true",
    "num_decode_gpu": 32,
    "decode_num_workers": 4,
    "decode_tp": 8,
    "decode_dp_attention": "false",
    "median_ttft": 5.0,
    "median_tpot": 0.010,
}


@pytest.mark.parametrize("concurrency", [120, 1])
def test_an_imported_disaggregated_run_is_evidence_of_the_step_of_its_decode_workers(concurrency: int) -> None:
    said = Said(accelerator=shipped().accelerator("gb200-nvl72"))
    run, _ = stored_run(only_run(read(RACK | {"conc": concurrency})), kind=None, said=said, snapshot=shipped())
    assert (run.scenario, run.layout) == (RunScenario.CLOSED_LOOP_DISAGGREGATED, "P2xTP1.DP4/D4xTP8.DP1")
    found = measurements([published_of(run)], shipped())
    (measured,) = found.usable
    assert (measured.setup.phase, measured.value_s) == (Phase.DISAGGREGATED, 0.010)
    assert measured.setup.parallelism == Parallelism(tp=8)
    # 1,000 gaps of 10 ms after 5 s: two thirds of the requests are in decode, a quarter of them on each worker
    assert measured.setup.batch == pytest.approx(concurrency * (10 / 15) / 4)


def test_one_that_only_counts_its_gpus_is_stored_and_left_out_of_evidence() -> None:
    file = {name: value for name, value in RACK.items() if not name.endswith(("num_workers", "_tp"))}
    said = Said(accelerator=shipped().accelerator("gb200-nvl72"))
    run, _ = stored_run(only_run(read(file)), kind=None, said=said, snapshot=shipped())
    assert run.layout == "P8/D32 GPUs"
    found = measurements([published_of(run)], shipped())
    assert found.left_out == {"workers or concurrency of a disaggregated system not stated": 1}
