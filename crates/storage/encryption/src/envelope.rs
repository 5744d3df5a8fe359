//! [`Envelope`]: the data keys, wrapped with the key-encryption key, and the number of the last opening.
//!
//! ```text
//!   offset  bytes  field
//!        0      8  magic "TERRKEY" and a zero
//!        8      4  version, 1
//!       12      4  CRC-32C of bytes 0..12 and 16..
//!       16      4  epoch of the last opening; 0: none yet
//!       20      4  how many data keys, 1 to 64
//!       24      8  id of the key-encryption key
//!       32     76  each data key: number u32 | 0 u32 | made, microseconds since 1970, u64 | nonce 12 | wrapped key 32 | tag 16
//! ```
//!
//! A data key is wrapped by AES-256-GCM with a key
//! derived from the key-encryption key, a random nonce (an envelope is wrapped a few times in its life), and number and time as
//! associated data. The id of the key-encryption key is derived from it: it tells a wrong key from a damaged envelope, and nothing about
//! the key. The epoch is not authenticated: an older one that is put back makes no key repeat, because of the random bits of each opening.

use crc_fast::{CrcAlgorithm, Digest};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroizing;

use crate::error::{EncryptionError, EnvelopeFault};
use crate::key_id::KeyId;
use crate::secret::{KEY_BYTES, Randomness, Secret};

/// Most data keys of an envelope.
pub const DATA_KEYS_MAX: usize = 64;
/// Longest envelope.
pub const ENVELOPE_BYTES_MAX: usize = HEAD_BYTES + DATA_KEYS_MAX * ENTRY_BYTES;

const MAGIC: &[u8; 8] = b"TERRKEY\0";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 32;
const FACTS_BYTES: usize = 16;
const NONCE_BYTES: usize = 12;
const ENTRY_BYTES: usize = FACTS_BYTES + NONCE_BYTES + KEY_BYTES + 16;

impl KeyId {
    /// The id of a key.
    pub fn of(key: &Secret) -> KeyId {
        KeyId(*key.derive::<8>(b"", b"terrace key-encryption key id"))
    }
}

/// What is known of a data key without unwrapping it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataKeyFacts {
    /// Its number, from 1.
    pub id: u32,
    /// When it was made, microseconds since 1970.
    pub made: u64,
}

impl DataKeyFacts {
    fn encode(self) -> [u8; FACTS_BYTES] {
        let mut out = [0; FACTS_BYTES];
        out[..4].copy_from_slice(&self.id.to_le_bytes());
        out[8..].copy_from_slice(&self.made.to_le_bytes());
        out
    }
}

/// A wrapped data key.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Wrapped {
    facts: DataKeyFacts,
    nonce: [u8; NONCE_BYTES],
    /// Ciphertext and tag.
    key: [u8; KEY_BYTES + 16],
}

/// See the head comment of this file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    epoch: u32,
    wrapped_with: KeyId,
    data_keys: Vec<Wrapped>,
}

fn wrapping_key(key: &Secret) -> LessSafeKey {
    let key = key.derive::<32>(b"", b"terrace key wrap");
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &*key).expect("32 bytes are a key of AES-256"))
}

fn wrap(with: &Secret, facts: DataKeyFacts, key: &Secret, random: &dyn Randomness) -> Result<Wrapped, EncryptionError> {
    let mut nonce = [0; NONCE_BYTES];
    random.fill(&mut nonce)?;
    let mut wrapped = [0; KEY_BYTES + 16];
    let mut body = Zeroizing::new(*key.bytes());
    let tag = wrapping_key(with).seal_in_place_separate_tag(
        Nonce::assume_unique_for_key(nonce),
        Aad::from(facts.encode()),
        &mut *body,
    );
    wrapped[..KEY_BYTES].copy_from_slice(&*body);
    wrapped[KEY_BYTES..].copy_from_slice(tag.expect("32 bytes can be sealed").as_ref());
    Ok(Wrapped { facts, nonce, key: wrapped })
}

fn unwrap(with: &Secret, wrapped: &Wrapped) -> Result<Secret, EncryptionError> {
    let mut bytes = Zeroizing::new(wrapped.key);
    let nonce = Nonce::assume_unique_for_key(wrapped.nonce);
    let opened = wrapping_key(with).open_in_place(nonce, Aad::from(wrapped.facts.encode()), &mut *bytes);
    let changed = || EncryptionError::Changed { id: wrapped.facts.id };
    let key: &[u8] = opened.map_err(|_| changed())?;
    Ok(Secret::new(key.try_into().map_err(|_| changed())?))
}

impl Envelope {
    /// A new one with one random data key, wrapped with `with`. Errors: [`EncryptionError::Randomness`].
    pub fn new(with: &Secret, made: u64, random: &dyn Randomness) -> Result<Envelope, EncryptionError> {
        let mut envelope = Envelope { epoch: 0, wrapped_with: KeyId::of(with), data_keys: Vec::new() };
        envelope.push(with, made, random)?;
        Ok(envelope)
    }

    fn push(&mut self, with: &Secret, made: u64, random: &dyn Randomness) -> Result<(), EncryptionError> {
        if self.data_keys.len() >= DATA_KEYS_MAX {
            return Err(EncryptionError::Full);
        }
        let id = self.data_keys.last().map_or(0, |last| last.facts.id).checked_add(1).ok_or(EncryptionError::Full)?;
        let key = Secret::random(random)?;
        self.data_keys.push(wrap(with, DataKeyFacts { id, made }, &key, random)?);
        Ok(())
    }

    /// The epoch of the last opening.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The id of the key that the data keys are wrapped with.
    pub fn wrapped_with(&self) -> KeyId {
        self.wrapped_with
    }

    /// The data keys; the last one seals.
    pub fn data_keys(&self) -> Vec<DataKeyFacts> {
        self.data_keys.iter().map(|wrapped| wrapped.facts).collect()
    }

    /// Begins an opening: returns its epoch. The envelope must be durable before anything is sealed. Errors:
    /// [`EncryptionError::Epochs`].
    pub fn next_epoch(&mut self) -> Result<u32, EncryptionError> {
        self.epoch = self.epoch.checked_add(1).ok_or(EncryptionError::Epochs)?;
        Ok(self.epoch)
    }

    /// The data keys. Errors: [`EncryptionError::WrongKey`], which names `provider`, [`EncryptionError::Changed`].
    pub fn unlock(&self, with: &Secret, provider: &str) -> Result<Vec<(u32, Secret)>, EncryptionError> {
        let found = KeyId::of(with);
        if found != self.wrapped_with {
            return Err(EncryptionError::WrongKey { provider: provider.into(), expected: self.wrapped_with, found });
        }
        self.data_keys.iter().map(|wrapped| Ok((wrapped.facts.id, unwrap(with, wrapped)?))).collect()
    }

    /// Adds a random data key, which seals in openings that begin after this. Errors: those of [`unlock`](Envelope::unlock),
    /// [`EncryptionError::Full`].
    pub fn add_data_key(
        &mut self,
        (with, provider): (&Secret, &str),
        made: u64,
        random: &dyn Randomness,
    ) -> Result<u32, EncryptionError> {
        self.unlock(with, provider)?;
        self.push(with, made, random)?;
        Ok(self.data_keys.last().map_or(0, |last| last.facts.id))
    }

    /// Takes out a data key that is not the newest one. Errors: [`EncryptionError::Newest`], [`EncryptionError::NoSuchKey`].
    pub fn remove_data_key(&mut self, id: u32) -> Result<(), EncryptionError> {
        if self.data_keys.last().is_some_and(|newest| newest.facts.id == id) {
            return Err(EncryptionError::Newest(id));
        }
        let at = self.data_keys.iter().position(|wrapped| wrapped.facts.id == id);
        self.data_keys.remove(at.ok_or(EncryptionError::NoSuchKey(id))?);
        Ok(())
    }

    /// Takes the data keys that another envelope of the same data has and this one has not: those that were retired here since, and those
    /// that are newer there. Nothing is taken if another key wraps them, or if there were too many.
    pub fn take_data_keys(&mut self, other: &Envelope) {
        let is_new = |wrapped: &&Wrapped| self.data_keys.iter().all(|own| own.facts.id != wrapped.facts.id);
        let new: Vec<Wrapped> = other.data_keys.iter().filter(is_new).cloned().collect();
        if other.wrapped_with == self.wrapped_with && self.data_keys.len() + new.len() <= DATA_KEYS_MAX {
            self.data_keys.extend(new);
            self.data_keys.sort_by_key(|wrapped| wrapped.facts.id);
        }
    }

    /// Wraps the same data keys with another key. Errors: those of [`unlock`](Envelope::unlock).
    pub fn wrap_with(
        &mut self,
        (old, provider): (&Secret, &str),
        new: &Secret,
        random: &dyn Randomness,
    ) -> Result<(), EncryptionError> {
        let keys = self.unlock(old, provider)?;
        let wrapped = self.data_keys.iter().zip(&keys).map(|(was, (_, key))| wrap(new, was.facts, key, random));
        self.data_keys = wrapped.collect::<Result<_, _>>()?;
        self.wrapped_with = KeyId::of(new);
        Ok(())
    }

    /// Encodes it.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; HEAD_BYTES];
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[16..20].copy_from_slice(&self.epoch.to_le_bytes());
        out[20..24].copy_from_slice(&(self.data_keys.len() as u32).to_le_bytes());
        out[24..32].copy_from_slice(&self.wrapped_with.0);
        for wrapped in &self.data_keys {
            out.extend_from_slice(&wrapped.facts.encode());
            out.extend_from_slice(&wrapped.nonce);
            out.extend_from_slice(&wrapped.key);
        }
        Envelope::set_checksum(&mut out);
        out
    }

    /// Sets the checksum of 16 bytes or more.
    pub(crate) fn set_checksum(bytes: &mut [u8]) {
        let sum = checksum(bytes);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    }

    /// Decodes it. Errors: [`EnvelopeFault`].
    pub fn decode(bytes: &[u8]) -> Result<Envelope, EnvelopeFault> {
        let head: &[u8; HEAD_BYTES] = bytes.first_chunk().ok_or(EnvelopeFault::Magic)?;
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let count = word(20) as usize;
        if head[..8] != *MAGIC {
            return Err(EnvelopeFault::Magic);
        }
        if word(8) != VERSION {
            return Err(EnvelopeFault::Version(word(8)));
        }
        let (found, computed) = (word(12), checksum(bytes));
        if found != computed {
            return Err(EnvelopeFault::Checksum { found, computed });
        }
        let (entries, rest) = bytes[HEAD_BYTES..].as_chunks::<ENTRY_BYTES>();
        if !(1..=DATA_KEYS_MAX).contains(&count) || entries.len() != count || !rest.is_empty() {
            return Err(EnvelopeFault::Magic);
        }
        let data_keys: Vec<Wrapped> = entries.iter().map(entry_of).collect();
        let ascends = data_keys.windows(2).all(|pair| pair[0].facts.id < pair[1].facts.id);
        let mut wrapped_with = KeyId([0; 8]);
        wrapped_with.0.copy_from_slice(&head[24..32]);
        (ascends && data_keys[0].facts.id > 0).then_some(()).ok_or(EnvelopeFault::Order)?;
        Ok(Envelope { epoch: word(16), wrapped_with, data_keys })
    }
}

fn entry_of(entry: &[u8; ENTRY_BYTES]) -> Wrapped {
    let mut id = [0; 4];
    id.copy_from_slice(&entry[..4]);
    let mut made = [0; 8];
    made.copy_from_slice(&entry[8..FACTS_BYTES]);
    let mut nonce = [0; NONCE_BYTES];
    nonce.copy_from_slice(&entry[FACTS_BYTES..FACTS_BYTES + NONCE_BYTES]);
    let mut key = [0; KEY_BYTES + 16];
    key.copy_from_slice(&entry[FACTS_BYTES + NONCE_BYTES..]);
    Wrapped { facts: DataKeyFacts { id: u32::from_le_bytes(id), made: u64::from_le_bytes(made) }, nonce, key }
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&bytes[..12]);
    digest.update(&bytes[16..]);
    // The digest returns the 32 bits as a u64.
    digest.finalize() as u32
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Random bytes from a seed.
    pub(crate) struct Seeded(RefCell<fastrand::Rng>);

    impl Seeded {
        pub(crate) fn new(seed: u64) -> Seeded {
            Seeded(RefCell::new(fastrand::Rng::with_seed(seed)))
        }
    }

    impl Randomness for Seeded {
        fn fill(&self, bytes: &mut [u8]) -> Result<(), EncryptionError> {
            self.0.borrow_mut().fill(bytes);
            Ok(())
        }
    }

    #[test]
    fn it_reads_what_it_wrote_and_nothing_that_was_changed_or_cut() {
        let (key, random) = (Secret::new([3; 32]), Seeded::new(1));
        let mut envelope = Envelope::new(&key, 77, &random).expect("it is made");
        envelope.add_data_key((&key, "test"), 78, &random).expect("there is room");
        assert_eq!(envelope.next_epoch().ok(), Some(1));
        let bytes = envelope.encode();
        assert_eq!(Envelope::decode(&bytes), Ok(envelope));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(Envelope::decode(&changed).is_err(), "byte {at}");
            assert!(Envelope::decode(&bytes[..at]).is_err(), "cut to {at}");
        }
        assert!(Envelope::decode(&[&bytes[..], &[0]].concat()).is_err(), "longer");
    }

    #[test]
    fn only_the_right_key_unwraps_and_an_error_names_both() {
        let (key, random) = (Secret::new([3; 32]), Seeded::new(1));
        let mut envelope = Envelope::new(&key, 77, &random).expect("it is made");
        let keys = envelope.unlock(&key, "test").expect("the right key");
        let wrong = Secret::new([4; 32]);
        let text = envelope.unlock(&wrong, "file /k").expect_err("a wrong key").to_string();
        assert!(text.contains("file /k") && text.contains(&KeyId::of(&key).to_string()), "{text}");
        assert!(text.contains(&KeyId::of(&wrong).to_string()), "{text}");
        envelope.wrap_with((&key, "test"), &wrong, &random).expect("the right old key");
        assert_eq!(envelope.unlock(&wrong, "test").expect("wrapped with it"), keys, "the data keys stay");
        assert!(envelope.unlock(&key, "test").is_err(), "the old one is of no use any more");
        envelope.data_keys[0].facts.made += 1;
        assert!(matches!(envelope.unlock(&wrong, "test"), Err(EncryptionError::Changed { id: 1 })));
    }

    #[test]
    fn it_takes_keys_that_another_one_of_the_same_data_still_has() {
        let (key, random) = (Secret::new([3; 32]), Seeded::new(1));
        let mut old = Envelope::new(&key, 77, &random).expect("it is made");
        old.add_data_key((&key, "test"), 78, &random).expect("there is room");
        let mut new = old.clone();
        assert_eq!(new.add_data_key((&key, "test"), 79, &random).ok(), Some(3));
        new.remove_data_key(1).expect("it is not the newest");
        let all = |envelope: &Envelope| envelope.unlock(&key, "test").expect("the right key");
        let (mut both, mut reversed) = (new.clone(), old.clone());
        both.take_data_keys(&old);
        reversed.take_data_keys(&new);
        for merged in [&both, &reversed] {
            let ids: Vec<u32> = all(merged).iter().map(|(id, _)| *id).collect();
            assert_eq!(ids, [1, 2, 3]);
            assert_eq!(Envelope::decode(&merged.encode()).as_ref(), Ok(merged));
        }
        assert_eq!(all(&both)[..2], all(&old)[..]);
        let other = Secret::new([4; 32]);
        old.wrap_with((&key, "test"), &other, &random).expect("the right old key");
        let mut none = new.clone();
        none.take_data_keys(&old);
        assert_eq!(none, new, "another key wraps them");
    }

    #[test]
    fn it_takes_a_limited_number_of_data_keys_and_epochs() {
        let (key, random) = (Secret::new([3; 32]), Seeded::new(1));
        let mut envelope = Envelope::new(&key, 0, &random).expect("it is made");
        for id in 2..=DATA_KEYS_MAX as u32 {
            assert_eq!(envelope.add_data_key((&key, "test"), 0, &random).ok(), Some(id));
        }
        assert!(matches!(envelope.add_data_key((&key, "test"), 0, &random), Err(EncryptionError::Full)));
        assert_eq!(envelope.encode().len(), ENVELOPE_BYTES_MAX);
        envelope.epoch = u32::MAX;
        assert!(matches!(envelope.next_epoch(), Err(EncryptionError::Epochs)));
    }
}
