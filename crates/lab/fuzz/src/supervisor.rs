//! The parent: each target runs in a process of its own, so that a stack overflow, a hang or a kill is a finding too.
//!
//! If a child ends by a signal, its input is lost. The parent runs the same seed again and writes every input to a file
//! first; the last one written is the failing input.

use crate::session::traced;
use crate::targets::Target;
use anyhow::Context;
use std::path::Path;
use std::process::Command;

/// How a child ended.
#[derive(Debug, PartialEq)]
pub enum Verdict {
    /// Every input held.
    Held,
    /// An input failed; the child has reported which.
    Failed,
    /// The child was ended by this signal, or in another way it did not choose.
    Killed(String),
}

/// Runs `program` as the session of `target`; prints how to replay what it finds. Returns whether no input failed.
pub fn supervise(
    program: &Path,
    target: &Target,
    arguments: &[String],
    seed: u64,
    artifacts: &Path,
) -> anyhow::Result<bool> {
    let child = |more: &[&str]| -> anyhow::Result<Verdict> {
        let mut command = Command::new(program);
        command.args(["--child", target.name, "--seed", &seed.to_string()]).args(arguments).args(more);
        let status = command.status().with_context(|| format!("cannot run {}", program.display()))?;
        Ok(match status.code() {
            Some(0) => Verdict::Held,
            Some(1) => Verdict::Failed,
            _ => Verdict::Killed(status.to_string()),
        })
    };
    let verdict = child(&[])?;
    if let Verdict::Killed(how) = &verdict {
        println!("{}: ended by itself: {how}; running seed {seed} again to find the input", target.name);
        child(&["--trace"])?;
        println!(
            "{}: replay: cargo xtask fuzz {} --input {}",
            target.name,
            target.name,
            traced(artifacts, target).display()
        );
    }
    Ok(verdict == Verdict::Held)
}
