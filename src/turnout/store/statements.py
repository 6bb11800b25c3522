"""The frequent statements, built once from the fields of the records.

SQLAlchemy takes a fifth of a second and 28 MB to import, so only creating or changing the schema uses it.
"""

from typing import NamedTuple

from turnout.job import Asset, AuditLine, Delivery, Event, Job, PastAttempt, Replica, Submission
from turnout.store.codes import FIRST_ENDED

JOB = Job.__struct_fields__
JOB_CHANGES = ("state", "priority", "updated", "attempt", "started", "ended", "reason", "message")
DOCUMENT = ("job", "document", "spec")
REPLICA = Replica.__struct_fields__
REPLICA_KEY = REPLICA[:4]
REPLICA_CHANGES = REPLICA[4:]
EVENT = Event.__struct_fields__
LABEL = ("job", "key", "value")
PAST = PastAttempt.__struct_fields__
SUBMISSION = Submission.__struct_fields__
USED = ("at", "cpu", "memory", "gpu", "gpu_memory")
SAMPLE = ("job", "attempt", "role", "index", *USED)
ASSET = Asset.__struct_fields__
ASSET_KEY = ASSET[:3]
ASSET_NAME = ("project", "kind", "scope", "name")
ASSET_CHANGES = ("scope", "name", "updated", "document")
KEY = ("id", "secret", "project", "label", "created")
AUDIT = AuditLine.__struct_fields__
DELIVERY = Delivery.__struct_fields__
TRIAL = ("job", "number", "id", "algorithm", "child", "created", "state", "started", "ended", "told")
TRIAL_KEY = TRIAL[:2]
TRIAL_CHANGES = TRIAL[6:]
MEASUREMENT = ("job", "number", "step", "at", "told")

NOT_DELETED = "deleted IS NULL"
DELETED = "deleted IS NOT NULL"
NAMED = f"{NOT_DELETED} AND handle <> ''"
ABOUT_JOB = "job > 0"
UNDELIVERED = "given_up IS NULL"
LIVE = f"state < {FIRST_ENDED}"


class Flavour(NamedTuple):
    """The differences between the two databases in the SQL that we write."""

    mark: str
    """The placeholder of a parameter."""
    find_text: str
    """The function that finds one text in another."""
    by_id: str
    """Follows a table's name: read the table in the order of ids."""
    like: str
    any_text: str
    """Matches any text in a pattern of `like`."""
    plain: dict[str, str]
    """Escapes of the characters that are special in such a pattern."""
    delete_some: str
    """A statement that deletes at most `most` rows of a table."""

    def pattern(self, text: str) -> str:
        """Converts a text in which `*` matches any text to a pattern."""
        return "".join(self.any_text if char == "*" else self.plain.get(char, char) for char in text)


SQLITE = Flavour(
    "?",
    "instr",
    " NOT INDEXED",
    "GLOB",
    "*",
    {"?": "[?]", "[": "[[]"},
    "DELETE FROM {table} WHERE ({key}) IN (SELECT {key} FROM {table} WHERE {where} LIMIT {most})",
)
POSTGRES = Flavour(
    "%s",
    "strpos",
    "",
    "LIKE",
    "%",
    {"%": r"\%", "_": r"\_", "\\": r"\\"},
    # By row address, which is looked up once. By key, PostgreSQL scans the table for each row if the table's
    # statistics are older than most of its rows.
    "DELETE FROM {table} WHERE ctid = ANY(ARRAY(SELECT ctid FROM {table} WHERE {where} LIMIT {most}))",
)


class Statements:
    def __init__(self, flavour: Flavour) -> None:
        mark = flavour.mark
        jobs = f"SELECT {names(JOB)} FROM jobs"
        self.last_id = "SELECT max(id) FROM jobs"
        self.job = f"{jobs} WHERE id = {mark}"
        named = f"WHERE {_equal(('project', 'scope', 'handle'), mark)} AND {NAMED}"
        self.by_handle = f"{jobs} {named}"
        # One column: sqlite3 describes all columns of a result, also if there is no row.
        self.taken = f"SELECT 1 FROM jobs {named}"
        # Uses the index to skip from one project to the next, however many jobs each has.
        least = f"SELECT min(project) FROM jobs WHERE {NOT_DELETED}"
        self.projects = (
            f"WITH RECURSIVE found(project) AS ({least} UNION ALL"
            f" SELECT ({least} AND jobs.project > found.project) FROM found WHERE found.project IS NOT NULL)"
            " SELECT project FROM found WHERE project IS NOT NULL"
        )
        self.document = f"SELECT document FROM documents WHERE job = {mark}"
        self.spec = f"SELECT spec FROM documents WHERE job = {mark}"
        self.replicas = (
            f"SELECT {names(REPLICA)} FROM replicas WHERE {_equal(('job', 'attempt'), mark)} ORDER BY rank"
        )
        self.events = f"SELECT {names(EVENT)} FROM events WHERE job = {mark} ORDER BY number LIMIT {mark}"
        self.labels = f"SELECT key, value FROM labels WHERE job = {mark} ORDER BY key"
        self.past = f"SELECT {names(PAST)} FROM past WHERE job = {mark} ORDER BY attempt"
        self.samples = (
            f"SELECT {names(USED)} FROM samples WHERE {_equal(('job', 'role', 'index'), mark)}"
            " ORDER BY attempt, at"
        )
        self.asset = f"SELECT {names(ASSET)} FROM assets WHERE {_equal(ASSET_KEY, mark)}"
        self.asset_by_name = f"SELECT {names(ASSET)} FROM assets WHERE {_equal(ASSET_NAME, mark)}"
        self.key = f"SELECT {names(KEY)} FROM keys WHERE id = {mark}"
        self.finished = f"SELECT state, ended, deleted FROM jobs WHERE id = {mark}"
        # CROSS JOIN makes SQLite start with the few live jobs and look up their rows in the other table.
        self.live_jobs = (
            f"SELECT {names(JOB, 'jobs.')}, spec FROM jobs CROSS JOIN documents"
            f" WHERE documents.job = jobs.id AND {LIVE} ORDER BY jobs.id"
        )
        self.live_replicas = (
            f"SELECT {names(REPLICA, 'replicas.')} FROM jobs CROSS JOIN replicas WHERE replicas.job = jobs.id"
            f" AND replicas.attempt = jobs.attempt AND jobs.{LIVE} ORDER BY jobs.id, rank"
        )
        self.live_past = (
            f"SELECT {names(PAST, 'past.')} FROM jobs CROSS JOIN past WHERE past.job = jobs.id"
            f" AND jobs.{LIVE} ORDER BY jobs.id, past.attempt"
        )
        self.live_submissions = (
            f"SELECT {names(SUBMISSION, 'submissions.')} FROM jobs CROSS JOIN submissions"
            f" WHERE submissions.job = jobs.id AND submissions.attempt = jobs.attempt AND jobs.{LIVE}"
        )
        self.trials = f"SELECT {names(TRIAL)} FROM trials WHERE job = {mark} ORDER BY number"
        self.trials_page = (
            f"SELECT {names(TRIAL)} FROM trials WHERE job = {mark} AND number >= {mark}"
            f" ORDER BY number LIMIT {mark}"
        )
        self.trial_counts = f"SELECT state, COUNT(*) FROM trials WHERE job = {mark} GROUP BY state"
        self.live_trials = (
            f"SELECT {names(TRIAL, 'trials.')} FROM jobs CROSS JOIN trials WHERE trials.job = jobs.id"
            f" AND trials.state < {FIRST_ENDED} AND jobs.{LIVE} ORDER BY jobs.id, number"
        )
        self.cursor = f"SELECT cursor FROM trials WHERE {_equal(TRIAL_KEY, mark)}"
        self.measurements = (
            f"SELECT {names(MEASUREMENT)} FROM measurements WHERE {_equal(TRIAL_KEY, mark)} ORDER BY step"
        )
        self.all_measurements = (
            f"SELECT {names(MEASUREMENT)} FROM measurements WHERE job = {mark} ORDER BY number, step"
        )
        self.measured = (
            f"SELECT number, COUNT(*) FROM measurements WHERE job = {mark} GROUP BY number ORDER BY number"
        )
        self.insert_job = _insert("jobs", JOB, mark)
        self.insert_document = _insert("documents", DOCUMENT, mark)
        self.insert_replica = _insert("replicas", (*REPLICA, "rank"), mark)
        self.insert_event = _insert("events", EVENT, mark)
        # `deleted` is in the condition of two indexes, so setting it makes the database update both.
        self.update_job = _update("jobs", JOB_CHANGES, ("id",), mark)
        self.delete_job = _update("jobs", ("deleted",), ("id",), mark)
        self.update_replica = _update("replicas", REPLICA_CHANGES, REPLICA_KEY, mark)
        self.update_document = _update("documents", ("document",), ("job",), mark)
        self.insert_label = _insert("labels", LABEL, mark)
        self.delete_labels = f"DELETE FROM labels WHERE job = {mark}"
        self.insert_past = _insert("past", PAST, mark)
        # Engines may repeat reports.
        self.insert_sample = _insert("samples", SAMPLE, mark) + " ON CONFLICT DO NOTHING"
        self.put_submission = (
            _insert("submissions", SUBMISSION, mark)
            + " ON CONFLICT (job, attempt) DO UPDATE SET engine = excluded.engine, engine_id = excluded.engine_id"
        )
        self.insert_trial = _insert("trials", TRIAL, mark)
        self.update_trial = _update("trials", TRIAL_CHANGES, TRIAL_KEY, mark)
        self.update_cursor = _update("trials", ("cursor",), TRIAL_KEY, mark)
        # A retried trial repeats its measurements.
        self.put_measurement = (
            _insert("measurements", MEASUREMENT, mark)
            + " ON CONFLICT (job, number, step) DO UPDATE SET at = excluded.at, told = excluded.told"
        )
        self.delete_measurement = f"DELETE FROM measurements WHERE {_equal((*TRIAL_KEY, 'step'), mark)}"
        self.insert_audit = _insert("audit", AUDIT[:-1], mark)
        self.insert_delivery = _insert("deliveries", DELIVERY[:-1], mark)
        self.insert_asset = _insert("assets", ASSET, mark)
        self.update_asset = _update("assets", ASSET_CHANGES, ASSET_KEY, mark)
        self.change_asset = f"{self.update_asset} AND updated = {mark}"
        self.delete_asset = f"DELETE FROM assets WHERE {_equal(ASSET_KEY, mark)}"
        self.insert_key = _insert("keys", KEY, mark)
        self.delete_key = f"DELETE FROM keys WHERE id = {mark}"


def names(columns: tuple[str, ...], table: str = "") -> str:
    """Quotes `index`, which is a keyword of SQL."""
    return ", ".join(f'{table}"{column}"' if column == "index" else table + column for column in columns)


def _insert(table: str, columns: tuple[str, ...], mark: str) -> str:
    return f"INSERT INTO {table} ({names(columns)}) VALUES ({', '.join([mark] * len(columns))})"


def _update(table: str, columns: tuple[str, ...], key: tuple[str, ...], mark: str) -> str:
    changes = ", ".join(f"{names((column,))} = {mark}" for column in columns)
    return f"UPDATE {table} SET {changes} WHERE {_equal(key, mark)}"


def _equal(columns: tuple[str, ...], mark: str) -> str:
    return " AND ".join(f"{names((column,))} = {mark}" for column in columns)
