//! What a node knows of a volume before it opens it: one file of JSON for each, in the data directory.
//!
//! ```text
//!   DATA/volumes/NAME.json        a `/` in the name is a `+` in the file's
//!
//!   { "format": 1, "name": "vol-7", "id": "<32 hex digits>", "state": "ready", "bytes": 10737418240, "min_copies": 2,
//!     "copies": [ { "place": { "tier": "nvme", "folder": "/mnt/nvme/terrace/volumes/vol-7/0-5e0c..." } }, ... ],
//!     "exported": { "read_only": false }, ... }
//! ```
//!
//! Which copies are in sync, the epoch and the sizes of parts are in the copies' own superblocks; this file says where to look.
//!
//! Invariants: a description is durable before anything is made at a place that it names, and is removed after everything there is gone,
//! so nothing is left on a medium that no description names. It is replaced as a whole.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};

use super::keys::EncryptionDescription;

/// Version of the file.
const FORMAT: u32 = 1;

/// The folder, below the data directory.
const FOLDER: &str = "volumes";

/// Longest name of a volume, in bytes: with an epoch it is the name of an export, and its file has a suffix.
const NAME_BYTES_MAX: usize = 120;

/// A volume, or a place for a copy of another node's volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// Version of the file.
    pub format: u32,
    /// The name; also that of its export.
    pub name: String,
    /// Identifies the volume in its superblocks: 32 hexadecimal digits.
    pub id: String,
    /// What it is.
    pub kind: VolumeKind,
    /// Whether it was made completely.
    pub state: MadeState,
    /// Its size in bytes when it was made or grown.
    pub bytes: u64,
    /// Copies that must work for a write to be acknowledged.
    pub min_copies: u8,
    /// Where the copies lie.
    pub copies: Vec<CopyDescription>,
    /// Former places of copies that were replaced, which still have to be cleared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retired: Vec<CopyDescription>,
    /// Whether its blocks have space only where they have content.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub thin: bool,
    /// How it is encrypted, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<EncryptionDescription>,
    /// How it is exported, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exported: Option<ExportDescription>,
    /// The copy that is read as long as it works; the fastest without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefer: Option<u8>,
    /// Requests a second that its export allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
    /// Bytes a second that its export allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
    /// Bytes a second that bringing copies up to date and scrubs may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upkeep_bytes_per_second: Option<u64>,
}

/// What a description describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VolumeKind {
    /// A volume of one to three copies.
    Mirror,
    /// A bare device with an epoch, for one copy of a volume of another node.
    Place,
}

/// Whether a volume was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MadeState {
    /// It is being made, or that was interrupted: it has no content.
    Making,
    /// It is there.
    Ready,
    /// It is being removed, or that was interrupted.
    Deleting,
}

/// One copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CopyDescription {
    /// The place of its blocks, checksums and superblock.
    pub place: PlaceDescription,
    /// The place of its journal; with the blocks without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub journal: Option<PlaceDescription>,
    /// The write-back cache in front of its blocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CacheDescription>,
}

/// A place of a copy, or of a part of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum PlaceDescription {
    /// On a tier of this node.
    Tier {
        /// The tier.
        tier: String,
        /// The folder there.
        folder: PathBuf,
    },
    /// On an export of another node, or of any NBD server.
    Export {
        /// Its address.
        uri: String,
    },
}

impl PlaceDescription {
    /// The tier, or `nbd`.
    pub fn tier(&self) -> &str {
        match self {
            PlaceDescription::Tier { tier, .. } => tier,
            PlaceDescription::Export { .. } => "nbd",
        }
    }

    /// The folder or the address.
    pub fn text(&self) -> String {
        match self {
            PlaceDescription::Tier { folder, .. } => folder.display().to_string(),
            PlaceDescription::Export { uri } => uri.clone(),
        }
    }
}

/// A write-back cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheDescription {
    /// Where it lies.
    pub place: PlaceDescription,
    /// Its size.
    pub bytes: u64,
    /// Size of its pages.
    pub page_bytes: u64,
    /// Whether reads are cached too.
    pub caches_reads: bool,
}

/// How a volume is exported.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportDescription {
    /// Whether changes are refused.
    pub read_only: bool,
}

/// Checks a name: parts of `a-z A-Z 0-9 . _ -` with `/` between them, none of which begins with a point.
///
/// # Errors
/// It is none, with the rule.
pub fn check_name(name: &str) -> anyhow::Result<()> {
    let is_part = |part: &str| device::contract::is_name(part);
    ensure!(
        name.len() <= NAME_BYTES_MAX && name.split('/').all(is_part),
        "`{name}` is no name of a volume: letters, digits, `.`, `_`, `-` and `/` between parts, at most {NAME_BYTES_MAX}, no part \
         begins with a point"
    );
    Ok(())
}

impl Description {
    /// One that nothing was made of yet.
    pub fn new(name: &str, kind: VolumeKind, bytes: u64, min_copies: u8, copies: Vec<CopyDescription>) -> Description {
        Description {
            format: FORMAT,
            name: name.to_owned(),
            id: format!("{:032x}", super::draw_id()),
            kind,
            state: MadeState::Making,
            bytes,
            min_copies,
            copies,
            retired: Vec::new(),
            thin: false,
            encryption: None,
            exported: None,
            prefer: None,
            iops: None,
            bytes_per_second: None,
            upkeep_bytes_per_second: None,
        }
    }

    /// The identity in superblocks.
    ///
    /// # Errors
    /// The file was changed by hand.
    pub fn identity(&self) -> anyhow::Result<[u8; 16]> {
        let id = u128::from_str_radix(&self.id, 16)
            .with_context(|| format!("volume {}: `{}` is no id", self.name, self.id))?;
        Ok(id.to_be_bytes())
    }
}

/// The descriptions of a data directory.
#[derive(Debug, Clone)]
pub struct Descriptions {
    folder: PathBuf,
}

impl Descriptions {
    /// Those below `data`; nothing is read or made.
    pub fn of(data: &Path) -> Descriptions {
        Descriptions { folder: data.join(FOLDER) }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{}.json", file_name(name)))
    }

    /// Reads all, in order of name. One that cannot be read is an error of its own, with its name.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn read_all(&self) -> anyhow::Result<Vec<(String, anyhow::Result<Description>)>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.with_context(|| format!("cannot read {}", self.folder.display()))?,
        };
        let mut all = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            if let Some(name) = name.to_str().and_then(|name| name.strip_suffix(".json")) {
                let name = name.replace('+', "/");
                let read = self.read(&name);
                all.push((name, read));
            }
        }
        all.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(all)
    }

    /// Reads one.
    ///
    /// # Errors
    /// There is none of this name, or its file cannot be read or understood.
    pub fn read(&self, name: &str) -> anyhow::Result<Description> {
        let file = self.file(name);
        let text = match fs::read(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => bail!("there is no volume {name}"),
            text => text.with_context(|| format!("cannot read {}", file.display()))?,
        };
        let unreadable = || format!("{} cannot be understood; it says where the volume {name} lies", file.display());
        let description: Description = serde_json::from_slice(&text).with_context(unreadable)?;
        ensure!(
            description.format == FORMAT,
            "{} has format {}, this program reads {FORMAT}",
            file.display(),
            description.format
        );
        ensure!(description.name == name, "{} describes the volume {}", file.display(), description.name);
        Ok(description)
    }

    /// Whether there is one of this name, readable or not.
    pub fn has(&self, name: &str) -> bool {
        fs::symlink_metadata(self.file(name)).is_ok()
    }

    /// Writes one; durable when it returns.
    ///
    /// # Errors
    /// The file cannot be written: the former one is still there.
    pub fn write(&self, description: &Description) -> anyhow::Result<()> {
        device::os::make_directory(&self.folder).with_context(|| format!("cannot make {}", self.folder.display()))?;
        let text = serde_json::to_vec_pretty(description).context("a description becomes JSON")?;
        let file = self.file(&description.name);
        device::os::replace_file(&file, &text).with_context(|| format!("cannot write {}", file.display()))
    }

    /// Removes one; durable when it returns.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn remove(&self, name: &str) -> anyhow::Result<()> {
        let file = self.file(name);
        device::os::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))
    }
}

/// The least and the most bytes that the journals of a volume may contain before a checkpoint.
const WINDOW_BYTES_MIN: u64 = 8 << 20;
const WINDOW_BYTES_MAX: u64 = 64 << 20;

/// The window of the journals of a volume: one much larger than the volume would only take space; a quarter is written in place often
/// enough.
pub fn window_bytes(bytes: u64) -> u64 {
    (bytes / 4).next_power_of_two().clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX)
}

/// A name as part of a file's name.
pub fn file_name(name: &str) -> String {
    name.replace('/', "+")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn description(name: &str) -> Description {
        let place = PlaceDescription::Tier { tier: "home".to_owned(), folder: PathBuf::from("/x") };
        Description::new(
            name,
            VolumeKind::Mirror,
            1 << 20,
            1,
            vec![CopyDescription { place, journal: None, cache: None }],
        )
    }

    #[test]
    fn a_name_has_parts_of_plain_characters() {
        for name in ["v", "vol-7", "vol-7/b", "A.b_c/1"] {
            assert!(check_name(name).is_ok(), "{name}");
        }
        let long = "x".repeat(NAME_BYTES_MAX + 1);
        for name in
            ["", "/", "a/", "/a", "a//b", ".a", "a/.b", "..", "a@1", "a b", "a+b", "\u{fc}", "a\n", &long, "lock"]
        {
            assert!(check_name(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn what_was_written_is_read_again_and_a_removed_one_is_gone() {
        let dir = tempfile::tempdir().expect("a folder");
        let all = Descriptions::of(dir.path());
        assert!(all.read_all().expect("no folder yet").is_empty());
        for name in ["vol-7/b", "a"] {
            all.write(&description(name)).expect("it is written");
        }
        let names: Vec<String> = all.read_all().expect("they are read").into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["a", "vol-7/b"]);
        assert_eq!(all.read("vol-7/b").expect("it is read").name, "vol-7/b");
        all.remove("a").expect("it is removed");
        assert!(all.read("a").expect_err("it is gone").to_string().contains("there is no volume a"));
        assert!(all.has("vol-7/b") && !all.has("a"));
    }

    #[test]
    fn a_file_of_another_format_or_name_or_with_unknown_keys_is_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let all = Descriptions::of(dir.path());
        all.write(&description("a")).expect("it is written");
        let file = dir.path().join("volumes/a.json");
        let text = fs::read_to_string(&file).expect("it is text");
        for (from, to, error) in [
            ("\"format\": 1", "\"format\": 2", "format 2"),
            ("\"name\": \"a\"", "\"name\": \"b\"", "describes the volume b"),
            ("\"format\": 1", "\"format\": 1, \"x\": 1", "cannot be understood"),
            ("{", "", "cannot be understood"),
        ] {
            fs::write(&file, text.replacen(from, to, 1)).expect("it is written");
            assert!(all.read("a").expect_err("it is refused").to_string().contains(error), "{error}");
        }
    }
}
