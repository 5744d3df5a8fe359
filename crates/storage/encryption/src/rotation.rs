//! Changing the keys of a data directory: of one that no process uses, and of one that is open.
//!
//! | | stopped | open ([`Sealer`]) |
//! |---|---|---|
//! | new data key | seals from the next opening on | seals at once, in an opening of its own |
//! | new key-encryption key | wraps the same data keys | the same; nothing else changes |
//! | a data key is retired | it is taken out of the envelope | refused: what is needed is known only at rest |
//!
//! Order, in a directory that is open: the new envelope, with the new data key and the next epoch, is durable before the sealer knows
//! the key. So every epoch that seals is in the file, as it is at an opening; a crash in between leaves a data key and an epoch without
//! sealed bytes. The new opening has random bits of its own, and a counter that begins at 0. A seal that was begun before ends with the
//! old opening and that one's counter. Nobody waits: the keys are replaced as one pointer.
//!
//! While somebody [holds the keys](Sealer::hold_keys), which a backup does, changes are refused. Providers are asked before that is looked
//! at: one that hangs holds up the change, and no backup.

use std::sync::TryLockError;

use crate::envelope::Envelope;
use crate::error::EncryptionError;
use crate::opening::EnvelopeFile;
use crate::provider::KeyProvider;
use crate::sealer::{Keys, Sealer};
use crate::secret::Randomness;

/// Adds a data key, with which the next opening seals. Errors: as [`open`](crate::open), [`EncryptionError::Full`].
pub fn rotate_data_key(
    file: &EnvelopeFile,
    provider: &dyn KeyProvider,
    made: u64,
    random: &dyn Randomness,
) -> Result<u32, EncryptionError> {
    let mut envelope = file.read_existing()?;
    let id = envelope.add_data_key((&provider.key()?, &provider.name()), made, random)?;
    file.write(&envelope)?;
    Ok(id)
}

/// Wraps the data keys with another key. The old key still opens old copies of the envelope, in backups. Errors: as
/// [`open`](crate::open).
pub fn rotate_key_encryption_key(
    file: &EnvelopeFile,
    old: &dyn KeyProvider,
    new: &dyn KeyProvider,
    random: &dyn Randomness,
) -> Result<Envelope, EncryptionError> {
    let mut envelope = file.read_existing()?;
    envelope.wrap_with((&old.key()?, &old.name()), &new.key()?, random)?;
    file.write(&envelope)?;
    Ok(envelope)
}

/// Takes a data key out of the envelope. The caller has made sure that nothing sealed with it is needed. What is left of it on a medium
/// that keeps old blocks can be unwrapped with the key-encryption key of now: who wants it erased changes that one too, and destroys
/// it. Errors: as [`open`](crate::open), [`EncryptionError::Newest`], [`EncryptionError::NoSuchKey`].
pub fn retire_data_key(file: &EnvelopeFile, provider: &dyn KeyProvider, id: u32) -> Result<(), EncryptionError> {
    let mut envelope = file.read_existing()?;
    envelope.unlock(&provider.key()?, &provider.name())?;
    envelope.remove_data_key(id)?;
    file.write(&envelope)
}

impl Sealer {
    /// Makes a data key and seals with it from now on; its number. `file` is the envelope that this was opened with, in a directory
    /// whose lock the caller has. Errors: as [`open`](crate::open), [`EncryptionError::Full`], [`EncryptionError::Held`]; nothing was
    /// changed.
    pub fn rotate_data_key(
        &self,
        file: &EnvelopeFile,
        provider: &dyn KeyProvider,
        made: u64,
        random: &dyn Randomness,
    ) -> Result<u32, EncryptionError> {
        // Ahead of the lock: a provider that hangs holds up nobody else who needs the keys to stay.
        let key = provider.key()?;
        self.change(file, |_, mut envelope| {
            let id = envelope.add_data_key((&key, &provider.name()), made, random)?;
            let data_keys = envelope.unlock(&key, &provider.name())?;
            let mut drawn = [0; 8];
            random.fill(&mut drawn)?;
            let epoch = envelope.next_epoch()?;
            file.write(&envelope)?;
            Ok((Keys::of_opening(data_keys, epoch, u64::from_le_bytes(drawn)).with_envelope(envelope), id))
        })
    }

    /// Wraps the data keys with another key; `file` as in [`rotate_data_key`](Sealer::rotate_data_key). The opening goes on. Errors: as
    /// there.
    pub fn rotate_key_encryption_key(
        &self,
        file: &EnvelopeFile,
        old: &dyn KeyProvider,
        new: &dyn KeyProvider,
        random: &dyn Randomness,
    ) -> Result<Envelope, EncryptionError> {
        let (old_key, new_key) = (old.key()?, new.key()?);
        self.change(file, |keys, mut envelope| {
            envelope.wrap_with((&old_key, &old.name()), &new_key, random)?;
            file.write(&envelope)?;
            Ok((keys.in_envelope(envelope.clone()), envelope))
        })
    }

    /// Replaces the keys by what `change` makes of them and of their envelope.
    fn change<T>(
        &self,
        file: &EnvelopeFile,
        change: impl FnOnce(&Keys, Envelope) -> Result<(Keys, T), EncryptionError>,
    ) -> Result<T, EncryptionError> {
        let _alone = match self.changes.try_write() {
            Ok(alone) => alone,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(EncryptionError::Held),
        };
        let keys = self.keys();
        // That of this process, not the file's: nobody else changes it, and a file that was lost comes back.
        let envelope = keys.envelope().cloned().ok_or_else(|| EncryptionError::Missing(file.path().to_owned()))?;
        let (keys, made) = change(&keys, envelope)?;
        self.replace(keys);
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::envelope::tests::Seeded;
    use crate::opening::tests::Given;
    use crate::opening::{create, open, open_to_read};
    use crate::sealer::SEAL_BYTES;

    fn sealed(sealer: &Sealer) -> Vec<u8> {
        let mut bytes = [&b"body"[..], &[0; SEAL_BYTES]].concat();
        sealer.seal(b"here", &mut bytes);
        bytes
    }

    /// Data key, epoch, random bits and counter.
    fn stamp(bytes: &[u8]) -> &[u8] {
        &bytes[bytes.len() - 24..]
    }

    #[test]
    fn a_data_key_made_while_others_seal_is_used_at_once_in_an_opening_that_is_durable_and_no_stamp_is_given_twice() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, random) = (EnvelopeFile::of(folder.path()), Seeded::new(1));
        create(&file, &Given(1), 7, &random).expect("it is made");
        let sealer = open(&file, &Given(1), &random).expect("the right key");
        let first = sealed(&sealer);
        let stop = AtomicBool::new(false);
        let seals = |sealer: &Sealer| {
            let mut all = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                all.push(sealed(sealer));
            }
            all
        };
        let all: Vec<Vec<u8>> = std::thread::scope(|scope| {
            let sealing: Vec<_> = (0..3).map(|_| scope.spawn(|| seals(&sealer))).collect();
            for id in 2..=9 {
                assert_eq!(sealer.rotate_data_key(&file, &Given(1), 8, &random).ok(), Some(id));
                let durable = file.read_existing().expect("it is whole");
                assert_eq!((durable.epoch(), sealer.epoch(), sealer.mark().id), (id, Some(id), id));
                assert_eq!(stamp(&sealed(&sealer))[..4], id.to_le_bytes(), "at once");
            }
            stop.store(true, Ordering::Relaxed);
            sealing.into_iter().flat_map(|thread| thread.join().expect("it seals")).collect()
        });
        let stamps: HashSet<&[u8]> = all.iter().chain([&first]).map(|bytes| stamp(bytes)).collect();
        assert_eq!(stamps.len(), all.len() + 1);
        let reading = open_to_read(&file, &Given(1)).expect("the right key");
        for bytes in all.iter().chain([&first]) {
            assert!(
                sealer.open(b"here", &mut bytes.clone()).is_ok() && reading.open(b"here", &mut bytes.clone()).is_ok()
            );
        }
    }

    #[test]
    fn a_new_key_encryption_key_changes_neither_the_opening_nor_its_counter() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, random) = (EnvelopeFile::of(folder.path()), Seeded::new(1));
        create(&file, &Given(1), 7, &random).expect("it is made");
        let sealer = open(&file, &Given(1), &random).expect("the right key");
        let before = sealed(&sealer);
        sealer.rotate_key_encryption_key(&file, &Given(1), &Given(2), &random).expect("the right key");
        let after = sealed(&sealer);
        assert_eq!(stamp(&before)[..16], stamp(&after)[..16], "one opening");
        assert_ne!(stamp(&before)[16..], stamp(&after)[16..], "the counter goes on");
        assert!(open_to_read(&file, &Given(1)).is_err());
        assert!(open_to_read(&file, &Given(2)).expect("the new key").open(b"here", &mut after.clone()).is_ok());
        assert_eq!(sealer.envelope(), Some(file.read_existing().expect("it is whole")));
    }

    /// A provider that answers once somebody else could hold the keys.
    #[derive(Debug)]
    struct Waiting(std::sync::Arc<Sealer>);

    impl KeyProvider for Waiting {
        fn name(&self) -> String {
            "waiting".to_owned()
        }

        fn key(&self) -> Result<crate::Secret, EncryptionError> {
            let (sealer, (held, is_held)) = (std::sync::Arc::clone(&self.0), std::sync::mpsc::channel());
            std::thread::spawn(move || {
                drop(sealer.hold_keys());
                held.send(()).expect("the test waits");
            });
            is_held.recv_timeout(std::time::Duration::from_secs(10)).expect("nobody has the lock meanwhile");
            Given(1).key()
        }
    }

    #[test]
    fn a_provider_that_takes_its_time_keeps_nobody_from_holding_the_keys() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, random) = (EnvelopeFile::of(folder.path()), Seeded::new(1));
        create(&file, &Given(1), 7, &random).expect("it is made");
        let sealer = open(&file, &Given(1), &random).expect("the right key");
        let waiting = Waiting(std::sync::Arc::clone(&sealer));
        assert_eq!(sealer.rotate_data_key(&file, &waiting, 8, &random).ok(), Some(2));
        sealer.rotate_key_encryption_key(&file, &waiting, &Given(2), &random).expect("the right key");
        sealer.rotate_key_encryption_key(&file, &Given(2), &waiting, &random).expect("the right key");
    }

    #[test]
    fn a_wrong_key_a_held_key_and_a_file_that_cannot_be_written_change_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, random) = (EnvelopeFile::of(folder.path()), Seeded::new(1));
        create(&file, &Given(1), 7, &random).expect("it is made");
        let sealer = open(&file, &Given(1), &random).expect("the right key");
        let before = (sealer.envelope(), sealer.mark(), sealer.epoch());
        assert!(matches!(sealer.rotate_data_key(&file, &Given(2), 8, &random), Err(EncryptionError::WrongKey { .. })));
        let held = sealer.hold_keys();
        assert!(matches!(sealer.rotate_data_key(&file, &Given(1), 8, &random), Err(EncryptionError::Held)));
        drop(held);
        let nowhere = EnvelopeFile::of(&folder.path().join("nowhere"));
        assert!(sealer.rotate_data_key(&nowhere, &Given(1), 8, &random).is_err());
        assert!(sealer.rotate_key_encryption_key(&nowhere, &Given(1), &Given(2), &random).is_err());
        assert_eq!((sealer.envelope(), sealer.mark(), sealer.epoch()), before);
        assert_eq!(sealer.envelope(), Some(file.read_existing().expect("it is whole")));
    }

    #[test]
    fn what_was_opened_names_its_data_keys_and_a_retired_one_opens_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, random) = (EnvelopeFile::of(folder.path()), Seeded::new(1));
        create(&file, &Given(1), 7, &random).expect("it is made");
        let sealer = open(&file, &Given(1), &random).expect("the right key");
        let mut all = vec![sealed(&sealer)];
        for _ in 0..2 {
            sealer.rotate_data_key(&file, &Given(1), 8, &random).expect("the right key");
            all.push(sealed(&sealer));
        }
        let reading = open_to_read(&file, &Given(1)).expect("the right key");
        assert_eq!(reading.opened_with(), [0; 0]);
        for bytes in [&all[2], &all[0], &all[0]] {
            reading.open(b"here", &mut bytes.clone()).expect("it is known");
        }
        assert_eq!(reading.opened_with(), [1, 3]);
        assert!(matches!(retire_data_key(&file, &Given(1), 3), Err(EncryptionError::Newest(3))));
        assert!(matches!(retire_data_key(&file, &Given(1), 9), Err(EncryptionError::NoSuchKey(9))));
        assert!(retire_data_key(&file, &Given(2), 1).is_err(), "the wrong key");
        retire_data_key(&file, &Given(1), 1).expect("it is not the newest");
        let reading = open_to_read(&file, &Given(1)).expect("the right key");
        assert!(reading.open(b"here", &mut all[0].clone()).is_err());
        assert!(
            reading.open(b"here", &mut all[1].clone()).is_ok() && reading.open(b"here", &mut all[2].clone()).is_ok()
        );
        assert_eq!(open(&file, &Given(1), &random).expect("the right key").mark().id, 3);
    }
}
