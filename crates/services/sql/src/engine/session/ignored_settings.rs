//! Settings of PostgreSQL that clients send and that may be ignored: hints for its planner, bounds of its memory, and words about what there
//! is not here. They are read and shown as PostgreSQL does, and change nothing.
//!
//! Only those are here whose every value leaves results and durability as they are: `synchronous_commit = off` may be ignored, because a
//! commit that is durable earlier is still one. A setting that would change results is not here.

use crate::SqlError;

/// The values that a setting takes.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Bool,
    /// A whole number between these.
    Integer(i64, i64),
    /// A number between these.
    Real(f64, f64),
    /// Memory in units of so many kB, between these numbers of them.
    Memory(i64, i64, i64),
    /// Milliseconds.
    Time,
    Words(&'static [&'static str]),
}

use Kind::{Bool, Integer, Memory, Real, Time, Words};

const INT_MAX: i64 = i32::MAX as i64;

/// Names, defaults (PostgreSQL 15's) and values.
const IGNORED: &[(&str, &str, Kind)] = &[
    ("backslash_quote", "safe_encoding", Words(&["safe_encoding", "on", "off"])),
    ("check_function_bodies", "on", Bool),
    ("client_connection_check_interval", "0", Time),
    ("constraint_exclusion", "partition", Words(&["partition", "on", "off"])),
    ("cpu_index_tuple_cost", "0.005", Real(0.0, f64::MAX)),
    ("cpu_operator_cost", "0.0025", Real(0.0, f64::MAX)),
    ("cpu_tuple_cost", "0.01", Real(0.0, f64::MAX)),
    ("cursor_tuple_fraction", "0.1", Real(0.0, 1.0)),
    ("deadlock_timeout", "1s", Time),
    ("default_statistics_target", "100", Integer(1, 10_000)),
    ("default_transaction_deferrable", "off", Bool),
    ("effective_cache_size", "4GB", Memory(8, 1, INT_MAX)),
    ("effective_io_concurrency", "1", Integer(0, 1000)),
    ("enable_async_append", "on", Bool),
    ("enable_bitmapscan", "on", Bool),
    ("enable_gathermerge", "on", Bool),
    ("enable_hashagg", "on", Bool),
    ("enable_hashjoin", "on", Bool),
    ("enable_incremental_sort", "on", Bool),
    ("enable_indexonlyscan", "on", Bool),
    ("enable_indexscan", "on", Bool),
    ("enable_material", "on", Bool),
    ("enable_memoize", "on", Bool),
    ("enable_mergejoin", "on", Bool),
    ("enable_nestloop", "on", Bool),
    ("enable_parallel_append", "on", Bool),
    ("enable_parallel_hash", "on", Bool),
    ("enable_partition_pruning", "on", Bool),
    ("enable_partitionwise_aggregate", "off", Bool),
    ("enable_partitionwise_join", "off", Bool),
    ("enable_seqscan", "on", Bool),
    ("enable_sort", "on", Bool),
    ("enable_tidscan", "on", Bool),
    ("escape_string_warning", "on", Bool),
    ("from_collapse_limit", "8", Integer(1, INT_MAX)),
    ("geqo", "on", Bool),
    ("geqo_effort", "5", Integer(1, 10)),
    ("geqo_generations", "0", Integer(0, INT_MAX)),
    ("geqo_pool_size", "0", Integer(0, INT_MAX)),
    ("geqo_seed", "0", Real(0.0, 1.0)),
    ("geqo_selection_bias", "2", Real(1.5, 2.0)),
    ("geqo_threshold", "12", Integer(2, INT_MAX)),
    ("hash_mem_multiplier", "2", Real(1.0, 1000.0)),
    ("jit", "on", Bool),
    ("jit_above_cost", "100000", Real(-1.0, f64::MAX)),
    ("jit_inline_above_cost", "500000", Real(-1.0, f64::MAX)),
    ("jit_optimize_above_cost", "500000", Real(-1.0, f64::MAX)),
    ("join_collapse_limit", "8", Integer(1, INT_MAX)),
    ("maintenance_io_concurrency", "10", Integer(0, 1000)),
    ("maintenance_work_mem", "64MB", Memory(1, 1024, INT_MAX)),
    ("max_parallel_maintenance_workers", "2", Integer(0, 1024)),
    ("max_parallel_workers", "8", Integer(0, 1024)),
    ("max_parallel_workers_per_gather", "2", Integer(0, 1024)),
    ("min_parallel_index_scan_size", "512kB", Memory(8, 0, 715_827_882)),
    ("min_parallel_table_scan_size", "8MB", Memory(8, 0, 715_827_882)),
    ("parallel_leader_participation", "on", Bool),
    ("parallel_setup_cost", "1000", Real(0.0, f64::MAX)),
    ("parallel_tuple_cost", "0.1", Real(0.0, f64::MAX)),
    ("plan_cache_mode", "auto", Words(&["auto", "force_generic_plan", "force_custom_plan"])),
    ("quote_all_identifiers", "off", Bool),
    ("random_page_cost", "4", Real(0.0, f64::MAX)),
    ("recursive_worktable_factor", "10", Real(0.001, 1e6)),
    ("row_security", "on", Bool),
    ("seq_page_cost", "1", Real(0.0, f64::MAX)),
    ("synchronous_commit", "on", Words(&["local", "remote_write", "remote_apply", "on", "off"])),
    ("temp_buffers", "8MB", Memory(8, 100, 1_073_741_823)),
    ("work_mem", "4MB", Memory(1, 64, INT_MAX)),
    ("xmlbinary", "base64", Words(&["base64", "hex"])),
    ("xmloption", "content", Words(&["content", "document"])),
];

/// Units of memory in kB, the largest first, and of time in milliseconds.
const MEMORY_UNITS: [(&str, f64); 5] =
    [("TB", 1_073_741_824.0), ("GB", 1_048_576.0), ("MB", 1024.0), ("kB", 1.0), ("B", 1.0 / 1024.0)];
const TIME_UNITS: [(&str, f64); 6] =
    [("d", 86_400_000.0), ("h", 3_600_000.0), ("min", 60_000.0), ("s", 1000.0), ("ms", 1.0), ("us", 0.001)];

/// The names and the defaults.
pub(super) fn defaults() -> impl Iterator<Item = (&'static str, &'static str)> {
    IGNORED.iter().map(|(name, default, _)| (*name, *default))
}

/// The default of a setting that is ignored.
pub(super) fn default_of(name: &str) -> Option<&'static str> {
    defaults().find(|(known, _)| *known == name).map(|(_, default)| default)
}

/// The value of a setting as it is shown; `None` if it is not one of those that are ignored. Errors: 22023.
pub(super) fn read(name: &str, value: &str) -> Result<Option<String>, SqlError> {
    let Some((_, _, kind)) = IGNORED.iter().find(|(known, ..)| *known == name) else { return Ok(None) };
    let value = value.trim();
    let invalid = || SqlError::value("22023", format!("invalid value for parameter \"{name}\": \"{value}\""));
    let outside = |shown: &str, (least, most): (&str, &str)| {
        SqlError::value(
            "22023",
            format!("{shown} is outside the valid range for parameter \"{name}\" ({least} .. {most})"),
        )
    };
    Ok(Some(match kind {
        Bool => match truth(value) {
            Some(is_on) => if is_on { "on" } else { "off" }.to_owned(),
            None => return Err(SqlError::value("22023", format!("parameter \"{name}\" requires a Boolean value"))),
        },
        Words(words) => {
            let found = words.iter().find(|word| word.eq_ignore_ascii_case(value));
            let hint = || format!("Available values: {}.", words.join(", "));
            found.ok_or_else(|| invalid().with_hint(hint()))?.to_string()
        }
        Real(least, most) => {
            let number: f64 = value.parse().ok().filter(|number: &f64| number.is_finite()).ok_or_else(invalid)?;
            match (*least..=*most).contains(&number) {
                true => number.to_string(),
                false => return Err(outside(&number.to_string(), (&least.to_string(), &most.to_string()))),
            }
        }
        Integer(least, most) => {
            let number: i64 = value.parse().map_err(|_| invalid())?;
            match (*least..=*most).contains(&number) {
                true => number.to_string(),
                false => return Err(outside(value, (&least.to_string(), &most.to_string()))),
            }
        }
        Memory(base, least, most) => {
            let units = "Valid units for this parameter are \"B\", \"kB\", \"MB\", \"GB\", and \"TB\".";
            let number = quantity(value, *base as f64, &MEMORY_UNITS).ok_or_else(|| invalid().with_hint(units))?;
            let number = (number / *base as f64).round() as i64;
            match (*least..=*most).contains(&number) {
                true => shown(number.saturating_mul(*base), &MEMORY_UNITS[..4]),
                false => {
                    let kilobytes = |number: i64| format!("{} kB", number.saturating_mul(*base));
                    return Err(outside(&kilobytes(number), (&kilobytes(*least), &kilobytes(*most))));
                }
            }
        }
        Time => {
            let units = "Valid units for this parameter are \"us\", \"ms\", \"s\", \"min\", \"h\", and \"d\".";
            let number = quantity(value, 1.0, &TIME_UNITS).ok_or_else(|| invalid().with_hint(units))?.round() as i64;
            match (0..=INT_MAX).contains(&number) {
                true => shown(number, &TIME_UNITS[..5]),
                false => return Err(outside(&format!("{number} ms"), ("0 ms", "2147483647 ms"))),
            }
        }
    }))
}

/// A truth value as PostgreSQL reads it.
pub(super) fn truth(value: &str) -> Option<bool> {
    let value = value.to_ascii_lowercase();
    let begins = |word: &str, least: usize| value.len() >= least && word.starts_with(value.as_str());
    match value.as_str() {
        "1" => Some(true),
        "0" => Some(false),
        _ if begins("true", 1) || begins("yes", 1) || begins("on", 2) => Some(true),
        _ if begins("false", 1) || begins("no", 1) || begins("off", 2) => Some(false),
        _ => None,
    }
}

/// A number with or without a unit, in the smallest whole one.
fn quantity(value: &str, base: f64, units: &[(&str, f64)]) -> Option<f64> {
    let end = value.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+'))).unwrap_or(value.len());
    let number: f64 = value[..end].parse().ok()?;
    let factor = match value[end..].trim() {
        "" => base,
        unit => units.iter().find(|(known, _)| *known == unit)?.1,
    };
    Some(number * factor)
}

/// A quantity in the largest unit that leaves a whole number.
fn shown(number: i64, units: &[(&str, f64)]) -> String {
    let fits = units.iter().find(|(_, unit)| number != 0 && number % (*unit as i64) == 0);
    fits.map_or_else(|| "0".to_owned(), |(name, unit)| format!("{}{name}", number / *unit as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_and_shown_as_postgresql_does() {
        for (name, value, expected) in [
            ("work_mem", "1GB", Ok("1GB")),
            ("work_mem", "4096", Ok("4MB")),
            ("work_mem", "1.5MB", Ok("1536kB")),
            (
                "work_mem",
                "32",
                Err("32 kB is outside the valid range for parameter \"work_mem\" (64 kB .. 2147483647 kB)"),
            ),
            ("work_mem", "1 gb", Err("invalid value for parameter \"work_mem\": \"1 gb\"")),
            ("effective_cache_size", "1", Ok("8kB")),
            ("effective_cache_size", "524288", Ok("4GB")),
            ("jit", "false", Ok("off")),
            ("jit", "o", Err("parameter \"jit\" requires a Boolean value")),
            ("enable_seqscan", "Y", Ok("on")),
            ("random_page_cost", "1.10", Ok("1.1")),
            ("random_page_cost", "x", Err("invalid value for parameter \"random_page_cost\": \"x\"")),
            (
                "default_statistics_target",
                "0",
                Err("0 is outside the valid range for parameter \"default_statistics_target\" (1 .. 10000)"),
            ),
            ("synchronous_commit", "OFF", Ok("off")),
            ("plan_cache_mode", "sometimes", Err("invalid value for parameter \"plan_cache_mode\": \"sometimes\"")),
            ("deadlock_timeout", "90000", Ok("90s")),
        ] {
            match (read(name, value), expected) {
                (Ok(read), Ok(expected)) => assert_eq!(read.as_deref(), Some(expected), "{name} = {value}"),
                (Err(error), Err(expected)) => {
                    assert_eq!((error.code(), error.to_string().as_str()), ("22023", expected), "{name} = {value}");
                }
                (read, expected) => panic!("{name} = {value}: {read:?}, not {expected:?}"),
            }
        }
        assert!(read("search_path", "x").expect("it is none of these").is_none());
    }

    #[test]
    fn each_default_is_a_value_and_is_shown_as_it_is() {
        for (name, default) in defaults() {
            assert_eq!(read(name, default).expect(name).as_deref(), Some(default), "{name}");
        }
    }
}
