//! `terrace.toml`: one file, every key with its unit and default; flags win over it. Where things lie (`mode`, `[tiers.NAME]`,
//! `[placement]`) is explained with an example of each mode in `docs/tiers.md`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use std::collections::BTreeMap;

use anyhow::Context;
use catalogue::placement::{self, Mode, PlacementSettings, TierSettings};
use interop::engine::Bodies;
use interop::node::{Options, Origin};
use interop::production::units::Bytes;
use serde::Deserialize;

use crate::assemble::Plan;
use crate::cli;

/// The file that is read where none is named.
const FILE: &str = "terrace.toml";

/// Settings of a node. Unknown keys are errors.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Data directory. Default `terrace-data`.
    data: PathBuf,
    /// Production folder. Default `production`, where there is one.
    production: Option<PathBuf>,
    /// Address of the one service of a node without a production. Default 127.0.0.1:2575.
    listen: SocketAddr,
    /// How outputs are stored: `delta` or `full`. Default `delta`.
    bodies: Bodies,
    /// The journal.
    journal: JournalConfig,
    /// Threads that serve sockets and transform messages. Default: half the cores, 1 to 16. The journal has two of its
    /// own, and peers on the same machine want some. T4 at full size on 2 quiet cores, 2026-11-21, two runs each: one
    /// thread 12,133 and 13,007 messages/s at 76 and 69 us of processor time, two threads 12,807 and 12,545 at 79 and
    /// 80 us. On a machine whose cores are busy with other work two took twice as many.
    threads: Option<usize>,
    /// A placement by name: `dram`, `memory`, `app-direct`, `dual`. Default: none, everything lies in the data directory.
    mode: Option<Mode>,
    /// Media that structures can lie on, by name.
    tiers: BTreeMap<String, TierSettings>,
    /// Which structure lies on which tier; wins over the mode.
    placement: PlacementSettings,
    /// A folder of media descriptions of one's own, beside the built-in ones.
    media: Option<PathBuf>,
    /// Log lines: error, warn, info, debug. Default info.
    log: String,
}

/// `[journal]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct JournalConfig {
    /// Size of a segment file. Default 64 MiB.
    segment: Bytes,
    /// How much is kept beyond what waits to be delivered. Default 16 GiB.
    retention: Bytes,
}

impl Default for JournalConfig {
    fn default() -> Self {
        Self { segment: Bytes(journal::Options::default().segment_bytes), retention: Bytes(16 << 30) }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data: PathBuf::from("terrace-data"),
            production: None,
            listen: SocketAddr::from(([127, 0, 0, 1], 2575)),
            bodies: Bodies::default(),
            journal: JournalConfig::default(),
            threads: None,
            mode: None,
            tiers: BTreeMap::new(),
            placement: PlacementSettings::default(),
            media: None,
            log: "info".to_owned(),
        }
    }
}

impl Config {
    /// Reads the file named, or the default one where it exists, or neither.
    pub fn read(file: Option<&Path>) -> anyhow::Result<Self> {
        let path = file.unwrap_or(Path::new(FILE));
        if file.is_none() && !path.exists() {
            return Ok(Self::default());
        }
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("{} is wrong", path.display()))
    }

    /// Threads that serve sockets.
    pub fn threads(&self) -> usize {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        self.threads.unwrap_or((cores / 2).min(16)).clamp(1, 256)
    }

    /// Log level.
    pub fn log(&self) -> &str {
        &self.log
    }

    /// How to run the node and where its parts lie, with the flags given.
    pub fn plan(self, args: &cli::ServeArgs) -> anyhow::Result<Plan> {
        let data = args.data.clone().unwrap_or(self.data);
        let named = args.production.clone().or(self.production);
        let origin = match named {
            Some(folder) => Origin::Folder(folder),
            None if Path::new("production").is_dir() => Origin::Folder(PathBuf::from("production")),
            None => Origin::StoreOnly(self.listen),
        };
        let mut options = Options::new(data, origin);
        options.bodies = match args.bodies {
            Some(cli::Bodies::Delta) => Bodies::Delta,
            Some(cli::Bodies::Full) => Bodies::Full,
            None => self.bodies,
        };
        options.retention = self.journal.retention;
        options.journal.segment_bytes = self.journal.segment.0;
        let settings = placement::Settings { mode: self.mode, tiers: self.tiers, placement: self.placement };
        Plan::of(options, &settings, self.media.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text of every fenced block of TOML.
    fn examples(document: &str) -> Vec<String> {
        let blocks = document.split("```toml\n").skip(1);
        blocks.map(|rest| rest.split("```").next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn every_example_of_the_document_on_tiers_is_a_placement_that_fits() {
        let document = include_str!("../../../docs/tiers.md");
        let args = || cli::ServeArgs { config: None, data: None, production: None, bodies: None };
        let examples = examples(document);
        assert_eq!(examples.len(), 5, "one for each mode, and one without the hardware");
        for example in examples {
            let config: Config = toml::from_str(&example).unwrap_or_else(|error| panic!("{error}\n{example}"));
            config.plan(&args()).unwrap_or_else(|error| panic!("{error:#}\n{example}"));
        }
    }

    #[test]
    fn a_node_without_settings_keeps_everything_in_its_data_directory() {
        let args = cli::ServeArgs { config: None, data: None, production: None, bodies: None };
        let plan = Config::default().plan(&args).expect("nothing is asked for");
        assert_eq!(plan.options().data, PathBuf::from("terrace-data"));
        assert_eq!(plan.options().files, interop::production::Files::default());
    }
}
