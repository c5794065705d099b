-- The tables of a journal of version 0.4.0, with one fit that ended, one that did not, and a peer.
CREATE TABLE party (
    row INTEGER PRIMARY KEY, id BLOB NOT NULL, name TEXT NOT NULL, public BLOB NOT NULL
);
CREATE TABLE entries (
    counter INTEGER PRIMARY KEY, at TEXT NOT NULL, fit INTEGER NOT NULL, kind TEXT NOT NULL,
    content TEXT NOT NULL, head BLOB NOT NULL
);
CREATE TABLE fits (
    number INTEGER PRIMARY KEY, agreement BLOB NOT NULL UNIQUE, data_set TEXT NOT NULL,
    protocol TEXT NOT NULL, algorithm TEXT NOT NULL, position INTEGER NOT NULL, parties BLOB NOT NULL,
    began TEXT NOT NULL,
    epsilon REAL, delta REAL, unit TEXT, neighbours TEXT, noise TEXT, mechanism TEXT,
    answered INTEGER NOT NULL DEFAULT 0, asked INTEGER NOT NULL DEFAULT 0,
    question BLOB NOT NULL DEFAULT x'', losses INTEGER NOT NULL DEFAULT 0,
    spent REAL NOT NULL DEFAULT 0.0, closed INTEGER NOT NULL DEFAULT 0, state BLOB, program BLOB,
    totals BLOB, memory BLOB
);
CREATE TABLE starts (
    row INTEGER PRIMARY KEY, data_set TEXT NOT NULL, cells BLOB NOT NULL, UNIQUE (data_set, cells)
);
CREATE TABLE start_totals (
    row INTEGER PRIMARY KEY, data_set TEXT NOT NULL, fit BLOB NOT NULL, sum INTEGER NOT NULL,
    cohort BLOB NOT NULL, total BLOB NOT NULL, UNIQUE (data_set, fit, sum)
);
CREATE TABLE data_sets (
    row INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, protection TEXT NOT NULL, groups BLOB
);
CREATE TABLE peers (
    row INTEGER PRIMARY KEY, public BLOB NOT NULL, counter INTEGER NOT NULL, head BLOB NOT NULL,
    met INTEGER NOT NULL, UNIQUE (public, counter)
);
CREATE TABLE sealed (
    name TEXT NOT NULL, row INTEGER NOT NULL, digest BLOB NOT NULL, PRIMARY KEY (name, row)
) WITHOUT ROWID;
INSERT INTO party VALUES (1, x'00', 'ward1', x'01');
INSERT INTO entries VALUES (1, '2026-11-01T09:00:00+00:00', 1, 'begin', '{"data_set": "stays.csv"}', x'02');
INSERT INTO fits (number, agreement, data_set, protocol, algorithm, position, parties, began, epsilon, answered, closed)
    VALUES (1, x'03', 'stays.csv', 'masked', 'WeightedKMeans', 0, x'04', '2026-11-01T09:00:00+00:00', 1.0, 9, 1),
           (2, x'05', 'stays.csv', 'masked', 'WeightedKMeans', 0, x'04', '2026-11-02T09:00:00+00:00', 1.0, 2, 0);
INSERT INTO peers VALUES (1, x'06', 1, x'07', 1);
PRAGMA user_version = 11;
