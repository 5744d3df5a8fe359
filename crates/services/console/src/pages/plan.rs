//! Plan: the profile that is being recorded, what memory of any size would find, and how to go on from there.
//!
//! No prices, no media and no network: a plan itself is made by `terrace plan` from the profile, anywhere.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};
use node::identity::{Action, Object};
use node::profiling::{ProfileReport, RecordingState, RecordingStatus, StartRecording, StructureStatus};

use super::refused;
use crate::admin::AdminError;
use crate::form::{Fields, SignedForm};
use crate::format::{bytes, count, span, time};
use crate::gate::Visitor;
use crate::layout::{self, Extras, Place, cards, command, token_field};
use crate::respond;
use crate::state::ConsoleState;

/// Lengths of a recording that the page offers, in hours, and their names.
const LENGTHS: [(u64, &str); 4] = [(1, "an hour"), (24, "a day"), (168, "a week"), (744, "31 days")];
/// The picture's own units.
const PICTURE: (f64, f64) = (600.0, 200.0);
/// Lines that the picture has: what is used most.
const LINES: usize = 6;
/// The most memory that can be asked about, GiB.
const MORE_GIB_MAX: f64 = 1e6;
const GIB: f64 = (1u64 << 30) as f64;

/// `GET /plan`
pub(crate) async fn show(State(state): State<Arc<ConsoleState>>, visitor: Visitor, fields: Fields) -> Response {
    let report = match state.admin.profile(&visitor.caller).await {
        Ok(report) => report,
        Err(error) => return refused(&error),
    };
    let token = visitor.form_token().filter(|_| may_record(&state, &visitor));
    let main = content(&report, token.as_deref(), fields.get("more"));
    respond::page(StatusCode::OK, layout::page(&state, &visitor, ("Plan", Place::Plan, Extras::None), "", main))
}

/// `GET /api/v1/profile`
pub(crate) async fn as_json(State(state): State<Arc<ConsoleState>>, visitor: Visitor) -> Response {
    match state.admin.profile(&visitor.caller).await {
        Ok(report) => respond::json_of(&report),
        Err(error) => refused(&error),
    }
}

/// `POST /plan/start`
pub(crate) async fn start(State(state): State<Arc<ConsoleState>>, form: SignedForm) -> Response {
    let asked = form.fields.get("hours").and_then(|hours| hours.parse().ok());
    let Some(hours) = asked.filter(|hours: &u64| LENGTHS.iter().any(|(length, _)| length == hours)) else {
        return refused(&AdminError::Refused("the page offers other lengths of a recording".to_owned()));
    };
    let started = state.admin.start_profile(&form.visitor.caller, StartRecording::of(hours * 3600)).await;
    done(started)
}

/// `POST /plan/stop`
pub(crate) async fn stop(State(state): State<Arc<ConsoleState>>, form: SignedForm) -> Response {
    // It waits until the profile is written.
    let place = state.long_place(&form.visitor.caller);
    let stopped = match place {
        Ok(_place) => state.admin.stop_profile(&form.visitor.caller).await,
        Err(error) => Err(error),
    };
    done(stopped)
}

fn done(answer: Result<ProfileReport, AdminError>) -> Response {
    match answer {
        Ok(_) => respond::see("/plan"),
        Err(error) => refused(&error),
    }
}

fn may_record(state: &ConsoleState, visitor: &Visitor) -> bool {
    state.may(&visitor.caller, Action::NodeProfile, Object::Node)
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

fn content(report: &ProfileReport, token: Option<&str>, more: Option<&str>) -> Markup {
    let recording = report.recording.as_ref();
    html! {
        div.title { h1 { "Plan" } span.sub { "which media this workload needs" } }
        section.card.stack { (recorded(recording, token)) }
        @if let Some(recording) = recording.filter(|recording| !recording.structures.is_empty()) {
            (memory(recording, more))
            (curves(&recording.structures))
        }
        (files(report))
        (how_to_go_on(report))
    }
}

fn recorded(recording: Option<&RecordingStatus>, token: Option<&str>) -> Markup {
    let state = recording.map(|recording| recording.state);
    let is_busy = matches!(state, Some(RecordingState::Running | RecordingState::Recovering));
    html! {
        h2 { "The profile" }
        @match recording {
            None => { p { "Nothing has been recorded since the node started. Record a day with its busiest hour: the node goes on as it is, and no key and no byte of a message is in a profile." } }
            Some(recording) => { (facts(recording)) }
        }
        @if let Some(token) = token {
            @if is_busy {
                form action="/plan/stop" method="post" { (token_field(token)) button { "Stop the recording" } }
            } @else {
                form.fields action="/plan/start" method="post" {
                    (token_field(token))
                    div.field {
                        label for="hours" { "Record for" }
                        select #hours name="hours" { @for (hours, name) in LENGTHS { option value=(hours) selected[hours == 24] { (name) } } }
                    }
                    div { button { "Start a recording" } }
                }
            }
        }
    }
}

fn state_of(recording: &RecordingStatus) -> Markup {
    match recording.state {
        RecordingState::Running => html! { span.tag.good { "recording" } },
        RecordingState::Recovering => html! { span.tag.warn { "being recovered" } },
        RecordingState::Complete => html! { span.tag.good { "complete" } },
        RecordingState::Interrupted => html! { span.tag.warn { "interrupted" } },
        RecordingState::Failed => html! { span.tag.bad { "failed" } },
    }
}

fn facts(recording: &RecordingStatus) -> Markup {
    let length = |seconds: u64| span(seconds as f64 * 1e6);
    html! {
        p { b.break { (recording.name) } " " (state_of(recording)) @if !recording.why.is_empty() { " " span.sub.break { (recording.why) } } }
        dl.facts {
            div { dt { "Recorded" } dd { (length(recording.seconds)) " of " (length(recording.for_seconds)) ", since " (time(recording.begun_us)) } }
            div { dt { "Accesses of pages" } dd { (count(recording.accesses)) " to " (bytes(recording.touched_bytes)) } }
            div { dt { "In the sampled stream" } dd { (count(recording.sampled)) ", " (percent(recording.rate)) " of all pages" @if recording.dropped > 0 { "; " (count(recording.dropped)) " lost" } } }
            div { dt { "Found by the cache, as it counted" } dd { @match recording.measured_hit_ratio { Some(part) => { (percent(part)) } None => { "-" } } } }
            div { dt { "Memory of the recording" } dd { (bytes(recording.memory_bytes)) } }
        }
    }
}

/// What the page cache finds with its memory, and with more.
fn memory(recording: &RecordingStatus, more: Option<&str>) -> Markup {
    let Some((now, larger)) = recording.more_memory.split_first() else { return html! {} };
    html! {
        section.card.stack {
            h2 { "What more memory would give" }
            p.sub { "By the recorded reuse, for an LRU cache. It says something once the recording has seen the working set." }
            dl.facts {
                div { dt { "Now, " (bytes(now.bytes)) } dd { (percent(now.hit_ratio)) " found" } }
                @for one in larger { div { dt { (bytes(one.bytes.saturating_sub(now.bytes))) " more" } dd { (percent(one.hit_ratio)) " found" } } }
            }
            form.fields action="/plan" method="get" {
                div.field { label for="more" { "GiB more" } input #more name="more" type="number" min="0" max=(MORE_GIB_MAX) step="any" value=(more.unwrap_or_default()); }
                div { button { "Look" } }
            }
            @if let Some(asked) = more { p role="status" { (with_more(recording, now.bytes, asked)) } }
        }
    }
}

/// The answer to: what would so many GiB more give?
fn with_more(recording: &RecordingStatus, cache: u64, asked: &str) -> String {
    let gib = asked.parse::<f64>().ok().filter(|gib| gib.is_finite() && (0.0..=MORE_GIB_MAX).contains(gib));
    let Some(gib) = gib else { return format!("write how many GiB as a number from 0 to {MORE_GIB_MAX}") };
    let Some(all) = recording.structures.iter().find(|one| !one.beside) else {
        return "nothing was used yet".to_owned();
    };
    let size = cache + (gib * GIB) as u64;
    let (before, after) = (1.0 - missed(&all.points, cache), 1.0 - missed(&all.points, size));
    format!("{gib} GiB more: {} found instead of {}", percent(after.max(before)), percent(before))
}

/// The part that a memory of this size misses: that of the largest size of the curve that is no larger.
fn missed(points: &[(u64, f64)], size: u64) -> f64 {
    let below = points.iter().rev().find(|(bytes, _)| *bytes <= size);
    below.or(points.first()).map_or(0.0, |(_, part)| *part)
}

/// The smallest memory that finds so large a part of what any memory can find.
fn enough(points: &[(u64, f64)], part: f64) -> Option<u64> {
    let floor = points.last()?.1;
    points.iter().find(|(_, missed)| *missed <= 1.0 - (1.0 - floor) * part + 1e-9).map(|(bytes, _)| *bytes)
}

/// The curves, as a picture and as a table.
fn curves(structures: &[StructureStatus]) -> Markup {
    let mut lines: Vec<&StructureStatus> = structures.iter().filter(|one| !one.points.is_empty()).collect();
    // The page cache is the first one; of the others those that are used most.
    if let Some((_, others)) = lines.split_first_mut() {
        others.sort_by_key(|one| std::cmp::Reverse(one.reads + one.writes));
    }
    lines.truncate(LINES);
    let head = html! {
        th scope="col" { "Structure" } th.num scope="col" { "Reads" } th.num scope="col" { "Writes" } th.num.wide scope="col" { "Made" } th.num scope="col" { "Used" }
        th.num scope="col" { "Half" } th.num scope="col" { "90 %" } th.num scope="col" { "99 %" } th.num.wide scope="col" { "Not found" }
    };
    let size = |points: &[(u64, f64)], part: f64| enough(points, part).map_or_else(|| "-".to_owned(), bytes);
    let rows = html! {
        @for one in structures {
            tr {
                td.break { b { (one.name) } @if one.beside { " " span.tag { "beside the cache" } } }
                td.num data-label="Reads" { (count(one.reads)) }
                td.num data-label="Writes" { (count(one.writes)) }
                td.num.wide data-label="Made" { (count(one.made)) }
                td.num.nowrap data-label="Used" { @match one.touched_bytes { Some(used) => { (bytes(used)) } None => { "-" } } }
                @for (part, name) in [(0.5, "Half"), (0.9, "90 %"), (0.99, "99 %")] { td.num.nowrap data-label=(name) { (size(&one.points, part)) } }
                td.num.wide data-label="Not found" { @match one.points.last() { Some((_, floor)) => { (percent(*floor)) } None => { "-" } } }
            }
        }
    };
    html! {
        section.card.stack {
            h2 { "What a memory misses, by its size" }
            @if !lines.is_empty() { (picture(&lines)) }
            p.sub { "Half, 90 %, 99 %: the memory that finds so much of what any memory can find; not found: first uses. All that is in the page cache shares its memory; what is beside it has a curve for a memory of its own." }
            (cards("Structures", head, rows))
        }
    }
}

fn picture(lines: &[&StructureStatus]) -> Markup {
    let (low, high) = lines
        .iter()
        .flat_map(|one| &one.points)
        .fold((u64::MAX, 1), |(low, high), (bytes, _)| (low.min(*bytes), high.max(*bytes)));
    let (low, high) = (low.max(1) as f64, (high as f64).max(low.max(1) as f64 * 2.0));
    let x = |bytes: u64| ((bytes.max(1) as f64 / low).ln() / (high / low).ln()).clamp(0.0, 1.0) * PICTURE.0;
    let path = |one: &StructureStatus| {
        let mut path = String::new();
        for (bytes, part) in &one.points {
            let y = (1.0 - part.clamp(0.0, 1.0)) * PICTURE.1;
            path.push_str(&format!("{}{:.1} {y:.1}", if path.is_empty() { 'M' } else { 'L' }, x(*bytes)));
        }
        // Beyond its largest size a curve stays where it is.
        path + &format!("H{}", PICTURE.0)
    };
    let names: Vec<&str> = lines.iter().map(|one| one.name.as_str()).collect();
    html! {
        figure.curves {
            div.scale aria-hidden="true" { span { "100 % missed" } span { "50 %" } span { "0 %" } }
            svg viewBox={ "0 0 " (PICTURE.0) " " (PICTURE.1) } width="100%" height=(PICTURE.1) preserveAspectRatio="none" role="img"
                aria-label={ "The part of the accesses that a memory misses, by its size: " (names.join(", ")) "; the table below has the figures" } {
                @for part in [0.25, 0.5, 0.75] { path.rule d={ "M0 " (PICTURE.1 * part) "H" (PICTURE.0) } vector-effect="non-scaling-stroke" {} }
                @for (at, one) in lines.iter().enumerate() { path class={ "line line" (at) } d=(path(one)) vector-effect="non-scaling-stroke" {} }
            }
            div.sizes aria-hidden="true" { span { (bytes(low as u64)) } span { (bytes((low * high).sqrt() as u64)) } span { (bytes(high as u64)) } }
            figcaption { @for (at, one) in lines.iter().enumerate() { span.key { i class={ "line" (at) } {} (one.name) } } }
        }
    }
}

fn files(report: &ProfileReport) -> Markup {
    html! {
        @if !report.files.is_empty() {
            section.card {
                h2 { "Profiles of this node" }
                dl.facts { @for file in &report.files { div { dt.break { (file.name) } dd { (bytes(file.bytes)) } } } }
            }
        }
    }
}

/// The commands from here to a plan.
fn how_to_go_on(report: &ProfileReport) -> Markup {
    let recording = report.recording.as_ref();
    let is_running = recording.is_some_and(|recording| recording.state == RecordingState::Running);
    let name = report.files.last().map_or("NAME", |file| file.name.as_str());
    html! {
        section.card.stack {
            h2 { "How to go on" }
            p { "A plan is the cheapest mix of media that meets a target: made from a profile, this machine or another one, and dated prices of your own. It needs no network." }
            div.commands {
                @if is_running { (command("terrace profile stop --out day.tprof")) }
                @else if report.files.is_empty() { (command("terrace profile start --for 24h")) }
                @else { (command(&format!("terrace profile fetch {name} --out day.tprof"))) }
                (command("terrace profile show day.tprof"))
                (command("terrace tier list --json > machine.json"))
                (command("terrace plan --profile day.tprof --machine machine.json --dram ddr5 --prices prices.toml --p99-commit 1ms --out plan"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use node::profiling::{MoreMemory, ProfileFile};

    use super::*;

    fn recording() -> RecordingStatus {
        let structure = |name: &str, beside: bool, points: &[(u64, f64)]| StructureStatus {
            name: name.into(),
            beside,
            reads: 1_000_000,
            writes: 5,
            made: 0,
            touched_bytes: beside.then_some(64 << 20),
            points: points.to_vec(),
        };
        let json = serde_json::json!({
            "name": "<b>day</b>", "state": "running", "why": "", "begun_us": 0, "seconds": 90, "for_seconds": 86400, "accesses": 1_000_010,
            "sampled": 10, "rate": 0.5, "dropped": 3, "left_out": 0, "touched_bytes": 1u64 << 33, "memory_bytes": 1 << 20,
            "measured_hit_ratio": 0.92, "more_memory": []
        });
        let recording: RecordingStatus =
            serde_json::from_value(json).expect("a status of an earlier program is read too");
        let gib = 1u64 << 30;
        RecordingStatus {
            more_memory: vec![
                MoreMemory { bytes: gib, hit_ratio: 0.9 },
                MoreMemory { bytes: 2 * gib, hit_ratio: 0.95 },
            ],
            structures: vec![
                structure("page cache", false, &[(gib / 2, 0.2), (gib, 0.1), (2 * gib, 0.05), (4 * gib, 0.02)]),
                structure("volumes", true, &[(1 << 20, 1.0), (64 << 20, 0.25)]),
            ],
            ..recording
        }
    }

    #[test]
    fn the_page_shows_curves_and_buttons_escaped_and_only_to_who_may_record() {
        let report = ProfileReport {
            recording: Some(recording()),
            files: vec![ProfileFile { name: "week".into(), bytes: 5 << 20 }],
        };
        let with = content(&report, Some("token"), None).into_string();
        for part in [
            "&lt;b&gt;day",
            "recording",
            "Stop the recording",
            "1.0 GiB more",
            "95.0 %",
            "beside the cache",
            "<svg",
            "line1",
            "64.0 MiB",
            "terrace profile stop --out day.tprof",
            "terrace plan --profile day.tprof",
            "week",
        ] {
            assert!(with.contains(part), "{part} is not in {with}");
        }
        assert!(!with.contains("<b>day") && !with.contains("style=") && !with.contains("<script"), "{with}");
        let without = content(&report, None, None).into_string();
        assert!(!without.contains("<form action=\"/plan/st") && !without.contains("Stop the recording"), "{without}");
        let none = content(&ProfileReport::default(), Some("token"), None).into_string();
        assert!(none.contains("Start a recording") && none.contains("terrace profile start --for 24h"), "{none}");
        assert!(!none.contains("<svg"));
    }

    #[test]
    fn so_many_gib_more_find_what_the_curve_says_and_what_is_no_number_is_said() {
        let recording = recording();
        let gib = 1u64 << 30;
        for (asked, says) in [
            ("1", "1 GiB more: 95.0 % found instead of 90.0 %"),
            ("0", "0 GiB more: 90.0 % found instead of 90.0 %"),
            ("0.5", "0.5 GiB more: 90.0 % found instead of 90.0 %"),
            ("100", "100 GiB more: 98.0 % found instead of 90.0 %"),
            ("x", "a number"),
            ("-1", "a number"),
            ("nan", "a number"),
            ("1e300", "a number"),
        ] {
            let said = with_more(&recording, gib, asked);
            assert!(said.contains(says), "{asked}: {said}");
        }
        let points = &recording.structures[0].points;
        assert_eq!((enough(points, 0.5), enough(points, 0.99)), (Some(gib / 2), Some(4 * gib)));
        assert_eq!((enough(&[], 0.5), missed(&[], 1)), (None, 0.0));
    }
}
