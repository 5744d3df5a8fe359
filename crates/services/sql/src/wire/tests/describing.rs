//! The description of parameters and results, on which drivers rely: pgx, asyncpg and JDBC send a parameter in the
//! described type, and all of them read a result in it.

use bytes::{Buf, Bytes};

use super::client::{Client, Reply};
use super::server;

const BOOL: u32 = 16;
const INT8: u32 = 20;
const INT2: u32 = 21;
const INT4: u32 = 23;
const TEXT: u32 = 25;
const INT4_ARRAY: u32 = 1007;
const DATE: u32 = 1082;
const TIMESTAMPTZ: u32 = 1184;
const NUMERIC: u32 = 1700;
const TEXT_ARRAY: u32 = 1009;
const JSONB: u32 = 3802;
const UUID: u32 = 2950;
const UUID_ARRAY: u32 = 2951;

/// A statement, the declared types, values, and the first cells of its rows.
type Case<'a> = (&'a str, &'a [u32], &'a [&'a str], &'a [&'a str]);

/// The OIDs of the types in a ParameterDescription.
fn parameters(mut body: Bytes) -> Vec<u32> {
    let count = body.get_u16();
    (0..count).map(|_| body.get_u32()).collect()
}

/// The OIDs of the types in a RowDescription.
fn results(mut body: Bytes) -> Vec<u32> {
    let count = body.get_u16();
    let column = |_| {
        let name = body.iter().position(|byte| *byte == 0).expect("it ends");
        body.advance(name + 1 + 6);
        let kind = body.get_u32();
        body.advance(8);
        kind
    };
    (0..count).map(column).collect()
}

/// Prepares the unnamed statement and describes it.
async fn described(client: &mut Client, sql: &str, declared: &[u32]) -> (Vec<u32>, Vec<u32>) {
    client.parse("", sql, declared).await;
    client.message(b'D', b"S\0").await;
    client.message(b'S', b"").await;
    let parsed = client.reply().await;
    assert_eq!(parsed.kind, '1', "{sql}: {:?}", parsed);
    let (told, columns) = (client.reply().await, client.reply().await);
    assert_eq!(client.kinds(1).await, ['Z'], "{sql}");
    let columns = if columns.kind == 'T' { results(columns.body) } else { Vec::new() };
    (parameters(told.body), columns)
}

/// Binds values to the statement described last, runs it with results in this format, and returns the replies up to
/// ReadyForQuery.
async fn run(client: &mut Client, values: &[&str], format: u8) -> Vec<Reply> {
    let mut body = b"\0\0\0\0".to_vec();
    body.extend_from_slice(&(values.len() as u16).to_be_bytes());
    for value in values {
        body.extend_from_slice(&(value.len() as u32).to_be_bytes());
        body.extend_from_slice(value.as_bytes());
    }
    body.extend_from_slice(&[0, 1, 0, format]);
    client.message(b'B', &body).await;
    client.message(b'D', b"P\0").await;
    client.message(b'E', b"\0\0\0\0\0").await;
    client.message(b'S', b"").await;
    let mut replies = Vec::new();
    while replies.last().is_none_or(|reply: &Reply| reply.kind != 'Z') {
        replies.push(client.reply().await);
    }
    replies
}

const TABLE: &str = "create table t (id int primary key, s smallint, b bigint, x text, n numeric(10,2), d date, z timestamptz, y boolean, u uuid, j jsonb)";

#[tokio::test]
async fn a_parameter_is_described_by_its_cast_or_by_what_it_stands_beside() {
    let server = server(|_| {}).await;
    let mut client = Client::trusted(&server).await;
    assert!(client.query(TABLE).await.errors().is_empty());
    let cases: [(&str, &[u32]); 40] = [
        ("select $1::int", &[INT4]),
        ("select cast($1 as int)", &[INT4]),
        ("select $1::int + 1", &[INT4]),
        ("select $1::bigint + 1, $2::smallint", &[INT8, INT2]),
        ("select $1::int[]", &[INT4_ARRAY]),
        ("select $1::numeric + 1, $2::numeric(10,2)", &[NUMERIC, NUMERIC]),
        ("select $1::date, $2::timestamptz, $3::boolean", &[DATE, TIMESTAMPTZ, BOOL]),
        ("select $1", &[TEXT]),
        ("select $1::text, $1", &[TEXT]),
        ("select $1::int, $1::text, $1::int + 1::bigint", &[INT4]),
        ("select $2::int, $1", &[TEXT, INT4]),
        ("select 1 from t where id = $1 and s = $2 and b = $3 and x = $4", &[INT4, INT2, INT8, TEXT]),
        ("select 1 from t where n = $1 and d >= $2 and z < $3 and y = $4", &[NUMERIC, DATE, TIMESTAMPTZ, BOOL]),
        ("select 1 from t where id = $1 or b = $1", &[INT4]),
        ("select 1 from t where $1::text is null or x = $1", &[TEXT]),
        ("select 1 from t where id in ($1, $2) and b between $3 and $4", &[INT4, INT4, INT8, INT8]),
        ("select 1 from t where $1 between 1 and 2 and $2 in (3, 4)", &[INT4, INT4]),
        ("select 1 from t where id = any ($1)", &[INT4_ARRAY]),
        ("select 1 from t where id = any ($1::int[])", &[INT4_ARRAY]),
        ("select 1 from t where id <> all ($1)", &[INT4_ARRAY]),
        ("select 1 from t where x like $1", &[TEXT]),
        ("select 1 from t where $1", &[BOOL]),
        ("select 1 from t where not $1 and ($2 or y)", &[BOOL, BOOL]),
        ("select id + $1, $2 + 1 from t", &[INT4, INT4]),
        ("select coalesce($1, id), coalesce(b, $2) from t", &[INT4, INT8]),
        ("select case when $1 then id else $2 end from t", &[BOOL, INT4]),
        ("select case id when $1 then 'a' else $2 end from t", &[INT4, TEXT]),
        ("select id from t order by id limit $1 offset $2", &[INT8, INT8]),
        (
            "select id from (select * from t where b = $1) q where id = (select max(id) from t where s = $2)",
            &[INT8, INT2],
        ),
        ("insert into t (id, n) values ($1, $2)", &[INT4, NUMERIC]),
        ("insert into t (id, u) values ($1, $2)", &[INT4, UUID]),
        ("select 1 from t where u = $1 and u = any ($2) and u in ($3)", &[UUID, UUID_ARRAY, UUID]),
        ("insert into t (id, j) values ($1, $2)", &[INT4, JSONB]),
        ("select 1 from t where j = $1 and j @> $2 and $3 <@ j and j ? $4", &[JSONB, JSONB, JSONB, TEXT]),
        ("select j ->> $1, j || $2, j ?| $3, j #- $4, j - $5 from t", &[TEXT, JSONB, TEXT_ARRAY, TEXT_ARRAY, TEXT]),
        ("update t set j = jsonb_set(j, $1, $2) where j < $3", &[TEXT_ARRAY, JSONB, JSONB]),
        ("select $1::uuid from t where u > $2", &[UUID, UUID]),
        ("insert into t (id, b) values ($1::int + 1, $2) returning id + $1", &[INT4, INT8]),
        ("update t set x = x || $1, b = $2, n = n * $3 where id = $4", &[TEXT, INT8, NUMERIC, INT4]),
        ("delete from t where id = $1 and z = $2", &[INT4, TIMESTAMPTZ]),
    ];
    for (sql, expected) in cases {
        assert_eq!(described(&mut client, sql, &[]).await.0, expected, "{sql}");
    }
    // The client's declaration stays.
    let (told, columns) = described(&mut client, "select $1::int, $2", &[INT2, INT4]).await;
    assert_eq!((told, columns), (vec![INT2, INT4], vec![INT4, INT4]));
    let (told, columns) = described(&mut client, "select $1 + 1", &[INT8]).await;
    assert_eq!((told, columns), (vec![INT8], vec![INT8]));
    server.stop().await;
}

#[tokio::test]
async fn whole_numbers_beside_integers_give_integers_and_run_over_as_such() {
    let server = server(|_| {}).await;
    let mut client = Client::trusted(&server).await;
    assert!(client.query(TABLE).await.errors().is_empty());
    let cases: [(&str, &[u32]); 6] = [
        ("select $1::int + 1, 1 + $1, -$1 - 1, $1 % 2", &[INT4, INT4, INT4, INT4]),
        ("select id + 1, s * 2, 7 - id, id / 2, id & 1 from t", &[INT4, INT4, INT4, INT4, INT4]),
        ("select id + 1 + 1, (id + 1) * s, sum(id + 1) over () from t", &[INT4, INT4, INT8]),
        ("select b + 1, id + b, id + 3000000000 from t", &[INT8, INT8, INT8]),
        ("select sum(id + 1), max(id + 1), count(*) from t", &[INT8, INT4, INT8]),
        ("select n + 1, id + 1.5 from t", &[NUMERIC, NUMERIC]),
    ];
    for (sql, expected) in cases {
        assert_eq!(described(&mut client, sql, &[]).await.1, expected, "{sql}");
    }
    assert_eq!(client.query("select 2147483647::int + 1").await.errors(), ["22003"]);
    assert_eq!(client.query("select 2147483647::int + 1::bigint").await.rows(), [[Some("2147483648".to_owned())]]);
    server.stop().await;
}

#[tokio::test]
async fn results_are_of_the_types_that_were_described() {
    let server = server(|_| {}).await;
    let mut client = Client::trusted(&server).await;
    assert!(client.query(TABLE).await.errors().is_empty());
    assert!(
        client
            .query("insert into t (id, b, n, x) values (1, 7, 1.26, 'a'), (2, 8, 2.50, 'b')")
            .await
            .errors()
            .is_empty()
    );
    let cases: [Case<'_>; 22] = [
        ("select $1::int + 1", &[], &["41"], &["42"]),
        ("select $1 + 1", &[INT8], &["41"], &["42"]),
        ("select $1 + 1", &[NUMERIC], &["1.5"], &["2.5"]),
        ("select $1", &[NUMERIC], &["1.50"], &["1.50"]),
        ("select $1::numeric", &[], &["1.255"], &["1.255"]),
        ("select $1::uuid", &[], &["{A0EEBC999C0B4EF8BB6D6BB9BD380A11}"], &["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
        ("select $1::jsonb -> 'a'", &[], &["{\"a\":[1, 2.0]}"], &["[1, 2.0]"]),
        ("select $1 = '1.0'::jsonb", &[JSONB], &["1"], &["t"]),
        ("select $1", &[UUID], &["a0eebc999c0b4ef8bb6d6bb9bd380a11"], &["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"]),
        ("select id from t where n = $1", &[], &["1.26"], &["1"]),
        // The value is not rounded to the type of the other operand.
        ("select id from t where n = $1", &[], &["1.255"], &[]),
        ("select $1::int, $1::text, $1 + b from t where id = $1", &[], &["1"], &["1"]),
        ("select id from t where id = any ($1) order by id", &[], &["{2,3}"], &["2"]),
        ("select id from t where $1::text is null or id = $1", &[], &["2"], &["2"]),
        ("select id from t order by id limit $1 offset $2", &[], &["1", "1"], &["2"]),
        ("select coalesce($1, id) from t where id = 2", &[], &["9"], &["9"]),
        ("select case when $1 then id else $2 end from t where id = 1", &[], &["t", "5"], &["1"]),
        ("select case when $1 then $2 else 1 end", &[], &["t", "5"], &["5"]),
        ("select case when id = 1 then id else b end from t order by id", &[], &[], &["1", "8"]),
        ("select case when id = 1 then s else 7 end from t order by id", &[], &[], &["7"]),
        ("select x.a from (select id as a from t union all select b from t) x where x.a > $1", &[], &["7"], &["8"]),
        ("select coalesce(s, 0), nullif(id, 2) from t where id = 1", &[], &[], &["0"]),
    ];
    for (sql, declared, values, expected) in cases {
        let (_, told) = described(&mut client, sql, declared).await;
        let replies = run(&mut client, values, 1).await;
        let size = match told[0] {
            BOOL => Some(1),
            INT2 => Some(2),
            INT4 => Some(4),
            INT8 => Some(8),
            UUID => Some(16),
            _ => None,
        };
        for reply in replies.iter().filter(|reply| reply.kind == 'D') {
            let length = reply.body.slice(2..).get_i32();
            assert!(size.is_none_or(|size| [size, -1].contains(&length)), "{sql}: {told:?} of {length} bytes");
        }
        let replies = run(&mut client, values, 0).await;
        let errors: Vec<_> = replies.iter().filter(|reply| reply.kind == 'E').map(Reply::error).collect();
        assert_eq!(errors, [], "{sql}");
        let columns = replies.iter().find(|reply| reply.kind == 'T').expect("there are columns");
        assert_eq!(results(columns.body.clone()), told, "{sql}");
        let rows = replies.iter().filter(|reply| reply.kind == 'D').filter_map(|reply| {
            let mut body = reply.body.slice(2..);
            let length = usize::try_from(body.get_i32()).ok()?;
            Some(String::from_utf8(body[..length].to_vec()).expect("it is text"))
        });
        assert_eq!(rows.collect::<Vec<_>>(), expected, "{sql}");
    }
    client.parse("", "select $70000", &[]).await;
    client.message(b'S', b"").await;
    assert_eq!(client.reply().await.error().0, "42P02");
    server.stop().await;
}
