//! Compiles the text of a production: files, then references between them, then certificates; all faults are gathered.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hl7::charset::Charset;
use serde::de::DeserializeOwned;

use super::text::{self, GENERAL, PartFile, ProductionText, ReadText};
use super::values::{VALUES_FILE, Values, ValuesInForce};
use super::{Operation, Production, Service, settings, tls};
use crate::error::InteropError;
use crate::lang::{Diagnostic, Rules, Source, Table, Tables, Transforms, diagnose, suggest};

/// Largest message that any service may be set to take: with its head (names and a reason, 16 bits each) it is one value of
/// the store, of 64 MiB at most ([`store::VALUE_BYTES_MAX`]).
const MESSAGE_BYTES_MAX: u64 = 63 << 20;

/// Least processor time for a decision: below it, what a thread does besides would count.
const DECISION_TIME_MIN: Duration = Duration::from_millis(10);

/// Most lanes of one operation: each is a connection to the receiver.
const LANES_MAX: usize = 64;

/// The parts and faults gathered while loading.
struct Loader<'t> {
    folder: PathBuf,
    text: &'t ProductionText,
    values: ValuesInForce,
    /// Operations that have a file, right or wrong: a fault is reported once, in that file, and not where the operation
    /// is named.
    named: Vec<String>,
    /// Files with a place that no value takes: that is their fault, and not what is wrong with the text without it.
    unfilled: Vec<String>,
    faults: Vec<Diagnostic>,
    warnings: Vec<String>,
}

/// Reads a folder and compiles it, with the values of a node.
pub(super) fn load(folder: &Path, values: &Values) -> Result<Production, InteropError> {
    let ReadText { text, faults, warnings } = text::read(folder)?;
    compile(folder, text, values, (faults, warnings))
}

/// Compiles a text. Certificates and folders that it names are looked for from `folder` on.
pub(super) fn compile(
    folder: &Path,
    text: ProductionText,
    values: &Values,
    (mut faults, warnings): (Vec<Diagnostic>, Vec<String>),
) -> Result<Production, InteropError> {
    let (values, wrong) = ValuesInForce::of(text.get(VALUES_FILE), values);
    faults.extend(wrong);
    let (named, unfilled, folder_of) = (Vec::new(), Vec::new(), folder.to_owned());
    let mut loader = Loader { folder: folder_of, text: &text, values, named, unfilled, faults, warnings };
    let general = loader.general();
    let tables = Arc::new(loader.tables());
    let transforms = Arc::new(loader.transforms(&tables));
    let operations = loader.operations();
    let rules = loader.rules(&transforms, &tables);
    let services = loader.services(&rules);
    loader.unused(&services, &rules);
    loader.loops(&services, &operations);
    if !loader.faults.is_empty() {
        return Err(InteropError::Production(loader.faults));
    }
    let name = if general.name.is_empty() {
        folder.file_name().map_or_else(|| "production".to_owned(), |name| name.to_string_lossy().into_owned())
    } else {
        general.name
    };
    let (warnings, values) = (loader.warnings, loader.values.into_used());
    let (folder, text) = (folder.to_owned(), Arc::new(text));
    Ok(Production {
        name,
        folder,
        services,
        operations,
        transforms,
        warnings,
        text,
        values,
        generation: OnceLock::new(),
    })
}

pub(super) fn store_only(address: std::net::SocketAddr) -> Production {
    let service = Service {
        name: "inbound".to_owned(),
        settings: settings::ServiceSettings::Mllp(settings::MllpService::on(address)),
        rules: None,
        tls: None,
        client_names: Vec::new(),
        generation: OnceLock::new(),
        figures: Arc::default(),
    };
    let transforms = Transforms::compile(&[], &Arc::new(Tables::new())).expect("nothing has no faults");
    Production {
        name: "store-only".to_owned(),
        folder: PathBuf::from("."),
        services: BTreeMap::from([("inbound".to_owned(), Arc::new(service))]),
        operations: Vec::new(),
        transforms: Arc::new(transforms),
        warnings: Vec::new(),
        text: Arc::default(),
        values: BTreeMap::new(),
        generation: OnceLock::new(),
    }
}

impl<'t> Loader<'t> {
    fn fault(&mut self, source: Source<'_>, at: Range<usize>, message: impl Into<String>, hint: Option<String>) {
        self.faults.push(diagnose(source, at, message.into(), hint));
    }

    /// The files of a part of settings, with the values in their places.
    fn filled(&mut self, part: &str) -> Vec<(PartFile<'t>, String)> {
        let files = self.text.part(part);
        files.into_iter().map(|file| (file, self.fill(file.source()))).collect()
    }

    fn fill(&mut self, source: Source<'_>) -> String {
        let (filled, faults) = self.values.fill(source);
        if !faults.is_empty() {
            self.unfilled.push(source.file.to_owned());
        }
        self.faults.extend(faults);
        filled
    }

    /// Reads TOML into `T`; a fault is placed where the text is wrong.
    fn toml<T: DeserializeOwned>(&mut self, source: Source<'_>) -> Option<T> {
        match toml::from_str(source.text) {
            Ok(value) => Some(value),
            Err(_) if self.unfilled.iter().any(|file| file == source.file) => None,
            Err(error) => {
                self.fault(source, error.span().unwrap_or(0..0), error.message().trim(), None);
                None
            }
        }
    }

    fn general(&mut self) -> settings::General {
        let Some(text) = self.text.get(GENERAL) else { return settings::General::default() };
        let text = self.fill(Source { file: GENERAL, text });
        self.toml(Source { file: GENERAL, text: &text }).unwrap_or_default()
    }

    fn tables(&mut self) -> Tables {
        let mut tables = Tables::new();
        for file in self.text.part("tables") {
            let table = Table::parse_csv(file.source()).unwrap_or_else(|fault| {
                self.faults.push(fault);
                Table::parse_csv(Source { text: "", ..file.source() }).expect("nothing has no faults")
            });
            tables.insert(file.name, table);
        }
        tables
    }

    fn transforms(&mut self, tables: &Arc<Tables>) -> Transforms {
        let files = self.text.part("transforms");
        let sources: Vec<(String, Source<'_>)> = files.iter().map(|f| (f.name.to_owned(), f.source())).collect();
        Transforms::compile(&sources, tables).unwrap_or_else(|faults| {
            self.faults.extend(faults);
            let empty = |(name, _): &(String, Source<'_>)| (name.clone(), Source { text: "", file: "" });
            let empty: Vec<_> = sources.iter().map(empty).collect();
            Transforms::compile(&empty, tables).expect("nothing has no faults")
        })
    }

    fn operations(&mut self) -> Vec<Arc<Operation>> {
        let mut operations = Vec::new();
        let files = self.filled("operations");
        for (file, text) in &files {
            self.named.push(file.name.to_owned());
            let source = Source { file: file.label, text };
            if let Some(operation) = self.operation(file.name, source) {
                let folder = folder_of(&operation);
                let shares = |other: &&Arc<Operation>| folder.is_some() && folder_of(other) == folder;
                if let Some(other) = operations.iter().find(shares) {
                    let message = format!("operation {} writes to the same folder", other.name);
                    self.fault(source, value_of(text, "folder"), message, None);
                }
                operations.push(Arc::new(operation));
            }
        }
        for (file, text) in &files {
            self.requirement(Source { file: file.label, text }, file.name, &operations);
        }
        operations
    }

    /// An operation that waits for another one names one that can connect, and that does not wait for it.
    fn requirement(&mut self, source: Source<'_>, name: &str, operations: &[Arc<Operation>]) {
        let of = |name: &str| operations.iter().find(|operation| operation.name == name);
        let required = |name: &str| of(name).and_then(|operation| operation.settings.requires());
        let Some(other) = required(name) else { return };
        let (message, hint) = match of(other) {
            // It has faults of its own, which are reported there.
            None if self.named.iter().any(|named| named == other) => return,
            None => {
                let hint = suggest(other, self.named.iter().map(String::as_str), "operations");
                (format!("there is no operations/{other}.toml"), Some(hint))
            }
            Some(other) if matches!(other.settings, settings::OperationSettings::File(_)) => {
                let message = format!("operation {} writes files and has no connection to wait for", other.name);
                (message, Some("name an operation over MLLP".to_owned()))
            }
            Some(_) => {
                let mut chain = vec![name];
                while let Some(next) = required(chain[chain.len() - 1]).filter(|_| chain.len() <= operations.len()) {
                    chain.push(next);
                    if next == name {
                        break;
                    }
                }
                if chain.last() != Some(&name) || chain.len() == 1 {
                    return;
                }
                let message =
                    format!("the operations wait for each other, and none would deliver: {}", chain.join(" -> "));
                (message, None)
            }
        };
        self.fault(source, value_of(source.text, "requires"), message, hint);
    }

    fn operation(&mut self, name: &str, source: Source<'_>) -> Option<Operation> {
        let mut settings = match self.kind(source)?.as_str() {
            "mllp" => settings::OperationSettings::Mllp(self.toml(source)?),
            _ => settings::OperationSettings::File(self.toml(source)?),
        };
        let (mut key, mut client) = (None, None);
        match &mut settings {
            settings::OperationSettings::Mllp(mllp) => {
                key = self.key(source, &mllp.order)?;
                if !mllp.address.rsplit_once(':').is_some_and(|(h, p)| !h.is_empty() && p.parse::<u16>().is_ok()) {
                    let hint = "as in \"lab.example.org:2575\" or \"10.0.0.7:2575\"".to_owned();
                    let message = format!("`{}` is not host:port", mllp.address);
                    self.fault(source, value_of(source.text, "address"), message, Some(hint));
                    return None;
                }
                if let Some(settings) = &mllp.tls {
                    client = Some(self.tls(source, tls::client(&self.folder, settings, &mllp.address))?);
                }
            }
            settings::OperationSettings::File(file) => file.folder = self.folder.join(&file.folder),
        }
        self.replacement(source, settings.charset())?;
        self.bounds_of_delivery(source, &settings);
        Some(Operation { name: name.to_owned(), settings, key, tls: client })
    }

    /// A replacement is for a charset that has its characters, and separates nothing.
    fn replacement(&mut self, source: Source<'_>, set: (Option<Charset>, Option<&str>)) -> Option<()> {
        let (charset, Some(text)) = set else { return Some(()) };
        let message = match charset {
            None => "`replacement` is for characters that a `charset` does not have; set `charset` as well",
            Some(charset) if charset.encode(text).is_err() => "the character set does not have the replacement either",
            Some(_) if text.chars().any(|c| c.is_control() || "|^~\\&#".contains(c)) => {
                "a replacement holds no delimiter and no control character; `?` is usual"
            }
            Some(_) => return Some(()),
        };
        self.fault(source, value_of(source.text, "replacement"), message, None);
        None
    }

    fn key(&mut self, source: Source<'_>, order: &settings::OrderSettings) -> Option<Option<hl7::Path>> {
        if order.lanes == 0 || order.lanes > LANES_MAX {
            let message = format!("{} lanes: there can be 1 to {LANES_MAX}", order.lanes);
            self.fault(source, value_of(source.text, "lanes"), message, None);
            return None;
        }
        if order.lanes > 1 && order.key.is_none() {
            let hint =
                "add `key = \"PID-3.1\"` under [order]: messages with the same value keep their order".to_owned();
            self.fault(source, value_of(source.text, "lanes"), "several lanes need a key", Some(hint));
            return None;
        }
        let Some(text) = &order.key else { return Some(None) };
        match text.parse::<hl7::Path>() {
            Ok(path) => Some(Some(path)),
            Err(error) => {
                self.fault(source, value_of(source.text, "key"), error.to_string(), None);
                None
            }
        }
    }

    fn tls<T>(&mut self, source: Source<'_>, made: Result<T, InteropError>) -> Option<T> {
        match made {
            Ok(tls) => Some(tls),
            Err(error) => {
                self.fault(source, value_of(source.text, "[tls]"), error.to_string(), None);
                None
            }
        }
    }

    /// The `kind` of a service or operation.
    fn kind(&mut self, source: Source<'_>) -> Option<String> {
        let table: toml::Table = self.toml(source)?;
        let hint = Some("there are: mllp, file".to_owned());
        match table.get("kind").and_then(toml::Value::as_str) {
            Some(kind @ ("mllp" | "file")) => Some(kind.to_owned()),
            Some(other) => {
                self.fault(source, value_of(source.text, "kind"), format!("`{other}` is not a kind"), hint);
                None
            }
            None => {
                self.fault(source, 0..0, "`kind` is missing", hint);
                None
            }
        }
    }

    fn rules(&mut self, transforms: &Transforms, tables: &Arc<Tables>) -> BTreeMap<String, Arc<Rules>> {
        let named = self.named.clone();
        let names: Vec<&str> = named.iter().map(String::as_str).collect();
        let mut rules = BTreeMap::new();
        for file in self.text.part("rules") {
            match Rules::compile(file.name, file.source(), &names, transforms, tables) {
                Ok(compiled) => {
                    rules.insert(file.name.to_owned(), Arc::new(compiled));
                }
                Err(faults) => self.faults.extend(faults),
            }
        }
        rules
    }

    fn services(&mut self, rules: &BTreeMap<String, Arc<Rules>>) -> BTreeMap<String, Arc<Service>> {
        let mut services: BTreeMap<String, Arc<Service>> = BTreeMap::new();
        for (file, text) in self.filled("services") {
            let source = Source { file: file.label, text: &text };
            let Some(service) = self.service(file.name, source, rules) else { continue };
            if let Some(other) = services
                .values()
                .find(|other| address(other) == address(&service) && address(other).is_some_and(|a| a.port() != 0))
            {
                let message = format!("service {} listens on the same address", other.name);
                self.fault(source, value_of(&text, "listen"), message, None);
            }
            let shares = |other: &&Arc<Service>| watched(&service).is_some() && watched(other) == watched(&service);
            if let Some(other) = services.values().find(shares) {
                let message = format!("service {} watches the same folder", other.name);
                self.fault(source, value_of(&text, "folder"), message, None);
            }
            services.insert(file.name.to_owned(), Arc::new(service));
        }
        if services.is_empty() && self.faults.is_empty() {
            let hint = "write services/NAME.toml with `kind = \"mllp\"` and `listen = \"127.0.0.1:2575\"`".to_owned();
            self.fault(Source { file: "services/", text: "" }, 0..0, "the production has no service", Some(hint));
        }
        services
    }

    fn service(&mut self, name: &str, source: Source<'_>, rules: &BTreeMap<String, Arc<Rules>>) -> Option<Service> {
        let mut settings = match self.kind(source)?.as_str() {
            "mllp" => settings::ServiceSettings::Mllp(self.toml(source)?),
            _ => settings::ServiceSettings::File(self.toml(source)?),
        };
        if settings.intake().decision_time.0 < DECISION_TIME_MIN {
            let message = "`decision_time` is at least 10ms".to_owned();
            self.fault(source, value_of(source.text, "decision_time"), message, None);
        }
        if settings.intake().message_bytes.0 > MESSAGE_BYTES_MAX {
            let message = format!("a message can have at most {} MiB", MESSAGE_BYTES_MAX >> 20);
            self.fault(source, value_of(source.text, "message_bytes"), message, None);
        }
        self.bounds(source, &settings);
        let chosen = match settings.rules() {
            None => None,
            Some(named) => match rules.get(named) {
                Some(rules) => Some(Arc::clone(rules)),
                // Rules that exist but have faults of their own are reported once, there.
                None if self.text.get(&format!("rules/{named}.rules")).is_some() => return None,
                None => {
                    let hint = suggest(named, rules.keys().map(String::as_str), "rules files");
                    let message = format!("there is no rules/{named}.rules");
                    self.fault(source, value_of(source.text, "rules"), message, Some(hint));
                    return None;
                }
            },
        };
        let (mut server, mut client_names) = (None, Vec::new());
        match &mut settings {
            settings::ServiceSettings::Mllp(mllp) => {
                if !mllp.listen.ip().is_loopback() && mllp.tls.is_none() && !mllp.plaintext {
                    let hint = "give it [tls] with a certificate and a key; or listen on 127.0.0.1; or, if every machine on the network path may read \
                                every message, write `plaintext = true`";
                    let message = format!("{} is beyond this machine, and the service has no TLS", mllp.listen.ip());
                    self.fault(source, value_of(source.text, "listen"), message, Some(hint.to_owned()));
                }
                if let Some(settings) = &mllp.tls {
                    server = Some(self.tls(source, tls::server(&self.folder, settings))?);
                    client_names = self.tls(source, tls::client_names(settings))?;
                }
            }
            settings::ServiceSettings::File(file) => {
                file.folder = self.folder.join(&file.folder);
                file.done = Some(file.done.as_ref().map_or_else(|| file.folder.join("done"), |d| self.folder.join(d)));
                file.error =
                    Some(file.error.as_ref().map_or_else(|| file.folder.join("error"), |e| self.folder.join(e)));
                for (key, folder) in [("done", &file.done), ("error", &file.error)] {
                    if folder.as_ref() == Some(&file.folder) {
                        let message = format!("`{key}` is the watched folder itself: its files would be taken again");
                        self.fault(source, value_of(source.text, key), message, None);
                    }
                }
            }
        }
        Some(Service {
            name: name.to_owned(),
            settings,
            rules: chosen,
            tls: server,
            client_names,
            generation: OnceLock::new(),
            figures: Arc::default(),
        })
    }

    /// Bounds under which no message could ever come in.
    fn bounds(&mut self, source: Source<'_>, settings: &settings::ServiceSettings) {
        let mut bounds = vec![("message_bytes", settings.intake().message_bytes.0 == 0, "1B")];
        match settings {
            settings::ServiceSettings::Mllp(mllp) => {
                let handshake = mllp.tls.as_ref().map(|tls| tls.handshake_timeout);
                bounds.extend([
                    ("connections", mllp.connections == 0, "1"),
                    ("connections_per_address", mllp.connections_per_address == Some(0), "1"),
                    ("idle_timeout", mllp.idle_timeout.is_some_and(|span| span.0.is_zero()), "1ms"),
                    ("frame_timeout", mllp.frame_timeout.0.is_zero(), "1ms"),
                    ("handshake_timeout", handshake.is_some_and(|span| span.0.is_zero()), "1ms"),
                ]);
            }
            settings::ServiceSettings::File(file) => bounds.push(("every", file.every.0.is_zero(), "1ms")),
        }
        self.at_least(source, "no message could be sent", &bounds);
    }

    /// Bounds under which nothing could ever be delivered, or the receiver would be tried without a pause.
    fn bounds_of_delivery(&mut self, source: Source<'_>, settings: &settings::OperationSettings) {
        let mut bounds = vec![
            ("first", settings.retry().first.0.is_zero(), "1ms"),
            ("max", settings.retry().max.0.is_zero(), "1ms"),
            ("messages", settings.queue().messages == 0, "1"),
        ];
        if let settings::OperationSettings::Mllp(mllp) = settings {
            bounds.extend([
                ("connect_timeout", mllp.connect_timeout.0.is_zero(), "1ms"),
                ("ack_timeout", mllp.ack_timeout.0.is_zero(), "1ms"),
                ("reply_bytes", mllp.reply_bytes.0 == 0, "1B"),
            ]);
        }
        self.at_least(source, "nothing could be delivered", &bounds);
    }

    /// A fault for each key that is zero and cannot be.
    fn at_least(&mut self, source: Source<'_>, why: &str, bounds: &[(&str, bool, &str)]) {
        for (key, is_zero, least) in bounds {
            if *is_zero {
                self.fault(source, value_of(source.text, key), format!("{why}: {key} is at least {least}"), None);
            }
        }
    }

    /// Operations that write into a folder that a service watches: allowed, but look like a mistake.
    fn loops(&mut self, services: &BTreeMap<String, Arc<Service>>, operations: &[Arc<Operation>]) {
        for (service, operation) in services.values().flat_map(|service| operations.iter().map(move |o| (service, o))) {
            if watched(service).is_some() && watched(service) == folder_of(operation) {
                let (writes, takes) = (&operation.name, &service.name);
                let text =
                    format!("operation {writes} writes into the folder of service {takes}, which takes its files");
                self.warnings.push(text);
            }
        }
    }

    /// Rules that no service uses: allowed, but look like a mistake.
    fn unused(&mut self, services: &BTreeMap<String, Arc<Service>>, rules: &BTreeMap<String, Arc<Rules>>) {
        for name in rules.keys() {
            if !services.values().any(|service| service.settings.rules() == Some(name)) {
                self.warnings.push(format!("rules/{name}.rules is used by no service"));
            }
        }
        for service in services.values().filter(|service| service.rules.is_none()) {
            self.warnings
                .push(format!("services/{}.toml has no rules: its messages are stored and go nowhere", service.name));
        }
    }
}

fn folder_of(operation: &Operation) -> Option<&Path> {
    match &operation.settings {
        settings::OperationSettings::File(file) => Some(&file.folder),
        settings::OperationSettings::Mllp(_) => None,
    }
}

fn watched(service: &Service) -> Option<&Path> {
    match &service.settings {
        settings::ServiceSettings::File(file) => Some(&file.folder),
        settings::ServiceSettings::Mllp(_) => None,
    }
}

fn address(service: &Service) -> Option<std::net::SocketAddr> {
    match &service.settings {
        settings::ServiceSettings::Mllp(mllp) => Some(mllp.listen),
        settings::ServiceSettings::File(_) => None,
    }
}

/// The position of the line that begins with `key`, for the caret; the file's start if there is no such line.
fn value_of(text: &str, key: &str) -> Range<usize> {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim_start();
        if trimmed.strip_prefix(key).is_some_and(|rest| key.starts_with('[') || rest.trim_start().starts_with('=')) {
            let start = at + (line.len() - trimmed.len());
            return start..at + line.trim_end().len();
        }
        at += line.len();
    }
    0..0
}
