//! [`Sealer`]: seals bytes with the key of this opening, and opens bytes of every opening.
//!
//! ```text
//!   | body, encrypted in place | tag 16 | data key u32 | epoch u32 | random u64 | counter u64 |
//!                                        `------------------ stamp, 24 bytes ----------------'
//!   key    HKDF-SHA-256(data key, salt = epoch and random, "terrace opening")
//!   nonce  epoch u32 | counter u64
//!   AAD    stamp's data key and random, then what the caller names: structure, place, version
//! ```
//!
//! Numbers are little endian. The head comment of the crate has the reasons. Invariant: within one opening no counter is used twice; the
//! one that would overflow ends the process, which would take 584 years at a thousand million a second.
//!
//! What is known of keys is one value that is replaced whole, when keys are changed while this is used ([`rotation`](crate::rotation)).
//! Opening and counter are one object: a seal takes its number from the opening that it uses, also if another one is put in its place
//! meanwhile.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, Tag, UnboundKey};

use crate::envelope::Envelope;
use crate::error::SealFault;
use crate::secret::Secret;

/// Bytes of a tag, with which a seal begins.
pub const TAG_BYTES: usize = 16;
/// Bytes of a stamp.
const STAMP_BYTES: usize = 24;
/// What sealing adds.
pub const SEAL_BYTES: usize = TAG_BYTES + STAMP_BYTES;
/// Bytes of an encoded [`KeyMark`].
pub const MARK_BYTES: usize = 12;

/// Keys of former openings that are kept ready. More are derived again when they are needed.
const READY_MAX: usize = 1024;
/// Longest associated data, with the stamp's part.
const AAD_BYTES_MAX: usize = 64;

/// Tells which data key something is sealed with, so that a wrong envelope is noticed before anything is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyMark {
    /// The number of the data key.
    pub id: u32,
    /// Derived from it.
    pub check: [u8; 8],
}

impl KeyMark {
    /// For a header.
    pub fn encode(&self) -> [u8; MARK_BYTES] {
        let mut out = [0; MARK_BYTES];
        out[..4].copy_from_slice(&self.id.to_le_bytes());
        out[4..].copy_from_slice(&self.check);
        out
    }

    /// From a header.
    pub fn decode(bytes: &[u8; MARK_BYTES]) -> KeyMark {
        let (id, check) = bytes.split_first_chunk().expect("it is longer");
        KeyMark { id: u32::from_le_bytes(*id), check: *check.first_chunk().expect("eight are left") }
    }

    /// Of a data key with this number.
    pub fn of(id: u32, key: &Secret) -> KeyMark {
        KeyMark { id, check: *key.derive::<8>(&id.to_le_bytes(), b"terrace data key mark") }
    }
}

/// The number of the data key that a seal was made with, as it says itself.
pub fn data_key_of(seal: &[u8; SEAL_BYTES]) -> u32 {
    u32::from_le_bytes(*seal[TAG_BYTES..].first_chunk().expect("a stamp has more bytes"))
}

/// One opening of a data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Opening {
    data_key: u32,
    epoch: u32,
    random: u64,
}

/// An opening that seals, with its counter.
struct Sealing {
    opening: Opening,
    key: LessSafeKey,
    counter: AtomicU64,
}

/// The keys at one moment.
pub(crate) struct Keys {
    /// By number, ascending.
    data_keys: Vec<(u32, Secret)>,
    marks: Vec<KeyMark>,
    /// `None`: it only opens.
    sealing: Option<Arc<Sealing>>,
    /// What is durable in the file.
    envelope: Option<Envelope>,
}

/// Seals and opens; shared by all structures of a node. Nothing is locked while bytes are encrypted.
pub struct Sealer {
    keys: RwLock<Arc<Keys>>,
    ready: RwLock<HashMap<Opening, Arc<LessSafeKey>>>,
    /// A bit for each data key, in their order, of which something was opened.
    opened: AtomicU64,
    /// Held for reading by who needs that keys stay, for writing while they change.
    pub(crate) changes: RwLock<()>,
}

/// As long as this lives, keys do not change: what is copied meanwhile can be opened with the envelope of before.
#[derive(Debug)]
pub struct HeldKeys<'a> {
    _guard: RwLockReadGuard<'a, ()>,
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer").field("sealing", &self.keys().sealing.as_ref().map(|sealing| sealing.opening)).finish()
    }
}

fn key_of(data_key: &Secret, opening: Opening) -> LessSafeKey {
    let mut salt = [0; 12];
    salt[..4].copy_from_slice(&opening.epoch.to_le_bytes());
    salt[4..].copy_from_slice(&opening.random.to_le_bytes());
    let key = data_key.derive::<32>(&salt, b"terrace opening");
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &*key).expect("32 bytes are a key of AES-256"))
}

fn nonce_of(epoch: u32, counter: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[..4].copy_from_slice(&epoch.to_le_bytes());
    nonce[4..].copy_from_slice(&counter.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

/// What a seal says: its tag, the opening that made it, and the nonce.
fn parts_of(seal: &[u8; SEAL_BYTES]) -> ([u8; TAG_BYTES], Opening, Nonce) {
    let (tag, stamp) = seal.split_first_chunk::<TAG_BYTES>().expect("a seal begins with a tag");
    let word = |at: usize| u32::from_le_bytes([stamp[at], stamp[at + 1], stamp[at + 2], stamp[at + 3]]);
    let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
    let opening = Opening { data_key: word(0), epoch: word(4), random: long(8) };
    (*tag, opening, nonce_of(opening.epoch, long(16)))
}

/// The associated data: the key's part of the stamp, then the caller's. The rest of the stamp is in the nonce.
struct Associated {
    bytes: [u8; AAD_BYTES_MAX],
    len: usize,
}

impl Associated {
    fn new(opening: Opening, place: &[u8]) -> Associated {
        let mut bytes = [0; AAD_BYTES_MAX];
        bytes[..4].copy_from_slice(&opening.data_key.to_le_bytes());
        bytes[4..12].copy_from_slice(&opening.random.to_le_bytes());
        bytes[12..12 + place.len()].copy_from_slice(place);
        Associated { bytes, len: 12 + place.len() }
    }
}

impl AsRef<[u8]> for Associated {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Keys {
    /// Those of an opening whose epoch is durable in the envelope. `data_keys` ascend by number; the last one seals.
    ///
    /// # Panics
    /// Without data keys.
    pub(crate) fn of_opening(data_keys: Vec<(u32, Secret)>, epoch: u32, random: u64) -> Keys {
        let (id, key) = data_keys.last().expect("an envelope has a data key");
        let opening = Opening { data_key: *id, epoch, random };
        let sealing = Sealing { opening, key: key_of(key, opening), counter: AtomicU64::new(0) };
        Keys { sealing: Some(Arc::new(sealing)), ..Keys::to_read(data_keys) }
    }

    /// Those of who only opens.
    fn to_read(data_keys: Vec<(u32, Secret)>) -> Keys {
        let marks = data_keys.iter().map(|(id, key)| KeyMark::of(*id, key)).collect();
        Keys { data_keys, marks, sealing: None, envelope: None }
    }

    /// The same that knows its envelope.
    pub(crate) fn with_envelope(self, envelope: Envelope) -> Keys {
        Keys { envelope: Some(envelope), ..self }
    }

    /// The same keys and the same opening, with its counter, of another envelope.
    pub(crate) fn in_envelope(&self, envelope: Envelope) -> Keys {
        Keys {
            data_keys: self.data_keys.clone(),
            marks: self.marks.clone(),
            sealing: self.sealing.clone(),
            envelope: Some(envelope),
        }
    }

    /// Their envelope.
    pub(crate) fn envelope(&self) -> Option<&Envelope> {
        self.envelope.as_ref()
    }
}

impl From<Keys> for Sealer {
    fn from(keys: Keys) -> Sealer {
        Sealer {
            keys: RwLock::new(Arc::new(keys)),
            ready: RwLock::default(),
            opened: AtomicU64::new(0),
            changes: RwLock::default(),
        }
    }
}

impl Sealer {
    /// A sealer for an opening whose epoch is durable in the envelope. `data_keys` ascend by number; the last one seals.
    ///
    /// # Panics
    /// Without data keys.
    pub(crate) fn new(data_keys: Vec<(u32, Secret)>, epoch: u32, random: u64) -> Sealer {
        Keys::of_opening(data_keys, epoch, random).into()
    }

    /// A sealer for an opening whose epoch something else than an envelope keeps: the caller has made durable that no other opening with
    /// these data keys has the same `epoch`, before this is called, and draws `random`. `data_keys` ascend by number; the last one seals.
    ///
    /// # Panics
    /// Without data keys.
    pub fn for_opening(data_keys: Vec<(u32, Secret)>, epoch: u32, random: u64) -> Sealer {
        Sealer::new(data_keys, epoch, random)
    }

    /// One that only opens: for tools that write nothing, and so need no epoch.
    pub(crate) fn to_read(data_keys: Vec<(u32, Secret)>) -> Sealer {
        Keys::to_read(data_keys).into()
    }

    /// The same that knows its envelope.
    pub(crate) fn with_envelope(self, envelope: Envelope) -> Sealer {
        let keys = self.keys().in_envelope(envelope);
        keys.into()
    }

    /// The keys as they are now.
    pub(crate) fn keys(&self) -> Arc<Keys> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts other keys in the place of those there. The number of each data key that stays is where it was.
    pub(crate) fn replace(&self, keys: Keys) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
    }

    /// The envelope as it is now, to be put beside a copy of the data; `None` of a sealer for tests. Who copies data [holds the
    /// keys](Sealer::hold_keys) ahead of this until the copy is complete.
    pub fn envelope(&self) -> Option<Envelope> {
        self.keys().envelope.clone()
    }

    /// Keeps keys from changing.
    pub fn hold_keys(&self) -> HeldKeys<'_> {
        HeldKeys { _guard: self.changes.read().unwrap_or_else(PoisonError::into_inner) }
    }

    /// A sealer with a fixed key, for tests and benchmarks of the structures above.
    #[doc(hidden)]
    pub fn for_tests(key: u8, epoch: u32, random: u64) -> Arc<Sealer> {
        Arc::new(Sealer::new(vec![(1, Secret::new([key; 32]))], epoch, random))
    }

    /// Begins another opening of the same data keys, as a change of keys does, in tests of the structures above.
    #[doc(hidden)]
    pub fn begin_opening_for_tests(&self, epoch: u32, random: u64) {
        self.replace(Keys::of_opening(self.keys().data_keys.clone(), epoch, random));
    }

    /// Makes another data key and seals with it from now on, as a change of keys does, in tests of the structures above.
    #[doc(hidden)]
    pub fn begin_data_key_for_tests(&self, key: u8, epoch: u32) {
        let mut data_keys = self.keys().data_keys.clone();
        let id = data_keys.last().map_or(1, |(id, _)| id + 1);
        data_keys.push((id, Secret::new([key; 32])));
        self.replace(Keys::of_opening(data_keys, epoch, 0));
    }

    /// A sealer with fixed data keys of these numbers, for tests of the structures above.
    #[doc(hidden)]
    pub fn with_data_keys_for_tests(data_keys: &[(u32, u8)], epoch: u32) -> Arc<Sealer> {
        let data_keys = data_keys.iter().map(|(id, key)| (*id, Secret::new([*key; 32]))).collect();
        Arc::new(Sealer::new(data_keys, epoch, 0))
    }

    /// The numbers of the data keys that there are, ascending; the last one seals.
    pub fn data_keys(&self) -> Vec<u32> {
        self.keys().data_keys.iter().map(|(id, _)| *id).collect()
    }

    /// The mark of the data key that seals; of the newest one if this only opens.
    pub fn mark(&self) -> KeyMark {
        *self.keys().marks.last().expect("there is a data key")
    }

    /// The epoch of this opening; `None` if this only opens.
    pub fn epoch(&self) -> Option<u32> {
        self.keys().sealing.as_ref().map(|sealing| sealing.opening.epoch)
    }

    /// The numbers of the data keys with which something was sealed that this has opened, and of the marks that it has checked. After
    /// all that is stored was read, those that are needed.
    pub fn opened_with(&self) -> Vec<u32> {
        let (keys, opened) = (self.keys(), self.opened.load(Ordering::Relaxed));
        keys.data_keys.iter().enumerate().filter(|(at, _)| opened >> at & 1 == 1).map(|(_, (id, _))| *id).collect()
    }

    /// Whether this can open what is marked so. Errors: [`SealFault::UnknownKey`], [`SealFault::OtherKey`].
    pub fn check(&self, mark: KeyMark) -> Result<(), SealFault> {
        let keys = self.keys();
        match keys.marks.iter().find(|known| known.id == mark.id) {
            None => Err(SealFault::UnknownKey(mark.id)),
            Some(known) if known.check == mark.check => {
                self.count_opened(&keys, mark.id);
                Ok(())
            }
            Some(_) => Err(SealFault::OtherKey(mark.id)),
        }
    }

    /// Encrypts `bytes` in place, except the last [`SEAL_BYTES`], which become the seal. `place` says what it is and where it belongs:
    /// it must be given again to open it.
    ///
    /// # Panics
    /// If there is no room for the seal, if `place` has more than 52 bytes, or if this only opens.
    pub fn seal(&self, place: &[u8], bytes: &mut [u8]) {
        let body = bytes.len().checked_sub(SEAL_BYTES).expect("there is room for the seal");
        let (body, seal) = bytes.split_at_mut(body);
        seal.copy_from_slice(&self.seal_apart(place, body));
    }

    /// Encrypts all of `body` in place, and returns its seal: for what is stored with its seal somewhere else.
    ///
    /// # Panics
    /// If `place` has more than 52 bytes, or if this only opens.
    pub fn seal_apart(&self, place: &[u8], body: &mut [u8]) -> [u8; SEAL_BYTES] {
        let keys = self.keys();
        let Sealing { opening, key, counter } = &**keys.sealing.as_ref().expect("who only reads seals nothing");
        let counter = counter.fetch_add(1, Ordering::Relaxed);
        assert!(counter < u64::MAX, "a counter is never used twice");
        let associated = Aad::from(Associated::new(*opening, place));
        let tag = key.seal_in_place_separate_tag(nonce_of(opening.epoch, counter), associated, body);
        let tag = tag.expect("less than 64 GiB are sealed at once");
        let mut seal = [0; SEAL_BYTES];
        let (tag_place, stamp) = seal.split_at_mut(TAG_BYTES);
        tag_place.copy_from_slice(tag.as_ref());
        stamp[..4].copy_from_slice(&opening.data_key.to_le_bytes());
        stamp[4..8].copy_from_slice(&opening.epoch.to_le_bytes());
        stamp[8..16].copy_from_slice(&opening.random.to_le_bytes());
        stamp[16..].copy_from_slice(&counter.to_le_bytes());
        seal
    }

    /// Encrypts a body in place that was opened with this seal, and is unchanged since: it is as it was before. The nonce is used again,
    /// with the same bytes, which gives the same ciphertext and says nothing new. Other bytes are refused, and must not be stored: the
    /// caller forgets what is in `body` then.
    ///
    /// Errors: [`SealFault`].
    pub fn seal_again(&self, place: &[u8], body: &mut [u8], seal: &[u8; SEAL_BYTES]) -> Result<(), SealFault> {
        let (tag, opening, nonce) = parts_of(seal);
        let associated = Aad::from(Associated::new(opening, place));
        let keys = self.keys();
        let again = match &keys.sealing {
            Some(mine) if mine.opening == opening => mine.key.seal_in_place_separate_tag(nonce, associated, body),
            _ => self.key(&keys, opening)?.seal_in_place_separate_tag(nonce, associated, body),
        };
        let again = again.expect("less than 64 GiB are sealed at once");
        if again.as_ref() == tag { Ok(()) } else { Err(SealFault::Tag) }
    }

    /// Decrypts sealed bytes in place, and returns the body. After an error the bytes are undefined.
    ///
    /// Errors: [`SealFault`].
    pub fn open<'a>(&self, place: &[u8], bytes: &'a mut [u8]) -> Result<&'a mut [u8], SealFault> {
        let (body, seal) = bytes.split_last_chunk_mut::<SEAL_BYTES>().ok_or(SealFault::Short)?;
        self.open_apart(place, body, seal)?;
        Ok(body)
    }

    /// Decrypts a body in place whose seal lies somewhere else. After an error the bytes are undefined.
    ///
    /// Errors: [`SealFault`].
    pub fn open_apart(&self, place: &[u8], body: &mut [u8], seal: &[u8; SEAL_BYTES]) -> Result<(), SealFault> {
        let (tag, opening, nonce) = parts_of(seal);
        let (tag, associated) = (Tag::from(tag), Aad::from(Associated::new(opening, place)));
        let keys = self.keys();
        let opened = match &keys.sealing {
            Some(mine) if mine.opening == opening => {
                mine.key.open_in_place_separate_tag(nonce, associated, tag, body, 0..)
            }
            _ => self.key(&keys, opening)?.open_in_place_separate_tag(nonce, associated, tag, body, 0..),
        };
        opened.map_err(|_| SealFault::Tag)?;
        self.count_opened(&keys, opening.data_key);
        Ok(())
    }

    /// Notes that a data key is needed.
    fn count_opened(&self, keys: &Keys, data_key: u32) {
        // An envelope has 64 at most, as a word has bits.
        let bit = keys.marks.iter().position(|mark| mark.id == data_key).map_or(0, |at| 1 << at);
        if self.opened.load(Ordering::Relaxed) & bit != bit {
            self.opened.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// The key of another opening.
    fn key(&self, keys: &Keys, opening: Opening) -> Result<Arc<LessSafeKey>, SealFault> {
        if let Some(key) = self.ready.read().unwrap_or_else(PoisonError::into_inner).get(&opening) {
            return Ok(Arc::clone(key));
        }
        let data_key = keys.data_keys.iter().find(|(id, _)| *id == opening.data_key);
        let (_, data_key) = data_key.ok_or(SealFault::UnknownKey(opening.data_key))?;
        let key = Arc::new(key_of(data_key, opening));
        let mut ready = self.ready.write().unwrap_or_else(PoisonError::into_inner);
        if ready.len() >= READY_MAX {
            ready.clear();
        }
        ready.insert(opening, Arc::clone(&key));
        Ok(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(sealer: &Sealer, place: &[u8], body: &[u8]) -> Vec<u8> {
        let mut bytes = [body, &[0; SEAL_BYTES]].concat();
        sealer.seal(place, &mut bytes);
        bytes
    }

    #[test]
    fn what_is_sealed_opens_at_its_place_and_no_changed_byte_and_no_other_place_does() {
        let sealer = Sealer::for_tests(1, 5, 9);
        for body in [&b""[..], b"x", &[7; 1000]] {
            let whole = sealed(&sealer, b"here", body);
            assert_eq!(sealer.open(b"here", &mut whole.clone()).as_deref(), Ok(&mut body.to_vec()[..]).as_deref());
            assert_eq!(sealer.open(b"there", &mut whole.clone()), Err(SealFault::Tag));
            for at in 0..whole.len() {
                let mut changed = whole.clone();
                changed[at] ^= 1;
                assert!(sealer.open(b"here", &mut changed).is_err(), "byte {at}");
            }
            for bytes in 0..whole.len() {
                assert!(sealer.open(b"here", &mut whole[..bytes].to_vec()).is_err(), "cut to {bytes}");
            }
        }
    }

    #[test]
    fn a_seal_that_lies_apart_is_the_one_that_lies_behind() {
        let sealer = Sealer::for_tests(1, 5, 9);
        let mut body = b"a body".to_vec();
        let seal = sealer.seal_apart(b"here", &mut body);
        assert_ne!(body, b"a body");
        let mut whole = [&body[..], &seal].concat();
        assert_eq!(sealer.open(b"here", &mut whole).map(|body| body.to_vec()), Ok(b"a body".to_vec()));
        assert_eq!(sealer.open_apart(b"there", &mut body.clone(), &seal), Err(SealFault::Tag));
        assert_eq!(sealer.open_apart(b"here", &mut body, &seal), Ok(()));
        assert_eq!(body, b"a body");
    }

    #[test]
    fn what_was_opened_is_sealed_again_as_it_was_and_anything_else_is_refused() {
        let (sealer, later) = (Sealer::for_tests(1, 5, 9), Sealer::for_tests(1, 6, 3));
        let mut stored = *b"a body of some length";
        let seal = sealer.seal_apart(b"here", &mut stored);
        for sealer in [&sealer, &later] {
            let mut body = stored;
            sealer.open_apart(b"here", &mut body, &seal).expect("it is as it was");
            let mut again = body;
            assert_eq!(sealer.seal_again(b"here", &mut again, &seal), Ok(()));
            assert_eq!(again, stored);
            assert_eq!(sealer.seal_again(b"there", &mut body.clone(), &seal), Err(SealFault::Tag));
            body[3] ^= 1;
            assert_eq!(sealer.seal_again(b"here", &mut body, &seal), Err(SealFault::Tag));
        }
        assert_eq!(
            Sealer::for_tests(1, 5, 9).seal_again(b"here", &mut stored.clone(), &[7; SEAL_BYTES]),
            Err(SealFault::UnknownKey(0x0707_0707))
        );
    }

    #[test]
    fn no_stamp_is_given_twice_and_equal_bodies_differ() {
        let sealer = Sealer::for_tests(1, 5, 9);
        let all: Vec<Vec<u8>> = (0..100).map(|_| sealed(&sealer, b"", b"the same body")).collect();
        let stamps: std::collections::HashSet<&[u8]> = all.iter().map(|bytes| &bytes[bytes.len() - 24..]).collect();
        let bodies: std::collections::HashSet<&[u8]> = all.iter().map(|bytes| &bytes[..13]).collect();
        assert_eq!((stamps.len(), bodies.len()), (100, 100));
    }

    #[test]
    fn two_openings_with_one_epoch_have_different_keys_and_read_each_other() {
        // A directory that was copied: both copies open with the same epoch.
        let (one, other) = (Sealer::for_tests(1, 5, 9), Sealer::for_tests(1, 5, 10));
        let (left, right) = (sealed(&one, b"", &[0; 64]), sealed(&other, b"", &[0; 64]));
        assert_ne!(left[..64], right[..64], "the key stream is another one although nonces are equal");
        assert_eq!(other.open(b"", &mut left.clone()).map(|body| body.to_vec()), Ok(vec![0; 64]));
        assert_eq!(one.open(b"", &mut right.clone()).map(|body| body.to_vec()), Ok(vec![0; 64]));
    }

    #[test]
    fn old_data_keys_still_open_and_unknown_ones_are_named() {
        let keys = |ids: &[u32]| ids.iter().map(|id| (*id, Secret::new([*id as u8; 32]))).collect::<Vec<_>>();
        let old = Sealer::new(keys(&[1]), 1, 1);
        let new = Sealer::new(keys(&[1, 2]), 2, 2);
        let (first, second) = (sealed(&old, b"", b"body"), sealed(&new, b"", b"body"));
        assert_eq!(new.open(b"", &mut first.clone()).map(|body| body.to_vec()), Ok(b"body".to_vec()));
        assert_eq!(old.open(b"", &mut second.clone()), Err(SealFault::UnknownKey(2)));
        assert_eq!((new.check(old.mark()), old.check(new.mark())), (Ok(()), Err(SealFault::UnknownKey(2))));
        assert_eq!(Sealer::for_tests(9, 1, 1).check(old.mark()), Err(SealFault::OtherKey(1)));
        assert_eq!(KeyMark::decode(&new.mark().encode()), new.mark());
        let reading = Sealer::to_read(keys(&[1, 2]));
        assert_eq!(reading.open(b"", &mut second.clone()).map(|body| body.to_vec()), Ok(b"body".to_vec()));
        assert_eq!((reading.epoch(), new.epoch()), (None, Some(2)));
    }

    #[test]
    fn keys_of_many_openings_do_not_fill_memory() {
        let reading = Sealer::to_read(vec![(1, Secret::new([1; 32]))]);
        for epoch in 0..3000 {
            let bytes = sealed(&Sealer::for_tests(1, epoch, 1), b"", b"body");
            assert!(reading.open(b"", &mut bytes.clone()).is_ok());
        }
        assert!(reading.ready.read().expect("nobody panicked").len() <= READY_MAX);
    }
}
