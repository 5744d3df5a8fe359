//! What a document costs a running node, by thread: `cargo run --release -p rally --example bulk_cost -- ADDRESS PID [DOCUMENTS [BULK]]`.
//!
//! One client sends bulks of `BULK` documents, each acknowledged before the next, to the search service at `ADDRESS` of the process
//! `PID`. It is no bench: it checks nothing but that each document was accepted, and the client shares the machine with the node.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::sync::Mutex;

use anyhow::Context;
use rally::builtin::{BuiltinPlan, run};

/// Microseconds of a clock tick (Linux, USER_HZ).
const TICK_US: f64 = 10_000.0;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address: SocketAddr = arguments.next().context("the address of the search service")?.parse()?;
    let pid: u32 = arguments.next().context("the process id of the node")?.parse()?;
    let documents = arguments.next().map_or(Ok(20_000), |text| text.parse())?;
    let bulk = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let plan = BuiltinPlan { documents, bulk, iterations: 1, seed: 1 };
    // Before the first bulk, and after the last one.
    let samples = Mutex::new(Vec::new());
    let races = run(plan, 1, address, || {
        samples.lock().expect("no thread of it panics").push(threads(pid)?);
        Ok(())
    })?;
    for race in races {
        println!("{:.0} documents a second, a request {:?}", race.docs_per_s, race.bulk_ms);
    }
    let samples = samples.into_inner().expect("no thread of it panics");
    let [before, after] = &samples[..] else { anyhow::bail!("{} samples", samples.len()) };
    for (name, ticks) in after {
        let spent = (ticks - before.get(name).unwrap_or(&0)) as f64 * TICK_US / documents as f64;
        if spent >= 0.5 {
            println!("  {name:<16} {spent:6.1} us a document");
        }
    }
    Ok(())
}

/// Processor time of a process' threads, by name, in ticks.
fn threads(pid: u32) -> anyhow::Result<BTreeMap<String, u64>> {
    let mut by_name = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
        let Ok(stat) = fs::read_to_string(entry?.path().join("stat")) else { continue };
        let (name, rest) = stat.split_once('(').and_then(|(_, rest)| rest.rsplit_once(')')).context("a stat")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok()).context("a stat");
        // utime and stime, fields 14 and 15 of proc(5).
        *by_name.entry(name.to_owned()).or_insert(0) += ticks(11)? + ticks(12)?;
    }
    Ok(by_name)
}
