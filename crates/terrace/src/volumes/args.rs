//! The command line of `terrace volume`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use interop::production::units::Bytes;

use super::requests::WantedCopy;

/// `terrace volume ...`
#[derive(Debug, Subcommand)]
pub enum VolumeCommand {
    /// Make a volume of one to three copies
    ///
    /// A copy lies on a tier of terrace.toml, `home` (the data directory) without any. Each copy has a
    /// journal, which may lie on a faster tier:
    ///
    ///   terrace volume create disk --size 1GiB
    ///   terrace volume create vol-7 --size 100GiB --copy nvme1,journal=pmem --copy nvme2,journal=pmem --copy nvme3
    ///   terrace volume export vol-7
    ///
    /// A copy of a slow tier may have a write-back cache on a fast one, for writes, or for reads too; its
    /// journal then lies there as well:
    ///
    ///   --copy disk,cache=pmem:4GiB                  # pages of 16 KiB, writes only
    ///   --copy disk,cache=pmem:4GiB,page=64KiB,reads
    ///
    /// A copy may lie on another node, on a place made there with --place, or on any NBD server:
    ///
    ///   other-node$ terrace volume create vol-7-b --size 101GiB --place && terrace volume export vol-7-b
    ///   terrace volume create vol-7 --size 100GiB --copy nvme1 --copy nbd://other-node/vol-7-b
    ///
    /// The owner of a volume opens a place under a name with an epoch, and a former owner is refused. On
    /// a server without epochs the copy is unfenced: it never opens a volume alone.
    ///
    /// A write is acknowledged when it is durable in the journal of every copy in sync, and of at least
    /// --min-copies.
    ///
    /// All space is reserved, unless the volume is --thin: then its blocks take space when they are written,
    /// and give it back when clients discard them. A full medium refuses new data (ENOSPC) and nothing else.
    #[command(verbatim_doc_comment)]
    Create(CreateArgs),
    /// List the volumes
    List(ListArgs),
    /// Show the copies of volumes, their state, and what clients do; exit code 1 where something is the matter
    Status(VolumeStatusArgs),
    /// Make a copy anew at another place, while the volume is served
    ///
    /// All content is copied to it, no faster than the volume's upkeep rate, and verified. Until then the
    /// volume has one copy less. The former place is cleared when the new copy is in sync.
    ///
    ///   terrace volume replace vol-7 1                       # on the same tier
    ///   terrace volume replace vol-7 1 --copy nvme4,journal=pmem
    #[command(verbatim_doc_comment)]
    Replace(ReplaceArgs),
    /// Read all blocks of all copies, and repair damaged ones from another copy
    Scrub(NameArgs),
    /// Make a volume larger while nobody uses it
    Grow(GrowArgs),
    /// Change how much clients get, at once and from now on
    ///
    ///   terrace volume limit vol-7 --iops 5000 --bandwidth 200MiB
    ///   terrace volume limit vol-7 --iops none
    #[command(verbatim_doc_comment)]
    Limit(LimitArgs),
    /// Take another key file for an encrypted volume, also while it is used
    ///
    /// The data keys are wrapped with the secret in the new file; no data is written anew, and the former
    /// file is not needed any more. With --new-data-key what is written from the next start on is encrypted
    /// with another data key, too.
    ///
    ///   terrace volume rekey vol-7 --key-file vol-7-2027.key
    #[command(verbatim_doc_comment)]
    Rekey(RekeyArgs),
    /// Export volumes over NBD, now and at each start
    ///
    /// Beside a running node, the node exports them. Without one, this command serves them until Ctrl-C:
    ///
    ///   terrace volume export disk
    ///   nbdinfo 'nbd+unix:///disk?socket=terrace-data/nbd.sock'
    ///
    /// Clients: qemu, nbdcopy, fio (--ioengine=nbd), nbdfuse, the kernel's nbd-client.
    #[command(verbatim_doc_comment)]
    Export(ExportArgs),
    /// Show what volumes do, every second
    Top(TopArgs),
    /// Open a volume that has lost copies, and give up what only these contained
    AcceptLoss(AcceptLossArgs),
    /// Remove a volume with all of its data
    Delete(DeleteArgs),
}

/// Which node, or data directory.
#[derive(Debug, Args)]
pub struct VolumePlace {
    /// The data directory [default: that of terrace.toml, else terrace-data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Settings file; default: terrace.toml in this directory, if there is one
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// `terrace volume create`
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// Its name; also that of its export
    pub name: String,
    /// Its size, a multiple of 64 KiB, as 10GiB
    #[arg(long, value_name = "SIZE")]
    pub size: Bytes,
    /// Where a copy lies, up to three times: TIER, with ,journal=TIER ,cache=TIER:SIZE ,page=SIZE ,reads as needed; or an NBD URI
    #[arg(long = "copy", value_name = "PLACE", default_value = "home")]
    pub copies: Vec<WantedCopy>,
    /// Copies that must work for a write to be acknowledged [default: 2 of 3, 1 of 2]
    #[arg(long, value_name = "N")]
    pub min_copies: Option<u8>,
    /// The copy to read, by number from 0, as long as it works [default: the fastest]
    #[arg(long, value_name = "COPY")]
    pub prefer: Option<u8>,
    /// Allow several copies on one tier, or on tiers of one disk without a warning: one fault can break them together
    #[arg(long)]
    pub share_tiers: bool,
    /// Requests a second that clients get, together
    #[arg(long, value_name = "N")]
    pub iops: Option<u64>,
    /// Bytes a second that clients get, together
    #[arg(long, value_name = "SIZE")]
    pub bandwidth: Option<Bytes>,
    /// Bytes a second that bringing copies up to date and scrubs may take [default: 200 MB]
    #[arg(long, value_name = "SIZE")]
    pub upkeep: Option<Bytes>,
    /// Encrypt it (AES-256-GCM) with the secret in this file: 32 random bytes or more, mode 600; without it the data is lost
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Take space of the media only for what is written, and give it back for what is discarded; tiers of kind file, without caches
    #[arg(long, conflicts_with = "place")]
    pub thin: bool,
    /// Make a place for one copy of another node's volume instead
    #[arg(long)]
    pub place: bool,
    #[command(flatten)]
    pub at: VolumePlace,
}

/// `terrace volume list`
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub at: VolumePlace,
}

/// `terrace volume status`
#[derive(Debug, Args)]
pub struct VolumeStatusArgs {
    /// Only these
    pub names: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub at: VolumePlace,
}

/// `terrace volume replace`
#[derive(Debug, Args)]
pub struct ReplaceArgs {
    /// The volume
    pub name: String,
    /// The number of the copy, as status shows it
    pub number: u8,
    /// Where the new copy lies [default: the tiers of the former one]
    #[arg(long, value_name = "PLACE")]
    pub copy: Option<WantedCopy>,
    /// Return when the new copy is in sync
    #[arg(long)]
    pub wait: bool,
    #[command(flatten)]
    pub at: VolumePlace,
}

/// A volume by name.
#[derive(Debug, Args)]
pub struct NameArgs {
    /// The volume
    pub name: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub at: VolumePlace,
}

/// `terrace volume grow`
#[derive(Debug, Args)]
pub struct GrowArgs {
    /// The volume
    pub name: String,
    /// Its new size, a multiple of 64 KiB
    #[arg(long, value_name = "SIZE")]
    pub size: Bytes,
    #[command(flatten)]
    pub at: VolumePlace,
}

/// `terrace volume limit`
#[derive(Debug, Args)]
pub struct LimitArgs {
    /// The volume
    pub name: String,
    /// Requests a second that clients get, together; `none` or 0: as many as there are
    #[arg(long, value_name = "N", required_unless_present = "bandwidth", value_parser = limit_of_requests)]
    pub iops: Option<u64>,
    /// Bytes a second that clients get, together; `none` or 0: as many as there are
    #[arg(long, value_name = "SIZE", value_parser = limit_of_bytes)]
    pub bandwidth: Option<u64>,
    #[command(flatten)]
    pub at: VolumePlace,
}

/// `terrace volume rekey`
#[derive(Debug, Args)]
pub struct RekeyArgs {
    /// The volume
    pub name: String,
    /// The file with the new secret: 32 random bytes or more, mode 600
    #[arg(long, value_name = "FILE")]
    pub key_file: PathBuf,
    /// Add a data key
    #[arg(long)]
    pub new_data_key: bool,
    #[command(flatten)]
    pub at: VolumePlace,
}

/// A limit, 0 for none.
fn limit_of_requests(text: &str) -> Result<u64, String> {
    let wrong = |error| format!("a number of requests a second, or `none`: {error}");
    if text == "none" { Ok(0) } else { text.parse::<u64>().map_err(|error| wrong(error.to_string())) }
}

fn limit_of_bytes(text: &str) -> Result<u64, String> {
    if matches!(text, "none" | "0") { Ok(0) } else { text.parse::<Bytes>().map(|bytes| bytes.0) }
}

/// `terrace volume export`
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The volumes
    #[arg(required = true)]
    pub names: Vec<String>,
    /// Refuse changes
    #[arg(long, conflicts_with = "stop")]
    pub read_only: bool,
    /// End the export instead; the data stays
    #[arg(long)]
    pub stop: bool,
    /// TCP address [default: that of terrace.toml; none]; not beside a running node
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// Unix socket [default: that of terrace.toml; nbd.sock in the data directory]; not beside a running node
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    #[command(flatten)]
    pub at: VolumePlace,
}

/// `terrace volume top`
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Only these
    pub names: Vec<String>,
    /// Seconds between two lines of a volume
    #[arg(long, default_value_t = 1, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub interval: u64,
    /// End after so many; 0 = never
    #[arg(long, short = 'n', default_value_t = 0, value_name = "TIMES")]
    pub times: u64,
    #[command(flatten)]
    pub at: VolumePlace,
}

/// `terrace volume accept-loss`
#[derive(Debug, Args)]
pub struct AcceptLossArgs {
    /// The volume
    pub name: String,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
    #[command(flatten)]
    pub at: VolumePlace,
}

/// `terrace volume delete`
#[derive(Debug, Args)]
pub struct DeleteArgs {
    /// The volume
    pub name: String,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
    #[command(flatten)]
    pub at: VolumePlace,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_number_or_none() {
        for (text, requests, bytes) in [
            ("none", Some(0), Some(0)),
            ("0", Some(0), Some(0)),
            ("5000", Some(5_000), None),
            ("2MiB", None, Some(2 << 20)),
            ("-1", None, None),
            ("", None, None),
        ] {
            assert_eq!(limit_of_requests(text).ok(), requests, "{text:?}");
            if let Some(bytes) = bytes {
                assert_eq!(limit_of_bytes(text), Ok(bytes), "{text:?}");
            }
        }
        assert!(limit_of_bytes("-1").is_err() && limit_of_bytes("").is_err());
    }
}
