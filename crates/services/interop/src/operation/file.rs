//! The file operation: one file for each message, complete or absent.
//!
//! ```text
//!   a group of messages --> each under a temporary name --> all flushed, side by side --> renamed in order
//!       --> the folder flushed once --> all of them reported as delivered
//! ```
//!
//! A reader never sees half a message, and after the answer the file survives a loss of power. The name is the message
//! id and the number of the output, so that a second delivery after a crash replaces the first instead of adding one. A
//! file of that name with other content is another node's or another journal's: it is not replaced, and the operation
//! logs that. A group ends at the first message that cannot be written: those before it are delivered, those after it
//! do not exist. The folder's own name is flushed before the first answer of a lane: without it, the files in it would
//! be lost too.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::reply::Answer;
use crate::folder::Folder;
use crate::production::settings::FileOperation;

/// Messages of one group at most, and threads that flush them. A flush waits for the medium, and a file system makes several at a
/// time persistent in one go of its journal: of 64 files by 8 threads the flushes take the time of about ten.
pub(super) const GROUP: usize = 64;
const THREADS: usize = 8;

/// A message to write: id, output, body.
pub(super) type Item = (u64, u16, Bytes);

/// The operation's actions in its folder. In tests an implementation simulates a power failure.
trait DeliveryFolder: Sync {
    /// A file that was written.
    type Written: Sync;
    /// Whether a name is a file with this content; none where there is nothing of the name.
    fn holds(&self, name: &OsStr, body: &[u8]) -> io::Result<Option<bool>>;
    /// Makes a file with this content and mode; an existing one of this name is replaced.
    fn write(&self, name: &OsStr, body: &[u8], mode: u32) -> io::Result<Self::Written>;
    /// Makes its content persistent.
    fn flush(&self, file: &Self::Written) -> io::Result<()>;
    /// Gives a file another name, which one that has it loses.
    fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()>;
    /// Removes a name.
    fn remove(&self, name: &OsStr) -> io::Result<()>;
    /// Makes persistent which names there are.
    fn sync(&self) -> io::Result<()>;
}

impl DeliveryFolder for Folder {
    type Written = File;

    fn holds(&self, name: &OsStr, body: &[u8]) -> io::Result<Option<bool>> {
        let Some(stamp) = self.look(name)? else { return Ok(None) };
        if !stamp.is_file || stamp.size != body.len() as u64 {
            return Ok(Some(false));
        }
        let mut there = Vec::with_capacity(body.len());
        self.read(name)?.0.read_to_end(&mut there)?;
        Ok(Some(there == body))
    }

    fn write(&self, name: &OsStr, body: &[u8], mode: u32) -> io::Result<File> {
        let mut file = self.create(name)?;
        // Before there is anything in it.
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.write_all(body)?;
        Ok(file)
    }

    fn flush(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        self.replace(from, to)
    }

    fn remove(&self, name: &OsStr) -> io::Result<()> {
        Folder::remove(self, name)
    }

    fn sync(&self) -> io::Result<()> {
        Folder::sync(self)
    }
}

/// Writes a group of messages; an answer for each in order, up to the first that could not be written. `known`: an earlier group of
/// this lane was written, so that the folder's own name is persistent.
pub(super) async fn write(settings: &FileOperation, group: Vec<Item>, known: bool) -> Vec<Answer> {
    let settings = settings.clone();
    match tokio::task::spawn_blocking(move || durable(&settings, &group, known)).await {
        Ok(answers) => answers,
        Err(_) => vec![Answer::Unreachable { reason: "the node is stopping".to_owned() }],
    }
}

/// A message under its temporary name.
struct Staged<F> {
    temporary: OsString,
    name: OsString,
    file: F,
}

fn failed(error: &io::Error) -> Answer {
    Answer::Unreachable { reason: format!("the file cannot be written: {error}") }
}

fn durable(settings: &FileOperation, group: &[Item], known: bool) -> Vec<Answer> {
    match check_folder(settings, known).and_then(|()| Folder::open(&settings.folder)) {
        Ok(folder) => deliver(&folder, settings, group),
        Err(error) => vec![failed(&error)],
    }
}

fn deliver<D: DeliveryFolder>(folder: &D, settings: &FileOperation, group: &[Item]) -> Vec<Answer> {
    let mut staged = Vec::new();
    let mut end = None;
    for item in group {
        match stage(folder, settings, item) {
            Ok(Some(file)) => staged.push(file),
            Ok(None) => {
                end =
                    Some(Answer::Unreachable { reason: "a file of this name with other content is there".to_owned() });
            }
            Err(error) => end = Some(failed(&error)),
        }
        if end.is_some() {
            break;
        }
    }
    let flushed = flush(folder, &staged);
    let mut named = 0;
    for (file, flushed) in staged.iter().zip(flushed) {
        if let Err(error) = flushed.and_then(|()| folder.rename(&file.temporary, &file.name)) {
            end = Some(failed(&error));
            break;
        }
        named += 1;
    }
    // Of those behind the first that failed nothing is left; where even that fails, the next try replaces it.
    staged[named..].iter().for_each(|file| drop(folder.remove(&file.temporary)));
    if named > 0
        && let Err(error) = folder.sync()
    {
        return vec![failed(&error)];
    }
    (0..named).map(|_| Answer::Written).chain(end).collect()
}

/// Writes a message under a temporary name; none where another file has its name.
fn stage<D: DeliveryFolder>(
    folder: &D,
    settings: &FileOperation,
    (id, output, body): &Item,
) -> io::Result<Option<Staged<D::Written>>> {
    let name = OsString::from(format!("{id}-{output}{}", settings.suffix));
    if folder.holds(&name, body)? == Some(false) {
        return Ok(None);
    }
    let temporary = OsString::from(format!(".{id}-{output}.part"));
    match folder.write(&temporary, body, settings.mode.0) {
        Ok(file) => Ok(Some(Staged { temporary, name, file })),
        Err(error) => {
            // On a full disk it would keep the last room; the message may never be tried again.
            drop(folder.remove(&temporary));
            Err(error)
        }
    }
}

/// Makes the content of each persistent.
fn flush<D: DeliveryFolder>(folder: &D, staged: &[Staged<D::Written>]) -> Vec<io::Result<()>> {
    let share = staged.len().div_ceil(THREADS).max(1);
    std::thread::scope(|scope| {
        let shares = staged.chunks(share).map(|files| {
            let work = move || files.iter().map(|staged| folder.flush(&staged.file)).collect::<Vec<_>>();
            (files.len(), if staged.len() == 1 { Err(work()) } else { Ok(scope.spawn(work)) })
        });
        // All are started before the first is waited for.
        let shares: Vec<_> = shares.collect();
        let lost = || io::Error::other("the thread that flushed it ended");
        shares
            .into_iter()
            .flat_map(|(files, share)| match share {
                Err(done) => done,
                Ok(thread) => thread.join().unwrap_or_else(|_| (0..files).map(|_| Err(lost())).collect()),
            })
            .collect()
    })
}

/// Makes the folder where it is absent, for whoever may use its files. This is done when a production is loaded, and never for a
/// message: where a share is not mounted any more, files would lie below its place and count as delivered.
pub(super) fn make_folder(settings: &FileOperation) -> io::Result<()> {
    if settings.folder.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(&settings.folder)?;
    fs::set_permissions(&settings.folder, fs::Permissions::from_mode(settings.mode.of_folder()))
}

/// Checks that the folder is there; unless it is `known`, its name is made persistent, whoever made it: a process may have died before
/// it flushed that.
fn check_folder(settings: &FileOperation, known: bool) -> io::Result<()> {
    if !settings.folder.is_dir() {
        let text =
            "its folder is gone: mount the file system that it is on, or make it again, by hand or by `terrace reload`";
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    }
    if !known {
        for above in folders_above(&settings.folder)? {
            match File::open(&above) {
                Ok(folder) => folder.sync_all()?,
                // Nothing in it was made by us.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// The folders that a folder lies in, on its file system, from the nearest on.
fn folders_above(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let folder = folder.canonicalize()?;
    let device = fs::metadata(&folder)?.dev();
    let mut above = Vec::new();
    for next in folder.ancestors().skip(1) {
        if fs::metadata(next)?.dev() != device {
            break;
        }
        above.push(next.to_owned());
    }
    Ok(above)
}

#[cfg(test)]
mod crash;

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn item(id: u64) -> Item {
        (id, 0, Bytes::from(format!("message {id}")))
    }

    pub(super) fn settings(folder: &std::path::Path) -> FileOperation {
        toml::from_str(&format!("kind = \"file\"\nfolder = \"{}\"\n", folder.display())).expect("settings")
    }

    #[test]
    fn a_group_is_written_up_to_the_first_that_cannot_be_and_nothing_of_the_others_is_left() {
        let dir = tempfile::tempdir().expect("a folder");
        let out = dir.path().join("out");
        let settings = settings(&out);
        assert!(matches!(&durable(&settings, &[item(1)], false)[..], [Answer::Unreachable { .. }]));
        assert!(!out.exists(), "no message makes a folder");
        make_folder(&settings).expect("it can be made");
        assert_eq!(durable(&settings, &[item(1)], false), [Answer::Written]);
        fs::write(out.join("5-0.hl7"), "another's").expect("a file");
        let answers = durable(&settings, &(1..=9).map(item).collect::<Vec<_>>(), true);
        assert_eq!(answers.len(), 5, "four, and the one that failed");
        assert!(answers[..4].iter().all(|answer| *answer == Answer::Written));
        assert!(matches!(&answers[4], Answer::Unreachable { reason } if reason.contains("other content")));
        let names = Folder::open(&out).expect("a folder").names().expect("names");
        assert_eq!(names, ["1-0.hl7", "2-0.hl7", "3-0.hl7", "4-0.hl7", "5-0.hl7"]);
        assert_eq!(fs::read(out.join("4-0.hl7")).expect("it is there"), b"message 4");
        assert_eq!(fs::read(out.join("5-0.hl7")).expect("it is there"), b"another's");
    }

    /// A folder that is full behind the first bytes of a file.
    struct Full(Folder);

    impl DeliveryFolder for Full {
        type Written = File;

        fn holds(&self, name: &OsStr, body: &[u8]) -> io::Result<Option<bool>> {
            self.0.holds(name, body)
        }
        fn write(&self, name: &OsStr, body: &[u8], mode: u32) -> io::Result<File> {
            DeliveryFolder::write(&self.0, name, &body[..1], mode)?;
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&self, file: &File) -> io::Result<()> {
            DeliveryFolder::flush(&self.0, file)
        }
        fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
            self.0.rename(from, to)
        }
        fn remove(&self, name: &OsStr) -> io::Result<()> {
            DeliveryFolder::remove(&self.0, name)
        }
        fn sync(&self) -> io::Result<()> {
            DeliveryFolder::sync(&self.0)
        }
    }

    #[test]
    fn of_a_file_that_finds_no_room_nothing_is_left() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = Full(Folder::open(dir.path()).expect("a folder"));
        let answers = deliver(&folder, &settings(dir.path()), &[item(1), item(2)]);
        assert!(matches!(&answers[..], [Answer::Unreachable { .. }]), "{answers:?}");
        assert_eq!(folder.0.names().expect("names"), Vec::<OsString>::new());
    }

    #[test]
    fn a_link_in_the_folder_leads_nothing_out_of_it() {
        let dir = tempfile::tempdir().expect("a folder");
        let (out, victim) = (dir.path().join("out"), dir.path().join("victim"));
        fs::create_dir(&out).expect("a folder");
        fs::write(&victim, "kept").expect("a file");
        for name in [".1-0.part", "2-0.hl7"] {
            std::os::unix::fs::symlink(&victim, out.join(name)).expect("a link");
        }
        let answers = durable(&settings(&out), &[item(1), item(2)], false);
        assert_eq!(answers[0], Answer::Written);
        assert!(matches!(&answers[1], Answer::Unreachable { .. }), "a link has its name: not ours");
        assert_eq!(fs::read(&victim).expect("it is there"), b"kept");
        assert!(fs::symlink_metadata(out.join("1-0.hl7")).expect("it is there").is_file());
    }

    #[test]
    fn a_folder_that_is_made_is_flushed_with_all_that_it_lies_in_on_its_file_system() {
        let dir = tempfile::tempdir().expect("a folder");
        let out = dir.path().join("a/b/out");
        make_folder(&settings(&out)).expect("it can be made");
        assert_eq!(durable(&settings(&out), &[item(1)], false), [Answer::Written]);
        let above = folders_above(&out).expect("they can be looked at");
        let dir = dir.path().canonicalize().expect("it is there");
        assert_eq!(above[..3], [dir.join("a/b"), dir.join("a"), dir.clone()]);
        let proc = Path::new("/proc/self/task");
        assert!(folders_above(proc).expect("they can be looked at").iter().all(|above| above.starts_with("/proc")));
    }
}
