//! Alerts and the history of figures for the console: requests of the control socket, as other pages have theirs.

use async_trait::async_trait;
use node::Clock;
use node::identity::Caller;
use node_metrics::alerts::{AlertKey, AlertNote, Firing};
use node_metrics::history::HistoryRange;
use serde_json::json;
use web_console::watch::{
    AlertLine, AlertLineState, AlertNoteLine, AlertRuleLine, AlertsView, HistoryLine, HistoryView, SilenceAsked,
    SilenceLine,
};
use web_console::{AdminError, WatchAdmin};

use super::admin::NodeAdmin;
use crate::alerts::{self, AlertRequest, ListedAlerts, ShownRules};
use crate::history::{self, HistoryRequest, ListedSeries, ShownSeries};

/// Lines of what was that a page shows.
const NOTES: usize = 50;

fn alert_line(request: &AlertRequest) -> String {
    format!("{} {}", alerts::REQUEST, json!(request))
}

fn shown_alert((key, firing): (AlertKey, Firing), is_silenced: bool) -> AlertLine {
    let state = match firing.began_us {
        None => AlertLineState::Waits,
        Some(_) if is_silenced => AlertLineState::Silenced,
        Some(_) if firing.is_escalated => AlertLineState::Escalated,
        Some(_) => AlertLineState::On,
    };
    let AlertKey { rule, subject } = key;
    AlertLine { rule, subject, since_us: firing.since_us, state, told: firing.told, text: firing.text }
}

fn shown_note(note: AlertNote) -> AlertNoteLine {
    let AlertNote { at_us, what, rule, subject, text } = note;
    AlertNoteLine { at_us, what, rule, subject, text }
}

fn shown_series(of: &ListedSeries) -> HistoryLine {
    let text = |value: f32| history::shown(value, &of.unit);
    HistoryLine {
        series: of.series.clone(),
        last: text(of.last),
        least: text(of.least),
        mean: text(of.mean),
        most: text(of.most),
    }
}

/// A range until now, without points.
fn view_of(range: HistoryRange) -> HistoryView {
    let until_us = Clock::system().now_us();
    let since_us = until_us.saturating_sub(range.length_s() * 1_000_000);
    HistoryView { since_us, until_us, step_s: range.step_s(), ..HistoryView::default() }
}

fn with_points(view: HistoryView, ShownSeries { series, points, .. }: ShownSeries) -> HistoryView {
    let point = |point: &node_metrics::history::HistoryPoint| {
        [point.at_us as f64, f64::from(point.mean), f64::from(point.least), f64::from(point.most)]
    };
    let shown = points.iter().map(point).collect();
    HistoryView { points: shown, lines: history::listed(series, &points).iter().map(shown_series).collect(), ..view }
}

#[async_trait]
impl WatchAdmin for NodeAdmin {
    async fn alerts(&self, caller: &Caller) -> Result<AlertsView, AdminError> {
        let listed: ListedAlerts = self.read(caller, &alert_line(&AlertRequest::List)).await?;
        let rules: ShownRules = self.read(caller, &alert_line(&AlertRequest::Rules)).await?;
        let notes: Vec<AlertNote> = self.read(caller, &alert_line(&AlertRequest::History { last: NOTES })).await?;
        let silences = listed.silences;
        let line = |(key, firing): (AlertKey, Firing)| {
            let is_silenced = silences.iter().any(|silence| silence.matches(&key));
            shown_alert((key, firing), is_silenced)
        };
        let alerts = listed.alerts.into_iter().map(line).collect();
        let rule =
            |rule: alerts::ShownRule| AlertRuleLine { name: rule.name, when: rule.when, channels: rule.channels };
        let rules = rules.rules.into_iter().map(rule).collect();
        let silence = |silence: node_metrics::alerts::Silence| SilenceLine {
            number: silence.number,
            rule: silence.rule,
            subject: silence.subject,
            until_us: silence.until_us,
            reason: silence.reason,
            by: silence.by,
        };
        Ok(AlertsView {
            alerts,
            silences: silences.into_iter().map(silence).collect(),
            waiting: listed.waiting,
            rules,
            notes: notes.into_iter().map(shown_note).collect(),
        })
    }

    async fn silence_alerts(&self, caller: &Caller, asked: &SilenceAsked) -> Result<u64, AdminError> {
        let request = AlertRequest::Silence {
            rule: asked.rule.clone(),
            subject: asked.subject.clone(),
            until_us: Clock::system().now_us().saturating_add(i64::from(asked.minutes) * 60_000_000),
            reason: asked.reason.clone(),
        };
        self.read(caller, &alert_line(&request)).await
    }

    async fn unsilence_alerts(&self, caller: &Caller, number: u64) -> Result<(), AdminError> {
        self.read(caller, &alert_line(&AlertRequest::Unsilence { number })).await
    }

    async fn history(&self, caller: &Caller, series: Option<&str>, range: &str) -> Result<HistoryView, AdminError> {
        let range: HistoryRange = range.parse().map_err(AdminError::Refused)?;
        let mut view = view_of(range);
        let request = match series {
            None => HistoryRequest::List { range },
            Some(series) => HistoryRequest::Points { series: series.to_owned(), range },
        };
        let line = format!("{} {}", history::REQUEST, json!(request));
        if series.is_none() {
            let all: Vec<ListedSeries> = self.read(caller, &line).await?;
            view.lines = all.iter().map(shown_series).collect();
            return Ok(view);
        }
        let shown: ShownSeries = self.read(caller, &line).await?;
        Ok(with_points(view, shown))
    }

    async fn history_names(&self, caller: &Caller) -> Result<Vec<String>, AdminError> {
        self.read(caller, &format!("{} {}", history::REQUEST, json!(HistoryRequest::Names))).await
    }

    async fn histories(
        &self,
        caller: &Caller,
        series: &[String],
        range: &str,
    ) -> Result<Vec<(String, HistoryView)>, AdminError> {
        let range: HistoryRange = range.parse().map_err(AdminError::Refused)?;
        let request = HistoryRequest::Several { series: series.to_vec(), range };
        let all: Vec<ShownSeries> = self.read(caller, &format!("{} {}", history::REQUEST, json!(request))).await?;
        Ok(all.into_iter().map(|shown| (shown.series.clone(), with_points(view_of(range), shown))).collect())
    }
}
