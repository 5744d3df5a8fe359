"""Compares an SQL server with PostgreSQL: seeded schemas, data and statements run on both, and results, types, column names and SQLSTATEs
are compared. test-sql-differential.sh calls it.

    sql-differential.py POSTGRES OTHER [--seed N] [--statements N] [--hours H] [--known FILE] [--show N] [--all] [--try FILE]

Expressions are trees over the rules in sql-differential/: each is a type and a template whose holes are typed. A statement that differs is made
smaller (a hole is replaced by one of its own holes of the same type, by a literal, or by NULL; clauses are left out) for as long as it
still differs in the same way. What remains names the cause. Differences are grouped by that cause.

A difference is known if a row of the table in FILE (docs/sql-differences.md) has it: its outcome is that of the row, and its pattern is found
in the smallest statement or in the message of the error. Known differences pass; a row that hides a result (`value`) says why.

Every run prints its seed; the same seed makes the same statements. `--try FILE` runs the statements of a file, one a line, instead.
"""

import argparse
import collections
import math
import pathlib
import random
import re
import sys
import time

import psycopg
from psycopg import pq

# Types by the names that templates use, and what PostgreSQL calls them.
TYPES = {
    "b": "boolean", "i2": "smallint", "i4": "integer", "i8": "bigint", "n": "numeric", "f4": "real", "f8": "double precision", "t": "text",
    "d": "date", "ti": "time", "ts": "timestamp", "tz": "timestamptz", "iv": "interval", "by": "bytea",
    "u": "uuid", "jb": "jsonb",
}

# Literals of each type; a column takes its values from them too.
LITERALS = {
    "b": ["true", "false"],
    "i2": ["0::int2", "1::int2", "'-7'::int2", "32767::int2", "'-32768'::int2"],
    "i4": ["0", "1", "2", "3", "-5", "7", "10", "42", "100", "2147483647", "-2147483647"],
    "i8": ["0::int8", "1::int8", "3000000000", "-3000000000", "9223372036854775807"],
    "n": ["0.0", "1.5", "-2.25", "100.00", "0.001", "12345.678", "-0.5", "2.5", "3.5", "99999999.99"],
    "f4": ["0.5::real", "'-1.5'::real", "3.25::real", "1e10::real"],
    "f8": ["0.1::float8", "1.5::float8", "'-2.5'::float8", "1e15::float8", "1e-5::float8", "123456.789::float8"],
    "t": ["''", "'a'", "'abc'", "'ABC'", "'a b c'", "'foo_bar'", "'50%'", "'x,y,z'", "'\u00e4\u00f6'", "' pad '", "'12'", "'a\\b'", "'it''s'"],
    "d": ["date '2024-02-29'", "date '1999-12-31'", "date '2024-01-31'", "date '1970-01-01'", "date '0044-03-15 BC'"],
    "ti": ["time '00:00'", "time '12:34:56.789'", "time '23:59:59'"],
    "ts": ["timestamp '2024-02-29 12:34:56.789'", "timestamp '1999-12-31 23:59:59'", "timestamp '2024-03-31 02:30:00'"],
    "tz": ["timestamptz '2024-03-31 01:30:00+00'", "timestamptz '2024-10-27 00:30:00+02'", "timestamptz '1970-01-01 00:00:00+00'"],
    "iv": ["'1 day'::interval", "'1 month'::interval", "'-1 day +02:00'::interval", "'1 year 2 mons 3 days 04:05:06.7'::interval",
           "'90 minutes'::interval", "'36 hours'::interval"],
    "by": ["'\\x6162'::bytea", "'\\x'::bytea", "'\\x00ff'::bytea"],
    "u": ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid", "'00000000-0000-0000-0000-000000000000'::uuid", "uuid '{FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF}'",
          "'a0eebc999c0b4ef8bb6d6bb9bd380a12'::uuid"],
    # No two that differ only in zeros at the end of a number: for DISTINCT they are two values here.
    "jb": ["'{\"a\": 1, \"b\": [1, \"x\", null]}'::jsonb", "'[1, 2, {\"a\": \"x\"}]'::jsonb", "'\"abc\"'::jsonb", "'1.50'::jsonb", "'null'::jsonb", "'{}'::jsonb",
           "'{\"bb\":{\"a\":[]},\"a\":2,\"a\":3}'::jsonb", "'[]'::jsonb", "'true'::jsonb"],
}


PATTERNS = ["'a%'", "'%b%'", "'_b_'", "'%'", "''", "'a\\_%'", "'50!%'", "'%c'", "'ab_'"]
REGEXES = ["'b'", "'^a'", "'[a-c]+'", "'o.b'", "'(a|b)c?'", "'\\d+'", "'c$'", "'a(b)'", "'\\s'", "''", "'[[:alpha:]]'", "'\\mb'"]
TEXTS_AS = {"i4": ["'12'", "' 7 '", "'x'", "'3000000000'", "''"], "n": ["'1.50'", "'-2e3'", "'x'"], "f8": ["'1e5'", "'NaN'", "'-Infinity'", "'x'"],
            "d": ["'2024-02-29'", "'2024-02-30'", "'20240131'", "'Jan 5, 2024'", "'x'"],
            "u": ["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "'{A0EE-BC99-9C0B-4EF8-BB6D-6BB9-BD38-0A11}'", "'a0eebc99'", "' a0eebc999c0b4ef8bb6d6bb9bd380a11'", "''"],
            "jb": ["'{\"b\": 1e2, \"a\" : -0.0}'", "'[1,]'", "'\"\\u00e4\"'", "'nul'", "''"]}


# The folder of the rules: `type: template`, a line. `{x}` is an expression of type x, `{x!}` a literal of it, `{p}` a pattern of LIKE, `{r}` a
# regular expression, `{o}` an order. A number in front is a weight.
FOLDER = pathlib.Path(__file__).parent / "sql-differential"


def rules_of(name):
    """The rules of a file by type: lists of templates, each as often as its weight."""
    found = collections.defaultdict(list)
    for line in (FOLDER / name).read_text().splitlines():
        if line.startswith("#"):
            continue
        weight = 1
        if line[0].isdigit():
            number, line = line.split(" ", 1)
            weight = int(number)
        kind, template = line.split(": ", 1)
        found[kind] += [template] * weight
    return found


RULES, AGGREGATES, WINDOWS = (rules_of(name) for name in ("expressions.txt", "aggregates.txt", "windows.txt"))
HOLE = re.compile(r"\{(\w+)(!?)\}")


class Node:
    """An expression: a template, and what is in its holes."""

    def __init__(self, kind, template, children=()):
        self.kind, self.template, self.children = kind, template, list(children)

    def sql(self):
        children = iter(self.children)
        return HOLE.sub(lambda _: next(children).inner(), self.template)

    def inner(self):
        return self.sql() if not self.children and re.fullmatch(r"[\w.']+", self.template) else f"({self.sql()})" if self.kind not in ("p", "r", "o") else self.sql()

    def smaller(self):
        """Trees that are smaller than this one by a step."""
        for at, child in enumerate(self.children):
            if child.kind == self.kind and child.kind not in ("p", "r", "o"):
                yield child
            for other in child.smaller():
                yield Node(self.kind, self.template, self.children[:at] + [other] + self.children[at + 1:])
        if self.children and self.kind in LITERALS and not getattr(self, "fixed", False):
            for literal in LITERALS[self.kind][:2] + [f"null::{TYPES[self.kind]}"]:
                yield Node(self.kind, literal)

    def size(self):
        return 1 + sum(child.size() for child in self.children)


class Table:
    """A table: its name, its columns with their types, and the statements that make it."""

    def __init__(self, name, rng):
        self.name = name
        kinds = list(TYPES)
        self.columns = [("id", "i4")] + [(f"{kind}_{n}", kind) for n, kind in enumerate(rng.sample(kinds, rng.randint(5, 9)))]
        self.columns += [("k", "i4"), ("s", "t")]
        sizes = {"n": "numeric(12,3)", "t": rng.choice(["text", "varchar(20)"])}
        columns = ", ".join(f"{c} {sizes.get(k, TYPES[k])}" + (" primary key" if c == "id" else "") for c, k in self.columns)
        rows = []
        for number in range(rng.randint(4, 12)):
            cells = [str(number)]
            for name, kind in self.columns[1:]:
                cells.append("null" if rng.random() < 0.2 else str(rng.randint(0, 3)) if name == "k" else rng.choice(LITERALS[kind]))
            rows.append("(" + ", ".join(cells) + ")")
        self.statements = [f"create table {self.name} ({columns})", f"insert into {self.name} values {', '.join(rows)}"]


class Statement:
    """A SELECT in parts, so that it can be made smaller."""

    def __init__(self, **parts):
        self.parts = parts

    def sql(self):
        p = self.parts
        if "text" in p:
            return p["text"]
        items = ", ".join(item.sql() if isinstance(item, Node) else item for item in p["items"])
        text = f"{p.get('with', '')}select {p.get('distinct', '')}{items}"
        if p.get("from"):
            text += f" from {p['from']}"
        if p.get("where"):
            text += f" where {p['where'].sql() if isinstance(p['where'], Node) else p['where']}"
        if p.get("group"):
            text += f" group by {p['group']}"
        if p.get("having"):
            text += f" having {p['having'].sql()}"
        if p.get("union"):
            word, other = p["union"]
            text += f" {word} {other.sql()}"
        if p.get("order"):
            text += f" order by {p['order']}"
        return text + p.get("limit", "")

    def but(self, **parts):
        return Statement(**{**self.parts, **parts})

    def smaller(self):
        p = self.parts
        if "text" in p:
            return
        for name in ("where", "having", "limit", "distinct", "union"):
            if p.get(name):
                yield self.but(**{name: ""})
        if len(p["items"]) > 1 and not p.get("union"):
            for at in range(len(p["items"])):
                if p.get("order") not in ("1",) or at > 0:
                    yield self.but(items=p["items"][:at] + p["items"][at + 1:])
        for at, item in enumerate(p["items"]):
            if isinstance(item, Node):
                for other in item.smaller():
                    yield self.but(items=p["items"][:at] + [other] + p["items"][at + 1:])
        for name in ("where", "having"):
            if isinstance(p.get(name), Node):
                for other in p[name].smaller():
                    yield self.but(**{name: other})

    @property
    def is_ordered(self):
        return bool(self.parts.get("order")) or " order by " in self.parts.get("text", "").lower()


class Generator:
    """Statements from a seed."""

    def __init__(self, rng, tables):
        self.rng, self.tables = rng, tables

    def leaf(self, kind, columns):
        rng = self.rng
        own = [name for name, of in columns if of == kind]
        if own and rng.random() < 0.75:
            return Node(kind, rng.choice(own))
        return Node(kind, f"null::{TYPES[kind]}" if rng.random() < 0.05 else rng.choice(LITERALS[kind]))

    def expression(self, kind, columns, depth, rules=RULES):
        rng = self.rng
        if depth <= 0 or (rules is RULES and rng.random() < 0.2) or not rules.get(kind):
            return self.leaf(kind, columns)
        template = rng.choice(rules[kind])
        children = []
        for hole in HOLE.finditer(template):
            name, literal = hole.groups()
            if name == "p":
                children.append(Node("p", rng.choice(PATTERNS)))
            elif name == "r":
                children.append(Node("r", rng.choice(REGEXES)))
            elif name == "o":
                children.append(Node("o", rng.choice(["order by id", "partition by k order by id", "order by k, id", "order by s nulls first, id"])))
            elif literal and template.startswith("{t!}::"):
                children.append(Node("p", rng.choice(TEXTS_AS[kind])))
            elif literal:
                children.append(Node("p", rng.choice(["1", "2", "0", "-1", "5"] if name == "i4" else LITERALS[name])))
            else:
                children.append(self.expression(name, columns, depth - 1))
        return Node(kind, template, children)

    def kinds(self, count, rules=RULES):
        return [self.rng.choice([kind for kind in TYPES if rules.get(kind)]) for _ in range(count)]

    def statement(self):
        rng = self.rng
        return rng.choices(
            [self.plain, self.constants, self.grouped, self.windowed, self.united, self.nested, self.joined],
            [8, 3, 4, 3, 2, 3, 2],
        )[0]()

    def plain(self):
        table = self.rng.choice(self.tables)
        items = [self.expression(kind, table.columns, 2) for kind in self.kinds(self.rng.randint(1, 2))]
        where = self.expression("b", table.columns, 2) if self.rng.random() < 0.5 else ""
        limit = self.rng.choice(["", "", "", " limit 3", " offset 2", " limit 2 offset 1"])
        return Statement(items=items, **{"from": table.name}, where=where, order="id", limit=limit)

    def constants(self):
        return Statement(items=[self.expression(kind, [], 2) for kind in self.kinds(1)])

    def grouped(self):
        rng, table = self.rng, self.rng.choice(self.tables)
        items = [self.expression(kind, table.columns, 2, AGGREGATES) for kind in self.kinds(rng.randint(1, 2), AGGREGATES)]
        if rng.random() < 0.3:
            return Statement(items=items, **{"from": table.name})
        having = Node("b", "count(*) > 1") if rng.random() < 0.3 else ""
        if rng.random() < 0.25:
            group = rng.choice(["rollup (k)", "cube (k)", "grouping sets ((k), ())"])
            return Statement(items=["k", "grouping(k)", *items], **{"from": table.name}, group=group, having=having)
        return Statement(items=["k", *items], **{"from": table.name}, group="k", having=having, order="k" + rng.choice(["", " desc", " nulls first"]))

    def windowed(self):
        table = self.rng.choice(self.tables)
        items = [self.expression(kind, table.columns, 2, WINDOWS) for kind in self.kinds(1, WINDOWS)]
        return Statement(items=["id", *items], **{"from": table.name}, order="id")

    def united(self):
        rng, kind = self.rng, self.kinds(1)[0]
        one, other = rng.choice(self.tables), rng.choice(self.tables)
        second = Statement(items=[self.expression(kind, other.columns, 1)], **{"from": other.name})
        word = rng.choice(["union", "union all", "intersect", "except", "union", "intersect all", "except all"])
        return Statement(items=[self.expression(kind, one.columns, 1)], **{"from": one.name}, union=(word, second), order="1")

    def nested(self):
        rng = self.rng
        one, other = rng.choice(self.tables), rng.choice(self.tables)
        o, d = f"{one.name}.", "x."
        source = f"{other.name} x"
        templates = [
            ("b", f"{o}k in (select {d}k from {source})"), ("b", f"{o}k not in (select {d}k from {source})"),
            ("b", f"{o}k not in (select {d}k from {source} where {d}k is not null)"),
            ("b", f"exists (select 1 from {source} where {d}k = {o}k)"), ("b", f"not exists (select 1 from {source} where {d}k = {o}k)"),
            ("b", f"{o}k = any (select {d}k from {source})"), ("b", f"{o}k > any (select {d}k from {source})"),
            ("b", f"{o}k >= all (select {d}k from {source})"), ("b", f"{o}k <> all (select {d}k from {source} where {d}k > 1)"),
            ("b", f"{o}s in (select {d}s from {source} where {d}k = {o}k)"), ("b", f"({o}k, {o}s) in (select {d}k, {d}s from {source})"),
            ("i8", f"(select count(*) from {source} where {d}k = {o}k)"), ("i4", f"(select max({d}id) from {source})"),
            ("i4", f"(select max({d}id) from {source} where {d}k = {o}k)"), ("t", f"(select {d}s from {source} where {d}id = {o}id)"),
            ("i8", f"(select sum({d}id) from {source} where {d}k > {o}k)"), ("i4", f"(select {d}id from {source} order by {d}id limit 1)"),
            ("i4", f"(select {d}id from {source})"),
        ]
        kind, template = rng.choice(templates)
        node = Node(kind, template)
        if kind == "b" and rng.random() < 0.6:
            where = Node("b", rng.choice(["{b}", "{b}", "not {b}", "{b} or k = 1", "{b} and k = 1", "{b} is null"]), [node])
            return Statement(items=["id"], **{"from": one.name}, where=where, order="id")
        return Statement(items=["id", node], **{"from": one.name}, order="id")

    def joined(self):
        rng = self.rng
        one, other = rng.choice(self.tables), rng.choice(self.tables)
        word = rng.choice(["join", "left join", "right join", "full join"])
        on = rng.choice(["a.k = b.k", "a.id = b.id and a.s = b.s", "a.s = b.s", "a.id < b.k"] if word != "full join" else ["a.k = b.k", "a.id = b.id"])
        items = [Node("i4", "a.id"), Node("i4", "b.id"), Node("t", "a.s || b.s")]
        if rng.random() < 0.3:
            return Statement(items=["k", "a.id", "b.id"], **{"from": f"{one.name} a {word} {other.name} b using (k)"}, order="1, 2, 3")
        return Statement(items=items, **{"from": f"{one.name} a {word} {other.name} b on {on}"}, order="1, 2, 3")


class Answer:
    """What a server answers: rows with names and types of their columns, or an error."""

    def __init__(self, connection, sql):
        result = connection.pgconn.exec_(sql.encode())
        self.code = self.message = None
        self.names, self.types, self.rows = [], [], []
        if result.status == pq.ExecStatus.TUPLES_OK:
            columns = range(result.nfields)
            self.names = [result.fname(column).decode() for column in columns]
            self.types = [result.ftype(column) for column in columns]
            self.rows = [tuple(None if (value := result.get_value(row, column)) is None else value.decode() for column in columns) for row in range(result.ntuples)]
        elif result.status == pq.ExecStatus.FATAL_ERROR:
            self.code = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"?????").decode()
            self.message = (result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or result.error_message or b"").decode()
        if connection.pgconn.status != pq.ConnStatus.OK:
            raise SystemExit(f"the connection is lost after: {sql}")


FLOATS, NUMERIC = (700, 701), 1700
INTERNAL = re.compile(r"Internal error|bug report|DataFusion|Arrow|datafusion|Decimal128|Utf8|Int64|Time64|Duration\(|Float64|LogicalPlan|ScalarFunction|panicked")


def alike(one, other, kind):
    """Whether two cells have the same meaning."""
    if one is None or other is None or one == other:
        return one is other or one == other
    if kind == NUMERIC:
        # A column here has one number of digits behind the point, in PostgreSQL each value has its own.
        cut = lambda cell: cell.rstrip("0").rstrip(".") if "." in cell else cell
        return cut(one) == cut(other)
    if kind in FLOATS:
        try:
            return math.isclose(float(one), float(other), rel_tol=1e-12 if kind == 701 else 1e-5)
        except ValueError:
            return False
    return False


def outcome(expected, found, is_ordered):
    """What differs: None, or a word and what was found."""
    if expected.code or found.code:
        if found.message and INTERNAL.search(found.message):
            return "internals", f"{found.code} {found.message[:150]}"
        if expected.code == found.code:
            return None
        if not found.code:
            return "accepts", f"{expected.code} {expected.message[:90]}"
        return ("code" if expected.code else "refuses"), f"{expected.code or 'rows'} -> {found.code} {found.message[:150]}"
    if len(expected.types) != len(found.types):
        return "columns", f"{len(expected.types)} -> {len(found.types)}"
    if expected.names != found.names:
        return "names", f"{expected.names} -> {found.names}"
    one, other = list(expected.rows), list(found.rows)
    if not is_ordered:
        key = lambda row: tuple("" if cell is None else cell for cell in row)
        one, other = sorted(one, key=key), sorted(other, key=key)
    same = len(one) == len(other) and all(alike(a, b, kind) for x, y in zip(one, other) for a, b, kind in zip(x, y, expected.types))
    if not same:
        pairs = [(x, y) for x, y in zip(one, other) if not all(alike(a, b, kind) for a, b, kind in zip(x, y, expected.types))]
        return "value", f"{len(one)} rows -> {len(other)}: " + (f"{pairs[0][0]} -> {pairs[0][1]}" if pairs else "")
    if expected.types != found.types:
        # varchar(n) and char(n) of an expression are text here.
        return "type", f"{expected.types} -> {found.types}"
    return None


class Known:
    """The table of known differences: `| name | outcome | pattern | why |`."""

    def __init__(self, file):
        self.rows = []
        for line in pathlib.Path(file).read_text().splitlines() if file else []:
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
            if len(cells) >= 4 and cells[2].startswith("`"):
                self.rows.append((cells[0], cells[1].split(), re.compile(cells[2].strip("`").replace("\\|", "|"), re.I)))
        self.counts = collections.Counter()

    def name(self, word, sql, detail):
        for name, words, pattern in self.rows:
            if word in words and pattern.search(f"{sql} -- {detail}"):
                return name
        return None


class Run:
    def __init__(self, arguments):
        self.arguments, self.known = arguments, Known(arguments.known)
        self.postgres, self.other = (psycopg.connect(dsn, autocommit=True) for dsn in (arguments.postgres, arguments.other))
        self.postgres.execute("set time zone 'UTC'")
        self.groups, self.passed, self.failed, self.tried = {}, 0, 0, 0
        # How many statements with a difference of the same outcome and text were made smaller.
        self.shrunk_for = collections.Counter()

    def compare(self, statement):
        sql = statement.sql()
        self.tried += 1
        return outcome(Answer(self.postgres, sql), Answer(self.other, sql), statement.is_ordered)

    def shrunk(self, statement, found):
        """The smallest statement that still differs in the same way, and its difference."""
        detail_code = lambda pair: pair[0] + (re.sub(r"'[^']*'|\"[^\"]*\"|\d+", "", pair[1]) if pair[0] in ("refuses", "code", "internals", "accepts") else "")
        budget, again = 150, True
        while again and budget > 0:
            again = False
            for other in statement.smaller():
                budget -= 1
                if budget <= 0:
                    break
                now = self.compare(other)
                if now and detail_code(now)[:60] == detail_code(found)[:60]:
                    statement, found, again = other, now, True
                    break
        return statement, found

    def check(self, statement):
        found = self.compare(statement)
        if not found:
            self.passed += 1
            return
        by_text = found[0] in ("refuses", "code", "accepts", "internals")
        name = self.known.name(found[0], statement.sql(), found[1]) if by_text else None
        cause = self.cause(statement, found) if by_text else ""
        if not name and (not by_text or self.shrunk_for[cause] < 2):
            self.shrunk_for[cause] += 1
            statement, found = self.shrunk(statement, found)
            name = self.known.name(found[0], statement.sql(), found[1])
        if name:
            self.known.counts[name] += 1
            self.passed += 1
            return
        self.failed += 1
        cause = self.cause(statement, found)
        self.groups.setdefault(cause, []).append((statement.sql(), found))
        if self.arguments.all:
            print(f"{found[0]:9} {statement.sql()}\n          {found[1]}", flush=True)

    @staticmethod
    def cause(statement, found):
        word, detail = found
        if word in ("refuses", "code", "internals", "accepts"):
            shape = re.sub(r"'[^']*'|\"[^\"]*\"|-?\d+(\.\d+)?", "_", detail.split(" -> ")[-1][5:] if word != "accepts" else detail[5:])
            return f"{word} {detail[:14]} {shape[:70]}"
        nodes = [item for item in statement.parts.get("items", []) if isinstance(item, Node)]
        if isinstance(statement.parts.get("where"), Node):
            nodes.append(statement.parts["where"])
        largest = max(nodes, key=Node.size, default=None)
        return f"{word} {largest.template if largest else statement.sql()[:60]}"

    def schema(self, seed):
        rng = random.Random(seed)
        tables = [Table(f"t{number}", rng) for number in range(3)]
        for table in tables:
            for sql in [f"drop table if exists {table.name}", *table.statements]:
                one, other = Answer(self.postgres, sql), Answer(self.other, sql)
                if one.code or other.code:
                    raise SystemExit(f"{sql}\n  PostgreSQL {one.code} {one.message}, the other {other.code} {other.message}")
        return Generator(rng, tables)

    def go(self):
        arguments = self.arguments
        if arguments.tries:
            for line in pathlib.Path(arguments.tries).read_text().splitlines():
                if line.strip() and not line.startswith("#"):
                    self.check(Statement(text=line))
            return
        end = time.monotonic() + arguments.hours * 3600 if arguments.hours else None
        done, round_ = 0, 0
        while (time.monotonic() < end) if end else done < arguments.statements:
            generator = self.schema(f"{arguments.seed}.{round_}")
            round_ += 1
            for _ in range(250 if end else min(250, arguments.statements - done)):
                self.check(generator.statement())
                done += 1

    def report(self):
        for cause, cases in sorted(self.groups.items(), key=lambda item: -len(item[1]))[: self.arguments.show]:
            sql, (word, detail) = min(cases, key=lambda case: len(case[0]))
            print(f"{len(cases):5}  {cause}\n       {sql}\n       {word}: {detail}")
        if self.known.counts:
            print("known differences: " + ", ".join(f"{name} {count}" for name, count in self.known.counts.most_common()))
        print(f"seed {self.arguments.seed}, {self.tried} comparisons, {len(self.groups)} causes that are not known")
        print(f"{self.passed} passed, {self.failed} failed")
        return 1 if self.failed else 0


def main():
    parser = argparse.ArgumentParser(description="Compares an SQL server with PostgreSQL.")
    parser.add_argument("postgres")
    parser.add_argument("other")
    parser.add_argument("--seed", default=str(random.SystemRandom().randrange(1 << 32)))
    parser.add_argument("--statements", type=int, default=2500)
    parser.add_argument("--hours", type=float, default=0.0)
    parser.add_argument("--known")
    parser.add_argument("--show", type=int, default=40)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--try", dest="tries")
    run = Run(parser.parse_args())
    run.go()
    return run.report()


if __name__ == "__main__":
    sys.exit(main())
