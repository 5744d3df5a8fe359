//! Why tiers or a placement are refused; each text contains what to change.

use super::{Mode, Size, Structure};

/// A refusal. Nothing was opened or made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// A structure is placed on a tier that is not declared.
    #[error("placement.{key} names tier `{tier}`, which is not declared; there are: {known}")]
    UnknownTier {
        /// The key below `[placement]`.
        key: String,
        /// The named tier.
        tier: String,
        /// The declared tiers.
        known: String,
    },
    /// A tier of kind nbd or volume needs its export or its volume.
    #[error("tier {tier} is of kind {kind} and needs `{key}`")]
    MissingKey {
        /// The tier.
        tier: String,
        /// Its kind.
        kind: &'static str,
        /// The key.
        key: &'static str,
    },
    /// The name is reserved for the data directory.
    #[error("the tier name `home` stands for the node's data directory and cannot be declared; choose another")]
    HomeDeclared,
    /// A tier of kind pmem or file needs a folder.
    #[error("tier {tier} is of kind {kind} and needs `path`, the folder that holds its files")]
    MissingPath {
        /// The tier.
        tier: String,
        /// Its kind.
        kind: &'static str,
    },
    /// A key belongs to another kind of tier: a tier has one kind.
    #[error(
        "tier {tier} is of kind {kind}, and `{key}` belongs to kind {of}: a tier has one kind; remove the key or split the tier"
    )]
    TwoKinds {
        /// The tier.
        tier: String,
        /// Its kind.
        kind: &'static str,
        /// The key that does not belong.
        key: &'static str,
        /// The kind it belongs to.
        of: &'static str,
    },
    /// Two tiers would share one folder, export or volume, its space and its lock.
    #[error("tiers {first} and {second} have the same path; a folder, an export and a volume belong to one tier")]
    SamePath {
        /// One.
        first: String,
        /// The other.
        second: String,
    },
    /// No medium with that name is known.
    #[error("tier {tier}: {problem}")]
    Medium {
        /// The tier.
        tier: String,
        /// What is wrong with its model.
        problem: String,
    },
    /// A module count without a model, or a count of 0.
    #[error("tier {tier}: `modules` counts the modules of a model and is at least 1; it needs `model`")]
    Modules {
        /// The tier.
        tier: String,
    },
    /// A tier cannot be larger than the modules that it models.
    #[error("tier {tier} wants {bytes}, and {modules} x {medium} hold {capacity}: lower `bytes` or raise `modules`")]
    LargerThanModel {
        /// The tier.
        tier: String,
        /// Its `bytes`.
        bytes: Size,
        /// The medium.
        medium: String,
        /// How many of it.
        modules: u32,
        /// Their total capacity.
        capacity: Size,
    },
    /// The mode needs a kind of tier that is not declared.
    #[error(
        "mode {mode} places the {structure} on {wanted}, and no tier is; declare one, or place it with placement.{key}"
    )]
    NoTier {
        /// The mode.
        mode: Mode,
        /// The structure.
        structure: Structure,
        /// The kind of tier that it needs.
        wanted: &'static str,
        /// The key that places it explicitly.
        key: &'static str,
    },
    /// The mode cannot choose between tiers.
    #[error("mode {mode} can place the {structure} on any of {candidates}: say which with placement.{key}")]
    SeveralTiers {
        /// The mode.
        mode: Mode,
        /// The structure.
        structure: Structure,
        /// The tiers.
        candidates: String,
        /// The key that selects one.
        key: &'static str,
    },
    /// The structure cannot lie on a tier of this kind.
    #[error("the {structure} cannot lie on tier {tier}: it needs {needs}")]
    WrongKind {
        /// The structure.
        structure: Structure,
        /// The tier.
        tier: String,
        /// What the structure needs.
        needs: &'static str,
    },
    /// A structure that must survive a crash would be on a tier that does not.
    #[error(
        "the {structure} is placed on tier {tier}, which is memory and gone with the process: every acknowledgement would be \
         false after a crash. Place it on a pmem or file tier, or set placement.allow_volatile = true, and every report \
         says durability none"
    )]
    Volatile {
        /// The structure.
        structure: Structure,
        /// The tier.
        tier: String,
    },
    /// Far memory without near memory in front of it, or on the same tier.
    #[error(
        "far memory needs a cache in front of it, on another tier: place the cache on DRAM, or leave placement.far out"
    )]
    FarWithoutNear,
    /// A check needs the size of a tier.
    #[error("tier {tier} needs `bytes`: {why}")]
    MissingBytes {
        /// The tier.
        tier: String,
        /// The check.
        why: &'static str,
    },
    /// The structures on a tier need more than its size.
    #[error("tier {tier} has {bytes}, and {wants} do not fit: give the tier more `bytes`, or lower {lower}")]
    DoesNotFit {
        /// The tier.
        tier: String,
        /// Its `bytes`.
        bytes: Size,
        /// The structures and their sizes.
        wants: String,
        /// The settings that could be lowered.
        lower: String,
    },
    /// Far memory is too large for the near memory in front of it.
    #[error(
        "far memory of {far} behind near memory of {near} is 1:{ratio}, beyond the limit 1:{limit}. Near memory is a \
         direct-mapped cache: the smaller it is, the more pages of far memory contend for one slot, until most reads go to \
         far memory and each write evicts another page. Raise the cache's bytes to {near_needed}, lower placement.far_bytes \
         to {far_allowed}, or raise placement.ratio_limit (1:8 is the default, the limit of the published deployments; \
         ipmctl's maintainers advise up to 1:16)"
    )]
    Ratio {
        /// Far memory.
        far: Size,
        /// Near memory.
        near: Size,
        /// Far over near, in tenths rounded up, for the message.
        ratio: Tenths,
        /// The limit.
        limit: u32,
        /// Near memory that this far memory needs.
        near_needed: Size,
        /// Far memory that this near memory allows.
        far_allowed: Size,
    },
    /// Near memory is larger than the far memory that it caches.
    #[error(
        "near memory of {near} is larger than the far memory of {far} behind it: all of it would be cache and half of it idle; use mode dram, or enlarge far memory"
    )]
    NearLargerThanFar {
        /// Near memory.
        near: Size,
        /// Far memory.
        far: Size,
    },
    /// The size of a structure that is not placed on any tier.
    #[error(
        "placement.{key}_bytes is the size of the {structure}, and nothing places the {structure}: add placement.{key}, or a mode that \
         places it"
    )]
    SizeOfNothing {
        /// The structure.
        structure: Structure,
        /// The key that places it.
        key: &'static str,
    },
    /// The limit is out of range.
    #[error("placement.ratio_limit is 1 to 64; it is {0}")]
    RatioLimit(u32),
    /// A size of 0 bytes.
    #[error("{key} is 0 bytes: leave it out, or give it a size")]
    Empty {
        /// The key.
        key: String,
    },
}

/// A number with one digit after the point, compared exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tenths(pub u64);

impl std::fmt::Display for Tenths {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.0 / 10, self.0 % 10)
    }
}
