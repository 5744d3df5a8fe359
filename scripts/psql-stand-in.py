#!/usr/bin/env python3
"""Replaces `psql -c STATEMENT` where psql is missing: runs the statement with psycopg and prints the result as psql does. PGHOST and
the other PG variables give the address."""

import sys

import psycopg


def shown(value):
    return "" if value is None else str(value)


def main():
    if len(sys.argv) != 3 or sys.argv[1] != "-c":
        sys.exit("psql-stand-in: only -c STATEMENT")
    # Values are printed as the server sends them.
    with psycopg.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(sys.argv[2])
        if cursor.description is None:
            print(cursor.statusmessage)
            return
        names = [column.name for column in cursor.description]
        rows = [[shown(value) for value in row] for row in cursor.fetchall()]
    widths = [max(map(len, column)) for column in zip(names, *rows)]
    print("|".join(f" {name:^{width}} " for name, width in zip(names, widths)).rstrip())
    print("+".join("-" * (width + 2) for width in widths))
    for row in rows:
        print("|".join(f" {value:<{width}} " for value, width in zip(row, widths)).rstrip())
    print(f"({len(rows)} row{'' if len(rows) == 1 else 's'})\n")


try:
    main()
except psycopg.Error as error:
    sys.exit(f"ERROR:  {error}")
