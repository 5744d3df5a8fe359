//! Ctrl-C during a measurement: everything is removed and stopped, then the program ends.
//!
//! ```text
//! signal -> request()          heed(), once in a program; a second signal ends it at once
//!             |
//!           check()        in every loop that waits: an error, so that nodes, loads and folders are dropped on the way out
//! ```
//!
//! Invariants: a loop of this crate that may last longer than a second checks; asking is for the whole process and is not
//! taken back. A load in the terminal's group gets the signal too and ends by itself, which ends the wait for it.
//!
//! The exit code is then 130, as a shell's.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

/// Exit code of a measurement that was ended by a signal: 128 + SIGINT.
const INTERRUPTED: u8 = 130;

/// How often a program that only waits looks whether it should end: a person does not notice it, and it costs nothing.
const LOOK: Duration = Duration::from_millis(50);

/// Set when the user requested the end; nothing else is published with it.
static ASKED: AtomicBool = AtomicBool::new(false);

/// The error of a measurement that the user ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// Waits until the user requests the end, by SIGINT or SIGTERM, or `over` holds.
///
/// # Errors
/// Those of `over`.
pub fn wait_until(mut over: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    while !is_asked() && !over()? {
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Ends every measurement of this process, now and from now on.
pub fn request() {
    ASKED.store(true, Ordering::Relaxed);
}

/// Whether the user requested the end.
pub fn is_asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// Returns an error if the user requested the end.
///
/// # Errors
/// `Interrupted`.
pub fn check() -> Result<(), Interrupted> {
    if is_asked() { Err(Interrupted) } else { Ok(()) }
}

/// From now on SIGINT and SIGTERM request the end, and a second one ends the process at once.
///
/// # Errors
/// If the process cannot handle signals.
pub fn heed() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    std::thread::spawn(move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if is_asked() {
                    std::process::exit(i32::from(INTERRUPTED));
                }
                request();
            }
        });
    });
    Ok(())
}

/// The result of a measurement as an exit code; an end by a signal is no failure.
///
/// # Errors
/// All but [`Interrupted`].
pub fn in_order(result: anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    match result {
        Err(error) if error.is::<Interrupted>() => {
            eprintln!("{error:#}");
            Ok(ExitCode::from(INTERRUPTED))
        }
        result => result,
    }
}
