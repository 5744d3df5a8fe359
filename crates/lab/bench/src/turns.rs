//! Two sides of a load in turns, and what the one costs beside the other.
//!
//! Invariants: which side is first changes with each pair; a ratio is of the two turns of a pair, so that a slow minute of the machine
//! hits both.

use serde::Serialize;

use crate::statistics::{Interval, by_order};
use workload::interrupt;
use workload::table::{Table, grouped};

/// A load, measured with something and without it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostRun {
    /// The load.
    pub name: String,
    /// The durability of a flush in the journal's place.
    pub durability: String,
    /// Whether that place is a real medium, not a model.
    pub real: bool,
    /// Pairs of turns.
    pub pairs: usize,
    /// Operations a second with, the median of the turns.
    pub with_per_s: f64,
    /// Operations a second without.
    pub without_per_s: f64,
    /// The rate with over the rate without.
    pub ratio: Interval,
    /// Processor time of the node for an operation without, over that with: above 1, what is measured would save time.
    pub cpu_ratio: Interval,
    /// Whether the ratio is what is wanted, or more: by its interval, and where that straddles it by processor time.
    pub holds: bool,
}

/// A turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CostTurn {
    pub(crate) per_s: f64,
    pub(crate) cpu_us: f64,
}

/// Turns of both sides, in pairs: without and with.
pub(crate) fn in_turns(
    pairs: usize,
    mut turn: impl FnMut(bool) -> anyhow::Result<CostTurn>,
) -> anyhow::Result<[Vec<CostTurn>; 2]> {
    let mut sides = [Vec::new(), Vec::new()];
    for pair in 0..pairs {
        for with in [pair % 2 == 0, pair % 2 == 1] {
            interrupt::check()?;
            sides[usize::from(with)].push(turn(with)?);
        }
    }
    Ok(sides)
}

/// Compares the sides of [`in_turns`]; `least` is the ratio that is wanted.
pub(crate) fn compared(name: &str, medium: (String, bool), [without, with]: [Vec<CostTurn>; 2], least: f64) -> CostRun {
    let pairs = || with.iter().zip(&without);
    let ratio = by_order(&pairs().map(|(with, without)| with.per_s / without.per_s.max(1e-9)).collect::<Vec<_>>());
    let cpu = pairs().map(|(with, without)| without.cpu_us / with.cpu_us.max(1e-9));
    let cpu_ratio = by_order(&cpu.collect::<Vec<_>>());
    let rate = |turns: &[CostTurn]| by_order(&turns.iter().map(|turn| turn.per_s).collect::<Vec<_>>()).median;
    let straddles = ratio.low < least && ratio.high >= least;
    CostRun {
        name: name.to_owned(),
        durability: medium.0,
        real: medium.1,
        pairs: with.len(),
        with_per_s: rate(&with),
        without_per_s: rate(&without),
        ratio,
        cpu_ratio,
        holds: if straddles { cpu_ratio.median >= least } else { ratio.low >= least },
    }
}

/// The runs as a table; the last column says whether `least` is reached.
pub(crate) fn table<'a>(runs: impl Iterator<Item = &'a CostRun>, least: f64) -> Table {
    let least = format!("{least:.2}");
    let mut table = Table::new(&["", "with/s", "without/s", "ratio", "interval", "CPU ratio", "interval", &least]);
    let interval = |of: &Interval| format!("{:.3} to {:.3} ({:.0} %)", of.low, of.high, of.percent);
    for run in runs {
        table.row(vec![
            run.name.clone(),
            grouped(run.with_per_s),
            grouped(run.without_per_s),
            format!("{:.3}", run.ratio.median),
            interval(&run.ratio),
            format!("{:.3}", run.cpu_ratio.median),
            interval(&run.cpu_ratio),
            if run.holds { "yes" } else { "NO" }.to_owned(),
        ]);
    }
    table
}
