//! Determines which caches the power supply preserves: the *persistence domain*, as the kernel reports it for each
//! region of modules.
//!
//! ```text
//!   /sys/bus/nd/devices/region0/persistence_domain     cpu_cache           caches too: eADR
//!   /sys/bus/nd/devices/region1/persistence_domain     memory_controller   the controller's queues: ADR
//! ```
//!
//! eADR is assumed only if every region reports it, because a shelf cannot find the regions of its file system. It is
//! never inferred from the model of a CPU. A value that is missing, empty, or not one of the two is
//! [`Domain::Unknown`]; every user treats that as ADR, which costs time and never data. (libpmem2 decides in the same
//! way.)

use std::fs;
use std::path::Path;

use super::Domain;

/// Reads every region below a sysfs root, which is `/sys` except in tests.
pub fn detect(sysfs_root: &Path) -> Domain {
    // Without the directory the kernel has found no persistent memory.
    let Ok(devices) = fs::read_dir(sysfs_root.join("bus/nd/devices")) else { return Domain::Unknown };
    let mut said = Vec::new();
    for device in devices {
        // A directory that cannot be read completely may hide a region with another value.
        let Ok(device) = device else { return Domain::Unknown };
        if is_region(&device.file_name().to_string_lossy()) {
            said.push(fs::read_to_string(device.path().join("persistence_domain")).unwrap_or_default());
        }
    }
    of_all(said.iter().map(|said| said.trim()))
}

/// Whether a device of that bus is a region: `region` and a number.
fn is_region(name: &str) -> bool {
    name.strip_prefix("region").is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// The weakest of the values of the regions.
fn of_all<'a>(said: impl Iterator<Item = &'a str>) -> Domain {
    let of = |said| match said {
        "cpu_cache" => Domain::Eadr,
        "memory_controller" => Domain::Adr,
        _ => Domain::Unknown,
    };
    let weakest = |one, other| match (one, other) {
        (Domain::Unknown, _) | (_, Domain::Unknown) => Domain::Unknown,
        (Domain::Adr, _) | (_, Domain::Adr) => Domain::Adr,
        (Domain::Eadr, Domain::Eadr) => Domain::Eadr,
    };
    said.map(of).reduce(weakest).unwrap_or(Domain::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regions_that_all_say_cpu_cache_are_eadr_and_what_is_not_said_is_unknown() {
        const CACHE: Option<&str> = Some("cpu_cache\n");
        const CONTROLLER: Option<&str> = Some("memory_controller\n");
        let cases: &[(&[Option<&str>], Domain)] = &[
            (&[], Domain::Unknown),
            (&[CACHE], Domain::Eadr),
            (&[CACHE, CACHE, CACHE], Domain::Eadr),
            (&[CONTROLLER], Domain::Adr),
            (&[CACHE, CONTROLLER], Domain::Adr),
            (&[CONTROLLER, CACHE], Domain::Adr),
            (&[Some("\n")], Domain::Unknown),
            (&[Some("none\n")], Domain::Unknown),
            (&[Some("unknown\n")], Domain::Unknown),
            (&[Some("cpu_cache and more")], Domain::Unknown),
            (&[None], Domain::Unknown),
            (&[CACHE, None], Domain::Unknown),
            (&[CACHE, Some("")], Domain::Unknown),
            (&[CONTROLLER, None], Domain::Unknown),
        ];
        for (regions, expected) in cases {
            let root = tempfile::tempdir().expect("temporary directory");
            let devices = root.path().join("bus/nd/devices");
            fs::create_dir_all(&devices).expect("make");
            // A device that is not a region does not count, whatever its file contains.
            for other in ["nmem0", "namespace0.0", "ndbus0", "region", "regional1"] {
                fs::create_dir(devices.join(other)).expect("make");
                fs::write(devices.join(other).join("persistence_domain"), "memory_controller").expect("write");
            }
            for (number, said) in regions.iter().enumerate() {
                let region = devices.join(format!("region{number}"));
                fs::create_dir(&region).expect("make");
                if let Some(said) = said {
                    fs::write(region.join("persistence_domain"), said).expect("write");
                }
            }
            assert_eq!(detect(root.path()), *expected, "{regions:?}");
        }
        let nothing = tempfile::tempdir().expect("temporary directory");
        assert_eq!(detect(nothing.path()), Domain::Unknown);
    }
}
