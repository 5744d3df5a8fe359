//! Try: rules or a transform, from the production's folder or as text, on stored messages: what would differ. Nothing is sent or stored.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};

use super::refused;
use crate::address::{message_path, target};
use crate::admin::{AdminError, MessageQuery, ProductionSources, TriedLine, TryReport, TryRequest};
use crate::body;
use crate::form::{Fields, SignedForm};
use crate::format::{count, span, word};
use crate::gate::Visitor;
use crate::layout::{self, Extras, Place, command, token_field};
use crate::respond;
use crate::state::ConsoleState;

/// Numbers of messages to choose from.
const NUMBERS: [usize; 4] = [20, 50, 100, 200];

/// Messages with differences that the page shows.
const SHOWN: usize = 20;

/// What is tried, as the page has it.
#[derive(Debug, Clone, Default)]
struct TryFields {
    /// `rules NAME` or `transform NAME`.
    what: String,
    /// Its text, where it was changed on the page.
    text: Option<String>,
    service: String,
    kind: String,
    number: usize,
}

impl TryFields {
    fn of(fields: &Fields) -> TryFields {
        let text = |name| fields.get(name).unwrap_or_default().to_owned();
        let number = fields.get("number").and_then(|number| number.parse().ok());
        TryFields {
            what: text("what"),
            // Browsers send lines that end in CR LF.
            text: fields.get("text").map(|_| fields.text("text").replace("\r\n", "\n")),
            service: text("service"),
            kind: text("type"),
            number: number.filter(|number| NUMBERS.contains(number)).unwrap_or(NUMBERS[0]),
        }
    }

    fn source<'s>(&self, sources: &'s ProductionSources) -> Option<(bool, &'s str, &'s str)> {
        let (kind, name) = self.what.split_once(' ')?;
        let all = if kind == "rules" { &sources.rules } else { &sources.transforms };
        all.iter().find(|(found, _)| found == name).map(|(name, text)| (kind == "rules", name.as_str(), text.as_str()))
    }
}

/// `GET /try`
pub(crate) async fn show(State(state): State<Arc<ConsoleState>>, visitor: Visitor, fields: Fields) -> Response {
    let sources = match state.admin.sources(&visitor.caller).await {
        Ok(sources) => sources,
        Err(error) => return refused(&error),
    };
    page(&state, &visitor, (&sources, &TryFields::of(&fields)), None)
}

/// `POST /try`
pub(crate) async fn run(State(state): State<Arc<ConsoleState>>, form: SignedForm) -> Response {
    let SignedForm { visitor, fields } = form;
    let sources = match state.admin.sources(&visitor.caller).await {
        Ok(sources) => sources,
        Err(error) => return refused(&error),
    };
    let wanted = TryFields::of(&fields);
    let Some((of_rules, name, on_disk)) = wanted.source(&sources) else {
        return page(
            &state,
            &visitor,
            (&sources, &wanted),
            Some(Err(AdminError::Refused("choose what to try".to_owned()))),
        );
    };
    let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let request = TryRequest {
        of_rules,
        name: name.to_owned(),
        text: wanted.text.clone().filter(|text| text != on_disk),
        query: MessageQuery {
            service: given(&wanted.service),
            kind: given(&wanted.kind),
            limit: wanted.number,
            ..MessageQuery::default()
        },
    };
    let report = state.admin.try_on_stored(&visitor.caller, &request).await;
    page(&state, &visitor, (&sources, &wanted), Some(report))
}

fn page(
    state: &ConsoleState,
    visitor: &Visitor,
    (sources, wanted): (&ProductionSources, &TryFields),
    report: Option<Result<TryReport, AdminError>>,
) -> Response {
    let status = if matches!(report, Some(Err(_))) { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    let main = html! {
        div.title { h1 { "Try" } span.sub { "before it is loaded: nothing is sent or stored" } }
        @if sources.rules.is_empty() && sources.transforms.is_empty() {
            p.note { "This node has no production folder with rules or transforms." }
        } @else {
            (choices(sources, wanted))
            @if let Some(source) = wanted.source(sources) { (form_of(visitor, wanted, source)) }
        }
        @match &report {
            None => {}
            Some(Err(error)) => { pre.note.bad role="alert" { (error) } }
            Some(Ok(report)) => { (results(report)) }
        }
        (commands(sources, wanted))
    };
    respond::page(status, layout::page(state, visitor, ("Try", Place::Try, Extras::None), "", main))
}

fn choices(sources: &ProductionSources, wanted: &TryFields) -> Markup {
    let of = |kind: &str, all: &[(String, String)]| -> Vec<(String, String)> {
        all.iter().map(|(name, _)| (format!("{kind} {name}"), name.clone())).collect()
    };
    html! {
        section.card {
            @for (title, all) in [("Rules", of("rules", &sources.rules)), ("Transforms", of("transform", &sources.transforms))] {
                @if !all.is_empty() {
                    nav.chips aria-label=(title) {
                        span.dim { (title) }
                        @for (value, name) in all {
                            a.chip href=(target("/try", &[("what", &value)])) aria-current=[(wanted.what == value).then_some("true")] { (name) }
                        }
                    }
                }
            }
        }
    }
}

fn form_of(visitor: &Visitor, wanted: &TryFields, (of_rules, name, on_disk): (bool, &str, &str)) -> Markup {
    let Some(token) = visitor.form_token() else { return html! {} };
    let text = wanted.text.as_deref().unwrap_or(on_disk);
    let file = if of_rules { format!("rules/{name}.rules") } else { format!("transforms/{name}.hl7t") };
    html! {
        form.card.fields action="/try" method="post" {
            (token_field(&token))
            input type="hidden" name="what" value=(wanted.what);
            div.field {
                label for="text" { code { (file) } @if text != on_disk { " " span.tag.warn { "changed here, not on disk" } } }
                textarea #text name="text" rows=(text.lines().count().clamp(8, 28)) spellcheck="false" { "\n" (text) }
                span.sub { "Changes here are tried and kept nowhere: write them to the file, and load it with " code { "terrace reload" } "." }
            }
            div.filters {
                div.field { label for="number" { "Newest messages" }
                    select #number name="number" { @for number in NUMBERS { option value=(number) selected[number == wanted.number] { (number) } } } }
                div.field { label for="try-service" { "Of service" } input #try-service name="service" value=(wanted.service) placeholder="all" maxlength="255"; }
                div.field { label for="type" { "Of type" } input #type name="type" value=(wanted.kind) placeholder="ADT^A01" maxlength="64"; }
                button.main { "Try" }
            }
        }
    }
}

fn results(report: &TryReport) -> Markup {
    let TryReport { same, changed, errored, left_out, messages, took_us } = report;
    html! {
        section.card.stack {
            div.head {
                h2 { "Result" }
                span.sub { "tried in " (span(*took_us as f64)) }
            }
            p role="status" {
                b { (count(*same)) } " same, " b.warn[*changed > 0] { (count(*changed)) } " changed, " b.bad[*errored > 0] { (count(*errored)) } " fail"
                @if *left_out > 0 { span.sub { "; " (count(*left_out)) " do not go through it" } }
            }
            @for one in messages.iter().take(SHOWN) { (tried(one)) }
            @if messages.len() > SHOWN { p.sub { (count((messages.len() - SHOWN) as u64)) " more are not shown." } }
        }
    }
}

fn tried(one: &TriedLine) -> Markup {
    html! {
        div.stack {
            p {
                a href=(message_path(one.id)) { "Message " (one.id) } " " span.dim { (one.kind) } " "
                @if one.errored { span.tag.bad { "fails" } } @else { span.tag.warn { "differs" } }
            }
            @if let Some(before) = &one.before { div.diff { div.change { span.at { "decision" } del { (before) } ins { (one.decision) } } } }
            @else if one.errored { p.break { (one.decision) } }
            @for output in &one.outputs { div { p.sub { (output.title) } @if !output.differences.is_empty() { (body::differences(&output.differences)) } } }
        }
    }
}

fn commands(sources: &ProductionSources, wanted: &TryFields) -> Markup {
    let Some((of_rules, name, _)) = wanted.source(sources) else { return html! {} };
    let (Some(name), Some(folder)) = (word(name), sources.folder.as_deref().and_then(word)) else { return html! {} };
    let what = if of_rules { "rules" } else { "transform" };
    html! { (command(&format!("terrace {what} try {name} --production {folder} --last {}", wanted.number))) }
}
