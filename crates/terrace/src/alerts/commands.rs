//! `terrace alert`: what is on, what is silenced, what was.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use interop::production::units::Span;
use node::{Clock, control};
use node_metrics::alerts::{AlertKey, AlertNote, Firing, Silence};
use serde::Deserialize;
use serde_json::Value;

use super::{AlertRequest, REQUEST};
use crate::place::Place;
use crate::show::{TextTable, time};
use crate::terminal;

/// `terrace alert ...`
#[derive(Debug, Subcommand)]
pub enum AlertCommand {
    /// List alerts that are on, and silences; exit code 1 if one is on that is not silenced
    List {
        #[command(flatten)]
        place: Place,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show the rules and channels in force, of alerts.toml beside the settings of the node
    Rules {
        #[command(flatten)]
        place: Place,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Check a file with rules, without a node
    Check {
        /// The file
        #[arg(default_value = "alerts.toml")]
        file: PathBuf,
    },
    /// Send a trial message to a channel, and say whether it was taken
    Test {
        /// The channel, as `rules` shows it
        channel: String,
        #[command(flatten)]
        place: Place,
    },
    /// Tell nobody for a time; what still holds then is told
    ///
    ///   terrace alert silence old --subject lab-out --for 2h --reason "their server is moved"
    ///   terrace alert silence --for 30m --reason "restart of the network"
    #[command(verbatim_doc_comment)]
    Silence(SilenceArgs),
    /// End a silence before its time
    Unsilence {
        /// Its number, as `list` shows it
        number: u64,
        #[command(flatten)]
        place: Place,
    },
    /// Show what was: begun, over, escalated, silenced, not told; newest first
    History {
        #[command(flatten)]
        place: Place,
        /// Show the newest so many, up to 1000
        #[arg(long, short = 'n', default_value_t = 50)]
        last: usize,
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
    },
}

/// `terrace alert silence`
#[derive(Debug, Args)]
pub struct SilenceArgs {
    /// The rule; without one: all
    pub rule: Option<String>,
    /// Only for this operation, service, tier, volume or matter
    #[arg(long, value_name = "NAME")]
    pub subject: Option<String>,
    /// For how long, as 30m or 2h
    #[arg(long = "for", value_name = "TIME")]
    pub lasts: Span,
    /// Why
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    #[command(flatten)]
    pub place: Place,
}

fn answer_of(place: &Place, request: &AlertRequest) -> anyhow::Result<Value> {
    Ok(control::request(&place.data, &format!("{REQUEST} {}", serde_json::to_string(request)?))?)
}

/// Runs one of the commands.
pub fn run(command: &AlertCommand) -> anyhow::Result<ExitCode> {
    match command {
        AlertCommand::List { place, json } => return list(place, *json),
        AlertCommand::Rules { place, json } => rules(place, *json)?,
        AlertCommand::Check { file } => {
            let rules = super::read_file(file)?;
            println!("{}: {} rules, {} channels", file.display(), rules.rules.len(), rules.channels.len());
        }
        AlertCommand::Test { channel, place } => {
            answer_of(place, &AlertRequest::Test { channel: channel.clone() })?;
            println!("{channel} has taken a trial message");
        }
        AlertCommand::Silence(args) => {
            let span = i64::try_from(args.lasts.0.as_micros()).context("that is too long")?;
            let request = AlertRequest::Silence {
                rule: args.rule.clone(),
                subject: args.subject.clone(),
                until_us: Clock::system().now_us().saturating_add(span),
                reason: args.reason.clone(),
            };
            let number = answer_of(&args.place, &request)?;
            println!("silence {number}; `terrace alert unsilence {number}` ends it before its time");
        }
        AlertCommand::Unsilence { number, place } => {
            answer_of(place, &AlertRequest::Unsilence { number: *number })?;
            println!("silence {number} is over");
        }
        AlertCommand::History { place, last, json } => {
            let notes: Vec<AlertNote> =
                serde_json::from_value(answer_of(place, &AlertRequest::History { last: *last })?)?;
            let mut out = terminal::out();
            if *json {
                for note in &notes {
                    writeln!(out, "{}", serde_json::to_string(note)?)?;
                }
                return Ok(ExitCode::SUCCESS);
            }
            let mut table = TextTable::new(&["at", "what", "alert", "subject", ""]);
            for note in &notes {
                table.row(&[&time(note.at_us), &note.what, &note.rule, &note.subject, &note.text]);
            }
            write!(out, "{table}")?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What the node answers to a list.
#[derive(Debug, Deserialize)]
pub struct ListedAlerts {
    /// Those that wait or are on.
    pub alerts: Vec<(AlertKey, Firing)>,
    /// Silences.
    pub silences: Vec<Silence>,
    /// Messages that a channel has not taken yet.
    pub waiting: BTreeMap<String, usize>,
}

/// A rule as the node answers it.
#[derive(Debug, Deserialize)]
pub struct ShownRule {
    /// Its name.
    pub name: String,
    /// Its condition, as it was written.
    pub when: String,
    for_s: u64,
    only: Vec<String>,
    /// Who is told.
    pub channels: Vec<String>,
    escalate_after_s: Option<u64>,
    escalate_channels: Vec<String>,
}

/// What the node answers about its rules.
#[derive(Debug, Deserialize)]
pub struct ShownRules {
    /// The rules.
    pub rules: Vec<ShownRule>,
    channels: BTreeMap<String, String>,
}

fn rules(place: &Place, json: bool) -> anyhow::Result<()> {
    let answer = answer_of(place, &AlertRequest::Rules)?;
    let mut out = terminal::out();
    if json {
        writeln!(out, "{answer:#}")?;
        return Ok(());
    }
    let shown: ShownRules = serde_json::from_value(answer)?;
    if shown.rules.is_empty() {
        writeln!(out, "no rules are in force: write alerts.toml beside terrace.toml, then `terrace reload`")?;
    }
    let mut table = TextTable::new(&["alert", "when", "for", "only", "tells", "later"]);
    for rule in &shown.rules {
        let only = if rule.only.is_empty() { "all".to_owned() } else { rule.only.join(", ") };
        let tells = rule.escalate_channels.join(", ");
        let later = rule.escalate_after_s.map_or("-".to_owned(), |after| format!("after {after} s {tells}"));
        table.row(&[&rule.name, &rule.when, &format!("{} s", rule.for_s), &only, &rule.channels.join(", "), &later]);
    }
    write!(out, "{table}")?;
    let mut table = TextTable::new(&["channel", "goes to"]);
    shown.channels.iter().for_each(|(name, place)| table.row(&[name, place]));
    write!(out, "\n{table}")?;
    Ok(())
}

fn list(place: &Place, json: bool) -> anyhow::Result<ExitCode> {
    let answer = answer_of(place, &AlertRequest::List)?;
    let listed: ListedAlerts = serde_json::from_value(answer.clone())?;
    let is_silenced = |key: &AlertKey| listed.silences.iter().any(|silence| silence.matches(key));
    let is_loud = listed.alerts.iter().any(|(key, firing)| firing.began_us.is_some() && !is_silenced(key));
    let code = if is_loud { ExitCode::from(1) } else { ExitCode::SUCCESS };
    let mut out = terminal::out();
    if json {
        writeln!(out, "{answer:#}")?;
        return Ok(code);
    }
    let mut table = TextTable::new(&["alert", "subject", "since", "state", "told", ""]);
    for (key, firing) in &listed.alerts {
        let state = match firing.began_us {
            None => "waits",
            Some(_) if is_silenced(key) => "silenced",
            Some(_) if firing.is_escalated => "escalated",
            Some(_) => "on",
        };
        let told = if firing.told.is_empty() { "-".to_owned() } else { firing.told.join(", ") };
        table.row(&[&key.rule, &key.subject, &time(firing.since_us), state, &told, &firing.text]);
    }
    write!(out, "{table}")?;
    if !listed.silences.is_empty() {
        let mut table = TextTable::new(&["silence", "alert", "subject", "until", "by", "reason"]);
        for silence in &listed.silences {
            let any = |name: &Option<String>| name.clone().unwrap_or_else(|| "all".to_owned());
            table.row(&[
                &silence.number.to_string(),
                &any(&silence.rule),
                &any(&silence.subject),
                &time(silence.until_us),
                &silence.by,
                &silence.reason,
            ]);
        }
        write!(out, "\n{table}")?;
    }
    for (channel, messages) in &listed.waiting {
        writeln!(
            out,
            "\n{messages} messages wait for {channel}; the log says why, `terrace alert test {channel}` tries it"
        )?;
    }
    Ok(code)
}
