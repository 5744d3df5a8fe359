//! Runs many seeds of the simulation of volumes:
//!
//! ```text
//!   cargo run --release -p volume --features simulation --example volume_simulation -- [--seeds N] [--from SEED] [--without RULE]
//! ```
//!
//! It ends with an error at the first seed that fails, with its last events and the command that runs it again. `--without` leaves out
//! one of the rules 1 to 5: then a seed must fail.

use std::process::ExitCode;
use std::time::Instant;

use volume::simulation::{Report, Rule, leave_out, run};

const USAGE: &str = "volume_simulation [--seeds N] [--from SEED] [--without 1|2|3|4|5]";

fn main() -> ExitCode {
    let (mut seeds, mut from, mut without) = (10_000_u64, 0_u64, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let value = arguments.next().and_then(|value| value.parse::<u64>().ok());
        match (argument.as_str(), value) {
            ("--seeds", Some(value)) => seeds = value,
            ("--from", Some(value)) => from = value,
            ("--without", Some(value @ 1..=5)) => {
                let rules = [Rule::AllInSync, Rule::ExclusionFirst, Rule::Equal, Rule::Fencing, Rule::Rejoin];
                without = Some(rules[value as usize - 1]);
            }
            _ => {
                eprintln!("{USAGE}");
                return ExitCode::from(2);
            }
        }
    }
    leave_out(without);
    let (began, mut all) = (Instant::now(), Report::default());
    for seed in from..from + seeds {
        match run(seed) {
            Ok(report) => all.add(&report),
            Err(why) => {
                println!("{why}\n\nagain: volume_simulation --seeds 1 --from {seed}");
                return ExitCode::FAILURE;
            }
        }
    }
    println!("{seeds} seeds from {from} in {:.0?}: nothing was violated\n{all}", began.elapsed());
    ExitCode::SUCCESS
}
