//! `terrace bench`: starts terrace-lab, the program of the measurements, as git starts its subcommands.
//!
//! It is searched beside this program, then on the PATH, and replaces this process: signals, output and exit code are
//! those of terrace-lab. It measures nodes of the program that started it.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::Context;

/// Name of the program.
const LAB: &str = "terrace-lab";

/// Becomes terrace-lab; returns only where that cannot be.
pub fn run(arguments: &[OsString]) -> anyhow::Result<ExitCode> {
    let this = std::env::current_exe().context("finding this program")?;
    let error = command(&this, arguments).exec();
    if error.kind() == ErrorKind::NotFound {
        anyhow::bail!(
            "there is no {LAB} beside {} or on the PATH: build it with `cargo build --release --package bench`",
            this.display()
        );
    }
    Err(error).with_context(|| format!("starting {LAB}"))
}

/// How terrace-lab is started by the program `this`.
fn command(this: &Path, arguments: &[OsString]) -> Command {
    let beside = this.with_file_name(LAB);
    let mut command = if beside.is_file() { Command::new(beside) } else { Command::new(LAB) };
    command.arg("--terrace").arg(this).args(arguments);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lab_beside_this_program_comes_before_that_on_the_path_and_measures_this_program() {
        let folder = tempfile::tempdir().expect("a folder");
        let this = folder.path().join("terrace");
        let arguments = ["t4", "--quick"].map(OsString::from);
        let on_the_path = command(&this, &arguments);
        assert_eq!(on_the_path.get_program(), LAB);
        let beside = folder.path().join(LAB);
        std::fs::write(&beside, "").expect("writes");
        let started = command(&this, &arguments);
        assert_eq!(started.get_program(), beside);
        assert_eq!(
            started.get_args().collect::<Vec<_>>(),
            ["--terrace".as_ref(), this.as_os_str(), "t4".as_ref(), "--quick".as_ref()]
        );
    }
}
