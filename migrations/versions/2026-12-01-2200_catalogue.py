"""The catalogue: accelerators and language models with their revisions and aliases, and its one-row state."""

import sqlalchemy as sa
from alembic import op

revision = "2026_12_01_2200"
down_revision = None
branch_labels = None
depends_on = None

KINDS = ("accelerator", "language_model")


def upgrade() -> None:
    for kind in KINDS:
        _create_record_tables(kind)
    state = op.create_table(
        "catalogue_state",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("shipped_digest", sa.String(64), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_catalogue_state"),
        sa.CheckConstraint("id = 1", name=op.f("ck_catalogue_state_one_row")),
    )
    op.bulk_insert(state, [{"id": 1, "revision": 0, "shipped_digest": None}])


def _create_record_tables(kind: str) -> None:
    op.create_table(
        kind,
        sa.Column("slug", sa.String(100), nullable=False),
        sa.Column("head_revision", sa.Integer(), nullable=False),
        sa.Column("head_origin", sa.String(10), nullable=False),
        sa.Column("shipped_digest", sa.String(64), nullable=True),
        sa.Column("retired_at", sa.DateTime(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("slug", name=f"pk_{kind}"),
        sa.CheckConstraint("slug = lower(slug)", name=op.f(f"ck_{kind}_slug_lower_case")),
        sa.CheckConstraint("head_revision >= 1", name=op.f(f"ck_{kind}_head_revision_positive")),
        sa.CheckConstraint("head_origin IN ('shipped', 'user')", name=op.f(f"ck_{kind}_head_origin_known")),
    )
    op.create_table(
        f"{kind}_revision",
        sa.Column("slug", sa.String(100), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("event", sa.String(10), nullable=False),
        sa.Column("origin", sa.String(10), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("slug", "revision", name=f"pk_{kind}_revision"),
        sa.ForeignKeyConstraint(["slug"], [f"{kind}.slug"], name=f"fk_{kind}_revision_slug_{kind}"),
        sa.CheckConstraint("revision >= 1", name=op.f(f"ck_{kind}_revision_revision_positive")),
        sa.CheckConstraint("origin IN ('shipped', 'user')", name=op.f(f"ck_{kind}_revision_origin_known")),
        sa.CheckConstraint("event IN ('created', 'replaced', 'retired')", name=op.f(f"ck_{kind}_revision_event_known")),
    )
    op.create_table(
        f"{kind}_alias",
        sa.Column("alias", sa.String(200), nullable=False),
        sa.Column("slug", sa.String(100), nullable=False),
        sa.Column("shared", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("alias", "slug", name=f"pk_{kind}_alias"),
        sa.ForeignKeyConstraint(["slug"], [f"{kind}.slug"], name=f"fk_{kind}_alias_slug_{kind}"),
        sa.CheckConstraint("alias = lower(alias)", name=op.f(f"ck_{kind}_alias_alias_lower_case")),
    )
    own_alias = sa.text("NOT shared")
    op.create_index(
        f"uq_{kind}_alias_own",
        f"{kind}_alias",
        ["alias"],
        unique=True,
        sqlite_where=own_alias,
        postgresql_where=own_alias,
    )


def downgrade() -> None:
    op.drop_table("catalogue_state")
    for kind in reversed(KINDS):
        op.drop_table(f"{kind}_alias")
        op.drop_table(f"{kind}_revision")
        op.drop_table(kind)
