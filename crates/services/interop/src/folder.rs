//! A folder that other programs may write to as well. It is opened once; everything in it is accessed through the
//! handle, and no symbolic link in it is followed.
//!
//! Invariants: no name in it is resolved through a symbolic link, so that a user who may write to the folder cannot
//! make the node read or write outside of it; a file that the node makes is new and accessible to the node's user only
//! (mode 0600); an existing name is replaced only by [`Folder::replace`].

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Folder {
    handle: OwnedFd,
}

/// Which folder it is, under whatever path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FolderId {
    /// Its file system.
    pub(crate) device: u64,
    /// Its number there.
    pub(crate) number: u64,
}

/// The kind of a name, and which version of a file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStamp {
    /// A file; no folder, link, pipe or device.
    pub(crate) is_file: bool,
    /// A symbolic link.
    pub(crate) is_link: bool,
    /// Bytes.
    pub(crate) size: u64,
    /// Time of change: seconds and nanoseconds since 1970.
    pub(crate) changed: (i64, i64),
    /// The file's number on its file system.
    pub(crate) number: u64,
}

impl FileStamp {
    /// That of an open file, as it is now.
    pub(crate) fn of_file(file: &File) -> io::Result<FileStamp> {
        Ok(FileStamp::of(&rustix::fs::fstat(file)?))
    }

    #[allow(clippy::unnecessary_cast, reason = "the fields' types differ between architectures")]
    fn of(stat: &rustix::fs::Stat) -> FileStamp {
        let kind = FileType::from_raw_mode(stat.st_mode);
        FileStamp {
            is_file: kind.is_file(),
            is_link: kind.is_symlink(),
            size: u64::try_from(stat.st_size).unwrap_or(0),
            changed: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            number: stat.st_ino as u64,
        }
    }
}

impl Folder {
    /// Opens a folder. Its own path is configuration and may lead over links.
    pub(crate) fn open(path: &Path) -> io::Result<Folder> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Folder { handle: rustix::fs::open(path, flags, Mode::empty())? })
    }

    /// Which one it is.
    #[allow(clippy::unnecessary_cast, reason = "the fields' types differ between architectures")]
    pub(crate) fn id(&self) -> io::Result<FolderId> {
        let stat = rustix::fs::fstat(&self.handle)?;
        Ok(FolderId { device: stat.st_dev as u64, number: stat.st_ino as u64 })
    }

    /// Whether files can be put into it, as far as its mode and its mount say.
    pub(crate) fn check_writable(&self) -> io::Result<()> {
        Ok(rustix::fs::accessat(&self.handle, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::empty())?)
    }

    /// The names in it, in order.
    pub(crate) fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.handle)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if !matches!(name.as_bytes(), b"." | b"..") {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// The kind of a name; none if the name does not exist.
    pub(crate) fn look(&self, name: &OsStr) -> io::Result<Option<FileStamp>> {
        match rustix::fs::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(FileStamp::of(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a file for reading. Anything else is an error, a link among it.
    pub(crate) fn read(&self, name: &OsStr) -> io::Result<(File, FileStamp)> {
        // Not blocking: a pipe that is put there would be waited for without end.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let handle = rustix::fs::openat(&self.handle, name, flags, Mode::empty())?;
        let stamp = FileStamp::of(&rustix::fs::fstat(&handle)?);
        if !stamp.is_file {
            return Err(io::Error::other("it is no file"));
        }
        Ok((handle.into(), stamp))
    }

    /// Makes a file; an existing entry of that name, left by a crash or another program, is removed.
    pub(crate) fn create(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let make = || rustix::fs::openat(&self.handle, name, flags, Mode::RUSR | Mode::WUSR);
        let made = match make() {
            Err(Errno::EXIST) => {
                self.remove(name)?;
                make()
            }
            made => made,
        };
        Ok(made?.into())
    }

    /// Gives a file of this folder a name, which one that has it loses.
    pub(crate) fn replace(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.handle, from, &self.handle, to)?)
    }

    /// Moves a file to another folder; a name that is taken there gets a number. Returns its name there.
    pub(crate) fn move_to(&self, name: &OsStr, other: &Folder) -> io::Result<OsString> {
        let mut to = name.to_owned();
        for number in 1.. {
            match rustix::fs::renameat_with(&self.handle, name, &other.handle, &to, RenameFlags::NOREPLACE) {
                Ok(()) => return Ok(to),
                Err(Errno::EXIST) => {}
                // A file system without a rename that does not replace.
                Err(Errno::INVAL | Errno::NOSYS) if other.look(&to)?.is_none() => {
                    rustix::fs::renameat(&self.handle, name, &other.handle, &to)?;
                    return Ok(to);
                }
                Err(Errno::INVAL | Errno::NOSYS) => {}
                Err(error) => return Err(error.into()),
            }
            to = name.to_owned();
            to.push(format!(".{number}"));
        }
        unreachable!("there is always another number")
    }

    /// Moves a file to another folder, under a name that is free there.
    pub(crate) fn move_back(&self, from: &OsStr, other: &Folder, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::renameat_with(&self.handle, from, &other.handle, name, RenameFlags::NOREPLACE)?)
    }

    /// Removes a name, not what a link of the name leads to.
    pub(crate) fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.handle, name, AtFlags::empty())?)
    }

    /// Makes persistent which names there are.
    pub(crate) fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.handle)?)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_link_of_a_name_is_neither_read_nor_written_through() {
        let dir = tempfile::tempdir().expect("a folder");
        let (inside, outside) = (dir.path().join("in"), dir.path().join("outside"));
        std::fs::create_dir(&inside).expect("a folder");
        std::fs::write(&outside, "others").expect("a file");
        let name = OsStr::new("x");
        symlink(&outside, inside.join(name)).expect("a link");
        let folder = Folder::open(&inside).expect("a folder");
        assert!(folder.look(name).expect("it is there").is_some_and(|stamp| stamp.is_link && !stamp.is_file));
        assert!(folder.read(name).is_err());
        folder.create(name).expect("in place of the link").write_all(b"ours").expect("room");
        assert_eq!(std::fs::read(&outside).expect("it is there"), b"others");
        let mut text = String::new();
        folder.read(name).expect("a file").0.read_to_string(&mut text).expect("it reads");
        assert_eq!(text, "ours");
        let mode = std::fs::metadata(inside.join(name)).expect("a file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::remove_file(inside.join(name)).expect("it goes");
        symlink(dir.path().join("nothing"), inside.join(name)).expect("a link to nothing");
        folder.create(name).expect("in place of the link");
        assert!(!dir.path().join("nothing").exists(), "nothing is made where the link leads");
        rustix::fs::mkfifoat(&folder.handle, "pipe", Mode::RUSR | Mode::WUSR).expect("a pipe");
        assert!(folder.read(OsStr::new("pipe")).is_err(), "a pipe is not waited for");
    }

    #[test]
    fn what_is_moved_replaces_nothing() {
        let dir = tempfile::tempdir().expect("a folder");
        for (path, text) in [("in/a", "new"), ("done/a", "old"), ("done/a.1", "older")] {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        }
        let open = |name: &str| Folder::open(&dir.path().join(name)).expect("a folder");
        assert_eq!(open("in").move_to(OsStr::new("a"), &open("done")).expect("it moves"), "a.2");
        assert_eq!(open("done").names().expect("names"), ["a", "a.1", "a.2"]);
        std::fs::write(dir.path().join("in/a"), "newer").expect("a file");
        let back = open("done").move_back(OsStr::new("a.2"), &open("in"), OsStr::new("a"));
        assert_eq!(back.expect_err("the name is taken").kind(), std::io::ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(dir.path().join("done/a.2")).expect("it is there"), b"new");
    }
}
