//! Search: a query in the indices of the search service, with the visitor's own rights; hits with what matched in them.
//!
//! Pages are by offset, since hits in the order of how well they match have no other place; they end after [`HITS_MAX`].

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use node::identity::Action;

use super::refused;
use crate::address::{message_path, target};
use crate::admin::AdminError;
use crate::form::Fields;
use crate::format::{count, word};
use crate::gate::Visitor;
use crate::layout::{self, Extras, Place, command};
use crate::lending::{HitLine, HitPage, HitQuestion, MARK_BEGIN, MARK_END, SearchSource};
use crate::respond;
use crate::state::ConsoleState;

/// Hits of a page, and of all pages of a search.
const PAGE_HITS: usize = 20;
const HITS_MAX: usize = 1_000;

/// Bytes of a query, and of the names of indices.
const QUERY_BYTES_MAX: usize = 2_000;

/// How long a search may take.
const TIME_MAX: Duration = Duration::from_secs(15);

/// Indices to choose from that a page has.
const INDICES_SHOWN: usize = 200;

/// The index of messages, whose documents have the ids of messages.
const MESSAGES: &str = ".messages";

/// The question of a request's fields. Errors: the text for who asked.
pub(crate) fn question_of(fields: &Fields) -> Result<HitQuestion, AdminError> {
    let wrong = |text: String| Err(AdminError::Refused(text));
    let text = |name| fields.get(name).unwrap_or_default().to_owned();
    let (index, query) = (text("index"), text("q"));
    if query.is_empty() || query.len() > QUERY_BYTES_MAX || index.len() > QUERY_BYTES_MAX {
        return wrong(format!("a query has 1 to {QUERY_BYTES_MAX} bytes"));
    }
    // It is one part of a path, and names indices alone.
    if index.starts_with('_') || index.chars().any(|c| c == '/' || c.is_whitespace() || c.is_control()) {
        return wrong("an index has another name".to_owned());
    }
    let from = match fields.get("from").map(str::parse::<usize>) {
        None => 0,
        Some(Ok(from)) if from.saturating_add(PAGE_HITS) <= HITS_MAX => from,
        Some(_) => return wrong(format!("a search has its first {HITS_MAX} hits: narrow the query")),
    };
    let index = if index.is_empty() { "*".to_owned() } else { index };
    Ok(HitQuestion { index, query, from, size: PAGE_HITS, time_max: TIME_MAX })
}

/// The search service, for who may read some index.
pub(crate) fn source(state: &ConsoleState, visitor: &Visitor) -> Result<Arc<dyn SearchSource>, AdminError> {
    let none = "search does not run on this node: add [search] to its terrace.toml, and start it again";
    let source = state.admin.indices().ok_or_else(|| AdminError::Absent(none.to_owned()))?;
    if !state.may_some(&visitor.caller, Action::IndexRead) {
        let text = "permission denied: index-read is not allowed; `terrace role grant index-read --on 'index NAME' --to ROLE` grants it";
        return Err(AdminError::Denied(text.to_owned()));
    }
    Ok(source)
}

/// `GET /search`
pub(crate) async fn show(State(state): State<Arc<ConsoleState>>, visitor: Visitor, fields: Fields) -> Response {
    let source = match source(&state, &visitor) {
        Ok(source) => source,
        Err(error) => return refused(&error),
    };
    let indices = match source.indices(&visitor.caller).await {
        Ok(indices) => indices,
        Err(error) => return refused(&error),
    };
    let is_asked = fields.get("q").is_some();
    let found = match question_of(&fields) {
        _ if !is_asked => None,
        Ok(question) => Some(source.find(&visitor.caller, &question).await.map(|page| (question, page))),
        Err(error) => Some(Err(error)),
    };
    let status = match &found {
        Some(Err(AdminError::Denied(_))) => StatusCode::FORBIDDEN,
        Some(Err(AdminError::Unavailable(_))) => StatusCode::SERVICE_UNAVAILABLE,
        Some(Err(_)) => StatusCode::UNPROCESSABLE_ENTITY,
        _ => StatusCode::OK,
    };
    let main = html! {
        div.title { h1 { "Search" } span.sub { "in indices, with your own rights" } }
        (form(&indices, &fields))
        @match &found {
            None => { p.sub { "Words, " code { "\"phrases\"" } ", " code { "field:value" } ", " code { "AND OR NOT" } ", " code { "wild*" } ", " code { "[1 TO 9]" } "." } }
            Some(Err(error)) => { p.note.warn.break role="alert" { (error) } }
            Some(Ok((question, page))) => { (hits(question, page)) }
        }
        @if let Some(line) = command_line(&fields) { (command(&line)) }
    };
    respond::page(status, layout::page(&state, &visitor, ("Search", Place::Search, Extras::None), "", main))
}

fn form(indices: &[String], fields: &Fields) -> Markup {
    let own = fields.get("index").unwrap_or_default();
    let is_other = !own.is_empty() && !indices.iter().any(|name| name == own);
    html! {
        section.card {
            form.filters action="/search" method="get" {
                div.field.grow {
                    label for="query" { "Query" }
                    input #query name="q" value=(fields.get("q").unwrap_or_default()) maxlength=(QUERY_BYTES_MAX) required autocomplete="off" spellcheck="false" placeholder="chest AND pain, ward:ICU, \"blood pressure\"";
                }
                div.field {
                    label for="index" { "Index" }
                    select #index name="index" {
                        option value="" { "all" }
                        @if is_other { option value=(own) selected { (own) } }
                        @for name in indices.iter().take(INDICES_SHOWN) { option value=(name) selected[name == own] { (name) } }
                    }
                }
                button.main { "Search" }
            }
            @if indices.is_empty() { p.empty { "There is no index that you may read." } }
        }
    }
}

fn hits(question: &HitQuestion, page: &HitPage) -> Markup {
    html! {
        section.card.stack {
            div.head {
                h2 { span role="status" { (count(page.total)) @if !page.total_is_exact { " or more" } @if page.total == 1 { " hit" } @else { " hits" } } }
                span.sub { "in " (page.took_ms) " ms" }
            }
            @if page.hits.is_empty() { p.empty { "Nothing matches." } }
            @for hit in &page.hits { (one(hit)) }
            (pager(question, page))
        }
    }
}

fn one(hit: &HitLine) -> Markup {
    let message = hit.id.parse::<u64>().ok().filter(|_| hit.index == MESSAGES);
    html! {
        article.hit {
            p {
                @match message {
                    Some(id) => { a href=(message_path(id)) { "Message " (id) } }
                    None => { b.break { (hit.id) } }
                }
                " " span.tag { (hit.index) }
                @if let Some(score) = hit.score { " " span.sub { "score " (format!("{score:.2}")) } }
            }
            @for (field, parts) in &hit.highlights {
                p.break { span.at { (field) } " " @for (at, part) in parts.iter().enumerate() { @if at > 0 { " \u{2026} " } (marked(part)) } }
            }
            details { summary { "Document" } pre { (hit.source) } }
        }
    }
}

/// A text with what matches in it marked. Whatever else is in the text stays text.
fn marked(text: &str) -> Markup {
    let mut parts = text.split(MARK_BEGIN);
    let first = parts.next().unwrap_or_default();
    html! {
        (without_ends(first))
        @for part in parts {
            @match part.split_once(MARK_END) {
                Some((inner, rest)) => { mark { (inner) } (without_ends(rest)) }
                None => { (part) }
            }
        }
    }
}

fn without_ends(text: &str) -> String {
    text.replace(MARK_END, "")
}

fn pager(question: &HitQuestion, page: &HitPage) -> Markup {
    let next = question.from + PAGE_HITS;
    let has_next = page.hits.len() == PAGE_HITS && (next as u64) < page.total;
    let at = |from: usize| {
        let from = if from == 0 { String::new() } else { from.to_string() };
        let index = if question.index == "*" { "" } else { &question.index };
        target("/search", &[("q", &question.query), ("index", index), ("from", &from)])
    };
    html! {
        @if has_next || question.from > 0 {
            nav.pager aria-label="Pages of hits" {
                @if question.from > 0 { a.button rel="prev" href=(at(question.from.saturating_sub(PAGE_HITS))) { "Better ones" } }
                @if has_next && next + PAGE_HITS <= HITS_MAX { a.button rel="next" href=(at(next)) { "More" } }
                @if has_next && next + PAGE_HITS > HITS_MAX { span.sub { "A search has its first " (count(HITS_MAX as u64)) " hits: narrow the query." } }
            }
        }
    }
}

fn command_line(fields: &Fields) -> Option<String> {
    let index = fields.get("index").unwrap_or("_all");
    let query = word(&format!("q={}", fields.get("q")?))?;
    let place = word(&format!("http://127.0.0.1:9200/{index}/_search"))?;
    Some(format!("curl -G -H \"Authorization: Bearer $TOKEN\" {place} --data-urlencode {query}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> Fields {
        Fields(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn what_matches_is_marked_and_nothing_of_a_document_is_markup() {
        let text = format!("<b>{MARK_BEGIN}<i>pain{MARK_END} & {MARK_END}{MARK_BEGIN}open");
        assert_eq!(marked(&text).into_string(), "&lt;b&gt;<mark>&lt;i&gt;pain</mark> &amp; open");
        let evil = "<img src=x onerror=alert(1)>";
        let hit = HitLine {
            index: evil.into(),
            id: evil.into(),
            score: Some(1.0),
            highlights: vec![(evil.into(), vec![evil.into()])],
            source: evil.into(),
        };
        assert!(!one(&hit).into_string().contains("<img"));
    }

    #[test]
    fn a_question_names_indices_only_and_has_a_last_page() {
        let question =
            question_of(&fields(&[("q", "a b"), ("index", "x*,y"), ("from", "20")])).expect("it can be read");
        assert_eq!((question.index.as_str(), question.from), ("x*,y", 20));
        assert_eq!(question_of(&fields(&[("q", "a")])).map(|question| question.index), Ok("*".to_owned()));
        let long = "x".repeat(QUERY_BYTES_MAX + 1);
        for wrong in [
            &[][..],
            &[("q", &*long)],
            &[("q", "a"), ("index", "_cluster")],
            &[("q", "a"), ("index", "a/_doc")],
            &[("q", "a"), ("from", "981")],
            &[("q", "a"), ("from", "x")],
        ] {
            assert!(question_of(&fields(wrong)).is_err(), "{wrong:?}");
        }
    }
}
