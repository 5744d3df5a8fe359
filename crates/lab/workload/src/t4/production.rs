//! The production of the workload, written as a user would write it: a folder of text files.
//!
//! ```text
//! production/
//!   production.toml
//!   services/s000.toml .. s127.toml     one inbound service a sending system, on a port the node chooses
//!   rules/main.rules                    sends every message to the four interfaces
//!   transforms/to-{billing,laboratory,pharmacy,registry}.hl7t
//!   tables/*.csv
//!   operations/{billing,laboratory,pharmacy,registry}.toml
//! ```
//!
//! The rules, transforms and tables are the files in `crates/lab/workload/t4/`, which are also an example to read.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::Context;

use super::expect::INTERFACES;

/// The files that do not depend on the run, by their path in the production.
const FILES: [(&str, &str); 9] = [
    ("rules/main.rules", include_str!("../../t4/rules/main.rules")),
    ("transforms/to-billing.hl7t", include_str!("../../t4/transforms/to-billing.hl7t")),
    ("transforms/to-laboratory.hl7t", include_str!("../../t4/transforms/to-laboratory.hl7t")),
    ("transforms/to-pharmacy.hl7t", include_str!("../../t4/transforms/to-pharmacy.hl7t")),
    ("transforms/to-registry.hl7t", include_str!("../../t4/transforms/to-registry.hl7t")),
    ("tables/facilities.csv", include_str!("../../t4/tables/facilities.csv")),
    ("tables/patient-classes.csv", include_str!("../../t4/tables/patient-classes.csv")),
    ("tables/sexes.csv", include_str!("../../t4/tables/sexes.csv")),
    ("tables/wards.csv", include_str!("../../t4/tables/wards.csv")),
];

/// The name of inbound service number `index`.
pub fn service_name(index: usize) -> String {
    format!("s{index:03}")
}

/// Writes the production into `folder`: `services` inbound services, an operation to each of `receivers` (by interface).
pub fn write(folder: &Path, services: usize, receivers: &[SocketAddr]) -> anyhow::Result<()> {
    let put = |path: &str, text: &str| {
        let path = folder.join(path);
        path.parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::write(&path, text))
            .with_context(|| format!("writing {}", path.display()))
    };
    put("production.toml", "name = \"t4\"\ndescription = \"One routing engine, four interfaces, four transforms\"\n")?;
    for (path, text) in FILES {
        put(path, text)?;
    }
    for index in 0..services {
        let text = "kind = \"mllp\"\nlisten = \"127.0.0.1:0\"\nrules = \"main\"\n";
        put(&format!("services/{}.toml", service_name(index)), text)?;
    }
    for (name, address) in INTERFACES.iter().zip(receivers) {
        put(&format!("operations/{name}.toml"), &format!("kind = \"mllp\"\naddress = \"{address}\"\n"))?;
    }
    Ok(())
}
