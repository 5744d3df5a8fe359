//! The target of a plan, as it is written on a command line: times, rates, growth, money.

use super::report::TargetReport;

/// The load above the target at which a mix still has to meet it.
pub const HEADROOM: f64 = 0.15;
/// Months for which rented media are counted, if nothing else is said: three years.
pub const MONTHS_DEFAULT: f64 = 36.0;

/// See the head comment of this file. What was not asked for is `None`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// 99 of 100 commits take at most so many seconds.
    pub p99_commit_s: Option<f64>,
    /// 99 of 100 accesses of pages or objects take at most so many seconds.
    pub p99_read_s: Option<f64>,
    /// 95 of 100 queries take at most so many seconds.
    pub p95_query_s: Option<f64>,
    /// Operations each second.
    pub rate: Option<f64>,
    /// Data and rate grow by this factor.
    pub growth: f64,
    /// The most it may cost, US dollars.
    pub budget_usd: Option<f64>,
    /// Months for which rented media are counted.
    pub months: f64,
    /// Part of the load above the target at which it still has to be met.
    pub headroom: f64,
}

impl Default for Target {
    fn default() -> Target {
        Target {
            p99_commit_s: None,
            p99_read_s: None,
            p95_query_s: None,
            rate: None,
            growth: 1.0,
            budget_usd: None,
            months: MONTHS_DEFAULT,
            headroom: HEADROOM,
        }
    }
}

impl Target {
    /// Whether anything was asked for beside a limit of money.
    pub fn is_set(&self) -> bool {
        [self.p99_commit_s, self.p99_read_s, self.p95_query_s, self.rate].iter().any(Option::is_some)
    }

    /// It as a part of the report.
    pub fn report(&self) -> TargetReport {
        TargetReport {
            p99_commit_s: self.p99_commit_s,
            p99_read_s: self.p99_read_s,
            p95_query_s: self.p95_query_s,
            rate: self.rate,
            growth: self.growth,
            budget_usd: self.budget_usd,
            months: self.months,
            headroom: self.headroom,
        }
    }
}

/// Reads `250us`, `1ms`, `2s`: seconds.
///
/// # Errors
/// What is no time above 0, in words.
pub fn parse_seconds(text: &str) -> Result<f64, String> {
    let wrong = || format!("`{text}` is no time: write it as 250us, 1.5ms or 2s");
    let split = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').ok_or_else(wrong)?;
    let (number, unit) = text.split_at(split);
    let factor = match unit.trim() {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        _ => return Err(wrong()),
    };
    let seconds = number.parse::<f64>().map_err(|_| wrong())? * factor;
    if seconds > 0.0 && seconds.is_finite() { Ok(seconds) } else { Err(wrong()) }
}

/// Reads `8000/s`, `8000`, `2M/d`: a number for each second.
///
/// # Errors
/// What is no rate above 0, in words.
pub fn parse_rate(text: &str) -> Result<f64, String> {
    let wrong = || format!("`{text}` is no rate: write it as 8000/s, 500k/h or 2M/d");
    let (number, per) = text.split_once('/').unwrap_or((text, "s"));
    let seconds = match per.trim() {
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        "d" | "day" => 86_400.0,
        _ => return Err(wrong()),
    };
    let rate = parse_number(number).ok_or_else(wrong)? / seconds;
    if rate > 0.0 && rate.is_finite() { Ok(rate) } else { Err(wrong()) }
}

/// Reads `1200`, `8k`, `2.5M`.
pub fn parse_number(text: &str) -> Option<f64> {
    let text = text.trim();
    let (digits, factor) = match text.as_bytes().last()? {
        b'k' => (&text[..text.len() - 1], 1e3),
        b'M' => (&text[..text.len() - 1], 1e6),
        b'G' => (&text[..text.len() - 1], 1e9),
        _ => (text, 1.0),
    };
    let is_plain = digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number = digits.parse::<f64>().ok().filter(|_| is_plain)? * factor;
    number.is_finite().then_some(number)
}

/// Reads `3y:2x`, `2x`, `1.5`: the factor. The years are for people: growth is planned for as a whole.
///
/// # Errors
/// What is no factor of 1 to 1000, in words.
pub fn parse_growth(text: &str) -> Result<f64, String> {
    let factor = text.rsplit_once(':').map_or(text, |(_, factor)| factor).trim();
    let factor = factor.strip_suffix('x').unwrap_or(factor);
    let growth = parse_number(factor).filter(|growth| (1.0..=1000.0).contains(growth));
    growth.ok_or_else(|| format!("`{text}` is no growth: write it as 3y:2x or 2x, from 1x to 1000x"))
}

/// A rate: whole above ten.
pub(super) fn print_rate(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.3}") } else { format!("{rate:.0}") }
}

/// Seconds with three digits and a unit: `312 ns`, `1.52 ms`.
pub fn print_seconds(seconds: f64) -> String {
    let (value, unit) = match seconds {
        seconds if seconds < 1e-6 => (seconds * 1e9, "ns"),
        seconds if seconds < 1e-3 => (seconds * 1e6, "us"),
        seconds if seconds < 1.0 => (seconds * 1e3, "ms"),
        seconds => (seconds, "s"),
    };
    let digits = if value < 10.0 {
        2
    } else if value < 100.0 {
        1
    } else {
        0
    };
    format!("{value:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_read_as_people_write_them_and_refused_with_the_form() {
        let near = |one: f64, two: f64| (one - two).abs() <= 1e-12 * two.max(1.0);
        for (text, seconds) in [("250us", 250e-6), ("1ms", 1e-3), ("1.5ms", 1.5e-3), ("2s", 2.0), ("1m", 60.0)] {
            assert!(near(parse_seconds(text).expect(text), seconds), "{text}");
        }
        for text in ["", "1", "ms", "-1ms", "0s", "1 parsec", "1e3s", "nans", "infs"] {
            assert!(parse_seconds(text).is_err(), "{text}");
        }
        for (text, rate) in [("8000/s", 8000.0), ("8000", 8000.0), ("86.4k/d", 1.0), ("3600/h", 1.0), ("2M", 2e6)] {
            assert!(near(parse_rate(text).expect(text), rate), "{text}");
        }
        for text in ["", "0", "-5", "5/w", "x/s", "inf", "1e9"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
        for (text, growth) in [("3y:2x", 2.0), ("2x", 2.0), ("1.5", 1.5), ("1x", 1.0)] {
            assert!(near(parse_growth(text).expect(text), growth), "{text}");
        }
        for text in ["", "0.5x", "2000x", "3y", "3y:"] {
            assert!(parse_growth(text).is_err(), "{text}");
        }
    }
}
