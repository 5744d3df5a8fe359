//! The rate and the latency that a command printed: known programs, or the user's own pattern.
//!
//! A pattern's first group is the number; a following group `k` or `M` multiplies it. Where a program prints several (fio's reads and
//! writes), rates are added; of latencies the last one counts. Without any figure the rate is runs a second.

use std::time::Duration;

use anyhow::{Context, ensure};
use regex::Regex;

/// How to read the output of a program.
struct Known {
    name: &'static str,
    rate: &'static str,
    unit: &'static str,
    latency: &'static str,
    /// Microseconds of the latency's unit.
    latency_us: f64,
}

/// Outputs as of pgbench 15, fio 3.33, RocksDB's db_bench 9, sysbench 1.0, redis-benchmark 7.
const KNOWN: &[Known] = &[
    Known {
        name: "pgbench",
        rate: r"(?m)^tps = ([0-9.]+)",
        unit: "transactions/s",
        latency: r"(?m)^latency average = ([0-9.]+) ms",
        latency_us: 1e3,
    },
    Known {
        name: "fio",
        rate: r"IOPS=([0-9.]+)([kM]?)",
        unit: "requests/s",
        latency: r"(?m)^ +clat \(nsec\):.*avg= *([0-9.]+)",
        latency_us: 1e-3,
    },
    Known {
        name: "fio",
        rate: r"IOPS=([0-9.]+)([kM]?)",
        unit: "requests/s",
        latency: r"(?m)^ +clat \(usec\):.*avg= *([0-9.]+)",
        latency_us: 1.0,
    },
    Known {
        name: "fio",
        rate: r"IOPS=([0-9.]+)([kM]?)",
        unit: "requests/s",
        latency: r"(?m)^ +clat \(msec\):.*avg= *([0-9.]+)",
        latency_us: 1e3,
    },
    Known {
        name: "db_bench",
        rate: r"([0-9.]+) ops/sec",
        unit: "operations/s",
        latency: r"([0-9.]+) micros/op",
        latency_us: 1.0,
    },
    Known {
        name: "sysbench",
        rate: r"transactions: +\d+ +\(([0-9.]+) per sec",
        unit: "transactions/s",
        latency: r"(?m)^ +avg: +([0-9.]+)",
        latency_us: 1e3,
    },
    Known {
        name: "redis-benchmark",
        rate: r"([0-9.]+) requests per second",
        unit: "requests/s",
        latency: r"avg=([0-9.]+)",
        latency_us: 1e3,
    },
];

/// The unit of a rate that is read with the user's own pattern.
const OWN_UNIT: &str = "1/s";
/// The unit where the command prints no rate.
const RUNS: &str = "runs/s";

/// What a run of the command achieved.
#[derive(Clone, Debug, PartialEq)]
pub struct Achieved {
    /// What it did in a second.
    pub rate: f64,
    /// The unit of the rate.
    pub unit: &'static str,
    /// The mean latency that it printed, microseconds.
    pub latency_us: Option<f64>,
}

/// The user's own patterns.
#[derive(Clone, Debug, Default)]
pub struct OwnPatterns {
    rate: Option<Regex>,
    latency: Option<Regex>,
}

impl OwnPatterns {
    /// Patterns as the user wrote them, each with a group for the number.
    ///
    /// # Errors
    /// One is no regular expression, or has no group.
    pub fn new(rate: Option<&str>, latency: Option<&str>) -> anyhow::Result<OwnPatterns> {
        let pattern = |text: &str| -> anyhow::Result<Regex> {
            let pattern = Regex::new(text).with_context(|| format!("the pattern {text}"))?;
            ensure!(pattern.captures_len() > 1, "the pattern {text} has no group in parentheses for the number");
            Ok(pattern)
        };
        Ok(OwnPatterns { rate: rate.map(pattern).transpose()?, latency: latency.map(pattern).transpose()? })
    }

    /// The figures of a run that printed `output` and took `elapsed`.
    ///
    /// # Errors
    /// The user's own pattern is not in the output.
    pub fn read(&self, output: &str, elapsed: Duration) -> anyhow::Result<Achieved> {
        let own = |pattern: &Option<Regex>, what| match pattern {
            None => Ok(None),
            Some(pattern) => {
                let found = numbers(pattern, output);
                ensure!(!found.is_empty(), "the command printed no {what} that matches {pattern}");
                Ok(Some(found))
            }
        };
        let rate = own(&self.rate, "rate")?;
        let latency = own(&self.latency, "latency")?.and_then(|found| found.last().copied());
        if let Some(found) = rate {
            return Ok(Achieved { rate: found.iter().sum(), unit: OWN_UNIT, latency_us: latency });
        }
        let known = known(output);
        let plain = || Achieved { rate: 1.0 / elapsed.as_secs_f64().max(1e-9), unit: RUNS, latency_us: None };
        let achieved = known.unwrap_or_else(plain);
        Ok(Achieved { latency_us: latency.or(achieved.latency_us), ..achieved })
    }
}

/// The figures of a known program.
fn known(output: &str) -> Option<Achieved> {
    let pattern = |text| Regex::new(text).expect("a constant");
    let mut best: Option<Achieved> = None;
    for known in KNOWN {
        let rates = numbers(&pattern(known.rate), output);
        if rates.is_empty() {
            continue;
        }
        let is_sum = known.name == "fio";
        let rate = if is_sum { rates.iter().sum() } else { *rates.last()? };
        let latency = numbers(&pattern(known.latency), output).last().map(|found| found * known.latency_us);
        let achieved = Achieved { rate, unit: known.unit, latency_us: latency };
        if latency.is_some() {
            return Some(achieved);
        }
        best.get_or_insert(achieved);
    }
    best
}

/// The numbers that a pattern finds, with their multiples.
fn numbers(pattern: &Regex, output: &str) -> Vec<f64> {
    let number = |found: regex::Captures<'_>| {
        let number: f64 = found.get(1)?.as_str().parse().ok()?;
        let times = match found.get(2).map(|group| group.as_str()) {
            Some("k") => 1e3,
            Some("M") => 1e6,
            _ => 1.0,
        };
        (number > 0.0).then_some(number * times)
    };
    pattern.captures_iter(output).filter_map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_of_known_programs_are_read() {
        let cases = [
            (
                "latency average = 1.604 ms\ninitial connection time = 5 ms\ntps = 2493.7 (without initial connection time)\n",
                2493.7,
                "transactions/s",
                Some(1604.0),
            ),
            (
                "  read: IOPS=12.5k, BW=48MiB/s\n    clat (usec): min=3, max=9, avg= 6.51, stdev=1\n  write: IOPS=500, BW=2MiB/s\n",
                13_000.0,
                "requests/s",
                Some(6.51),
            ),
            (
                "  write: IOPS=900, BW=x\n    clat (msec): min=3, avg=2.00, stdev=1\n",
                900.0,
                "requests/s",
                Some(2_000.0),
            ),
            ("fillsync : 93.1 micros/op 10741 ops/sec 1.2 MB/s\n", 10_741.0, "operations/s", Some(93.1)),
            ("SET: 5000.0 requests per second\n", 5_000.0, "requests/s", None),
            ("nothing of the kind\n", 0.5, RUNS, None),
        ];
        for (output, rate, unit, latency_us) in cases {
            let read = OwnPatterns::default().read(output, Duration::from_secs(2)).expect("no pattern of its own");
            assert!((read.rate - rate).abs() < 1e-6 && read.unit == unit, "{read:?}");
            match (read.latency_us, latency_us) {
                (Some(read), Some(expected)) => assert!((read - expected).abs() < 1e-6, "{output}"),
                (read, expected) => assert_eq!(read, expected, "{output}"),
            }
        }
    }

    #[test]
    fn a_pattern_of_ones_own_goes_first_and_is_missed_if_it_is_not_there() {
        let own = OwnPatterns::new(Some("did ([0-9]+)"), Some("took ([0-9.]+) us")).expect("good");
        let read = own.read("did 20\ndid 30\ntook 7.5 us\ntps = 9\n", Duration::from_secs(1)).expect("there");
        assert_eq!(read, Achieved { rate: 50.0, unit: OWN_UNIT, latency_us: Some(7.5) });
        assert!(own.read("tps = 9\n", Duration::from_secs(1)).is_err());
        for bad in ["no group", "(", "did ("] {
            assert!(OwnPatterns::new(Some(bad), None).is_err(), "{bad}");
        }
    }
}
