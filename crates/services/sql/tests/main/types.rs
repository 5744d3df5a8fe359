//! Types of columns: stored in either form, as keys, in defaults and changes of tables.

use datafusion::scalar::ScalarValue;
use store::{Options, Store};

use crate::support::{check, copy, run, run_with, session, with_row_groups_of};

fn store() -> Store {
    Store::in_memory(Options::default()).expect("memory is enough")
}

#[tokio::test]
async fn a_uuid_is_a_key_in_either_form() {
    let engine = with_row_groups_of(store(), 100);
    let mut s = engine.session("u");
    run(&mut s, "CREATE TABLE t (id uuid PRIMARY KEY, n int, o uuid)").await;
    let some = "CASE WHEN i % 3 > 0 THEN lpad(to_hex(i), 32, '0')::uuid END";
    let fill = format!("INSERT INTO t SELECT md5(i::text)::uuid, i, {some} FROM generate_series(1, 350) AS g(i)");
    check(&mut s, &[(&fill, "INSERT 0 350")]).await;
    let found = [
        ("SELECT n FROM t WHERE id = 'c4ca4238-a0b9-2382-0dcc-509a6f75849b'", "1"),
        ("SELECT n FROM t WHERE id = '{C4CA4238A0B923820DCC509A6F75849B}' AND n + 0 = 1", "1"),
        ("SELECT n FROM t WHERE id = md5('350')::uuid", "350"),
        ("SELECT count(*) FROM t WHERE id < '80000000-0000-0000-0000-000000000000'", "179"),
        ("SELECT n FROM t ORDER BY id LIMIT 3", "168\n236\n348"),
        ("SELECT n FROM t WHERE o = '00000000-0000-0000-0000-00000000012b'", "299"),
        (
            "SELECT n FROM t WHERE o BETWEEN '00000000-0000-0000-0000-000000000004' AND '0000000000000000000000000000000a' ORDER BY n",
            "4\n5\n7\n8\n10",
        ),
        ("SELECT count(*), count(o), count(DISTINCT o) FROM t", "350|234|234"),
        ("SELECT count(*) FROM t AS a JOIN t AS b ON a.id = b.id AND b.n < 300", "299"),
        ("INSERT INTO t VALUES ('c4ca4238a0b923820dcc509a6f75849b', 0)", "error 23505"),
        ("INSERT INTO t VALUES (md5('350')::uuid, 0) ON CONFLICT DO NOTHING", "INSERT 0 0"),
    ];
    check(&mut s, &found).await;
    let uuid =
        ScalarValue::FixedSizeBinary(16, Some(0xc4ca_4238_a0b9_2382_0dcc_509a_6f75_849b_u128.to_be_bytes().into()));
    assert_eq!(run_with(&mut s, "SELECT n FROM t WHERE id = $1", &[uuid]).await, "1");
    check(
        &mut s,
        &[
            ("UPDATE t SET o = '00000000-0000-0000-0000-0000000000ff' WHERE id = md5('1')::uuid", "UPDATE 1"),
            ("UPDATE t SET o = '00000000-0000-0000-0000-000000000001' WHERE id = 'c4ca4238-a0b9-2382-0dcc-509a6f75849b'", "UPDATE 1"),
            ("SELECT o::text FROM t WHERE n = 1", "00000000-0000-0000-0000-000000000001"),
        ],
    )
    .await;
    engine.move_rows(8).expect("moves");
    check(&mut s, &found).await;
    check(&mut s, &[("DELETE FROM t WHERE o IS NULL OR id > '80000000-0000-0000-0000-000000000000'", "DELETE 237")])
        .await;
    engine.compact().expect("compacts");
    check(&mut s, &[("SELECT count(*) FROM t", "113")]).await;
}

#[tokio::test]
async fn uuids_are_defaults_and_texts_become_uuids() {
    let mut s = session();
    let one = "11111111-1111-1111-1111-111111111111";
    check(
        &mut s,
        &[
            ("CREATE TABLE d (id uuid DEFAULT gen_random_uuid() PRIMARY KEY, n int)", "CREATE TABLE"),
            ("INSERT INTO d (n) SELECT i FROM generate_series(1, 50) AS g(i)", "INSERT 0 50"),
            ("INSERT INTO d (n) VALUES (51), (52)", "INSERT 0 2"),
            ("SELECT count(DISTINCT id), count(DISTINCT substr(id::text, 15, 1)) FROM d", "52|1"),
            (&format!("ALTER TABLE d ADD COLUMN c uuid DEFAULT '{one}'"), "ALTER TABLE"),
            (&format!("SELECT count(*) FROM d WHERE c = '{one}'"), "52"),
            ("ALTER TABLE d ADD COLUMN e uuid DEFAULT 'x'", "error 22P02"),
            ("CREATE TABLE x (id text, c uuid CHECK (c > '00000000-0000-0000-0000-000000000001'))", "CREATE TABLE"),
            (&format!("INSERT INTO x VALUES ('{one}', '{one}')"), "INSERT 0 1"),
            ("INSERT INTO x VALUES ('', '00000000-0000-0000-0000-000000000001')", "error 23514"),
            ("ALTER TABLE x ALTER COLUMN id TYPE uuid", "error 42804"),
            ("ALTER TABLE x ALTER COLUMN id TYPE uuid USING id::uuid", "ALTER TABLE"),
            (&format!("SELECT id::text FROM x WHERE id = '{one}'"), one),
            ("CREATE TABLE y AS SELECT id, c FROM x", "SELECT 1"),
            (&format!("SELECT count(*) FROM y WHERE id = c AND id IN ('{one}')"), "1"),
        ],
    )
    .await;
}

#[tokio::test]
async fn times_are_rounded_to_the_digits_of_their_column_however_they_come() {
    let engine = with_row_groups_of(store(), 100);
    let mut s = engine.session("u");
    let second = "'2024-01-01 00:00:00'::timestamp + i * interval '1.4 seconds'";
    check(
        &mut s,
        &[
            ("CREATE TABLE t (id int PRIMARY KEY, at timestamp(0), z timestamptz(1), of time(0) DEFAULT '12:00:00.5')", "CREATE TABLE"),
            (&format!("INSERT INTO t SELECT i, {second}, {second} FROM generate_series(1, 250) AS g(i)"), "INSERT 0 250"),
            ("SELECT count(*) FROM t WHERE extract(microseconds FROM at) % 1000000 <> 0 OR of::text <> '12:00:01'", "0"),
            ("SELECT at::text, z::text FROM t WHERE id = 4", "2024-01-01 00:00:06|2024-01-01 00:00:05.6+00"),
            ("UPDATE t SET at = '2024-01-01 10:00:00.5' WHERE id = 5", "UPDATE 1"),
            ("UPDATE t SET at = z WHERE id = 4", "UPDATE 1"),
            ("SELECT id, at::text FROM t WHERE id IN (4, 5) ORDER BY id", "4|2024-01-01 00:00:06\n5|2024-01-01 10:00:01"),
            ("ALTER TABLE t ALTER COLUMN z TYPE timestamptz(0)", "ALTER TABLE"),
            ("SELECT z::text FROM t WHERE id = 4", "2024-01-01 00:00:06+00"),
            ("ALTER TABLE t ADD COLUMN w timestamp(1) DEFAULT '2024-01-01 01:01:01.55'", "ALTER TABLE"),
            ("SELECT w::text FROM t WHERE id = 4", "2024-01-01 01:01:01.6"),
            ("INSERT INTO t (id, of) VALUES (1000, '23:59:59.5') ON CONFLICT (id) DO UPDATE SET of = excluded.of", "INSERT 0 1"),
            ("INSERT INTO t (id, of) VALUES (1000, '01:00:00.5') ON CONFLICT (id) DO UPDATE SET of = excluded.of RETURNING of::text", "01:00:01"),
        ],
    )
    .await;
    let time = datafusion::arrow::array::Time64MicrosecondArray::from(vec![3_600_500_000]);
    let id = datafusion::arrow::array::Int32Array::from(vec![2000]);
    let copied =
        copy(&mut s, "COPY t (id, of) FROM STDIN", vec![std::sync::Arc::new(id), std::sync::Arc::new(time)]).await;
    assert_eq!(copied.expect("it is copied"), 1);
    check(&mut s, &[("SELECT of::text FROM t WHERE id = 2000", "01:00:01")]).await;
}

#[tokio::test]
async fn documents_are_the_same_in_either_form() {
    let engine = with_row_groups_of(store(), 100);
    let mut s = engine.session("u");
    run(&mut s, "CREATE TABLE t (id int PRIMARY KEY, doc jsonb DEFAULT '{\"new\": true}')").await;
    let some =
        "CASE WHEN i % 7 > 0 THEN jsonb_build_object('id', i, 'tags', to_jsonb(string_to_array('a,b' || i, ','))) END";
    let fill = format!("INSERT INTO t SELECT i, {some} FROM generate_series(1, 350) AS g(i)");
    check(&mut s, &[(&fill, "INSERT 0 350")]).await;
    let found = [
        ("SELECT doc::text FROM t WHERE id = 1", r#"{"id": 1, "tags": ["a", "b1"]}"#),
        ("SELECT count(*), count(doc), count(DISTINCT doc) FROM t", "350|300|300"),
        ("SELECT id FROM t WHERE doc @> '{\"tags\": [\"b300\"]}'", "300"),
        ("SELECT id FROM t WHERE doc = '{\"tags\": [\"a\", \"b299\"], \"id\": 299.0}'", "299"),
        ("SELECT id FROM t ORDER BY doc DESC NULLS LAST LIMIT 2", "349\n348"),
        ("SELECT sum((doc ->> 'id')::int) FROM t WHERE doc -> 'id' > '340'", "2762"),
        ("SELECT id FROM t WHERE doc < '{\"id\": 3, \"tags\": []}' ORDER BY id", "1\n2"),
    ];
    check(&mut s, &found).await;
    engine.move_rows(8).expect("moves");
    check(&mut s, &found).await;
    check(
        &mut s,
        &[
            ("UPDATE t SET doc = jsonb_set(doc, '{id}', '0') - 'tags' WHERE id IN (5, 305)", "UPDATE 2"),
            ("SELECT id, doc::text FROM t WHERE doc -> 'id' = '0' ORDER BY id", "5|{\"id\": 0}\n305|{\"id\": 0}"),
            ("INSERT INTO t (id) VALUES (1000)", "INSERT 0 1"),
            ("SELECT doc::text FROM t WHERE id = 1000", r#"{"new": true}"#),
            ("UPDATE t SET doc = '{bad' WHERE id = 1", "error 22P02"),
            ("DELETE FROM t WHERE doc ? 'tags'", "DELETE 298"),
            ("ALTER TABLE t ADD COLUMN e jsonb NOT NULL DEFAULT '[1,  2]'", "ALTER TABLE"),
            ("SELECT DISTINCT e::text FROM t", "[1, 2]"),
            ("CREATE TABLE k (doc jsonb PRIMARY KEY)", "error 0A000"),
            ("CREATE TABLE x AS SELECT doc, doc -> 'id' AS part FROM t", "SELECT 53"),
            ("SELECT count(*) FROM x WHERE part = '0'", "2"),
        ],
    )
    .await;
}
