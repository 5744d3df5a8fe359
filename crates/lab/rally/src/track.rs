//! The track: documents, mapping and operations, for esrally as files and for our own generator as values. Both do the same.
//!
//! ```text
//! DIR/track.json        the schedule; parameters docs, bytes, bulk, bulk_clients, index, warmup, iterations;
//!                       together: all searches at the same time, which takes a fraction of the time
//! DIR/index.json        settings and mapping
//! DIR/operations.json   15 queries and a scroll, with the names of the published track for logs of a web server
//! DIR/documents.json    lines of `corpus`
//! ```

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::corpus::Corpus;

/// Settings and mapping of the index.
pub const INDEX: &str = include_str!("../track/index.json");
/// The schedule, a template of esrally's.
const TRACK: &str = include_str!("../track/track.json");
/// The operations, separated by commas, as esrally's templates take them.
const OPERATIONS: &str = include_str!("../track/operations.json");
/// Seed of the documents where none is named.
pub const SEED: u64 = 1;
/// Name of the scroll among the operations.
pub const SCROLL: &str = "scroll";

/// A search of the track.
#[derive(Clone, Debug, PartialEq)]
pub struct TrackSearch {
    /// Its name.
    pub name: String,
    /// Its body, without `pages`.
    pub body: Value,
    /// A scroll takes so many pages.
    pub pages: usize,
    /// Hits of a page.
    pub page: usize,
}

/// The searches in the order of the track: 15 queries, then the scroll.
///
/// # Panics
/// Never: the files are part of the program, and a test reads them.
pub fn searches() -> Vec<TrackSearch> {
    let operations: Vec<Value> = serde_json::from_str(&format!("[{OPERATIONS}]")).expect("our own file");
    let number = |value: &Value, default| value.as_u64().map_or(default, |number| number as usize);
    operations
        .into_iter()
        .map(|operation| TrackSearch {
            name: operation["name"].as_str().expect("each has a name").to_owned(),
            pages: number(&operation["pages"], 1),
            page: number(&operation["results-per-page"], 10),
            body: operation["body"].clone(),
        })
        .collect()
}

/// Documents of a track in a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrittenTrack {
    /// How many.
    pub documents: usize,
    /// Their bytes.
    pub bytes: u64,
}

impl WrittenTrack {
    /// The parameters of esrally's `--track-params` that depend on the documents.
    pub fn parameters(&self) -> String {
        format!("docs:{},bytes:{}", self.documents, self.bytes)
    }
}

/// Writes the track into `folder`, which is made.
///
/// # Errors
/// The system's; no documents.
pub fn write(folder: &Path, documents: usize, seed: u64) -> anyhow::Result<WrittenTrack> {
    ensure!(documents > 0, "a track has documents");
    let failed = || format!("writing the track into {}", folder.display());
    fs::create_dir_all(folder).with_context(failed)?;
    for (name, text) in [("track.json", TRACK), ("index.json", INDEX), ("operations.json", OPERATIONS)] {
        fs::write(folder.join(name), text).with_context(failed)?;
    }
    let mut out = BufWriter::new(File::create(folder.join("documents.json")).with_context(failed)?);
    let bytes = Corpus::new(seed).write(documents, &mut out).with_context(failed)?;
    out.into_inner().with_context(failed)?;
    Ok(WrittenTrack { documents, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_track_has_15_queries_and_a_scroll_and_its_schedule_names_each_of_them() {
        let searches = searches();
        assert_eq!(searches.len(), 16);
        assert_eq!((searches[15].name.as_str(), searches[15].pages, searches[15].page), (SCROLL, 10, 1000));
        for search in &searches {
            let quoted = format!("\"{}\"", search.name);
            assert!(TRACK.contains(&quoted), "{quoted}");
            assert!(search.body.is_object() && (search.name == SCROLL || search.pages == 1));
        }
        let index: Value = serde_json::from_str(INDEX).expect("JSON");
        assert_eq!(index["mappings"]["properties"]["request"]["fields"]["raw"]["type"], "keyword");
    }

    #[test]
    fn a_written_track_has_as_many_documents_and_bytes_as_its_parameters_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let track = write(&folder.path().join("new"), 50, SEED).expect("writes");
        let text = fs::read_to_string(folder.path().join("new/documents.json")).expect("it is there");
        assert_eq!((text.lines().count(), text.len() as u64), (50, track.bytes));
        assert_eq!(track.parameters(), format!("docs:50,bytes:{}", text.len()));
        assert!(write(folder.path(), 0, SEED).is_err());
    }
}
