//! A list of messages with their bodies as a file, which a browser or a program saves.
//!
//! The file is made while it is sent, page by page; a bounded number is made at a time, each for a bounded time. One that ends early ends
//! its connection too, so that it is not taken for a whole one; a file of the format terrace has its end besides.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream::try_unfold;
use maud::{Markup, html};
use node::identity::Action;
use tokio::sync::OwnedSemaphorePermit;

use super::messages_fields::MessagesFields;
use super::refused;
use crate::admin::AdminError;
use crate::form::Fields;
use crate::gate::Visitor;
use crate::state::ConsoleState;
use crate::transfer_admin::{ExportOrder, ExportStream};

/// How long a file may take, with its way to who asked.
const FILE_TIME: Duration = Duration::from_secs(3_600);

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
pub(crate) async fn export(State(state): State<Arc<ConsoleState>>, visitor: Visitor, fields: Fields) -> Response {
    let order = match order_of(&fields, state.options.guard.now_us()) {
        Ok(order) => order,
        Err(error) => return refused(&error),
    };
    let Ok(place) = Arc::clone(&state.exports).try_acquire_owned() else {
        let text = "others export messages already: try again in a moment, or use `terrace message export`";
        return refused(&AdminError::Unavailable(text.to_owned()));
    };
    match state.admin.export(&visitor.caller, &order).await {
        Ok(stream) => file(stream, place, &order),
        Err(error) => refused(&error),
    }
}

fn file(stream: Box<dyn ExportStream>, place: OwnedSemaphorePermit, order: &ExportOrder) -> Response {
    let until = tokio::time::Instant::now() + FILE_TIME;
    let chunks = try_unfold((stream, place), move |(mut stream, place)| async move {
        let next = tokio::time::timeout_at(until, stream.next()).await;
        let next: Result<Option<Bytes>, AdminError> =
            next.unwrap_or_else(|_| Err(AdminError::Unavailable("the file took too long".to_owned())));
        Ok::<_, AdminError>(next?.map(|bytes| (bytes, (stream, place))))
    });
    let mut response = Body::from_stream(chunks).into_response();
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
