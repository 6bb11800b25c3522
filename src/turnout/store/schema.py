"""The tables. Imported only to create or change them: see `statements`.

`python -m turnout.store.schema` prints the content of `schema.sql`, which is the same schema for SQLite.
"""

import re
import sys

from sqlalchemy import (
    BigInteger,
    Column,
    Dialect,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    SmallInteger,
    String,
    Table,
    Text,
    text,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from turnout.store.migrate import HEAD
from turnout.store.statements import ABOUT_JOB, DELETED, LIVE, NAMED, NOT_DELETED, UNDELIVERED

metadata = MetaData()

# SQLite's row id must have the type INTEGER, which has 64 bits there too.
_Id = BigInteger().with_variant(Integer, "sqlite")
# Text is compared by code points, as in SQLite and Python.
_Text = Text().with_variant(Text(collation="C"), "postgresql")

jobs = Table(
    "jobs",
    metadata,
    Column("id", _Id, primary_key=True, autoincrement=False),
    Column("project", _Text, nullable=False),
    Column("dialect", _Text, nullable=False),
    Column("scope", _Text, nullable=False),
    Column("handle", _Text, nullable=False),
    Column("name", _Text, nullable=False),
    Column("cluster", _Text, nullable=False),
    Column("state", SmallInteger, nullable=False),
    Column("priority", BigInteger, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("updated", BigInteger, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("started", BigInteger),
    Column("ended", BigInteger),
    Column("deleted", BigInteger),
    Column("reason", SmallInteger),
    Column("message", _Text, nullable=False),
    Column("owner", _Text, nullable=False, server_default=""),
)

documents = Table(
    "documents",
    metadata,
    Column("job", _Id, primary_key=True, autoincrement=False),
    Column("document", LargeBinary, nullable=False),
    Column("spec", LargeBinary, nullable=False),
)

replicas = Table(
    "replicas",
    metadata,
    Column("job", BigInteger, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("role", _Text, primary_key=True),
    Column("index", Integer, primary_key=True),
    Column("state", SmallInteger, nullable=False),
    Column("node", _Text, nullable=False),
    Column("address", _Text, nullable=False),
    Column("pid", BigInteger),
    Column("gpus", _Text, nullable=False),
    Column("started", BigInteger),
    Column("ended", BigInteger),
    Column("exit_code", BigInteger),
    Column("signal", SmallInteger),
    Column("message", _Text, nullable=False),
    Column("rank", Integer, nullable=False),
    Column("restarts", Integer, nullable=False, server_default="0"),
    sqlite_with_rowid=False,
)

events = Table(
    "events",
    metadata,
    Column("number", _Id, primary_key=True),
    Column("job", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("kind", SmallInteger, nullable=False),
    Column("message", _Text, nullable=False),
)

labels = Table(
    "labels",
    metadata,
    Column("job", BigInteger, primary_key=True),
    Column("key", _Text, primary_key=True),
    Column("value", _Text, nullable=False),
    sqlite_with_rowid=False,
)

past = Table(
    "past",
    metadata,
    Column("job", BigInteger, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("started", BigInteger),
    Column("ended", BigInteger, nullable=False),
    Column("reason", SmallInteger, nullable=False),
    Column("message", _Text, nullable=False),
    Column("replica", _Text, nullable=False),
    Column("code", BigInteger),
    sqlite_with_rowid=False,
)

submissions = Table(
    "submissions",
    metadata,
    Column("job", BigInteger, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("engine", _Text, nullable=False),
    Column("engine_id", _Text, nullable=False),
    sqlite_with_rowid=False,
)

samples = Table(
    "samples",
    metadata,
    Column("job", BigInteger, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("role", _Text, nullable=False),
    Column("index", Integer, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("cpu", Float),
    Column("memory", Float),
    Column("gpu", Float),
    Column("gpu_memory", Float),
    PrimaryKeyConstraint("job", "role", "index", "attempt", "at"),
    sqlite_with_rowid=False,
)

assets = Table(
    "assets",
    metadata,
    Column("project", _Text, primary_key=True),
    Column("kind", _Text, primary_key=True),
    Column("id", _Text, primary_key=True),
    Column("scope", _Text, nullable=False),
    Column("name", _Text, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("updated", BigInteger, nullable=False),
    Column("document", LargeBinary, nullable=False),
)

keys = Table(
    "keys",
    metadata,
    Column("id", _Text, primary_key=True),
    Column("secret", _Text, nullable=False),
    Column("project", _Text, nullable=False),
    Column("label", _Text, nullable=False),
    Column("created", BigInteger, nullable=False),
)

trials = Table(
    "trials",
    metadata,
    Column("job", BigInteger, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("id", _Text, nullable=False),
    Column("algorithm", Integer, nullable=False),
    Column("child", BigInteger, nullable=False),
    Column("created", BigInteger, nullable=False),
    Column("state", SmallInteger, nullable=False),
    Column("started", BigInteger),
    Column("ended", BigInteger),
    Column("told", LargeBinary, nullable=False),
    Column("cursor", LargeBinary),
    sqlite_with_rowid=False,
)

measurements = Table(
    "measurements",
    metadata,
    Column("job", BigInteger, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("step", BigInteger, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("told", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

audit = Table(
    "audit",
    metadata,
    Column("number", _Id, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("who", _Text, nullable=False),
    Column("project", _Text, nullable=False),
    Column("peer", _Text, nullable=False),
    Column("api", _Text, nullable=False),
    Column("call", _Text, nullable=False),
    Column("job", BigInteger, nullable=False),
    Column("subject", _Text, nullable=False),
    Column("status", SmallInteger, nullable=False),
    Column("code", _Text, nullable=False),
)

deliveries = Table(
    "deliveries",
    metadata,
    Column("number", _Id, primary_key=True),
    Column("id", _Text, nullable=False),
    Column("hook", _Text, nullable=False),
    Column("project", _Text, nullable=False),
    Column("job", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_at", BigInteger, nullable=False),
    Column("error", _Text, nullable=False),
    Column("given_up", BigInteger),
)

Index("audit_job", audit.c.job, sqlite_where=text(ABOUT_JOB), postgresql_where=text(ABOUT_JOB))
Index("audit_project", audit.c.project, audit.c.number)
Index(
    "deliveries_due",
    deliveries.c.hook,
    deliveries.c.next_at,
    deliveries.c.number,
    sqlite_where=text(UNDELIVERED),
    postgresql_where=text(UNDELIVERED),
)
Index("assets_name", assets.c.project, assets.c.kind, assets.c.scope, assets.c.name, unique=True)
Index("labels_value", labels.c.key, labels.c.value, labels.c.job)
Index("events_job", events.c.job)
Index("trials_child", trials.c.child)
Index(
    "jobs_deleted",
    jobs.c.deleted,
    jobs.c.id,
    sqlite_where=text(DELETED),
    postgresql_where=text(DELETED),
)
Index("jobs_live", jobs.c.id, sqlite_where=text(LIVE), postgresql_where=text(LIVE))
Index(
    "jobs_handle",
    jobs.c.project,
    jobs.c.scope,
    jobs.c.handle,
    unique=True,
    sqlite_where=text(NAMED),
    postgresql_where=text(NAMED),
)
Index(
    "jobs_list",
    jobs.c.project,
    jobs.c.scope,
    jobs.c.id,
    sqlite_where=text(NOT_DELETED),
    postgresql_where=text(NOT_DELETED),
)


def ddl(dialect: Dialect) -> str:
    """The statements that create the whole schema and set its version, in one transaction."""
    version = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))
    statements: list[str] = []
    for table in (*metadata.sorted_tables, version):
        parts = (
            CreateTable(table),
            *map(CreateIndex, sorted(table.indexes, key=lambda index: index.name or "")),
        )
        statements += [str(part.compile(dialect=dialect)).strip() for part in parts]
    statements = [re.sub(r"[ \t]+\n", "\n", statement).replace("\t", "    ") for statement in statements]
    statements.append(f"INSERT INTO alembic_version (version_num) VALUES ('{HEAD}')")
    return ";\n\n".join(["BEGIN", *statements, "COMMIT"]) + ";\n"


if __name__ == "__main__":
    sys.stdout.write(ddl(sqlite.dialect()))
