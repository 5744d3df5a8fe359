//! Charts: a host for the script that draws them, with its lines and first points; and the newest points of a live page.
//!
//! Without the script the host says what it would draw; the figures are in the page in any case.

use maud::{Markup, html};
use serde_json::{Value, json};

use crate::rates::Point;
use crate::ticker::Snapshot;

/// What a line shows of a point; none where it is not known.
type OfPoint = dyn Fn(&Point) -> Option<f64> + Send + Sync;

/// A line of a chart: its name, the variable of its colour, and what it is of a point.
pub(super) struct ChartLine {
    pub(super) label: String,
    pub(super) colour: &'static str,
    pub(super) unit: &'static str,
    pub(super) of: Box<OfPoint>,
}

/// A chart.
pub(super) struct Chart {
    /// Its name in the page.
    pub(super) id: &'static str,
    /// What it shows, for who does not see it.
    pub(super) label: &'static str,
    pub(super) lines: Vec<ChartLine>,
}

/// Few digits: a page has hundreds of points.
fn short(value: Option<f64>) -> Value {
    value.map_or(Value::Null, |value| json!((value * 10.0).round() / 10.0))
}

impl Chart {
    /// The host.
    pub(super) fn host(&self, snapshot: &Snapshot) -> Markup {
        let lines: Vec<Value> = self
            .lines
            .iter()
            .map(|line| json!({ "label": line.label, "colour": line.colour, "unit": line.unit }))
            .collect();
        let history = snapshot.history.lock();
        let mut points = vec![history.points().map(|point| json!(point.at_us / 1_000_000)).collect::<Vec<Value>>()];
        points.extend(self.lines.iter().map(|line| history.points().map(|point| short((line.of)(point))).collect()));
        html! {
            div.chart #(self.id) role="img" aria-label=(self.label) hx-morph-skip
                data-chart=(json!({ "lines": lines })) data-points=(json!(points)) {
                p.empty { "The chart is drawn by a script." }
            }
        }
    }
}

/// The newest points of the charts of a page.
pub(super) fn newest(charts: &[Chart], snapshot: &Snapshot) -> Markup {
    let history = snapshot.history.lock();
    let Some(point) = history.points().last() else {
        return html! { span #points hidden data-at="0" data-values="{}" {} };
    };
    let values: serde_json::Map<String, Value> = charts
        .iter()
        .map(|chart| {
            let values: Vec<Value> = chart.lines.iter().map(|line| short((line.of)(point))).collect();
            (chart.id.to_owned(), json!(values))
        })
        .collect();
    html! { span #points hidden data-at=(point.at_us / 1_000_000) data-values=(json!(values)) {} }
}
