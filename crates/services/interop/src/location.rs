//! Where a node's journal, images and pages lie, and the note of it in the data directory that keeps a changed setting from
//! losing them.
//!
//! ```text
//! DATA/placement.json   {"version": 2, "journal": {"tier": "pmem", "kind": "pmem", "folder": "/mnt/pmem0/node/journal", "made": true},
//!                        "images": {...}, "data": {...}}
//! DATA/journal/  DATA/images/  DATA/pages/      where they lie when there is no such file
//! ```
//!
//! The note is written, durably, before anything is made, and says `made` of each structure once it is. Whoever reads a data
//! directory (`message list`, `verify`, a bench that counts) follows it. Before a node opens its store, the note, the
//! settings and what lies on the media are compared, for each of the three:
//!
//! | noted | settings say | at the noted place | at the wanted place | then |
//! |---|---|---|---|---|
//! | P, not made | P | anything | | open |
//! | P, made | P | devices | | open |
//! | P, made | P | nothing | | refuse: the medium is not mounted, or they are lost |
//! | P | Q | devices | anything | refuse: two places, and messages at the old one |
//! | P, made | Q | nothing | devices | open: somebody moved them |
//! | P, made | Q | nothing | nothing | refuse, as above |
//! | P, not made | Q | nothing | anything | open |
//!
//! Without a note P is the place below the data directory, made if something lies there. What lies in memory is never
//! "made": it is gone with its node, and there is nothing to protect. A note of version 1, or none, is that of a release that
//! had no pages: its journal holds all of it, and the store makes its pages from that.
//!
//! All of it happens under a lock of the data directory ([`Hold`]), which the node keeps: the lock of the journal is no
//! help against a second node that would have its journal elsewhere.
//!
//! It deliberately does not move anything: that is copying files while the node is stopped, which the errors say.

mod hold;

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use device::{DeviceError, FileShelf, Shelf};
use serde::{Deserialize, Serialize};

use crate::error::InteropError;
pub use hold::Hold;

/// Folder of the journal below the node's data directory, where nothing else is said.
pub const JOURNAL: &str = "journal";

/// Folder of the write image journal, likewise.
pub const IMAGES: &str = "images";

/// Folder of the pages, likewise.
pub const PAGES: &str = "pages";

/// The note's file name, below the data directory.
pub const NOTE: &str = "placement.json";

/// Version of the note that this release writes.
const VERSION: u32 = 2;

/// Where one of them lies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// The tier's name.
    pub tier: String,
    /// The tier's kind: `file`, `pmem` or `memory`.
    pub kind: String,
    /// The folder that holds its devices, relative to the data directory or absolute. None: in the memory of the node's
    /// process, where nobody else can read it.
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
struct Noted {
    #[serde(flatten)]
    location: Location,
    made: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    version: u32,
    journal: Noted,
    images: Noted,
    data: Noted,
}

/// The note of the release before.
#[derive(Deserialize)]
struct Note1 {
    journal: Location,
    made: bool,
}

impl Location {
    /// A folder of the tier that every node has: its data directory.
    fn home(folder: &str) -> Location {
        Location { tier: "home".into(), kind: "file".into(), folder: Some(PathBuf::from(folder)) }
    }

    /// The folder as one path, for the data directory `data`.
    pub fn folder_in(&self, data: &Path) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| data.join(folder))
    }

    /// How it is named to people.
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

    fn holds_devices(&self, data: &Path) -> Result<bool, InteropError> {
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

impl Note {
    fn noted(&self) -> [&Noted; 3] {
        [&self.journal, &self.images, &self.data]
    }

    fn locations(&self) -> Locations {
        let of = |noted: &Noted| noted.location.clone();
        Locations { journal: of(&self.journal), images: of(&self.images), data: of(&self.data) }
    }

    fn of(locations: &Locations, made: [bool; 3]) -> Note {
        let noted = |location: &Location, made: bool| Noted {
            location: location.clone(),
            // What lies in memory is gone with its node.
            made: made && location.folder.is_some(),
        };
        Note {
            version: VERSION,
            journal: noted(&locations.journal, made[0]),
            images: noted(&locations.images, made[1]),
            data: noted(&locations.data, made[2]),
        }
    }
}

/// Where everything of the node lies whose data directory is `data`: as noted, or below it.
///
/// # Errors
/// `NoData` where no node has kept data, `Missing` where the journal's folder is not there, `InMemory` where the journal or
/// the pages lie in their node's memory, `Note` where the note cannot be read.
pub fn locations(data: &Path) -> Result<Locations, InteropError> {
    let note = read(data)?;
    let locations = note.as_ref().map_or_else(Locations::home, Note::locations);
    for (_, location) in locations.named() {
        if location.folder.is_none() {
            return Err(InteropError::InMemory { tier: location.tier.clone() });
        }
    }
    match locations.journal.folder_in(data) {
        Some(folder) if folder.is_dir() => Ok(locations),
        _ if note.is_some() => Err(InteropError::Missing {
            what: "journal",
            noted: locations.journal.describe(data),
            note: data.join(NOTE),
        }),
        _ => Err(InteropError::NoData { path: data.to_owned() }),
    }
}

/// The folder of the journal of the node whose data directory is `data`.
///
/// # Errors
/// As [`locations`].
pub fn journal_folder(data: &Path) -> Result<PathBuf, InteropError> {
    let location = read(data)?.map_or_else(Locations::home, |note| note.locations()).journal;
    if location.folder.is_none() {
        return Err(InteropError::InMemory { tier: location.tier });
    }
    Ok(locations(data)?.journal.folder_in(data).unwrap_or_else(|| data.join(JOURNAL)))
}

/// Decides whether a node may use `wanted`, and notes it before anything is made there. The caller holds the data directory.
///
/// # Errors
/// `Elsewhere`, `Missing`; `Note` and `File` where the note cannot be read or written.
pub fn claim(data: &Path, wanted: &Locations) -> Result<(), InteropError> {
    let note = read(data)?;
    let before = note.as_ref().map_or_else(Locations::home, Note::locations);
    let mut made = [false; 3];
    let mut same = true;
    for (at, ((what, noted), (_, wanted))) in before.named().into_iter().zip(wanted.named()).enumerate() {
        let there = noted.holds_devices(data)?;
        let facts = Facts {
            same: noted.is_same_place(wanted, data),
            made: note.as_ref().map_or(there, |note| note.noted()[at].made),
            there,
            here: wanted.holds_devices(data)?,
        };
        match facts.decide() {
            Decision::Open => {}
            Decision::Elsewhere => {
                let (noted, wanted) = (noted.describe(data), wanted.describe(data));
                return Err(InteropError::Elsewhere { what, noted, wanted });
            }
            Decision::Missing => {
                return Err(InteropError::Missing { what, noted: noted.describe(data), note: data.join(NOTE) });
            }
        }
        same &= facts.same;
        made[at] = facts.here || (facts.same && facts.made);
    }
    if note.is_none() && same { Ok(()) } else { write(data, &Note::of(wanted, made)) }
}

/// Notes what is made by now; what is not there later is then known to be missing.
///
/// # Errors
/// `Note`, `File`.
pub fn made(data: &Path, locations: &Locations) -> Result<(), InteropError> {
    let Some(note) = read(data)? else { return Ok(()) };
    let mut made = note.noted().map(|noted| noted.made);
    for (made, (_, location)) in made.iter_mut().zip(locations.named()) {
        *made |= location.holds_devices(data)?;
    }
    write(data, &Note::of(locations, made))
}

/// What is compared; the module's table without the places' names.
#[derive(Clone, Copy, Debug)]
struct Facts {
    /// Note and settings mean one place.
    same: bool,
    /// Something was made at the noted place.
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

fn read(data: &Path) -> Result<Option<Note>, InteropError> {
    let path = data.join(NOTE);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(InteropError::File { action: "read", path, source }),
    };
    parse(&text).map(Some).map_err(|problem| InteropError::Note { path, problem })
}

fn parse(text: &str) -> Result<Note, String> {
    let value: serde_json::Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let number = value.get("version").and_then(serde_json::Value::as_u64);
    match number {
        Some(1) => {
            let old: Note1 = serde_json::from_value(value).map_err(|error| error.to_string())?;
            let home = Locations::home();
            Ok(Note::of(&Locations { journal: old.journal, ..home }, [old.made, false, false]))
        }
        Some(2) => serde_json::from_value(value).map_err(|error| error.to_string()),
        Some(other) => Err(format!("version {other} is not {VERSION}")),
        None => Err("it has no version".to_owned()),
    }
}

/// Whole and durable, or as it was; nothing where it says the same already.
fn write(data: &Path, note: &Note) -> Result<(), InteropError> {
    let path = data.join(NOTE);
    let part = data.join(".placement.json.part");
    if read(data)?.as_ref() == Some(note) {
        // It says so already, and there may be no room to say it again. A process that was killed may have left its name
        // not durable.
        return File::open(data).and_then(|data| data.sync_all()).map_err(InteropError::file("sync", data));
    }
    let text = serde_json::to_string_pretty(note).expect("plain data becomes JSON");
    let written = || {
        let mut file = File::create(&part)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&part, &path)?;
        File::open(data)?.sync_all()
    };
    written().map_err(InteropError::file("write", &path))
}

/// How many files and folders at and below a folder other users of the machine may read or write; 0 where they cannot get in.
pub fn open_to_others(folder: &Path) -> usize {
    let is_open = |path: &Path| fs::symlink_metadata(path).is_ok_and(|found| found.permissions().mode() & 0o077 != 0);
    if !is_open(folder) {
        return 0;
    }
    let mut count = 1;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        // What cannot be listed is told by whoever needs it.
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            // A link is open to all by itself; what it leads to has a mode of its own.
            count += usize::from(!kind.is_symlink() && is_open(&entry.path()));
            if kind.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    count
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
    fn a_journal_at_its_usual_place_leaves_no_note_and_is_found() {
        let data = tempfile::tempdir().expect("a folder");
        claim(data.path(), &Locations::home()).expect("nothing is there yet");
        make_journal(&data.path().join(JOURNAL));
        claim(data.path(), &Locations::home()).expect("it is where it was");
        made(data.path(), &Locations::home()).expect("nothing to note");
        assert!(!data.path().join(NOTE).exists());
        assert_eq!(journal_folder(data.path()).expect("found"), data.path().join(JOURNAL));
    }

    #[test]
    fn readers_follow_a_journal_to_another_tier() {
        let (data, medium) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let there = at(&medium.path().join("journal"));
        claim(data.path(), &there).expect("nothing is anywhere yet");
        make_journal(&medium.path().join("journal"));
        made(data.path(), &there).expect("noted");
        assert_eq!(journal_folder(data.path()).expect("found"), medium.path().join("journal"));
    }

    #[test]
    fn a_setting_that_points_away_from_a_journal_is_refused_until_its_files_are_moved() {
        let (data, medium) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        make_journal(&data.path().join(JOURNAL));
        let there = at(&medium.path().join("journal"));
        let refused = claim(data.path(), &there).expect_err("the journal lies at home");
        assert!(matches!(refused, InteropError::Elsewhere { .. }), "{refused}");
        assert!(refused.to_string().contains("move"), "{refused}");
        fs::rename(data.path().join(JOURNAL), medium.path().join("journal")).expect("moved");
        claim(data.path(), &there).expect("it was moved");
        assert_eq!(journal_folder(data.path()).expect("found"), medium.path().join("journal"));
        let refused = claim(data.path(), &Locations::home()).expect_err("and back needs a move as well");
        assert!(matches!(refused, InteropError::Elsewhere { .. }), "{refused}");
    }

    #[test]
    fn a_journal_whose_medium_is_not_mounted_is_not_begun_anew() {
        let (data, medium) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let there = at(&medium.path().join("journal"));
        claim(data.path(), &there).expect("nothing is anywhere yet");
        claim(data.path(), &there).expect("a start that failed before the journal was made can be repeated");
        make_journal(&medium.path().join("journal"));
        made(data.path(), &there).expect("noted");
        claim(data.path(), &there).expect("it is there");
        fs::remove_dir_all(medium.path().join("journal")).expect("unmounted");
        for wanted in [there, Locations::home()] {
            let refused = claim(data.path(), &wanted).expect_err("it was made and is not there");
            assert!(matches!(refused, InteropError::Missing { .. }), "{refused}");
            assert!(refused.to_string().contains("mounted"), "{refused}");
        }
    }

    #[test]
    fn a_start_that_changes_nothing_needs_no_room_for_another_note() {
        use std::os::unix::fs::MetadataExt;
        let (data, medium) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let there = at(&medium.path().join("journal"));
        claim(data.path(), &there).expect("nothing is anywhere yet");
        make_journal(&medium.path().join("journal"));
        made(data.path(), &there).expect("noted");
        let file = || fs::metadata(data.path().join(NOTE)).expect("it is there").ino();
        let before = file();
        claim(data.path(), &there).expect("it is there");
        assert_eq!(file(), before, "the same file, not written anew");
    }

    #[test]
    fn a_journal_in_memory_is_noted_cannot_be_read_from_outside_and_hinders_nothing_later() {
        let data = tempfile::tempdir().expect("a folder");
        let memory = Location { tier: "dram".into(), kind: "memory".into(), folder: None };
        let memory = Locations { journal: memory.clone(), images: memory.clone(), data: memory };
        claim(data.path(), &memory).expect("nothing is there yet");
        made(data.path(), &memory).expect("nothing to note");
        let refused = journal_folder(data.path()).expect_err("it is in another process");
        assert!(matches!(refused, InteropError::InMemory { .. }), "{refused}");
        claim(data.path(), &memory).expect("again");
        claim(data.path(), &Locations::home()).expect("what was in memory is gone");
    }

    #[test]
    fn a_data_directory_is_one_nodes_and_made_with_its_ancestors() {
        let home = tempfile::tempdir().expect("a folder");
        let data = home.path().join("a/b");
        let hold = Hold::take(&data).expect("nobody has it");
        let refused = Hold::take(&data).expect_err("it is held");
        let holder = Some(std::process::id());
        assert!(
            matches!(&refused, InteropError::Device(DeviceError::Busy { holder: h, .. }) if *h == holder),
            "{refused}"
        );
        drop(hold);
        Hold::take(&data).expect("it is free again");
    }

    #[test]
    fn a_note_that_cannot_be_read_is_an_error_and_not_taken_for_none() {
        let data = tempfile::tempdir().expect("a folder");
        for text in [
            "",
            "{",
            "{\"version\": 9, \"journal\": {\"tier\": \"x\", \"kind\": \"file\", \"folder\": null}, \"made\": true}",
            "{\"version\": 2, \"journal\": {\"tier\": \"x\", \"kind\": \"file\", \"folder\": null, \"made\": true}}",
        ] {
            fs::write(data.path().join(NOTE), text).expect("a file");
            let refused = claim(data.path(), &Locations::home()).expect_err("it is no note");
            assert!(matches!(refused, InteropError::Note { .. }), "{refused}");
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
        made(data.path(), &there).expect("noted");
        assert_eq!(locations(data.path()).expect("found"), there);
        let refused = claim(data.path(), &Locations::home()).expect_err("the pages lie elsewhere");
        assert!(matches!(refused, InteropError::Elsewhere { what: "write image journal", .. }), "{refused}");
        fs::remove_dir_all(medium.path().join("pages")).expect("unmounted");
        let refused = claim(data.path(), &there).expect_err("the pages are not there");
        assert!(matches!(refused, InteropError::Missing { what: "pages", .. }), "{refused}");
    }

    #[test]
    fn a_note_of_the_release_without_pages_is_taken_over() {
        let (data, medium) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let folder = medium.path().join("journal");
        make_journal(&folder);
        let location = at(&folder).journal;
        let old = serde_json::json!({ "version": 1, "journal": location, "made": true });
        fs::write(data.path().join(NOTE), old.to_string()).expect("a file");
        claim(data.path(), &at(&folder)).expect("the journal is where it was, pages there were none");
        let note = read(data.path()).expect("it reads").expect("it is there");
        assert_eq!((note.version, note.noted().map(|noted| noted.made)), (VERSION, [true, false, false]));
    }
}
