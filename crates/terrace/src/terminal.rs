//! All output of the program goes through here, so that quoted text cannot control the terminal.
//!
//! Messages, names of tables and files, answers of peers and lines of journals come from outside, and may contain
//! control sequences of a terminal (`ESC ]0;` sets its title, others its colours, its answers or its memory) or
//! characters that mislead a reader: those that change the direction of text or are invisible. [`plain`] writes each of
//! those as `\u001b`, which JSON reads as the character it is.
//!
//! `println!`, `print!` and `eprintln!` of this program are the macros below, which shadow the usual ones in every
//! module; code that writes to a stream uses [`out`], and the log uses [`log`]. Only [`raw`], of `message show --raw`, is not plain.
//!
//! Invariant: output of which a part could not be written ends the program with an error, whatever a command does with the errors of its
//! writes; only a reader that went away is none.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, IsTerminal, Stderr, StdoutLock, Write};
use std::sync::OnceLock;

/// As the standard macro, in plain text.
macro_rules! println {
    () => { $crate::terminal::print(::std::format_args!("\n")) };
    ($($arg:tt)*) => { $crate::terminal::print(::std::format_args!("{}\n", ::std::format_args!($($arg)*))) };
}

/// As the standard macro, in plain text.
macro_rules! print {
    ($($arg:tt)*) => { $crate::terminal::print(::std::format_args!($($arg)*)) };
}

/// As the standard macro, in plain text.
macro_rules! eprintln {
    ($($arg:tt)*) => { $crate::terminal::print_error(::std::format_args!("{}\n", ::std::format_args!($($arg)*))) };
}

/// Characters that a terminal obeys, that change how those around them are read, or that are not visible. (Unicode 16: the control
/// characters but LF and TAB; the bidirectional controls; the default ignorable ones; the separators of lines.)
fn is_hidden(character: char) -> bool {
    matches!(character,
        '\u{0}'..='\u{8}' | '\u{B}'..='\u{1F}' | '\u{7F}'..='\u{9F}'
        | '\u{AD}' | '\u{34F}' | '\u{61C}' | '\u{115F}' | '\u{1160}' | '\u{17B4}' | '\u{17B5}' | '\u{180B}'..='\u{180F}'
        | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{3164}'
        | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}' | '\u{FFA0}' | '\u{FFF0}'..='\u{FFFB}'
        | '\u{1BCA0}'..='\u{1BCA3}' | '\u{1D173}'..='\u{1D17A}' | '\u{E0000}'..='\u{E0FFF}')
}

/// Text without anything hidden in it; lines stay lines.
pub fn plain(text: &str) -> Cow<'_, str> {
    replaced(text, is_hidden)
}

/// The same for text that must stay on one line, for example a cell of a table.
pub fn one_line(text: &str) -> Cow<'_, str> {
    replaced(text, |character| is_hidden(character) || matches!(character, '\n' | '\t'))
}

fn replaced(text: &str, hidden: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&hidden) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if hidden(character) {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(character);
        }
    }
    Cow::Owned(out)
}

/// The payload with which a command unwinds whose output cannot be written any more: its reader has gone (`terrace status | head`), or
/// the disk is full (`terrace status >file`). No panic hook is called; `main` asks [`finish`] which it was.
#[derive(Clone, Copy, Debug)]
pub struct OutputLost;

/// Why standard output could not be written, the first time.
static LOST: OnceLock<(io::ErrorKind, String)> = OnceLock::new();

fn lost(error: &io::Error) {
    let _ = LOST.set((error.kind(), format!("standard output cannot be written: {error}")));
}

/// Prints; behind the macros.
///
/// # Panics
/// With [`OutputLost`], in silence, where it cannot be written.
pub fn print(text: fmt::Arguments<'_>) {
    if let Err(error) = io::stdout().write_all(plain(&text.to_string()).as_bytes()) {
        lost(&error);
        std::panic::resume_unwind(Box::new(OutputLost));
    }
}

/// Writes what is left of the output, and says whether all of it was written. What has no line end may wait until here.
///
/// # Errors
/// The first one of the whole output.
pub fn finish() -> io::Result<()> {
    let _ = io::stdout().flush().inspect_err(lost);
    match LOST.get() {
        None => Ok(()),
        Some((kind, text)) => Err(io::Error::new(*kind, text.clone())),
    }
}

/// Bytes as they are, for a file or a program: in plain text where standard output is a terminal.
///
/// # Errors
/// Those of writing.
pub fn raw(bytes: &[u8]) -> io::Result<()> {
    if io::stdout().is_terminal() {
        return out().write_all(bytes);
    }
    io::stdout().write_all(bytes).inspect_err(lost)
}

/// Clears the terminal, for a page that is shown anew.
pub fn clear() {
    // Cursor to the upper left corner, then erase below (ECMA-48: CUP, ED). Nobody is there to tell where it fails.
    let _ = io::stdout().write_all(b"\x1b[H\x1b[J");
}

/// Prints to standard error; behind the macro. Where that cannot be written, nobody is there to tell, and the command goes on.
pub fn print_error(text: fmt::Arguments<'_>) {
    let _ = io::stderr().write_all(plain(&text.to_string()).as_bytes());
}

/// Standard output in plain text; bytes that are no UTF-8 are shown as `\xff`.
pub fn out() -> Plain<StdoutLock<'static>> {
    Plain { to: io::stdout().lock(), line: Vec::new() }
}

/// See [`out`]. The output is passed on line by line, the rest when it is flushed.
#[derive(Debug)]
pub struct Plain<W: Write> {
    to: W,
    line: Vec<u8>,
}

impl<W: Write> Plain<W> {
    fn pass(&mut self, end: usize) -> io::Result<()> {
        let mut shown = String::new();
        for chunk in self.line[..end].utf8_chunks() {
            shown.push_str(&plain(chunk.valid()));
            chunk.invalid().iter().for_each(|byte| shown.push_str(&format!("\\x{byte:02x}")));
        }
        self.line.drain(..end);
        self.to.write_all(shown.as_bytes()).inspect_err(lost)
    }
}

impl<W: Write> Write for Plain<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        if let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') {
            self.pass(self.line.len() - bytes.len() + end + 1)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.pass(self.line.len())?;
        self.to.flush()
    }
}

impl<W: Write> Drop for Plain<W> {
    fn drop(&mut self) {
        // It is told by `finish`.
        let _ = self.flush().inspect_err(lost);
    }
}

/// Standard error for the log: a record is one line, and only the log's own colours are left in it.
pub fn log() -> Log<Stderr> {
    Log(io::stderr())
}

/// See [`log`].
#[derive(Debug)]
pub struct Log<W: Write>(W);

#[cfg(test)]
impl<W: Write> Log<W> {
    /// The log in front of another writer.
    pub fn of(to: W) -> Self {
        Log(to)
    }
}

impl<W: Write> Write for Log<W> {
    /// Takes a record whole, as the log writes it.
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(record);
        let (text, end) = text.strip_suffix('\n').map_or((&*text, ""), |text| (text, "\n"));
        let mut shown = String::with_capacity(record.len());
        let mut rest = text;
        while let Some(at) = rest.find('\u{1b}') {
            shown.push_str(&one_line(&rest[..at]));
            let colour = colour(&rest[at..]);
            shown.push_str(if colour == 0 { "\\u001b" } else { &rest[at..at + colour] });
            rest = &rest[at + colour.max(1)..];
        }
        shown.push_str(&one_line(rest));
        self.0.write_all((shown + end).as_bytes())?;
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// How long the sequence is that sets a colour or a style, at the beginning of a text; 0 for any other.
fn colour(text: &str) -> usize {
    let Some(rest) = text.strip_prefix("\u{1b}[") else { return 0 };
    let parameters = rest.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b';').count();
    if rest.as_bytes().get(parameters) == Some(&b'm') { parameters + 3 } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_or_nobody_sees_is_written_out_and_json_reads_it_back() {
        for (text, shown) in [
            ("M\u{fc}ller \u{5c71}\n\tx", "M\u{fc}ller \u{5c71}\n\tx"),
            ("\u{1b}]0;owned\u{7}", "\\u001b]0;owned\\u0007"),
            ("a\rb\u{7f}\u{9b}31m", "a\\u000db\\u007f\\u009b31m"),
            ("\u{202e}gpj.exe\u{2066}", "\\u202egpj.exe\\u2066"),
            ("a\u{200b}b\u{feff}", "a\\u200bb\\ufeff"),
            ("\u{e0041}", "\\udb40\\udc41"),
        ] {
            assert_eq!(plain(text), shown);
        }
        assert_eq!(one_line("a\nb\tc"), "a\\u000ab\\u0009c");
        let value = serde_json::json!({ "name": "a\u{9b}\u{202e}\u{e0041}\u{1b}b" });
        let shown = plain(&value.to_string()).into_owned();
        assert!(shown.is_ascii(), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).expect("JSON"), value);
    }

    #[test]
    fn a_stream_shows_the_same_however_it_is_cut_and_bytes_that_are_no_text() {
        let bytes = b"a\x1b[2Jb\nM\xC3\xBCller \xFC\x1b";
        for size in 1..=bytes.len() {
            let mut plain = Plain { to: Vec::new(), line: Vec::new() };
            bytes.chunks(size).for_each(|chunk| plain.write_all(chunk).expect("there is room"));
            plain.flush().expect("there is room");
            let shown = String::from_utf8(std::mem::take(&mut plain.to)).expect("text");
            assert_eq!(shown, "a\\u001b[2Jb\nM\u{fc}ller \\xfc\\u001b");
        }
    }

    #[test]
    fn a_log_record_is_one_line_with_the_colours_of_the_log_only() {
        let mut log = Log(Vec::new());
        let record = "\u{1b}[32m INFO\u{1b}[0m file=a\nERROR forged\u{1b}]0;x\u{7}\u{1b}\n";
        log.write_all(record.as_bytes()).expect("there is room");
        let shown = String::from_utf8(log.0).expect("text");
        assert_eq!(shown, "\u{1b}[32m INFO\u{1b}[0m file=a\\u000aERROR forged\\u001b]0;x\\u0007\\u001b\n");
    }

    #[test]
    fn nothing_in_the_program_prints_around_it() {
        let around = ["io::stdout(", "io::stderr(", "std::println!", "std::print!", "std::eprintln!"];
        let mut folders = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("it lists") {
                let path = entry.expect("it lists").path();
                if path.is_dir() {
                    folders.push(path);
                } else if !path.ends_with("terminal.rs") {
                    let text = std::fs::read_to_string(&path).expect("it reads");
                    let prints = |line: &&str| {
                        around.iter().any(|word| line.contains(word))
                            && !line.contains(".is_terminal()")
                            && !line.contains(".flush()")
                    };
                    let found: Vec<&str> = text.lines().filter(prints).collect();
                    assert!(found.is_empty(), "{}: {found:?}; use crate::terminal", path.display());
                }
            }
        }
    }
}
