//! A journal on persistent memory that loses a page. Reading the lost record returns an error with its place, all other
//! records are read, and the process continues. This program is for a virtual machine with an emulated module
//! (`scripts/test-dax-guest.sh`): it destroys a page of memory.
//!
//! ```text
//! cargo run --release -p journal --example dax_check -- DIR      DIR on an fsdax mount, as root
//! ```
//!
//! The program commits records of a page each, poisons one page in the middle as a report of the memory would, and
//! reads every record again. It prints one line for each check, and exits with 1 if a check fails.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use device::pmem::{PmemOptions, PmemShelf};
use device::{DeviceError, Shelf};
use journal::{Journal, JournalError, Lsn, Options};

const RECORDS: u8 = 64;
const RECORD_BYTES: usize = 4096;
const PAGE_BYTES: u64 = 4096;
/// The record whose page is poisoned.
const VICTIM: u8 = 20;

fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).map(PathBuf::from).ok_or("which directory?")?;
    let shelf = Arc::new(PmemShelf::open(&directory, PmemOptions::default())?);
    println!("mapped: {}", shelf.mapping());
    let options = Options { segment_bytes: 1 << 20, ..Options::default() };
    let (journal, _) = Journal::open(Arc::clone(&shelf) as Arc<dyn Shelf>, options)?;
    let mut lsns: Vec<Lsn> = Vec::new();
    for number in 0..RECORDS {
        lsns.push(journal.append_commit(1, &[&[number; RECORD_BYTES]])?);
    }
    let name = shelf.list()?.into_iter().find(|name| name.starts_with("journal-")).ok_or("no segment")?;
    let page = page_of(shelf.as_ref(), &name)?;
    shelf.inject_poison(&name, page)?;

    let mut lost = Vec::new();
    let mut claims = true;
    for (number, lsn) in (0..RECORDS).zip(&lsns) {
        match journal.read_at(*lsn) {
            Ok(record) => claims &= record.payload.iter().all(|byte| *byte == number),
            Err(JournalError::Device(DeviceError::Lost { name: at, offset, bytes })) => {
                println!("record {number}: lost {at} {offset}+{bytes}");
                claims &= offset <= page && page < offset + bytes;
                lost.push(number);
            }
            Err(error) => {
                println!("record {number}: {error}");
                claims = false;
            }
        }
    }
    println!("poisoned {name} at {page}, {} of {RECORDS} records lost, the others read", lost.len());
    // The page also has the ends of its neighbours. Records on other pages are read.
    claims &= lost.contains(&VICTIM) && lost.iter().all(|number| (VICTIM - 1..=VICTIM + 1).contains(number));
    println!("{}", if claims { "claims hold" } else { "claims do not hold" });
    Ok(if claims { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// The page of the segment with the middle of the victim's payload.
fn page_of(shelf: &PmemShelf, name: &str) -> Result<u64, Box<dyn std::error::Error>> {
    let device = shelf.open_read_only(name)?;
    let mut all = vec![0; usize::try_from(device.len())?];
    device.read(0, &mut all)?;
    let mut runs = all.chunks_exact(64).enumerate().filter(|(_, chunk)| chunk.iter().all(|byte| *byte == VICTIM));
    let (first, _) = runs.nth(RECORD_BYTES / 64 / 2).ok_or("the victim is not in the first segment")?;
    Ok(first as u64 * 64 / PAGE_BYTES * PAGE_BYTES)
}
