//! `terrace volume top`: what volumes do, from the difference of two reports.
//!
//! ```text
//!   volume   state    reads/s  MB/s  p50  p99   writes/s  MB/s  p50  p99   sessions, bytes in journals
//!   copy     tier     reads/s  MB/s  p50  p99   writes/s  MB/s  p50  p99   of the copy: a write ends when it is durable in its journal
//!   tier     in sync  reads/s  MB/s  p50  p99   writes/s  MB/s  p50  p99   destaged, behind: of the copies, and journals, that lie there
//!   copy     share of the volume's reads, mean time of a read, its cache, what it lacks and how fast that becomes less
//! ```
//!
//! The tables are made by `tables`, a pure function of two reports.

mod tables;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use self::tables::TopTables;
use super::Target;
use crate::terminal;
use crate::volumes::{TopArgs, VolumeReport, VolumeRequest};

/// Runs until Ctrl-C, or as often as is wanted.
pub fn run(args: &TopArgs) -> anyhow::Result<ExitCode> {
    let target = Target::find(&args.at)?;
    anyhow::ensure!(
        matches!(target, Target::Running(_)),
        "nothing serves these volumes: start `terrace serve`, or `terrace volume export NAME`"
    );
    let report = || target.send::<Vec<VolumeReport>>(VolumeRequest::Status { names: args.names.clone() });
    let (mut before, mut at) = (report()?, Instant::now());
    let mut shown = 0;
    loop {
        std::thread::sleep(Duration::from_secs(args.interval));
        let now = report()?;
        let seconds = at.elapsed().as_secs_f64();
        at = Instant::now();
        if std::io::stdout().is_terminal() {
            terminal::clear();
        } else if shown > 0 {
            println!();
        }
        print!("{}", TopTables::of(&before, &now, seconds));
        before = now;
        shown += 1;
        if args.times > 0 && shown >= args.times {
            return Ok(ExitCode::SUCCESS);
        }
    }
}
