"""An accelerator record that is right, for tests to spoil one thing at a time."""

from typing import Any

EXAMPLE_SOURCE = {"id": "data-sheet", "title": "Example data sheet", "urls": ["https://example.com/sheet"]}


def example_record(**changes: Any) -> dict[str, Any]:
    """As a caller would send it to ``POST /accelerators``."""
    record: dict[str, Any] = {
        "slug": "example-x8",
        "name": "Example X8",
        "aliases": ["x8"],
        "vendor": "Example",
        "architecture": "E1",
        "kind": "rack",
        "status": "shipping",
        "gpu_count": 8,
        "memory": {
            "type": "HBM3e",
            "capacity": {"total": "1.5 TB", "per_gpu": "192 GB", "sources": ["data-sheet"]},
            "usable": {"per_gpu": "190 GB", "basis": "measured", "sources": ["data-sheet"]},
            "bandwidth": {"total": "64 TB/s", "sources": ["data-sheet"]},
        },
        "peak_rates": [
            {
                "precision": "fp8",
                "headline": "sparse",
                "as_published": "72 PFLOPS (sparse)",
                "dense": {
                    "total": "36 PFLOPS",
                    "basis": "halved_by_footnote",
                    "derivation": "72 PFLOPS / 2",
                },
                "sparse": {"total": "72 PFLOPS"},
                "sources": ["data-sheet"],
            }
        ],
        "scale_up": {
            "name": "ExampleLink",
            "topology": "switched",
            "domain_gpu_count": 8,
            "bandwidth": {"per_gpu": "900 GB/s", "direction": "bidirectional", "sources": ["data-sheet"]},
            "sources": ["data-sheet"],
        },
        "power": {"tdp": {"per_gpu": "1,000 W", "sources": ["data-sheet"]}},
        "confidence": "vendor-published",
        "sources": [EXAMPLE_SOURCE],
    }
    return record | changes
