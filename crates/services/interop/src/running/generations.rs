//! The requests about generations of the production: lists, differences, texts, the rules that decided, and going back.
//!
//! ```text
//!   `production {"verb": "generations"}`              rows, the newest first, and which one is in force
//!   `production {"verb": "diff", "from": "40", "to": "disk"}`
//!   `production {"verb": "texts", "generation": 40}`  all files, to be written out
//!   `production {"verb": "rule", ..}`                 the rules that decided about a message, as they were
//!   `production {"verb": "back", "generation": 40}`   loads it again, as a new generation
//! ```
//!
//! All but `back` are answered from the store alone, so a command answers them of a stopped node too. Entries of lookup tables may be
//! about patients: who has no right `unmasked` on all services is shown how many changed.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Options, Origin, RunningProduction, put_in_place};
use crate::error::InteropError;
use crate::generations::{
    FileDifference, Generation, GenerationContent, Generations, LoadCause, LoadKind, VALUES_IN_FORCE, differences,
    rule_text,
};
use crate::production::{Production, ProductionText};

/// The word that a request begins with.
pub const PRODUCTION_REQUEST: &str = "production";

/// The side of a difference that is the folder as it is now.
pub const ON_DISK: &str = "disk";

/// Generations of one list where the request names no number.
const LISTED: usize = 50;

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub enum ProductionRequest {
    /// A list of generations.
    Generations {
        /// The newest so many; 0: 50.
        #[serde(default)]
        last: usize,
    },
    /// What differs between two.
    Diff {
        /// A number, or `disk` for the folder as it is now.
        from: String,
        /// The same.
        to: String,
    },
    /// All texts of one.
    Texts {
        /// Its number.
        generation: u32,
    },
    /// The rules that decided about a message, as they were.
    Rule {
        /// The generation of the message.
        generation: u32,
        /// The service that it came in by.
        service: String,
        /// Why it went where it went, as stored with it.
        reason: String,
    },
    /// Load one again.
    Back {
        /// Its number.
        generation: u32,
    },
}

/// A list of generations.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GenerationList {
    /// The newest first.
    pub generations: Vec<Generation>,
    /// The one in force; none of a stopped node, and of one without a folder.
    pub in_force: Option<u32>,
}

/// What differs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GenerationDifference {
    /// What it was compared with: `generation 40`, or the folder.
    pub from: String,
    /// What was compared.
    pub to: String,
    /// The files that differ.
    pub files: Vec<FileDifference>,
    /// Where a side is the folder: the SHA-256 of all of it, by which `reload HASH` loads it and nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
}

/// What going back did.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WentBack {
    /// The generation that it is now.
    pub generation: u32,
    /// What changed in the running production.
    pub changes: Vec<String>,
    /// The folder of the production, which was not changed.
    pub folder: String,
    /// What differs between what is in force and that folder; the next reload or start loads the folder.
    pub on_disk: Vec<FileDifference>,
}

impl ProductionRequest {
    /// Reads what follows the word.
    ///
    /// # Errors
    /// `Refused`: it is none.
    pub fn of(text: &str) -> Result<ProductionRequest, InteropError> {
        let read = serde_json::from_str(text);
        read.map_err(|error| InteropError::Refused(format!("`{text}` is no request about the production: {error}")))
    }

    /// The line that is sent.
    pub fn line(&self) -> String {
        format!("{PRODUCTION_REQUEST} {}", serde_json::to_string(self).expect("plain data becomes JSON"))
    }
}

fn not_kept(number: u32) -> InteropError {
    InteropError::Refused(format!(
        "there is no generation {number}, or it is not kept any more; `terrace production generations` lists those that are"
    ))
}

/// The texts of a generation, or of a folder.
struct Side {
    label: String,
    texts: BTreeMap<String, Option<Arc<str>>>,
    /// Of a folder that can be loaded: the hash of its content.
    folder: Option<String>,
}

impl Side {
    fn of(generations: &Generations, options: Option<&Options>, text: &str) -> Result<Side, InteropError> {
        if text == ON_DISK {
            let Some(options) = options else {
                return Err(InteropError::Refused(
                    "the folder is known to a running node only: name two generations, or start the node".to_owned(),
                ));
            };
            let Origin::Folder(folder) = &options.origin else {
                return Err(InteropError::Refused("this node has no production folder".to_owned()));
            };
            return Side::of_folder(folder, options);
        }
        let number: u32 = text.parse().map_err(|_| {
            InteropError::Refused(format!("`{text}` is neither the number of a generation nor `{ON_DISK}`"))
        })?;
        let generation = generations.get(number)?.ok_or_else(|| not_kept(number))?;
        Ok(Side { label: format!("generation {number}"), texts: generations.texts(&generation)?, folder: None })
    }

    /// What a reload would load now, also where it cannot be loaded: a fault is what somebody looks for.
    fn of_folder(folder: &Path, options: &Options) -> Result<Side, InteropError> {
        let (files, hash) = match Production::load_with(folder, &options.values) {
            Ok(production) => {
                let content = GenerationContent::of(&production);
                let hash = content.hash();
                (content.files, Some(hash))
            }
            Err(InteropError::Production(_)) => (Production::text_in(folder)?.files().clone(), None),
            Err(error) => return Err(error),
        };
        let texts = files.into_iter().map(|(path, text)| (path, Some(text))).collect();
        Ok(Side { label: format!("the folder {}", folder.display()), texts, folder: hash })
    }
}

/// Answers a request that reads. `options` are those of a running node.
///
/// # Errors
/// What is wanted is not kept; the store's.
pub fn answer_reading(
    generations: &Generations,
    (options, in_force): (Option<&Options>, Option<u32>),
    shows_tables: bool,
    request: &ProductionRequest,
) -> Result<Value, InteropError> {
    Ok(match request {
        ProductionRequest::Generations { last } => {
            let most = if *last == 0 { LISTED } else { *last };
            json!(GenerationList { generations: generations.list(most)?, in_force })
        }
        ProductionRequest::Diff { from, to } => {
            let (from, to) = (Side::of(generations, options, from)?, Side::of(generations, options, to)?);
            let files = differences(&from.texts, &to.texts, shows_tables);
            json!(GenerationDifference { from: from.label, to: to.label, files, folder: to.folder.or(from.folder) })
        }
        ProductionRequest::Texts { generation } => {
            let texts = Side::of(generations, options, &generation.to_string())?.texts;
            let is_shown = |path: &str| shows_tables || !path.starts_with("tables/");
            let shown = texts.into_iter().filter(|(path, _)| path != VALUES_IN_FORCE);
            let shown: BTreeMap<String, Option<String>> = shown
                .map(|(path, text)| (path.clone(), text.filter(|_| is_shown(&path)).map(|text| text.to_string())))
                .collect();
            json!(shown)
        }
        ProductionRequest::Rule { generation, service, reason } => {
            let texts = Side::of(generations, options, &generation.to_string())?.texts;
            let text_of = |path: String| texts.get(&path).cloned().flatten();
            let settings = text_of(format!("services/{service}.toml"));
            let settings: Option<toml::Table> = settings.and_then(|text| toml::from_str(&text).ok());
            let rules = settings.and_then(|table| table.get("rules")?.as_str().map(str::to_owned));
            let text = rules.as_ref().and_then(|rules| text_of(format!("rules/{rules}.rules")));
            json!(rules.zip(text).and_then(|(rules, text)| rule_text(&rules, &text, reason)))
        }
        ProductionRequest::Back { .. } => {
            return Err(InteropError::Refused("a generation is loaded by a running node".to_owned()));
        }
    })
}

/// The production that a generation is, compiled anew with the values of now.
fn production_of(generations: &Generations, options: &Options, number: u32) -> Result<Production, InteropError> {
    let Origin::Folder(folder) = &options.origin else {
        return Err(InteropError::Refused("this node has no production folder, and so no generations".to_owned()));
    };
    let generation = generations.get(number)?.ok_or_else(|| not_kept(number))?;
    let mut files = BTreeMap::new();
    for (path, text) in generations.texts(&generation)? {
        match text {
            _ if path == VALUES_IN_FORCE => {}
            Some(text) => drop(files.insert(path, text)),
            None => {
                return Err(InteropError::Refused(format!(
                    "generation {number} cannot be loaded: {path} is not kept any more, or was too large to be kept"
                )));
            }
        }
    }
    let mut production = Production::of_text(folder, ProductionText::of(files)?, &options.values)?;
    put_in_place(&mut production, options)?;
    Ok(production)
}

/// The generations of a running production.
pub(super) fn generations_of(running: &RunningProduction) -> Generations {
    Generations::of(running.store().clone())
}

/// Answers a request that reads; blocks meanwhile.
pub(super) fn answer_production(
    running: &RunningProduction,
    shows_tables: bool,
    request: &ProductionRequest,
) -> Result<Value, InteropError> {
    let in_force = Some(running.engine.plan().production.generation()).filter(|number| *number > 0);
    answer_reading(&generations_of(running), (Some(&running.options), in_force), shows_tables, request)
}

/// Loads an earlier generation again; the folder stays as it is.
///
/// # Errors
/// It is not kept, or is wrong with the certificates and values of now; as for a reload.
pub(super) async fn go_back(running: &RunningProduction, number: u32, by: String) -> Result<WentBack, InteropError> {
    let _one = running.reloading.lock().await;
    let (generations, options) = (generations_of(running), running.options.clone());
    let made = tokio::task::spawn_blocking(move || production_of(&generations, &options, number)).await;
    let production = made.unwrap_or(Err(InteropError::Stopping))?;
    let texts = GenerationContent::of(&production).files;
    let cause = LoadCause { by, kind: LoadKind::Back(number) };
    let changes = running.put_in_force(production, cause).await?;
    let generation = running.engine.plan().production.generation();
    let texts: BTreeMap<String, Option<Arc<str>>> = texts.into_iter().map(|(path, text)| (path, Some(text))).collect();
    let Origin::Folder(folder) = &running.options.origin else { return Err(InteropError::Stopping) };
    let (place, options) = (folder.clone(), running.options.clone());
    let on_disk = tokio::task::spawn_blocking(move || Side::of_folder(&place, &options)).await;
    // What is in force is in force, whether or not the folder can be read.
    let on_disk = match on_disk.unwrap_or(Err(InteropError::Stopping)) {
        Ok(side) => differences(&texts, &side.texts, false),
        Err(error) => {
            tracing::warn!(%error, "the production folder cannot be compared with what is in force");
            Vec::new()
        }
    };
    Ok(WentBack { generation, changes, folder: folder.display().to_string(), on_disk })
}
