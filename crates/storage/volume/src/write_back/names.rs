//! [`DeviceNames`]: the devices of the capacity, by name and by number.
//!
//! ```text
//!   name for users   data-0
//!   on the capacity  c7.data-0        7: the number that entries of the cache contain
//! ```
//!
//! The number is part of the name on the capacity, so that one atomic change of a name is enough, and so that a program that does not
//! know of the cache finds no device that it would read without its dirty pages.
//!
//! Invariant: a number is given to another device only after no entry of the cache contains it.

use std::collections::BTreeMap;
use std::sync::Arc;

use device::contract::NAME_BYTES_MAX;

use super::backing::Backing;

/// Longest name of a cached device, bytes: what the number takes is missing.
pub const CACHED_NAME_BYTES_MAX: usize = NAME_BYTES_MAX - 12;

/// A device of the capacity.
#[derive(Debug, Default)]
pub(super) struct DeviceRecord {
    /// `None` until it is opened.
    pub(super) backing: Option<Arc<Backing>>,
    /// Handles of users.
    pub(super) handles: usize,
    /// It has no name any more: its pages are dropped with its last handle.
    pub(super) is_removed: bool,
}

/// See the head comment of this file.
#[derive(Debug, Default)]
pub(super) struct DeviceNames {
    pub(super) by_name: BTreeMap<String, u32>,
    pub(super) devices: BTreeMap<u32, DeviceRecord>,
    last: u32,
}

impl DeviceNames {
    /// The devices among the names of a capacity shelf; the error is a name that occurs twice.
    pub(super) fn of(listed: &[String]) -> Result<DeviceNames, String> {
        let mut names = DeviceNames::default();
        for (number, name) in listed.iter().filter_map(|full| parse(full)) {
            if names.by_name.insert(name.to_owned(), number).is_some() {
                return Err(name.to_owned());
            }
            if names.devices.insert(number, DeviceRecord::default()).is_some() {
                return Err(format!("number {number}"));
            }
            names.keep_free_of(number);
        }
        Ok(names)
    }

    /// The number is in use.
    pub(super) fn keep_free_of(&mut self, number: u32) {
        self.last = self.last.max(number);
    }

    /// A number that no device and no entry has.
    pub(super) fn next(&mut self) -> u32 {
        self.last = self.last.checked_add(1).expect("fewer than 2^32 devices are made");
        self.last
    }

    pub(super) fn backing(&self, number: u32) -> Option<Arc<Backing>> {
        self.devices.get(&number)?.backing.clone()
    }
}

/// The name on the capacity.
pub(super) fn full_name(number: u32, name: &str) -> String {
    format!("c{number}.{name}")
}

fn parse(full: &str) -> Option<(u32, &str)> {
    let (number, name) = full.strip_prefix('c')?.split_once('.')?;
    let number: u32 = number.parse().ok().filter(|number| *number > 0)?;
    (full_name(number, name) == full && device::contract::is_name(name)).then_some((number, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_the_cache_has_made_are_devices_and_each_number_and_name_is_used_once() {
        let list = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        let names = DeviceNames::of(&list(&["c1.a", "c12.data-0", "c0.b", "c01.c", "data-0", "cx.d", "write-back"]));
        let mut names = names.expect("no name occurs twice");
        assert_eq!(names.by_name, BTreeMap::from([("a".to_owned(), 1), ("data-0".to_owned(), 12)]));
        assert_eq!(names.next(), 13);
        assert_eq!(DeviceNames::of(&list(&["c1.a", "c2.a"])).expect_err("twice"), "a");
        assert_eq!(DeviceNames::of(&list(&["c1.a", "c1.b"])).expect_err("twice"), "number 1");
        assert!(full_name(u32::MAX, &"x".repeat(CACHED_NAME_BYTES_MAX)).len() <= NAME_BYTES_MAX);
    }
}
