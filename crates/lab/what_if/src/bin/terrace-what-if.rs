//! `terrace-what-if`: `terrace bench what-if` as a program of its own, which builds in a minute because it is without DataFusion. Exit
//! codes are those of terrace-lab: 0 done, 1 a figure was refused, 2 it could not run, 130 a signal ended it.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use device::CountedHeap;
use what_if::WhatIfArgs;
use workload::interrupt;

/// As the node's.
#[global_allocator]
static ALLOCATOR: CountedHeap = CountedHeap;

/// A command on media that are not there.
#[derive(Debug, Parser)]
#[command(name = "terrace-what-if", version, max_term_width = 100)]
struct Arguments {
    #[command(flatten)]
    what_if: WhatIfArgs,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    interrupt::in_order(run(&arguments.what_if)).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}

fn run(what_if: &WhatIfArgs) -> anyhow::Result<ExitCode> {
    node::Descriptors::raise()?;
    device::os::make_all_private();
    interrupt::heed()?;
    what_if.run()
}
