//! `terrace.toml`: one file, every key with its unit and default; flags win over it. `docs/configuration.md` lists all of them, and
//! `reference` compares the two. Where things lie (`mode`, `[tiers.NAME]`, `[placement]`) is explained with an example of each mode
//! in `docs/tiers.md`.

mod ldap;
mod oidc;
mod one_or_more;
#[cfg(test)]
mod planned;
#[cfg(all(test, feature = "sql", feature = "search"))]
mod reference;

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use std::collections::BTreeMap;

use anyhow::Context;
use catalogue::placement::{self, Mode, PlacementSettings, TierSettings};
use hl7::mask::Masker;
use interop::engine::Bodies;
use interop::production::Values;
use interop::production::units::{Bytes, Span};
use interop::running::{OnFull, Options, Origin};
use node::admission::FRAME_BYTES;
use node::identity::ldap::{LdapClient, LdapSettings};
use node::identity::oidc::{OidcProvider, OidcSettings};
use node::identity::{AccessRule, AccessRules};
use node::{Admission, AuditSettings, Descriptors};
use serde::Deserialize;
use store::{CheckpointOptions, SpaceLimit};

use crate::assemble::{MemorySizes, Plan};
use crate::backups::BackupTable;
use crate::console::ConsoleSettings;
use crate::identity::Elsewhere;
use crate::metrics::MetricsSettings;
use crate::services::ServiceSettings;
use crate::volumes::VolumeSettings;
use crate::{cli, search, sql};

/// The file that is read where none is named.
pub const FILE: &str = "terrace.toml";

/// Threads that serve sockets: more than this share no work, they wait for it.
const THREADS: RangeInclusive<usize> = 1..=256;

/// Settings of a node. Unknown keys are errors.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Data directory. Default `terrace-data`.
    data: PathBuf,
    /// Production folder. Default `production`, where there is one.
    production: Option<PathBuf>,
    /// The table of the production's `values.toml` that is for this node, besides `[default]`. Default: none.
    environment: Option<String>,
    /// Values that take the places of `${name}` in the settings of the production; they win over its own.
    values: BTreeMap<String, toml::Value>,
    /// Address of the one service of a node without a production. Default 127.0.0.1:2575.
    listen: SocketAddr,
    /// `listen` may be an address beyond this machine, where every machine on the network path can read every message.
    /// Default no. Services of a production have a `plaintext` of their own.
    plaintext: bool,
    /// How outputs are stored: `delta` or `full`. Default `delta`.
    bodies: Bodies,
    /// The journal.
    journal: JournalConfig,
    /// How long messages are kept.
    messages: MessagesConfig,
    /// How long entries of the audit are kept, and how many there may be.
    audit: AuditConfig,
    /// What is masked in messages for readers without a right to patient data.
    masking: MaskingConfig,
    /// Memory of the page cache, 4 MiB or more. Default 256 MiB, or `placement.cache_bytes`.
    cache: Option<Bytes>,
    /// Memory of values that were changed or deleted while a statement or a listing still reads an older state; one
    /// that needs more ends with an error. 16 MiB or more. Default: as the page cache, 64 MiB to 1 GiB.
    versions: Option<Bytes>,
    /// Memory that unfinished frames of all services may take, except frames up to 64 KiB, which are not counted; each
    /// service may take as much of it as its own `frame_memory`, and one frame of each continues beyond it. Default 256
    /// MiB.
    frame_memory: Bytes,
    /// The pages.
    pages: PagesConfig,
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
    /// The SQL service. Default: none.
    sql: Option<sql::Settings>,
    /// The search service. Default: none.
    search: Option<search::SearchSettings>,
    /// Metrics and health over HTTP. Default: none.
    metrics: Option<MetricsSettings>,
    /// Where the exports of volumes are reached. Default: a unix socket in the data directory.
    volumes: VolumeSettings,
    /// The console. Default: none.
    console: Option<ConsoleSettings>,
    /// Backups by schedule. Default: none.
    backup: Option<BackupTable>,
    /// Who may come in from where, in their order. Default: no rules, and the settings of the ports decide.
    access: Vec<AccessRule>,
    /// The directory that checks passwords of users who have none here. Default: none.
    ldap: Option<ldap::LdapTable>,
    /// The provider that says who users of the console are. Default: none.
    oidc: Option<oidc::OidcTable>,
    /// Whether there is a console, which was taken out.
    #[serde(skip)]
    has_console: bool,
    /// Space that SQL reserves for messages.
    #[serde(skip)]
    bounds: store::SpaceLimits,
    /// Memory of a transaction's changes, in bytes; beyond it they go to the journal.
    #[serde(skip)]
    transaction_bytes: usize,
    /// Figures of the last year are kept in the store, for `terrace history`: a row every ten seconds, 12 MB in all. Default yes.
    history: bool,
    /// Log lines: error, warn, info, debug. Default info.
    log: LogLevel,
    /// What a log line is: `text` for people, `json` for programs. Default `text`.
    log_format: LogFormat,
}

/// What a line of the log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Time, level and message in words, then fields as `name=value`.
    #[default]
    Text,
    /// One object: `timestamp`, `level`, `fields` (with the `message`), `target`.
    Json,
}

/// Which log lines there are: those of a level and of the more important ones.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum LogLevel {
    Error,
    Warn,
    #[default]
    Info,
    Debug,
}

impl LogLevel {
    /// As the log's filter reads it.
    fn name(self) -> &'static str {
        match self {
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
        }
    }
}

/// `[journal]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct JournalConfig {
    /// Size of a segment file, 16 KiB to 1 TiB in steps of 4 KiB. Default 64 MiB.
    segment: Bytes,
    /// How much of it may wait to be written to the pages, 16 MiB or more; a quarter of that begins a checkpoint. Default 1 GiB.
    limit: Bytes,
    /// How much of it is kept behind what recovery needs, so that a backup can be restored to any moment of that. Default
    /// nothing.
    keep: Bytes,
    /// The key's place before there were pages. The same as `retention` below `[messages]`.
    retention: Option<Bytes>,
}

/// `[messages]`: how many messages are kept, besides those that wait to be delivered.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct MessagesConfig {
    /// Messages and outputs, as their records count them. Default 16 GiB.
    retention: Option<Bytes>,
    /// Since they came in. Default: however old. A clock that jumps ahead removes nothing by it until `terrace clock confirm`.
    age: Option<Span>,
    /// The reaction to a full disk: `prune` gives up messages whose outputs are all delivered or failed, the oldest
    /// first, before their retention ends; `refuse` gives up nothing. Senders are refused until there is room either
    /// way. Default `prune`.
    on_full: OnFull,
}

/// `[audit]`: who read which body, who changed what.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AuditConfig {
    /// Entries that are older are removed. Default: none are.
    keep_days: Option<NonZeroU32>,
    /// When there are more bytes of entries, the oldest are removed. Default: none are.
    keep_bytes: Option<Bytes>,
    /// Bytes of entries, 1 MiB or more, beyond which no body is shown and nothing is administered. Default 1 GiB.
    max_bytes: Option<Bytes>,
}

/// `[masking]`: what readers without the right `unmasked` do not see of a message.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct MaskingConfig {
    /// Segments, fields, components, subcomponents, as `PID-3.1`. Default: what identifies a patient, `hl7::mask::DEFAULT_PATHS`.
    paths: Option<Vec<String>>,
}

impl MaskingConfig {
    fn masker(&self) -> anyhow::Result<Arc<Masker>> {
        let Some(paths) = &self.paths else { return Ok(Arc::default()) };
        Ok(Arc::new(Masker::new(paths).context("masking.paths")?))
    }
}

/// The least `audit.max_bytes`: room for some thousand entries.
const AUDIT_BYTES_MIN: u64 = 1 << 20;

impl AuditConfig {
    fn settings(&self) -> anyhow::Result<AuditSettings> {
        let max_bytes = self.max_bytes.map_or(AuditSettings::default().max_bytes, |bytes| bytes.0);
        anyhow::ensure!(max_bytes >= AUDIT_BYTES_MIN, "audit.max_bytes is 1MiB at least");
        let keep_bytes = self.keep_bytes.map(|bytes| bytes.0);
        anyhow::ensure!(
            keep_bytes.is_none_or(|keep| keep <= max_bytes / 8 * 7),
            "audit.keep_bytes is 7/8 of audit.max_bytes at most: entries are removed some at a time"
        );
        let keep = self.keep_days.map(|days| Duration::from_secs(u64::from(days.get()) * 86_400));
        Ok(AuditSettings { keep, keep_bytes, max_bytes })
    }
}

/// `[pages]`
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PagesConfig {
    /// Size of a page, a power of two, 4 to 64 KiB; counts when the store is made. Default 8 KiB.
    size: Bytes,
    /// Size of a file of pages, a power of two, 2 MiB (and 64 pages) to 1 TiB; counts when the store is made. Default 256 MiB.
    device: Bytes,
    /// Size of a file of the write image journal, 64 KiB to 1 TiB in steps of 4 KiB; counts when it is made. Default 64 MiB.
    images: Bytes,
}

impl Default for PagesConfig {
    fn default() -> Self {
        let store::Options { page_bytes, data_device_bytes, images_device_bytes, .. } = store::Options::default();
        Self { size: Bytes(page_bytes.into()), device: Bytes(data_device_bytes), images: Bytes(images_device_bytes) }
    }
}

impl Default for JournalConfig {
    fn default() -> Self {
        Self {
            segment: Bytes(journal::Options::default().segment_bytes),
            limit: Bytes(CheckpointOptions::default().journal_bytes_max),
            keep: Bytes(0),
            retention: None,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data: PathBuf::from("terrace-data"),
            production: None,
            environment: None,
            values: BTreeMap::new(),
            listen: SocketAddr::from(([127, 0, 0, 1], 2575)),
            plaintext: false,
            bodies: Bodies::default(),
            journal: JournalConfig::default(),
            messages: MessagesConfig::default(),
            audit: AuditConfig::default(),
            masking: MaskingConfig::default(),
            cache: None,
            versions: None,
            frame_memory: Bytes(FRAME_BYTES),
            pages: PagesConfig::default(),
            threads: None,
            mode: None,
            tiers: BTreeMap::new(),
            placement: PlacementSettings::default(),
            media: None,
            sql: None,
            search: None,
            metrics: None,
            volumes: VolumeSettings::default(),
            console: None,
            backup: None,
            access: Vec::new(),
            ldap: None,
            oidc: None,
            has_console: false,
            bounds: store::SpaceLimits::default(),
            transaction_bytes: usize::MAX,
            history: true,
            log: LogLevel::default(),
            log_format: LogFormat::default(),
        }
    }
}

/// The larger of two reserves: both services leave that much to messages.
fn larger(one: Option<SpaceLimit>, other: SpaceLimit) -> Option<SpaceLimit> {
    Some(one.filter(|one| one.bytes >= other.bytes).unwrap_or(other))
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
        self.threads.unwrap_or((cores / 2).min(16)).clamp(*THREADS.start(), *THREADS.end())
    }

    /// The services besides messages, taken out; the space that SQL reserves for messages stays.
    pub fn take_services(&mut self) -> ServiceSettings {
        let (sql, search) = (self.sql.take(), self.search.take());
        self.bounds = sql.as_ref().map(sql::Settings::bounds).unwrap_or_default();
        if let Some(search) = &search {
            self.bounds.reserve = larger(self.bounds.reserve, search.reserve());
        }
        self.transaction_bytes = sql.as_ref().map_or(usize::MAX, sql::Settings::transaction_bytes);
        let (volumes, metrics) = (std::mem::take(&mut self.volumes), self.metrics.take());
        self.has_console = self.console.is_some();
        ServiceSettings { sql, search, volumes, metrics, console: self.console.take(), backup: self.backup.take() }
    }

    /// The access rules.
    ///
    /// # Errors
    /// One of them cannot work.
    pub fn access(&self) -> anyhow::Result<AccessRules> {
        Ok(AccessRules::new(self.access.clone())?)
    }

    /// The values for the settings of the production; of another environment than that of the file, if one is named.
    ///
    /// # Errors
    /// A value that cannot be.
    pub fn values(&self, environment: Option<&str>) -> anyhow::Result<Values> {
        let environment = environment.map(str::to_owned).or_else(|| self.environment.clone());
        Values::new(environment, self.values.clone()).map_err(anyhow::Error::msg).context("values")
    }

    /// The settings of the directory, if there is one.
    ///
    /// # Errors
    /// Keys that do not go together.
    pub fn ldap(&self) -> anyhow::Result<Option<LdapSettings>> {
        self.ldap.as_ref().map(ldap::LdapTable::settings).transpose()
    }

    /// The settings of the provider of logins, if there is one.
    ///
    /// # Errors
    /// Keys that do not go together.
    pub fn oidc(&self) -> anyhow::Result<Option<OidcSettings>> {
        let settings = self.oidc.as_ref().map(oidc::OidcTable::settings).transpose()?;
        anyhow::ensure!(
            settings.is_none() || self.has_console || self.console.is_some(),
            "[oidc] has no effect: there is no [console] to sign in to; leave it out, or add that table"
        );
        Ok(settings)
    }

    /// Reads the settings of who else says who users are, of a file or of the default one, for commands.
    pub fn elsewhere() -> Elsewhere {
        Elsewhere { ldap: |file| Config::read(file)?.ldap(), oidc: |file| Config::read(file)?.oidc() }
    }

    /// The data directory, where no flag names another one.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Whether a history of figures is kept.
    pub fn history(&self) -> bool {
        self.history
    }

    /// Log level.
    pub fn log(&self) -> &'static str {
        self.log.name()
    }

    /// Memory that unfinished frames may take.
    pub fn frame_bytes(&self) -> u64 {
        self.frame_memory.0
    }

    /// What a log line is.
    pub fn log_format(&self) -> LogFormat {
        self.log_format
    }

    /// The same for a data directory, without flags.
    pub fn plan_of(self, data: &Path) -> anyhow::Result<Plan> {
        self.plan(&cli::ServeArgs { config: None, data: Some(data.to_owned()), production: None, bodies: None })
    }

    /// How to run the node and where its parts lie, with the flags given.
    pub fn plan(self, args: &cli::ServeArgs) -> anyhow::Result<Plan> {
        let (access, values, ldap, oidc) = (self.access()?, self.values(None)?, self.ldap()?, self.oidc()?);
        let data = args.data.clone().unwrap_or(self.data);
        let named = args.production.clone().or(self.production);
        let origin = match named {
            Some(folder) => Origin::Folder(folder),
            None if Path::new("production").is_dir() => Origin::Folder(PathBuf::from("production")),
            None => Origin::StoreOnly(self.listen),
        };
        anyhow::ensure!(
            !matches!(origin, Origin::StoreOnly(address) if !address.ip().is_loopback()) || self.plaintext,
            "listen = \"{}\" is beyond this machine and without TLS: make a production whose service has [tls], listen on 127.0.0.1, \
             or, if every machine on the network path may read every message, write `plaintext = true`",
            self.listen
        );
        anyhow::ensure!(
            self.threads.is_none_or(|threads| THREADS.contains(&threads)),
            "threads is 1 to {}",
            THREADS.end()
        );
        let mut options = Options::new(data, origin);
        options.services_follow = true;
        options.access = access;
        options.values = values;
        // What cannot work is told before anything is opened.
        ldap.as_ref().map(|ldap| LdapClient::new(ldap, options.clock.clone())).transpose()?;
        oidc.as_ref().map(|oidc| OidcProvider::new(oidc.clone(), options.clock.clone())).transpose()?;
        (options.ldap, options.oidc) = (ldap, oidc);
        options.bodies = match args.bodies {
            Some(cli::Bodies::Delta) => Bodies::Delta,
            Some(cli::Bodies::Full) => Bodies::Full,
            None => self.bodies,
        };
        if let Some(bytes) = self.messages.retention.or(self.journal.retention) {
            options.retention.bytes = bytes.0;
        }
        options.admission = Admission::new(Descriptors::current(), self.frame_memory.0);
        options.retention.age = self.messages.age.map(|age| age.0);
        options.on_full = self.messages.on_full;
        options.audit = self.audit.settings()?;
        options.masker = self.masking.masker()?;
        let limit = self.journal.limit.0;
        let checkpoints =
            CheckpointOptions { journal_bytes: limit / 4, journal_bytes_max: limit, ..Default::default() };
        options.store.checkpoints = Some(checkpoints);
        options.store.page_bytes = u32::try_from(self.pages.size.0).context("pages.size is 64 KiB at most")?;
        options.store.data_device_bytes = self.pages.device.0;
        options.store.images_device_bytes = self.pages.images.0;
        options.journal.segment_bytes = self.journal.segment.0;
        options.store.keep_journal_bytes = self.journal.keep.0;
        options.store.limits = self.bounds;
        options.store.transaction_bytes = options.store.transaction_bytes.min(self.transaction_bytes);
        let settings = placement::Settings { mode: self.mode, tiers: self.tiers, placement: self.placement };
        let memory =
            MemorySizes { cache: self.cache.map(|bytes| bytes.0), versions: self.versions.map(|bytes| bytes.0) };
        Plan::of(options, &settings, memory, self.media.as_deref())
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
        assert_eq!(examples.len(), 7, "one for each mode, far memory by key, and two without the hardware");
        for example in examples {
            let config: Config = toml::from_str(&example).unwrap_or_else(|error| panic!("{error}\n{example}"));
            config.plan(&args()).unwrap_or_else(|error| panic!("{error:#}\n{example}"));
        }
    }

    #[test]
    fn the_page_on_masking_lists_the_default_paths() {
        let page = include_str!("../../../docs/masking.md");
        let rows = page
            .lines()
            .skip_while(|line| *line != "| paths | what |")
            .skip(2)
            .take_while(|line| line.starts_with('|'));
        let first = rows.map(|row| row.split('|').nth(1).unwrap_or_default());
        let mut listed: Vec<&str> = first.flat_map(|paths| paths.split('`').skip(1).step_by(2)).collect();
        let mut default = hl7::mask::DEFAULT_PATHS.to_vec();
        listed.sort_unstable();
        default.sort_unstable();
        assert_eq!(listed, default);
    }

    #[test]
    fn a_node_without_a_production_listens_beyond_this_machine_only_where_that_is_said() {
        let args = || cli::ServeArgs { config: None, data: None, production: None, bodies: None };
        for (text, right) in [
            ("listen = '127.0.0.1:0'", true),
            ("listen = '0.0.0.0:2575'", false),
            ("listen = '[::]:2575'\nplaintext = false", false),
            ("listen = '0.0.0.0:2575'\nplaintext = true", true),
        ] {
            let config: Config = toml::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
            match config.plan(&args()) {
                Ok(_) => assert!(right, "{text}"),
                Err(error) => assert!(!right && error.to_string().contains("plaintext = true"), "{text}: {error:#}"),
            }
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
