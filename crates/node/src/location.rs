//! Where a node's journal, write images and pages lie, and the placement file in the data directory that keeps a changed setting
//! from losing them.
//!
//! ```text
//! DATA/placement.json   {"version": 2, "journal": {"tier": "pmem", "kind": "pmem", "folder": "/mnt/pmem0/node/journal", "made": true},
//!                        "images": {...}, "data": {...}}
//! DATA/journal/  DATA/images/  DATA/pages/      where they lie when there is no such file
//! ```
//!
//! The file is written, durably, before anything is made, and has `made` for each structure once it is. Every reader of a data
//! directory (`message list`, `verify`, a bench that counts) follows it. Before a node opens its store, the file, the settings
//! and what lies on the media are compared, for each of the three:
//!
//! | recorded | settings | at the recorded place | at the wanted place | then |
//! |---|---|---|---|---|
//! | P, not made | P | anything | | open |
//! | P, made | P | devices | | open |
//! | P, made | P | nothing | | refuse: the medium is not mounted, or they are lost |
//! | P | Q | devices | anything | refuse: two places, and messages at the old one |
//! | P, made | Q | nothing | devices | open: they were moved |
//! | P, made | Q | nothing | nothing | refuse, as above |
//! | P, not made | Q | nothing | anything | open |
//!
//! Without the file P is the place below the data directory, made if something lies there. A structure in memory is
//! never "made": its content is lost with its node, and there is nothing to protect. A file of version 1, or none, is
//! that of a release that had no pages: its journal contains everything, and the store makes its pages from it.
//!
//! All of it happens under a lock of the data directory ([`DirectoryLock`](crate::DirectoryLock)), which the node
//! keeps: the lock of the journal does not protect against a second node whose journal is elsewhere.
//!
//! It deliberately does not move anything: an operator copies the files while the node is stopped, as the errors
//! explain.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use device::{DeviceError, FileShelf, Shelf};
use serde::{Deserialize, Serialize};

use crate::error::NodeError;

/// Folder of the journal below the node's data directory, where no setting places it.
pub const JOURNAL: &str = "journal";

/// Folder of the write image journal, likewise.
pub const IMAGES: &str = "images";

/// Folder of the pages, likewise.
pub const PAGES: &str = "pages";

/// The placement file's name, below the data directory.
pub const PLACEMENT_FILE: &str = "placement.json";

/// Version of the placement file that this release writes.
const VERSION: u32 = 2;

/// Where one of them lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// The tier's name.
    pub tier: String,
    /// The tier's kind: `file`, `pmem` or `memory`.
    pub kind: String,
    /// The folder that holds its devices, relative to the data directory or absolute. None: in the memory of the node's
    /// process, which no other process can read.
    pub folder: Option<PathBuf>,
}

/// Where all of them lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Locations {
    /// The journal.
    pub journal: Location,
    /// The write image journal.
    pub images: Location,
    /// The pages.
    pub data: Location,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Recorded {
    #[serde(flatten)]
    location: Location,
    made: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PlacementFile {
    version: u32,
    journal: Recorded,
    images: Recorded,
    data: Recorded,
}

/// The placement file of the release before.
#[derive(Deserialize)]
struct PlacementFile1 {
    journal: Location,
    made: bool,
}

impl Location {
    /// A folder of the tier that every node has: its data directory.
    fn home(folder: &str) -> Location {
        Location { tier: "home".into(), kind: "file".into(), folder: Some(PathBuf::from(folder)) }
    }

    /// Why nothing but its node can read what lies there.
    fn unreadable(&self) -> NodeError {
        let (tier, kind) = (self.tier.clone(), self.kind.clone());
        if kind == "memory" { NodeError::InMemory { tier } } else { NodeError::OnlyByNode { tier, kind } }
    }

    /// The folder as one path, for the data directory `data`.
    pub fn folder_in(&self, data: &Path) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| data.join(folder))
    }

    /// Its name for people.
    fn describe(&self, data: &Path) -> String {
        match self.folder_in(data) {
            Some(folder) => format!("{} (tier {})", folder.display(), self.tier),
            None => format!("memory (tier {})", self.tier),
        }
    }

    /// Two texts may name one folder: a relative path, a link.
    fn is_same_place(&self, other: &Location, data: &Path) -> bool {
        let plain = |location: &Location| {
            location.folder_in(data).map(|folder| {
                let absolute = std::path::absolute(&folder).unwrap_or(folder);
                fs::canonicalize(&absolute).unwrap_or(absolute)
            })
        };
        plain(self) == plain(other)
    }

    fn holds_devices(&self, data: &Path) -> Result<bool, NodeError> {
        let Some(folder) = self.folder_in(data) else { return Ok(false) };
        match FileShelf::open_read_only(&folder).and_then(|shelf| shelf.list()) {
            Ok(devices) => Ok(!devices.is_empty()),
            Err(DeviceError::NotFound { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// One of the three, with its name for people.
type Named<'a> = (&'static str, &'a Location);

impl Locations {
    /// All below the data directory.
    pub fn home() -> Locations {
        Locations { journal: Location::home(JOURNAL), images: Location::home(IMAGES), data: Location::home(PAGES) }
    }

    /// All in the folder itself, as in a backup.
    pub fn in_one() -> Locations {
        let home = Location::home(".");
        Locations { journal: home.clone(), images: home.clone(), data: home }
    }

    fn named(&self) -> [Named<'_>; 3] {
        [("journal", &self.journal), ("write image journal", &self.images), ("pages", &self.data)]
    }
}

impl PlacementFile {
    fn recorded(&self) -> [&Recorded; 3] {
        [&self.journal, &self.images, &self.data]
    }

    fn locations(&self) -> Locations {
        let of = |recorded: &Recorded| recorded.location.clone();
        Locations { journal: of(&self.journal), images: of(&self.images), data: of(&self.data) }
    }

    fn of(locations: &Locations, made: [bool; 3]) -> PlacementFile {
        let recorded = |location: &Location, made: bool| Recorded {
            location: location.clone(),
            // Structures in memory are lost with their node.
            made: made && location.folder.is_some(),
        };
        PlacementFile {
            version: VERSION,
            journal: recorded(&locations.journal, made[0]),
            images: recorded(&locations.images, made[1]),
            data: recorded(&locations.data, made[2]),
        }
    }
}

/// The places of the structures of the node whose data directory is `data`: as recorded, or below it.
///
/// # Errors
/// `NoData` where no node has kept data, `Missing` where the journal's folder is not there, `InMemory` where the journal or
/// the pages lie in their node's memory, `OnlyByNode` where they lie on an export or a volume, `PlacementFile` where that cannot be
/// read.
pub fn locations(data: &Path) -> Result<Locations, NodeError> {
    let file = read(data)?;
    let locations = file.as_ref().map_or_else(Locations::home, PlacementFile::locations);
    for (_, location) in locations.named() {
        if location.folder.is_none() {
            return Err(location.unreadable());
        }
    }
    match locations.journal.folder_in(data) {
        Some(folder) if folder.is_dir() => Ok(locations),
        _ if file.is_some() => Err(NodeError::Missing {
            what: "journal",
            recorded: locations.journal.describe(data),
            file: data.join(PLACEMENT_FILE),
        }),
        _ => Err(NodeError::NoData { path: data.to_owned() }),
    }
}

/// The folder of the journal of the node whose data directory is `data`.
///
/// # Errors
/// As [`locations`].
pub fn journal_folder(data: &Path) -> Result<PathBuf, NodeError> {
    let location = read(data)?.map_or_else(Locations::home, |file| file.locations()).journal;
    if location.folder.is_none() {
        return Err(location.unreadable());
    }
    Ok(locations(data)?.journal.folder_in(data).unwrap_or_else(|| data.join(JOURNAL)))
}

/// The folders that a node keeps its data in, as far as they are known: its data directory first, then those that its placement file names.
pub fn folders(data: &Path) -> Vec<PathBuf> {
    let locations = read(data).ok().flatten().map(|file| file.locations());
    let named = locations.iter().flat_map(Locations::named).filter_map(|(_, location)| location.folder_in(data));
    std::iter::once(data.to_owned()).chain(named).collect()
}

/// Decides whether a node may use `wanted`, and records it before anything is made there. The caller has the data directory's lock.
///
/// # Errors
/// `Elsewhere`, `Missing`; `PlacementFile` and `File` where the placement file cannot be read or written.
pub fn claim(data: &Path, wanted: &Locations) -> Result<(), NodeError> {
    let file = read(data)?;
    let before = file.as_ref().map_or_else(Locations::home, PlacementFile::locations);
    let mut made = [false; 3];
    let mut same = true;
    for (at, ((what, recorded), (_, wanted))) in before.named().into_iter().zip(wanted.named()).enumerate() {
        let there = recorded.holds_devices(data)?;
        let facts = Facts {
            same: recorded.is_same_place(wanted, data),
            made: file.as_ref().map_or(there, |file| file.recorded()[at].made),
            there,
            here: wanted.holds_devices(data)?,
        };
        match facts.decide() {
            Decision::Open => {}
            Decision::Elsewhere => {
                let (recorded, wanted) = (recorded.describe(data), wanted.describe(data));
                return Err(NodeError::Elsewhere { what, recorded, wanted });
            }
            Decision::Missing => {
                return Err(NodeError::Missing {
                    what,
                    recorded: recorded.describe(data),
                    file: data.join(PLACEMENT_FILE),
                });
            }
        }
        same &= facts.same;
        made[at] = facts.here || (facts.same && facts.made);
    }
    if file.is_none() && same { Ok(()) } else { write(data, &PlacementFile::of(wanted, made)) }
}

/// Records which structures are made; if one is absent later, it is then known to be missing.
///
/// # Errors
/// `PlacementFile`, `File`.
pub fn record_made(data: &Path, locations: &Locations) -> Result<(), NodeError> {
    let Some(file) = read(data)? else { return Ok(()) };
    let mut made = file.recorded().map(|recorded| recorded.made);
    for (made, (_, location)) in made.iter_mut().zip(locations.named()) {
        *made |= location.holds_devices(data)?;
    }
    write(data, &PlacementFile::of(locations, made))
}

/// The compared facts; the module's table without the places' names.
#[derive(Clone, Copy, Debug)]
struct Facts {
    /// PlacementFile and settings mean one place.
    same: bool,
    /// Something was made at the recorded place.
    made: bool,
    /// Something lies there.
    there: bool,
    /// Something lies at the wanted place.
    here: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Open,
    Elsewhere,
    Missing,
}

impl Facts {
    fn decide(self) -> Decision {
        match self {
            Facts { same: false, there: true, .. } => Decision::Elsewhere,
            Facts { same: true, made: true, there: false, .. } => Decision::Missing,
            Facts { same: false, made: true, there: false, here: false } => Decision::Missing,
            _ => Decision::Open,
        }
    }
}

fn read(data: &Path) -> Result<Option<PlacementFile>, NodeError> {
    let path = data.join(PLACEMENT_FILE);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(NodeError::File { action: "read", path, source }),
    };
    parse(&text).map(Some).map_err(|problem| NodeError::PlacementFile { path, problem })
}

fn parse(text: &str) -> Result<PlacementFile, String> {
    let value: serde_json::Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let number = value.get("version").and_then(serde_json::Value::as_u64);
    match number {
        Some(1) => {
            let old: PlacementFile1 = serde_json::from_value(value).map_err(|error| error.to_string())?;
            let home = Locations::home();
            Ok(PlacementFile::of(&Locations { journal: old.journal, ..home }, [old.made, false, false]))
        }
        Some(2) => serde_json::from_value(value).map_err(|error| error.to_string()),
        Some(other) => Err(format!("version {other} is not {VERSION}")),
        None => Err("it has no version".to_owned()),
    }
}

/// Whole and durable, or as it was; nothing where it has the same content already.
fn write(data: &Path, file: &PlacementFile) -> Result<(), NodeError> {
    let path = data.join(PLACEMENT_FILE);
    if read(data)?.as_ref() == Some(file) {
        // There may be no room to write it again. A process that was killed may have left its name not durable.
        return File::open(data).and_then(|data| data.sync_all()).map_err(NodeError::file("sync", data));
    }
    let text = serde_json::to_string_pretty(file).expect("plain data becomes JSON");
    device::os::replace_file(&path, text.as_bytes()).map_err(NodeError::file("write", &path))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The journal there, the rest at home.
    fn at(folder: &Path) -> Locations {
        let journal = Location { tier: "pmem".into(), kind: "pmem".into(), folder: Some(folder.to_owned()) };
        Locations { journal, ..Locations::home() }
    }

    fn make_journal(folder: &Path) {
        fs::create_dir_all(folder).expect("a folder");
        fs::write(folder.join("00000001.seg"), [0; 4096]).expect("a file");
    }

    #[test]
    fn every_combination_of_facts_has_the_decision_of_the_table() {
        use Decision::{Elsewhere, Missing, Open};
        // same, made, there, here
        let table = [
            ([true, false, false, false], Open),
            ([true, false, true, true], Open),
            ([true, true, true, true], Open),
            ([true, true, false, false], Missing),
            ([false, false, false, false], Open),
            ([false, false, false, true], Open),
            ([false, false, true, false], Elsewhere),
            ([false, false, true, true], Elsewhere),
            ([false, true, true, false], Elsewhere),
            ([false, true, true, true], Elsewhere),
            ([false, true, false, true], Open),
            ([false, true, false, false], Missing),
        ];
        for ([same, made, there, here], wanted) in table {
            let facts = Facts { same, made, there, here };
            assert_eq!(facts.decide(), wanted, "{facts:?}");
        }
    }

    #[test]
    fn a_journal_at_its_usual_place_leaves_no_placement_file_and_is_found() {
        let data = tempfile::tempdir().expect("a folder");
        claim(data.path(), &Locations::home()).expect("nothing is there yet");
        make_journal(&data.path().join(JOURNAL));
        claim(data.path(), &Locations::home()).expect("it is where it was");
        record_made(data.path(), &Locations::home()).expect("nothing to record");
        assert!(!data.path().join(PLACEMENT_FILE).exists());
        assert_eq!(journal_folder(data.path()).expect("found"), data.path().join(JOURNAL));
    }

    #[test]
    fn readers_follow_a_journal_to_another_tier() {
        let (data, medium) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let there = at(&medium.path().join("journal"));
        claim(data.path(), &there).expect("nothing is anywhere yet");
        make_journal(&medium.path().join("journal"));
        record_made(data.path(), &there).expect("recorded");
        assert_eq!(journal_folder(data.path()).expect("found"), medium.path().join("journal"));
    }

    #[test]
    fn a_setting_that_points_away_from_a_journal_is_refused_until_its_files_are_moved() {
        let (data, medium) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        make_journal(&data.path().join(JOURNAL));
        let there = at(&medium.path().join("journal"));
        let refused = claim(data.path(), &there).expect_err("the journal lies at home");
        assert!(matches!(refused, NodeError::Elsewhere { .. }), "{refused}");
        assert!(refused.to_string().contains("move"), "{refused}");
        fs::rename(data.path().join(JOURNAL), medium.path().join("journal")).expect("moved");
        claim(data.path(), &there).expect("it was moved");
        assert_eq!(journal_folder(data.path()).expect("found"), medium.path().join("journal"));
        let refused = claim(data.path(), &Locations::home()).expect_err("and back needs a move as well");
        assert!(matches!(refused, NodeError::Elsewhere { .. }), "{refused}");
    }

    #[test]
    fn a_journal_whose_medium_is_not_mounted_is_not_begun_anew() {
        let (data, medium) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let there = at(&medium.path().join("journal"));
        claim(data.path(), &there).expect("nothing is anywhere yet");
        claim(data.path(), &there).expect("a start that failed before the journal was made can be repeated");
        make_journal(&medium.path().join("journal"));
        record_made(data.path(), &there).expect("recorded");
        claim(data.path(), &there).expect("it is there");
        fs::remove_dir_all(medium.path().join("journal")).expect("unmounted");
        for wanted in [there, Locations::home()] {
            let refused = claim(data.path(), &wanted).expect_err("it was made and is not there");
            assert!(matches!(refused, NodeError::Missing { .. }), "{refused}");
            assert!(refused.to_string().contains("mounted"), "{refused}");
        }
    }

    #[test]
    fn a_start_that_changes_nothing_needs_no_room_for_another_placement_file() {
        use std::os::unix::fs::MetadataExt;
        let (data, medium) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let there = at(&medium.path().join("journal"));
        claim(data.path(), &there).expect("nothing is anywhere yet");
        make_journal(&medium.path().join("journal"));
        record_made(data.path(), &there).expect("recorded");
        let file = || fs::metadata(data.path().join(PLACEMENT_FILE)).expect("it is there").ino();
        let before = file();
        claim(data.path(), &there).expect("it is there");
        assert_eq!(file(), before, "the same file, not written anew");
    }

    #[test]
    fn a_journal_in_memory_is_recorded_cannot_be_read_from_outside_and_hinders_nothing_later() {
        let data = tempfile::tempdir().expect("a folder");
        let memory = Location { tier: "dram".into(), kind: "memory".into(), folder: None };
        let memory = Locations { journal: memory.clone(), images: memory.clone(), data: memory };
        claim(data.path(), &memory).expect("nothing is there yet");
        record_made(data.path(), &memory).expect("nothing to record");
        let refused = journal_folder(data.path()).expect_err("it is in another process");
        assert!(matches!(refused, NodeError::InMemory { .. }), "{refused}");
        claim(data.path(), &memory).expect("again");
        claim(data.path(), &Locations::home()).expect("what was in memory is gone");
    }

    #[test]
    fn a_placement_file_that_cannot_be_read_is_an_error_and_not_taken_for_none() {
        let data = tempfile::tempdir().expect("a folder");
        for text in [
            "",
            "{",
            "{\"version\": 9, \"journal\": {\"tier\": \"x\", \"kind\": \"file\", \"folder\": null}, \"made\": true}",
            "{\"version\": 2, \"journal\": {\"tier\": \"x\", \"kind\": \"file\", \"folder\": null, \"made\": true}}",
        ] {
            fs::write(data.path().join(PLACEMENT_FILE), text).expect("a file");
            let refused = claim(data.path(), &Locations::home()).expect_err("it is no placement file");
            assert!(matches!(refused, NodeError::PlacementFile { .. }), "{refused}");
            assert!(journal_folder(data.path()).is_err());
        }
    }

    #[test]
    fn each_structure_has_a_place_of_its_own_and_is_missed_by_name() {
        let (data, medium) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let on =
            |name: &str| Location { tier: "disk".into(), kind: "file".into(), folder: Some(medium.path().join(name)) };
        let there = Locations { images: on("images"), data: on("pages"), ..Locations::home() };
        claim(data.path(), &there).expect("nothing is anywhere yet");
        make_journal(&data.path().join(JOURNAL));
        make_journal(&medium.path().join("images"));
        make_journal(&medium.path().join("pages"));
        record_made(data.path(), &there).expect("recorded");
        assert_eq!(locations(data.path()).expect("found"), there);
        let refused = claim(data.path(), &Locations::home()).expect_err("the pages lie elsewhere");
        assert!(matches!(refused, NodeError::Elsewhere { what: "write image journal", .. }), "{refused}");
        fs::remove_dir_all(medium.path().join("pages")).expect("unmounted");
        let refused = claim(data.path(), &there).expect_err("the pages are not there");
        assert!(matches!(refused, NodeError::Missing { what: "pages", .. }), "{refused}");
    }

    #[test]
    fn a_placement_file_of_the_release_without_pages_is_taken_over() {
        let (data, medium) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let folder = medium.path().join("journal");
        make_journal(&folder);
        let location = at(&folder).journal;
        let old = serde_json::json!({ "version": 1, "journal": location, "made": true });
        fs::write(data.path().join(PLACEMENT_FILE), old.to_string()).expect("a file");
        claim(data.path(), &at(&folder)).expect("the journal is where it was, pages there were none");
        let file = read(data.path()).expect("it reads").expect("it is there");
        assert_eq!((file.version, file.recorded().map(|recorded| recorded.made)), (VERSION, [true, false, false]));
    }
}
