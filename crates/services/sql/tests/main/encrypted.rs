//! SQL on an encrypted store: nothing of a table is on a medium in clear, neither rows and row groups in the store nor what statements
//! spill, and statements find the same as on a clear one.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::{FileOptions, FileShelf, Shelf};
use encryption::Sealer;
use sql::engine::SpillOptions;
use sql::{Engine, EngineOptions};
use store::{Options, Places, Store};

use crate::support::run;

/// A name that is in every row.
const NAME: &str = "SAMPLE^ANNABEL";

/// Rows of the table: their texts are more than the operators of a statement may keep.
const ROWS: usize = 1_000_000;

/// Statements that spill, by the operator that does.
const SPILLING: [(&str, &str); 6] = [
    ("sort", "select count(*), min(n) from (select t, row_number() over (order by t) n from w) q"),
    ("sort with a limit", "select count(*), max(t) from (select t, id from w order by t limit 999999) q"),
    ("groups", "select count(*), sum(c) from (select t, sum(id) c from w group by t) q"),
    ("distinct", "select count(*) from (select distinct t from w) q"),
    (
        "join of sorted rows",
        "select count(*), max(a.t) from (select * from w where id <= 500000) a join (select * from w where id <= 500000) b on a.t = b.t",
    ),
    ("union", "select count(*) from (select t from w union select t from w) q"),
];

fn holds(bytes: &[u8], text: &str) -> bool {
    // The first byte is looked for first: files are long, and tests are not optimised.
    let first = text.as_bytes()[0];
    let starts = bytes.iter().enumerate().filter(|(_, byte)| **byte == first).map(|(at, _)| at);
    starts.into_iter().any(|at| bytes[at..].starts_with(text.as_bytes()))
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        // Files come and go meanwhile.
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                true => folders.push(entry.path()),
                false => found.push(entry.path()),
            }
        }
    }
    found
}

/// What a watcher of a spill folder has seen: how many files with something in them, and how many of these with the name.
#[derive(Default)]
struct Seen {
    files: BTreeSet<PathBuf>,
    in_clear: BTreeSet<PathBuf>,
}

fn watch(folder: &Path, stop: &AtomicBool) -> Seen {
    let mut seen = Seen::default();
    while !stop.load(Ordering::Relaxed) {
        for path in files(folder) {
            if seen.in_clear.contains(&path) || seen.files.len() > 200 {
                continue;
            }
            let mut bytes = Vec::new();
            let Ok(file) = std::fs::File::open(&path) else { continue };
            if file.take(1 << 20).read_to_end(&mut bytes).is_ok_and(|bytes| bytes > 0) {
                if holds(&bytes, NAME) {
                    seen.in_clear.insert(path.clone());
                }
                seen.files.insert(path);
            }
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    seen
}

/// The results of all statements, and what was seen of their files.
async fn results(sealer: Option<Arc<Sealer>>) -> Vec<(&'static str, String, Seen)> {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Options { journal: journal::Options { sealer, ..journal::Options::default() }, ..Options::default() };
    let store = Store::in_memory(store).expect("memory is enough");
    let spill = folder.path().join("spill");
    // Rows are made with more memory than they are sorted in.
    let options = |query_bytes, folder: &str| EngineOptions {
        threads: 2,
        query_bytes,
        spill: Some(SpillOptions { folder: spill.join(folder), bytes: 4 << 30 }),
        ..EngineOptions::default()
    };
    let roomy = Engine::new(store.clone(), options(1 << 30, "roomy")).expect("it starts");
    let mut session = roomy.session("a");
    run(&mut session, "create table w (id bigint primary key, t text)").await;
    let texts = format!("'{NAME}' || md5(g::text) || md5((g * 7)::text)");
    let made = format!("insert into w select g, {texts} from generate_series(1, {ROWS}) s(g)");
    assert_eq!(run(&mut session, &made).await, format!("INSERT 0 {ROWS}"));
    drop((session, roomy));
    let engine = Engine::new(store, options(256 << 20, "narrow")).expect("it starts");
    let mut session = engine.session("a");
    let mut all = Vec::new();
    for (what, sql) in SPILLING {
        let stop = Arc::new(AtomicBool::new(false));
        let watcher = std::thread::spawn({
            let (spill, stop) = (spill.clone(), Arc::clone(&stop));
            move || watch(&spill, &stop)
        });
        let found = run(&mut session, sql).await;
        println!("{what}: {found}");
        stop.store(true, Ordering::Relaxed);
        all.push((what, found, watcher.join().expect("it watches")));
    }
    // A statement's threads end a moment after its last row.
    for _ in 0..1000 {
        if files(&spill).is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(files(&spill), Vec::<PathBuf>::new(), "nothing is left");
    all
}

#[tokio::test]
async fn statements_that_spill_find_the_same_on_an_encrypted_store_and_write_nothing_in_clear() {
    let clear = results(None).await;
    let encrypted = results(Some(Sealer::for_tests(1, 1, 1))).await;
    for ((what, expected, seen), (_, found, sealed)) in clear.iter().zip(&encrypted) {
        assert!(!expected.starts_with("error"), "{what}: {expected}");
        assert_eq!(found, expected, "{what}");
        // How much memory is free decides whether a join spills.
        assert!(!sealed.files.is_empty() || seen.files.is_empty(), "{what} spills in clear only");
        assert!(sealed.in_clear.is_empty(), "{what}: {:?}", sealed.in_clear);
    }
    let spilled = encrypted.iter().filter(|(_, _, sealed)| !sealed.files.is_empty()).count();
    assert!(spilled >= 4, "{spilled} statements spill");
    // What is looked for would be found.
    assert!(clear.iter().any(|(_, _, seen)| !seen.in_clear.is_empty()));
}

fn stored(folder: &Path, sealer: Option<Arc<Sealer>>) -> Store {
    let shelf: Arc<dyn Shelf> = Arc::new(FileShelf::open(folder, FileOptions::default()).expect("a folder"));
    let places = Places { journal: shelf.clone(), images: shelf.clone(), data: shelf };
    let options = Options { journal: journal::Options { sealer, ..journal::Options::default() }, ..Options::default() };
    Store::open(places, options).expect("it opens").0
}

#[tokio::test]
async fn rows_and_row_groups_of_a_table_lie_in_the_store_and_are_encrypted_with_it() {
    let mut in_clear = Vec::new();
    for sealer in [None, Some(1)] {
        let sealer = |epoch| sealer.map(|key| Sealer::for_tests(key, epoch, 1));
        let folder = tempfile::tempdir().expect("a folder");
        let options =
            || EngineOptions { threads: 2, row_group_rows: 5000, tuple_mover: None, ..EngineOptions::default() };
        let count = "select count(*), min(t), max(t) from w";
        let (groups, before) = {
            let engine = Engine::new(stored(folder.path(), sealer(1)), options()).expect("it starts");
            let mut session = engine.session("a");
            run(&mut session, "create table w (id bigint primary key, t text)").await;
            // Each less than a row group.
            for part in 0..10 {
                let series = format!("generate_series({}, {})", part * 2000 + 1, (part + 1) * 2000);
                let made = format!("insert into w select g, '{NAME}' || g from {series} s(g)");
                assert_eq!(run(&mut session, &made).await, "INSERT 0 2000");
            }
            let groups = engine.move_rows(1000).expect("there is room");
            run(
                &mut session,
                &format!("insert into w select g, '{NAME}' || g from generate_series(30001, 30100) s(g)"),
            )
            .await;
            let before = run(&mut session, count).await;
            engine.close();
            engine.store().checkpoint().expect("there is room");
            (groups, before)
        };
        let engine = Engine::new(stored(folder.path(), sealer(2)), options()).expect("it starts");
        assert_eq!(run(&mut engine.session("a"), count).await, before);
        in_clear.push(files(folder.path()).iter().any(|path| holds(&std::fs::read(path).expect("it reads"), NAME)));
        assert!(groups >= 15_000, "{groups} rows are in row groups");
    }
    assert_eq!(in_clear, [true, false]);
}
