BEGIN;

CREATE TABLE assets (
    project TEXT NOT NULL,
    kind TEXT NOT NULL,
    id TEXT NOT NULL,
    scope TEXT NOT NULL,
    name TEXT NOT NULL,
    created BIGINT NOT NULL,
    updated BIGINT NOT NULL,
    document BLOB NOT NULL,
    PRIMARY KEY (project, kind, id)
);

CREATE UNIQUE INDEX assets_name ON assets (project, kind, scope, name);

CREATE TABLE audit (
    number INTEGER NOT NULL,
    at BIGINT NOT NULL,
    who TEXT NOT NULL,
    project TEXT NOT NULL,
    peer TEXT NOT NULL,
    api TEXT NOT NULL,
    call TEXT NOT NULL,
    job BIGINT NOT NULL,
    subject TEXT NOT NULL,
    status SMALLINT NOT NULL,
    code TEXT NOT NULL,
    PRIMARY KEY (number)
);

CREATE INDEX audit_job ON audit (job) WHERE job > 0;

CREATE INDEX audit_project ON audit (project, number);

CREATE TABLE deliveries (
    number INTEGER NOT NULL,
    id TEXT NOT NULL,
    hook TEXT NOT NULL,
    project TEXT NOT NULL,
    job BIGINT NOT NULL,
    at BIGINT NOT NULL,
    body BLOB NOT NULL,
    attempts INTEGER NOT NULL,
    next_at BIGINT NOT NULL,
    error TEXT NOT NULL,
    given_up BIGINT,
    PRIMARY KEY (number)
);

CREATE INDEX deliveries_due ON deliveries (hook, next_at, number) WHERE given_up IS NULL;

CREATE TABLE documents (
    job INTEGER NOT NULL,
    document BLOB NOT NULL,
    spec BLOB NOT NULL,
    PRIMARY KEY (job)
);

CREATE TABLE events (
    number INTEGER NOT NULL,
    job BIGINT NOT NULL,
    at BIGINT NOT NULL,
    kind SMALLINT NOT NULL,
    message TEXT NOT NULL,
    PRIMARY KEY (number)
);

CREATE INDEX events_job ON events (job);

CREATE TABLE jobs (
    id INTEGER NOT NULL,
    project TEXT NOT NULL,
    dialect TEXT NOT NULL,
    scope TEXT NOT NULL,
    handle TEXT NOT NULL,
    name TEXT NOT NULL,
    cluster TEXT NOT NULL,
    state SMALLINT NOT NULL,
    priority BIGINT NOT NULL,
    created BIGINT NOT NULL,
    updated BIGINT NOT NULL,
    attempt INTEGER NOT NULL,
    started BIGINT,
    ended BIGINT,
    deleted BIGINT,
    reason SMALLINT,
    message TEXT NOT NULL,
    owner TEXT DEFAULT '' NOT NULL,
    PRIMARY KEY (id)
);

CREATE INDEX jobs_deleted ON jobs (deleted, id) WHERE deleted IS NOT NULL;

CREATE UNIQUE INDEX jobs_handle ON jobs (project, scope, handle) WHERE deleted IS NULL AND handle <> '';

CREATE INDEX jobs_list ON jobs (project, scope, id) WHERE deleted IS NULL;

CREATE INDEX jobs_live ON jobs (id) WHERE state < 10;

CREATE TABLE keys (
    id TEXT NOT NULL,
    secret TEXT NOT NULL,
    project TEXT NOT NULL,
    label TEXT NOT NULL,
    created BIGINT NOT NULL,
    PRIMARY KEY (id)
);

CREATE TABLE labels (
    job BIGINT NOT NULL,
    "key" TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (job, "key")
)
 WITHOUT ROWID;

CREATE INDEX labels_value ON labels ("key", value, job);

CREATE TABLE measurements (
    job BIGINT NOT NULL,
    number INTEGER NOT NULL,
    step BIGINT NOT NULL,
    at BIGINT NOT NULL,
    told BLOB NOT NULL,
    PRIMARY KEY (job, number, step)
)
 WITHOUT ROWID;

CREATE TABLE past (
    job BIGINT NOT NULL,
    attempt INTEGER NOT NULL,
    started BIGINT,
    ended BIGINT NOT NULL,
    reason SMALLINT NOT NULL,
    message TEXT NOT NULL,
    replica TEXT NOT NULL,
    code BIGINT,
    PRIMARY KEY (job, attempt)
)
 WITHOUT ROWID;

CREATE TABLE replicas (
    job BIGINT NOT NULL,
    attempt INTEGER NOT NULL,
    role TEXT NOT NULL,
    "index" INTEGER NOT NULL,
    state SMALLINT NOT NULL,
    node TEXT NOT NULL,
    address TEXT NOT NULL,
    pid BIGINT,
    gpus TEXT NOT NULL,
    started BIGINT,
    ended BIGINT,
    exit_code BIGINT,
    signal SMALLINT,
    message TEXT NOT NULL,
    rank INTEGER NOT NULL,
    restarts INTEGER DEFAULT '0' NOT NULL,
    PRIMARY KEY (job, attempt, role, "index")
)
 WITHOUT ROWID;

CREATE TABLE samples (
    job BIGINT NOT NULL,
    attempt INTEGER NOT NULL,
    role TEXT NOT NULL,
    "index" INTEGER NOT NULL,
    at BIGINT NOT NULL,
    cpu FLOAT,
    memory FLOAT,
    gpu FLOAT,
    gpu_memory FLOAT,
    PRIMARY KEY (job, role, "index", attempt, at)
)
 WITHOUT ROWID;

CREATE TABLE submissions (
    job BIGINT NOT NULL,
    attempt INTEGER NOT NULL,
    engine TEXT NOT NULL,
    engine_id TEXT NOT NULL,
    PRIMARY KEY (job, attempt)
)
 WITHOUT ROWID;

CREATE TABLE trials (
    job BIGINT NOT NULL,
    number INTEGER NOT NULL,
    id TEXT NOT NULL,
    algorithm INTEGER NOT NULL,
    child BIGINT NOT NULL,
    created BIGINT NOT NULL,
    state SMALLINT NOT NULL,
    started BIGINT,
    ended BIGINT,
    told BLOB NOT NULL,
    cursor BLOB,
    PRIMARY KEY (job, number)
)
 WITHOUT ROWID;

CREATE INDEX trials_child ON trials (child);

CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    PRIMARY KEY (version_num)
);

INSERT INTO alembic_version (version_num) VALUES ('0008');

COMMIT;
