//! Generations in the store: a row for each, and the texts of their files by what they are.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::ops::Bound;
use std::sync::Arc;

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use ring::digest;
use store::{Direction, Snapshot, Store, StoreError, Transaction, TreeId};

use super::{Generation, GenerationContent, GenerationFile, LoadCause, commit_of, hash_of, hex};
use crate::error::InteropError;

/// The tree.
pub const GENERATIONS_TREE: &str = "production.generations";

/// The first byte of the keys of rows, and of those of texts.
const ROWS: u8 = b'g';
const TEXTS: u8 = b'f';

/// Most rows: the oldest ones go.
const ROWS_MAX: usize = 1_000;

/// Most bytes of texts as they are kept: those of the oldest generations go, and those of the newest stay as far as they fit.
const TEXT_BYTES_MAX: u64 = 64 << 20;

/// Largest text that is kept, in bytes: a lookup table of some hundred thousand lines.
const FILE_BYTES_MAX: usize = 32 << 20;

/// The generations in a store.
#[derive(Debug, Clone)]
pub struct Generations {
    store: Store,
}

/// What is kept, and what it may take.
#[derive(Debug, Clone, Copy)]
struct KeepBounds {
    rows: usize,
    text_bytes: u64,
}

fn row_key(number: u32) -> Vec<u8> {
    [&[ROWS][..], &number.to_be_bytes()].concat()
}

fn text_key(hash: &[u8]) -> Vec<u8> {
    [&[TEXTS][..], hash].concat()
}

/// The keys that begin with a byte.
fn all_of(first: u8) -> ([u8; 1], [u8; 1]) {
    ([first], [first + 1])
}

fn damaged(what: impl std::fmt::Display) -> InteropError {
    StoreError::Corrupt(format!("the generations of the production: {what}").into()).into()
}

fn row_of(key: &[u8], value: &[u8]) -> Result<Generation, InteropError> {
    let row: Generation = serde_json::from_slice(value).map_err(|_| damaged("a row cannot be read"))?;
    if row_key(row.number) == key { Ok(row) } else { Err(damaged("a row has the number of another one")) }
}

/// A text as it is kept.
fn packed(text: &str) -> Result<Vec<u8>, InteropError> {
    let mut kept = u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes().to_vec();
    let mut encoder = ZlibEncoder::new(&mut kept, Compression::default());
    let written = encoder.write_all(text.as_bytes()).and_then(|()| encoder.finish().map(drop));
    written.map_err(InteropError::file("compress", "a file of the production"))?;
    Ok(kept)
}

fn unpacked(hash: &str, kept: &[u8]) -> Result<Arc<str>, InteropError> {
    let wrong = || damaged(format_args!("the text with the hash {hash} cannot be read"));
    let (length, compressed) = kept.split_first_chunk::<4>().ok_or_else(wrong)?;
    let length = u32::from_le_bytes(*length) as usize;
    if length > FILE_BYTES_MAX {
        return Err(wrong());
    }
    let mut text = Vec::new();
    // One byte more than it may have: what is longer is not as it was written.
    let read = ZlibDecoder::new(compressed).take(length as u64 + 1).read_to_end(&mut text);
    let text = String::from_utf8(text).map_err(|_| wrong())?;
    if read.is_err() || text.len() != length || hash_of(&text) != hash {
        return Err(wrong());
    }
    Ok(text.into())
}

/// The bytes of a hash in hexadecimal.
fn bytes_of(hash: &str) -> Option<Vec<u8>> {
    let digits = hash.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

impl Generations {
    /// Those of a store.
    pub fn of(store: Store) -> Generations {
        Generations { store }
    }

    fn opened(&self) -> Result<Option<(Snapshot, TreeId)>, InteropError> {
        let snapshot = self.store.snapshot();
        Ok(snapshot.tree(GENERATIONS_TREE)?.map(|tree| (snapshot, tree)))
    }

    /// The newest one; none in a store without any.
    ///
    /// # Errors
    /// The store's; its row is damaged.
    pub fn newest(&self) -> Result<Option<Generation>, InteropError> {
        let Some((snapshot, tree)) = self.opened()? else { return Ok(None) };
        let (from, to) = all_of(ROWS);
        let (from, to) = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
        let row = snapshot.scan(tree, from, to, Direction::Backward).next()?;
        row.map(|(key, value)| row_of(&key, &value)).transpose()
    }

    /// The one of a number; none where it was never given, or is too old to be kept.
    ///
    /// # Errors
    /// The store's; its row is damaged.
    pub fn get(&self, number: u32) -> Result<Option<Generation>, InteropError> {
        let Some((snapshot, tree)) = self.opened()? else { return Ok(None) };
        let key = row_key(number);
        snapshot.get(tree, &key)?.map(|value| row_of(&key, &value)).transpose()
    }

    /// The newest so many, the newest first.
    ///
    /// # Errors
    /// The store's; a row is damaged.
    pub fn list(&self, most: usize) -> Result<Vec<Generation>, InteropError> {
        let Some((snapshot, tree)) = self.opened()? else { return Ok(Vec::new()) };
        let (from, to) = all_of(ROWS);
        let (from, to) = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
        let (mut rows, mut found) = (snapshot.scan(tree, from, to, Direction::Backward), Vec::new());
        while found.len() < most {
            let Some((key, value)) = rows.next()? else { break };
            found.push(row_of(&key, &value)?);
        }
        Ok(found)
    }

    /// The text of a file of a generation; none where it is not kept any more, or was too large.
    ///
    /// # Errors
    /// The store's; it is damaged.
    pub fn text(&self, file: &GenerationFile) -> Result<Option<Arc<str>>, InteropError> {
        let Some((snapshot, tree)) = self.opened()? else { return Ok(None) };
        let hash = bytes_of(&file.hash).ok_or_else(|| damaged("a hash cannot be read"))?;
        let kept = snapshot.get(tree, &text_key(&hash))?;
        kept.map(|kept| unpacked(&file.hash, &kept)).transpose()
    }

    /// All texts of a generation by path; none of those that are not kept.
    ///
    /// # Errors
    /// As for `text`.
    pub fn texts(&self, generation: &Generation) -> Result<BTreeMap<String, Option<Arc<str>>>, InteropError> {
        generation.files.iter().map(|file| Ok((file.path.clone(), self.text(file)?))).collect()
    }

    /// Keeps what is loaded, durably, and returns its generation: the newest one where nothing has changed since. Blocks meanwhile.
    ///
    /// # Errors
    /// The store's.
    pub fn keep(
        &self,
        content: &GenerationContent,
        cause: &LoadCause,
        now_us: i64,
    ) -> Result<Generation, InteropError> {
        self.keep_within(content, cause, now_us, KeepBounds { rows: ROWS_MAX, text_bytes: TEXT_BYTES_MAX })
    }

    fn keep_within(
        &self,
        content: &GenerationContent,
        cause: &LoadCause,
        now_us: i64,
        bounds: KeepBounds,
    ) -> Result<Generation, InteropError> {
        let hash = content.hash();
        if let Some(newest) = self.newest()?.filter(|newest| newest.hash == hash) {
            return Ok(newest);
        }
        self.store.transact(|transaction| put(transaction, (content, &hash), cause, (now_us, bounds)))
    }

    /// Reads every row and every text that is kept; what is wrong with them.
    ///
    /// # Errors
    /// The store cannot be read at all.
    pub fn check(&self) -> Result<Vec<String>, InteropError> {
        let Some((snapshot, tree)) = self.opened()? else { return Ok(Vec::new()) };
        let (mut problems, mut known) = (Vec::new(), BTreeSet::new());
        let mut rows = snapshot.scan(tree, Bound::Unbounded, Bound::Unbounded, Direction::Backward);
        while let Some((key, value)) = rows.next()? {
            match key.split_first() {
                Some((&ROWS, _)) => match row_of(&key, &value) {
                    Ok(row) => known.extend(row.files.into_iter().map(|file| file.hash)),
                    Err(error) => problems.push(error.to_string()),
                },
                // Rows come first: they are behind the texts in the tree.
                Some((&TEXTS, hash)) => {
                    let hash = hex(hash);
                    if !known.contains(&hash) {
                        problems.push(format!("the generations of the production: no generation has the text {hash}"));
                    }
                    problems.extend(unpacked(&hash, &value).err().map(|error| error.to_string()));
                }
                _ => problems.push("the generations of the production: a key cannot be read".to_owned()),
            }
        }
        Ok(problems)
    }
}

/// Writes the next generation, and removes what is beyond the bounds.
fn put(
    transaction: &mut Transaction,
    (content, hash): (&GenerationContent, &str),
    cause: &LoadCause,
    (now_us, bounds): (i64, KeepBounds),
) -> Result<Generation, InteropError> {
    let tree = match transaction.tree(GENERATIONS_TREE)? {
        Some(tree) => tree,
        None => transaction.create_tree(GENERATIONS_TREE)?,
    };
    let mut earlier = rows_in(transaction, tree)?;
    let number = earlier.first().map_or(1, |newest| newest.number + 1);
    let (mut files, mut total) = (Vec::new(), 0);
    for (path, text) in &content.files {
        let of_text = digest::digest(&digest::SHA256, text.as_bytes());
        let (key, mut kept_bytes) = (text_key(of_text.as_ref()), 0);
        if text.len() <= FILE_BYTES_MAX {
            let kept = packed(text)?;
            if total + kept.len() as u64 <= bounds.text_bytes {
                kept_bytes = kept.len() as u64;
                total += kept_bytes;
                if transaction.get(tree, &key)?.is_none() {
                    transaction.put(tree, &key, &kept)?;
                }
            }
        }
        let (path, bytes) = (path.clone(), text.len() as u64);
        files.push(GenerationFile { path, bytes, hash: hex(of_text.as_ref()), kept_bytes });
    }
    let made = Generation {
        number,
        loaded_us: now_us,
        by: cause.by.clone(),
        how: cause.kind,
        name: content.name.clone(),
        commit: commit_of(&content.folder),
        hash: hash.to_owned(),
        files,
    };
    let row = serde_json::to_vec(&made).expect("plain data becomes JSON");
    transaction.put(tree, &row_key(number), &row)?;
    earlier.insert(0, made.clone());
    trim(transaction, tree, &earlier, bounds)?;
    Ok(made)
}

/// All rows, the newest first.
fn rows_in(transaction: &Transaction, tree: TreeId) -> Result<Vec<Generation>, InteropError> {
    let (from, to) = all_of(ROWS);
    let (from, to) = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
    let (mut rows, mut found) = (transaction.scan(tree, from, to, Direction::Backward), Vec::new());
    while let Some((key, value)) = rows.next()? {
        found.push(row_of(&key, &value)?);
    }
    Ok(found)
}

/// Removes rows beyond their number, and texts beyond their bytes, the oldest first.
fn trim(
    transaction: &mut Transaction,
    tree: TreeId,
    rows: &[Generation],
    bounds: KeepBounds,
) -> Result<(), InteropError> {
    for old in rows.iter().skip(bounds.rows) {
        transaction.delete(tree, &row_key(old.number))?;
    }
    let (mut kept, mut total, mut is_over) = (BTreeSet::new(), 0, false);
    for row in rows.iter().take(bounds.rows) {
        for file in row.files.iter().filter(|file| file.kept_bytes > 0) {
            if kept.contains(file.hash.as_str()) {
                continue;
            }
            is_over |= total + file.kept_bytes > bounds.text_bytes;
            if !is_over {
                total += file.kept_bytes;
                kept.insert(file.hash.as_str());
            }
        }
    }
    let (from, to) = all_of(TEXTS);
    let (from, to) = (Bound::Included(&from[..]), Bound::Excluded(&to[..]));
    let (mut texts, mut gone) = (transaction.scan(tree, from, to, Direction::Forward), Vec::new());
    while let Some((key, _)) = texts.next_key()? {
        if !kept.contains(hex(&key[1..]).as_str()) {
            gone.push(key.to_vec());
        }
    }
    drop(texts);
    for key in gone {
        transaction.delete(tree, &key)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use store::Options;

    use super::super::LoadKind;
    use super::*;

    fn content(files: &[(&str, &str)]) -> GenerationContent {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), Arc::from(*text))).collect();
        GenerationContent { name: "p".to_owned(), folder: "/nonexistent".into(), files }
    }

    fn cause(by: &str) -> LoadCause {
        LoadCause { by: by.to_owned(), kind: LoadKind::Reload }
    }

    fn texts(generations: &Generations, number: u32) -> Vec<Option<String>> {
        let generation = generations.get(number).expect("it reads").expect("it is there");
        let texts = generations.texts(&generation).expect("they read");
        texts.into_values().map(|text| text.map(|text| text.to_string())).collect()
    }

    #[test]
    fn each_change_is_a_generation_and_what_is_loaded_unchanged_is_none() {
        let generations = Generations::of(Store::in_memory(Options::default()).expect("memory"));
        assert_eq!(generations.newest().expect("it reads"), None);
        let one = content(&[("rules/a.rules", "one"), ("tables/t.csv", "x,1\n")]);
        let two = content(&[("rules/a.rules", "one"), ("tables/t.csv", "x,2\n")]);
        let keep = |content: &GenerationContent, by: &str| generations.keep(content, &cause(by), 5).expect("kept");
        assert_eq!((keep(&one, "ann").number, keep(&one, "ben").number), (1, 1));
        let second = keep(&two, "ben");
        assert_eq!((second.number, &*second.by, second.loaded_us), (2, "ben", 5));
        assert_eq!(
            two.changes_since(&generations.get(1).expect("reads").expect("there")),
            [("tables/t.csv".to_owned(), "changed")]
        );
        assert_eq!(keep(&one, "ann").number, 3, "an earlier text is a generation of its own");
        assert_eq!(texts(&generations, 1), texts(&generations, 3));
        assert_eq!(texts(&generations, 2), [Some("one".to_owned()), Some("x,2\n".to_owned())]);
        let numbers: Vec<u32> = generations.list(2).expect("they read").iter().map(|row| row.number).collect();
        assert_eq!(numbers, [3, 2]);
        assert_eq!(generations.check().expect("it reads"), [""; 0]);
    }

    #[test]
    fn the_oldest_texts_go_first_then_the_oldest_rows_and_the_newest_text_stays() {
        let generations = Generations::of(Store::in_memory(Options::default()).expect("memory"));
        let text = |number: u32| (0..400).map(|at| format!("{number} {at}\n")).collect::<String>();
        let bytes = packed(&text(1)).expect("it packs").len() as u64;
        let bounds = KeepBounds { rows: 4, text_bytes: 3 * bytes };
        for number in 1..=6 {
            let made = content(&[("rules/a.rules", &text(number)), ("rules/b.rules", "the same")]);
            let kept = generations.keep_within(&made, &cause("ann"), 5, bounds).expect("kept");
            assert_eq!(kept.number, number);
        }
        assert_eq!(generations.get(2).expect("it reads"), None, "its row is gone");
        assert_eq!(texts(&generations, 3)[0], None, "its text is gone");
        assert_eq!(texts(&generations, 6), [Some(text(6)), Some("the same".to_owned())]);
        assert!(texts(&generations, 3)[1].is_some(), "what a newer one has too stays");
        assert_eq!(generations.check().expect("it reads"), [""; 0]);
        // A number is not given again.
        assert_eq!(generations.keep(&content(&[]), &cause("ann"), 5).expect("kept").number, 7);
    }

    #[test]
    fn what_is_damaged_is_found() {
        let store = Store::in_memory(Options::default()).expect("memory");
        let generations = Generations::of(store.clone());
        let made = generations.keep(&content(&[("rules/a.rules", "one")]), &cause("ann"), 5).expect("kept");
        let mut transaction = store.begin();
        let tree = transaction.tree(GENERATIONS_TREE).expect("reads").expect("there");
        let key = text_key(&bytes_of(&made.files[0].hash).expect("digits"));
        transaction.put(tree, &key, &packed("two").expect("it packs")).expect("put");
        transaction.put(tree, &row_key(9), b"{}").expect("put");
        transaction.commit().expect("it works");
        assert_eq!(generations.check().expect("it reads").len(), 2);
        assert!(generations.text(&made.files[0]).is_err());
        for kept in [&b""[..], &[0xff; 4], &[3, 0, 0, 0, 1, 2, 3]] {
            assert!(unpacked(&made.files[0].hash, kept).is_err());
        }
    }
}
