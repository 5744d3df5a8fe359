//! The user's command: run in a folder, its output kept, ended with all that it started.
//!
//! It is in a process group of its own, and finds `TERRACE_DIR` (the folder, also its working directory) and `TERRACE_MEDIUM`; `{}` in its
//! arguments is the folder. Its umask is 022: the measurement's own is narrower.
//!
//! Invariant: when [`run`] returns, its process has ended; after the user's request to end, or too long a time, its group was killed.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};
use workload::interrupt;

/// The end of an output that is kept, bytes: figures are at the end.
const KEPT: usize = 1 << 20;
/// Lines of the output in an error.
const LINES: usize = 12;
/// How often the end is looked for.
const LOOK: Duration = Duration::from_millis(10);
/// How long the rest of the output may take after the end.
const DRAIN: Duration = Duration::from_secs(2);

/// How a run went.
#[derive(Debug)]
pub struct Outcome {
    /// The end of standard output and standard error.
    pub output: String,
    /// From start to end.
    pub elapsed: Duration,
}

/// Runs a command to its end.
///
/// # Errors
/// It cannot be started, failed, or took longer than `patience`; the user's request to end.
pub fn run(command: &[String], folder: &Path, medium: &str, patience: Duration) -> anyhow::Result<Outcome> {
    let folder_text = folder.to_str().context("the folder's name is text")?;
    let arguments = command.iter().map(|argument| argument.replace("{}", folder_text));
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "umask 022; exec \"$@\"", "sh"]).args(arguments).current_dir(folder);
    shell.env("TERRACE_DIR", folder).env("TERRACE_MEDIUM", medium).process_group(0);
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let started = Instant::now();
    let mut child = shell.spawn().context("starting the command")?;
    let out = child.stdout.take().map(Gathering::start);
    let err = child.stderr.take().map(Gathering::start);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if interrupt::is_asked() || started.elapsed() > patience {
            end(&mut child);
            interrupt::check()?;
            bail!("the command took longer than {} s on {medium}: see --timeout", patience.as_secs());
        }
        std::thread::sleep(LOOK);
    };
    let elapsed = started.elapsed();
    // What it left running has the pipes too, and belongs to the run.
    end(&mut child);
    let text = |gathering: Option<Gathering>| gathering.map(Gathering::text).unwrap_or_default();
    let output = text(out) + &text(err);
    let name = command.first().map_or("", String::as_str);
    ensure!(status.success(), "{name} failed on {medium} ({status}):\n{}", last_lines(&output));
    Ok(Outcome { output, elapsed })
}

/// Kills the group of a process, and waits for the process.
fn end(child: &mut Child) {
    if let Some(pid) = Pid::from_raw(child.id() as i32) {
        let _ = kill_process_group(pid, Signal::KILL);
    }
    let _ = child.wait();
}

/// Reads a pipe to its end, and keeps the last part.
struct Gathering {
    kept: Arc<Mutex<Vec<u8>>>,
    thread: JoinHandle<()>,
}

impl Gathering {
    fn start(mut from: impl Read + Send + 'static) -> Gathering {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let own = Arc::clone(&kept);
        let thread = std::thread::spawn(move || {
            let mut part = vec![0; 64 << 10];
            while let Ok(count @ 1..) = from.read(&mut part) {
                let mut kept = own.lock();
                kept.extend_from_slice(&part[..count]);
                if kept.len() > 2 * KEPT {
                    let cut = kept.len() - KEPT;
                    kept.drain(..cut);
                }
            }
        });
        Gathering { kept, thread }
    }

    /// What it has read. A daemon in a session of its own may keep the pipe open for ever: it is not waited for.
    fn text(self) -> String {
        let began = Instant::now();
        while !self.thread.is_finished() && began.elapsed() < DRAIN {
            std::thread::sleep(LOOK);
        }
        String::from_utf8_lossy(&self.kept.lock()).into_owned()
    }
}

fn last_lines(output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, patience: Duration) -> anyhow::Result<Outcome> {
        let command = ["sh", "-c", script].map(str::to_owned);
        run(&command, &std::env::temp_dir(), "sata", patience)
    }

    #[test]
    fn a_command_finds_its_folder_and_medium_and_its_output_is_kept() {
        let folder = std::env::temp_dir();
        let shown = shell("echo $TERRACE_MEDIUM {}; pwd; umask; echo err >&2", Duration::from_secs(30)).expect("runs");
        let folder = folder.display();
        let expected = format!("sata {folder}\n{folder}\n0022\nerr\n");
        assert_eq!(shown.output, expected);
        let long = shell("seq 1 400000", Duration::from_secs(60)).expect("runs").output;
        assert!(long.ends_with("400000\n") && long.len() <= 2 * KEPT);
    }

    #[test]
    fn a_failure_shows_the_last_lines_and_a_command_that_hangs_is_killed_with_its_children() {
        let error = shell("seq 1 100; exit 4", Duration::from_secs(30)).expect_err("it fails").to_string();
        assert!(error.contains("\n100") && !error.contains("\n50\n") && error.contains('4'), "{error}");
        let began = Instant::now();
        let error = shell("sleep 600 & sleep 600", Duration::from_millis(300)).expect_err("too long").to_string();
        assert!(error.contains("--timeout") && began.elapsed() < Duration::from_secs(60), "{error}");
        // A child that holds the pipes open does not hold up the run either.
        shell("sleep 600 & echo done", Duration::from_secs(30)).expect("it ends");
        assert!(began.elapsed() < Duration::from_secs(120));
    }
}
