//! `terrace-fleet`: `terrace bench fleet` as a program of its own, which builds in a minute because it is without DataFusion. Exit codes are
//! those of terrace-lab: 0 done, 1 something was wrong, 2 it could not run, 130 a signal ended it.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use device::CountedHeap;
use fleet::FleetArgs;
use workload::interrupt;

/// As the node's.
#[global_allocator]
static ALLOCATOR: CountedHeap = CountedHeap;

/// Loads on mirrored volumes, beside the published figures.
#[derive(Debug, Parser)]
#[command(name = "terrace-fleet", version, max_term_width = 100)]
struct Arguments {
    #[command(flatten)]
    fleet: FleetArgs,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    interrupt::in_order(run(&arguments.fleet)).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}

fn run(fleet: &FleetArgs) -> anyhow::Result<ExitCode> {
    node::Descriptors::raise()?;
    device::os::make_all_private();
    interrupt::heed()?;
    fleet.run(&[])
}
