//! Why figures of a probe may not be those of the media: other work on the machine, and turns that differ.
//!
//! Figures are printed nevertheless: only the user knows whether the machine is ever quiet. A medium written from them
//! contains the doubts in its source.

use super::Probed;
use super::times::Measured;

/// Load beyond which the machine is not quiet, for each hardware thread.
const QUIET: f64 = 0.25;

/// Turns of one figure are called steady up to this ratio. Calibration tolerates 10 % to either side
/// (`catalogue::calibrate`); beyond that a model made from the figure would miss the figure.
const STEADY: f64 = 1.2;

/// All doubts, a sentence each.
pub fn of(probed: &Probed, threads: usize) -> Vec<String> {
    let mut doubts = Vec::new();
    if let Some(load) = probed.load_average.filter(|load| *load > QUIET * threads as f64) {
        doubts.push(format!(
            "the machine was loaded, {load:.1} threads ready to run on {threads} hardware threads in the minute before: the figures \
             are what the other work left over; measure again when it is quiet"
        ));
    }
    let all = figures(probed);
    let mut spread: Vec<&(String, Measured)> = all.iter().filter(|(_, figure)| figure.spread() > STEADY).collect();
    spread.sort_by(|(_, a), (_, b)| b.spread().total_cmp(&a.spread()));
    if let Some((worst, figure)) = spread.first() {
        doubts.push(format!(
            "{} of {} figures differ by more than {:.0} % from turn to turn, most of all {worst}: {:.2} to {:.2}",
            spread.len(),
            all.len(),
            (STEADY - 1.0) * 100.0,
            figure.low,
            figure.high
        ));
    }
    doubts
}

/// Every figure with its name and unit.
fn figures(probed: &Probed) -> Vec<(String, Measured)> {
    let mut all = Vec::new();
    let chains = |place: &str, random: Measured, sequential: Measured| {
        [("random", random), ("sequential", sequential)]
            .map(|(how, figure)| (format!("{place}, {how} read, ns"), figure))
    };
    let mut curves = |place: &str, curves: &[super::curves::Curve]| {
        for curve in curves {
            let points = curve.threads.iter().zip(&curve.turns);
            all.extend(points.map(|(threads, turn)| (format!("{place}, {curve}, {threads} threads, GB/s"), *turn)));
        }
    };
    for memory in &probed.memory {
        curves("memory", &memory.curves);
    }
    for folder in &probed.directories {
        curves(&folder.path, folder.mapped.as_ref().map_or(&[][..], |mapped| mapped.curves.as_slice()));
    }
    for memory in &probed.memory {
        all.extend(chains("memory", memory.random_ns, memory.sequential_ns));
    }
    for folder in &probed.directories {
        let name = |what: &str| format!("{}, {what}", folder.path);
        all.extend(folder.latencies.iter().map(|row| (name(&format!("{}, ns", row.operation)), row.thirds)));
        if let Some(files) = &folder.files {
            all.extend([(name("reads/s"), files.read_iops), (name("writes/s"), files.write_iops)]);
        }
        if let Some(mapped) = &folder.mapped {
            all.extend(chains(&folder.path, mapped.random_ns, mapped.sequential_ns));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::curves::Curve;
    use super::super::memory::Memory;
    use super::*;

    fn steady(median: f64) -> Measured {
        Measured { median, low: median * 0.97, high: median * 1.03 }
    }

    fn probed(load: f64, turn: Measured) -> Probed {
        let curve = Curve {
            operation: "read",
            pattern: "random",
            bytes: 64,
            threads: vec![1, 2],
            gb_per_s: vec![1.0, 2.0],
            turns: vec![steady(1.0), turn],
            ..Curve::default()
        };
        let (random_ns, sequential_ns) = (steady(90.0), steady(5.0));
        let memory = Memory { node: None, bytes: 1 << 30, random_ns, sequential_ns, curves: vec![curve] };
        Probed { load_average: Some(load), memory: vec![memory], ..Probed::begin() }
    }

    #[test]
    fn a_loaded_machine_and_figures_that_differ_from_turn_to_turn_are_said_and_quiet_ones_are_not() {
        assert_eq!(of(&probed(0.4, steady(2.0)), 2), Vec::<String>::new());
        let loaded = of(&probed(3.0, steady(2.0)), 2);
        assert!(loaded.len() == 1 && loaded[0].contains("loaded, 3.0 threads ready to run on 2"), "{loaded:?}");
        let apart = of(&probed(0.0, Measured { median: 2.0, low: 1.0, high: 2.5 }), 2);
        assert!(apart.len() == 1, "{apart:?}");
        let says = "1 of 4 figures differ by more than 20 % from turn to turn, most of all memory, read random 64 B, 2 threads, GB/s: \
                    1.00 to 2.50";
        assert_eq!(apart[0], says);
    }
}
