"""``create_app(settings)`` wires the service; no other module holds state.

The order of a start: tables, shipped catalogue, snapshot, then requests. A background task watches for the writes
of other processes.
"""

import asyncio
import contextlib
import gc
import logging
from collections.abc import AsyncIterator, Callable
from importlib.resources import files

import anyio.to_thread
from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.staticfiles import StaticFiles
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import HTMLResponse

from service import __version__
from service.api import (
    accelerators,
    benchmark_run_imports,
    benchmark_run_prediction,
    benchmark_runs,
    contract,
    health,
    language_models,
    problem_handlers,
    problem_kinds,
    sizing,
)
from service.api.middleware import BodyLimit, Failures, HeadAsGet, RequestIds
from service.catalogue.benchmark_queries import FacetCounts
from service.catalogue.database import create_database_engine
from service.catalogue.live import LiveCatalogue
from service.catalogue.loading import load_shipped_catalogue
from service.catalogue.migrating import migrate
from service.catalogue.shipped_benchmarks import load_shipped_runs
from service.settings import Settings

log = logging.getLogger("sizing")

COLLECT_AFTER_ALLOCATIONS = 20_000  # an answer allocates some two thousand objects, and leaves no cycles behind
EVIDENCE_WAIT_S = 10.0
BLOCKING_REQUESTS_AT_ONCE = 4  # measured: more threads are slower under the interpreter's lock
ROUTERS = (
    sizing.router,
    accelerators.router,
    language_models.router,
    benchmark_runs.router,
    benchmark_run_prediction.router,
    benchmark_run_imports.router,
    problem_kinds.router,
    health.router,
)


def create_app(settings: Settings | None = None) -> FastAPI:
    settings = settings or Settings()
    app = FastAPI(
        title="Accelerator sizing",
        summary="Does a language model fit on an accelerator, how fast will it run there, at what power and cost?",
        description=contract.DESCRIPTION,
        version=__version__,
        lifespan=_lifespan(settings),
        middleware=_middleware(settings),
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
    )
    problem_handlers.install(app)
    for router in ROUTERS:
        app.include_router(router)
    _add_docs(app)
    app.openapi = lambda: contract.document(app)  # type: ignore[method-assign]  # FastAPI's documented way
    return app


def _middleware(settings: Settings) -> list[Middleware]:
    """Outermost first. Failures are answered inside the rest, so that a 500 has its request id and CORS headers."""
    chain = [Middleware(RequestIds)]
    if settings.cors_origins:
        chain.append(
            Middleware(
                CORSMiddleware,
                allow_origins=settings.cors_origins,
                allow_methods=["GET", "HEAD", "POST", "PUT", "DELETE"],
                allow_headers=["Content-Type", "If-Match", "If-None-Match", "X-Request-ID"],
                expose_headers=["ETag", "Location", "X-Request-ID"],
            )
        )
    chain.append(Middleware(HeadAsGet))
    if settings.gzip:
        chain.append(Middleware(GZipMiddleware, minimum_size=1024, compresslevel=5))
    return [
        *chain,
        Middleware(Failures),
        Middleware(
            BodyLimit,
            max_body_bytes=settings.max_body_bytes,
            at_path={benchmark_run_imports.PATH: settings.max_import_bytes},
        ),
    ]


def _lifespan(settings: Settings) -> Callable[[FastAPI], contextlib.AbstractAsyncContextManager[None]]:
    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = BLOCKING_REQUESTS_AT_ONCE
        catalogue = await asyncio.to_thread(open_catalogue, settings)
        app.state.catalogue = catalogue
        evidence = asyncio.create_task(asyncio.to_thread(catalogue.refresh))
        done, _ = await asyncio.wait({evidence}, timeout=EVIDENCE_WAIT_S)  # a million runs take longer: /health/ready
        for each in done:
            each.result()
        gc.collect()
        gc.freeze()  # what is loaded at start stays: the collector need not look at it again while answers come and go
        gc.set_threshold(COLLECT_AFTER_ALLOCATIONS)
        app.state.facet_counts = FacetCounts()
        watch = asyncio.create_task(_watch_other_writers(catalogue, settings.poll_interval_s))
        try:
            yield
        finally:
            watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watch
            catalogue.engine.dispose()

    return lifespan


def open_catalogue(settings: Settings) -> LiveCatalogue:
    """The database brought up to date as the settings allow, and its snapshot."""
    engine = create_database_engine(settings.database_url, sqlite_synchronous=settings.sqlite_synchronous)
    if settings.migrate_on_start:
        migrate(engine)
    if settings.load_catalogue_on_start:
        load_shipped_catalogue(engine)
        load_shipped_runs(engine)
    return LiveCatalogue(engine, leans_on_runs=settings.lean_on_runs)


async def _watch_other_writers(catalogue: LiveCatalogue, interval_s: float) -> None:
    while True:
        await asyncio.sleep(interval_s)
        try:
            await asyncio.to_thread(catalogue.refresh_if_reachable)
        except Exception:  # whatever it is, the next look may succeed
            log.exception("the catalogue could not be refreshed")


def _add_docs(app: FastAPI) -> None:
    """Swagger UI from an installed package rather than from the internet."""
    assets = StaticFiles(directory=str(files("fastapi_offline") / "static"))
    app.mount("/docs-assets", assets, name="docs-assets")

    @app.get("/docs", include_in_schema=False)
    async def get_docs() -> HTMLResponse:
        return get_swagger_ui_html(
            openapi_url="/openapi.json",
            title="Accelerator sizing: the API",
            swagger_js_url="/docs-assets/swagger-ui-bundle.js",
            swagger_css_url="/docs-assets/swagger-ui.css",
            swagger_favicon_url="/docs-assets/favicon.png",
        )
