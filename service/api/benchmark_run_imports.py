"""``/benchmark-run-imports``: result files of benchmark tools, read and stored.

The upload is streamed to temporary files and read from there; names are labels, never paths.
"""

from collections.abc import Sequence
from typing import Annotated, Any, BinaryIO, cast

from fastapi import APIRouter, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException

from service.api.dependencies import CatalogueDep
from service.api.explained_errors import explained
from service.api.import_schemas import ImportedFileRead, ImportMetadata, ImportReport
from service.api.problems import (
    MalformedBody,
    MediaTypeNotSupported,
    json_pointer,
    problem_response,
    problem_responses,
    status_of,
)
from service.api.run_importing import import_runs
from service.api.strict_json import StrictJsonRoute, read_json
from service.catalogue.live import LiveCatalogue
from service.errors import Invalid

router = APIRouter(tags=["benchmark runs"], route_class=StrictJsonRoute)

PATH = "/benchmark-run-imports"
MOST_FILES = 200
METADATA_BYTES = 100_000
MULTIPART = "multipart/form-data"
FORM: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            MULTIPART: {
                "schema": {
                    "type": "object",
                    "required": ["files"],
                    "additionalProperties": False,
                    "properties": {
                        "files": {
                            "type": "array",
                            "minItems": 1,
                            "maxItems": MOST_FILES,
                            "items": {"type": "string", "format": "binary"},
                            "description": "result files, or zip archives of them",
                        },
                        "metadata": {"$ref": "#/components/schemas/ImportMetadata"},
                    },
                },
                "encoding": {"metadata": {"contentType": "application/json"}},
            }
        },
    }
}


class NothingStored(Invalid):
    code = "nothing_stored"
    title = "No file could be stored"


class ImportQuestion(BaseModel):
    atomic: bool = Field(False, description="store every file or none")


@router.post(
    PATH,
    status_code=201,
    summary="Import result files of benchmark tools",
    openapi_extra=FORM,
    response_model=ImportReport,
    responses=problem_responses(NothingStored),
)
async def create_benchmark_run_import(
    request: Request, question: Annotated[ImportQuestion, Query()], catalogue: CatalogueDep
) -> Any:
    """Each file stands by itself, stored whole or not at all, and has a report. The same content again is the same run.

    201 when at least one file is stored, by this import or an earlier one of the same content; otherwise a 422 problem
    with the same `files`. `metadata` says what the files cannot; what is still `missing` is named file by file.
    """
    content_type = request.headers.get("content-type", "")
    if content_type.split(";")[0].strip().lower() != MULTIPART:
        raise MediaTypeNotSupported(f"send the files as Content-Type: {MULTIPART}")
    if "charset" in content_type.lower():
        raise MalformedBody("the form is UTF-8; leave charset out of its Content-Type")
    try:
        form = await request.form(max_files=MOST_FILES, max_fields=10, max_part_size=METADATA_BYTES)
    except HTTPException as error:
        raise MalformedBody(f"the form cannot be read: {error.detail}") from None
    try:
        uploads, metadata = _parts(form)
        files = await run_in_threadpool(_import, uploads, metadata, catalogue, atomic=question.atomic)
    finally:
        await form.close()
    if any(each.runs for each in files):
        return ImportReport(files=files)
    return _nothing_stored(request, files)


def _parts(form: FormData) -> tuple[list[tuple[str, BinaryIO]], ImportMetadata]:
    unknown = sorted({name for name, _ in form.multi_items()} - {"files", "metadata"})
    if unknown:
        raise Invalid("the form has the parts files and metadata, and no other", field=(unknown[0],))
    uploads = form.getlist("files")
    if not uploads or not all(isinstance(each, UploadFile) for each in uploads):
        raise Invalid("send one or more files, each with a file name", field=("files",))
    said = form.getlist("metadata")
    if len(said) > 1:
        raise Invalid("metadata is given twice", field=("metadata",))
    return [_named(each) for each in uploads], _metadata(said[0] if said else "{}")


def _named(upload: UploadFile | str) -> tuple[str, BinaryIO]:
    file = cast(UploadFile, upload)
    return file.filename or "unnamed", file.file


def _metadata(part: UploadFile | str) -> ImportMetadata:
    """Some clients send a JSON part as a file; that is read as well."""
    body = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part.file.read(METADATA_BYTES + 1)
    if len(body) > METADATA_BYTES:
        raise MalformedBody(f"metadata has more than {METADATA_BYTES} bytes", path=("metadata",))
    try:
        return ImportMetadata.model_validate(read_json(body))
    except ValidationError as error:
        found = (explained(each, ImportMetadata) for each in error.errors(include_url=False, include_input=False))
        raise RequestValidationError([{**each, "loc": ("body", "metadata", *each["loc"])} for each in found]) from None
    except MalformedBody as error:
        raise MalformedBody(f"metadata: {error.detail}", path=("metadata", *(error.path or ()))) from None


def _import(
    uploads: Sequence[tuple[str, BinaryIO]], metadata: ImportMetadata, catalogue: LiveCatalogue, *, atomic: bool
) -> list[ImportedFileRead]:
    files = import_runs(uploads, metadata, snapshot=catalogue.snapshot, engine=catalogue.engine, atomic=atomic)
    catalogue.refresh()
    return files


def _nothing_stored(request: Request, files: Sequence[ImportedFileRead]) -> Response:
    asked = list(dict.fromkeys(ask for each in files if each.reason for ask in each.missing))
    first = next((each for each in files if each.reason), files[0])
    return problem_response(
        request.scope,
        status=status_of(NothingStored),
        code=NothingStored.code,
        title=NothingStored.title,
        detail=f"{first.name}: {first.reason}"[:1000],
        field_errors=[
            {"pointer": json_pointer(("metadata", str(ask))), "detail": "the files do not say it"} for ask in asked
        ],
        files=[each.model_dump(mode="json") for each in files],
    )
