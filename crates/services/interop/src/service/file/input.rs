//! Reads a file of messages in pieces: unchanged, or converted from UTF-16, which is allowed in a file and not in a
//! frame.
//!
//! A progress file beside the finished files contains how many messages of which version of a file are stored, by which
//! bound, and how many of them were refused for good. It is written without a flush: if it is lost or old after a loss of
//! power, messages are ingested again. It never counts a message that is not durable. Earlier versions have written it
//! without the bound.
//!
//! Of a file no more is read than it had when it was opened, and what was read while it changed is not given out.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;

use crc_fast::{CrcAlgorithm, checksum};
use hl7::batch::{BatchEvent, Stream};
use hl7::charset::Charset;
use hl7::{Draft, Reading};

use crate::folder::{FileStamp, Folder};

/// How many bytes are read at a time.
const PIECE: usize = 256 << 10;

/// Messages that are taken before the next are read, by number and by bytes: they share a flush of the journal.
const WINDOW: usize = 256;
const WINDOW_BYTES: usize = 4 << 20;

/// Bytes of a name at most (`NAME_MAX` of limits.h).
const NAME_MAX: usize = 255;

/// A file that is being read.
pub(super) struct Input {
    file: File,
    stamp: FileStamp,
    wide: Option<Wide>,
    stream: Option<Stream>,
    /// Bytes that are not read yet.
    left: u64,
    broken: bool,
    changed: bool,
}

impl Input {
    /// Opens a file; messages have `bound` bytes at most.
    pub(super) fn open(folder: &Folder, name: &OsStr, bound: usize) -> io::Result<Input> {
        let (file, stamp) = folder.read(name)?;
        let mut input =
            Input { file, stamp, wide: None, stream: None, left: stamp.size, broken: false, changed: false };
        // The meaning of an LF depends on whether there is a CR anywhere: mostly the first piece has one.
        let mut has_cr = false;
        let mut first = true;
        let mut wide = None;
        let mut piece = Vec::new();
        while !has_cr && !input.broken && input.piece(&mut piece)? {
            if std::mem::take(&mut first) {
                wide = Wide::of(&piece);
                input.wide = wide.clone();
                input.broken |= input.wide.as_mut().is_some_and(|wide| !wide.narrow(&mut piece));
            }
            has_cr = piece.contains(&b'\r');
        }
        input.file.rewind()?;
        input.left = stamp.size;
        input.wide = wide;
        input.broken = false;
        input.stream = Some(Stream::new(has_cr, bound));
        Ok(input)
    }

    /// The version of the file that was opened.
    pub(super) fn stamp(&self) -> FileStamp {
        self.stamp
    }

    /// Whether all of it was given.
    pub(super) fn has_ended(&self) -> bool {
        self.stream.is_none()
    }

    /// Whether its content contradicts its beginning; no more input is read from it.
    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// Whether it was written to since it was opened: nothing more is given out.
    pub(super) fn is_changed(&self) -> bool {
        self.changed
    }

    /// Reads on, until there are messages enough for a while or no more.
    pub(super) fn window(mut self) -> io::Result<(Input, Vec<BatchEvent>)> {
        let (mut events, mut seen) = (Vec::new(), 0);
        let (mut messages, mut bytes) = (0, 0);
        let mut piece = Vec::new();
        while messages < WINDOW && bytes < WINDOW_BYTES && !self.broken {
            let more = self.piece(&mut piece)?;
            if self.broken {
                break;
            }
            let Some(stream) = &mut self.stream else { break };
            if more {
                stream.feed(&piece, &mut events);
            } else if let Some(stream) = self.stream.take() {
                stream.end(&mut events);
            }
            for event in &mut events[seen..] {
                if let BatchEvent::Message { bytes: message, .. } = event {
                    if self.wide.is_some() {
                        declare_utf8(message);
                    }
                    messages += 1;
                    bytes += message.len();
                }
            }
            seen = events.len();
        }
        self.changed = FileStamp::of_file(&self.file)? != self.stamp;
        if self.changed {
            events.clear();
        }
        Ok((self, events))
    }

    /// The next piece; false at the end.
    fn piece(&mut self, piece: &mut Vec<u8>) -> io::Result<bool> {
        piece.resize(usize::try_from(self.left).unwrap_or(PIECE).min(PIECE), 0);
        let read = loop {
            match self.file.read(piece) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        piece.truncate(read);
        self.left -= read as u64;
        if let Some(wide) = &mut self.wide {
            self.broken |= if read == 0 { !wide.is_whole() } else { !wide.narrow(piece) };
        }
        Ok(read > 0)
    }
}

/// Makes a message that was UTF-16 declare UTF-8. If its delimiters do not permit the name in MSH-18, MSH-18 is
/// unchanged.
fn declare_utf8(message: &mut Vec<u8>) {
    let Ok(text) = std::str::from_utf8(message) else { return };
    let reading = Reading::of_text(text);
    let Ok(parsed) = reading.message() else { return };
    let mut draft = Draft::new(&parsed);
    let mut declared = Vec::with_capacity(message.len() + 16);
    if Charset::UTF_8.declare(&mut draft).is_ok() {
        draft.write_to(&mut declared);
        *message = declared;
    }
}

/// UTF-16 in pieces: the incomplete unit or pair of units at the end of a piece.
#[derive(Clone)]
struct Wide {
    is_little: bool,
    odd: Option<u8>,
    high: Option<u16>,
}

impl Wide {
    /// The encoding by which the first piece of a file begins: a byte order mark, or a header in two bytes a letter.
    fn of(piece: &[u8]) -> Option<Wide> {
        let is_header = |name: &[u8]| matches!(name, b"MSH" | b"FHS" | b"BHS");
        let (is_little, is_wide) = match *piece {
            [0xFF, 0xFE, ..] => (true, true),
            [0xFE, 0xFF, ..] => (false, true),
            [a, 0, b, 0, c, 0, ..] => (true, is_header(&[a, b, c])),
            [0, a, 0, b, 0, c, ..] => (false, is_header(&[a, b, c])),
            _ => return None,
        };
        is_wide.then_some(Wide { is_little, odd: None, high: None })
    }

    /// Makes UTF-8 of a piece, in place; false where it is no UTF-16.
    fn narrow(&mut self, piece: &mut Vec<u8>) -> bool {
        let odd = self.odd.take();
        let mut bytes = odd.into_iter().chain(piece.iter().copied());
        let mut units = Vec::with_capacity(piece.len() / 2 + 2);
        units.extend(self.high.take());
        while let Some(first) = bytes.next() {
            let Some(second) = bytes.next() else {
                self.odd = Some(first);
                break;
            };
            let pair = [first, second];
            units.push(if self.is_little { u16::from_le_bytes(pair) } else { u16::from_be_bytes(pair) });
        }
        self.high = units.pop_if(|unit| (0xD800..0xDC00).contains(unit));
        match char::decode_utf16(units).collect::<Result<String, _>>() {
            Ok(text) => {
                *piece = text.into_bytes();
                true
            }
            Err(_) => false,
        }
    }

    fn is_whole(&self) -> bool {
        self.odd.is_none() && self.high.is_none()
    }
}

/// The name of the progress file of a file. A name may have [`NAME_MAX`] bytes: of one for which that is too few it has a checksum.
fn progress_name(name: &OsStr) -> OsString {
    let mut progress = OsString::from(".");
    if name.len() + ".".len() + ".taken.part".len() > NAME_MAX {
        progress.push(format!("{:016x}", checksum(CrcAlgorithm::Crc64Nvme, name.as_bytes())));
    } else {
        progress.push(name);
    }
    progress.push(".taken");
    progress
}

fn version(stamp: &FileStamp) -> String {
    format!("{} {} {} {}", stamp.size, stamp.changed.0, stamp.changed.1, stamp.number)
}

/// How much of a file is stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Messages, from the first on.
    pub(super) stored: u64,
    /// Those among them that were refused for good.
    pub(super) too_large: u64,
}

/// Notes how much of a version of a file is stored, where messages have `bound` bytes at most.
pub(super) fn write_progress(
    folder: &Folder,
    name: &OsStr,
    (stamp, bound): (&FileStamp, usize),
    progress: Progress,
) -> io::Result<()> {
    let path = progress_name(name);
    let mut part = path.clone();
    part.push(".part");
    let Progress { stored, too_large } = progress;
    folder.create(&part)?.write_all(format!("{stored} {} {bound} {too_large}\n", version(stamp)).as_bytes())?;
    folder.replace(&part, &path)
}

/// How much of this version of a file its progress file has as stored; none where that cannot be read, or was counted by another bound.
pub(super) fn read_progress(folder: &Folder, name: &OsStr, stamp: &FileStamp, bound: usize) -> Option<Progress> {
    let mut text = String::new();
    let read = folder.read(&progress_name(name)).and_then(|(file, _)| file.take(1 << 10).read_to_string(&mut text));
    read.ok()?;
    let (stored, of) = text.trim_end().split_once(' ')?;
    let too_large = match of.strip_prefix(&version(stamp))? {
        "" => 0,
        rest => {
            let (by, too_large) = rest.strip_prefix(' ')?.split_once(' ')?;
            if by.parse() != Ok(bound) {
                return None;
            }
            too_large.parse().ok()?
        }
    };
    Some(Progress { stored: stored.parse().ok()?, too_large })
}

/// Removes the progress file of a file that was moved; where that fails it is of a version that does not come back.
pub(super) fn forget(folder: &Folder, name: &OsStr) {
    drop(folder.remove(&progress_name(name)));
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn utf_16_is_narrowed_however_it_is_cut_and_half_a_character_is_noticed() {
        let text = "\u{feff}MSH|^~\\&|\u{5c71}\u{1F600}\r";
        for little in [true, false] {
            let raw: Vec<u8> =
                text.encode_utf16().flat_map(|u| if little { u.to_le_bytes() } else { u.to_be_bytes() }).collect();
            for size in 1..=raw.len() {
                let mut wide = Wide::of(&raw).expect("a mark");
                let mut narrow = Vec::new();
                for piece in raw.chunks(size) {
                    let mut piece = piece.to_vec();
                    assert!(wide.narrow(&mut piece));
                    narrow.extend(piece);
                }
                assert_eq!(String::from_utf8(narrow).as_deref(), Ok(text));
                assert!(wide.is_whole());
            }
            let mut wide = Wide::of(&raw).expect("a mark");
            assert!(wide.narrow(&mut raw[..raw.len() - 4].to_vec()));
            assert!(!wide.is_whole(), "the second half of a pair is missing");
        }
        assert!(Wide::of(b"MSH|").is_none());
    }

    #[test]
    fn what_is_read_while_the_file_changes_is_not_given_out_and_no_more_is_read_than_it_had() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(dir.path()).expect("a folder");
        let message = "MSH|^~\\&|A||||||ADT^A01|1|P|2.5\r";
        fs::write(dir.path().join("a"), message).expect("a file");
        let input = Input::open(&folder, OsStr::new("a"), 1 << 10).expect("it opens");
        let (input, events) = input.window().expect("it reads");
        assert_eq!((events.len(), input.has_ended(), input.is_changed()), (1, true, false));
        for (before, after) in [(1, 2), (2, 1), (300_000, 300_001)] {
            fs::write(dir.path().join("a"), message.repeat(before)).expect("a file");
            let input = Input::open(&folder, OsStr::new("a"), 1 << 10).expect("it opens");
            fs::write(dir.path().join("a"), message.repeat(after)).expect("a file");
            let (input, events) = input.window().expect("it reads");
            assert!(events.is_empty() && input.is_changed(), "{before} {after}");
        }
    }

    #[test]
    fn a_progress_file_counts_for_one_version_of_its_file() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = Folder::open(dir.path()).expect("a folder");
        let name = OsStr::new("a.hl7");
        let stamp = FileStamp { is_file: true, is_link: false, size: 7, changed: (1, 2), number: 3 };
        assert_eq!(read_progress(&folder, name, &stamp, 9), None);
        for stored in [512, 768] {
            let progress = Progress { stored, too_large: 2 };
            write_progress(&folder, name, (&stamp, 9), progress).expect("it can be written");
            assert_eq!(read_progress(&folder, name, &stamp, 9), Some(progress));
        }
        let other = FileStamp { changed: (1, 3), ..stamp };
        assert_eq!(read_progress(&folder, name, &other, 9), None, "the file was written again");
        assert_eq!(read_progress(&folder, name, &stamp, 99), None, "other messages were counted");
        fs::write(dir.path().join(".a.hl7.taken"), "256 7 1 2 3\n").expect("a file");
        let former = read_progress(&folder, name, &stamp, 9);
        assert_eq!(former, Some(Progress { stored: 256, too_large: 0 }), "of an earlier version");
        forget(&folder, name);
        for length in [200, 243, 244, 255] {
            let (name, progress) = (OsString::from("n".repeat(length)), Progress { stored: 7, too_large: 0 });
            write_progress(&folder, &name, (&stamp, 9), progress).expect("however long the name is");
            assert_eq!(read_progress(&folder, &name, &stamp, 9), Some(progress));
            forget(&folder, &name);
        }
        assert_eq!(folder.names().expect("names"), Vec::<OsString>::new());
    }
}
