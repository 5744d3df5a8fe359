//! Tests of a power failure in the middle of a group: a folder whose un-flushed content and names may be lost, kept, or
//! partly kept.
//!
//! By POSIX a file system may then contain: of content that was not flushed, any first part, or zeros in its place; of
//! changes of names since the folder was flushed, any selection. A change of a name is present as a whole or not at
//! all.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use super::tests::{item, settings};
use super::*;

/// Images of each point: the three plain ones, and others by chance.
const IMAGES: usize = 24;

#[derive(Debug, Clone)]
enum Change {
    Made(OsString, usize),
    Renamed(OsString, OsString, usize),
    Removed(OsString),
}

impl Change {
    fn apply(&self, names: &mut BTreeMap<OsString, usize>) {
        match self {
            Change::Made(name, file) => drop(names.insert(name.clone(), *file)),
            Change::Renamed(from, to, file) => {
                names.remove(from);
                names.insert(to.clone(), *file);
            }
            Change::Removed(name) => drop(names.remove(name)),
        }
    }
}

/// Which part of the machine does not keep its promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Liar {
    Nobody,
    Flush,
    Sync,
}

#[derive(Debug, Default)]
struct State {
    /// Names as visible to programs, and as they were when the folder was flushed; the changes between the two.
    names: BTreeMap<OsString, usize>,
    flushed_names: BTreeMap<OsString, usize>,
    changes: Vec<Change>,
    /// Content, and how much of it was flushed.
    files: Vec<(Vec<u8>, usize)>,
    operations: usize,
    /// Operations until the power fails.
    power: usize,
}

#[derive(Debug)]
struct Failing {
    state: Mutex<State>,
    liar: Liar,
}

impl Failing {
    fn new(files: BTreeMap<OsString, Vec<u8>>, liar: Liar) -> Failing {
        let mut state = State { power: usize::MAX, ..State::default() };
        for (name, content) in files {
            state.names.insert(name, state.files.len());
            state.files.push((content.clone(), content.len()));
        }
        state.flushed_names = state.names.clone();
        Failing { state: Mutex::new(state), liar }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with it")
    }

    fn step<T>(&self, step: impl FnOnce(&mut State) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.state();
        if state.operations >= state.power {
            return Err(io::Error::other("the power is off"));
        }
        state.operations += 1;
        step(&mut state)
    }

    /// The possible contents of the medium: with nothing that was not flushed, with all names and none of such content,
    /// with everything, or by chance.
    fn image(&self, number: usize, random: &mut fastrand::Rng) -> BTreeMap<OsString, Vec<u8>> {
        let state = self.state();
        let mut names = state.flushed_names.clone();
        for change in &state.changes {
            if kept(number, [false, true, true], random) {
                change.apply(&mut names);
            }
        }
        let contents: Vec<Vec<u8>> = state
            .files
            .iter()
            .map(|(content, flushed)| {
                if *flushed == content.len() || kept(number, [false, false, true], random) {
                    return content.clone();
                }
                let mut part =
                    content[..if number < 3 { *flushed } else { random.usize(*flushed..=content.len()) }].to_vec();
                if number >= 3 && random.bool() {
                    part.resize(content.len(), 0);
                }
                part
            })
            .collect();
        names.into_iter().map(|(name, file)| (name, contents[file].clone())).collect()
    }
}

/// Whether an image keeps data that was not flushed: fixed for the plain images, random for the others.
fn kept(number: usize, of: [bool; 3], random: &mut fastrand::Rng) -> bool {
    of.get(number).copied().unwrap_or_else(|| random.bool())
}

impl DeliveryFolder for Failing {
    type Written = usize;

    fn holds(&self, name: &OsStr, body: &[u8]) -> io::Result<Option<bool>> {
        self.step(|state| Ok(state.names.get(name).map(|file| state.files[*file].0 == body)))
    }

    fn write(&self, name: &OsStr, body: &[u8], _mode: u32) -> io::Result<usize> {
        let file = self.step(|state| {
            let file = state.files.len();
            state.files.push((Vec::new(), 0));
            let change = Change::Made(name.to_owned(), file);
            change.apply(&mut state.names);
            state.changes.push(change);
            Ok(file)
        })?;
        let (first, second) = body.split_at(body.len() / 2);
        for half in [first, second] {
            self.step(|state| {
                state.files[file].0.extend_from_slice(half);
                Ok(())
            })?;
        }
        Ok(file)
    }

    fn flush(&self, file: &usize) -> io::Result<()> {
        self.step(|state| {
            if self.liar != Liar::Flush {
                state.files[*file].1 = state.files[*file].0.len();
            }
            Ok(())
        })
    }

    fn rename(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        self.step(|state| {
            let file = *state.names.get(from).ok_or(io::ErrorKind::NotFound)?;
            let change = Change::Renamed(from.to_owned(), to.to_owned(), file);
            change.apply(&mut state.names);
            state.changes.push(change);
            Ok(())
        })
    }

    fn remove(&self, name: &OsStr) -> io::Result<()> {
        self.step(|state| {
            let change = Change::Removed(name.to_owned());
            change.apply(&mut state.names);
            state.changes.push(change);
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.step(|state| {
            if self.liar != Liar::Sync {
                state.flushed_names = state.names.clone();
                state.changes.clear();
            }
            Ok(())
        })
    }
}

/// Delivers; returns how many were reported as written.
fn written(folder: &Failing, ids: &[u64]) -> usize {
    let settings = settings(Path::new("out"));
    let items: Vec<Item> = ids.iter().map(|id| item(*id)).collect();
    deliver(folder, &settings, &items).iter().filter(|answer| **answer == Answer::Written).count()
}

/// No incomplete message has its final name, and every acknowledged one is complete.
fn check(image: &BTreeMap<OsString, Vec<u8>>, ids: &[u64], acknowledged: &[u64]) -> Result<(), String> {
    for id in ids {
        match image.get(OsStr::new(&format!("{id}-0.hl7"))) {
            Some(content) if *content == format!("message {id}").into_bytes() => {}
            Some(content) => return Err(format!("of {id} there is {:?}", String::from_utf8_lossy(content))),
            None if acknowledged.contains(id) => return Err(format!("{id} was acknowledged, and is not there")),
            None => {}
        }
    }
    Ok(())
}

/// Cuts the power at every point of the second of two groups, which has one message of the first again; then at some point of
/// delivering again what was not acknowledged, and delivers that at last.
fn at_every_point(seed: u64, liar: Liar) -> Result<(), String> {
    let mut random = fastrand::Rng::with_seed(seed);
    let (first, second) = ([1, 2, 3], [3, 4, 5, 6, 7, 8]);
    let all: Vec<u64> = (1..=8).collect();
    let mut point = 0;
    loop {
        let folder = Failing::new(BTreeMap::new(), liar);
        assert_eq!(written(&folder, &first), first.len());
        let begun = folder.state().operations;
        folder.state().power = begun + point;
        let done = written(&folder, &second);
        let acknowledged = [&first[..], &second[..done]].concat();
        for number in 0..IMAGES {
            let image = folder.image(number, &mut random);
            let at = |what: String| format!("seed {seed}, point {point}, image {number}: {what}");
            check(&image, &all, &acknowledged).map_err(at)?;
            let rest: Vec<u64> = all.iter().copied().filter(|id| !acknowledged.contains(id)).collect();
            let again = Failing::new(image, liar);
            again.state().power = random.usize(0..60);
            let done = written(&again, &rest);
            let image = again.image(random.usize(..IMAGES), &mut random);
            check(&image, &all, &[&acknowledged[..], &rest[..done]].concat()).map_err(at)?;
            let last = Failing::new(image, liar);
            assert_eq!(written(&last, &all), all.len(), "{}", at("it is not taken again".to_owned()));
            check(&last.image(0, &mut random), &all, &all).map_err(at)?;
        }
        if done == second.len() {
            return Ok(());
        }
        point += 1;
    }
}

#[test]
fn a_loss_of_power_at_any_point_of_a_group_leaves_what_was_acknowledged_and_no_half_file() {
    let seed = std::env::var("SEED").map_or(1, |seed| seed.parse().expect("SEED is a number"));
    if let Err(wrong) = at_every_point(seed, Liar::Nobody) {
        panic!("{wrong}; replay with SEED={seed}");
    }
}

/// The test of that test: a flush that does nothing must be caught, of content as of names.
#[test]
fn a_group_whose_flush_of_a_file_or_of_the_folder_does_nothing_is_caught() {
    for liar in [Liar::Flush, Liar::Sync] {
        let caught = at_every_point(1, liar);
        assert!(caught.is_err(), "{liar:?}");
    }
}
