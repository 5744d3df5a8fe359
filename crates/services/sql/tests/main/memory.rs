//! The memory that statements take, as the operating system reports it: for a process of its own, which runs them one
//! by one.

use std::fmt::Write as _;
use std::process::Command;
use std::sync::Arc;

use datafusion::arrow::array::Array;
use futures::StreamExt;
use sql::engine::SpillOptions;
use sql::{Engine, EngineOptions, Session, SqlError, StatementResult};
use store::{Options, Store};

/// `memory` of the engine.
const MEMORY: usize = 64 << 20;

/// Connections that have sent a query and do not read its rows.
const READERS: usize = 40;

/// The variable that identifies the child process: the child's part is a test that does nothing without it.
const CHILD: &str = "TERRACE_TEST_MEMORY";

/// Another seed than the default, or statements from a file, one in each line: for a longer search, or for examining
/// one statement.
const SEED: &str = "TERRACE_TEST_SEED";
const FILE: &str = "TERRACE_TEST_STATEMENTS";

/// Statements that request gigabytes, or that would take them for a small result.
const GREEDY: &[&str] = &[
    "select length(repeat('x', 2000000000))",
    "select length(repeat(repeat('x', 100000), 20000))",
    "select length(lpad('x', 2000000000, 'ab'))",
    "select length(rpad(repeat('x', 1000), 1000000000, repeat('y', 1000)))",
    "select max(length(repeat('x', g::int))) from generate_series(1, 30000) s(g)",
    "select length(string_agg(repeat('x', 1000), ',')) from generate_series(1, 1000000) s(g)",
    "select string_agg(repeat('x', 100 + g::int % 2), ',') from generate_series(1, 1000000) s(g)",
    "select cardinality(array_agg(repeat('x', 1000 + g::int % 2))) from generate_series(1, 1000000) s(g)",
    "select g % 2, length(string_agg(repeat('x', 1000 + g::int % 2), ',')) from generate_series(1, 1000000) s(g) group by 1",
    "select repeat('x', 1000000 + g::int % 2) from generate_series(1, 300) s(g)",
    "select g, repeat('x', 60000) from generate_series(1, 3000) s(g)",
    "select repeat('x', 30000000)",
    "select length(replace(repeat('a', 1000000), 'a', repeat('b', 10000)))",
    "select length(regexp_replace(repeat('a', 1000000), 'a', repeat('b', 10000), 'g'))",
    "select cardinality(array_repeat(1, 2000000000))",
    "select cardinality(range(1, 2000000000))",
    "select a.g, b.g from generate_series(1, 3000000) a(g) join generate_series(1, 3000000) b(g) on a.g = b.g where a.g < 0",
    "select array_agg(g) over () from generate_series(1, 2000) s(g)",
    "select array_length(array_agg(repeat('x', 1000) || g), 1) from generate_series(1, 2000000) t(g)",
    "select max(length(a || b || a || b)) from (select repeat('x', 8000000) a, repeat('y', 8000000) || g b \
     from generate_series(1, 500) t(g)) s",
    "select max(length(x)) from (select repeat('x', 1000000) x) a, generate_series(1, 100000) b",
    "select max(length(a.x || g)) from (select repeat('x', 1000000) x) a join generate_series(1, 100000) b(g) on g % 1 = length(a.x) % 1",
    "select max(length((select repeat('x', 3000000)) || g)) from generate_series(1, 100000) t(g)",
    "select max(length(case when g % 2 = 0 then (select repeat('x', 3000000)) else 'y' end)) from generate_series(1, 100000) t(g)",
    "select count(*), max(length(x)) from (select first_value(r) over () x from (select case when g = 1 then \
     repeat('x', 1000000) else 'y' end r from generate_series(1, 100000) t(g)) s) s",
    "select max(length(coalesce(nullif(g::text, g::text), (select repeat('x', 3000000))))) from generate_series(1, 100000) t(g)",
    "select count(distinct repeat('x', 1000) || g) from generate_series(1, 300000) t(g)",
    "select count(*) from (select unnest(array_repeat(repeat('x', 100000), 300))) s",
    "select max(repeat('x', 1000) || g) over (partition by g % 3) from generate_series(1, 100000) t(g)",
    "select b.r from (select 1 k, repeat(chr(120), 1000000) r) b join generate_series(1, 20000) t(g) on b.k = g % 1 + 1",
    "with recursive r(n, s) as (select 1, 'xxxxxxxx' union all select n + 1, s || s from r where n < 40) select max(length(s)) from r",
    "select count(*) from (select string_to_array(repeat('ab,', 1000000 + g::int), ',') from generate_series(1, 100) t(g)) s",
    "select length(jsonb_object_agg('k' || g % 10, d)::text) from (select to_jsonb(repeat('x', 1000000)) d) s, generate_series(1, 3000) t(g)",
    "select length(jsonb_agg(d)::text) from (select to_jsonb(repeat('x', 1000000)) d) s, generate_series(1, 3000) t(g)",
    "select length(to_jsonb(l)::text) from (select array_agg(d) l from (select to_jsonb(repeat('x', 1000000)) d) s, generate_series(1, 3000) t(g)) l",
    "select max(jsonb_array_length(d)) from (select ('[' || repeat('[0],', 900000 + g::int) || '0]')::jsonb d from generate_series(1, 3) t(g)) s",
];

/// Windows with long values, or with one value for all rows of a partition.
const LONG_OVER_WINDOWS: &[&str] = &[
    "select length(array_to_string(array_agg(x) over (), ',')) from generate_series(1, 100000) t(x)",
    "select array_agg(x) over () from generate_series(1, 20000) t(x)",
    "select cardinality(array_agg(x) over (order by 1)) from generate_series(1, 20000) t(x)",
    "select cardinality(array_agg(x) over (range between unbounded preceding and current row)) from generate_series(1, 20000) t(x)",
    "select array_agg(x) over (order by x) from generate_series(1, 20000) t(x)",
    "select cardinality(array_agg(x) over (order by x rows between current row and unbounded following)) from generate_series(1, 20000) t(x)",
    "select cardinality(array_agg(x) over (order by x range between 10000 preceding and 10000 following)) from generate_series(1, 20000) t(x)",
    "select cardinality(array_agg(x) filter (where x % 2 = 0) over ()) from generate_series(1, 20000) t(x)",
    "select length(array_to_string(array_agg(x) over (partition by x % 2), ',')) from generate_series(1, 20000) t(x)",
    "select cardinality(array_agg(r) over (partition by x)) from (select x % 1000 x, repeat('x', 1000) r from generate_series(1, 20000) t(x)) s",
    "select length(string_agg(x::text, ',') over (order by x)) from generate_series(1, 30000) t(x)",
    "select length(string_agg(x::text, ',') filter (where x % 2 = 0) over w), cardinality(array_agg(x) over w) \
     from generate_series(1, 20000) t(x) window w as (order by x)",
    "select max(repeat('x', 1000000)) over () from generate_series(1, 10000) t(x)",
    "select max((select repeat('x', 1000000))) over () from generate_series(1, 10000) t(x)",
    "select length(max(r) filter (where x = 1) over ()) from (select x, case when x = 1 then repeat('x', 1000000) else 'y' end r \
     from generate_series(1, 10000) t(x)) s",
    "select length(first_value(r) over (order by x)) from (select x, case when x = 1 then repeat('x', 1000000) else 'y' end r \
     from generate_series(1, 10000) t(x)) s",
    "select length(last_value(r) over (order by x rows between unbounded preceding and unbounded following)) \
     from (select x, case when x = 10000 then repeat('x', 1000000) else 'y' end r from generate_series(1, 10000) t(x)) s",
    "select length(nth_value(r, 2) over (order by x)) from (select x, case when x = 2 then repeat('x', 1000000) else 'y' end r \
     from generate_series(1, 10000) t(x)) s",
    "select length(lag(r, 100000, repeat('z', 60000)) over (order by x)) from (select x, 'y' r from generate_series(1, 10000) t(x)) s",
    "select length(lag(r, 100000, repeat('z', 60000)) over (order by x)), max(x) over (order by x rows between 1 preceding and \
     unbounded following), max(x) over (order by x rows between unbounded preceding and 1 following) \
     from (select x, 'y' r from generate_series(1, 10000) t(x)) s",
    "select count(distinct r) over (order by x) from (select x, repeat('x', 1000) || x r from generate_series(1, 100000) t(x)) s",
    "select count(distinct x) over () from generate_series(1, 1500000) t(x)",
    "select sum(x) over (order by x rows between unbounded preceding and current row), sum(x) over (order by x rows between \
     1 preceding and unbounded following) from generate_series(1, 500000) t(x)",
    "select length(string_agg(case when x = 1 then 'x' end, repeat('-', 60000)) over ()) from generate_series(1, 10000) t(x)",
    "select array_agg(x) over (partition by x % 100) from generate_series(1, 30000) t(x)",
    "select max(r) over (partition by x % 5) from (select x, repeat('x', 500) || x r from generate_series(1, 30000) t(x)) s",
    "select lag(r) over (order by x), max(r) over (order by x rows between 1 preceding and unbounded following), \
     min(r) over (order by x rows between unbounded preceding and 1 following) \
     from (select x, repeat('x', 100) || x r from generate_series(1, 100000) t(x)) s",
];

/// Windows that fit in memory, and finish.
const OVER_WINDOWS: &[&str] = &[
    "select max(s) from (select sum(x) over (order by x) s from generate_series(1, 1000000) t(x)) s",
    "select count(n) from (select row_number() over (order by x) n from generate_series(1, 1000000) t(x)) s",
    "select count(l) from (select lag(x::text) over (order by x) l from generate_series(1, 1000000) t(x)) s",
    "select count(l) from (select string_agg(x::text, ',') over (partition by x / 10) l from generate_series(1, 100000) t(x)) s",
    "select count(l) from (select string_agg(x::text, ',') filter (where x % 3 = 0) over (partition by x / 10 order by x) l \
     from generate_series(1, 100000) t(x)) s",
    "select count(l) from (select max(x::text) over (order by x rows between 10 preceding and 10 following) l \
     from generate_series(1, 300000) t(x)) s",
    "select count(distinct x) over (order by x) from generate_series(1, 1000000) t(x)",
    "select count(l) from (select first_value(x::text) over (partition by x / 10 order by x) l from generate_series(1, 300000) t(x)) s",
];

/// Statements that keep more data than fits in memory, and finish: they spill.
const LARGE: &[&str] = &[
    "select count(*) from (select distinct repeat('x', 1000) || g a from generate_series(1, 300000) t(g)) s",
    "select count(*) from (select repeat('x', 1000) || g a, count(*) from generate_series(1, 300000) t(g) group by 1) s",
    "select count(*) from (select g, repeat('x', 60) || g a from generate_series(1, 1000000) t(g) order by a) s",
    "select repeat('x', 1000) || g from generate_series(1, 200000) t(g) union select repeat('y', 1000) || g from generate_series(1, 200000) t(g)",
    "select g, row_number() over (order by repeat('x', 60) || g) from generate_series(1, 300000) t(g)",
];

/// Joins that exceed the memory, and finish. They come last: the allocator keeps some of their memory for a while.
const JOINS: &[&str] = &[
    "select count(*), max(length(a || b)) from (select g, repeat('x', 100) || g a from generate_series(1, 200000) t(g)) a \
     join (select g, repeat('y', 100) || g b from generate_series(1, 200000) t(g)) b on a.g = b.g",
    "select count(*) from (select repeat('x', 61) || lpad(g::text, 8, '0') s from generate_series(1, 1000000) t(g)) a \
     join (select repeat('x', 61) || lpad(g::text, 8, '0') s from generate_series(1, 1000000) t(g)) b on a.s = b.s",
    "select count(*) from (select repeat('x', 61) || g s, g from generate_series(1, 1000000) t(g)) a \
     left join (select repeat('x', 61) || g s, g from generate_series(1, 1000000) t(g)) b on a.s = b.s and a.g < b.g",
    "select count(*) from (select repeat('x', 61) || g s from generate_series(1, 1000000) t(g)) a \
     where s in (select repeat('x', 61) || g from generate_series(1, 1000000) t(g))",
    "select count(*) from (select repeat('x', 61) || g s from generate_series(1, 1000000) t(g)) a \
     where not exists (select 1 from generate_series(1, 1000000) t(g) where repeat('x', 61) || g = s)",
];

/// Expressions nested at random, but the same ones each time.
fn nested(random: &mut fastrand::Rng, depth: usize) -> String {
    let count = ["1", "10", "1000", "100000", "10000000"];
    let some = |random: &mut fastrand::Rng| count[random.usize(..count.len())];
    if depth == 0 {
        return ["'x'", "g::text", "'ab'"][random.usize(..3)].to_owned();
    }
    let inner = nested(random, depth - 1);
    match random.usize(..8) {
        0 | 1 => format!("repeat({inner}, {})", some(random)),
        2 => format!("lpad({inner}, {}, {})", some(random), nested(random, depth - 1)),
        3 => format!("rpad({inner}, {}, 'y')", some(random)),
        4 => format!("concat({inner}, {}, {inner})", nested(random, depth - 1)),
        5 => format!("replace({inner}, 'x', {})", nested(random, depth - 1)),
        6 => format!("({inner} || {})", nested(random, depth - 1)),
        _ => format!("upper(reverse({inner}))"),
    }
}

/// Constants nested at random, among them values of subqueries.
fn nested_constants(random: &mut fastrand::Rng, depth: usize) -> String {
    if depth == 0 {
        return format!("'{}'", "x".repeat(random.usize(1..20)));
    }
    let inner = nested_constants(random, depth - 1);
    let times = [10, 1_000, 100_000, 10_000_000, 2_000_000_000][random.usize(..5)];
    match random.usize(..8) {
        0 => format!("repeat({inner}, {times})"),
        1 => format!("lpad({inner}, {times}, 'ab')"),
        2 => format!("rpad({inner}, {times}, {})", nested_constants(random, depth - 1)),
        3 => format!("concat({inner}, {})", nested_constants(random, depth - 1)),
        4 => format!("replace({inner}, 'x', {})", nested_constants(random, depth - 1)),
        5 => format!("({inner} || {})", nested_constants(random, depth - 1)),
        6 => format!("(case when random() < 2 then {inner} else {} end)", nested_constants(random, depth - 1)),
        _ => format!("(select string_agg({inner}, ',') from generate_series(1, {}))", times.min(100_000)),
    }
}

/// The statements of a seed, or of a file that [`FILE`] names, one in each line.
fn statements() -> Vec<String> {
    if let Some(file) = std::env::var_os(FILE) {
        let text = std::fs::read_to_string(file).expect("the file can be read");
        return text.lines().map(str::to_owned).collect();
    }
    let seed = std::env::var(SEED).map_or(20_261_122, |seed| seed.parse().expect("the seed is a number"));
    println!("{SEED}={seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let seeded: Vec<String> = (0..20)
        .map(|n| {
            let expression = nested(&mut random, 3 + n % 3);
            let what = if n % 2 == 0 { "max(length" } else { "count(" };
            format!("select {what}({expression})) from generate_series(1, 2000) s(g)")
        })
        .collect();
    let constants = (0..20).map(|_| format!("select length({})", nested_constants(&mut random, 3)));
    [GREEDY, LARGE, LONG_OVER_WINDOWS, OVER_WINDOWS]
        .concat()
        .iter()
        .map(ToString::to_string)
        .chain(seeded)
        .chain(constants)
        .chain(JOINS.iter().map(ToString::to_string))
        .collect()
}

/// The largest memory of this process since [`forget`], in bytes.
fn most() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("it is told");
    line.split_ascii_whitespace().nth(1).and_then(|kib| kib.parse::<usize>().ok()).expect("it is a number") << 10
}

/// Restarts the measurement of the largest memory.
fn forget() {
    std::fs::write("/proc/self/clear_refs", "5").expect("Linux forgets");
}

/// Runs a statement and drops its rows as they come. Returns the number of rows, or the SQLSTATE.
async fn run(session: &mut Session, sql: &str) -> Result<usize, SqlError> {
    let prepared = session.prepare(sql, &[]).await?;
    let mut rows = 0;
    if let StatementResult::Rows { mut stream, .. } = session.execute(&prepared[0], &[]).await? {
        while let Some(batch) = stream.next().await {
            rows += batch?.columns().first().map_or(0, |column| column.len());
        }
    }
    Ok(rows)
}

fn engine(spilled: u64) -> (Arc<Engine>, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("there is room");
    let store = Store::in_memory(Options::default()).expect("memory is enough");
    let spill = Some(SpillOptions { folder: folder.path().join("spill"), bytes: spilled });
    let options = EngineOptions { threads: 2, query_bytes: MEMORY, spill, ..EngineOptions::default() };
    (Engine::new(store, options).expect("it starts"), folder)
}

#[tokio::test]
async fn child_of_the_test_of_memory() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    device::heap::give_back_soon();
    let (engine, _folder) = engine(1 << 30);
    let mut session = engine.session("a");
    session.count_here();
    run(&mut session, "select count(*), max(repeat('x', g::int % 9)) from generate_series(1, 99999) s(g)")
        .await
        .expect("it is small");
    for sql in statements() {
        forget();
        let before = most();
        let outcome = run(&mut session, &sql).await.inspect_err(|error| eprintln!("{error}: {sql}"));
        let outcome = outcome.map_or_else(|error| error.code().to_owned(), |rows| format!("{rows} rows"));
        println!("\n{CHILD}|{before}|{}|{outcome}|{sql}", most());
    }
    forget();
    let before = most();
    let rows = slow_readers(&engine).await;
    println!("\n{CHILD}|{before}|{}|{rows} rows|{READERS} readers that stop reading", most());
}

/// Queries of sessions of their own that each read one batch, and no more. Returns the rows of those batches.
async fn slow_readers(engine: &Arc<Engine>) -> usize {
    let (mut open, mut rows) = (Vec::new(), 0);
    for _ in 0..READERS {
        let mut session = engine.session("a");
        let sql = "select repeat('x', 1000) || g from generate_series(1, 1000000) s(g)";
        let prepared = session.prepare(sql, &[]).await.expect("it is right");
        if let Ok(StatementResult::Rows { mut stream, .. }) = session.execute(&prepared[0], &[]).await {
            rows += stream.next().await.and_then(Result::ok).map_or(0, |batch| batch.num_rows());
            open.push((session, stream));
        }
    }
    // Each goes on until it waits for its reader.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    rows
}

#[tokio::test]
async fn a_query_that_spills_more_than_it_may_is_told_the_setting() {
    let (engine, _folder) = engine(1 << 20);
    let mut session = engine.session("a");
    let sorted = "select repeat('x', 60) || g a from generate_series(1, 1000000) t(g) order by a";
    let Err(SqlError::Engine(report)) = run(&mut session, sorted).await else { panic!("it is refused") };
    assert_eq!((report.code, report.hint.is_some_and(|hint| hint.contains("spill_max"))), ("53400", true));
    assert_eq!(run(&mut session, "select 1").await.expect("the session goes on"), 1);
}

#[test]
fn no_statement_takes_more_memory_than_it_may() {
    let child = Command::new(std::env::current_exe().expect("it runs"))
        .args(["--exact", "memory::child_of_the_test_of_memory", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .expect("it starts");
    let told = String::from_utf8_lossy(&child.stdout).into_owned();
    assert!(child.status.success(), "{told}\n{}", String::from_utf8_lossy(&child.stderr));
    let lines: Vec<Vec<&str>> =
        told.lines().filter(|line| line.starts_with(CHILD)).map(|line| line.splitn(5, '|').collect()).collect();
    assert_eq!(lines.len(), statements().len() + 1);
    let mut all = String::new();
    let (mut over, mut idle) = (0, None);
    for line in lines {
        let [before, most] = [1, 2].map(|at| line[at].parse::<usize>().expect("it is a number"));
        let taken = most.saturating_sub(*idle.get_or_insert(before));
        let finishes = LARGE.contains(&line[4]) || OVER_WINDOWS.contains(&line[4]) || JOINS.contains(&line[4]);
        // Each of the readers' threads keeps a few pages of its own beside what is counted.
        let most = if line[4].contains("readers") { MEMORY / 2 * 3 } else { MEMORY / 10 * 11 };
        let is_over = taken > most || finishes && !line[3].ends_with("rows");
        over += usize::from(is_over);
        let _ = writeln!(all, "{}{} MiB, {}: {}", if is_over { "OVER " } else { "" }, taken >> 20, line[3], line[4]);
    }
    println!("{all}");
    assert_eq!(over, 0, "{all}");
}
