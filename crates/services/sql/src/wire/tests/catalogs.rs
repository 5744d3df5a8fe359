//! Queries that clients send to the catalogs by themselves, in their own words.

use super::client::Client;
use super::server;

async fn rows(client: &mut Client, sql: &str) -> Vec<String> {
    let outcome = client.query(sql).await;
    if let Some(code) = outcome.errors().first() {
        return vec![format!("error {code}")];
    }
    let cell = |cell: Option<String>| cell.unwrap_or_else(|| "NULL".into());
    outcome.rows().into_iter().map(|row| row.into_iter().map(cell).collect::<Vec<_>>().join("|")).collect()
}

const PAIRS: &str =
    "create table pairs (b int, a int, note text default 'none', constraint pairs_key primary key (a, b))";

#[tokio::test]
async fn names_lead_to_numbers_and_back_or_to_nothing_or_an_error() {
    let server = server(|_| {}).await;
    let mut client = Client::trusted(&server).await;
    for sql in
        [PAIRS, "create table \"Odd.Name\" (x int primary key)", "create schema s", "create table s.pairs (x int)"]
    {
        assert!(client.query(sql).await.errors().is_empty(), "{sql}");
    }
    for (sql, expected) in [
        ("select to_regtype('hstore'), to_regtype('int4'), to_regtype('character varying(20)')", "NULL|23|1043"),
        ("select to_regclass('nowhere') is null, to_regclass('pairs') = to_regclass('public.pairs')", "t|t"),
        ("select to_regclass('pairs') = to_regclass('s.pairs'), to_regclass('PAIRS') is null", "f|f"),
        ("select to_regclass('\"Odd.Name\"') is null, to_regclass('Odd.Name') is null", "f|t"),
        ("select to_regnamespace('public'), to_regnamespace('nowhere'), to_regrole('ann')", "2200|NULL|16384"),
        ("select 'int4'::regtype::oid, 'pairs'::regclass::oid = to_regclass('pairs')", "23|t"),
        ("select 'pg_class'::regclass::oid, '1259'::regclass::oid", "1259|1259"),
        (
            "select 'pairs'::regclass::text, 's.pairs'::regclass::text, '\"Odd.Name\"'::regclass::text",
            "pairs|s.pairs|\"Odd.Name\"",
        ),
        (
            "select 'pairs_key'::regclass::text, 'int'::regtype::text, '_int4'::regtype::text",
            "pairs_key|integer|integer[]",
        ),
        ("select relname, oid::regclass::text from pg_class where oid = 's.pairs'::regclass", "pairs|s.pairs"),
        ("select 2200::regnamespace::text, 23::regtype::text", "public|integer"),
        ("select count(*) from pg_type where typname = 'int4' and typinput = 'pg_catalog.int4in'::regproc", "1"),
        (
            "select current_setting('server_version_num'), current_setting('default_table_access_method', true)",
            "150000|heap",
        ),
        ("select current_setting('search_path')", "public"),
        ("select 'nowhere'::regclass", "error 42P01"),
        ("select 'nothing'::regtype", "error 42704"),
        ("select 'nowhere'::regnamespace", "error 3F000"),
    ] {
        assert_eq!(rows(&mut client, sql).await, [expected], "{sql}");
    }
    // psycopg's query, for each type that it supports.
    let psycopg = "SELECT typname AS name, oid, typarray AS array_oid, oid::regtype::text AS regtype, typdelim AS delimiter \
                   FROM pg_type t WHERE t.oid = to_regtype('NAME') ORDER BY t.oid";
    assert_eq!(rows(&mut client, &psycopg.replace("NAME", "hstore")).await, [""; 0]);
    assert_eq!(rows(&mut client, &psycopg.replace("NAME", "int4")).await, ["int4|23|1007|integer|,"]);
    server.stop().await;
}

#[tokio::test]
async fn keys_are_told_to_jdbc_and_to_sqlalchemy_in_their_order() {
    let server = server(|_| {}).await;
    let mut client = Client::trusted(&server).await;
    assert!(client.query(PAIRS).await.errors().is_empty());
    let jdbc = "SELECT result.COLUMN_NAME, result.KEY_SEQ, result.PK_NAME FROM (SELECT n.nspname AS TABLE_SCHEM, ct.relname AS \
                TABLE_NAME, a.attname AS COLUMN_NAME, (information_schema._pg_expandarray(i.indkey)).n AS KEY_SEQ, ci.relname AS \
                PK_NAME, information_schema._pg_expandarray(i.indkey) AS KEYS, a.attnum AS A_ATTNUM FROM pg_catalog.pg_class ct JOIN \
                pg_catalog.pg_attribute a ON (ct.oid = a.attrelid) JOIN pg_catalog.pg_namespace n ON (ct.relnamespace = n.oid) JOIN \
                pg_catalog.pg_index i ON ( a.attrelid = i.indrelid) JOIN pg_catalog.pg_class ci ON (ci.oid = i.indexrelid) WHERE true \
                AND ct.relname = 'pairs' AND i.indisprimary ) result where result.A_ATTNUM = (result.KEYS).x ORDER BY \
                result.table_name, result.pk_name, result.key_seq";
    assert_eq!(rows(&mut client, jdbc).await, ["a|1|pairs_key", "b|2|pairs_key"]);
    let sqlalchemy = "SELECT attr.conname, array_agg(CAST(attr.attname AS TEXT) ORDER BY attr.ord) AS cols FROM (SELECT con.conname AS \
                      conname, con.ord AS ord, pg_catalog.pg_attribute.attname AS attname FROM pg_catalog.pg_attribute JOIN (SELECT \
                      pg_catalog.pg_constraint.conrelid AS conrelid, pg_catalog.pg_constraint.conname AS conname, \
                      unnest(pg_catalog.pg_index.indkey) AS attnum, generate_subscripts(pg_catalog.pg_index.indkey, 1) AS ord FROM \
                      pg_catalog.pg_constraint JOIN pg_catalog.pg_index ON pg_catalog.pg_constraint.conindid = \
                      pg_catalog.pg_index.indexrelid LEFT OUTER JOIN pg_catalog.pg_description ON pg_catalog.pg_description.objoid = \
                      pg_catalog.pg_constraint.oid AND pg_catalog.pg_description.classoid = CAST('pg_catalog.pg_constraint' AS \
                      REGCLASS) WHERE pg_catalog.pg_constraint.contype = 'p') AS con ON pg_catalog.pg_attribute.attnum = con.attnum AND \
                      pg_catalog.pg_attribute.attrelid = con.conrelid) AS attr GROUP BY attr.conname";
    let found = rows(&mut client, sqlalchemy).await;
    assert!(found.contains(&"pairs_key|{a,b}".to_owned()), "{found:?}");
    let index = "select pg_get_indexdef(indexrelid), pg_get_indexdef(indexrelid, 1, true), pg_get_indexdef(indexrelid, 2, true) from \
                 pg_index where indrelid = 'pairs'::regclass";
    assert_eq!(
        rows(&mut client, index).await,
        ["CREATE UNIQUE INDEX pairs_key ON public.pairs USING btree (a, b)|a|b"]
    );
    server.stop().await;
}

#[tokio::test]
async fn indexes_and_unique_constraints_are_told_as_psql_asks_for_them() {
    let server = server(|_| {}).await;
    let mut client = Client::trusted(&server).await;
    for sql in [
        "create table drugs (id int primary key, code text unique, \"Form\" text)",
        "create index forms on drugs (\"Form\", code)",
        "create unique index pair on drugs (id desc, \"Form\" nulls first)",
    ] {
        assert_eq!(client.query(sql).await.errors(), [""; 0], "{sql}");
    }
    let of_table = "SELECT c2.relname, i.indisprimary, i.indisunique, i.indisclustered, i.indisvalid, \
                    pg_catalog.pg_get_indexdef(i.indexrelid, 0, true), pg_catalog.pg_get_constraintdef(con.oid, true), contype, \
                    condeferrable, condeferred, i.indisreplident, c2.reltablespace FROM pg_catalog.pg_class c, pg_catalog.pg_class c2, \
                    pg_catalog.pg_index i LEFT JOIN pg_catalog.pg_constraint con ON (conrelid = i.indrelid AND conindid = \
                    i.indexrelid AND contype IN ('p','u','x')) WHERE c.oid = 'drugs'::regclass AND c.oid = i.indrelid AND i.indexrelid = \
                    c2.oid ORDER BY i.indisprimary DESC, c2.relname";
    assert_eq!(
        rows(&mut client, of_table).await,
        [
            "drugs_pkey|t|t|f|t|CREATE UNIQUE INDEX drugs_pkey ON public.drugs USING btree (id)|PRIMARY KEY (id)|p|f|f|f|0",
            "drugs_code_key|f|t|f|t|CREATE UNIQUE INDEX drugs_code_key ON public.drugs USING btree (code)|UNIQUE (code)|u|f|f|f|0",
            "forms|f|f|f|t|CREATE INDEX forms ON public.drugs USING btree (\"Form\", code)|NULL|NULL|NULL|NULL|f|0",
            "pair|f|t|f|t|CREATE UNIQUE INDEX pair ON public.drugs USING btree (id DESC, \"Form\" NULLS FIRST)|NULL|NULL|NULL|NULL|f|0",
        ]
    );
    for (sql, expected) in [
        (
            "select c.relname, c.relkind, c2.relname from pg_class c left join pg_index i on i.indexrelid = c.oid left join \
             pg_class c2 on i.indrelid = c2.oid where c.relkind in ('i', 'I', '') order by 1",
            vec!["drugs_code_key|i|drugs", "drugs_pkey|i|drugs", "forms|i|drugs", "pair|i|drugs"],
        ),
        (
            "select indexname from pg_indexes where tablename = 'drugs' and indexdef not like '% UNIQUE %'",
            vec!["forms"],
        ),
        ("select indoption from pg_index where indexrelid = 'pair'::regclass", vec!["{3,2}"]),
        ("select pg_get_indexdef('pair'::regclass, 1, true)", vec!["id"]),
        ("select 'forms'::regclass::text, relhasindex from pg_class where relname = 'drugs'", vec!["forms|t"]),
        (
            "select a.attname, a.attnum from pg_attribute a where a.attrelid = 'forms'::regclass order by attnum",
            vec!["Form|1", "code|2"],
        ),
    ] {
        assert_eq!(rows(&mut client, sql).await, expected, "{sql}");
    }
    server.stop().await;
}

#[tokio::test]
async fn foreign_keys_are_told_as_psql_asks_for_them() {
    let server = server(|_| {}).await;
    let mut client = Client::trusted(&server).await;
    for sql in [
        "create table wards (id int primary key, code text unique)",
        "create table beds (ward int references wards on delete cascade, \"Code\" text references wards (code))",
    ] {
        assert_eq!(client.query(sql).await.errors(), [""; 0], "{sql}");
    }
    for (sql, expected) in [
        (
            "SELECT true as sametable, conname, pg_catalog.pg_get_constraintdef(r.oid, true) as condef, \
             conrelid::pg_catalog.regclass AS ontable FROM pg_catalog.pg_constraint r WHERE r.conrelid = 'beds'::regclass AND \
             r.contype = 'f' AND conparentid = 0 ORDER BY conname",
            vec![
                "t|beds_Code_fkey|FOREIGN KEY (\"Code\") REFERENCES wards(code)|beds",
                "t|beds_ward_fkey|FOREIGN KEY (ward) REFERENCES wards(id) ON DELETE CASCADE|beds",
            ],
        ),
        (
            "SELECT conname, conrelid::pg_catalog.regclass AS ontable, pg_catalog.pg_get_constraintdef(oid, true) AS condef FROM \
             pg_catalog.pg_constraint c WHERE confrelid IN (SELECT pg_catalog.pg_partition_ancestors('wards') UNION ALL VALUES \
             ('wards'::pg_catalog.regclass)) AND contype = 'f' AND conparentid = 0 ORDER BY conname",
            vec![
                "beds_Code_fkey|beds|FOREIGN KEY (\"Code\") REFERENCES wards(code)",
                "beds_ward_fkey|beds|FOREIGN KEY (ward) REFERENCES wards(id) ON DELETE CASCADE",
            ],
        ),
        (
            "select relname, relhastriggers from pg_class where relkind = 'r' and relname in ('beds', 'wards') order by 1",
            vec!["beds|t", "wards|t"],
        ),
        (
            "select conkey, confkey, confupdtype, confdeltype, confmatchtype from pg_constraint where conname = 'beds_ward_fkey'",
            vec!["{1}|{1}|a|c|s"],
        ),
    ] {
        assert_eq!(rows(&mut client, sql).await, expected, "{sql}");
    }
    server.stop().await;
}

#[tokio::test]
async fn defaults_of_columns_are_told_also_in_subqueries() {
    let server = server(|_| {}).await;
    let mut client = Client::trusted(&server).await;
    assert!(client.query(PAIRS).await.errors().is_empty());
    let psql = "SELECT a.attname, (SELECT pg_catalog.pg_get_expr(d.adbin, d.adrelid, true) FROM pg_catalog.pg_attrdef d WHERE d.adrelid = \
                a.attrelid AND d.adnum = a.attnum AND a.atthasdef), a.attnotnull FROM pg_catalog.pg_attribute a WHERE a.attrelid = \
                'pairs'::regclass AND a.attnum > 0 ORDER BY a.attnum";
    assert_eq!(rows(&mut client, psql).await, ["b|NULL|t", "a|NULL|t", "note|'none'|f"]);
    let sqlalchemy = "SELECT a.attname, CASE WHEN a.atthasdef THEN (SELECT pg_get_expr(pg_attrdef.adbin, pg_attrdef.adrelid) AS x FROM \
                      pg_attrdef WHERE a.atthasdef AND pg_attrdef.adrelid = a.attrelid AND pg_attrdef.adnum = a.attnum) ELSE NULL END, \
                      CASE WHEN (a.attidentity != '') THEN (SELECT json_build_object('start', pg_sequence.seqstart) FROM pg_sequence \
                      WHERE pg_sequence.seqrelid = a.attrelid) ELSE NULL END FROM pg_attribute a WHERE a.attrelid = 'pairs'::regclass \
                      AND a.attname = 'note'";
    assert_eq!(rows(&mut client, sqlalchemy).await, ["note|'none'|NULL"]);
    server.stop().await;
}

#[tokio::test]
async fn a_session_that_asked_the_catalogs_casts_and_counts_as_before() {
    let server = server(|_| {}).await;
    let mut client = Client::trusted(&server).await;
    let casts = "select '3000-01-01'::timestamp, 1e30::float8::numeric, 0.25::numeric";
    let series = "select * from generate_series(timestamp '2024-01-01', timestamp '2024-01-02', interval '1 day')";
    for asked in [false, true] {
        assert_eq!(
            rows(&mut client, casts).await,
            ["3000-01-01 00:00:00|1000000000000000000000000000000|0.25"],
            "{asked}"
        );
        assert_eq!(rows(&mut client, series).await, ["2024-01-01 00:00:00", "2024-01-02 00:00:00"], "{asked}");
        assert_eq!(rows(&mut client, "select count(*) from pg_class where relname = 'nothing'").await, ["0"]);
    }
    server.stop().await;
}

#[tokio::test]
async fn prepared_statements_are_forgotten_by_name_and_all_together() {
    let server = server(|_| {}).await;
    let mut client = Client::trusted(&server).await;
    for forgotten in ["deallocate one", "deallocate prepare one", "deallocate all", "DEALLOCATE ALL", "discard all"] {
        client.parse("one", "select 1", &[]).await;
        client.message(b'S', b"").await;
        assert_eq!(client.kinds(2).await, ['1', 'Z'], "{forgotten}");
        assert_eq!(client.query(forgotten).await.errors(), [""; 0], "{forgotten}");
        client.message(b'D', b"Sone\0").await;
        client.message(b'S', b"").await;
        assert_eq!(client.reply().await.error().0, "26000", "{forgotten}");
        assert_eq!(client.kinds(1).await, ['Z']);
    }
    // What asyncpg's pool sends on a connection that is returned to it.
    let reset = "SELECT pg_advisory_unlock_all();\nCLOSE ALL;\nUNLISTEN *;\nRESET ALL;";
    assert_eq!(client.query(reset).await.errors(), [""; 0]);
    assert_eq!(client.query("close one").await.errors(), ["34000"]);
    assert_eq!(client.query("begin").await.errors(), [""; 0]);
    assert_eq!(client.query("deallocate one").await.errors(), ["26000"]);
    assert_eq!(client.query("deallocate all").await.errors(), ["25P02"]);
    server.stop().await;
}
