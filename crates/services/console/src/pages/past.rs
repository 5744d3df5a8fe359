//! Small charts of the last hour or day, from the node's history, for pages about what is now: pictures that need no script.
//!
//! ```text
//!   names of figures --history, with the caller's rights--> points --at most COLUMNS columns--> small pictures, each a link to the page of its figure
//! ```
//!
//! All pictures of a page are one request, which reads each row of the history once. A page waits a second for them and comes without them
//! where that is not enough; a few of these requests are on at a time.
//!
//! Who may not read the history, and a node that has none yet, have the page without them. They are those of the moment at which the page was
//! loaded: what is live of a page does not have them.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use maud::{Markup, html};
use node::identity::{Action, Object};
use node::task::session;
use tokio::sync::{Semaphore, oneshot};

use super::history::picture_of;
use crate::address::target;
use crate::form::Fields;
use crate::gate::Visitor;
use crate::state::ConsoleState;
use crate::watch::HistoryView;

/// Columns of a picture: an hour has 360 points, and a page with many pictures stays small.
const COLUMNS: usize = 90;

/// Pictures of a page at most.
const PICTURES_MAX: usize = 12;

/// How long a page waits for its pictures: it comes without them where the store is slow.
const TIME: Duration = Duration::from_secs(1);

/// Height of a picture, in its own units; the width is that of all pictures.
const HEIGHT: f64 = 90.0;

/// Ranges to choose from.
const RANGES: [(&str, &str); 2] = [("1h", "hour"), ("1d", "day")];

/// A figure of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PastFigure {
    /// Its name in the history.
    pub(super) series: String,
    /// What it is, in words.
    pub(super) title: String,
}

impl PastFigure {
    pub(super) fn new(series: impl Into<String>, title: impl Into<String>) -> PastFigure {
        PastFigure { series: series.into(), title: title.into() }
    }
}

/// The range that a page's query asks for.
pub(super) fn range_of(fields: &Fields) -> &'static str {
    let asked = fields.get("past").unwrap_or(RANGES[0].0);
    RANGES.iter().find(|(key, _)| *key == asked).map_or(RANGES[0].0, |(key, _)| key)
}

/// The section with the charts of figures; nothing where there is none of them. `here`: the path of the page; `figures`: those of the page,
/// by the names of all that there are.
pub(super) async fn section(
    state: &ConsoleState,
    visitor: &Visitor,
    (here, range): (&str, &'static str),
    figures: impl FnOnce(&[String]) -> Vec<PastFigure> + Send + 'static,
) -> Markup {
    if !state.may(&visitor.caller, Action::NodeMetrics, Object::Node) {
        return html! {};
    }
    let (admin, caller) = (Arc::clone(&state.admin), visitor.caller.clone());
    let work = async move {
        let names = admin.history_names(&caller).await.unwrap_or_default();
        let mut figures = figures(&names);
        figures.retain(|figure| names.contains(&figure.series));
        figures.truncate(PICTURES_MAX);
        let series: Vec<String> = figures.iter().map(|figure| figure.series.clone()).collect();
        let mut found = match series.is_empty() {
            true => Vec::new(),
            false => admin.histories(&caller, &series, range).await.unwrap_or_default(),
        };
        let of = |figure: PastFigure| {
            let at = found.iter().position(|(series, _)| *series == figure.series)?;
            Some((figure, coarser(found.swap_remove(at).1)))
        };
        figures.into_iter().filter_map(of).collect::<Vec<_>>()
    };
    match within((&state.pictures, TIME), work).await {
        Some(views) => shown(here, range, &views),
        None => html! { p.sub.past { "The charts took too long to read, and are not shown." } },
    }
}

/// What a work makes, if it has a place and is done in time. One that is given up goes on, as reads of a store do, and has its place until
/// it has ended: so many are on at most, however many pages are asked for.
async fn within<T: Send + 'static>(
    (places, time): (&Arc<Semaphore>, Duration),
    work: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let made = async {
        let place = Arc::clone(places).acquire_owned().await.ok()?;
        let (to, made) = oneshot::channel();
        session("past", async move {
            let _place = place;
            // The page may have been made without it.
            let _ = to.send(work.await);
        });
        made.await.ok()
    };
    tokio::time::timeout(time, made).await.ok().flatten()
}

fn shown(here: &str, range: &str, views: &[(PastFigure, HistoryView)]) -> Markup {
    let name = RANGES.iter().find(|(key, _)| *key == range).map_or("hour", |(_, name)| name);
    html! {
        @if !views.is_empty() {
            section.card.past {
                div.head {
                    h2 { "The last " (name) }
                    div.act {
                        @for (key, name) in RANGES {
                            a.chip href=(target(here, &[("past", key)])) aria-current=[(key == range).then_some("true")] { (name) }
                        }
                    }
                }
                div.grid.c4 {
                    @for (figure, view) in views {
                        div {
                            h3 { a href=(target("/history", &[("figure", &figure.series), ("range", range)])) { (figure.title) } }
                            (picture_of(view, HEIGHT))
                            @if let Some(line) = view.lines.first() { p.sub { (line.last) " now, " (line.least) " to " (line.most) } }
                        }
                    }
                }
            }
        }
    }
}

/// The same in fewer points, each of several: the least of the least, the mean of the means, the most of the most.
fn coarser(view: HistoryView) -> HistoryView {
    let step_us = (view.step_s.max(1) as f64) * 1e6;
    let span_us = (view.until_us - view.since_us).max(1) as f64;
    let merged = (span_us / step_us / COLUMNS as f64).ceil().max(1.0);
    let width_us = merged * step_us;
    let mut points: Vec<([f64; 4], f64)> = Vec::new();
    for point in &view.points {
        let [at, mean, least, most] = *point;
        let column = (at / width_us).floor() * width_us;
        match points.last_mut() {
            Some((last, count)) if last[0] == column => {
                *last = [column, (last[1] * *count + mean) / (*count + 1.0), last[2].min(least), last[3].max(most)];
                *count += 1.0;
            }
            _ => points.push(([column, mean, least, most], 1.0)),
        }
    }
    let points = points.into_iter().map(|(point, _)| point).collect();
    HistoryView { points, step_s: (width_us / 1e6) as i64, ..view }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::HistoryLine;

    fn view(count: usize) -> HistoryView {
        let point = |n: usize| [n as f64 * 1e7, n as f64, n as f64 - 0.5, n as f64 + 0.5];
        HistoryView {
            lines: vec![HistoryLine { series: "intake".into(), most: "9 1/s".into(), ..HistoryLine::default() }],
            points: (0..count).map(point).collect(),
            since_us: 0,
            until_us: 3_600_000_000,
            step_s: 10,
        }
    }

    #[test]
    fn an_hour_has_few_columns_with_the_least_the_mean_and_the_most_of_their_points() {
        let coarse = coarser(view(360));
        assert_eq!((coarse.points.len(), coarse.step_s), (90, 40));
        assert_eq!(coarse.points[1], [4e7, 5.5, 3.5, 7.5]);
        // What was not kept stays missing.
        let mut gap = view(360);
        gap.points.drain(100..200);
        assert_eq!(coarser(gap).points.len(), 65);
    }

    #[tokio::test]
    async fn a_page_does_not_wait_for_slow_pictures_and_these_keep_their_place_until_they_have_ended() {
        let places = Arc::new(Semaphore::new(1));
        let (short, long) = ((&places, Duration::from_millis(20)), (&places, Duration::from_secs(60)));
        assert_eq!(within(long, async { 7 }).await, Some(7));
        let (end, ends) = oneshot::channel::<()>();
        let slow = async move {
            let _ = ends.await;
            8
        };
        assert_eq!(within(short, slow).await, None);
        assert_eq!(within(short, async { 9 }).await, None, "the store is read by the one that is slow");
        end.send(()).expect("it waits");
        assert_eq!(within(long, async { 10 }).await, Some(10));
    }

    #[test]
    fn pictures_are_small_links_and_a_page_without_history_has_none() {
        let figure = PastFigure::new("waiting.<b>", "Waiting");
        let text = shown("/", "1h", &[(figure, coarser(view(360)))]).into_string();
        assert!(
            text.contains("<svg") && text.contains("/history?figure=waiting.%3Cb%3E") && !text.contains("<b>"),
            "{text}"
        );
        assert!(text.len() < 9_000, "{} bytes", text.len());
        assert_eq!(shown("/", "1h", &[]).into_string(), "");
        assert_eq!(range_of(&Fields(vec![("past".into(), "1d".into())])), "1d");
        assert_eq!(range_of(&Fields(vec![("past".into(), "<x>".into())])), "1h");
    }
}
