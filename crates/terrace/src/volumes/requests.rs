//! What is asked of the volumes of a node, and what they report: the same from a command beside a running node (over its control
//! socket) and from one that works on the data directory alone.
//!
//! ```text
//!   terrace volume ...  --  `volume {"verb": "status", ...}`  -->  VolumeHost::handle
//! ```

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::description::VolumeKind;

/// The word that the request begins with.
pub const REQUEST: &str = "volume";

/// A request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub enum VolumeRequest {
    /// Make a volume.
    Create(NewVolumeRequest),
    /// Report some volumes, or all.
    Status {
        /// Which ones; empty: all.
        names: Vec<String>,
    },
    /// Make a copy anew, at another place.
    Replace {
        /// The volume.
        name: String,
        /// The number of the copy.
        copy: u8,
        /// Where the new one lies; without: on the tiers where the old one lay.
        wanted: Option<WantedCopy>,
    },
    /// Read all blocks of all copies, repair what is damaged.
    Scrub {
        /// The volume.
        name: String,
    },
    /// Make it larger.
    Grow {
        /// The volume.
        name: String,
        /// Its new size.
        bytes: u64,
    },
    /// Export it, now and at each start.
    Export {
        /// The volume.
        name: String,
        /// Refuse changes.
        read_only: bool,
    },
    /// End its export.
    Unexport {
        /// The volume.
        name: String,
    },
    /// Open it although copies are missing, and give up what only these contain.
    AcceptLoss {
        /// The volume.
        name: String,
    },
    /// Remove it with its data.
    Delete {
        /// The volume.
        name: String,
    },
}

/// A volume to be made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NewVolumeRequest {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: VolumeKind,
    /// Its size.
    pub bytes: u64,
    /// Its copies.
    pub copies: Vec<WantedCopy>,
    /// Copies that must work; the default without.
    pub min_copies: Option<u8>,
    /// The copy that is read.
    pub prefer: Option<u8>,
    /// Requests a second.
    pub iops: Option<u64>,
    /// Bytes a second.
    pub bytes_per_second: Option<u64>,
    /// Bytes a second of resync and scrub.
    pub upkeep_bytes_per_second: Option<u64>,
    /// Several copies may lie on one tier.
    pub share_tiers: bool,
}

/// Where a copy shall lie, as `TIER[,journal=TIER]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedCopy {
    /// The tier of its blocks.
    pub tier: String,
    /// The tier of its journal; with the blocks without.
    pub journal: Option<String>,
}

impl std::str::FromStr for WantedCopy {
    type Err = String;

    fn from_str(text: &str) -> Result<WantedCopy, String> {
        let mut words = text.split(',');
        let tier = words.next().unwrap_or_default();
        let mut wanted = WantedCopy { tier: tier.to_owned(), journal: None };
        if tier.is_empty() || tier.contains('=') {
            return Err("a copy begins with the name of a tier, as `nvme` or `nvme,journal=pmem`".to_owned());
        }
        for word in words {
            match word.split_once('=') {
                Some(("journal", tier)) if !tier.is_empty() => wanted.journal = Some(tier.to_owned()),
                _ => return Err(format!("`{word}` is not known here: write journal=TIER")),
            }
        }
        Ok(wanted)
    }
}

/// The state of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeState {
    /// Its recovery is running.
    Opening,
    /// It serves.
    Open,
    /// It serves reads; writes wait for copies.
    Frozen,
    /// It cannot be opened; this is tried again.
    Failed,
    /// Nothing has opened it.
    Closed,
    /// It was not made completely: delete it.
    Unfinished,
}

impl VolumeState {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            VolumeState::Opening => "opening",
            VolumeState::Open => "open",
            VolumeState::Frozen => "frozen",
            VolumeState::Failed => "failed",
            VolumeState::Closed => "closed",
            VolumeState::Unfinished => "unfinished",
        }
    }
}

/// A volume, as it is reported.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VolumeReport {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: VolumeKind,
    /// Its state.
    pub state: VolumeState,
    /// Why it cannot be opened, or why its description cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Its size.
    pub bytes: u64,
    /// The epoch: `TERM.CHANGE`; of a place, the highest one it has promised.
    pub epoch: String,
    /// Copies that must work.
    pub min_copies: u8,
    /// The durability of an acknowledged write.
    pub durability: String,
    /// Its copies.
    pub copies: Vec<CopyReport>,
    /// Its export, if it is exported.
    pub export: Option<ExportReport>,
    /// What it has done since it was opened.
    pub activity: Activity,
}

/// What a volume has done since it was opened.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Activity {
    /// Latencies of reads: `[ns, how many]`, each the upper end of a class.
    pub reads: Vec<(u64, u64)>,
    /// Latencies of writes.
    pub writes: Vec<(u64, u64)>,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes in the journals that a checkpoint will write in place.
    pub journaled_bytes: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Reads of blocks that are damaged on every copy.
    pub damaged: u64,
    /// Blocks about whose sum the copies disagreed at the opening.
    pub disputed: u64,
    /// Bytes that scrubs have read on each copy.
    pub scrubbed_bytes: u64,
    /// Scrubs that came to the end.
    pub scrubs: u64,
}

/// A copy, as it is reported.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CopyReport {
    /// Its number.
    pub number: u8,
    /// The tier of its blocks.
    pub tier: String,
    /// The tier of its journal.
    pub journal_tier: String,
    /// The folder of its blocks.
    pub folder: PathBuf,
    /// Its medium in words; empty while it is not attached.
    pub medium: String,
    /// False if a model slows it down.
    pub real: bool,
    /// What it is to the volume: `in-sync`, `syncing`, `missing`, `out`, `unknown`.
    pub state: String,
    /// Bytes that it has to be brought, at most.
    pub behind_bytes: u64,
    /// Why it could not be attached the last time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Blocks read from it.
    pub reads: u64,
    /// Damaged blocks that were written anew from another copy.
    pub repaired: u64,
    /// How often it failed.
    pub failures: u64,
    /// Mean time of a read, nanoseconds.
    pub read_ns: u64,
}

/// An export, as it is reported.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExportReport {
    /// Whether changes are refused.
    pub read_only: bool,
    /// Addresses that clients use, as NBD URIs; empty while nothing serves it.
    pub uris: Vec<String>,
    /// Open sessions.
    pub sessions: usize,
    /// Requests answered with an error.
    pub errors: u64,
}

/// What a scrub found.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct ScrubReport {
    /// Bytes read on all copies.
    pub bytes: u64,
    /// Blocks repaired.
    pub repaired: u64,
    /// Blocks damaged on every copy.
    pub damaged: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_a_tier_and_perhaps_another_one_for_its_journal() {
        let of = |text: &str| text.parse::<WantedCopy>();
        assert_eq!(of("nvme"), Ok(WantedCopy { tier: "nvme".into(), journal: None }));
        assert_eq!(of("nvme,journal=pmem"), Ok(WantedCopy { tier: "nvme".into(), journal: Some("pmem".into()) }));
        for wrong in ["", ",", "journal=pmem", "nvme,pmem", "nvme,journal=", "nvme,cache=x"] {
            assert!(of(wrong).is_err(), "{wrong:?}");
        }
    }
}
