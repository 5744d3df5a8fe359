//! A list of messages with their bodies as a file, which a browser or a program saves.
//!
//! ```text
//!   task with a place --page by page--> [ two parts ahead ] --> body of the response, as fast as the client reads
//! ```
//!
//! A bounded number of files is made at a time, fewer of one role, each for a bounded time: also where its client reads nothing, its place
//! is free then. A file that ends early ends its connection too, so that it is not taken for a whole one; one of the format terrace has its end
//! besides.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream::try_unfold;
use maud::{Markup, html};
use node::identity::Action;
use node::task::session;
use tokio::sync::mpsc;

use super::messages_fields::MessagesFields;
use super::refused;
use crate::admin::AdminError;
use crate::form::Fields;
use crate::gate::{Visitor, still_holds};
use crate::state::{ConsolePeer, ConsoleState};
use crate::transfer_admin::{ExportOrder, ExportStream};

/// How long a file may take, with its way to who asked.
const FILE_TIME: Duration = Duration::from_secs(3_600);

/// Parts that are made ahead of a client.
const PARTS_AHEAD: usize = 2;

/// The formats: names, and how names of files end.
const FORMATS: [(&str, &str); 3] = [("terrace", "messages"), ("hl7", "hl7"), ("batch", "hl7")];

/// What a request asks for. Errors: the text for who asked.
pub(crate) fn order_of(fields: &Fields, now_us: i64) -> Result<ExportOrder, AdminError> {
    let asked = MessagesFields::of(fields).wanted(now_us).map_err(AdminError::Refused)?;
    if asked.text.is_some() || asked.word.is_some() || asked.id.is_some() {
        let text = "a file is of a list: search by state, operation, service, type, number or time";
        return Err(AdminError::Refused(text.to_owned()));
    }
    let mut query = asked.query;
    let text = |name| fields.get(name).map(str::to_owned);
    query.mrn = text("mrn").or(query.mrn.take());
    query.control_id = text("control").or(query.control_id.take());
    query.kind = text("type").or(query.kind.take());
    let format = fields.get("format").unwrap_or(FORMATS[0].0);
    if !FORMATS.iter().any(|(name, _)| *name == format) {
        return Err(AdminError::Refused("format is terrace, hl7 or batch".to_owned()));
    }
    Ok(ExportOrder { query, format: format.to_owned(), masked: fields.get("masked").is_some() })
}

/// `GET /messages/export`, and the same of the API.
pub(crate) async fn export(
    State(state): State<Arc<ConsoleState>>,
    Extension(peer): Extension<ConsolePeer>,
    visitor: Visitor,
    fields: Fields,
) -> Response {
    let order = match order_of(&fields, state.options.guard.now_us()) {
        Ok(order) => order,
        Err(error) => return refused(&error),
    };
    let place = match state.export_place(&visitor.caller) {
        Ok(place) => place,
        Err(error) => return refused(&error),
    };
    match state.admin.export(&visitor.caller, &order).await {
        Ok(stream) => {
            let (to, parts) = mpsc::channel(PARTS_AHEAD);
            session("export", async move {
                let _place = place;
                // Its client sees that it ended early.
                let holds = move || still_holds(&state, &visitor, peer);
                let _ = tokio::time::timeout(FILE_TIME, made(stream, to, holds)).await;
            });
            response(parts, &order)
        }
        Err(error) => refused(&error),
    }
}

/// A part of a file; none is its end.
type Part = Result<Option<Bytes>, AdminError>;

/// Makes a file, until its client is gone; before each part it is asked whether the visitor is still one.
async fn made(mut stream: Box<dyn ExportStream>, to: mpsc::Sender<Part>, holds: impl Fn() -> bool) {
    loop {
        let part = match holds() {
            true => stream.next().await,
            false => Err(AdminError::Denied("who asked has signed out, or may not come any more".to_owned())),
        };
        let is_last = !matches!(part, Ok(Some(_)));
        if to.send(part).await.is_err() || is_last {
            return;
        }
    }
}

fn response(parts: mpsc::Receiver<Part>, order: &ExportOrder) -> Response {
    let body = try_unfold(parts, |mut parts| async move {
        let cut = || Err(AdminError::Unavailable("the file took too long, and was ended".to_owned()));
        let part = parts.recv().await.unwrap_or_else(cut)?;
        Ok::<_, AdminError>(part.map(|bytes| (bytes, parts)))
    });
    let mut response = Body::from_stream(body).into_response();
    let extension = FORMATS.iter().find(|(name, _)| *name == order.format).map_or("messages", |(_, end)| end);
    let masked = if order.masked { "-masked" } else { "" };
    let name = format!("attachment; filename=\"messages{masked}.{extension}\"");
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CONTENT_DISPOSITION, HeaderValue::from_str(&name).unwrap_or(HeaderValue::from_static("attachment")));
    response
}

/// The buttons of a list for who may export it.
pub(super) fn buttons(state: &ConsoleState, visitor: &Visitor, fields: &MessagesFields) -> Markup {
    let may = |action| state.may_some(&visitor.caller, action);
    if !may(Action::MessageBody) {
        return html! {};
    }
    let address = fields.address("/messages/export");
    let join = if address.contains('?') { "&" } else { "?" };
    html! {
        @if may(Action::Unmasked) { a.button href=(address) download { "Export" } }
        @else { a.button href={ (address) (join) "masked=yes" } download { "Export masked" } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts, and then an error or the end.
    struct Parts(Vec<Part>);

    #[async_trait::async_trait]
    impl ExportStream for Parts {
        async fn next(&mut self) -> Result<Option<Bytes>, AdminError> {
            self.0.remove(0)
        }
    }

    #[tokio::test]
    async fn a_file_is_whole_or_its_connection_ends_with_an_error() {
        let part = |text: &'static str| Ok(Some(Bytes::from_static(text.as_bytes())));
        let failed = || Err(AdminError::Unavailable("damaged".to_owned()));
        let whole = vec![part("a"), part("b"), part("c"), part("d"), Ok(None)];
        for (parts, expected) in [(whole, Some("abcd")), (vec![Ok(None)], Some("")), (vec![part("a"), failed()], None)]
        {
            let (to, from) = mpsc::channel(PARTS_AHEAD);
            session("export", made(Box::new(Parts(parts)), to, || true));
            let body = axum::body::to_bytes(response(from, &ExportOrder::default()).into_body(), 1 << 20).await;
            assert_eq!(body.ok().as_deref(), expected.map(str::as_bytes));
        }
        // Signed out: the next part is not made.
        let (to, mut from) = mpsc::channel(PARTS_AHEAD);
        let asked = std::sync::atomic::AtomicUsize::new(0);
        let holds = || asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < 1;
        made(Box::new(Parts(vec![part("a"), part("b"), Ok(None)])), to, holds).await;
        assert!(matches!(from.recv().await, Some(Ok(Some(_)))) && matches!(from.recv().await, Some(Err(_))));
        // Given up in its time: no end was sent.
        let (to, from) = mpsc::channel::<Part>(PARTS_AHEAD);
        to.send(part("a")).await.expect("there is room");
        drop(to);
        assert!(axum::body::to_bytes(response(from, &ExportOrder::default()).into_body(), 1 << 20).await.is_err());
    }

    #[test]
    fn a_file_is_of_a_list_in_a_format_that_there_is() {
        let of = |pairs: &[(&str, &str)]| {
            let fields = Fields(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect());
            order_of(&fields, 0)
        };
        let order = of(&[("service", "adt"), ("format", "batch"), ("masked", "yes"), ("mrn", "1")]).expect("an order");
        assert_eq!((order.query.service.as_deref(), order.query.mrn.as_deref()), (Some("adt"), Some("1")));
        assert_eq!((order.format.as_str(), order.masked), ("batch", true));
        assert_eq!(of(&[]).expect("an order").format, "terrace");
        assert!(of(&[("format", "zip")]).is_err() && of(&[("q", "4711")]).is_err());
    }
}
