//! The published figures of the workload, and what differs here.
//!
//! Source: InterSystems IRIS for Health HL7 benchmark, workload "T4", on two-socket servers (2.1 GHz): inbound messages per
//! second sustained, and journal writes per second.

use serde::Serialize;

/// One published test.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Published {
    /// Number of the test.
    pub test: u32,
    /// Physical cores.
    pub cores: u32,
    /// The server's memory and where the journal was.
    pub media: &'static str,
    /// Inbound messages per second.
    pub inbound_per_s: f64,
    /// Journal writes per second.
    pub journal_writes_per_s: f64,
    /// Inbound messages per second against test 1, as published (it cuts off the third digit).
    pub ratio: f64,
}

/// The four tests.
pub const TESTS: [Published; 4] = [
    Published {
        test: 1,
        cores: 44,
        media: "DRAM, journal on P4800X SSD",
        inbound_per_s: 3_355.0,
        journal_writes_per_s: 2_010.0,
        ratio: 1.00,
    },
    Published {
        test: 2,
        cores: 48,
        media: "Memory Mode, journal on P4800X SSD",
        inbound_per_s: 4_684.0,
        journal_writes_per_s: 2_400.0,
        ratio: 1.39,
    },
    Published {
        test: 3,
        cores: 48,
        media: "DRAM only, journal on P4800X SSD",
        inbound_per_s: 4_845.0,
        journal_writes_per_s: 2_540.0,
        ratio: 1.44,
    },
    Published {
        test: 4,
        cores: 48,
        media: "App Direct, journal on persistent memory",
        inbound_per_s: 5_399.0,
        journal_writes_per_s: 2_630.0,
        ratio: 1.60,
    },
];

/// The best of them: a run is compared with it, so that no choice of test favours the run.
pub const BEST: Published = TESTS[3];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_ratios_are_those_of_the_published_rates() {
        for test in TESTS {
            let computed = test.inbound_per_s / TESTS[0].inbound_per_s;
            assert!((0.0..0.01).contains(&(computed - test.ratio)), "test {}: {computed}", test.test);
        }
    }
}
