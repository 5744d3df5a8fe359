//! A goal: how modules are divided between memory, App Direct and nothing, in percent, as ipmctl accepts it. `outcome`
//! computes the result for a machine's modules.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ProvisionError;

/// The shares of every module, in percent; the three sum to 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Goal {
    /// Memory Mode: system memory behind a cache of DRAM. Its content is lost without power.
    pub memory: u32,
    /// App Direct: persistent regions.
    pub app_direct: u32,
    /// Not used.
    pub reserved: u32,
    /// Whether the modules of a socket form one region; else each is a separate one.
    pub interleaved: bool,
}

impl Goal {
    /// Parses `memory=50,app-direct=50`. Of the omitted shares, App Direct gets the rest; if it is given, reserved
    /// does.
    ///
    /// Errors: [`ProvisionError::Malformed`], also if the sum of the percents exceeds 100.
    pub fn parse(text: &str) -> Result<Goal, ProvisionError> {
        let malformed = |what: String| {
            ProvisionError::Malformed(format!(
                "{what}; a goal is percents, as memory=50,app-direct=50 or app-direct=80,reserved=20"
            ))
        };
        let mut named: BTreeMap<&str, u32> = BTreeMap::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (key, value) = part.split_once('=').ok_or_else(|| malformed(format!("\"{part}\" has no percent")))?;
            let key = match key.trim() {
                "memory" | "memory-mode" => "memory",
                key @ ("app-direct" | "reserved") => key,
                other => return Err(malformed(format!("\"{other}\" is none of memory, app-direct, reserved"))),
            };
            let digits = value.trim().trim_end_matches('%');
            let percent = digits.parse::<u32>().ok().filter(|percent| *percent <= 100);
            let percent = percent.ok_or_else(|| malformed(format!("\"{value}\" is no percent from 0 to 100")))?;
            if named.insert(key, percent).is_some() {
                return Err(malformed(format!("{key} is given twice")));
            }
        }
        if named.is_empty() {
            return Err(malformed("the goal is empty".into()));
        }
        let sum: u32 = named.values().sum();
        if sum > 100 {
            return Err(malformed(format!("the percents make {sum}, more than 100")));
        }
        let rest = 100 - sum;
        let of = |key: &str| named.get(key).copied();
        let app_direct = of("app-direct").unwrap_or(rest);
        let reserved = of("reserved").unwrap_or(0) + if of("app-direct").is_some() { rest } else { 0 };
        Ok(Goal { memory: of("memory").unwrap_or(0), app_direct, reserved, interleaved: true })
    }

    /// The command that sets this goal.
    pub fn command(&self) -> Vec<String> {
        let kind = if self.interleaved { "AppDirect" } else { "AppDirectNotInterleaved" };
        let mut words = vec!["ipmctl".to_owned(), "create".into(), "-f".into(), "-goal".into()];
        words.push(format!("MemoryMode={}", self.memory));
        words.push(format!("PersistentMemoryType={kind}"));
        if self.reserved > 0 {
            words.push(format!("Reserved={}", self.reserved));
        }
        words
    }
}
