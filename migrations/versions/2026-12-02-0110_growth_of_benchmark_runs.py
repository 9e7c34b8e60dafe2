"""An index for each filter and each order of the runs, and counts of the values that facets are asked of."""

import json

import sqlalchemy as sa
from alembic import op

revision = "2026_12_02_0110"
down_revision = "2026_12_01_2330"
branch_labels = None
depends_on = None

OLD_KEYS = ("accelerator", "model", "engine", "submitter", "measured_on", "evidence_revision")
OLD_FIGURES = (
    "ttft_central_s",
    "ttft_p99_s",
    "tpot_central_s",
    "tpot_p99_s",
    "output_tokens_per_s",
    "output_tokens_per_s_per_gpu",
    "output_tokens_per_s_per_user",
    "input_tokens_per_s",
    "power_w",
)
FIGURES = (*OLD_FIGURES, "ttft_p50_s", "tpot_p50_s", "tpot_mean_s")
KEYS = (
    *OLD_KEYS,
    *FIGURES,
    "accelerator_name",
    "model_name",
    "weights",
    "kv_cache",
    "compute",
    "engine_version",
    "gpu_count",
    "node_count",
    "tp",
    "pp",
    "ep",
    "dp",
    "speculation",
    "prefix_caching",
    "scenario",
    "mlperf_version",
    "mlperf_division",
    "mlperf_availability",
    "mlperf_valid",
    "system_name",
    "power_scope",
    "tool",
    "origin",
    "calibrates",
    "measured_by",
    "measured_month",
    "measured_year",
    "concurrency",
    "request_rate_per_s",
    "isl_mean_tokens",
    "osl_mean_tokens",
)
KEYS_INDEXED_WHOLE = ("origin", "calibrates", "evidence_revision", "prefix_caching", "mlperf_valid")
FACETS = (
    ("accelerator", sa.String()),
    ("model", sa.String()),
    ("weights", sa.String()),
    ("kv_cache", sa.String()),
    ("engine", sa.String()),
    ("engine_version", sa.String()),
    ("scenario", sa.String()),
    ("gpu_count", sa.Integer()),
    ("tp", sa.Integer()),
    ("speculation", sa.String()),
    ("mlperf_version", sa.String()),
    ("mlperf_division", sa.String()),
    ("submitter", sa.String()),
    ("power_scope", sa.String()),
    ("tool", sa.String()),
    ("origin", sa.String()),
    ("calibrates", sa.Boolean()),
)


def upgrade() -> None:
    for columns in _indexes(OLD_KEYS, OLD_FIGURES):
        op.drop_index(_name(columns), "benchmark_run")
    op.add_column("benchmark_run", sa.Column("measured_month", sa.String(7), nullable=True))
    op.add_column("benchmark_run", sa.Column("measured_year", sa.String(4), nullable=True))
    op.execute(
        "UPDATE benchmark_run SET measured_year = substr(measured_on, 1, 4), "
        "measured_month = CASE WHEN length(measured_on) >= 7 THEN substr(measured_on, 1, 7) END"
    )
    for columns in _indexes(KEYS, FIGURES):
        has_value = None if columns[-1] in KEYS_INDEXED_WHOLE else sa.text(f"{columns[-1]} IS NOT NULL")
        op.create_index(
            _name(columns), "benchmark_run", [*columns, "id"], sqlite_where=has_value, postgresql_where=has_value
        )
    op.create_index("ix_benchmark_run_accelerator_model", "benchmark_run", ["accelerator", "model", "id"])
    counts = op.create_table(
        "benchmark_run_facet",
        sa.Column("facet", sa.String(40), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("run_count", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("facet", "value", name="pk_benchmark_run_facet"),
        sa.CheckConstraint("run_count >= 0", name=op.f("ck_benchmark_run_facet_run_count_not_negative")),
    )
    op.create_index("ix_benchmark_run_facet_run_count", "benchmark_run_facet", ["facet", "run_count", "value"])
    runs = sa.table("benchmark_run", *(sa.column(name, kind) for name, kind in FACETS))
    for name, _ in FACETS:
        counted = op.get_bind().execute(sa.select(runs.c[name], sa.func.count()).group_by(runs.c[name])).all()
        op.bulk_insert(
            counts, [{"facet": name, "value": json.dumps(value), "run_count": count} for value, count in counted]
        )


def downgrade() -> None:
    op.drop_table("benchmark_run_facet")
    op.drop_index("ix_benchmark_run_accelerator_model", "benchmark_run")
    for columns in _indexes(KEYS, FIGURES):
        op.drop_index(_name(columns), "benchmark_run")
    op.drop_column("benchmark_run", "measured_year")
    op.drop_column("benchmark_run", "measured_month")
    for columns in _indexes(OLD_KEYS, OLD_FIGURES):
        op.create_index(_name(columns), "benchmark_run", [*columns, "id"])


def _indexes(keys: tuple[str, ...], figures: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [*((key,) for key in keys), *(("scenario", figure) for figure in figures)]


def _name(columns: tuple[str, ...]) -> str:
    return f"ix_benchmark_run_{'_'.join(columns)}"
