//! History: how a figure was, up to a year ago, as a picture that needs no script, with least, mean and most.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use maud::{Markup, html};

use super::refused;
use crate::address::target;
use crate::form::Fields;
use crate::format::{time, word};
use crate::gate::Visitor;
use crate::layout::{self, Extras, Place, command, table};
use crate::respond;
use crate::state::ConsoleState;
use crate::watch::{HistoryLine, HistoryView};

/// Ranges to choose from.
const RANGES: [(&str, &str); 5] =
    [("1h", "an hour"), ("1d", "a day"), ("1w", "a week"), ("1m", "35 days"), ("1y", "400 days")];

/// Width and height of the picture, in its own units.
const PICTURE: (f64, f64) = (1_000.0, 220.0);

/// `GET /history`
pub(crate) async fn show(State(state): State<Arc<ConsoleState>>, visitor: Visitor, fields: Fields) -> Response {
    let range = fields.get("range").unwrap_or("1h").to_owned();
    let series = fields.get("figure").map(str::to_owned);
    let view = match state.admin.history(&visitor.caller, series.as_deref(), &range).await {
        Ok(view) => view,
        Err(error) => return refused(&error),
    };
    let main = html! {
        div.title {
            h1 { @match &series { Some(series) => { (series) } None => { "History" } } }
            div.act {
                @for (key, name) in RANGES {
                    a.button href=(address(series.as_deref(), key)) aria-current=[(key == range).then_some("true")] { (name) }
                }
            }
        }
        @if series.is_some() {
            section.card { (picture(&view)) }
            p { a href=(address(None, &range)) { "All figures" } }
        } @else {
            section.card { @if view.lines.is_empty() { p.empty { "Nothing was kept yet." } } @else { (lines(&view.lines, &range)) } }
        }
        div.commands { (command(&terminal(series.as_deref(), &range))) }
    };
    respond::page(StatusCode::OK, layout::page(&state, &visitor, ("History", Place::History, Extras::None), "", main))
}

fn address(series: Option<&str>, range: &str) -> String {
    match series {
        Some(series) => target("/history", &[("figure", series), ("range", range)]),
        None => target("/history", &[("range", range)]),
    }
}

fn terminal(series: Option<&str>, range: &str) -> String {
    let series = series.and_then(word).map(|series| format!(" {series}")).unwrap_or_default();
    format!("terrace history{series} --range {}", word(range).unwrap_or_default())
}

fn lines(lines: &[HistoryLine], range: &str) -> Markup {
    let head = html! {
        th scope="col" { "Figure" } th.num scope="col" { "Last" } th.num scope="col" { "Least" } th.num scope="col" { "Mean" }
        th.num scope="col" { "Most" }
    };
    let rows = html! {
        @for line in lines {
            tr {
                td.break { a href=(address(Some(&line.series), range)) { (line.series) } }
                td.num { (line.last) } td.num { (line.least) } td.num { (line.mean) } td.num { (line.most) }
            }
        }
    };
    table("Figures", head, rows)
}

/// A picture with its range and its figures.
fn picture(view: &HistoryView) -> Markup {
    let Some(summary) = view.lines.first() else { return picture_of(view, PICTURE.1) };
    html! {
        (picture_of(view, PICTURE.1))
        p.sub { (time(view.since_us)) " to " (time(view.until_us)) ", from 0 to " (summary.most) }
        dl.facts {
            div { dt { "Last" } dd { (summary.last) } }
            div { dt { "Least" } dd { (summary.least) } }
            div { dt { "Mean" } dd { (summary.mean) } }
            div { dt { "Most" } dd { (summary.most) } }
        }
    }
}

/// A band from least to most, and a line of the mean; gaps where nothing was kept. So high, in its own units.
pub(super) fn picture_of(view: &HistoryView, height: f64) -> Markup {
    let Some(summary) = view.lines.first() else { return html! { p.empty { "Nothing was kept in this range." } } };
    let top = view.points.iter().map(|point| point[3]).fold(0.0, f64::max);
    let top = if top > 0.0 { top } else { 1.0 };
    let span = (view.until_us - view.since_us).max(1) as f64;
    let x = |at: f64| ((at - view.since_us as f64) / span * PICTURE.0).clamp(0.0, PICTURE.0);
    let y = |value: f64| height - (value / top).clamp(0.0, 1.0) * height;
    let (mut band, mut mean, mut before) = (String::new(), String::new(), None::<f64>);
    for [at, middle, least, most] in &view.points {
        // A bar of its own for each interval: what is missing is seen as missing.
        let (left, right) = (x(*at), x(*at + view.step_s as f64 * 1e6));
        band.push_str(&format!(
            "M{left:.1} {:.1}H{right:.1}V{:.1}H{left:.1}Z",
            y(*most),
            y(*least).max(y(*most) + 0.5)
        ));
        let joins = before.is_some_and(|end| at - end < 1e6);
        mean.push_str(&format!("{}{left:.1} {:.1}H{right:.1}", if joins { 'L' } else { 'M' }, y(*middle)));
        before = Some(*at + view.step_s as f64 * 1e6);
    }
    html! {
        svg viewBox={ "0 -4 " (PICTURE.0) " " (height + 8.0) } width="100%" height=(height + 8.0) preserveAspectRatio="none" role="img"
            aria-label={ (summary.series) ": least " (summary.least) ", mean " (summary.mean) ", most " (summary.most) } {
            path d=(band) fill="currentColor" fill-opacity="0.22" {}
            path d=(mean) fill="none" stroke="currentColor" stroke-width="1.5" vector-effect="non-scaling-stroke" {}
        }
    }
}

/// `GET /api/v1/history?figure=&range=`
pub(crate) async fn as_json(State(state): State<Arc<ConsoleState>>, visitor: Visitor, fields: Fields) -> Response {
    let range = fields.get("range").unwrap_or("1h");
    match state.admin.history(&visitor.caller, fields.get("figure"), range).await {
        Ok(view) => respond::json_of(&view),
        Err(error) => refused(&error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_a_bar_for_each_point_and_a_gap_where_nothing_was_kept() {
        let second = 1e6;
        let point = |at: f64, value: f64| [at * second, value, value / 2.0, value * 2.0];
        let line = HistoryLine { series: "<b>".to_owned(), most: "8 1/s".to_owned(), ..HistoryLine::default() };
        let view = HistoryView {
            lines: vec![line],
            points: vec![point(0.0, 1.0), point(10.0, 2.0), point(50.0, 4.0)],
            since_us: 0,
            until_us: 100_000_000,
            step_s: 10,
        };
        let text = picture(&view).into_string();
        let band = text.split("fill=\"currentColor\"").next().expect("a path").rsplit_once("d=\"").expect("its line").1;
        assert_eq!(band.matches('Z').count(), 3, "{text}");
        let mean = text.split("fill=\"none\"").next().expect("a path").rsplit_once("d=\"").expect("its line").1;
        assert_eq!((mean.matches('M').count(), mean.matches('L').count()), (2, 1), "{text}");
        assert!(!text.contains("<b>") && text.contains("from 0 to 8 1/s"), "{text}");
        assert!(picture(&HistoryView::default()).into_string().contains("Nothing was kept"));
        assert_eq!(terminal(Some("intake"), "1d"), "terrace history intake --range 1d");
    }
}
