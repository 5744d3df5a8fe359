//! SQL: a box for one statement that reads, with the visitor's own rights, and its rows as a table or as CSV.
//!
//! The statement runs in a transaction that only reads, by a session of the visitor's role: the SQL service refuses changes, not a
//! look at the text here. It ends when the visitor leaves the page: the connection of the request goes, and its work with it.
//! Nothing runs by a link: a statement comes by a form of this console.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use maud::{Markup, html};

use super::refused;
use crate::admin::AdminError;
use crate::csv;
use crate::form::{Fields, SignedForm};
use crate::format::{count, span, word};
use crate::gate::Visitor;
use crate::layout::{self, Extras, Place, command, table, token_field};
use crate::lending::{SqlQuestion, SqlSource, SqlTable};
use crate::respond;
use crate::state::ConsoleState;

/// Bytes of a statement.
const TEXT_BYTES_MAX: usize = 16 << 10;

/// How long a statement may take: less than a request.
const TIME_MAX: Duration = Duration::from_secs(30);

/// Rows and bytes of a page, and columns that it shows.
const PAGE_ROWS: usize = 500;
const PAGE_BYTES: usize = 1 << 20;
const PAGE_COLUMNS: usize = 200;

/// Rows and bytes of a file.
const FILE_ROWS: usize = 100_000;
const FILE_BYTES: usize = 64 << 20;

/// Characters of a value that a page has.
const VALUE_CHARS: usize = 500;

/// Statements to begin with.
const EXAMPLES: [&str; 3] = [
    "SELECT interface, status, count(*) FROM hl7.messages WHERE object = 0 GROUP BY 1, 2 ORDER BY 3 DESC",
    "SELECT table_schema, table_name FROM information_schema.tables ORDER BY 1, 2",
    "EXPLAIN SELECT count(*) FROM hl7.messages WHERE interface = 'adt'",
];

/// Runs a statement for a visitor.
pub(crate) async fn read(
    state: &ConsoleState,
    visitor: &Visitor,
    text: &str,
    (rows_max, bytes_max): (usize, usize),
) -> Result<SqlTable, AdminError> {
    let source = source(state)?;
    if text.trim().is_empty() || text.len() > TEXT_BYTES_MAX {
        return Err(AdminError::Refused(format!("a statement has 1 to {TEXT_BYTES_MAX} bytes")));
    }
    let question = SqlQuestion { text: text.to_owned(), rows_max, bytes_max, time_max: TIME_MAX };
    source.read(&visitor.caller, &question).await
}

fn source(state: &ConsoleState) -> Result<Arc<dyn SqlSource>, AdminError> {
    let none = "SQL does not run on this node: add [sql] to its terrace.toml, and start it again";
    state.admin.sql().ok_or_else(|| AdminError::Absent(none.to_owned()))
}

/// The bounds of an answer over the API.
pub(crate) const API_BOUNDS: (usize, usize) = (10_000, 8 << 20);

/// `GET /sql`
pub(crate) async fn show(State(state): State<Arc<ConsoleState>>, visitor: Visitor, fields: Fields) -> Response {
    if let Err(error) = source(&state) {
        return refused(&error);
    }
    let may = state.may(&visitor.caller, node::identity::Action::SqlConnect, node::identity::Object::Node);
    if !may {
        let text = "permission denied: sql-connect is not allowed; `terrace role grant sql-connect --on node --to ROLE` grants it";
        return refused(&AdminError::Denied(text.to_owned()));
    }
    page(&state, &visitor, fields.text("text"), None)
}

/// `POST /sql`
pub(crate) async fn run(State(state): State<Arc<ConsoleState>>, form: SignedForm) -> Response {
    let SignedForm { visitor, fields } = form;
    let text = fields.text("text").replace("\r\n", "\n");
    if fields.get("as") == Some("csv") {
        return file(read(&state, &visitor, &text, (FILE_ROWS, FILE_BYTES)).await);
    }
    let begun_ms = state.now_ms();
    let found = read(&state, &visitor, &text, (PAGE_ROWS, PAGE_BYTES)).await;
    let took_us = state.now_ms().saturating_sub(begun_ms) as f64 * 1e3;
    if let Err(error @ AdminError::Absent(_)) = &found {
        return refused(error);
    }
    page(&state, &visitor, &text, Some((&found, took_us)))
}

/// The rows as a file: all of them, or none.
fn file(found: Result<SqlTable, AdminError>) -> Response {
    let found = match found {
        Ok(found) if found.is_whole => found,
        Ok(_) => {
            let text = format!(
                "there are more than {} rows or {} MiB, and a file has all rows: narrow the statement, or use psql",
                count(FILE_ROWS as u64),
                FILE_BYTES >> 20
            );
            return refused(&AdminError::Refused(text));
        }
        Err(error) => return refused(&error),
    };
    let mut out = String::new();
    csv::line(&mut out, found.columns.iter().map(|name| Some(name.as_str())));
    for row in &found.rows {
        csv::line(&mut out, row.iter().map(Option::as_deref));
    }
    csv_file(out, "query.csv")
}

/// A CSV as a file to save.
pub(super) fn csv_file(text: String, name: &'static str) -> Response {
    let mut response = Response::new(Body::from(text));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(csv::CSV));
    let file = HeaderValue::from_str(&format!("attachment; filename=\"{name}\""));
    headers.insert(CONTENT_DISPOSITION, file.unwrap_or(HeaderValue::from_static("attachment")));
    response
}

/// What a statement returned, and how long it took, microseconds.
type Returned<'a> = (&'a Result<SqlTable, AdminError>, f64);

fn page(state: &ConsoleState, visitor: &Visitor, text: &str, found: Option<Returned<'_>>) -> Response {
    let status = match &found {
        Some((Err(AdminError::Denied(_)), _)) => StatusCode::FORBIDDEN,
        Some((Err(AdminError::Unavailable(_)), _)) => StatusCode::SERVICE_UNAVAILABLE,
        Some((Err(_), _)) => StatusCode::UNPROCESSABLE_ENTITY,
        _ => StatusCode::OK,
    };
    let token = visitor.form_token().unwrap_or_default();
    let main = html! {
        div.title { h1 { "SQL" } span.sub { "one statement that reads, with your own rights" } }
        form.card.fields action="/sql" method="post" {
            (token_field(&token))
            div.field {
                label for="text" { "Statement" }
                textarea #text name="text" rows=(text.lines().count().clamp(4, 16)) spellcheck="false" maxlength=(TEXT_BYTES_MAX) required autofocus[found.is_none()] { "\n" (text) }
                span.sub { "It ends after " (TIME_MAX.as_secs()) " s, and when you leave the page. Nothing can be changed here." }
            }
            div.row {
                button.main { "Run" }
                button name="as" value="csv" data-download { "Download CSV" }
            }
        }
        @match found {
            None => { (examples()) }
            Some((Err(error), _)) => { pre.note.bad role="alert" { (error) } }
            Some((Ok(found), took_us)) => { (rows(found, took_us)) }
        }
        @if let Some(line) = command_line(state, text) { (command(&line)) }
    };
    respond::page(status, layout::page(state, visitor, ("SQL", Place::Sql, Extras::None), "", main))
}

fn examples() -> Markup {
    html! {
        section.card {
            h2 { "To begin with" }
            ul.plain { @for text in EXAMPLES { li { a href={ "/sql?text=" (crate::address::in_query(text)) } { code { (text) } } } } }
        }
    }
}

fn rows(found: &SqlTable, took_us: f64) -> Markup {
    let head = html! { @for name in found.columns.iter().take(PAGE_COLUMNS) { th scope="col" { (name) } } };
    let body = html! {
        @for row in &found.rows { tr { @for value in row.iter().take(PAGE_COLUMNS) { (cell(value.as_deref())) } } }
    };
    let number = found.rows.len() as u64;
    html! {
        section.card {
            div.head {
                h2 { span role="status" { @if found.columns.is_empty() { (found.tag) } @else { (count(number)) @if number == 1 { " row" } @else { " rows" } } } }
                span.sub { "in " (span(took_us)) }
            }
            @if !found.is_whole { p.note.warn { "There are more: these are the first, as far as a page takes them. Narrow the statement, or download it as CSV." } }
            @if found.columns.len() > PAGE_COLUMNS {
                p.note.warn { "The first " (PAGE_COLUMNS) " of " (count(found.columns.len() as u64)) " columns are shown: name those that you want, or download it as CSV." }
            }
            @if found.columns.is_empty() { p.empty { "The statement has no rows." } }
            @else if found.rows.is_empty() { p.empty { "No rows: " (found.columns[..found.columns.len().min(PAGE_COLUMNS)].join(", ")) } }
            @else { div.values { (table("Rows", head, body)) } }
        }
    }
}

fn cell(value: Option<&str>) -> Markup {
    let Some(text) = value else { return html! { td { span.dim { "NULL" } } } };
    let cut = text.char_indices().nth(VALUE_CHARS).map(|(at, _)| at);
    // Segments of messages end in CR, which a page would not show.
    let shown = text[..cut.unwrap_or(text.len())].replace('\r', "\n");
    html! { td { span.value { (shown) @if cut.is_some() { span.dim { " (" (count(text.len() as u64)) " bytes)" } } } } }
}

/// The same with a client of the SQL port.
fn command_line(state: &ConsoleState, text: &str) -> Option<String> {
    source(state).ok()?;
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    Some(format!("psql -h 127.0.0.1 -U NAME terrace -c {}", word(&text)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_escaped_and_cut() {
        let evil = "<script>alert(1)</script>";
        let found = SqlTable {
            columns: vec![evil.into()],
            rows: vec![vec![Some(evil.into())], vec![None], vec![Some("x".repeat(VALUE_CHARS + 1))]],
            is_whole: false,
            tag: evil.into(),
        };
        let text = rows(&found, 0.0).into_string();
        assert!(!text.contains("<script") && text.contains("NULL") && text.contains("(501 bytes)"), "{text}");
    }

    #[test]
    fn a_page_shows_so_many_columns_and_says_that_there_are_more() {
        let found = SqlTable {
            columns: vec!["a".into(); 3_000],
            rows: vec![vec![None; 3_000]; 2],
            is_whole: true,
            tag: "SELECT".into(),
        };
        let text = rows(&found, 0.0).into_string();
        assert_eq!((text.matches("<th ").count(), text.matches("NULL").count()), (PAGE_COLUMNS, 2 * PAGE_COLUMNS));
        assert!(text.contains("of 3,000 columns"), "{text}");
    }

    #[tokio::test]
    async fn a_file_has_all_rows_or_there_is_none_and_runs_nothing() {
        let mut found = SqlTable {
            columns: vec!["a".into(), "=b".into()],
            rows: vec![vec![Some("=1+1".into()), None]],
            is_whole: true,
            tag: "SELECT".into(),
        };
        let response = file(Ok(found.clone()));
        assert_eq!(response.headers()[CONTENT_TYPE], csv::CSV);
        assert!(response.headers()[CONTENT_DISPOSITION].to_str().is_ok_and(|text| text.starts_with("attachment")));
        let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.expect("a body");
        assert_eq!(&body[..], b"a,'=b\r\n'=1+1,\r\n");
        found.is_whole = false;
        assert_eq!(file(Ok(found)).status(), StatusCode::UNPROCESSABLE_ENTITY);
    }
}
