//! Media, live: what lies on which medium, real or modelled, and how much goes through it.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};

use super::charts::{self, Chart, ChartLine};
use super::past::{self, PastFigure};
use super::production::card;
use super::{no_figures, not_yet};
use crate::admin::{NodeFigures, TierFigures};
use crate::form::Fields;
use crate::format::{bandwidth, bytes, count, rate, span};
use crate::gate::Visitor;
use crate::layout::{self, Extras, Place, command, live_mark, table};
use crate::live;
use crate::rates::{Rates, TierRates};
use crate::respond;
use crate::state::{ConsolePeer, ConsoleState};
use crate::ticker::Snapshot;

/// Colours of the lines of tiers, in their order.
const COLOURS: [&str; 5] = ["--accent", "--model", "--warn", "--bad", "--dim"];

/// `GET /media`
pub(crate) async fn show(State(state): State<Arc<ConsoleState>>, visitor: Visitor, fields: Fields) -> Response {
    if !state.sees_node(&visitor.caller) {
        return no_figures();
    }
    let Some(snapshot) = state.figures().await else { return not_yet() };
    let range = past::range_of(&fields);
    let past = past::section(&state, &visitor, ("/media", range), past_figures).await;
    let main = html! {
        div.stack hx-sse:connect="/live/media" hx-swap="innerMorph" { (fragment(&state, &visitor, &snapshot)) }
        (past)
        details.more {
            summary { "The same on the command line" }
            div.commands { (command("terrace status")) (command("terrace tier list")) }
        }
    };
    let page = layout::page(&state, &visitor, ("Media", Place::Media, Extras::Charts), "", main);
    respond::page(StatusCode::OK, page)
}

/// `GET /live/media`
pub(crate) async fn live(
    State(state): State<Arc<ConsoleState>>,
    Extension(peer): Extension<ConsolePeer>,
    visitor: Visitor,
) -> Response {
    if !state.sees_node(&visitor.caller) {
        return no_figures();
    }
    live::stream_of(&state, visitor, peer, fragment)
}

fn charts(figures: &NodeFigures) -> Vec<Chart> {
    let of_tier = |(at, tier): (usize, &TierFigures)| {
        let name = tier.name.clone();
        ChartLine {
            label: format!("{}{}", tier.name, if tier.real { "" } else { " (modelled)" }),
            colour: COLOURS[at % COLOURS.len()],
            unit: " /s",
            of: Box::new(move |point| point.tiers.get(&name).copied()),
        }
    };
    let write = ChartLine {
        label: "journal write".to_owned(),
        colour: "--warn",
        unit: " us",
        of: Box::new(|point| point.journal_write_us),
    };
    vec![
        Chart {
            id: "operations",
            label: "Reads and writes a second by tier, over the last minutes",
            lines: figures.tiers.iter().enumerate().map(of_tier).collect(),
        },
        Chart {
            id: "latency",
            label: "Mean time of a write of the journal with its flush, in microseconds, over the last minutes",
            lines: vec![write],
        },
    ]
}

/// The figures of media whose history is on the page: hits of the cache, then bytes and times by tier and structure, as they are kept.
fn past_figures(names: &[String]) -> Vec<PastFigure> {
    let mut figures = vec![PastFigure::new("cache_hit", "Cache hits")];
    for (end, words) in [
        (".written_bytes", "written, a second"),
        (".write_p99", "99 % of writes, time"),
        (".read_bytes", "read, a second"),
        (".read_p99", "99 % of reads, time"),
    ] {
        let of_media = names.iter().filter_map(|name| Some((name, name.strip_prefix("medium.")?.strip_suffix(end)?)));
        figures.extend(of_media.map(|(name, place)| PastFigure::new(name, format!("{place}: {words}"))));
    }
    figures.retain(|figure| names.contains(&figure.series));
    figures
}

/// The sum of what is known.
fn total(rates: &Rates, of: impl Fn(&TierRates) -> Option<f64>) -> Option<f64> {
    let known: Vec<f64> = rates.tiers.values().filter_map(of).collect();
    (!known.is_empty()).then(|| known.iter().sum())
}

/// What is live of the page.
fn fragment(_: &ConsoleState, _: &Visitor, snapshot: &Snapshot) -> Markup {
    let (figures, rates) = (&snapshot.figures, &snapshot.rates);
    let charts = charts(figures);
    html! {
        div.title {
            h1 { "Media" }
            @if figures.tiers.iter().all(|tier| tier.real) { span.badge.real { "all real" } }
            div.act { (live_mark()) }
        }
        (modelled_note(figures))
        div.grid.c4 {
            (card("Operations", html! { (rate(total(rates, TierRates::operations))) small { " /s" } }, html! {
                "read " (rate(total(rates, |tier| tier.reads))) ", write " (rate(total(rates, |tier| tier.writes)))
            }))
            (card("Journal write, mean", html! { (rates.journal_write_us.map_or_else(|| "-".to_owned(), span)) }, html! {
                "with its flush; " (rate(rates.journal_records)) " records /s"
            }))
            (card("Bandwidth", html! { (bandwidth(total(rates, TierRates::bytes))) }, html! {
                "read " (bandwidth(total(rates, |tier| tier.read_bytes))) ", write " (bandwidth(total(rates, |tier| tier.written_bytes)))
            }))
            (cache_card(figures, rates))
        }
        div.grid.c2 {
            section.card { h2 { "Operations /s by tier" } (charts[0].host(snapshot)) }
            section.card { h2 { "Journal write, mean (us)" } (charts[1].host(snapshot)) }
        }
        section.card { h2 { "Tiers" } (tiers(figures, rates)) }
        (store_card(figures))
        (charts::newest(&charts, snapshot))
    }
}

/// What figures of a model are, where there is one.
fn modelled_note(figures: &NodeFigures) -> Markup {
    let modelled: Vec<&TierFigures> = figures.tiers.iter().filter(|tier| !tier.real).collect();
    if modelled.is_empty() {
        return html! {};
    }
    html! {
        div.model-note role="note" {
            b {
                @for (at, tier) in modelled.iter().enumerate() { @if at > 0 { ", " } (tier.name) }
                @if modelled.len() == 1 { " is modelled." } @else { " are modelled." }
            }
            " Its times are those of a model of the medium, not of hardware, and what lies there survives no more than its host lets it."
        }
    }
}

fn cache_card(figures: &NodeFigures, rates: &Rates) -> Markup {
    let percent = |part: f64| format!("{:.1} %", part * 100.0);
    let sizes = html! {
        (figures.cache.mode) ", " (bytes(figures.cache.near_bytes))
        @if figures.cache.far_bytes > 0 { " near, " (bytes(figures.cache.far_bytes)) " far" }
    };
    match rates.cache {
        None => card("Cache hits", html! { "-" }, html! { "nothing was looked up; " (sizes) }),
        Some([near, far, missed]) => card(
            "Cache hits",
            html! { (percent(near + far)) },
            html! {
                "near " (percent(near)) @if figures.cache.far_bytes > 0 { ", far " (percent(far)) } ", missed " (percent(missed)) "; " (sizes)
            },
        ),
    }
}

/// Real or modelled, so that nobody can miss it.
fn badge(real: bool) -> Markup {
    html! { @if real { span.badge.real { "real" } } @else { span.badge.modelled { "modelled" } } }
}

fn tiers(figures: &NodeFigures, rates: &Rates) -> Markup {
    let head = html! {
        th scope="col" { "Tier" } th scope="col" { span.hidden { "Real or modelled" } } th scope="col" { "Medium" } th scope="col" { "Holds" }
        th.num scope="col" { "Used" } th.num scope="col" { "Read /s" } th.num scope="col" { "Write /s" }
        th.num.wide scope="col" { "Bandwidth" } th.num.wide scope="col" { "Late" } th scope="col" { "Durability" }
    };
    let rows = html! {
        @for tier in &figures.tiers {
            @let of = rates.tiers.get(&tier.name).copied().unwrap_or_default();
            tr {
                td { b { (tier.name) } }
                td { (badge(tier.real)) }
                td.text { (tier.medium) }
                td { (tier.holds.join(", ")) }
                td.num {
                    @match tier.used {
                        Some((used, all)) => {
                            span.nowrap { (bytes(used)) }
                            @if all > 0 { " " meter min="0" max=(all) high=(all / 10 * 9) optimum="0" value=(used.min(all)) title={ (bytes(used)) " of " (bytes(all)) } aria-label={ (tier.name) ": " (bytes(used)) " of " (bytes(all)) } { (bytes(all)) } }
                        }
                        None => { "-" }
                    }
                }
                td.num { (rate(of.reads)) }
                td.num { (rate(of.writes)) }
                td.num.wide.nowrap { (bandwidth(of.bytes())) }
                td.num.wide { @match tier.late { Some(late) => { (count(late)) } None => { "-" } } }
                td { (tier.durability) }
            }
        }
    };
    table("Tiers", head, rows)
}

fn store_card(figures: &NodeFigures) -> Markup {
    html! {
        section.card {
            h2 { "Store, since the start" }
            dl.facts {
                div { dt { "Journal records" } dd { (count(figures.journal.records)) " in " (count(figures.journal.writes)) " writes" } }
                div { dt { "Journal written" } dd { (bytes(figures.journal.bytes)) ", " (bytes(figures.journal.kept_bytes)) " kept" } }
                div { dt { "Checkpoints" } dd { (count(figures.checkpoints)) ", the last took " (span(figures.last_checkpoint_ms as f64 * 1e3)) } }
                div { dt { "Updates waited for a checkpoint" } dd { (count(figures.checkpoint_waits)) " times" } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_media_are_those_that_the_history_has() {
        let names =
            ["cpu", "cache_hit", "medium.home.journal.written_bytes", "medium.home.journal.write_p99", "medium.x.y.z"];
        let figures = past_figures(&names.map(str::to_owned));
        let titles: Vec<&str> = figures.iter().map(|figure| figure.title.as_str()).collect();
        assert_eq!(titles, ["Cache hits", "home.journal: written, a second", "home.journal: 99 % of writes, time"]);
        assert!(past_figures(&[]).is_empty());
    }

    #[test]
    fn a_modelled_tier_is_marked_wherever_it_is_named() {
        let tier = |name: &str, real| TierFigures { name: name.into(), real, ..TierFigures::default() };
        let figures = NodeFigures { tiers: vec![tier("home", true), tier("pmem", false)], ..NodeFigures::default() };
        assert!(modelled_note(&figures).into_string().contains("pmem is modelled"));
        let text = tiers(&figures, &Rates::default()).into_string();
        assert_eq!((text.matches("badge modelled").count(), text.matches("badge real").count()), (1, 1));
        let labels: Vec<String> = charts(&figures)[0].lines.iter().map(|line| line.label.clone()).collect();
        assert_eq!(labels, ["home", "pmem (modelled)"]);
        let all_real = NodeFigures { tiers: vec![tier("home", true)], ..NodeFigures::default() };
        assert!(modelled_note(&all_real).into_string().is_empty());
    }
}
