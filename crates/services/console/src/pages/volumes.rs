//! Volumes: those that the visitor may see, their copies and their state. They are changed by commands.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};

use super::refused;
use crate::admin::VolumeLine;
use crate::format::bytes;
use crate::gate::Visitor;
use crate::layout::{self, Extras, Place, command, table};
use crate::respond;
use crate::state::ConsoleState;

/// `GET /volumes`
pub(crate) async fn show(State(state): State<Arc<ConsoleState>>, visitor: Visitor) -> Response {
    let volumes = match state.admin.volumes(&visitor.caller).await {
        Ok(volumes) => volumes,
        Err(error) => return refused(&error),
    };
    let main = html! {
        div.title { h1 { "Volumes" } }
        section.card {
            @if volumes.is_empty() { p.empty { "There is no volume, or none that you may see." } } @else { (rows(&volumes)) }
        }
        div.commands { (command("terrace volume status")) (command("terrace volume create NAME --size 10GiB")) }
    };
    respond::page(StatusCode::OK, layout::page(&state, &visitor, ("Volumes", Place::Volumes, Extras::None), "", main))
}

fn rows(volumes: &[VolumeLine]) -> Markup {
    let head = html! {
        th scope="col" { "Volume" } th.num scope="col" { "Size" } th scope="col" { "State" } th scope="col" { "Copies" } th.wide scope="col" { "Export" }
    };
    let body = html! {
        @for volume in volumes {
            tr {
                td { span.nowrap { span.dot.bad[!volume.is_well] {} b { (volume.name) } } }
                td.num.nowrap { (bytes(volume.bytes)) }
                td.break { (volume.state) }
                td.break { @for copy in &volume.copies { div { (copy) } } }
                td.wide.break { @match &volume.export { Some(uri) => { code { (uri) } } None => { "-" } } }
            }
        }
    };
    table("Volumes", head, body)
}
