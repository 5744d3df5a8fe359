"""Tests an SQL server with stock clients: psql and psycopg 3. test-sql-clients.sh calls it and passes the address.

Each case is a function with the expectation as its name; it gets a Place. Cases share only the server.
"""

import datetime
import decimal
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import traceback

import psycopg

USER, PASSWORD = "ann", "s3cret"


class Place:
    """The address of the server, and its certificate."""

    def __init__(self, host, port, certificate):
        self.host, self.port, self.certificate = host, port, certificate

    def connect(self, **changes):
        """A connection of psycopg."""
        settings = {"host": self.host, "port": self.port, "user": USER, "password": PASSWORD, "dbname": "terrace"}
        settings.update(changes)
        return psycopg.connect(**settings)

    def psql(self, *commands, stdin=None, options=(), check=True, settings=""):
        """Runs psql with more settings of its connection. Returns its output, unaligned and without a header."""
        words = ["psql", "-X", "-v", "ON_ERROR_STOP=1", "-At", *options]
        words.append(f"host={self.host} port={self.port} user={USER} dbname=terrace password={PASSWORD} {settings}")
        for command in commands:
            words += ["-c", command]
        done = subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=60)
        if check and done.returncode != 0:
            raise AssertionError(f"psql: {done.stderr}")
        return done.stdout + ("" if check else done.stderr)


def psql_describes_a_table_with_its_key_and_its_not_null_columns(place):
    place.psql("create table described (id integer primary key, name varchar(20) not null, price numeric(10,2))")
    shown = place.psql("\\d described", options=("-P", "format=aligned", "-P", "tuples_only=off"))
    for part in ("integer", "not null", "character varying(20)", "numeric(10,2)", '"described_pkey" PRIMARY KEY'):
        assert part in shown, f"{part} is missing in:\n{shown}"
    columns = {line.split("|")[0].strip(): line for line in shown.splitlines() if "|" in line}
    assert "not null" in columns["name"] and "not null" not in columns["price"], shown
    place.psql("alter table described add column note text default 'none'", "create view seen as select id from described")
    assert "'none'" in place.psql("\\d described") and "'none'" in place.psql("\\d+ described")
    assert "SELECT id FROM described" in place.psql("\\d+ seen", options=("-P", "tuples_only=off"))


def psql_lists_tables_databases_roles_and_schemas(place):
    place.psql("create table listed (id integer primary key)")
    assert "public|listed|table" in place.psql("\\dt")
    assert "public|listed|table" in place.psql("\\d")
    assert "terrace" in place.psql("\\l")
    assert USER in place.psql("\\du")
    assert "public" in place.psql("\\dn")


def psql_times_statements(place):
    assert "Time:" in place.psql("\\timing on", "select 1")


def psql_copies_a_file_in_and_out_unchanged(place):
    place.psql("create table copied (id bigint primary key, note text, at timestamp)")
    rows = "".join(f"{n}\tnote {n}\\\\ \\t \\n\t2024-02-29 12:00:00.{n % 10}\n" for n in range(1, 20001))
    rows += "20001\t\\N\t\\N\n"
    with tempfile.TemporaryDirectory() as folder:
        before, after, table = (pathlib.Path(folder) / name for name in ("in", "out", "csv"))
        before.write_text(rows.replace(".0\n", "\n"))
        assert "COPY 20001" in place.psql(f"\\copy copied from '{before}'")
        assert "COPY 20001" in place.psql(f"\\copy (select * from copied order by id) to '{after}'")
        assert before.read_text() == after.read_text()
        place.psql(f"\\copy copied to '{table}' with (format csv, header)")
        place.psql("delete from copied")
        place.psql(f"\\copy copied from '{table}' with (format csv, header)")
    assert place.psql("select count(*), count(note) from copied").strip() == "20001|20000"


def a_copy_with_a_broken_line_names_it_and_keeps_nothing(place):
    place.psql("create table broken (id integer primary key)")
    said = place.psql("copy broken from stdin", stdin="1\n2\nthree\n", check=False)
    assert 'invalid input syntax for type integer: "three"' in said and "line 3" in said, said
    assert place.psql("select count(*) from broken").strip() == "0"


def psql_transactions_commit_and_roll_back(place):
    place.psql("create table moved (id integer primary key)")
    place.psql("begin", "insert into moved values (1)", "savepoint s", "insert into moved values (2)",
               "rollback to s", "commit")
    place.psql("begin", "insert into moved values (3)", "rollback")
    assert place.psql("select id from moved order by id").split() == ["1"]


def psql_points_at_an_error_of_syntax(place):
    said = place.psql("select 1 frm frm", check=False)
    assert "syntax error" in said, said


def statements_sent_together_happen_together(place):
    place.psql("create table together (id integer primary key)")
    said = place.psql("insert into together values (1); insert into together values (1)", check=False)
    assert "duplicate key" in said, said
    assert place.psql("select count(*) from together").strip() == "0"


def psycopg_sends_and_reads_values_of_all_types(place):
    values = (
        True, 7, 2**40, 1.5, decimal.Decimal("12.3400"), "gr\u00fcn \u2603", b"\x00\xff", datetime.date(2024, 2, 29),
        datetime.time(23, 59, 59, 500000), datetime.datetime(1999, 12, 31, 23, 59, 59, 999999),
        datetime.datetime(2024, 1, 1, tzinfo=datetime.timezone.utc),
    )
    with place.connect() as connection:
        connection.execute(
            "create table typed (n integer primary key, b boolean, i integer, l bigint, d double precision,"
            " m numeric(20,4), t text, y bytea, day date, clock time, at timestamp, moment timestamptz)"
        )
        marks = ",".join(["%s"] * len(values))
        connection.execute(f"insert into typed values (1,{marks})", values)
        connection.execute(f"insert into typed values (2,{','.join(['%s'] * len(values))})", [None] * len(values))
        connection.commit()
        for binary in (False, True):
            with connection.cursor(binary=binary) as cursor:
                cursor.execute("select b, i, l, d, m, t, y, day, clock, at, moment from typed order by n")
                first, second = cursor.fetchall()
                assert first == values, (binary, first)
                assert second == (None,) * len(values)


def psycopg_prepares_a_statement_once_and_runs_it_often(place):
    with place.connect() as connection:
        connection.execute("create table prepared (id integer primary key, note text)")
        for number in range(50):
            connection.execute("insert into prepared values (%s, %s)", (number, f"n{number}"), prepare=True)
        row = connection.execute("select count(*), max(id) from prepared where id >= %s", (10,), prepare=True).fetchone()
        assert row == (40, 49), row


def psycopg_executemany_and_pipelines_work(place):
    with place.connect() as connection:
        connection.execute("create table many (id integer primary key, note text)")
        with connection.cursor() as cursor:
            cursor.executemany("insert into many values (%s, %s)", [(n, str(n)) for n in range(500)])
        assert connection.execute("select count(*) from many").fetchone() == (500,)


def psycopg_copies_rows_both_ways(place):
    rows = [(n, f"row\t{n}\n" if n % 3 else None) for n in range(5000)]
    with place.connect() as connection:
        connection.execute("create table carried (id integer primary key, note text)")
        with connection.cursor() as cursor:
            with cursor.copy("copy carried (id, note) from stdin") as copy:
                for row in rows:
                    copy.write_row(row)
            with cursor.copy("copy (select id, note from carried order by id) to stdout") as copy:
                copy.set_types(["int4", "text"])
                assert list(copy.rows()) == rows


def psycopg_hears_errors_by_their_class(place):
    with place.connect(autocommit=True) as connection:
        connection.execute("create table unique_ids (id integer primary key, must text not null)")
        connection.execute("insert into unique_ids values (1, 'x')")
        for sql, kind in (
            ("insert into unique_ids values (1, 'y')", psycopg.errors.UniqueViolation),
            ("insert into unique_ids values (2, null)", psycopg.errors.NotNullViolation),
            ("select nothing from unique_ids", psycopg.errors.UndefinedColumn),
            ("select * from nowhere", psycopg.errors.UndefinedTable),
            ("selec 1", psycopg.errors.SyntaxError),
            ("select 1/0", psycopg.errors.DivisionByZero),
        ):
            try:
                connection.execute(sql).fetchall()
            except kind:
                continue
            raise AssertionError(f"{sql}: no {kind.__name__}")


def a_failed_transaction_hears_only_its_end(place):
    with place.connect() as connection:
        try:
            connection.execute("select 1/0").fetchall()
        except psycopg.Error:
            pass
        try:
            connection.execute("select 1")
        except psycopg.errors.InFailedSqlTransaction:
            connection.rollback()
            assert connection.execute("select 1").fetchone() == (1,)
            return
        raise AssertionError("a failed transaction went on")


def a_running_query_can_be_cancelled(place):
    endless = "select count(*) from generate_series(1, 10000000) a(x), generate_series(1, 10000000) b(y)"
    with place.connect(autocommit=True) as connection:
        threading.Timer(0.5, connection.cancel).start()
        try:
            connection.execute(endless)
        except psycopg.errors.QueryCanceled:
            assert connection.execute("select 1").fetchone() == (1,)
            return
        raise AssertionError("it was not cancelled")


def rows_can_be_fetched_a_few_at_a_time(place):
    with place.connect() as connection:
        with connection.cursor() as cursor:
            count = sum(1 for _ in cursor.stream("select * from generate_series(1, 100000)"))
            assert count == 100000, count


def the_message_that_came_in_is_a_row_found_by_its_keys_and_its_fields(place):
    deadline = 100
    query = "select id, direction, status, hl7(raw, 'PID-5.1') from hl7.messages where control_id = 'MSG00001' and object = 0"
    while not (rows := place.psql(query).splitlines()) and deadline:
        deadline -= 1  # durable when it was acknowledged, visible a little later
    assert [row.split("|")[1:] for row in rows] == [["in", "unmatched", "Testperson"]], rows
    assert place.psql("select count(*) from hl7.messages where mrn = '4711'").strip() != "0"
    assert place.psql("select count(*) from hl7.messages where control_id = 'none such'").strip() == "0"
    assert "ERROR" in place.psql("delete from hl7.messages", check=False)


def the_content_of_messages_is_rows_too(place):
    path = "select value from hl7.fields where control_id = 'MSG00001' and path = 'PID-5.1' limit 1"
    deadline = 100
    while not (rows := place.psql(path).split()) and deadline:
        deadline -= 1
    assert rows == ["Testperson"], rows
    names = place.psql("select segment from hl7.segments where control_id = 'MSG00001' order by message_id, position").split()
    assert names[:1] == ["MSH"] and "PID" in names, names
    assert "hl7|fields|table" in place.psql("\\dt hl7.*")


def prepared_statements_of_sql_and_of_the_driver_are_listed_together(place):
    with place.connect(autocommit=True) as connection:
        connection.execute("prepare by_hand (int) as select $1 + 1")
        assert connection.execute("execute by_hand(41)").fetchone() == (42,)
        connection.execute("select %s::int", (1,), prepare=True)
        names = "select from_sql, count(*) from pg_prepared_statements group by 1 order by 1"
        assert connection.execute(names).fetchall() == [(False, 1), (True, 1)]
        connection.execute("deallocate by_hand")
    tuned = place.psql("set work_mem = '64MB'", "set jit = off", "show work_mem").split()
    assert tuned == ["SET", "SET", "64MB"], tuned


def psycopg_hears_what_others_notify(place):
    with place.connect(autocommit=True) as listener, place.connect() as sender:
        listener.execute("listen wards")
        sender.execute("notify wards, 'lost'")
        sender.rollback()
        sender.execute("notify wards, 'ICU'")
        sender.execute("select pg_notify('wards', %s)", ("S1",))
        sender.commit()
        heard = [(one.channel, one.payload) for one in listener.notifies(timeout=30, stop_after=2)]
        assert heard == [("wards", "ICU"), ("wards", "S1")], heard


def new_messages_are_told_by_their_type(place):
    host, port = os.environ["MLLP"].rsplit(":", 1)
    with place.connect(autocommit=True) as listener:
        listener.execute('listen "hl7:ADT^A08"')
        with socket.create_connection((host, int(port)), timeout=30) as sender:
            for number, kind in ((2, "ADT^A03"), (3, "ADT^A08")):
                text = f"MSH|^~\\&|HIS|WARD7|TERRACE|HERE|20260101120000||{kind}|MSG0000{number}|P|2.5\rPID|1||4712\r"
                sender.sendall(b"\x0b" + text.encode() + b"\x1c\r")
                assert b"MSA|A" in sender.recv(4096)
        heard = [(one.channel, one.payload) for one in listener.notifies(timeout=30, stop_after=1)]
        query = "select control_id from hl7.messages where id = %s and object = 0"
        rows = [listener.execute(query, (int(payload),)).fetchall() for _, payload in heard]
        assert rows == [[("MSG00003",)]], (heard, rows)


def an_upsert_inserts_or_changes_and_returns_the_row(place):
    with place.connect() as connection:
        connection.execute("create table counted (k text primary key, n integer not null)")
        sql = ("insert into counted values (%s, %s) on conflict (k) do update set n = counted.n + excluded.n"
               " where excluded.n > 0 returning n")
        found = [connection.execute(sql, pair).fetchone() for pair in (("a", 1), ("a", 5), ("b", 2), ("a", 0))]
        assert found == [(1,), (6,), (2,), None], found
        try:
            connection.execute("insert into counted values ('c', 1), ('c', 2) on conflict (k) do update set n = 0")
        except psycopg.errors.CardinalityViolation:
            return
        raise AssertionError("a row was touched twice")


def columns_are_called_what_postgresql_calls_them(place):
    with place.connect() as connection:
        cursor = connection.execute("select 1, 1, count(*), 'x'::text, max(n) as n from (select 2 as n) t")
        assert [column.name for column in cursor.description] == ["?column?", "?column?", "count", "text", "n"]
        assert cursor.fetchone() == (1, 1, 1, "x", 2)


def explain_shows_plans(place):
    place.psql("create table explained (id integer primary key)")
    shown = place.psql("explain select * from explained", options=("-P", "tuples_only=off"))
    assert shown.startswith("QUERY PLAN\n") and "RowScan" in shown, shown
    assert "output_rows=" in place.psql("explain analyze select count(*) from explained")
    assert "not supported" in place.psql("explain analyze delete from explained", check=False)
    assert "Time:" in place.psql("\\timing on", "explain select 1")


def external_files_are_refused_where_no_folder_is_named(place):
    said = place.psql("create external table e stored as parquet location '/etc/passwd'", check=False)
    assert "external tables are not enabled" in said and "external = " in said, said


def tls_is_spoken_and_its_certificate_checked(place):
    with place.connect(sslmode="verify-full", sslrootcert=place.certificate, host="localhost") as connection:
        assert connection.pgconn.ssl_in_use
        assert connection.execute("select 1").fetchone() == (1,)


def a_login_is_bound_to_the_certificate_where_the_client_wants_it(place):
    for binding in ("require", "prefer", "disable"):
        assert place.psql("select 1", settings=f"sslmode=require channel_binding={binding}").strip() == "1", binding
    said = place.psql("select 1", settings="sslmode=disable channel_binding=require", check=False)
    assert "channel binding" in said, said
    with place.connect(sslmode="require", channel_binding="require") as connection:
        assert connection.execute("select 1").fetchone() == (1,)


def a_wrong_password_and_an_unknown_user_are_refused(place):
    for changes in ({"password": "wrong"}, {"user": "nobody"}):
        try:
            place.connect(**changes).close()
        except psycopg.OperationalError as error:
            assert "password authentication failed" in str(error), error
            continue
        raise AssertionError(f"{changes} was let in")


def main():
    """Runs all cases, or the named ones."""
    host, port, certificate, *wanted = sys.argv[1:]
    place = Place(host, int(port), certificate)
    cases = [value for name, value in globals().items() if callable(value) and "place" in getattr(
        getattr(value, "__code__", None), "co_varnames", ())[:1]]
    passed = failed = 0
    for case in cases:
        if wanted and case.__name__ not in wanted:
            continue
        try:
            case(place)
            passed += 1
            print(f"ok {case.__name__}")
        except Exception:  # a case may fail in any way; the others still run
            failed += 1
            print(f"FAILED {case.__name__}")
            traceback.print_exc(limit=2)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
