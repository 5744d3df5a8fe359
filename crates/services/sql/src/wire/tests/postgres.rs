//! Queries and PostgreSQL's results, from files: this server's result is the same, or it is an error.
//!
//! ```text
//!   > create table ..      run first
//!   # ..                   a comment
//!   select 1.5 + 1         a query, in one line
//!   = 2.5                  a row of PostgreSQL 15's result, or `= error 22012`; with `limit 0` its column labels
//!   ! 0A000                the error of this server, where PostgreSQL has a result or another error
//!   ~ 1                    a row of this server's result known to differ; a comment before the query has the reason
//! ```
//!
//! Numbers may differ in trailing zeros behind the point: here a column has one number of digits, in PostgreSQL each
//! value has its own. `scripts/postgres-answers.py` gets the results from a PostgreSQL server.

use super::client::{Client, Outcome};
use super::server;

/// The folder of the files. They are read when a test runs: a changed result needs no build.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/wire/tests");

/// A query, PostgreSQL's result, and this server's result if it is known to differ.
#[derive(Default)]
struct Case<'a> {
    query: &'a str,
    expected: Vec<&'a str>,
    refused: Option<&'a str>,
    known: Vec<&'a str>,
}

fn cases(file: &str) -> Vec<Case<'_>> {
    let mut cases: Vec<Case<'_>> = Vec::new();
    for line in file.lines().filter(|line| !line.starts_with(['>', '#']) && !line.is_empty()) {
        match (line.as_bytes()[0], cases.last_mut()) {
            (b'=', Some(case)) => case.expected.push(row_of(line)),
            (b'!', Some(case)) => case.refused = Some(row_of(line)),
            (b'~', Some(case)) => case.known.push(row_of(line)),
            _ => cases.push(Case { query: line, ..Case::default() }),
        }
    }
    cases
}

fn row_of(line: &str) -> &str {
    line[1..].strip_prefix(' ').unwrap_or("")
}

/// A number without its trailing zeros; another text unchanged.
fn without_zeros(cell: &str) -> &str {
    let digits = cell.strip_prefix('-').unwrap_or(cell);
    match digits.split_once('.') {
        Some((whole, part))
            if !whole.is_empty() && whole.bytes().chain(part.bytes()).all(|byte| byte.is_ascii_digit()) =>
        {
            cell.trim_end_matches('0').trim_end_matches('.')
        }
        _ => cell,
    }
}

fn are_alike(one: &[String], other: &[&str], is_ordered: bool) -> bool {
    fn cells(row: &str) -> Vec<&str> {
        row.split('|').map(without_zeros).collect()
    }
    let (mut one, mut other): (Vec<_>, Vec<_>) =
        (one.iter().map(|row| cells(row)).collect(), other.iter().map(|row| cells(row)).collect());
    // Without ORDER BY rows come in any order: the parts of a UNION ALL run in parallel.
    if !is_ordered {
        one.sort_unstable();
        other.sort_unstable();
    }
    one == other
}

fn answer(query: &str, outcome: &Outcome) -> Vec<String> {
    if let Some(code) = outcome.errors().first() {
        return vec![format!("error {code}")];
    }
    if query.ends_with(" limit 0") {
        return vec![outcome.labels().join("|")];
    }
    let cell = |cell: Option<String>| cell.unwrap_or_else(|| "NULL".into()).replace('\n', "\\n");
    outcome.rows().into_iter().map(|row| row.into_iter().map(cell).collect::<Vec<_>>().join("|")).collect()
}

#[tokio::test]
async fn what_is_answered_is_what_postgresql_answers_or_an_error() {
    agrees("postgres.txt", 150).await;
}

#[tokio::test]
async fn what_clients_ask_the_catalogs_is_answered_as_postgresql_answers_it() {
    agrees("catalogs.txt", 150).await;
}

#[tokio::test]
async fn what_is_told_of_sequences_and_constraints_is_what_postgresql_tells() {
    agrees("schema.txt", 15).await;
}

#[tokio::test]
async fn what_information_schema_tells_of_objects_is_what_postgresql_tells() {
    agrees("information.txt", 25).await;
}

#[tokio::test]
async fn comments_are_told_as_postgresql_tells_them() {
    agrees("comments.txt", 8).await;
}

#[tokio::test]
async fn values_of_each_type_are_answered_as_postgresql_answers_them_or_refused() {
    agrees("types.txt", 80).await;
}

/// Runs all queries of a file, and checks that there are at least `at_least`.
async fn agrees(file: &str, at_least: usize) {
    let file = std::fs::read_to_string(format!("{FOLDER}/{file}")).expect("it is there");
    let server = server(|_| {}).await;
    let mut client = Client::trusted(&server).await;
    for line in file.lines().filter_map(|line| line.strip_prefix("> ")) {
        let outcome = client.query(line).await;
        assert!(outcome.errors().is_empty(), "{line}: {outcome:?}");
    }
    let cases = cases(&file);
    assert!(cases.len() > at_least, "the file is whole");
    let mut wrong = Vec::new();
    for case in &cases {
        let found = answer(case.query, &client.query(case.query).await);
        let is_ordered = case.query.to_lowercase().contains("order by");
        let right = match case.refused {
            Some(code) => found == [format!("error {code}")],
            None if case.known.is_empty() => are_alike(&found, &case.expected, is_ordered),
            None => are_alike(&found, &case.known, is_ordered) && !are_alike(&found, &case.expected, is_ordered),
        };
        if !right {
            wrong.push(format!("{}\n  answered {found:?}\n  not      {:?}", case.query, case.expected));
        }
    }
    assert!(wrong.is_empty(), "{} of {} answers:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    server.stop().await;
}
