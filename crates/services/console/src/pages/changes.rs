//! Changes: the generations of the production: who loaded what and when, what differs between any two, and the way back to one.
//!
//! ```text
//!   GET  /changes                        generations, the newest first; two to compare
//!   GET  /changes?from=40&to=disk        what differs
//!   GET  /changes/40/back                what going back would change    POST: does it
//!   POST /changes/load                   loads the folder, as `terrace reload`
//! ```
//!
//! A form that changes what is in force names the generation that its page saw in force: where another one was loaded meanwhile, nothing
//! is done. The form that loads the folder names the files that its page showed, too.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use node::identity::{Action, Caller, Object};

use super::refused;
use crate::address::target;
use crate::admin::AdminError;
use crate::form::{Fields, SignedForm};
use crate::format::{bytes, count, time};
use crate::gate::Visitor;
use crate::layout::{self, Extras, Place, cards, command, token_field};
use crate::operator::{FileDiff, GenerationDiff, GenerationLine, GenerationLines, LoadedHow};
use crate::respond;
use crate::state::ConsoleState;

/// Generations of the page.
const GENERATIONS_SHOWN: usize = 50;

/// Lines of differences that a page has.
const LINES_SHOWN: usize = 2_000;

/// Digits of a hash or a commit that a page has.
const DIGITS: usize = 10;

/// The side of a difference that is the folder as it is now.
const DISK: &str = "disk";

/// A side of a difference as a request has it: a number, or `disk`.
pub(crate) fn side(text: &str) -> Result<&str, AdminError> {
    if text == DISK || text.parse::<u32>().is_ok() {
        return Ok(text);
    }
    Err(AdminError::Refused("a side is the number of a generation, or disk".to_owned()))
}

fn may_load(state: &ConsoleState, visitor: &Visitor) -> bool {
    state.may(&visitor.caller, Action::ProductionLoad, Object::Node)
}

/// `GET /changes`
pub(crate) async fn show(State(state): State<Arc<ConsoleState>>, visitor: Visitor, fields: Fields) -> Response {
    let found = match state.admin.generations(&visitor.caller, GENERATIONS_SHOWN + 1).await {
        Ok(found) => found,
        Err(error) => return refused(&error),
    };
    let sides = match (fields.get("from"), fields.get("to")) {
        (Some(from), Some(to)) => match side(from).and_then(|from| Ok((from, side(to)?))) {
            Ok(sides) => Some(sides),
            Err(error) => return refused(&error),
        },
        _ => None,
    };
    let compared = match sides {
        Some((from, to)) => Some(state.admin.generation_diff(&visitor.caller, from, to).await),
        None => None,
    };
    let status = if matches!(compared, Some(Err(_))) { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::OK };
    let main = html! {
        div.title { h1 { "Changes" } span.sub { "what was loaded, by whom, and what differs" } }
        @if let Some(number) = fields.get("loaded").and_then(|number| number.parse::<u32>().ok()) {
            p.note.good role="status" { "Generation " (number) " is in force. Connections stayed open." }
        }
        @if let Some(compared) = &compared {
            @match compared {
                Ok(diff) => {
                    (differences(diff))
                    @if !diff.files.is_empty() { (load_form(&state, &visitor, (&found, sides), diff.folder.as_deref())) }
                }
                Err(error) => { p.note.warn role="alert" { (error) } }
            }
        }
        section.card { (generations(&state, &visitor, &found, sides)) }
        (commands(&found, sides))
    };
    let page = layout::page(&state, &visitor, ("Changes", Place::Changes, Extras::None), "", main);
    respond::page(status, page)
}

fn how(how: LoadedHow) -> String {
    match how {
        LoadedHow::Start => "start".to_owned(),
        LoadedHow::Reload => "reload".to_owned(),
        LoadedHow::Back(to) => format!("back to {to}"),
    }
}

fn short(digits: &str) -> &str {
    digits.get(..DIGITS).unwrap_or(digits)
}

/// Files of a generation that the one before has not, or has with another text.
fn changed(one: &GenerationLine, before: Option<&GenerationLine>) -> Option<u64> {
    let before = before?;
    let same = |path: &str, hash: &str| before.files.iter().any(|file| file.path == path && file.hash == hash);
    let came = one.files.iter().filter(|file| !same(&file.path, &file.hash)).count();
    let went = before.files.iter().filter(|old| one.files.iter().all(|file| file.path != old.path)).count();
    Some((came + went) as u64)
}

fn generations(
    state: &ConsoleState,
    visitor: &Visitor,
    found: &GenerationLines,
    sides: Option<(&str, &str)>,
) -> Markup {
    let shown = &found.generations[..found.generations.len().min(GENERATIONS_SHOWN)];
    let Some(newest) = shown.first() else {
        return html! { p.empty { "No production was loaded here yet." } };
    };
    let newest_text = newest.number.to_string();
    let before_text = shown.get(1).unwrap_or(newest).number.to_string();
    let (from, to) = sides.unwrap_or((&before_text, &newest_text));
    let is_loader = may_load(state, visitor);
    let head = html! {
        th.num scope="col" { "Generation" } th scope="col" { "Loaded" } th scope="col" { "By" } th scope="col" { "How" }
        th.num scope="col" { "Changed" } th.num.wide scope="col" { "Files" } th.wide scope="col" { "Commit" } th.wide scope="col" { "Hash" }
        th scope="col" { span.hidden { "Actions" } }
    };
    let rows = html! {
        @for (at, one) in shown.iter().enumerate() {
            @let number = one.number.to_string();
            @let before = shown.get(at + 1).map(|before| before.number.to_string());
            @let is_in_force = found.in_force == Some(one.number);
            tr {
                td.num { b { (one.number) } }
                td { (time(one.loaded_us)) }
                td.break data-label="By" { (one.by) }
                td data-label="How" { (how(one.how)) @if is_in_force { " " span.tag.good { "in force" } } }
                td.num data-label="Files changed" {
                    @match (changed(one, found.generations.get(at + 1)), &before) {
                        (Some(changed), Some(before)) => {
                            a href=(target("/changes", &[("from", before), ("to", &number)])) aria-label={ "What changed with generation " (one.number) } { (count(changed)) }
                        }
                        (Some(changed), None) => { (count(changed)) }
                        (None, _) => { "-" }
                    }
                }
                td.num.wide { (count(one.files.len() as u64)) " (" (bytes(one.files.iter().map(|file| file.bytes).sum())) ")" }
                td.wide { @match &one.commit { Some(commit) => { code title=(commit) { (short(commit)) } } None => { "-" } } }
                td.wide { code title=(one.hash) { (short(&one.hash)) } }
                td.num {
                    @if is_loader && !is_in_force && found.in_force.is_some() {
                        a.button href={ "/changes/" (one.number) "/back" } aria-label={ "Back to generation " (one.number) } { "Back to it" }
                    }
                }
            }
        }
    };
    html! {
        form.filters action="/changes" method="get" {
            (choice("from", "Compare", shown, from))
            (choice("to", "With", shown, to))
            button { "Show what differs" }
            @if let Some(in_force) = found.in_force {
                a.button href=(target("/changes", &[("from", &in_force.to_string()), ("to", DISK)])) { "What is on disk now" }
            }
        }
        (cards("Generations", head, rows))
    }
}

fn choice(id: &'static str, label: &str, shown: &[GenerationLine], own: &str) -> Markup {
    html! {
        div.field {
            label for=(id) { (label) }
            select id=(id) name=(id) {
                @for one in shown { @let number = one.number.to_string(); option value=(number) selected[number == own] { "generation " (number) } }
                option value=(DISK) selected[own == DISK] { "the folder on disk" }
            }
        }
    }
}

fn differences(diff: &GenerationDiff) -> Markup {
    let mut left = LINES_SHOWN;
    html! {
        section.card.stack {
            div.head { h2 { "From " (diff.from) " to " (diff.to) } span.sub { (count(diff.files.len() as u64)) @if diff.files.len() == 1 { " file differs" } @else { " files differ" } } }
            @if diff.files.is_empty() { p { "Both are the same." } }
            @for file in &diff.files { (file_difference(file, &mut left)) }
        }
    }
}

fn file_difference(file: &FileDiff, left: &mut usize) -> Markup {
    let lines: Vec<&str> = file.lines.lines().collect();
    let shown = lines.len().min(*left);
    *left -= shown;
    let class = |line: &str| match line.as_bytes().first() {
        Some(b'+') => "came",
        Some(b'-') => "went",
        Some(b'@') => "at",
        _ => "",
    };
    let tag = match file.change.as_str() {
        "came" => "tag good",
        "went" => "tag bad",
        _ => "tag",
    };
    html! {
        div {
            p { code { (file.path) } " " span class=(tag) { (file.change) } " " span.sub { "+" (count(file.added)) " \u{2212}" (count(file.removed)) } }
            @if !lines.is_empty() {
                pre.lines tabindex="0" role="region" aria-label={ "Differences of " (file.path) } {
                    @for line in &lines[..shown] { span class=(class(line)) { (line) "\n" } }
                }
            }
            @if shown < lines.len() { p.sub { (count((lines.len() - shown) as u64)) " more lines are not shown; the command below has all." } }
            @if let Some(note) = &file.note { p.sub.break { (note) } }
        }
    }
}

/// The button that loads the folder, on the page that shows what would change by that.
fn load_form(
    state: &ConsoleState,
    visitor: &Visitor,
    (found, sides): (&GenerationLines, Option<(&str, &str)>),
    folder: Option<&str>,
) -> Markup {
    let in_force = found.in_force.map(|number| number.to_string()).unwrap_or_default();
    let is_meant = sides == Some((in_force.as_str(), DISK)) && may_load(state, visitor);
    let Some(token) = visitor.form_token().filter(|_| is_meant) else { return html! {} };
    let Some(folder) = folder else {
        return html! { p.note.warn { "The folder cannot be loaded as it is: " code { "terrace check" } " says why." } };
    };
    html! {
        form.card.row action="/changes/load" method="post" {
            (token_field(&token))
            input type="hidden" name="in_force" value=(in_force);
            input type="hidden" name="folder" value=(folder);
            button.main { "Load the folder" }
            span.sub { "It becomes the next generation, if it has no fault. Connections stay open." }
        }
    }
}

fn commands(found: &GenerationLines, sides: Option<(&str, &str)>) -> Markup {
    let (from, to) = match (sides, found.in_force) {
        (Some((from, to)), _) => (from.to_owned(), to.to_owned()),
        (None, Some(in_force)) => (in_force.to_string(), DISK.to_owned()),
        (None, None) => return html! {},
    };
    html! {
        div.commands {
            (command("terrace production generations"))
            (command(&format!("terrace production diff {from} {to}")))
        }
    }
}

/// Refuses where another generation is in force than the page saw.
async fn still_in_force(state: &ConsoleState, caller: &Caller, fields: &Fields) -> Result<(), AdminError> {
    // Who may load without reading generations has no such page; the button is not there for it.
    let found = state.admin.generations(caller, 1).await?;
    let seen = fields.get("in_force").and_then(|number| number.parse::<u32>().ok());
    if found.in_force == seen {
        return Ok(());
    }
    let text = "another generation was put in force since the page was made: look at the changes again".to_owned();
    Err(AdminError::Refused(text))
}

/// `GET /changes/NUMBER/back`
pub(crate) async fn preview_back(
    State(state): State<Arc<ConsoleState>>,
    visitor: Visitor,
    Path(number): Path<u32>,
) -> Response {
    if !may_load(&state, &visitor) {
        return refused(&AdminError::Denied("permission denied: production-load is not allowed".to_owned()));
    }
    let found = match state.admin.generations(&visitor.caller, 1).await {
        Ok(found) => found,
        Err(error) => return refused(&error),
    };
    let (Some(in_force), Some(token)) = (found.in_force, visitor.form_token()) else {
        return refused(&AdminError::Refused("this node has no generation in force to go back from".to_owned()));
    };
    let compared = state.admin.generation_diff(&visitor.caller, &in_force.to_string(), &number.to_string()).await;
    let diff = match compared {
        Ok(diff) => diff,
        Err(error) => return refused(&error),
    };
    let main = html! {
        div.title { h1 { "Back to generation " (number) } span.sub { "in force is generation " (in_force) } }
        (differences(&diff))
        section.card.stack {
            p { "Generation " (number) " is loaded again, as a new generation, with the certificates and values of now. The folder on disk is not changed: the next reload or start loads the folder, unless its files are put back too." }
            form action={ "/changes/" (number) "/back" } method="post" {
                (token_field(&token))
                input type="hidden" name="in_force" value=(in_force);
                button.danger { "Load generation " (number) } " " a.button href="/changes" { "Not now" }
            }
        }
        (command(&format!("terrace production back {number}")))
    };
    let title = format!("Back to {number}");
    let page = layout::page(&state, &visitor, (&title, Place::Changes, Extras::None), "", main);
    respond::page(StatusCode::OK, page)
}

/// `POST /changes/NUMBER/back`
pub(crate) async fn back(
    State(state): State<Arc<ConsoleState>>,
    Path(number): Path<u32>,
    form: SignedForm,
) -> Response {
    let SignedForm { visitor, fields } = form;
    if let Err(error) = still_in_force(&state, &visitor.caller, &fields).await {
        return refused(&error);
    }
    let done = match state.admin.go_back(&visitor.caller, number).await {
        Ok(done) => done,
        Err(error) => return refused(&error),
    };
    let main = html! {
        div.title { h1 { "Generation " (number) " is in force again" } }
        section.card.stack {
            p.good role="status" { "It is generation " (done.generation) " now. Connections stayed open." }
            @if !done.changes.is_empty() { ul.plain { @for change in &done.changes { li.break { (change) } } } }
            @if done.on_disk.is_empty() { p { "The folder " code { (done.folder) } " has the same files." } }
            @else {
                p.note.warn { "The folder " code { (done.folder) } " was not changed and has other files: the next reload or start loads those." }
                ul.plain { @for file in done.on_disk.iter().take(GENERATIONS_SHOWN) { li { code { (file.path) } " " span.sub { (file.change) } } } }
            }
            p { a.button href="/changes" { "To the changes" } }
        }
        (command(&format!("terrace production back {number} --write DIR")))
    };
    let title = format!("Back to {number}");
    let page = layout::page(&state, &visitor, (&title, Place::Changes, Extras::None), "", main);
    respond::page(StatusCode::OK, page)
}

/// The hash of the folder that was shown, of a request's fields.
pub(crate) fn shown_folder(fields: &Fields) -> Result<Option<&str>, AdminError> {
    let is_hash = |text: &&str| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match fields.get("folder") {
        None => Ok(None),
        Some(text) if is_hash(&text) => Ok(Some(text)),
        Some(_) => {
            Err(AdminError::Refused("folder is the hash that a difference told, of 64 hexadecimal digits".to_owned()))
        }
    }
}

/// `POST /changes/load`
pub(crate) async fn load(State(state): State<Arc<ConsoleState>>, form: SignedForm) -> Response {
    let SignedForm { visitor, fields } = form;
    let done = match still_in_force(&state, &visitor.caller, &fields).await {
        Ok(()) => match shown_folder(&fields) {
            Ok(Some(shown)) => state.admin.load_folder(&visitor.caller, Some(shown)).await,
            Ok(None) => {
                Err(AdminError::Refused("the form is none of a page that shows the folder: begin there".to_owned()))
            }
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    };
    if let Err(error) = done {
        return refused(&error);
    }
    match state.admin.generations(&visitor.caller, 1).await {
        Ok(GenerationLines { in_force: Some(number), .. }) => respond::see(&format!("/changes?loaded={number}")),
        _ => respond::see("/changes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::GenerationFileLine;

    #[test]
    fn a_generation_says_how_many_files_changed() {
        let one = |files: &[(&str, &str)]| GenerationLine {
            number: 1,
            loaded_us: 0,
            by: String::new(),
            how: LoadedHow::Reload,
            name: String::new(),
            commit: None,
            hash: String::new(),
            files: files
                .iter()
                .map(|(path, hash)| GenerationFileLine { path: (*path).into(), bytes: 1, hash: (*hash).into() })
                .collect(),
        };
        let before = one(&[("a", "1"), ("b", "1"), ("c", "1")]);
        assert_eq!(changed(&one(&[("a", "1"), ("b", "2"), ("d", "1")]), Some(&before)), Some(3));
        assert_eq!(changed(&before, Some(&before)), Some(0));
        assert_eq!(changed(&before, None), None);
    }

    #[test]
    fn differences_are_escaped_and_bounded() {
        let evil = "<script>alert(1)</script>";
        let file = FileDiff {
            path: evil.into(),
            change: "changed".into(),
            lines: format!("@@ -1 +1 @@\n-{evil}\n+{evil}\n").repeat(1_000),
            note: Some(evil.into()),
            ..FileDiff::default()
        };
        let mut left = LINES_SHOWN;
        let text = file_difference(&file, &mut left).into_string();
        assert!(!text.contains("<script") && left == 0 && text.contains("1,000 more lines"), "{left}");
        assert!(text.contains("class=\"came\"") && text.contains("class=\"went\""));
    }

    #[test]
    fn what_is_shown_of_a_folder_is_its_hash_and_nothing_else_goes_on() {
        let of = |text: &str| Fields(vec![("folder".to_owned(), text.to_owned())]);
        assert!(shown_folder(&of(&"a0".repeat(32))).is_ok_and(|shown| shown.is_some()));
        for wrong in ["x".repeat(64), "a".repeat(63), format!("{}\nstop", "a".repeat(59))] {
            assert!(shown_folder(&of(&wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_side_is_a_number_or_the_folder() {
        assert!(side("40").is_ok() && side("disk").is_ok());
        for wrong in ["", "-1", "disk/..", "x", "99999999999"] {
            assert!(side(wrong).is_err(), "{wrong}");
        }
    }
}
