//! Times as people write them on the command line.

use anyhow::Context;
use interop::production::units::Span;
use node::Clock;

/// A time of day, or an age; microseconds since 1970.
pub fn moment(text: &str) -> anyhow::Result<i64> {
    if let Ok(age) = text.parse::<Span>() {
        let age = i64::try_from(age.0.as_micros()).context("that is too long ago")?;
        return Ok(Clock::system().now_us().saturating_sub(age));
    }
    let time: jiff::civil::DateTime =
        text.parse().with_context(|| format!("`{text}` is neither a time as 2026-11-21T08:00 nor an age as 2h"))?;
    Ok(time.to_zoned(jiff::tz::TimeZone::system())?.timestamp().as_microsecond())
}
