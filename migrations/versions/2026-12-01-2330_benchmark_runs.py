"""Benchmark runs, the deleted ones, and the one-row state that counts the writes to them."""

import sqlalchemy as sa
from alembic import op

revision = "2026_12_01_2330"
down_revision = "2026_12_01_2200"
branch_labels = None
depends_on = None

RUN_KEYS = ("accelerator", "model", "engine", "submitter", "measured_on", "evidence_revision")
RUN_FIGURES = (
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
COLUMNS = (
    ("id", sa.String(18), False),
    ("origin", sa.String(10), False),
    ("created_at", sa.DateTime(timezone=True), False),
    ("evidence_revision", sa.Integer(), False),
    ("content_digest", sa.String(64), False),
    ("file_index", sa.Integer(), False),
    ("file_name", sa.String(300), True),
    ("tool", sa.String(100), True),
    ("tool_version", sa.String(100), True),
    ("accelerator", sa.String(100), True),
    ("accelerator_revision", sa.Integer(), True),
    ("accelerator_name", sa.String(300), True),
    ("gpu_count", sa.Integer(), True),
    ("node_count", sa.Integer(), True),
    ("model", sa.String(100), True),
    ("model_name", sa.String(500), True),
    ("weights", sa.String(100), True),
    ("kv_cache", sa.String(100), True),
    ("compute", sa.String(100), True),
    ("engine", sa.String(100), True),
    ("engine_version", sa.String(100), True),
    ("tp", sa.Integer(), True),
    ("pp", sa.Integer(), True),
    ("ep", sa.Integer(), True),
    ("dp", sa.Integer(), True),
    ("layout", sa.String(100), True),
    ("speculation", sa.String(100), True),
    ("prefix_caching", sa.Boolean(), True),
    ("scenario", sa.String(40), True),
    ("concurrency", sa.Float(), True),
    ("request_rate_per_s", sa.Float(), True),
    ("isl_mean_tokens", sa.Float(), True),
    ("isl_std_tokens", sa.Float(), True),
    ("osl_mean_tokens", sa.Float(), True),
    ("osl_std_tokens", sa.Float(), True),
    ("mlperf_version", sa.String(40), True),
    ("mlperf_division", sa.String(40), True),
    ("mlperf_availability", sa.String(40), True),
    ("mlperf_valid", sa.Boolean(), True),
    ("submitter", sa.String(200), True),
    ("system_name", sa.String(500), True),
    ("ttft_limit_s", sa.Float(), True),
    ("tpot_limit_s", sa.Float(), True),
    ("pair_key", sa.String(32), True),
    ("ttft_p50_s", sa.Float(), True),
    ("ttft_p99_s", sa.Float(), True),
    ("ttft_central_s", sa.Float(), True),
    ("tpot_p50_s", sa.Float(), True),
    ("tpot_mean_s", sa.Float(), True),
    ("tpot_p99_s", sa.Float(), True),
    ("tpot_central_s", sa.Float(), True),
    ("output_tokens_per_s", sa.Float(), True),
    ("output_tokens_per_s_per_gpu", sa.Float(), True),
    ("output_tokens_per_s_per_user", sa.Float(), True),
    ("input_tokens_per_s", sa.Float(), True),
    ("power_w", sa.Float(), True),
    ("power_scope", sa.String(20), True),
    ("measured_by", sa.String(200), True),
    ("measured_on", sa.String(10), True),
    ("source_title", sa.String(500), True),
    ("source_ref", sa.String(500), True),
    ("calibrates", sa.Boolean(), False),
    ("details", sa.Text(), False),
)


def upgrade() -> None:
    op.create_table(
        "benchmark_run",
        *(sa.Column(name, kind, nullable=nullable) for name, kind, nullable in COLUMNS),
        sa.PrimaryKeyConstraint("id", name="pk_benchmark_run"),
        sa.CheckConstraint("origin IN ('shipped', 'user')", name=op.f("ck_benchmark_run_origin_known")),
        sa.CheckConstraint("file_index >= 0", name=op.f("ck_benchmark_run_file_index_not_negative")),
    )
    op.create_index("uq_benchmark_run_content", "benchmark_run", ["content_digest", "file_index"], unique=True)
    configuration = ["accelerator", "model", "weights", "scenario", "concurrency", "id"]
    op.create_index("ix_benchmark_run_configuration", "benchmark_run", configuration)
    op.create_index("ix_benchmark_run_pair_key", "benchmark_run", ["pair_key", "scenario", "id"])
    for column in RUN_KEYS:
        op.create_index(f"ix_benchmark_run_{column}", "benchmark_run", [column, "id"])
    for column in RUN_FIGURES:
        op.create_index(f"ix_benchmark_run_scenario_{column}", "benchmark_run", ["scenario", column, "id"])
    op.create_table(
        "deleted_benchmark_run",
        sa.Column("id", sa.String(18), nullable=False),
        sa.Column("evidence_revision", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_deleted_benchmark_run"),
    )
    op.create_index("ix_deleted_benchmark_run_evidence_revision", "deleted_benchmark_run", ["evidence_revision"])
    state = op.create_table(
        "evidence_state",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("shipped_digest", sa.String(64), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_evidence_state"),
        sa.CheckConstraint("id = 1", name=op.f("ck_evidence_state_one_row")),
    )
    op.bulk_insert(state, [{"id": 1, "revision": 0, "shipped_digest": None}])


def downgrade() -> None:
    for table in ("evidence_state", "deleted_benchmark_run", "benchmark_run"):
        op.drop_table(table)
