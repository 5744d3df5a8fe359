//! Reads the stored messages after the kills from the node's journal with the history reader: a second check besides
//! the receivers.

use std::collections::HashMap;
use std::path::Path;

use anyhow::Context;
use interop::history::{Filter, History};
use serde::Serialize;

use workload::load::Account;
use workload::messages::control_id;

/// The sent messages that are in the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stored {
    /// Records of messages received.
    pub records: u64,
    /// Those of them beyond the first with one control id: the sender sent again what the node had stored, but not acknowledged.
    pub again: u64,
    /// Records that the node flagged as seen before; to be exact these are `again`.
    pub flagged: u64,
    /// Acknowledged messages that the journal does not hold.
    pub missing: u64,
}

impl Stored {
    /// Reads the journal of the node whose data is in `data`.
    pub(super) fn read(data: &Path, account: &Account) -> anyhow::Result<Stored> {
        let lines = History::open(data).and_then(|history| history.list(&Filter::default()));
        let lines = lines.with_context(|| format!("reading the journal in {}", data.display()))?;
        Ok(count(lines.iter().map(|line| (line.control_id.as_str(), line.duplicate)), account))
    }
}

fn count<'l>(lines: impl Iterator<Item = (&'l str, bool)>, account: &Account) -> Stored {
    let mut stored = Stored::default();
    let mut times: HashMap<&str, u32> = HashMap::new();
    for (id, flagged) in lines {
        stored.records += 1;
        stored.flagged += u64::from(flagged);
        *times.entry(id).or_default() += 1;
    }
    stored.again = stored.records - times.len() as u64;
    let held = times.keys().filter(|id| {
        let message = control_id::read(id.as_bytes());
        message.is_some_and(|(service, sequence)| account.is_acknowledged(service, sequence))
    });
    stored.missing = account.counts().acknowledged - held.count() as u64;
    stored
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_journal_without_an_acknowledged_message_and_a_resend_without_a_flag_are_seen() {
        let mut account = Account::new(1, 1, Duration::ZERO);
        for sequence in 0..3 {
            account.send(0, sequence);
            account.acknowledge(0, sequence);
        }
        account.send(0, 3);
        account.give_up(0, 3);
        let (zero, one, two, three) = ("T4-000-0000000", "T4-000-0000001", "T4-000-0000002", "T4-000-0000003");
        for (lines, expected) in [
            (vec![(zero, false), (one, false), (two, false)], Stored { records: 3, ..Stored::default() }),
            (vec![(zero, false), (one, false), (three, false)], Stored { records: 3, missing: 1, ..Stored::default() }),
            (
                vec![(zero, false), (one, false), (one, true), (two, false)],
                Stored { records: 4, again: 1, flagged: 1, ..Stored::default() },
            ),
            (
                vec![(zero, false), (one, false), (one, false), (two, false)],
                Stored { records: 4, again: 1, ..Stored::default() },
            ),
        ] {
            assert_eq!(count(lines.clone().into_iter(), &account), expected, "{lines:?}");
        }
    }
}
