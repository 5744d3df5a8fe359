//! [`ProfileFolder`]: the profiles of a node, in the folder `profiles` of its data directory.
//!
//! ```text
//!   NAME.tprof        whole
//!   NAME.tprof.part   being recorded, or left by a process that ended     (NAME.tprof.part.new replaces it)
//!   .tmp...           a profile that is being written
//! ```
//!
//! Invariant: a name has no path in it. Nothing outside of the folder is read, written or removed, whatever a request says.

use std::fs::{self, File};
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use device::os;
use profile::{Summary, WriteGuard};
use serde::{Deserialize, Serialize};

use super::{SPARE_BYTES, refused};
use crate::error::NodeError;

/// Profiles that a node keeps at most: further ones are refused until one is removed.
pub const PROFILES_MAX: usize = 32;

/// Bytes of a piece that is read at once.
pub const PIECE_BYTES: u64 = 256 << 10;

const FOLDER: &str = "profiles";
const WHOLE: &str = ".tprof";
const PART: &str = ".tprof.part";
const REPLACING: &str = ".tprof.part.new";
const TEMPORARY: &str = ".tmp";

/// A profile that is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileFile {
    /// Its name.
    pub name: String,
    /// Its bytes.
    pub bytes: u64,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct ProfileFolder(PathBuf);

impl ProfileFolder {
    pub(super) fn of(data: &Path) -> ProfileFolder {
        ProfileFolder(data.join(FOLDER))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    pub(super) fn whole(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}{WHOLE}"))
    }

    pub(super) fn part(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}{PART}"))
    }

    /// Makes the folder, and checks that a profile of that name and of so many bytes can be made in it: its part and the whole lie there for a
    /// moment. Errors: `Refused`, with the reason.
    pub(super) fn prepare(&self, name: &str, limit_bytes: u64) -> Result<(), NodeError> {
        os::make_directory(&self.0).map_err(NodeError::file("make", &self.0))?;
        let there = self.list()?.len() + self.parts().len();
        if there >= PROFILES_MAX {
            return Err(refused(format!(
                "there are {there} profiles, and a node keeps {PROFILES_MAX}: fetch one (`terrace profile fetch`) and remove it (`terrace profile remove`)"
            )));
        }
        if self.whole(name).exists() {
            return Err(refused(format!("there is a profile {name} already: give another name, or remove it")));
        }
        if self.part(name).exists() {
            return Err(refused(format!(
                "what an interrupted recording of {name} has left becomes a profile at the next start of the node: give another name"
            )));
        }
        let needed = limit_bytes.saturating_mul(2).saturating_add(SPARE_BYTES);
        let free = self.free_bytes()?;
        if free < needed {
            let (free, needed, spare) = (free >> 20, needed.div_ceil(1 << 20), SPARE_BYTES >> 20);
            return Err(refused(format!(
                "{free} MiB are free, and {needed} MiB are needed: twice the limit, and {spare} MiB that stay free; free some, or give a smaller --limit"
            )));
        }
        Ok(())
    }

    fn free_bytes(&self) -> Result<u64, NodeError> {
        device::free_bytes(&self.0).map_err(NodeError::file("ask about", &self.0))
    }

    /// Whether there is room to go on. Errors: `Refused`: there is none.
    pub(super) fn check_room(&self) -> Result<(), NodeError> {
        let free = self.free_bytes()?;
        if free < SPARE_BYTES {
            let (free, spare) = (free >> 20, SPARE_BYTES >> 20);
            return Err(refused(format!("{free} MiB are free, and {spare} MiB are to stay free beside a profile")));
        }
        Ok(())
    }

    /// What large writes in it have to heed.
    pub(super) fn guard(&self, stop: &Arc<AtomicBool>) -> WriteGuard {
        WriteGuard { spare_bytes: SPARE_BYTES, folder: self.0.clone(), stop: Arc::clone(stop) }
    }

    /// The whole profiles, by name.
    pub(super) fn list(&self) -> Result<Vec<ProfileFile>, NodeError> {
        let entries = match fs::read_dir(&self.0) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(NodeError::file("list", &self.0))?,
        };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry.map_err(NodeError::file("list", &self.0))?;
            let file = entry.file_name();
            let name = file.to_str().and_then(|file| file.strip_suffix(WHOLE));
            if let Some(name) = name.filter(|name| check_name(name).is_ok()) {
                // It may have been removed just now.
                let bytes = entry.metadata().map_or(0, |found| found.len());
                files.push(ProfileFile { name: name.to_owned(), bytes });
            }
        }
        files.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(files)
    }

    /// The size of a profile, and a piece of it as base64.
    pub(super) fn read(&self, name: &str, offset: u64) -> Result<(u64, String), NodeError> {
        check_name(name)?;
        let path = self.whole(name);
        let mut file = File::open(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => refused(format!("there is no profile {name}")),
            _ => NodeError::file("read", &path)(error),
        })?;
        let mut piece = Vec::new();
        let mut read = || -> std::io::Result<u64> {
            let bytes = file.metadata()?.len();
            file.seek(SeekFrom::Start(offset.min(bytes)))?;
            (&file).take(PIECE_BYTES).read_to_end(&mut piece)?;
            Ok(bytes)
        };
        let bytes = read().map_err(NodeError::file("read", &path))?;
        Ok((bytes, STANDARD.encode(piece)))
    }

    /// Removes a profile, and what an interrupted recording of that name has left; the caller records none of that name.
    pub(super) fn remove(&self, name: &str) -> Result<(), NodeError> {
        check_name(name)?;
        let mut is_there = false;
        for path in [self.whole(name), self.part(name)] {
            match fs::remove_file(&path) {
                Ok(()) => is_there = true,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(NodeError::file("remove", &path)(error)),
            }
        }
        if is_there { Ok(()) } else { Err(refused(format!("there is no profile {name}"))) }
    }

    /// The parts that are there.
    fn parts(&self) -> Vec<PathBuf> {
        let is_part = |path: &PathBuf| check_name(&name_of_part(path)).is_ok() && ends_with(path, PART);
        let mut parts: Vec<PathBuf> = self.files().filter(is_part).collect();
        parts.sort_unstable();
        parts
    }

    fn files(&self) -> impl Iterator<Item = PathBuf> {
        fs::read_dir(&self.0).into_iter().flatten().flatten().map(|entry| entry.path())
    }

    /// Removes what is of no use, and returns the parts that processes have left. Called before anything is recorded.
    pub(super) fn left_parts(&self) -> Vec<PathBuf> {
        let is_of_no_use = |path: &PathBuf| {
            let file = path.file_name().and_then(|file| file.to_str()).unwrap_or_default();
            // With a whole one, the process ended between the two steps of the last write.
            file.starts_with(TEMPORARY)
                || file.ends_with(REPLACING)
                || file.strip_suffix(PART).is_some_and(|name| self.whole(name).exists())
        };
        // What stays is found by the next start.
        self.files().filter(is_of_no_use).for_each(|path| drop(fs::remove_file(path)));
        self.parts()
    }

    /// Makes a profile of a part. A part without anything that was saved is removed. Errors: with what was left.
    pub(super) fn recover(&self, part: &Path, stop: &Arc<AtomicBool>) -> Result<Summary, String> {
        let mut temporary = self.0.join(TEMPORARY);
        temporary.as_mut_os_string().push("-recovered");
        let write = || -> Result<Summary, profile::ProfileError> {
            let mut out = BufWriter::new(File::create(&temporary)?);
            let summary = profile::recover(part, &mut out, &self.guard(stop))?;
            out.flush()?;
            out.get_ref().sync_all()?;
            fs::rename(&temporary, self.whole(&name_of_part(part)))?;
            fs::remove_file(part)?;
            File::open(&self.0)?.sync_all()?;
            Ok(summary)
        };
        write().map_err(|error| {
            let _ = fs::remove_file(&temporary);
            match error {
                // There is nothing in it.
                profile::ProfileError::Refused(why) => {
                    let _ = fs::remove_file(part);
                    why
                }
                error => format!(
                    "{error}; {} is kept, and the next start tries again, or `terrace profile recover` makes a profile of it elsewhere",
                    part.display()
                ),
            }
        })
    }
}

fn ends_with(path: &Path, end: &str) -> bool {
    path.file_name().and_then(|file| file.to_str()).is_some_and(|file| file.ends_with(end))
}

/// The name of a part's profile.
pub(super) fn name_of_part(part: &Path) -> String {
    let file = part.file_name().and_then(|file| file.to_str()).unwrap_or_default();
    file.strip_suffix(PART).unwrap_or(file).to_owned()
}

/// Whether a profile can have this name. Errors: `Refused`.
pub(super) fn check_name(name: &str) -> Result<(), NodeError> {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let is_name = (1..=64).contains(&name.len()) && name.bytes().all(is_allowed) && !name.starts_with('.');
    if is_name {
        return Ok(());
    }
    Err(refused("a profile has a name of 1 to 64 characters of a-z, A-Z, 0-9, `-`, `_` and `.`, without a `.` ahead"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_never_a_path() {
        for name in ["", ".", "..", "../x", "a/b", "/etc/passwd", "a\0b", ".hidden", "a b", &"x".repeat(65), "\u{e4}"] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        for name in ["a", "week-48", "profile-20261127T083000Z", "a.b_c"] {
            check_name(name).expect(name);
        }
    }

    #[test]
    fn what_is_listed_read_and_removed_are_whole_profiles_only() {
        let data = tempfile::tempdir().expect("a folder");
        let folder = ProfileFolder::of(data.path());
        assert_eq!(folder.list().expect("there is none"), []);
        folder.prepare("one", 2 << 20).expect("room");
        let content: Vec<u8> = (0..PIECE_BYTES as u32 + 10).map(|byte| byte as u8).collect();
        fs::write(folder.whole("one"), &content).expect("writes");
        fs::write(folder.part("two"), b"x").expect("writes");
        fs::write(folder.path().join(".tmpabc"), b"x").expect("writes");
        fs::write(data.path().join("secret.tprof"), b"x").expect("writes");
        assert_eq!(folder.list().expect("lists"), [ProfileFile { name: "one".into(), bytes: content.len() as u64 }]);
        let pieces: Vec<Vec<u8>> = [0, PIECE_BYTES, content.len() as u64, u64::MAX]
            .map(|offset| STANDARD.decode(folder.read("one", offset).expect("reads").1).expect("base64"))
            .to_vec();
        assert_eq!(pieces.concat(), content);
        assert!(folder.read("../secret", 0).is_err() && folder.read("two", 0).is_err());
        assert!(folder.prepare("one", 1).is_err() && folder.prepare("two", 1).is_err(), "they are there");
        let no_room = folder.prepare("three", u64::MAX / 4).expect_err("it is large").to_string();
        assert!(no_room.contains("--limit"), "{no_room}");
        folder.remove("one").expect("removes");
        assert!(folder.remove("one").is_err() && folder.remove("../secret").is_err());
        assert_eq!(folder.left_parts(), [folder.part("two")]);
        assert!(!folder.path().join(".tmpabc").exists());
        let stop = Arc::default();
        let why = folder.recover(&folder.part("two"), &stop).expect_err("it is no part");
        assert!(why.contains("no profile") && why.contains("is kept"), "{why}");
        folder.remove("two").expect("what was left is removed too");
        assert_eq!(folder.left_parts(), [] as [PathBuf; 0]);
    }
}
