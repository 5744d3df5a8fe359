//! One script against a server: record after record over one connection, and the tables gone afterwards.
//!
//! A record that takes longer than [`PATIENCE`] is cancelled and has failed; a connection that breaks is made anew, and the
//! record has failed. Tables and views that were there before the first script stay; a script starts without any other.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;

use super::script::{Expected, Record};
use super::values;
use crate::postgres::{Client, Error};

/// How long a record may take. The slowest that other engines pass take a second or two.
const PATIENCE: Duration = Duration::from_secs(30);

/// The result of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    /// The server refused a record that it should accept.
    Refused {
        code: String,
        message: String,
    },
    /// The server accepted a record that it should refuse.
    Taken,
    /// Other values.
    Differs(String),
    Late,
    Broken(String),
}

/// A connection, and the tables that must not be changed.
pub(super) struct Session {
    address: SocketAddr,
    user: String,
    client: Client,
    /// Tables that were there before.
    kept: BTreeSet<(String, String)>,
}

impl Session {
    pub(super) fn open(address: SocketAddr, user: &str) -> anyhow::Result<Session> {
        let client = connect(address, user)?;
        let mut session = Session { address, user: user.to_owned(), client, kept: BTreeSet::new() };
        session.kept = session.tables()?;
        Ok(session)
    }

    /// Runs a record.
    ///
    /// # Errors
    /// If no connection can be had any more.
    pub(super) fn run(&mut self, record: &Record) -> anyhow::Result<Outcome> {
        let answer = match self.client.query(&record.sql) {
            Ok(answer) => answer,
            Err(Error::Refused { .. }) if record.expected == Expected::Refused => return Ok(Outcome::Passed),
            Err(Error::Refused { code, message }) => return Ok(Outcome::Refused { code, message }),
            Err(error) if error.is_late() => {
                let ended = self.client.canceller().cancel().is_ok() && self.client.drain().is_ok();
                if !ended {
                    self.client = connect(self.address, &self.user)?;
                }
                return Ok(Outcome::Late);
            }
            Err(error) => {
                self.client = connect(self.address, &self.user)?;
                return Ok(Outcome::Broken(error.to_string()));
            }
        };
        Ok(match &record.expected {
            Expected::Done => Outcome::Passed,
            Expected::Refused => Outcome::Taken,
            Expected::Values { letters, order, lines } => {
                values::difference(&answer.rows, letters, *order, lines).map_or(Outcome::Passed, Outcome::Differs)
            }
        })
    }

    /// Drops what the script made.
    pub(super) fn clear(&mut self) -> anyhow::Result<()> {
        let made: Vec<_> = self.tables()?.difference(&self.kept).cloned().collect();
        // Views first: they may be in the way of their tables.
        for wanted in ["v", "r"] {
            for (name, kind) in made.iter().filter(|(_, kind)| kind == wanted) {
                let what = if kind == "v" { "VIEW" } else { "TABLE" };
                let sql = format!("DROP {what} \"{}\"", name.replace('"', "\"\""));
                self.client.query(&sql).with_context(|| format!("clearing away {name}"))?;
            }
        }
        Ok(())
    }

    /// Names and kinds of the tables and views in schema `public`.
    fn tables(&mut self) -> anyhow::Result<BTreeSet<(String, String)>> {
        let sql = "SELECT c.relname, c.relkind FROM pg_catalog.pg_class c \
                   JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace \
                   WHERE n.nspname = 'public' AND c.relkind IN ('r', 'v')";
        let answer = self.client.query(sql).context("asking for the tables")?;
        Ok(answer
            .rows
            .into_iter()
            .filter_map(|row| match &row[..] {
                [Some(name), Some(kind)] => Some((name.clone(), kind.clone())),
                _ => None,
            })
            .collect())
    }
}

fn connect(address: SocketAddr, user: &str) -> anyhow::Result<Client> {
    Client::connect(address, user, PATIENCE).with_context(|| format!("connecting to {address} as {user}"))
}
