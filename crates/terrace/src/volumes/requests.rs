//! What is asked of the volumes of a node, and what they report: the same from a command beside a running node (over its control
//! socket) and from one that works on the data directory alone.
//!
//! ```text
//!   terrace volume ...  --  `volume {"verb": "status", ...}`  -->  VolumeHost::handle
//! ```

use std::path::PathBuf;

use interop::production::units::Bytes;
use nbd::NbdUri;
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
    /// Change the limits of its clients.
    Limit {
        /// The volume.
        name: String,
        /// Requests a second; 0: no limit. Without: as it is.
        #[serde(default)]
        iops: Option<u64>,
        /// Bytes a second; 0: no limit. Without: as it is.
        #[serde(default)]
        bytes_per_second: Option<u64>,
    },
    /// Wrap the data keys of an encrypted one with the secret of another file.
    Rekey {
        /// The volume.
        name: String,
        /// The file with the new secret.
        key_file: PathBuf,
        /// Add a data key, which encrypts what is written from the next opening on.
        new_data_key: bool,
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
    /// Its blocks take space when they are written, and give it back when they are discarded.
    #[serde(default)]
    pub thin: bool,
    /// Encrypt it with the secret in this file.
    pub key_file: Option<PathBuf>,
}

/// Where a copy shall lie: `TIER[,journal=TIER][,cache=TIER:SIZE[,page=SIZE][,reads]]`, or the address of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedCopy {
    /// The tier of its blocks, or the URI of an NBD export.
    pub tier: String,
    /// The tier of its journal. Without: that of the cache if there is one, else that of the blocks.
    pub journal: Option<String>,
    /// Its write-back cache.
    pub cache: Option<WantedCache>,
}

/// A write-back cache that is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WantedCache {
    /// Its tier.
    pub tier: String,
    /// Its size.
    pub bytes: u64,
    /// Size of its pages, if not the default.
    pub page_bytes: Option<u64>,
    /// Whether reads are cached too.
    pub caches_reads: bool,
}

impl WantedCopy {
    /// Whether it is an export of another node.
    pub fn is_export(&self) -> bool {
        self.tier.contains(':')
    }

    fn on(tier: &str) -> WantedCopy {
        WantedCopy { tier: tier.to_owned(), journal: None, cache: None }
    }
}

/// The words before the options of a copy, for errors.
const COPY_HELP: &str =
    "write TIER, then as needed journal=TIER, cache=TIER:SIZE, page=SIZE, reads; or an address as nbd://host/name";

impl std::str::FromStr for WantedCopy {
    type Err = String;

    fn from_str(text: &str) -> Result<WantedCopy, String> {
        if text.contains("://") {
            let uri: NbdUri = text.parse().map_err(|error: nbd::NbdError| error.to_string())?;
            return Ok(WantedCopy::on(&uri.to_string()));
        }
        let mut words = text.split(',');
        let tier = words.next().unwrap_or_default();
        if tier.is_empty() || tier.contains(['=', ':']) {
            return Err(format!("a copy begins with the name of a tier: {COPY_HELP}"));
        }
        let mut wanted = WantedCopy::on(tier);
        let size = |text: &str| text.parse::<Bytes>().map(|bytes| bytes.0);
        for word in words {
            let (key, value) = word.split_once('=').unwrap_or((word, ""));
            match (key, wanted.cache.as_mut()) {
                ("journal", _) if !value.is_empty() => wanted.journal = Some(value.to_owned()),
                ("cache", None) => {
                    let (tier, bytes) =
                        value.split_once(':').ok_or("a cache has a tier and a size, as cache=pmem:4GiB")?;
                    let bytes = size(bytes)?;
                    let tier = tier.to_owned();
                    wanted.cache = Some(WantedCache { tier, bytes, page_bytes: None, caches_reads: false });
                }
                ("page", Some(cache)) => cache.page_bytes = Some(size(value)?),
                ("reads", Some(cache)) if value.is_empty() => cache.caches_reads = true,
                ("page" | "reads", None) => {
                    return Err(format!("`{word}` belongs to a cache: put cache=TIER:SIZE before it"));
                }
                _ => return Err(format!("`{word}` is not known here: {COPY_HELP}")),
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
    /// It is thin and serves; data that needs space is refused, since a medium has none.
    NoSpace,
    /// It serves reads; writes wait for copies.
    Frozen,
    /// Another owner has taken it over: nothing is served here.
    Superseded,
    /// It cannot be opened; this is tried again.
    Failed,
    /// Nothing has opened it.
    Closed,
    /// It was not made completely: delete it.
    Unfinished,
    /// Its description cannot be read.
    Unreadable,
}

impl VolumeState {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            VolumeState::Opening => "opening",
            VolumeState::Open => "open",
            VolumeState::NoSpace => "no space",
            VolumeState::Frozen => "frozen",
            VolumeState::Superseded => "superseded",
            VolumeState::Failed => "failed",
            VolumeState::Closed => "closed",
            VolumeState::Unfinished => "unfinished",
            VolumeState::Unreadable => "unreadable",
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
    /// Why it cannot be opened or serves no longer, or why its description cannot be read.
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
    /// Whether it is encrypted at rest.
    pub is_encrypted: bool,
    /// Whether its blocks have space only where they have content; otherwise all of it is reserved.
    #[serde(default)]
    pub is_thin: bool,
    /// Its copies.
    pub copies: Vec<CopyReport>,
    /// Disks of this machine that several copies share, as far as known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub same_disk: Vec<SharedDisk>,
    /// Requests a second that clients get, if that is limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
    /// Bytes a second that clients get, if that is limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
    /// Its export, if it is exported.
    pub export: Option<ExportReport>,
    /// What it has done since it was opened.
    pub activity: Activity,
}

impl VolumeReport {
    /// Whether nobody has to do something.
    pub fn is_well(&self) -> bool {
        let copies = || self.copies.iter().all(|copy| matches!(copy.state.as_str(), "in-sync" | "syncing" | "open"));
        match self.state {
            VolumeState::Open => copies() && self.activity.damaged == 0,
            VolumeState::Closed | VolumeState::Opening => true,
            VolumeState::Frozen
            | VolumeState::NoSpace
            | VolumeState::Superseded
            | VolumeState::Failed
            | VolumeState::Unfinished
            | VolumeState::Unreadable => false,
        }
    }

    /// That of a volume whose description cannot be read.
    pub fn unreadable(name: &str, why: &str) -> VolumeReport {
        VolumeReport {
            name: name.to_owned(),
            kind: VolumeKind::Mirror,
            state: VolumeState::Unreadable,
            why: Some(why.to_owned()),
            bytes: 0,
            epoch: "-".to_owned(),
            min_copies: 0,
            durability: "-".to_owned(),
            is_encrypted: false,
            is_thin: false,
            copies: Vec::new(),
            same_disk: Vec::new(),
            iops: None,
            bytes_per_second: None,
            export: None,
            activity: Activity::default(),
        }
    }
}

/// What was made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeReport {
    /// Disks that several of its copies share without that being wanted.
    #[serde(default)]
    pub same_disk: Vec<SharedDisk>,
}

/// A disk on which several copies of a volume lie.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedDisk {
    /// Its name, as the system has it.
    pub disk: String,
    /// The numbers of the copies.
    pub copies: Vec<u8>,
}

impl std::fmt::Display for SharedDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let numbers: Vec<String> = self.copies.iter().map(u8::to_string).collect();
        let (last, first) = numbers.split_last().map_or(("", &[][..]), |(last, first)| (last, first));
        let lost = if numbers.len() == 2 { "both are lost" } else { "all of these are lost" };
        write!(f, "copies {} and {last} are on the same disk ({}): if it fails, {lost}", first.join(", "), self.disk)
    }
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
    /// Times that bytes of a copy had the checksum of an encrypted block and not its seal.
    #[serde(default)]
    pub forged: u64,
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
    /// The folder of its blocks, or the address of an export.
    pub at: String,
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
    /// Whether nothing keeps an older owner from writing there.
    pub is_unfenced: bool,
    /// Its space, while it is attached, of a thin volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub space: Option<SpaceReport>,
    /// Its write-back cache, while it is attached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheReport>,
    /// How often it failed.
    pub failures: u64,
    /// Mean time of a read, nanoseconds.
    pub read_ns: u64,
    /// How long reads from it took: `[ns, how many]`, each the upper end of a class.
    #[serde(default)]
    pub read_times: Vec<(u64, u64)>,
    /// Bytes that these read.
    #[serde(default)]
    pub read_bytes: u64,
    /// How long writes took until they were durable in its journal.
    #[serde(default)]
    pub write_times: Vec<(u64, u64)>,
    /// Bytes that these wrote.
    #[serde(default)]
    pub written_bytes: u64,
}

/// The space of a copy of a thin volume, as it is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpaceReport {
    /// Bytes of the medium that its blocks take.
    pub allocated_bytes: u64,
    /// Free bytes of the medium, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free_bytes: Option<u64>,
    /// Whether too little is left for new data.
    pub is_short: bool,
}

/// A write-back cache, as it is reported; counts since it was opened.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CacheReport {
    /// Its tier.
    pub tier: String,
    /// Its size.
    pub bytes: u64,
    /// Bytes of reads that were found in it.
    pub hit_bytes: u64,
    /// Bytes of reads that were not.
    pub miss_bytes: u64,
    /// Dirty bytes: pages that are not destaged.
    pub dirty_bytes: u64,
    /// Bytes that were destaged.
    pub destaged_bytes: u64,
    /// How often a write waited for a place.
    pub stalls: u64,
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
        assert_eq!(of("nvme"), Ok(WantedCopy::on("nvme")));
        assert_eq!(of("nvme,journal=pmem"), Ok(WantedCopy { journal: Some("pmem".into()), ..WantedCopy::on("nvme") }));
        let cache = WantedCache { tier: "pmem".into(), bytes: 4 << 30, page_bytes: Some(65_536), caches_reads: true };
        assert_eq!(
            of("nvme,cache=pmem:4GiB,page=64KiB,reads"),
            Ok(WantedCopy { cache: Some(cache), ..WantedCopy::on("nvme") })
        );
        for address in ["nbd://host:10809/vol-7/b", "nbd+unix:///b?socket=/run/nbd.sock"] {
            assert!(of(address).is_ok_and(|copy| copy.is_export()), "{address}");
        }
        for wrong in [
            "",
            ",",
            "journal=pmem",
            "nvme,pmem",
            "nvme,journal=",
            "nvme,cache=x",
            "nvme,cache=x:1",
            "nvme,page=4KiB",
            "nvme,reads",
            "nvme,cache=x:1GiB,cache=y:1GiB",
            "nvme,cache=x:1GiB,reads=yes",
            "http://host/x",
            "nvme:1GiB",
        ] {
            assert!(of(wrong).is_err(), "{wrong:?}");
        }
    }
}
