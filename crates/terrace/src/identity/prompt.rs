//! Asks for a new password: on the terminal twice and without showing it, else the first line of a file or of standard input.
//!
//! The password itself is sent nowhere, and is no argument: other users of the machine see these.

use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal};
use std::path::Path;

use anyhow::{Context, bail, ensure};
use console::Term;
use node::identity::Credentials;

/// The forms of a new password of a role.
///
/// # Errors
/// It cannot be read, was typed differently the second time, or is none that a role may have.
pub fn password(name: &str, file: Option<&Path>) -> anyhow::Result<Credentials> {
    let typed = match file {
        Some(file) => {
            let read = File::open(file).map(BufReader::new).and_then(first_line);
            read.with_context(|| format!("cannot read {}", file.display()))?
        }
        None => new_password()?,
    };
    let mut made = Credentials::default();
    made.set_password(name, &typed)?;
    Ok(made)
}

/// A password that somebody has already: from the first line of a file, from the terminal, or from standard input.
///
/// # Errors
/// It cannot be read.
pub fn typed_password(file: Option<&Path>) -> anyhow::Result<String> {
    match file {
        Some(file) => {
            let read = File::open(file).map(BufReader::new).and_then(first_line);
            read.with_context(|| format!("cannot read {}", file.display()))
        }
        None if std::io::stdin().is_terminal() => hidden("password (it is not shown): "),
        None => first_line(std::io::stdin().lock()).context("cannot read the password from standard input"),
    }
}

/// A new password, from the terminal or from standard input.
///
/// # Errors
/// It cannot be read, or was typed differently the second time.
pub fn new_password() -> anyhow::Result<String> {
    if std::io::stdin().is_terminal() {
        return twice(&mut hidden);
    }
    first_line(std::io::stdin().lock()).context("cannot read the password from standard input")
}

fn first_line(mut from: impl BufRead) -> std::io::Result<String> {
    let mut line = String::new();
    from.read_line(&mut line)?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}

/// A line that is typed on the terminal, which does not show it meanwhile.
fn hidden(question: &str) -> anyhow::Result<String> {
    // What the crate asks by must be a terminal too, or it reads nothing.
    let terms = [Term::stderr(), Term::stdout()];
    let Some(term) = terms.into_iter().find(Term::is_term) else {
        bail!("there is no terminal to ask on: use --password-file, or write the password to standard input");
    };
    term.write_str(question)?;
    term.read_secure_line().context("cannot read the password from the terminal")
}

/// Who sees nothing of what is typed makes mistakes: a new password is asked for again.
fn twice(ask: &mut dyn FnMut(&str) -> anyhow::Result<String>) -> anyhow::Result<String> {
    let typed = ask("new password (it is not shown): ")?;
    ensure!(typed == ask("the same again: ")?, "the two passwords are not the same: nothing was changed");
    Ok(typed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_counts_if_it_is_typed_twice_the_same() {
        for (typed, expected) in
            [(["a long one", "a long one"], Some("a long one")), (["a long one", "a l0ng one"], None)]
        {
            let mut asked = typed.into_iter();
            let found = twice(&mut |_| Ok(asked.next().expect("twice").to_owned()));
            assert_eq!(found.ok().as_deref(), expected);
            assert_eq!(asked.next(), None);
        }
    }

    #[test]
    fn of_a_file_the_first_line_counts_without_its_end() {
        for (text, expected) in [("secret\r\nmore", "secret"), ("secret", "secret"), (" x \n", " x "), ("", "")] {
            assert_eq!(first_line(text.as_bytes()).expect("it is read"), expected);
        }
    }
}
