"""Runs the statements of postgres.txt, catalogs.txt, schema.txt, information.txt, comments.txt and types.txt in crates/services/sql/src/wire/tests on a PostgreSQL server, and replaces the
results in these files.

    python3 scripts/postgres-answers.py "host=127.0.0.1 port=5432 user=ann dbname=terrace"

Use a database without other content: its schema public is dropped. The results in the files come from PostgreSQL 15, a cluster in
UTF8 with locale C.UTF-8 and time zone UTC, whose first user is ann and whose database is terrace. Lines about the behaviour of
Terrace (`!`, `~`) are kept. Needs psycopg 3; scripts/test-sql-clients.sh installs it.
"""

import pathlib
import sys

import psycopg
from psycopg import pq

FOLDER = pathlib.Path(__file__).parent.parent / "crates/services/sql/src/wire/tests"
FILES = ("postgres.txt", "catalogs.txt", "schema.txt", "information.txt", "comments.txt", "types.txt")


def rows(connection, query):
    """The lines of a result: values as text, cells joined by `|`."""
    result = connection.pgconn.exec_(query.encode())
    if result.status != pq.ExecStatus.TUPLES_OK:
        return ["error " + result.error_field(pq.DiagnosticField.SQLSTATE).decode()]

    if query.endswith(" limit 0"):
        return ["|".join(result.fname(column).decode() for column in range(result.nfields))]

    def cell(row, column):
        value = result.get_value(row, column)
        return "NULL" if value is None else value.decode().replace("\n", "\\n")

    return ["|".join(cell(row, column) for column in range(result.nfields)) for row in range(result.ntuples)]


def main():
    for name in FILES:
        file = FOLDER / name
        with psycopg.connect(sys.argv[1], autocommit=True) as connection:
            connection.execute("drop schema if exists public, apart cascade")
            connection.execute("create schema public")
            connection.execute("set time zone 'UTC'")
            lines = []
            for line in file.read_text().splitlines():
                if line.startswith("> "):
                    connection.execute(line[2:])
                if line.startswith("="):
                    continue
                lines.append(line)
                if line and line[0] not in ">#!~":
                    lines += [("= " + row).rstrip() for row in rows(connection, line)]
        file.write_text("\n".join(lines) + "\n")


main()
