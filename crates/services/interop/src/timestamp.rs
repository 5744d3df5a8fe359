//! The time of day as HL7 timestamps.

use node::Clock;

/// `us`, microseconds since 1970, as an HL7 timestamp with offset in the clock's time zone, `YYYYMMDDHHMMSS+ZZZZ` (HL7 2.A, data
/// type TS/DTM).
pub fn hl7_timestamp(clock: &Clock, us: i64) -> String {
    clock.timestamp(us).to_zoned(clock.zone().clone()).strftime("%Y%m%d%H%M%S%z").to_string()
}

/// Formats the HL7 time of now, writing it anew only when the second has changed: an acknowledgement a message makes
/// this the most frequent formatting of the node.
#[derive(Debug, Default)]
pub struct TimestampCache {
    second: i64,
    text: String,
}

impl TimestampCache {
    /// The HL7 timestamp of `us`.
    pub fn at(&mut self, clock: &Clock, us: i64) -> &str {
        let second = us.div_euclid(1_000_000);
        if self.text.is_empty() || self.second != second {
            self.second = second;
            self.text = hl7_timestamp(clock, us);
        }
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hl7_time_carries_seconds_and_offset() {
        let clock = Clock::fixed(1_700_000_000_000_000);
        assert_eq!(hl7_timestamp(&clock, clock.now_us()), "20231114221320+0000");
        let mut stamp = TimestampCache::default();
        assert_eq!(stamp.at(&clock, 999_999), "19700101000000+0000");
        assert_eq!(stamp.at(&clock, 1_000_000), "19700101000001+0000");
    }
}
