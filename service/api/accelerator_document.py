"""An accelerator as the API shows it: every figure per GPU in base units, beside how it follows from what was printed.

``accelerator_schemas.py`` is the contract; here the same is built as plain dictionaries, which is faster than building
validated objects, and the tests hold the two together.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from service.catalogue.accelerator_figures import Alternative, Figure, LinkFigure, LinkPart, Rate, RateFigure
from service.catalogue.accelerator_records import AcceleratorRecord
from service.catalogue.quantities import read_quantity
from service.catalogue.sources import Source, source_documents
from service.sizing.precision import Precision
from service.sizing.roofline import balance_point_flop_per_byte, weights_only_crossover_batch

FOUR_BIT = (Precision.NVFP4, Precision.MXFP4, Precision.INT4)

# Weights that are multiplied at the rate of a format: the format itself and narrower ones. For 4-bit rates
# wider weights too, because published articles divide that rate by their bytes and buyers ask which is meant.
WEIGHTS_AT_RATE: Mapping[Precision, tuple[Precision, ...]] = {
    Precision.FP64: (Precision.FP64,),
    Precision.FP32: (Precision.FP32, Precision.BF16),
    Precision.TF32: (Precision.FP32, Precision.BF16),
    Precision.BF16: (Precision.BF16, Precision.FP8, Precision.INT8, *FOUR_BIT),
    Precision.FP16: (Precision.FP16, Precision.FP8, Precision.INT8, *FOUR_BIT),
    Precision.FP8: (Precision.FP8, *FOUR_BIT),
    Precision.MXFP8: (Precision.MXFP8, *FOUR_BIT),
    Precision.INT8: (Precision.INT8, Precision.INT4),
    Precision.FP6: (Precision.FP6, *FOUR_BIT),
    Precision.MXFP6: (Precision.MXFP6, *FOUR_BIT),
    Precision.NVFP4: (Precision.NVFP4, Precision.FP8, Precision.BF16),
    Precision.MXFP4: (Precision.MXFP4, Precision.FP8, Precision.BF16),
    Precision.INT4: (Precision.INT4, Precision.INT8, Precision.BF16),
}


def crossover_batches(*, compute: Precision, balance_point: float) -> dict[str, float]:
    """Weights-only crossover batch for each weight format that is multiplied at the rate of ``compute``.

    >>> crossover_batches(compute=Precision.NVFP4, balance_point=1250)
    {'nvfp4': 312.5, 'fp8': 625.0, 'bf16': 1250.0}
    """
    return {
        weights.value: weights_only_crossover_batch(
            balance_point_flop_per_byte=balance_point, bytes_per_parameter=weights.element_bytes
        )
        for weights in WEIGHTS_AT_RATE[compute]
    }


def accelerator_document(record: AcceleratorRecord, *, revision: int) -> dict[str, Any]:
    """The answer of ``GET /accelerators/{slug}``."""
    document = _Document(record)
    return {
        "slug": record.slug,
        "aliases": list(record.aliases),
        "name": record.name,
        "vendor": record.vendor,
        "architecture": record.architecture,
        "kind": record.kind.value,
        "form_factor": record.form_factor,
        "status": record.status.value,
        "status_detail": record.status_detail,
        "launched_on": record.launch.date if record.launch else None,
        "revision": revision,
        "gpu_count": record.gpu_count,
        "compute_dies_per_gpu": record.compute_dies_per_gpu,
        "devices_per_gpu": record.devices_per_gpu,
        "devices_per_gpu_reason": record.devices_per_gpu_reason,
        "unified_memory": record.unified_memory,
        "memory": document.memory(),
        "peak_rates": document.peak_rates(),
        "balance_points": document.balance_points(),
        "scale_up": document.scale_up(),
        "scale_out": document.link(record.scale_out),
        "host_link": document.link(record.host_link),
        "die_to_die_bandwidth_bytes_per_s": document.share(record.die_to_die),
        "power": document.power(),
        "system_published": dict(record.system_published),
        "confidence": record.confidence.value,
        "unverified": [path for path, _, _, unverified in record.figures() if unverified],
        "caveats": list(record.caveats),
        "sources": source_documents(record.sources),
    }


class _Document:
    """The parts of one record's document; they share its GPU count and its sources."""

    def __init__(self, record: AcceleratorRecord) -> None:
        self.record = record
        self.count = record.gpu_count
        self.known: dict[str, Source] = {source.id: source for source in record.sources}

    def sources(self, ids: Iterable[str]) -> list[dict[str, str]]:
        """Briefly; in full they stand once, at the end of the document."""
        cited = [self.known[source_id] for source_id in dict.fromkeys(ids)]
        return [{"id": source.id, "title": source.title, "url": source.url} for source in cited]

    def share(self, figure: Figure | None) -> float | None:
        return None if figure is None else figure.value_per_gpu(self.count)

    def alternative(self, figure: Figure, alternative: Alternative, field: str) -> dict[str, Any]:
        """One contradicting value, in the unit and scope of the figure it contradicts."""
        written = alternative.total if alternative.per_gpu is None else alternative.per_gpu
        assert written is not None  # noqa: S101 - the record's form demands one of the two
        divisor = (figure.total_gpu_count or self.count) if alternative.per_gpu is None else 1
        value = read_quantity(written, figure.unit).value / divisor
        if isinstance(figure, LinkFigure):
            value = value * figure.one_way_per_gpu(1) / figure.value_per_gpu(1)
        return {
            field: value,
            "as_published": alternative.as_published or (written if isinstance(written, str) else None),
            "note": alternative.note,
            "unverified": alternative.unverified,
            "sources": self.sources(alternative.sources),
        }

    def memory(self) -> dict[str, Any]:
        memory = self.record.memory
        capacity, usable, bandwidth = memory.capacity, memory.usable, memory.bandwidth
        figures = [figure for figure in (capacity, bandwidth) if figure is not None]
        derivations = [text for figure in figures if (text := figure.derivation_per_gpu(self.count))]
        printed = [text for figure in figures if (text := _printed(figure))]
        alternatives = [self.alternative(capacity, each, "capacity_bytes_per_gpu") for each in capacity.alternatives]
        if bandwidth is not None:
            alternatives += [
                self.alternative(bandwidth, each, "bandwidth_bytes_per_s_per_gpu") for each in bandwidth.alternatives
            ]
        notes = [note for note in (memory.note, capacity.note, bandwidth and bandwidth.note) if note]
        return {
            "type": memory.type,
            "capacity_bytes_total": capacity.value_total(self.count),
            "capacity_bytes_per_gpu": capacity.value_per_gpu(self.count),
            "usable_bytes_per_gpu": usable.value_per_gpu(self.count),
            "usable_basis": usable.basis.value,
            "usable_derivation": usable.derivation_per_gpu(self.count) or _printed(usable),
            "usable_note": usable.note,
            "usable_unverified": usable.unverified,
            "usable_sources": self.sources(usable.sources),
            "bandwidth_bytes_per_s_total": bandwidth and bandwidth.value_total(self.count),
            "bandwidth_bytes_per_s_per_gpu": self.share(bandwidth),
            "as_published": memory.as_published or " | ".join(printed) or None,
            "derivation": "; ".join(derivations) or None,
            "alternatives": alternatives,
            "notes": notes,
            "sources": self.sources(source for figure in figures for source in figure.sources),
        }

    def peak_rates(self) -> list[dict[str, Any]]:
        return [self._peak_rate(rate, *each) for rate in self.record.peak_rates for each in rate.by_density()]

    def _peak_rate(self, rate: Rate, density: Any, figure: RateFigure) -> dict[str, Any]:
        notes = [note for note in (rate.note, figure.note) if note]
        return {
            "precision": rate.precision.value,
            "execution_unit": rate.execution_unit and rate.execution_unit.value,
            "density": density.value,
            "flop_per_s_per_gpu": figure.value_per_gpu(self.count),
            "flop_per_s_total": figure.value_total(self.count),
            "headline": rate.headline.value,
            "basis": figure.basis.value,
            "as_published": figure.as_published or rate.as_published or _printed(figure),
            "derivation": figure.derivation_per_gpu(self.count),
            "alternatives": [self.alternative(figure, each, "flop_per_s_per_gpu") for each in figure.alternatives],
            "notes": notes,
            "unverified": figure.unverified or rate.unverified,
            "sources": self.sources(figure.sources or rate.sources),
        }

    def balance_points(self) -> list[dict[str, Any]]:
        """Of every published rate; none where the bandwidth is unknown."""
        bandwidth = self.share(self.record.memory.bandwidth)
        if bandwidth is None:
            return []
        points = []
        for rate in self.record.peak_rates:
            for density, figure in rate.by_density():
                balance = balance_point_flop_per_byte(
                    peak_flop_per_s=figure.value_per_gpu(self.count), memory_bandwidth_bytes_per_s=bandwidth
                )
                points.append(
                    {
                        "precision": rate.precision.value,
                        "execution_unit": rate.execution_unit and rate.execution_unit.value,
                        "density": density.value,
                        "flop_per_byte": balance,
                        "crossover_batches": crossover_batches(compute=rate.precision, balance_point=balance),
                    }
                )
        return points

    def scale_up(self) -> dict[str, Any]:
        part = self.record.scale_up
        return {
            "name": part.name,
            "topology": part.topology and part.topology.value,
            **self._link_figure(part.bandwidth),
            "peer_bandwidth_bytes_per_s_one_way": self.record.peer_bandwidth_bytes_per_s_one_way(),
            "domain_gpu_count": part.domain_gpu_count,
            "direct_peer_count": part.direct_peer_count,
            "note": part.note,
            "unverified": part.unverified or (part.bandwidth is not None and part.bandwidth.unverified),
            "sources": self.sources((*part.sources, *(part.bandwidth.sources if part.bandwidth else ()))),
        }

    def link(self, part: LinkPart | None) -> dict[str, Any]:
        """Of the same form whether anything is known or not."""
        figure = part.bandwidth if part else None
        return {
            "text": part.text if part else None,
            **self._link_figure(figure),
            "note": figure and figure.note,
            "unverified": figure is not None and figure.unverified,
            "sources": self.sources(figure.sources if figure else ()),
        }

    def _link_figure(self, figure: LinkFigure | None) -> dict[str, Any]:
        field = "bandwidth_bytes_per_s_per_gpu_one_way"
        alternatives = figure.alternatives if figure else ()
        return {
            field: figure and figure.one_way_per_gpu(self.count),
            "as_published": figure and _printed(figure),
            "direction_as_published": figure and figure.direction.value,
            "derivation": figure and figure.one_way_derivation(self.count),
            "alternatives": [self.alternative(figure, each, field) for each in alternatives] if figure else [],
        }

    def power(self) -> dict[str, Any]:
        power = self.record.power
        tdp, provisioned = power.tdp, power.provisioned
        return {
            "tdp_w_per_gpu": self.share(tdp),
            "tdp_unverified": tdp is not None and tdp.unverified,
            "vendor_term": power.vendor_term,
            "configurable": power.configurable,
            "system": [
                {
                    "scope": each.scope,
                    "power_w": each.power_w,
                    "gpu_count": each.gpu_count,
                    "is_load": each.is_load,
                    "note": each.note,
                    "unverified": each.unverified,
                    "sources": self.sources(each.sources),
                }
                for each in power.system
            ],
            "provisioned_w_per_gpu": self.share(provisioned),
            "provisioned_note": provisioned and provisioned.note,
            "provisioned_unverified": provisioned is not None and provisioned.unverified,
            "note": power.note,
            "sources": self.sources(
                source for figure in (tdp, provisioned) if figure is not None for source in figure.sources
            ),
        }


def _printed(figure: Figure) -> str | None:
    """The vendor's words, else the quantity as it was printed."""
    written = figure.total if figure.per_gpu is None else figure.per_gpu
    return figure.as_published or (written if isinstance(written, str) else None)
