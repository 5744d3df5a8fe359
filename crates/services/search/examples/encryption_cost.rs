//! What encryption costs search: writing and reading index files, indexing documents, and searches that read from the shelf, in clear and
//! encrypted, in turns.
//!
//! `cargo run --release -p search --example encryption_cost`
//!
//! Everything lies in memory, where nothing hides the processor's time: on a drive the difference is smaller. The last lines of each part
//! give the median of the ratios.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use device::MemoryShelf;
use encryption::Sealer;
use search::directory::{FileMemory, FileShelves, ShelfDirectory};
use search::index::{DocumentOp, ExpectedVersion, IndexDefinition, IndexPlace, OpKind, SearchIndex};
use serde_json::json;
use store::{Options, Store};
use tantivy::Term;
use tantivy::collector::Count;
use tantivy::directory::{Directory, TerminatingWrite};
use tantivy::query::TermQuery;
use tantivy::schema::IndexRecordOption;

const TURNS: usize = 9;
const FILE_BYTES: usize = 64 << 20;
/// Of a read of the library: a block of postings or of a column.
const READ_BYTES: usize = 4 << 10;
const READS: usize = 4_000;
const DOCUMENTS: usize = 20_000;
const SEARCHES: usize = 300;

fn store(sealer: Option<Arc<Sealer>>) -> Store {
    let mut options = Options::default();
    options.journal.sealer = sealer;
    Store::in_memory(options).expect("it opens")
}

/// A file in a directory whose memory holds so many bytes.
fn directory(sealer: Option<Arc<Sealer>>, memory: u64) -> ShelfDirectory {
    let store = store(sealer);
    let mut transaction = store.begin();
    let table = transaction.create_tree("files").expect("it is new");
    transaction.commit().expect("it works");
    let shelves = FileShelves::one(Arc::new(MemoryShelf::new()));
    let memory = Arc::new(FileMemory::new(memory));
    ShelfDirectory::open((&store, table), &shelves, "index", memory).expect("it opens").0
}

fn written(directory: &ShelfDirectory) -> f64 {
    let bytes = vec![7; FILE_BYTES];
    let begun = Instant::now();
    let mut writer = directory.open_write(Path::new("file")).expect("it is new");
    writer.write_all(&bytes).expect("it works");
    writer.terminate().expect("it works");
    FILE_BYTES as f64 / 1e6 / begun.elapsed().as_secs_f64()
}

/// MB written a second.
fn writes(sealer: Option<Arc<Sealer>>) -> f64 {
    written(&directory(sealer, 0))
}

fn read(sealer: Option<Arc<Sealer>>, memory: u64) -> f64 {
    let directory = directory(sealer, memory);
    written(&directory);
    let file = directory.get_file_handle(Path::new("file")).expect("it is there");
    let mut random = fastrand::Rng::with_seed(1);
    let begun = Instant::now();
    for _ in 0..READS {
        let at = random.usize(..FILE_BYTES - READ_BYTES);
        file.read_bytes(at..at + READ_BYTES).expect("it can be read");
    }
    READS as f64 / begun.elapsed().as_secs_f64()
}

/// Reads a second, each of an extent that is not in memory.
fn reads_of_the_shelf(sealer: Option<Arc<Sealer>>) -> f64 {
    read(sealer, 0)
}

/// Reads a second of extents in the cache; the file is too large to be held as a whole.
fn reads_of_the_cache(sealer: Option<Arc<Sealer>>) -> f64 {
    read(sealer, 4 * FILE_BYTES as u64)
}

fn index(sealer: Option<Arc<Sealer>>) -> Arc<SearchIndex> {
    let place = IndexPlace {
        store: store(sealer),
        shelves: FileShelves::one(Arc::new(MemoryShelf::new())),
        memory: Arc::new(FileMemory::new(0)),
        writer_bytes: 32 << 20,
        large_turn: Arc::default(),
    };
    let definition = IndexDefinition {
        name: "i".into(),
        uuid: "u".into(),
        created: 0,
        settings: BTreeMap::new(),
        mapping: json!({"properties": {"a": {"type": "text"}, "n": {"type": "long"}}}),
        columns: Default::default(),
        aliases: BTreeMap::new(),
        closed: false,
        feed: None,
    };
    SearchIndex::create(place, definition, None).expect("it is made")
}

fn filled(index: &SearchIndex) -> f64 {
    let mut random = fastrand::Rng::with_seed(2);
    let begun = Instant::now();
    for batch in 0..DOCUMENTS / 1_000 {
        let op = |number: usize| {
            let words: Vec<String> = (0..30).map(|_| format!("w{}", random.u32(..5_000))).collect();
            let source = json!({"a": words.join(" "), "n": batch * 1_000 + number}).to_string();
            let kind = OpKind::Index(Bytes::from(source));
            DocumentOp { id: None, kind, expected: ExpectedVersion::Any, routing: None }
        };
        index.apply(&(0..1_000).map(op).collect::<Vec<_>>()).expect("it works");
        if batch % 5 == 4 {
            index.persist().expect("it works");
        }
    }
    index.persist().expect("it works");
    DOCUMENTS as f64 / begun.elapsed().as_secs_f64()
}

/// Documents indexed a second, with refreshes and persisted states.
fn documents(sealer: Option<Arc<Sealer>>) -> f64 {
    filled(&index(sealer))
}

/// Searches of a term a second; no file stays in memory.
fn searches(sealer: Option<Arc<Sealer>>) -> f64 {
    let index = index(sealer);
    filled(&index);
    let opened = index.view();
    let view = &opened.view;
    let field = view.mapping.field("a").expect("it is mapped").clone();
    let column = view.column(&field).expect("it has one");
    let mut random = fastrand::Rng::with_seed(3);
    let begun = Instant::now();
    for _ in 0..SEARCHES {
        let term = Term::from_field_text(column, &format!("w{}", random.u32(..5_000)));
        let query = TermQuery::new(term, IndexRecordOption::Basic);
        view.searcher.search(&query, &Count).expect("it works");
    }
    SEARCHES as f64 / begun.elapsed().as_secs_f64()
}

fn compare(name: &str, measure: fn(Option<Arc<Sealer>>) -> f64) {
    let mut ratios: Vec<f64> = (0..TURNS)
        .map(|turn| {
            let sealer = || Some(Sealer::for_tests(1, turn as u32 + 1, 0));
            // The one that comes first changes with the turn.
            let (clear, encrypted) = match turn % 2 {
                0 => (measure(None), measure(sealer())),
                _ => {
                    let encrypted = measure(sealer());
                    (measure(None), encrypted)
                }
            };
            println!("{name:>20} {clear:>12.0} {encrypted:>12.0} {:>6.3}", encrypted / clear);
            encrypted / clear
        })
        .collect();
    ratios.sort_unstable_by(f64::total_cmp);
    println!("{name:>20} median {:.3} of clear, {:.3} to {:.3}\n", ratios[TURNS / 2], ratios[0], ratios[TURNS - 1]);
}

fn main() {
    println!("{:>20} {:>12} {:>12} {:>6}", "", "clear/s", "encrypted/s", "ratio");
    compare("MB written", writes);
    compare("reads of the shelf", reads_of_the_shelf);
    compare("reads of the cache", reads_of_the_cache);
    compare("documents indexed", documents);
    compare("searches", searches);
}
