//! The engine's promises, kept by real nodes over real sockets; docs/faults.md lists which fault each test makes happen.
//!
//! Every test has a node of its own, in process, on a shelf of its choice, and talks to it as a sender, as a receiver, or
//! over the control socket. Nothing sleeps to wait for a state: `rig::until` looks until it has come about.

mod audit;
mod batches;
mod charsets;
mod control;
mod corpus;
mod crash;
mod crowd;
mod damage;
mod delivery;
mod duplicates;
mod durable;
mod file_versions;
mod files;
mod framing;
mod generations;
mod glass;
mod logs;
mod long;
mod order;
mod parts;
mod receiver;
mod receivers;
mod records;
mod refusals;
mod reload;
mod reprocess;
mod retention;
mod rig;
mod rights;
mod rows;
mod schedules;
mod sender;
mod set_aside;
mod settings;
mod shelves;
mod tails;
mod tls;
mod transfer;
mod waiting;
mod walks;

/// Every file of the store below a data directory, with its content.
fn files_below(folder: &std::path::Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for name in ["journal", "images", "pages"] {
        for entry in std::fs::read_dir(folder.join(name)).into_iter().flatten() {
            let path = entry.expect("it lists").path();
            all.push((path.clone(), std::fs::read(path).expect("it reads")));
        }
    }
    all.sort();
    all
}
