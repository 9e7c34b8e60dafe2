"""Shipped accelerators and models, and the question that most worked cases start from."""

from functools import cache
from typing import Any

from service.catalogue.snapshot import Snapshot, shipped_snapshot
from service.sizing.accelerator import Accelerator
from service.sizing.language_model import LanguageModel
from service.sizing.plan import SizingResult, size
from service.sizing.question import SizingInputs
from service.sizing.remarks import WarningCode

GIB = 2**30


@cache
def shipped() -> Snapshot:
    return shipped_snapshot()


def accelerator(slug: str) -> Accelerator:
    return shipped().accelerator(slug).accelerator


def model(slug: str) -> LanguageModel:
    return shipped().language_model(slug).model


def answer(model_slug: str, accelerator_slug: str, **asked: Any) -> SizingResult:
    return size(SizingInputs(model=model(model_slug), accelerator=accelerator(accelerator_slug), **asked))


def warning_codes(result: SizingResult) -> set[WarningCode]:
    return {warning.code for warning in result.resolved.remarks.warnings}
