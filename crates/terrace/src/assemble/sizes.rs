//! Checks sizes. With some sizes a node would start but could not store the longest message later; with others it would
//! fail with an error that does not name the key of terrace.toml. Each is refused with its key, its value and the
//! minimum, before anything is made.

use std::ops::RangeInclusive;

use interop::production::units::Bytes;
use interop::running::Options;

/// Least that may wait to be written to the pages: a few messages of the largest size.
const MIN_LIMIT: u64 = 16 << 20;

/// Least memory of the page cache, as the store has it.
const MIN_CACHE: u64 = 4 << 20;

/// Least memory of old versions: that of a message of the largest size which was given up while something reads it, and of some seconds
/// of others.
const MIN_VERSIONS: u64 = 16 << 20;

/// Least size of a file of pages: from here on values of 64 MiB find room ([`store::Options::data_device_bytes`]).
const MIN_DEVICE: u64 = 2 << 20;

/// Which sizes there are between the least and the most.
#[derive(Debug, Clone, Copy)]
enum Step {
    Any,
    Blocks,
    Powers,
}

/// Errors: the first size that cannot work.
pub(super) fn check(options: &Options) -> anyhow::Result<()> {
    let (store, page) = (&options.store, u64::from(options.store.page_bytes));
    // 64 pages, and twice the longest extent.
    let least_device = (64 * page).max(MIN_DEVICE);
    let limit = store.checkpoints.as_ref().map_or(u64::MAX, |checkpoints| checkpoints.journal_bytes_max);
    let sizes: [(&str, u64, RangeInclusive<u64>, Step); 7] = [
        ("cache", store.cache_bytes, MIN_CACHE..=u64::MAX, Step::Any),
        ("versions", store.versions_bytes, MIN_VERSIONS..=u64::MAX, Step::Any),
        ("journal.segment", options.journal.segment_bytes, 16 << 10..=1 << 40, Step::Blocks),
        ("journal.limit", limit, MIN_LIMIT..=u64::MAX, Step::Any),
        ("pages.size", page, 4 << 10..=64 << 10, Step::Powers),
        ("pages.device", store.data_device_bytes, least_device..=1 << 40, Step::Powers),
        ("pages.images", store.images_device_bytes, 64 << 10..=1 << 40, Step::Blocks),
    ];
    for (key, bytes, range, step) in sizes {
        let (is_whole, whole) = match step {
            Step::Any => (true, ""),
            Step::Blocks => (bytes.is_multiple_of(4096), ", a multiple of 4KiB"),
            Step::Powers => (bytes.is_power_of_two(), ", a power of two"),
        };
        let (least, most) = (Bytes(*range.start()), Bytes(*range.end()));
        let most = if most.0 == u64::MAX { String::new() } else { format!(" and at most {most}") };
        anyhow::ensure!(
            range.contains(&bytes) && is_whole,
            "{key} = \"{}\" cannot work: it is at least {least}{most}{whole}",
            Bytes(bytes)
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::cli;
    use crate::config::Config;

    #[test]
    fn a_size_with_which_a_node_could_not_go_on_is_refused_with_its_key_its_value_and_the_least() {
        let args = || cli::ServeArgs { config: None, data: None, production: None, bodies: None };
        for (text, told) in [
            ("cache = '1MiB'", "cache = \"1MiB\" cannot work: it is at least 4MiB"),
            ("versions = '1MiB'", "versions = \"1MiB\" cannot work: it is at least 16MiB"),
            ("mode = 'dram'\ncache = '64MiB'\n[placement]\ncache_bytes = '128MiB'", "leave one of them out"),
            (
                "[journal]\nsegment = '8KiB'",
                "journal.segment = \"8KiB\" cannot work: it is at least 16KiB and at most 1024GiB",
            ),
            ("[journal]\nsegment = '18KiB'", "a multiple of 4KiB"),
            ("[journal]\nlimit = '1MiB'", "journal.limit = \"1MiB\" cannot work: it is at least 16MiB"),
            ("[pages]\nsize = '2KiB'", "pages.size = \"2KiB\" cannot work: it is at least 4KiB and at most 64KiB"),
            ("[pages]\nsize = '128KiB'", "at most 64KiB, a power of two"),
            ("[pages]\ndevice = '512KiB'", "pages.device = \"512KiB\" cannot work: it is at least 2MiB"),
            ("[pages]\ndevice = '3MiB'", "a power of two"),
            ("[pages]\ndevice = '2MiB'\nsize = '64KiB'", "pages.device = \"2MiB\" cannot work: it is at least 4MiB"),
            ("[pages]\nimages = '32KiB'", "pages.images = \"32KiB\" cannot work: it is at least 64KiB"),
        ] {
            let config: Config = toml::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
            let refused = config.plan(&args()).expect_err(text).to_string();
            assert!(refused.contains(told), "{text}: {refused}");
        }
        let least = "cache = '4MiB'\n[journal]\nsegment = '16KiB'\nlimit = '16MiB'\n[pages]\nsize = '4KiB'\ndevice = '2MiB'\nimages = '64KiB'";
        let config: Config = toml::from_str(least).expect("the least of each");
        config.plan(&args()).expect("it works");
    }
}
