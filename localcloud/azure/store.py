# SPDX-License-Identifier: Apache-2.0
"""The one state behind all of simulated Azure, in one SQLite file.

Safe for any number of processes and threads: each method is one short transaction. Owns nothing of Azure's rules,
except that identifiers are compared without regard to case and that children go with their parent.
"""

import json
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from localcloud.azure.records import UNANSWERED, Event, Fault, GrafanaObject, Json, PushedProfile, Resource

BUSY_SECONDS: Final = 30.0

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS resource (
    key TEXT PRIMARY KEY, id TEXT NOT NULL, token TEXT NOT NULL, inputs TEXT NOT NULL, outputs TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS grafana (
    workspace TEXT NOT NULL, kind TEXT NOT NULL, uid TEXT NOT NULL, id TEXT NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (workspace, kind, uid));
CREATE TABLE IF NOT EXISTS profile (
    number INTEGER PRIMARY KEY, received TEXT NOT NULL, labels TEXT NOT NULL, pprof BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS event (
    number INTEGER PRIMARY KEY, time TEXT NOT NULL, actor TEXT NOT NULL, verb TEXT NOT NULL, id TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS fault (
    number INTEGER PRIMARY KEY, method TEXT NOT NULL, path TEXT NOT NULL, status INTEGER NOT NULL, code TEXT NOT NULL,
    message TEXT NOT NULL, retry_after INTEGER, times INTEGER, each INTEGER NOT NULL, after INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS fault_use (
    fault INTEGER NOT NULL, path TEXT NOT NULL, uses INTEGER NOT NULL, PRIMARY KEY (fault, path));
"""


class AlreadyThere(Exception):
    """Something with this identifier exists; the text is the identifier."""


class NotThere(Exception):
    """Nothing with this identifier exists; the text is the identifier."""


class Store:
    """The state in `path`, which is made when it is missing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connections = threading.local()
        self._opened: list[sqlite3.Connection] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        self._connection().executescript(_SCHEMA)

    def close(self) -> None:
        """Let go of the file. Other threads must be done with this store."""
        while self._opened:
            self._opened.pop().close()
        self._connections = threading.local()

    # Resources of Azure Resource Manager

    def resources(self, *, token: str | None = None, under: str | None = None) -> list[Resource]:
        """All resources in order of their ids; of one Pulumi type, and below one resource, where that is asked for."""
        query, values = "SELECT id, token, inputs, outputs FROM resource WHERE 1", list[str | int]()
        if token is not None:
            query += " AND token = ?"
            values += [token]
        if under is not None:
            query += " AND substr(key, 1, ?) = ?"
            values += _below(under)
        with self._transaction() as db:
            return [_resource(row) for row in db.execute(query + " ORDER BY key", values)]

    def resource(self, id: str) -> Resource | None:
        with self._transaction() as db:
            return _find(db, id)

    def create_resource(self, resource: Resource, *, actor: str) -> None:
        """Add a resource. Raises AlreadyThere."""
        with self._transaction() as db:
            if _find(db, resource.id):
                raise AlreadyThere(resource.id)
            _write(db, resource)
            _record(db, actor, "create", resource.id)

    def put_resource(self, resource: Resource, *, actor: str) -> None:
        """Add a resource, or replace what has its id."""
        with self._transaction() as db:
            verb = "update" if _find(db, resource.id) else "create"
            _write(db, resource)
            _record(db, actor, verb, resource.id)

    def change_resource(
        self, id: str, change: Callable[[Resource], Resource], *, actor: str, verb: str = "update"
    ) -> Resource:
        """Replace a resource by what `change` makes of it, with nobody in between. Raises NotThere."""
        with self._transaction() as db:
            old = _find(db, id)
            if old is None:
                raise NotThere(id)
            new = change(old)
            _write(db, new)
            if new != old:
                _record(db, actor, verb, new.id)
            return new

    def delete_resource(self, id: str, *, actor: str) -> bool:
        """Remove a resource and what is below it, the innermost first; False if there was none."""
        with self._transaction() as db:
            rows = db.execute(
                "SELECT key, id FROM resource WHERE key = ? OR substr(key, 1, ?) = ?"
                " ORDER BY length(key) DESC, key",
                [_key(id), *_below(id)],
            ).fetchall()
            for key, spelled in rows:
                for (object_id,) in db.execute(
                    "SELECT id FROM grafana WHERE workspace = ?", [key]
                ).fetchall():
                    _record(db, actor, "delete", object_id)
                db.execute("DELETE FROM grafana WHERE workspace = ?", [key])
                db.execute("DELETE FROM resource WHERE key = ?", [key])
                _record(db, actor, "delete", spelled)
        return bool(rows)

    # What Grafana workspaces hold

    def grafana_objects(self, workspace_id: str, kind: str) -> list[GrafanaObject]:
        with self._transaction() as db:
            rows = db.execute(
                "SELECT uid, body FROM grafana WHERE workspace = ? AND kind = ? ORDER BY uid",
                [_key(workspace_id), kind],
            ).fetchall()
        return [
            GrafanaObject(workspace_id=workspace_id, kind=kind, uid=uid, body=json.loads(body))
            for uid, body in rows
        ]

    def grafana_object(self, workspace_id: str, kind: str, uid: str) -> GrafanaObject | None:
        return next((found for found in self.grafana_objects(workspace_id, kind) if found.uid == uid), None)

    def put_grafana_object(self, new: GrafanaObject, *, actor: str) -> None:
        with self._transaction() as db:
            key = [_key(new.workspace_id), new.kind, new.uid]
            there = db.execute(
                "SELECT 1 FROM grafana WHERE (workspace, kind, uid) = (?, ?, ?)", key
            ).fetchone()
            db.execute("REPLACE INTO grafana VALUES (?, ?, ?, ?, ?)", [*key, new.id, json.dumps(new.body)])
            _record(db, actor, "update" if there else "create", new.id)

    def delete_grafana_object(self, old: GrafanaObject, *, actor: str) -> bool:
        """Remove it; False if it was gone."""
        with self._transaction() as db:
            key = [_key(old.workspace_id), old.kind, old.uid]
            done = db.execute("DELETE FROM grafana WHERE (workspace, kind, uid) = (?, ?, ?)", key)
            if done.rowcount:
                _record(db, actor, "delete", old.id)
        return bool(done.rowcount)

    # Profiles that were pushed to Pyroscope

    def add_profile(self, labels: Mapping[str, str], pprof: bytes) -> None:
        with self._transaction() as db:
            values = [_now(), json.dumps(dict(labels)), pprof]
            db.execute("INSERT INTO profile (received, labels, pprof) VALUES (?, ?, ?)", values)

    def profiles(self) -> list[PushedProfile]:
        """All profiles, the oldest first."""
        with self._transaction() as db:
            rows = db.execute("SELECT received, labels, pprof FROM profile ORDER BY number").fetchall()
        return [
            PushedProfile(received=datetime.fromisoformat(received), labels=json.loads(labels), pprof=pprof)
            for received, labels, pprof in rows
        ]

    # What happened, and what is to fail

    def record(self, *, actor: str, verb: str, id: str) -> None:
        """Put a line into the event log."""
        with self._transaction() as db:
            _record(db, actor, verb, id)

    def events(self) -> list[Event]:
        """The event log, the oldest first."""
        with self._transaction() as db:
            rows = db.execute("SELECT time, actor, verb, id FROM event ORDER BY number").fetchall()
        return [
            Event(time=datetime.fromisoformat(time), actor=actor, verb=verb, id=id)
            for time, actor, verb, id in rows
        ]

    def add_fault(self, fault: Fault) -> None:
        re.compile(
            fault.path
        )  # an error here is found by the test that makes it, not by the server that uses it
        with self._transaction() as db:
            db.execute(
                "INSERT INTO fault (method, path, status, code, message, retry_after, times, each, after)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    fault.method,
                    fault.path,
                    fault.status,
                    fault.code,
                    fault.message,
                    fault.retry_after_seconds,
                    fault.times,
                    fault.each,
                    fault.after,
                ],
            )

    def take_fault(self, method: str, path: str) -> Fault | None:
        """The oldest rule that this request runs into, which is used up by one; None if it may succeed."""
        with self._transaction() as db:
            rows = db.execute(_FAULTS).fetchall()
            for number, *row in rows:
                fault = _fault(row)
                if fault.method not in ("*", method) or not re.search(fault.path, path, re.IGNORECASE):
                    continue
                if fault.each:
                    if fault.times is not None and _used(db, number, path) > fault.times:
                        continue
                elif fault.times == 1:
                    db.execute("DELETE FROM fault WHERE number = ?", [number])
                elif fault.times is not None:
                    db.execute("UPDATE fault SET times = times - 1 WHERE number = ?", [number])
                return fault
        return None

    def faults(self) -> list[Fault]:
        """The rules that are not used up; those that count for each path never are."""
        with self._transaction() as db:
            return [_fault(row) for _, *row in db.execute(_FAULTS).fetchall()]

    def met(self) -> set[str]:
        """The paths that ran into rules which count for each path."""
        with self._transaction() as db:
            return {str(row[0]) for row in db.execute("SELECT path FROM fault_use")}

    def unanswered(self) -> set[str]:
        """The paths whose requests have hung, by rules that count for each path."""
        with self._transaction() as db:
            rows = db.execute(
                "SELECT fault_use.path FROM fault_use JOIN fault ON fault = number WHERE status = ?",
                [UNANSWERED],
            ).fetchall()
        return {str(row[0]) for row in rows}

    def clear_faults(self) -> None:
        with self._transaction() as db:
            db.execute("DELETE FROM fault")
            db.execute("DELETE FROM fault_use")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        db = self._connection()
        # IMMEDIATE: a transaction that reads first and writes later would fail at once when another wrote in between.
        db.execute("BEGIN IMMEDIATE")
        try:
            yield db
        except BaseException:
            db.rollback()
            raise
        db.commit()

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._connections, "connection", None)
        if connection is None:
            connection = sqlite3.connect(
                self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(
                "PRAGMA synchronous = OFF"
            )  # the state of a test cloud need not survive a power cut
            self._connections.connection = connection
            self._opened.append(connection)
        return connection


_FAULTS: Final = (
    "SELECT number, method, path, status, code, message, retry_after, times, each, after FROM fault"
    " ORDER BY number"
)


def _below(id: str) -> tuple[int, str]:
    prefix = f"{_key(id)}/"
    return len(prefix), prefix


def _key(id: str) -> str:
    return id.rstrip("/").lower()


def _now() -> str:
    return datetime.now(UTC).isoformat()


def _used(db: sqlite3.Connection, fault: int, path: str) -> int:
    """How often the rule has met this path, with this time."""
    row = db.execute(
        "INSERT INTO fault_use (fault, path, uses) VALUES (?, ?, 1)"
        " ON CONFLICT (fault, path) DO UPDATE SET uses = uses + 1 RETURNING uses",
        [fault, _key(path)],
    ).fetchone()
    return int(row[0])


def _find(db: sqlite3.Connection, id: str) -> Resource | None:
    row = db.execute("SELECT id, token, inputs, outputs FROM resource WHERE key = ?", [_key(id)]).fetchone()
    return _resource(row) if row else None


def _write(db: sqlite3.Connection, resource: Resource) -> None:
    values = [
        _key(resource.id),
        resource.id,
        resource.token,
        json.dumps(resource.inputs),
        json.dumps(resource.outputs),
    ]
    db.execute("REPLACE INTO resource VALUES (?, ?, ?, ?, ?)", values)


def _record(db: sqlite3.Connection, actor: str, verb: str, id: str) -> None:
    db.execute("INSERT INTO event (time, actor, verb, id) VALUES (?, ?, ?, ?)", [_now(), actor, verb, id])


def _resource(row: tuple[str, str, str, str]) -> Resource:
    id, token, inputs, outputs = row
    given: Json = json.loads(inputs)
    shown: Json = json.loads(outputs)
    return Resource(id=id, token=token, inputs=given, outputs=shown)


def _fault(row: list[object] | tuple[object, ...]) -> Fault:
    method, path, status, code, message, retry_after, times, each, after = row
    return Fault(
        method=str(method),
        path=str(path),
        status=int(str(status)),
        code=str(code),
        message=str(message),
        retry_after_seconds=None if retry_after is None else int(str(retry_after)),
        times=None if times is None else int(str(times)),
        each=bool(each),
        after=bool(after),
    )
