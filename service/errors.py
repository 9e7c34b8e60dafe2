"""Everything that can be wrong with a question, a record or a file.

::

    ServiceError                      what a caller can understand and mend
    ├── NotFound
    │   ├── UnknownAccelerator        no record of that slug or alias; says what is near by prefix
    │   ├── UnknownLanguageModel
    │   ├── UnknownRevision
    │   └── RecordRetired             the record was taken out of use; its history can still be read
    ├── AmbiguousName                 the name means two things; says which
    ├── Invalid                       a value cannot be used; names the field
    │   ├── UnknownChoice             not one of a closed set; says what is known
    │   ├── ArchitectureNotSupported  a config.json whose architecture is not modelled
    │   ├── ConfigInvalid             a config.json with a missing, wrong or contradictory field
    │   ├── CheckpointInvalid         a checkpoint's index or header that contradicts itself or the config
    │   ├── ParallelismNotLegal       a layout that the model or the system cannot have
    │   └── RateNotPublished          no published rate at that precision and density
    ├── Conflict
    │   ├── NameTaken                 a slug or alias already belongs to another record
    │   └── RevisionMismatch          the record has moved on since it was read
    ├── RevisionRequired              a replacement must say which revision it replaces
    └── CatalogueFileInvalid          a shipped or given catalogue file is refused

The tree knows no HTTP: ``service/api/problems.py`` gives each leaf its status.
"""

from collections.abc import Iterable


class ServiceError(Exception):
    """A fact about the request that its sender can act on."""

    code = "service_error"
    title = "The request cannot be answered"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class NotFound(ServiceError):
    code = "not_found"
    title = "There is no such record"


class UnknownRecord(NotFound):
    """Names are resolved exactly; the near ones by prefix are only listed."""

    noun = "record"

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        self.near = near_by_prefix(name, known)
        alike = f"names that begin alike: {', '.join(self.near)}"
        hint = f"; {alike}" if self.near else f"; the list of {self.noun}s has them all"
        super().__init__(f"there is no {self.noun} {name[:200]!r}{hint}")


class UnknownAccelerator(UnknownRecord):
    code = "unknown_accelerator"
    title = "Unknown accelerator"
    noun = "accelerator"


class UnknownLanguageModel(UnknownRecord):
    code = "unknown_model"
    title = "Unknown model"
    noun = "model"


class UnknownRevision(NotFound):
    code = "unknown_revision"
    title = "Unknown revision"

    def __init__(self, slug: str, revision: int, latest: int) -> None:
        super().__init__(f"{slug} has no revision {revision}; its revisions are 1 to {latest}")


class RecordRetired(NotFound):
    code = "record_retired"
    title = "The record has been retired"

    def __init__(self, noun: str, slug: str) -> None:
        super().__init__(f"the {noun} {slug!r} is retired; its history can still be read, and a PUT brings it back")


class AmbiguousName(ServiceError):
    code = "ambiguous_name"
    title = "The name means more than one thing"

    def __init__(self, name: str, candidates: Iterable[str]) -> None:
        self.candidates = tuple(candidates)
        super().__init__(f"{name[:200]!r} may mean {' or '.join(self.candidates)}; ask for one of these by its slug")


class Invalid(ServiceError):
    """``field`` is the path in the request body, such as ``("parallelism", "tp")``."""

    code = "invalid_value"
    title = "A value cannot be used"

    def __init__(self, detail: str, *, field: tuple[str | int, ...] = ()) -> None:
        super().__init__(detail)
        self.field = field


class UnknownChoice(Invalid):
    code = "unknown_choice"
    title = "Not one of the known values"

    def __init__(self, value: str, known: Iterable[str], *, field: tuple[str | int, ...] = ()) -> None:
        self.known = tuple(known)
        super().__init__(f"{value[:200]!r} is not known here; known are {', '.join(self.known)}", field=field)


class ArchitectureNotSupported(Invalid):
    code = "architecture_not_supported"
    title = "The model's architecture is not modelled"

    def __init__(self, architecture: str, supported: Iterable[str], *, reason: str = "") -> None:
        self.supported = tuple(supported)
        because = f" ({reason})" if reason else ""
        super().__init__(
            f"the architecture {architecture[:200]!r} is not modelled{because}, and is never approximated by another; "
            f"modelled are {', '.join(self.supported)}",
            field=("config", "model_type"),
        )


class ConfigInvalid(Invalid):
    code = "config_invalid"
    title = "The config.json cannot be used"

    def __init__(self, detail: str, *, key: str | None = None) -> None:
        super().__init__(detail, field=("config", *key.split(".")) if key else ("config",))


class CheckpointInvalid(Invalid):
    code = "checkpoint_invalid"
    title = "The checkpoint's index or header cannot be used"

    def __init__(self, detail: str, *, key: str | None = None) -> None:
        super().__init__(detail, field=("checkpoint", key) if key else ("checkpoint",))


class ParallelismNotLegal(Invalid):
    code = "parallelism_not_legal"
    title = "The layout is not possible"


class RateNotPublished(Invalid):
    code = "rate_not_published"
    title = "The accelerator has no published rate at that precision and density"


class Conflict(ServiceError):
    code = "conflict"
    title = "The record is in the way"


class NameTaken(Conflict):
    code = "name_taken"
    title = "The name is already taken"


class RevisionMismatch(Conflict):
    code = "revision_mismatch"
    title = "The record has changed since you read it"


class RevisionRequired(ServiceError):
    code = "revision_required"
    title = "Say which revision you are replacing"


class CatalogueFileInvalid(ServiceError):
    code = "catalogue_file_invalid"
    title = "The catalogue file is refused"

    def __init__(self, file: str, field: str, reason: str) -> None:
        self.file, self.field, self.reason = file, field, reason
        super().__init__(f"{file}: {field}: {reason}")


def near_by_prefix(name: str, known: Iterable[str], *, limit: int = 10) -> tuple[str, ...]:
    """The known names that share the longest beginning with the asked one, at least three characters of it."""
    asked, names = name.lower(), sorted(known)
    for length in range(min(len(asked), 64), 2, -1):
        if near := [each for each in names if each.startswith(asked[:length])]:
            return tuple(near[:limit])
    return ()
