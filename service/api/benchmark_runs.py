"""``/benchmark-runs``: measured runs, listed, counted, exported, added and deleted one by one.

All of it reads the database, off the event loop: a million runs do not belong in memory.
"""

import hashlib
import re
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Body, Header, Path, Query, Response
from fastapi.responses import FileResponse, StreamingResponse
from sqlmodel import Session
from starlette.background import BackgroundTask

from service.api.benchmark_run_document import filter_of, known_precision, pair_of, read_of
from service.api.benchmark_run_export import (
    CSV_TYPE,
    PARQUET_TYPE,
    NotAcceptable,
    asked_format,
    csv_parts,
    write_parquet,
)
from service.api.benchmark_run_list import ScenarioRequired, is_key_of, order_of, page_of_runs
from service.api.benchmark_run_schemas import (
    BenchmarkRunCreate,
    BenchmarkRunPage,
    BenchmarkRunPair,
    BenchmarkRunRead,
    PairsQuestion,
    RunsQuestion,
)
from service.api.dependencies import CatalogueDep, EngineDep, FacetCountsDep, SnapshotDep
from service.api.pages import CursorInvalid, Page, read_cursor, write_cursor
from service.api.problems import named_in_body, problem_responses
from service.api.strict_json import StrictJsonRoute
from service.catalogue.benchmark_pairs import list_pairs
from service.catalogue.benchmark_queries import Order
from service.catalogue.benchmark_records import (
    ID_PATTERN,
    BenchmarkRun,
    Details,
    RunScenario,
    StoredMetric,
    main_figures,
    new_ids,
)
from service.catalogue.benchmarks import (
    ShippedRunKept,
    UnknownBenchmarkRun,
    delete_run,
    evidence_writing,
    get_run,
    runs_of_content,
    save_runs,
)
from service.catalogue.snapshot import Snapshot
from service.catalogue.tables import Origin
from service.errors import AmbiguousName, Invalid, UnknownAccelerator, UnknownChoice, UnknownLanguageModel

router = APIRouter(tags=["benchmark runs"], route_class=StrictJsonRoute)

OTHER_SCENARIOS = {
    "server": RunScenario.MLPERF_SERVER,
    "interactive": RunScenario.MLPERF_INTERACTIVE,
    "single_stream": RunScenario.MLPERF_SINGLE_STREAM,
}
EXAMPLES: dict[str, Any] = {
    "one point of a sweep": {
        "value": {
            "accelerator": "h100-sxm",
            "gpu_count": 4,
            "model": "llama-3.3-70b-instruct",
            "scenario": "closed_loop",
            "concurrency": 32,
            "isl_mean_tokens": 1024,
            "osl_mean_tokens": 512,
            "weights": "fp8",
            "engine": "vllm",
            "tp": 4,
            "metrics": [
                {"meaning": "tpot_s", "statistic": "p50", "value": 0.0191},
                {"meaning": "ttft_s", "statistic": "p50", "value": 0.241},
                {"meaning": "output_tokens_per_s", "statistic": "overall", "value": 1604.0},
            ],
            "measured_by": "performance team",
            "measured_on": "2026-11-30",
        }
    }
}


RunId = Annotated[str, Path(max_length=100, description="id of the run")]


@router.get(
    "/benchmark-runs",
    summary="Benchmark runs: filtered, ranked, counted, exported",
    response_model=BenchmarkRunPage,
    responses={
        200: {"content": {CSV_TYPE: {"schema": {"type": "string"}}, PARQUET_TYPE: {"schema": {"type": "string"}}}},
        **problem_responses(
            CursorInvalid,
            ScenarioRequired,
            UnknownAccelerator,
            UnknownLanguageModel,
            AmbiguousName,
            UnknownChoice,
            NotAcceptable,
        ),
    },
)
def list_benchmark_runs(
    question: Annotated[RunsQuestion, Query()],
    snapshot: SnapshotDep,
    engine: EngineDep,
    counts: FacetCountsDep,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
) -> Any:
    """Newest first. Runs of different scenarios are different experiments: a sort by a figure wants one `scenario`.

    A sort leaves out the runs that do not have its figure: they cannot be ranked, and are not last either.
    """
    wanted = filter_of(question, snapshot, engine)
    order = order_of(question)
    match question.format or asked_format(accept):
        case "csv":
            headers = {"Content-Disposition": 'attachment; filename="benchmark-runs.csv"'}
            return StreamingResponse(csv_parts(engine, wanted, order), media_type=CSV_TYPE, headers=headers)
        case "parquet":
            path = write_parquet(engine, wanted, order)
            gone = BackgroundTask(path.unlink, missing_ok=True)
            return FileResponse(path, media_type=PARQUET_TYPE, filename="benchmark-runs.parquet", background=gone)
        case _:
            return page_of_runs(question, wanted, order, engine, counts)


@router.get(
    "/benchmark-run-pairs",
    summary="MLPerf Offline beside Server of the same system",
    responses=problem_responses(CursorInvalid, UnknownAccelerator, UnknownLanguageModel, AmbiguousName, UnknownChoice),
)
def list_benchmark_run_pairs(
    question: Annotated[PairsQuestion, Query()], snapshot: SnapshotDep, engine: EngineDep
) -> Page[BenchmarkRunPair]:
    """Offline queues every sample at once; Server keeps latency limits. The ratio says what those cost this system.

    A pair is of one benchmark version, division, submitter, system, model and number of accelerators.
    """
    wanted = filter_of(question, snapshot, engine)
    asked = question.model_dump(mode="json", exclude={"limit", "cursor"})
    after = read_cursor(question.cursor, asked) if question.cursor else None
    if after is not None and not is_key_of(after, Order()):
        raise CursorInvalid("the cursor is not one of this list")
    with Session(engine) as session:
        pairs = list_pairs(
            session,
            wanted,
            OTHER_SCENARIOS[question.other],
            limit=question.limit + 1,
            after=str(after[0]) if after else None,
        )
    page = pairs[: question.limit]
    more = len(pairs) > question.limit
    return Page(
        items=[pair_of(pair) for pair in page],
        next_cursor=write_cursor((page[-1].offline.id,), asked) if more else None,
    )


@router.post(
    "/benchmark-runs",
    status_code=201,
    summary="Store one run of your own",
    responses={
        200: {"model": BenchmarkRunRead, "description": "The very same run is stored already"},
        **problem_responses(Invalid),
    },
)
def create_benchmark_run(
    body: Annotated[BenchmarkRunCreate, Body(openapi_examples=EXAMPLES)],
    catalogue: CatalogueDep,
    response: Response,
) -> BenchmarkRunRead:
    """The next estimate leans on it. The same content twice is one run: the second time is answered with 200."""
    engine = catalogue.engine
    digest = hashlib.sha256(body.model_dump_json(exclude_defaults=True).encode()).hexdigest()
    run = _run_of(body, catalogue.snapshot, digest)
    with Session(engine) as session:
        known = runs_of_content(session, [digest])
    if not known:
        with evidence_writing(engine) as (session, revision):
            known = runs_of_content(session, [digest])  # again: another writer may have been first
            if not known:
                save_runs(session, [run], revision=revision)
    if known:
        response.status_code = 200
        run = next(iter(known.values()))
    else:
        catalogue.refresh()
    response.headers["Location"] = f"/benchmark-runs/{run.id}"
    return read_of(run)


@router.get("/benchmark-runs/{id}", summary="One benchmark run", responses=problem_responses(UnknownBenchmarkRun))
def get_benchmark_run(id: RunId, engine: EngineDep) -> BenchmarkRunRead:
    """With every metric, by meaning and statistic, and the key it was read from."""
    with Session(engine) as session:
        return read_of(get_run(session, checked(id)))


@router.delete(
    "/benchmark-runs/{id}",
    status_code=204,
    summary="Delete a run of your own",
    responses=problem_responses(UnknownBenchmarkRun, ShippedRunKept),
)
def delete_benchmark_run(id: RunId, catalogue: CatalogueDep) -> Response:
    """For good: estimates lean on it no longer. Runs never change, so that there is no revision to name."""
    with evidence_writing(catalogue.engine) as (session, revision):
        delete_run(session, checked(id), revision=revision)
    catalogue.refresh()
    return Response(status_code=204)


def checked(run_id: str) -> str:
    """Other text never reaches the database."""
    if not re.fullmatch(ID_PATTERN, run_id):
        raise UnknownBenchmarkRun(run_id)
    return run_id


def _run_of(body: BenchmarkRunCreate, snapshot: Snapshot, digest: str) -> BenchmarkRun:
    with named_in_body("accelerator"):
        accelerator = snapshot.accelerator(body.accelerator)
    with named_in_body("model"):
        model = snapshot.language_model(body.model)
    metrics = [StoredMetric(each.meaning, each.statistic, each.value, each.source_key) for each in body.metrics]
    if body.power_w is not None:
        metrics.append(StoredMetric("power_w", "mean", body.power_w))
    now = datetime.now(UTC)
    (run_id,) = new_ids(now, 1)
    return BenchmarkRun(
        id=run_id,
        origin=Origin.USER,
        created_at=now,
        content_digest=digest,
        accelerator=accelerator.slug,
        accelerator_revision=accelerator.revision,
        accelerator_name=body.accelerator,
        gpu_count=body.gpu_count,
        node_count=body.node_count,
        model=model.slug,
        model_name=body.model,
        weights=known_precision(body.weights, "weights"),
        kv_cache=known_precision(body.kv_cache, "kv_cache"),
        compute=known_precision(body.compute, "compute"),
        engine=body.engine.lower() if body.engine else None,
        engine_version=body.engine_version,
        tp=body.tp,
        pp=body.pp,
        ep=body.ep,
        dp=body.dp,
        speculation=body.speculation,
        prefix_caching=body.prefix_caching,
        scenario=body.scenario,
        concurrency=body.concurrency,
        request_rate_per_s=body.request_rate_per_s,
        isl_mean_tokens=body.isl_mean_tokens,
        isl_std_tokens=body.isl_std_tokens,
        osl_mean_tokens=body.osl_mean_tokens,
        osl_std_tokens=body.osl_std_tokens,
        **main_figures(metrics, gpu_count=body.gpu_count),
        power_w=body.power_w,
        power_scope=body.power_scope,
        measured_by=body.measured_by,
        measured_on=body.measured_on,
        source_title=body.source_title,
        source_ref=body.source_ref,
        calibrates=not body.quality_remarks,
        details=Details(
            metrics=tuple(metrics),
            quality_remarks=tuple(body.quality_remarks),
            extras={name: str(limit) for name, limit in body.engine_limits.items()},
        ).text(),
    )
