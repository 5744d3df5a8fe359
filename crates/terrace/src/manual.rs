//! `terrace completions` and `terrace man-pages`: made of the command line itself, so that they cannot differ from it.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_complete::aot::{Bash, Fish, Zsh, generate};

use crate::cli::{Cli, CompletionShell, CompletionsArgs, ManPagesArgs};

/// The name of the program, as users type it.
const PROGRAM: &str = "terrace";

/// Prints the completions of a shell.
pub fn completions(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    print!("{}", String::from_utf8(completions_of(args.shell)).context("completions are text")?);
    Ok(ExitCode::SUCCESS)
}

fn completions_of(shell: CompletionShell) -> Vec<u8> {
    let (mut command, mut text) = (Cli::command(), Vec::new());
    match shell {
        CompletionShell::Bash => generate(Bash, &mut command, PROGRAM, &mut text),
        CompletionShell::Zsh => generate(Zsh, &mut command, PROGRAM, &mut text),
        CompletionShell::Fish => generate(Fish, &mut command, PROGRAM, &mut text),
    }
    text
}

/// Writes a page for each command: `terrace.1`, `terrace-message-list.1`.
pub fn man_pages(args: &ManPagesArgs) -> anyhow::Result<ExitCode> {
    fs::create_dir_all(&args.dir).with_context(|| format!("cannot make {}", args.dir.display()))?;
    let mut command = Cli::command();
    // Names of pages and usage lines are of the whole command, as `terrace message list`.
    command.build();
    let written = write_pages(&command, PROGRAM, &args.dir)?;
    println!("wrote {written} pages to {}", args.dir.display());
    Ok(ExitCode::SUCCESS)
}

fn write_pages(command: &Command, name: &str, dir: &Path) -> anyhow::Result<usize> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).date("").render(&mut text).context("a page cannot be made")?;
    let path = dir.join(format!("{name}.1"));
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    let mut written = 1;
    for part in command.get_subcommands().filter(|part| !part.is_hide_set() && part.get_name() != "help") {
        written += write_pages(part, &format!("{name}-{}", part.get_name()), dir)?;
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every command that is shown, as `message list`.
    fn commands(of: &Command, before: &str, all: &mut Vec<String>) {
        for part in of.get_subcommands().filter(|part| !part.is_hide_set() && part.get_name() != "help") {
            let name = format!("{before}{}", part.get_name());
            commands(part, &format!("{name} "), all);
            all.push(name);
        }
    }

    #[test]
    fn every_command_has_a_page_and_is_completed_in_every_shell() {
        let mut all = Vec::new();
        commands(&Cli::command(), "", &mut all);
        assert!(all.len() > 50 && all.contains(&"message list".to_owned()), "{all:?}");
        let dir = tempfile::tempdir().expect("a folder");
        man_pages(&ManPagesArgs { dir: dir.path().to_owned() }).expect("pages are written");
        for command in &all {
            let page = dir.path().join(format!("terrace-{}.1", command.replace(' ', "-")));
            let text = fs::read_to_string(&page).unwrap_or_else(|error| panic!("{}: {error}", page.display()));
            assert!(text.contains(".SH SYNOPSIS") && text.contains(".SH NAME"), "{command}: {text}");
        }
        assert!(dir.path().join("terrace.1").is_file());
        let hidden = fs::read_dir(dir.path())
            .expect("it lists")
            .any(|file| file.expect("it lists").file_name().to_string_lossy().contains("t4-load"));
        assert!(!hidden, "hidden commands have no page");
        for shell in [CompletionShell::Bash, CompletionShell::Zsh, CompletionShell::Fish] {
            let text = String::from_utf8(completions_of(shell)).expect("text");
            for command in &all {
                let last = command.rsplit(' ').next().expect("a name");
                assert!(text.contains(last), "{shell:?} lacks {command}");
            }
        }
    }
}
