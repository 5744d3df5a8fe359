//! Prints the calibration of a medium: `cargo run --release -p catalogue --example calibrate -- MEDIUM [DIRECTORY] [MODULES]`.
//!
//! Addressed media are simulated over a mapping of files in the directory, drives over files in it. Without a directory
//! (or with `-`), both are simulated over memory with blocks of 4096 bytes. Without a medium, all media are listed. The
//! program names each row that misses its target, and then exits with 1.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use catalogue::calibrate::{Options, Row};
use catalogue::{Medium, Model, Timing, calibrate, media};
use device::pmem::{Absent, PmemOptions, PmemShelf};
use device::{FileOptions, FileShelf, MemoryShelf, Shelf};

type Failure = Box<dyn std::error::Error>;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(name) = arguments.first() else {
        for medium in media() {
            let modelled = Model::of(medium, 0).map_or_else(|error| error.to_string(), |_| "modelled".to_owned());
            println!("{:24} {:60} {}", medium.name, medium.title, modelled);
        }
        return Ok(());
    };
    let medium = Medium::find(name)?;
    let modules = arguments.get(2).map_or(Ok(0), |modules| modules.parse())?;
    let model = Model::of(&medium, modules)?;
    let shelf = shelf(&medium, arguments.get(1).map_or("-", String::as_str))?;
    let calibration = calibrate(&shelf, &medium, &model, &Timing::Timed, Options::default())?;
    println!("{calibration}");
    let missed = calibration.rows.iter().filter(|row| !row.is_good());
    let line = |row: &Row| {
        let Row { operation, bytes, threads, target, achieved, .. } = row;
        format!("target missed: {operation} of {bytes} bytes, {threads} threads: {achieved:.3}, target {target:.3}")
    };
    let missed: Vec<String> = missed.map(line).collect();
    if missed.is_empty() { Ok(()) } else { Err(missed.join("\n").into()) }
}

fn shelf(medium: &Medium, directory: &str) -> Result<Arc<dyn Shelf>, Failure> {
    if directory == "-" {
        return Ok(Arc::new(MemoryShelf::new()));
    }
    let directory = Path::new(directory);
    if medium.kind.is_addressed() {
        return Ok(Arc::new(PmemShelf::open(directory, PmemOptions { absent: Absent::Emulate })?));
    }
    Ok(Arc::new(FileShelf::open(directory, FileOptions::default())?))
}
