//! The errors of a volume, named by what the caller can do about them.

use device::DeviceError;
use journal::JournalError;

/// Why a volume, or one of its copies, refused.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// The description of a new volume, or an option, is not possible. Nothing was changed.
    #[error("volume options: {0}")]
    Options(&'static str),
    /// Too few copies can be read to know which state of the volume is the last one. Bring another copy back, or accept the loss of
    /// what only the missing copies contain.
    #[error(
        "{found} of {copies} copies can be read and {needed} are needed to know the last state of the volume: bring another \
         copy back, or open it with accept_loss"
    )]
    Quorum {
        /// Copies that can be read.
        found: u8,
        /// Copies needed.
        needed: u8,
        /// Copies of the volume.
        copies: u8,
    },
    /// All copies that could serve are unfenced: an old owner could still write there. Bring a fenced copy back.
    #[error("only unfenced copies can be read, and such a copy never opens a volume alone: bring a fenced copy back")]
    OnlyUnfenced,
    /// None of the copies that can be read is in sync. Bring a copy of the in-sync set back.
    #[error("no copy that can be read is in sync (epoch {epoch}, in sync {in_sync}): bring one of these back")]
    NoneInSync {
        /// The epoch of the in-sync set.
        epoch: u64,
        /// Its copies.
        in_sync: String,
    },
    /// Two owners have used the volume side by side, after one of them had accepted a loss. Decide which copies are right, and open
    /// those with accept_loss; replace the others.
    #[error(
        "the copies were used by two owners side by side: open the right ones with accept_loss and replace the others"
    )]
    Diverged,
    /// The place contains a copy of another volume. Nothing was changed.
    #[error("the copy belongs to another volume ({found}, this is {expected}): it is left as it is")]
    Foreign {
        /// The volume to which the copy belongs.
        found: String,
        /// The volume that was to be opened.
        expected: String,
    },
    /// Two places claim to be the same copy. Take one of them away.
    #[error("two places contain copy {0}: take one of them away")]
    Twice(u8),
    /// The copy has missed more than its dirty map describes. Replace it: all of it is then copied.
    #[error("copy {0} cannot be brought up to date from a dirty map: replace it, so that all of it is copied")]
    TooOld(u8),
    /// A later owner has opened the volume, or another coordinator has changed it: this owner must end.
    #[error("another owner has taken the volume over (epoch {found}, ours is {ours}): this one serves no longer")]
    Fenced {
        /// The higher epoch.
        found: u64,
        /// The epoch of this owner.
        ours: u64,
    },
    /// Fewer than `min_copies` copies work, and none returned in time. The outcome of the write is unknown. Bring a copy back.
    #[error("{working} copies work and {needed} are needed: writes wait for a copy to come back")]
    BelowMinimum {
        /// Copies that work.
        working: u8,
        /// Copies needed.
        needed: u8,
    },
    /// Every in-sync copy of these bytes is damaged. Writing all of the range makes it good again.
    #[error("{bytes} bytes at {offset} are damaged on every copy: write them anew, or restore them")]
    Damaged {
        /// Where, in bytes from the start of the volume.
        offset: u64,
        /// How many.
        bytes: u64,
    },
    /// The stored form of a copy cannot be understood: it is damaged, or was written by another program.
    #[error("{name}: {why}")]
    Format {
        /// The device.
        name: String,
        /// What is wrong.
        why: &'static str,
    },
    /// The copy was written by another version of the format.
    #[error("{name} has format version {found}; this program reads version {expected}")]
    Version {
        /// The device.
        name: String,
        /// Its version.
        found: u32,
        /// The version of this program.
        expected: u32,
    },
    /// The volume is encrypted, and no keys were given. Nothing was read or changed.
    #[error("the volume is encrypted: its keys are needed")]
    KeysMissing,
    /// Keys were given for a volume that is not encrypted. Nothing was read or changed.
    #[error("keys were given, and the volume is not encrypted")]
    KeysUnwanted,
    /// The keys are those of another volume. Nothing was read or changed.
    #[error("the keys are not those that the volume was made with")]
    WrongKeys,
    /// The system gave no random bytes for the key of this opening.
    #[error("the system gives no random bytes")]
    Randomness,
    /// A medium of a thin volume has no space left for blocks that have none yet. Nothing was changed. Free space there, or discard
    /// data.
    #[error(
        "no space is left for new data on the medium of a copy: free some there, or discard data that is not needed any more"
    )]
    NoSpace,
    /// The tables of the volume do not fit the memory of this machine. Nothing was changed.
    #[error("the tables of the volume take {needed} bytes of memory while it is opened, and {most} are there for them")]
    Memory {
        /// What they need.
        needed: u64,
        /// What they may take.
        most: u64,
    },
    /// The copy does not answer within its time.
    #[error("copy {0} does not answer in time")]
    Stalled(u8),
    /// The copy is attached already, or is being brought up to date.
    #[error("copy {0} is attached already")]
    Attached(u8),
    /// The volume is closed.
    #[error("the volume is closed")]
    Closed,
    /// A thread could not be started. Raise the limit of threads.
    #[error("cannot start a thread of the volume: {0}")]
    Thread(#[source] std::io::Error),
    /// The journal of a copy failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A device or shelf of a copy failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}
