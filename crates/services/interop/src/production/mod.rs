//! A production: the folder of text files that defines what the engine does.
//!
//! ```text
//! production.toml            optional: name and description
//! values.toml                optional: values by environment     (values)
//! services/NAME.toml         where messages come from            (settings::ServiceSettings)
//! rules/NAME.rules           which operations they go to         (lang::Rules)
//! transforms/NAME.hl7t       how they are changed on the way     (lang::Transforms)
//! tables/NAME.csv            lookup tables, key,value a line     (lang::Tables)
//! operations/NAME.toml       where they go                       (settings::OperationSettings)
//! ```
//!
//! A file's stem is its name, so that a diff in git shows what changed and a rename is a rename. `load` reads all of
//! it, checks all of it, and reports every fault it found with file, line and column; a production that loads can be
//! started, except for faults that only the running machine shows (a port in use, a receiver that is down).
//!
//! Invariant: a loaded production is immutable. A reload makes a new one and the node swaps them.

mod load;
pub mod settings;
pub mod text;
pub(crate) mod tls;
pub mod units;
pub mod values;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use tokio_rustls::rustls;

pub use text::ProductionText;
pub use values::Values;

use crate::error::InteropError;
use crate::figures::ServiceFigures;
use crate::lang::{Rules, Transforms};

/// A service, ready to start.
#[derive(Debug)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// Its settings.
    pub settings: settings::ServiceSettings,
    /// Its rules.
    pub rules: Option<Arc<Rules>>,
    /// TLS, for an MLLP service that has it set.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Names of which a client's certificate must carry one; any where there are none.
    pub client_names: Vec<rustls::pki_types::ServerName<'static>>,
    /// The generation of the production that it is of, once that is known.
    pub(crate) generation: OnceLock<u32>,
    /// What it has done since the node started.
    pub figures: Arc<ServiceFigures>,
}

impl Service {
    /// The generation of the production that it is of; 0 where that is none.
    pub fn generation(&self) -> u32 {
        self.generation.get().copied().unwrap_or(0)
    }
}

/// An operation, ready to start.
#[derive(Debug)]
pub struct Operation {
    /// Its name.
    pub name: String,
    /// Its settings.
    pub settings: settings::OperationSettings,
    /// The path whose value determines order, if order is by key.
    pub key: Option<hl7::Path>,
    /// TLS, for an MLLP operation that has it set.
    pub tls: Option<Tls>,
}

/// TLS of an operation.
#[derive(Debug, Clone)]
pub struct Tls {
    /// Authorities and our own certificate.
    pub config: Arc<rustls::ClientConfig>,
    /// Name the receiver's certificate must carry.
    pub server_name: rustls::pki_types::ServerName<'static>,
}

/// A production, checked and compiled.
#[derive(Debug)]
pub struct Production {
    /// From `production.toml`, or the folder's name.
    pub name: String,
    /// The folder.
    pub folder: PathBuf,
    /// Services by name.
    pub services: BTreeMap<String, Arc<Service>>,
    /// Operations in order of name; rules refer to them by position.
    pub operations: Vec<Arc<Operation>>,
    /// All transforms.
    pub transforms: Arc<Transforms>,
    /// Things that are allowed but look like a mistake, for `terrace production check`.
    pub warnings: Vec<String>,
    /// The files that it was compiled from.
    pub text: Arc<ProductionText>,
    /// The values that took the place of names in its settings.
    pub values: BTreeMap<String, String>,
    /// Its generation, once that is known.
    pub(crate) generation: OnceLock<u32>,
}

/// Where relative folders of file services and file operations lie, other than in the production folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    /// All but those named. None: in the production folder.
    pub all: Option<PathBuf>,
    /// By name of the service or operation.
    pub named: BTreeMap<String, PathBuf>,
}

impl Files {
    fn place(&self, name: &str, production: &Path, folder: &mut PathBuf) {
        let base = self.named.get(name).or(self.all.as_ref());
        // An absolute folder is not below the production and stays unchanged.
        if let (Some(base), Ok(relative)) = (base, folder.strip_prefix(production)) {
            *folder = base.join(relative);
        }
    }
}

impl Production {
    /// Reads and checks a folder.
    ///
    /// # Errors
    /// `Production` with every fault found; `File` where the folder or a file cannot be read.
    pub fn load(folder: &Path) -> Result<Self, InteropError> {
        load::load(folder, &Values::default())
    }

    /// The same with the values of a node.
    ///
    /// # Errors
    /// As for `load`.
    pub fn load_with(folder: &Path, values: &Values) -> Result<Self, InteropError> {
        load::load(folder, values)
    }

    /// Reads a folder without compiling it.
    ///
    /// # Errors
    /// `File` where the folder or a file cannot be read.
    pub fn text_in(folder: &Path) -> Result<ProductionText, InteropError> {
        Ok(text::read(folder)?.text)
    }

    /// Compiles a text that was read before. Certificates and folders that it names are looked for from `folder` on.
    ///
    /// # Errors
    /// As for `load`.
    pub fn of_text(folder: &Path, text: ProductionText, values: &Values) -> Result<Self, InteropError> {
        load::compile(folder, text, values, (Vec::new(), Vec::new()))
    }

    /// The same as [`load_with`](Production::load_with) with `text` in the place of what a file of the folder holds, as
    /// `rules/main.rules`: to try a change before it is written.
    ///
    /// # Errors
    /// As for `load`; `Refused`: the file is none of a production's.
    pub fn load_replaced(folder: &Path, (file, text): (&str, &str), values: &Values) -> Result<Self, InteropError> {
        let mut files = text::read(folder)?.text.files().clone();
        files.insert(file.to_owned(), text.into());
        load::compile(folder, ProductionText::of(files)?, values, (Vec::new(), Vec::new()))
    }

    /// Tells it and its services which generation it is: once, before it is in force.
    pub(crate) fn set_generation(&self, generation: u32) {
        // What is set stays: a number is told to a production that was just loaded.
        _ = self.generation.set(generation);
        for service in self.services.values() {
            _ = service.generation.set(generation);
        }
    }

    /// Its generation; 0 where it is none, as without a folder.
    pub fn generation(&self) -> u32 {
        self.generation.get().copied().unwrap_or(0)
    }

    /// A production with one MLLP service on `address` that stores every message: `terrace serve` runs it where there
    /// is no folder.
    pub fn store_only(address: std::net::SocketAddr) -> Self {
        load::store_only(address)
    }

    /// Moves the relative folders of file services and file operations from the production folder to where `files` places them.
    /// To be called once, on a production that was just loaded.
    ///
    /// # Errors
    /// `NoSuch` where `files` names a service or operation that does not exist or has no folder: a name with a slip in
    /// it would leave its files where they were.
    pub fn place_files(&mut self, files: &Files) -> Result<(), InteropError> {
        let mut moved = Vec::new();
        let production = self.folder.clone();
        for service in self.services.values_mut() {
            let Service { name, settings, .. } = Arc::get_mut(service).expect("it is not shared yet");
            if let settings::ServiceSettings::File(file) = settings {
                let folders = [Some(&mut file.folder), file.done.as_mut(), file.error.as_mut()];
                folders.into_iter().flatten().for_each(|folder| files.place(name, &production, folder));
                moved.push(name.clone());
            }
        }
        for operation in &mut self.operations {
            let Operation { name, settings, .. } = Arc::get_mut(operation).expect("it is not shared yet");
            if let settings::OperationSettings::File(file) = settings {
                files.place(name, &production, &mut file.folder);
                moved.push(name.clone());
            }
        }
        match files.named.keys().find(|name| !moved.contains(name)) {
            None => Ok(()),
            Some(name) => Err(InteropError::NoSuch {
                what: "file service or file operation",
                name: name.clone(),
                known: moved.join(", "),
            }),
        }
    }

    /// Services go on with the figures that those of the same names have in `before`. To be called once, on a production that was just
    /// loaded.
    pub fn keep_figures(&mut self, before: &Production) {
        for (name, service) in &mut self.services {
            if let Some(before) = before.services.get(name) {
                Arc::get_mut(service).expect("it is not shared yet").figures = Arc::clone(&before.figures);
            }
        }
    }

    /// The operation called `name`.
    ///
    /// # Errors
    /// `NoSuch`, listing what there is.
    pub fn operation(&self, name: &str) -> Result<&Arc<Operation>, InteropError> {
        self.operations.iter().find(|operation| operation.name == name).ok_or_else(|| InteropError::NoSuch {
            what: "operation",
            name: name.to_owned(),
            known: self.operations.iter().map(|o| o.name.as_str()).collect::<Vec<_>>().join(", "),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_beyond_this_machine_has_tls_or_says_that_it_does_not() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(dir.path().join("services")).expect("a folder");
        for (listen, extra, right) in [
            ("127.0.0.1:2575", "", true),
            ("[::1]:2575", "", true),
            ("0.0.0.0:2575", "", false),
            ("[::]:2575", "", false),
            ("192.0.2.7:2575", "", false),
            ("192.0.2.7:2575", "plaintext = false\n", false),
            ("0.0.0.0:2575", "plaintext = true\n", true),
        ] {
            let text = format!("kind = \"mllp\"\nlisten = \"{listen}\"\n{extra}");
            std::fs::write(dir.path().join("services/in.toml"), text).expect("a file");
            match Production::load(dir.path()) {
                Ok(_) => assert!(right, "{listen} {extra}"),
                Err(error) => {
                    let told = error.to_string();
                    assert!(!right && told.contains("plaintext = true") && told.contains("[tls]"), "{listen}: {told}");
                }
            }
        }
    }

    #[test]
    fn relative_folders_of_file_services_and_operations_move_and_absolute_ones_stay() {
        let dir = tempfile::tempdir().expect("a folder");
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().expect("below the folder")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        };
        write("services/a.toml", "kind = \"file\"\nfolder = \"in/a\"\n");
        write("services/b.toml", "kind = \"file\"\nfolder = \"in/b\"\ndone = \"/kept\"\n");
        write("operations/c.toml", "kind = \"file\"\nfolder = \"out\"\n");
        let load = || Production::load(dir.path()).unwrap_or_else(|error| panic!("{error}"));
        let folders = |production: &Production| {
            let service = |name: &str| match &production.services[name].settings {
                settings::ServiceSettings::File(file) => (file.folder.clone(), file.done.clone().expect("filled in")),
                settings::ServiceSettings::Mllp(_) => panic!("a file service"),
            };
            let settings::OperationSettings::File(c) = &production.operations[0].settings else {
                panic!("a file operation")
            };
            (service("a"), service("b"), c.folder.clone())
        };
        let path = PathBuf::from;
        let mut production = load();
        let named = BTreeMap::from([("b".to_owned(), path("/nvme"))]);
        production.place_files(&Files { all: Some(path("/pmem")), named }).expect("b is there");
        let wanted =
            ((path("/pmem/in/a"), path("/pmem/in/a/done")), (path("/nvme/in/b"), path("/kept")), path("/pmem/out"));
        assert_eq!(folders(&production), wanted);
        let named = BTreeMap::from([("x".to_owned(), path("/nvme"))]);
        let refused = load().place_files(&Files { all: None, named }).expect_err("there is no x");
        assert!(refused.to_string().contains("`x`"), "{refused}");
        let mut untouched = load();
        untouched.place_files(&Files::default()).expect("nothing to do");
        assert_eq!(untouched.operations[0].name, "c");
        assert_eq!(folders(&untouched).2, dir.path().join("out"));
    }
}
