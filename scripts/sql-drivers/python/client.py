"""Tests an SQL server with drivers of Python: SQLAlchemy 2 with psycopg 3, pandas on top of it, and asyncpg. test-sql-drivers.sh calls
it and passes the address.

Each case is a function with the expectation as its name; it gets the address. Cases share only the server.
"""

import asyncio
import datetime
import decimal
import sys
import traceback

import asyncpg
import pandas
import sqlalchemy
from sqlalchemy import orm

UTC = datetime.timezone.utc


def engine_of(url, **options):
    """SQLAlchemy's engine, with psycopg 3."""
    return sqlalchemy.create_engine(url.replace("postgres://", "postgresql+psycopg://"), **options)


def people(metadata, name):
    """A table with a column of each type."""
    return sqlalchemy.Table(
        name, metadata,
        sqlalchemy.Column("id", sqlalchemy.Integer, primary_key=True, autoincrement=False),
        sqlalchemy.Column("name", sqlalchemy.String(40), nullable=False),
        sqlalchemy.Column("born", sqlalchemy.Date),
        sqlalchemy.Column("price", sqlalchemy.Numeric(10, 2)),
        sqlalchemy.Column("yes", sqlalchemy.Boolean),
        sqlalchemy.Column("at", sqlalchemy.DateTime),
        sqlalchemy.Column("moment", sqlalchemy.DateTime(timezone=True)),
        sqlalchemy.Column("big", sqlalchemy.BigInteger),
        sqlalchemy.Column("body", sqlalchemy.Text, server_default="empty"),
        sqlalchemy.Column("raw", sqlalchemy.LargeBinary),
        sqlalchemy.Column("ratio", sqlalchemy.Float),
    )


ROW = {
    "name": "gr\u00fcn", "born": datetime.date(2024, 2, 29), "price": decimal.Decimal("1.25"), "yes": True,
    "at": datetime.datetime(2024, 1, 1, 1, 2, 3), "moment": datetime.datetime(2024, 1, 1, tzinfo=UTC), "big": 2**40,
    "body": "b", "raw": b"\0\xff", "ratio": 1.5,
}


def sqlalchemy_creates_inserts_selects_updates_and_drops(url):
    engine, metadata = engine_of(url), sqlalchemy.MetaData()
    table = people(metadata, "sa_people")
    metadata.create_all(engine)
    metadata.create_all(engine)  # existing tables are found
    with engine.begin() as connection:
        connection.execute(table.insert(), [{"id": number, **ROW} for number in range(10)])
    with engine.begin() as connection:
        assert connection.execute(sqlalchemy.select(table).where(table.c.id == 3)).one() == (3, *ROW.values())
        assert connection.scalar(sqlalchemy.select(sqlalchemy.func.count()).select_from(table)) == 10
        query = sqlalchemy.select(table.c.id + 1).where(table.c.id.in_([4, 5])).order_by(table.c.id).limit(1)
        assert connection.scalars(query).all() == [5]
        found = sqlalchemy.select(table.c.id).where(table.c.name.startswith("gr", autoescape=True))
        assert len(connection.scalars(found).all()) == 10
        assert connection.execute(table.update().where(table.c.id == 3).values(price=table.c.price * 2)).rowcount == 1
        assert connection.execute(table.delete().where(table.c.id > 5)).rowcount == 4
    with engine.connect() as connection:
        try:
            connection.execute(table.insert(), {"id": 3, **ROW})
            raise AssertionError("a key came twice")
        except sqlalchemy.exc.IntegrityError:
            connection.rollback()
        assert connection.scalar(sqlalchemy.select(table.c.price).where(table.c.id == 3)) == decimal.Decimal("2.50")
    metadata.drop_all(engine)
    assert "sa_people" not in sqlalchemy.inspect(engine).get_table_names()


def sqlalchemy_keeps_transactions_and_isolation_levels(url):
    engine, metadata = engine_of(url), sqlalchemy.MetaData()
    table = sqlalchemy.Table("sa_kept", metadata, sqlalchemy.Column("id", sqlalchemy.Integer, primary_key=True, autoincrement=False))
    metadata.create_all(engine)
    with engine.connect() as connection:
        for number in range(20):  # often enough that psycopg prepares it
            connection.execute(table.insert(), {"id": number})
            if number % 2:
                connection.rollback()
            else:
                connection.commit()
        with connection.begin_nested() as inner:
            connection.execute(table.insert(), {"id": 99})
            inner.rollback()
        connection.commit()
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        assert connection.scalar(sqlalchemy.text("select count(*) from sa_kept")) == 10
        connection.execute(sqlalchemy.text("drop table sa_kept"))
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        assert connection.scalar(sqlalchemy.text("select 2")) == 2


def sqlalchemy_maps_objects(url):
    class Base(orm.DeclarativeBase):
        pass

    class Item(Base):
        __tablename__ = "sa_items"
        id: orm.Mapped[int] = orm.mapped_column(primary_key=True, autoincrement=False)
        name: orm.Mapped[str]

    engine = engine_of(url)
    Base.metadata.create_all(engine)
    with orm.Session(engine) as session:
        session.add_all([Item(id=number, name=str(number)) for number in range(5)])
        session.commit()
        session.get(Item, 3).name = "changed"
        session.delete(session.get(Item, 4))
        session.commit()
        assert session.scalars(sqlalchemy.select(Item.name).order_by(Item.id)).all() == ["0", "1", "2", "changed"]
    Base.metadata.drop_all(engine)


def sqlalchemy_reflects_tables_keys_defaults_and_views(url):
    engine, metadata = engine_of(url), sqlalchemy.MetaData()
    people(metadata, "sa_shown")
    sqlalchemy.Table(
        "sa_pairs", metadata,
        sqlalchemy.Column("b", sqlalchemy.Integer, primary_key=True, autoincrement=False),
        sqlalchemy.Column("a", sqlalchemy.Integer, primary_key=True, autoincrement=False),
        sqlalchemy.PrimaryKeyConstraint("a", "b", name="sa_pairs_key"),
    )
    metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("create view sa_view as select id, name from sa_shown"))
    about = sqlalchemy.inspect(engine)
    assert {"sa_shown", "sa_pairs"} <= set(about.get_table_names()), about.get_table_names()
    assert about.get_view_names() == ["sa_view"] and "select" in about.get_view_definition("sa_view").lower()
    assert {"public", "hl7"} <= set(about.get_schema_names()), about.get_schema_names()
    assert about.has_table("sa_shown") and not about.has_table("sa_nowhere")
    columns = {column["name"]: column for column in about.get_columns("sa_shown")}
    types = {name: str(column["type"]) for name, column in columns.items()}
    assert types == {
        "id": "INTEGER", "name": "VARCHAR(40)", "born": "DATE", "price": "NUMERIC(10, 2)", "yes": "BOOLEAN", "at": "TIMESTAMP",
        "moment": "TIMESTAMP", "big": "BIGINT", "body": "TEXT", "raw": "BYTEA", "ratio": "DOUBLE PRECISION",
    }, types
    assert columns["moment"]["type"].timezone and not columns["at"]["type"].timezone
    assert not columns["name"]["nullable"] and columns["body"]["nullable"]
    assert "empty" in columns["body"]["default"] and columns["name"]["default"] is None, columns["body"]
    key = about.get_pk_constraint("sa_pairs")
    assert (key["name"], key["constrained_columns"]) == ("sa_pairs_key", ["a", "b"]), key
    for nothing in (about.get_foreign_keys, about.get_indexes, about.get_unique_constraints, about.get_check_constraints):
        assert nothing("sa_shown") == [], nothing
    assert about.get_table_comment("sa_shown") == {"text": None}
    assert about.get_sequence_names() == [] and about.get_materialized_view_names() == []
    read = sqlalchemy.Table("sa_pairs", sqlalchemy.MetaData(), autoload_with=engine)
    assert [column.name for column in read.primary_key] == ["a", "b"], read.primary_key
    assert sqlalchemy.Table("sa_view", sqlalchemy.MetaData(), autoload_with=engine).columns.keys() == ["id", "name"]
    whole = sqlalchemy.MetaData()
    whole.reflect(engine, schema="public", views=True)
    assert {"public.sa_shown", "public.sa_pairs", "public.sa_view"} <= set(whole.tables), whole.tables
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("drop view sa_view"))
    metadata.drop_all(engine)


def pandas_writes_reads_replaces_and_appends_tables(url):
    engine = engine_of(url)
    frame = pandas.DataFrame({"k": [1, 2, 3], "v": [1.5, 2.5, None], "s": ["a", "b", None], "d": pandas.to_datetime(["2024-01-01"] * 3)})
    for exists in ("replace", "replace", "append"):
        frame.to_sql("pd_frame", engine, index=False, if_exists=exists)
    back = pandas.read_sql("select * from pd_frame order by k, v", engine)
    assert len(back) == 6 and list(back.columns) == ["k", "v", "s", "d"] and back["k"].dtype == "int64", back
    assert len(pandas.read_sql_table("pd_frame", engine)) == 6
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("drop table pd_frame"))


def with_asyncpg(work):
    """Runs a coroutine with a connection of asyncpg."""

    def case(url):
        async def run():
            connection = await asyncpg.connect(url, timeout=30, command_timeout=60)
            try:
                await work(connection)
            finally:
                await connection.close()

        asyncio.run(run())

    case.__name__ = work.__name__
    return case


async def asyncpg_sends_parameters_as_what_they_stand_for(connection):
    await connection.execute("create table ap_rows (id int primary key, note text, price numeric(10,2), at timestamptz)")
    rows = [(number, str(number), decimal.Decimal("1.50"), datetime.datetime(2024, 1, 1, tzinfo=UTC)) for number in range(10)]
    await connection.executemany("insert into ap_rows values ($1, $2, $3, $4)", rows)
    for expected, query, *values in (
        (5, "select $1::int + 1", 4),
        (7, "select $1::int from (select $1::text, $1::int + 1::bigint) q", 7),
        (3, "select id from ap_rows where id in ($1, $2) order by id", 3, 4),
        (2, "select id from ap_rows order by id limit $1 offset $2", 1, 2),
        (4, "select case when $1 then $2 else 1 end", True, 4),
        (1, "select id from ap_rows where note like $1 || '%'", "1"),
        (None, "select id from ap_rows where $1::text is not null", None),
        (2, "select id from ap_rows where id between $1 and $2 order by id", 2, 3),
        (10, "select count(*) from ap_rows where price = $1", decimal.Decimal("1.5")),
        (decimal.Decimal("2.755"), "select $1::numeric + 1", decimal.Decimal("1.755")),
        (datetime.date(2024, 1, 1), "select $1::date", datetime.date(2024, 1, 1)),
        (True, "select now() - $1::interval < now()", datetime.timedelta(days=1)),
        (b"ab", "select $1::bytea", b"ab"),
    ):
        found = await connection.fetchval(query, *values)
        assert found == expected, f"{query}: {found!r}"


async def asyncpg_copies_rows_in_binary_and_reads_them_with_a_cursor(connection):
    await connection.execute("create table ap_copied (id bigint primary key, note text)")
    # Notes of all lengths, so that messages of COPY end anywhere in a row.
    rows = [(number, "x" * (number * 37 % 3001)) for number in range(5000)]
    assert await connection.copy_records_to_table("ap_copied", records=rows) == "COPY 5000"
    async with connection.transaction(isolation="repeatable_read"):
        back = [tuple(row) async for row in connection.cursor("select * from ap_copied order by id")]
    assert back == rows


async def asyncpg_hears_errors_when_it_prepares_and_goes_on(connection):
    for _ in range(3):
        try:
            await connection.fetch("select nothing from nowhere where id = $1", 1)
            raise AssertionError("there is no such table")
        except asyncpg.UndefinedTableError:
            pass
        assert await connection.fetchval("select 1") == 1
    await connection.reset()
    assert await connection.fetchval("select $1::text", "a") == "a"


CASES = [
    sqlalchemy_creates_inserts_selects_updates_and_drops,
    sqlalchemy_keeps_transactions_and_isolation_levels,
    sqlalchemy_maps_objects,
    sqlalchemy_reflects_tables_keys_defaults_and_views,
    pandas_writes_reads_replaces_and_appends_tables,
    with_asyncpg(asyncpg_sends_parameters_as_what_they_stand_for),
    with_asyncpg(asyncpg_copies_rows_in_binary_and_reads_them_with_a_cursor),
    with_asyncpg(asyncpg_hears_errors_when_it_prepares_and_goes_on),
]


def main():
    """Runs all cases, or the named ones."""
    url, *wanted = sys.argv[1:]
    passed = failed = 0
    for case in CASES:
        if wanted and case.__name__ not in wanted:
            continue
        try:
            case(url)
            passed += 1
            print(f"ok python: {case.__name__}")
        except Exception:  # a case may fail in any way; the others still run
            failed += 1
            print(f"FAILED python: {case.__name__}")
            traceback.print_exc(limit=4, file=sys.stdout)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
