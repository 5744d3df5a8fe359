//! Tests of backups of a store that is open.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use ::encryption::{EncryptionError, KeyProvider, Secret, SystemRandomness};
use device::MemoryShelf;
use store::Options;

use super::*;

fn filled(store: &Store) {
    let mut transaction = store.begin();
    let tree = transaction.create_tree("t").expect("is new");
    for key in 0..2_000_u32 {
        transaction.put(tree, &key.to_be_bytes(), &[7; 300]).expect("fits");
    }
    transaction.commit().expect("commits");
}

fn names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).expect("it lists").map(|entry| entry.expect("it lists").file_name());
    names.map(|name| name.into_string().expect("a name")).filter(|name| !name.contains("lock")).collect()
}

#[test]
fn a_backup_that_nobody_waits_for_ends_wherever_it_is_also_while_it_is_read_back() {
    let store = Store::in_memory(Options::default()).expect("there is memory");
    filled(&store);
    let home = tempfile::tempdir().expect("a folder");
    let count = Arc::new(AtomicU64::new(0));
    let until = |last: u64| -> Stopped {
        let count = Arc::clone(&count);
        count.store(0, Ordering::SeqCst);
        Arc::new(move || count.fetch_add(1, Ordering::SeqCst) >= last)
    };
    let copied = AtomicU64::new(0);
    let make = |name: &str, stopped: &Stopped| {
        back_up(&store, &home.path().join(name), stopped, &mut |_| {
            copied.store(count.load(Ordering::SeqCst), Ordering::SeqCst);
            ControlFlow::Continue(())
        })
    };
    // The second one finds the store as all others do.
    for name in ["first", "whole"] {
        make(name, &until(u64::MAX)).expect("it is made");
    }
    let (all, last_report) = (count.load(Ordering::SeqCst), copied.load(Ordering::SeqCst));
    assert!(all > last_report + 2, "{last_report} of {all}: the rest reports nothing");
    let early = (0..last_report).step_by(usize::try_from(last_report / 20).expect("few").max(1));
    for at in early.chain([last_report + 1, last_report.midpoint(all)]) {
        let name = format!("at-{at}");
        make(&name, &until(at)).expect_err("it was ended");
        let after = count.load(Ordering::SeqCst).saturating_sub(at);
        assert!((1..4).contains(&after), "{after} more were tried after {at} of {all}");
        assert_eq!(names(&home.path().join(name)), [""; 0], "{at}");
    }
}

#[derive(Debug)]
struct Fixed;

impl KeyProvider for Fixed {
    fn key(&self) -> Result<Secret, EncryptionError> {
        Ok(Secret::new([7; 32]))
    }

    fn name(&self) -> String {
        "test".to_owned()
    }
}

#[test]
fn a_backup_is_not_made_beside_an_envelope_that_is_not_its_own() {
    let home = tempfile::tempdir().expect("a folder");
    let (data, to) = (home.path().join("data"), home.path().join("to"));
    [&data, &to].into_iter().for_each(|folder| fs::create_dir(folder).expect("a folder"));
    let (file, random) = (EnvelopeFile::of(&data), SystemRandomness::default());
    ::encryption::create(&file, &Fixed, 1, &random).expect("it is made");
    let leftover = fs::read(file.path()).expect("it reads");
    let sealer = ::encryption::open(&file, &Fixed, &random).expect("the right key");
    let open = |sealer: Option<Arc<::encryption::Sealer>>| {
        let shelf: Arc<dyn Shelf> = Arc::new(MemoryShelf::new());
        let places = Places { journal: Arc::clone(&shelf), images: Arc::clone(&shelf), data: shelf };
        let journal = journal::Options { sealer, ..journal::Options::default() };
        Store::open(places, Options { journal, ..Options::default() }).expect("it opens").0
    };
    let (encrypted, clear) = (open(Some(Arc::clone(&sealer))), open(None));
    let never: Stopped = Arc::new(|| false);
    let make = |store: &Store| back_up(store, &to, &never, &mut |_| ControlFlow::Continue(()));
    let envelope = EnvelopeFile::of(&to);
    fs::write(envelope.path(), &leftover).expect("it is written");
    for store in [&encrypted, &clear] {
        let refused = make(store).expect_err("it is of another time").to_string();
        assert!(refused.contains("encryption.envelope is there already"), "{refused}");
        assert!(fs::read(envelope.path()).expect("it reads") == leftover && names(&to).len() == 1, "{:?}", names(&to));
    }
    envelope.write(&sealer.envelope().expect("it has one")).expect("it is written");
    make(&encrypted).expect("it is its own");
    assert!(::encryption::open_to_read(&envelope, &Fixed).is_ok() && names(&to).len() > 3, "{:?}", names(&to));
}
