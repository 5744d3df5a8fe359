//! The file operation: one file a message, whole or not there.
//!
//! ```text
//!   a group of messages --> each under a temporary name --> all flushed, side by side --> renamed in order
//!       --> the folder flushed once --> all of them answered
//! ```
//!
//! A reader never sees half a message, and after the answer the file survives a loss of power. The name is the message id and the
//! number of the output, so that a second delivery after a crash replaces the first instead of adding one. A file of that name with
//! other content is another node's or another journal's: it is not replaced, and the operation says so. A group ends at the
//! first message that cannot be written: those before it are delivered, those behind it are not there.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;

use bytes::Bytes;

use super::reply::Answer;
use crate::folder::Folder;
use crate::production::settings::FileOperation;

/// Messages of one group at most, and threads that flush them. A flush waits for the medium, and a file system makes several at a
/// time persistent in one go of its journal: of 64 files by 8 threads the flushes take the time of about ten.
pub(super) const GROUP: usize = 64;
const THREADS: usize = 8;

/// A message to write: id, output, frame.
pub(super) type Item = (u64, u16, Bytes);

/// Writes a group of messages; an answer for each in order, up to the first that could not be written.
pub(super) async fn write(settings: &FileOperation, group: Vec<Item>) -> Vec<Answer> {
    let settings = settings.clone();
    match tokio::task::spawn_blocking(move || durable(&settings, &group)).await {
        Ok(answers) => answers,
        Err(_) => vec![Answer::Unreachable { reason: "the node is stopping".to_owned() }],
    }
}

/// A message under its temporary name.
struct Staged {
    temporary: OsString,
    name: OsString,
    file: File,
}

fn durable(settings: &FileOperation, group: &[Item]) -> Vec<Answer> {
    let failed = |error: &io::Error| Answer::Unreachable { reason: format!("the file cannot be written: {error}") };
    let folder = match make_folder(settings).and_then(|()| Folder::open(&settings.folder)) {
        Ok(folder) => folder,
        Err(error) => return vec![failed(&error)],
    };
    let mut staged = Vec::new();
    let mut end = None;
    for item in group {
        match stage(&folder, settings, item) {
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
    let flushed = flush(&staged);
    let mut named = 0;
    for (file, flushed) in staged.iter().zip(flushed) {
        if let Err(error) = flushed.and_then(|()| folder.replace(&file.temporary, &file.name)) {
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
fn stage(folder: &Folder, settings: &FileOperation, (id, output, frame): &Item) -> io::Result<Option<Staged>> {
    let body = &frame[1..frame.len() - 2];
    let name = OsString::from(format!("{id}-{output}{}", settings.suffix));
    if folder.look(&name)?.is_some() && !holds(folder, &name, body)? {
        return Ok(None);
    }
    let temporary = OsString::from(format!(".{id}-{output}.part"));
    let mut file = folder.create(&temporary)?;
    // Before there is anything in it.
    file.set_permissions(fs::Permissions::from_mode(settings.mode.0))?;
    file.write_all(body)?;
    Ok(Some(Staged { temporary, name, file }))
}

/// Whether a name is a file with this content.
fn holds(folder: &Folder, name: &OsString, body: &[u8]) -> io::Result<bool> {
    if !folder.look(name)?.is_some_and(|stamp| stamp.is_file && stamp.size == body.len() as u64) {
        return Ok(false);
    }
    let mut there = Vec::with_capacity(body.len());
    folder.read(name)?.0.read_to_end(&mut there)?;
    Ok(there == body)
}

/// Makes the content of each persistent.
fn flush(staged: &[Staged]) -> Vec<io::Result<()>> {
    let share = staged.len().div_ceil(THREADS).max(1);
    std::thread::scope(|scope| {
        let shares = staged.chunks(share).map(|files| {
            let work = move || files.iter().map(|staged| staged.file.sync_all()).collect::<Vec<_>>();
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

/// Makes the folder where it is absent, for whoever may use its files.
fn make_folder(settings: &FileOperation) -> io::Result<()> {
    if settings.folder.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(&settings.folder)?;
    fs::set_permissions(&settings.folder, fs::Permissions::from_mode(settings.mode.of_folder()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(id: u64) -> Item {
        (id, 0, Bytes::from(format!("\x0bmessage {id}\x1c\r")))
    }

    fn settings(folder: &std::path::Path) -> FileOperation {
        toml::from_str(&format!("kind = \"file\"\nfolder = \"{}\"\n", folder.display())).expect("settings")
    }

    #[test]
    fn a_group_is_written_up_to_the_first_that_cannot_be_and_nothing_of_the_others_is_left() {
        let dir = tempfile::tempdir().expect("a folder");
        let out = dir.path().join("out");
        let settings = settings(&out);
        assert_eq!(durable(&settings, &[item(1)]), [Answer::Written]);
        fs::write(out.join("5-0.hl7"), "another's").expect("a file");
        let answers = durable(&settings, &(1..=9).map(item).collect::<Vec<_>>());
        assert_eq!(answers.len(), 5, "four, and the one that failed");
        assert!(answers[..4].iter().all(|answer| *answer == Answer::Written));
        assert!(matches!(&answers[4], Answer::Unreachable { reason } if reason.contains("other content")));
        let names = Folder::open(&out).expect("a folder").names().expect("names");
        assert_eq!(names, ["1-0.hl7", "2-0.hl7", "3-0.hl7", "4-0.hl7", "5-0.hl7"]);
        assert_eq!(fs::read(out.join("4-0.hl7")).expect("it is there"), b"message 4");
        assert_eq!(fs::read(out.join("5-0.hl7")).expect("it is there"), b"another's");
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
        let answers = durable(&settings(&out), &[item(1), item(2)]);
        assert_eq!(answers[0], Answer::Written);
        assert!(matches!(&answers[1], Answer::Unreachable { .. }), "a link has its name: not ours");
        assert_eq!(fs::read(&victim).expect("it is there"), b"kept");
        assert!(fs::symlink_metadata(out.join("1-0.hl7")).expect("it is there").is_file());
    }
}
