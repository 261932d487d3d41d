"""The tables of a store of checkpoints, in SQL.

`files` and `skipped` have what the workspace was at the last look: what a killed call left is compared with it. States
are JSON arrays, whose third element names a content. `calls` are those that have not ended; `moves` and `steps` are
what is being done to files.
"""

from __future__ import annotations

FORMAT = 1

SCHEMA = """
CREATE TABLE IF NOT EXISTS contents (digest TEXT PRIMARY KEY, size INTEGER NOT NULL, data BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS sizes ON contents (size);
CREATE TABLE IF NOT EXISTS files (path BLOB PRIMARY KEY, stamp TEXT, state TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS skipped (path BLOB PRIMARY KEY, stamp TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS checkpoints (
    id INTEGER PRIMARY KEY AUTOINCREMENT, number INTEGER NOT NULL, session TEXT NOT NULL, run TEXT NOT NULL,
    entry TEXT NOT NULL, time REAL NOT NULL, active INTEGER NOT NULL, UNIQUE (session, run)
);
CREATE TABLE IF NOT EXISTS changes (
    checkpoint INTEGER NOT NULL, path BLOB NOT NULL, old TEXT, new TEXT, PRIMARY KEY (checkpoint, path)
);
CREATE TABLE IF NOT EXISTS unknown (checkpoint INTEGER NOT NULL, path BLOB NOT NULL, PRIMARY KEY (checkpoint, path));
CREATE TABLE IF NOT EXISTS calls (
    id TEXT PRIMARY KEY, session TEXT NOT NULL, run TEXT NOT NULL, entry TEXT NOT NULL, path BLOB, old TEXT
);
CREATE TABLE IF NOT EXISTS moves (id INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT NOT NULL, targets TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS steps (
    move INTEGER NOT NULL, path BLOB NOT NULL, old TEXT, new TEXT, PRIMARY KEY (move, path)
);
"""
DELETE_UNUSED = """
DELETE FROM contents WHERE digest NOT IN (
    SELECT json_extract(state, '$[2]') FROM files WHERE state IS NOT NULL
    UNION SELECT json_extract(old, '$[2]') FROM changes WHERE old IS NOT NULL
    UNION SELECT json_extract(new, '$[2]') FROM changes WHERE new IS NOT NULL
    UNION SELECT json_extract(old, '$[2]') FROM calls WHERE old IS NOT NULL
    UNION SELECT json_extract(old, '$[2]') FROM steps WHERE old IS NOT NULL
    UNION SELECT json_extract(new, '$[2]') FROM steps WHERE new IS NOT NULL
)
"""
