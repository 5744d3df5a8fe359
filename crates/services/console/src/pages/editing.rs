//! Edit and resend: a body that a person changes goes out in the place of one of the message's outputs, as a new message.
//!
//! ```text
//!   GET  /messages/ID/edit?to=OUT      the body of that output as lines, one a segment
//!   POST, first                        what differs, and where it goes       nothing is stored
//!   POST with `confirm`                sent once, under the key of the preview
//! ```
//!
//! Invariant: a body is edited here only if a page can carry it: shown as text and read back, it has the same bytes. Others are
//! edited as files, with the command that the page shows.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use hl7::Reading;
use hl7::charset::Charset;
use maud::{Markup, html};
use node::identity::{Action, Object};

use super::refused;
use crate::address::{message_path, target};
use crate::admin::{AdminError, MessageView};
use crate::form::{Fields, SignedForm};
use crate::format::{bytes, count, word};
use crate::gate::Visitor;
use crate::layout::{self, Extras, Place, command, token_field};
use crate::once::once;
use crate::respond;
use crate::secret;
use crate::state::ConsoleState;

/// The largest body that a page edits: escaped for a form it has three times as many bytes.
const BODY_BYTES_MAX: usize = 64 << 10;

/// Lines of a difference that a page has.
const LINES_SHOWN: usize = 200;

/// Whether a visitor may edit messages of a service; the node decides again.
pub(super) fn may_edit(state: &ConsoleState, visitor: &Visitor, service: &str) -> bool {
    let all = [Action::MessageEdit, Action::MessageBody, Action::Unmasked];
    all.iter().all(|action| state.may(&visitor.caller, *action, Object::Service(service)))
}

/// A body as a page has it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct EditableBody {
    charset: Charset,
    /// A line for each segment.
    text: String,
}

impl EditableBody {
    /// Errors: why a page cannot carry it.
    fn of(body: &[u8], assumed: Option<&str>) -> Result<EditableBody, &'static str> {
        if body.len() > BODY_BYTES_MAX {
            return Err("it is too long for a page");
        }
        let assumed = assumed.and_then(|name| Charset::named(name.as_bytes()));
        let reading = Reading::lenient(body, assumed);
        let message = reading.message().map_err(|_| "it is no HL7 message")?;
        let charset = message.charset().unwrap_or(Charset::UTF_8);
        let text = charset.read(body).ok_or("it has bytes that are none of its charset")?;
        if text.contains('\n') {
            return Err("it has line feeds within");
        }
        let text = text.replace('\r', "\n");
        let editable = EditableBody { charset, text };
        match editable.encoded(&editable.text) {
            Ok(again) if again == body => Ok(editable),
            _ => Err("a page would change bytes of it that nobody has edited"),
        }
    }

    /// The bytes of an edited text.
    fn encoded(&self, text: &str) -> Result<Vec<u8>, AdminError> {
        let text = text.replace("\r\n", "\n").replace('\n', "\r");
        let bytes = self.charset.encode(&text).map_err(|error| {
            AdminError::Refused(format!("the text cannot be written in the charset of the message: {error}"))
        })?;
        Ok(bytes.into_owned())
    }
}

/// The output that is edited: that to the operation which the fields name, or the only one.
fn chosen<'v>(view: &'v MessageView, fields: &Fields) -> Option<&'v str> {
    let all = || view.outputs.iter().map(|output| output.operation.as_str());
    match fields.get("to") {
        Some(wanted) => all().find(|name| *name == wanted),
        None => all().next().filter(|_| view.outputs.len() == 1),
    }
}

/// The message with its bodies, for who may edit it.
async fn view_of(state: &ConsoleState, visitor: &Visitor, id: u64) -> Result<MessageView, AdminError> {
    let view = state.admin.message(&visitor.caller, id, true).await?;
    let denied = |text: &str| Err(AdminError::Denied(text.to_owned()));
    match &view.withheld {
        Some(why) => denied(why),
        None if view.masked => denied("permission denied: what is shown masked to you cannot be edited"),
        None if !may_edit(state, visitor, &view.service) => {
            let service = &view.service;
            denied(&format!(
                "permission denied: message-edit is not allowed; `terrace role grant message-edit --on 'service {service}' --to ROLE` grants it"
            ))
        }
        None if view.outputs.is_empty() => Err(AdminError::Refused(format!(
            "message {id} went nowhere, so there is nothing to send in its place: reprocess it"
        ))),
        None => Ok(view),
    }
}

fn body_of<'v>(view: &'v MessageView, operation: &str) -> &'v [u8] {
    let found = view.outputs.iter().find(|output| output.operation == operation);
    found.map_or(&[][..], |output| &output.body[..])
}

/// `GET /messages/ID/edit`
pub(crate) async fn show(
    State(state): State<Arc<ConsoleState>>,
    visitor: Visitor,
    Path(id): Path<u64>,
    fields: Fields,
) -> Response {
    let view = match view_of(&state, &visitor, id).await {
        Ok(view) => view,
        Err(error) => return refused(&error),
    };
    let Some(token) = visitor.form_token() else {
        return refused(&AdminError::Refused("a page needs a session: sign in".to_owned()));
    };
    let to = chosen(&view, &fields);
    let main = html! {
        div.title { h1 { "Edit and resend message " (id) } }
        (outputs(&view, to))
        @if let Some(to) = to { (editor(&view, to, &token)) }
        @else { p.note { "Choose the output that your text goes out in the place of." } }
        (commands(id, to))
    };
    page(&state, &visitor, id, main)
}

fn outputs(view: &MessageView, to: Option<&str>) -> Markup {
    html! {
        nav.chips aria-label="Outputs" {
            @for output in &view.outputs {
                a.chip href=(target(&format!("{}/edit", message_path(view.id)), &[("to", &output.operation)]))
                    aria-current=[(to == Some(&output.operation)).then_some("true")] { "to " (output.operation) span.dim { (bytes(output.bytes)) } }
            }
        }
    }
}

fn editor(view: &MessageView, to: &str, token: &str) -> Markup {
    match EditableBody::of(body_of(view, to), view.charset.as_deref()) {
        Err(why) => {
            html! { p.note.warn { "This body cannot be edited on a page: " (why) ". The commands below edit it as a file." } }
        }
        Ok(body) => html! {
            form.card.fields action={ (message_path(view.id)) "/edit" } method="post" {
                (token_field(token))
                input type="hidden" name="to" value=(to);
                div.field {
                    label for="text" { "What goes out to " (to) ", a line for each segment" }
                    textarea #text name="text" rows=(body.text.lines().count().clamp(8, 28)) spellcheck="false" { "\n" (body.text) }
                    span.sub { "It is sent as it stands, as a new message that names this one. Rules and transforms are not run." }
                }
                div { button.main { "Preview" } " " a.button href=(message_path(view.id)) { "Not now" } }
            }
        },
    }
}

fn commands(id: u64, to: Option<&str>) -> Markup {
    let Some(to) = to.and_then(word) else { return html! {} };
    html! {
        div.commands {
            (command(&format!("terrace message show {id} --output {to} --raw > message.hl7")))
            (command(&format!("terrace message resend {id} --to {to} --edited message.hl7")))
        }
    }
}

fn page(state: &ConsoleState, visitor: &Visitor, id: u64, main: Markup) -> Response {
    let title = format!("Edit {id}");
    respond::page(StatusCode::OK, layout::page(state, visitor, (&title, Place::Messages, Extras::None), "", main))
}

/// `POST /messages/ID/edit`
pub(crate) async fn send(State(state): State<Arc<ConsoleState>>, Path(id): Path<u64>, form: SignedForm) -> Response {
    let SignedForm { visitor, fields } = form;
    let view = match view_of(&state, &visitor, id).await {
        Ok(view) => view,
        Err(error) => return refused(&error),
    };
    let edited =
        chosen(&view, &fields).ok_or_else(|| AdminError::Refused("choose an output".to_owned())).and_then(|to| {
            let before = EditableBody::of(body_of(&view, to), view.charset.as_deref());
            let before =
                before.map_err(|why| AdminError::Refused(format!("this body cannot be edited on a page: {why}")))?;
            let text = fields.text("text").replace("\r\n", "\n");
            let bytes = before.encoded(&text)?;
            Ok((to.to_owned(), before, text, bytes))
        });
    let (to, before, text, body) = match edited {
        Ok(edited) => edited,
        Err(error) => return refused(&error),
    };
    let Some(key) = fields.get("key").filter(|_| fields.get("confirm").is_some()) else {
        return preview(&state, &visitor, (id, &to), (&before.text, &text));
    };
    let request = [format!("edit {id} {to} ").as_bytes(), &body].concat();
    let (admin, by) = (Arc::clone(&state.admin), visitor.caller.clone());
    let work = async move { admin.resend_edited(&by, id, &[to], &body).await };
    match once(&state, &visitor.caller, (key, &request), work).await {
        Ok(new) => respond::see(&format!("{}?resent={new}", message_path(new))),
        Err(error) => refused(&error),
    }
}

fn preview(state: &ConsoleState, visitor: &Visitor, (id, to): (u64, &str), (before, text): (&str, &str)) -> Response {
    let (Some(token), Ok(key)) = (visitor.form_token(), secret::draw()) else {
        return refused(&AdminError::Refused("a page needs a session: sign in".to_owned()));
    };
    let main = html! {
        div.title { h1 { "Edit and resend message " (id) } span.sub { "nothing was stored or sent yet" } }
        section.card.stack {
            h2 { "What goes out to " (to) ", beside what went out before" }
            (line_differences(before, text))
            form action={ (message_path(id)) "/edit" } method="post" {
                (token_field(&token))
                input type="hidden" name="key" value=(key);
                input type="hidden" name="to" value=(to);
                input type="hidden" name="confirm" value="yes";
                input type="hidden" name="text" value=(text);
                button.main { "Send to " (to) } " " a.button href=(message_path(id)) { "Not now" }
            }
        }
        (commands(id, Some(to)))
    };
    page(state, visitor, id, main)
}

/// The lines that differ: all between the first and the last one that does.
fn line_differences(before: &str, now: &str) -> Markup {
    let (before, now): (Vec<&str>, Vec<&str>) = (before.lines().collect(), now.lines().collect());
    let same = before.iter().zip(&now).take_while(|(a, b)| a == b).count();
    let rest = before.len().min(now.len()) - same;
    let end = before.iter().rev().zip(now.iter().rev()).take(rest).take_while(|(a, b)| a == b).count();
    let (gone, new) = (&before[same..before.len() - end], &now[same..now.len() - end]);
    if gone.is_empty() && new.is_empty() {
        return html! { p.note.warn { "Nothing was changed: the same goes out again." } };
    }
    let left_out = gone.len().saturating_sub(LINES_SHOWN) + new.len().saturating_sub(LINES_SHOWN);
    html! {
        div.diff {
            div.change {
                @for line in gone.iter().take(LINES_SHOWN) { del { (line) } }
                @for line in new.iter().take(LINES_SHOWN) { ins { (line) } }
            }
        }
        @if left_out > 0 { p.sub { (count(left_out as u64)) " more lines are not shown." } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = b"MSH|^~\\&|A|B|C|D|2026||ADT^A01|1|P|2.5||||||8859/1\rPID|1||7||M\xfcller\r";

    #[test]
    fn a_body_goes_over_a_page_and_back_byte_for_byte_or_not_at_all() {
        let body = EditableBody::of(BODY, None).expect("a page carries it");
        assert!(body.text.contains("M\u{fc}ller\n"), "{}", body.text);
        assert_eq!(body.encoded(&body.text.replace('\n', "\r\n")).expect("it can be written"), BODY);
        assert!(body.encoded("\u{20ac}").is_err(), "no such sign in its charset");
        for wrong in [
            &b"no message"[..],
            b"MSH|^~\\&|A|B|C|D|2026||ADT^A01|1|P|2.5||||||UNICODE UTF-8\rPID|\xff\r",
            &[BODY, b"NTE|\n|\r"].concat(),
        ] {
            assert!(EditableBody::of(wrong, None).is_err(), "{:?}", String::from_utf8_lossy(wrong));
        }
        assert!(EditableBody::of(&[BODY, &vec![b'x'; BODY_BYTES_MAX]].concat(), None).is_err());
    }

    #[test]
    fn what_differs_is_shown_and_escaped() {
        let text = line_differences("a\nb\nc\n", "a\n<b>\nx\nc\n").into_string();
        assert_eq!(
            text,
            "<div class=\"diff\"><div class=\"change\"><del>b</del><ins>&lt;b&gt;</ins><ins>x</ins></div></div>"
        );
        assert!(line_differences("a\n", "a\n").into_string().contains("Nothing was changed"));
        assert!(line_differences("a\na\n", "a\n").into_string().contains("<del>a</del>"));
    }
}
