//! Opening a data directory's envelope, and making one.
//!
//! The file is replaced whole: written beside, flushed, renamed, and the folder flushed. A crash leaves the old one or the new one. The
//! caller holds the lock of the data directory: two processes must not write one envelope.
//!
//! Order of an opening: the provider is asked, the data keys are unwrapped (a wrong key ends here, nothing was written), the next epoch is
//! made durable, and only then is there a sealer.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::envelope::{ENVELOPE_BYTES_MAX, Envelope};
use crate::error::EncryptionError;
use crate::provider::KeyProvider;
use crate::sealer::Sealer;
use crate::secret::Randomness;

/// The name of the envelope in a data directory, and in a backup.
pub const ENVELOPE_NAME: &str = "encryption.envelope";

/// The envelope of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvelopeFile {
    folder: PathBuf,
    path: PathBuf,
}

impl EnvelopeFile {
    /// That of a folder; it need not be there.
    pub fn of(folder: &Path) -> EnvelopeFile {
        EnvelopeFile { folder: folder.into(), path: folder.join(ENVELOPE_NAME) }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn io(&self) -> impl Fn(std::io::Error) -> EncryptionError + '_ {
        |source| EncryptionError::Io { path: self.path.clone(), source }
    }

    /// Reads it; `None` if there is none. Errors: [`EncryptionError::Envelope`], [`EncryptionError::Io`].
    pub fn read(&self) -> Result<Option<Envelope>, EncryptionError> {
        let file = match File::open(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file.map_err(self.io())?,
        };
        let mut bytes = Vec::new();
        file.take(ENVELOPE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(self.io())?;
        let envelope = Envelope::decode(&bytes);
        envelope.map(Some).map_err(|fault| EncryptionError::Envelope { path: self.path.clone(), fault })
    }

    /// As [`read`](EnvelopeFile::read). Errors: [`EncryptionError::Missing`] too.
    pub fn read_existing(&self) -> Result<Envelope, EncryptionError> {
        self.read()?.ok_or_else(|| EncryptionError::Missing(self.path.clone()))
    }

    /// Replaces it; durable when this returns. Errors: [`EncryptionError::Io`]; the old one is there, or the new one.
    pub fn write(&self, envelope: &Envelope) -> Result<(), EncryptionError> {
        let beside = self.path.with_extension("new");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&beside).map_err(self.io())?;
        file.write_all(&envelope.encode()).map_err(self.io())?;
        file.sync_all().map_err(self.io())?;
        drop(file);
        std::fs::rename(&beside, &self.path).map_err(self.io())?;
        File::open(&self.folder).and_then(|folder| folder.sync_all()).map_err(self.io())
    }
}

/// Makes an envelope with one data key. Errors: [`EncryptionError::Exists`], those of the provider, [`EncryptionError::Io`].
pub fn create(
    file: &EnvelopeFile,
    provider: &dyn KeyProvider,
    made: u64,
    random: &dyn Randomness,
) -> Result<Envelope, EncryptionError> {
    if file.read()?.is_some() {
        return Err(EncryptionError::Exists(file.path.clone()));
    }
    let envelope = Envelope::new(&provider.key()?, made, random)?;
    file.write(&envelope)?;
    Ok(envelope)
}

/// Opens a data directory to write: the next epoch is durable before this returns.
///
/// Errors: [`EncryptionError::Missing`], [`EncryptionError::WrongKey`] and the others of unwrapping (nothing was written),
/// [`EncryptionError::Io`].
pub fn open(
    file: &EnvelopeFile,
    provider: &dyn KeyProvider,
    random: &dyn Randomness,
) -> Result<Arc<Sealer>, EncryptionError> {
    let mut envelope = file.read_existing()?;
    let keys = envelope.unlock(&provider.key()?, &provider.name())?;
    let mut drawn = [0; 8];
    random.fill(&mut drawn)?;
    let epoch = envelope.next_epoch()?;
    file.write(&envelope)?;
    Ok(Arc::new(Sealer::new(keys, epoch, u64::from_le_bytes(drawn)).with_envelope(envelope)))
}

/// Opens a data directory, or a backup, to read only: nothing is written. Errors: as [`open`].
pub fn open_to_read(file: &EnvelopeFile, provider: &dyn KeyProvider) -> Result<Arc<Sealer>, EncryptionError> {
    let envelope = file.read_existing()?;
    let keys = envelope.unlock(&provider.key()?, &provider.name())?;
    Ok(Arc::new(Sealer::to_read(keys).with_envelope(envelope)))
}

/// Opens a data directory, or a backup, for a process that recovers in memory: nothing is written, and what is sealed must never reach
/// a medium, because no epoch is taken. Errors: as [`open`].
pub fn open_in_memory(
    file: &EnvelopeFile,
    provider: &dyn KeyProvider,
    random: &dyn Randomness,
) -> Result<Arc<Sealer>, EncryptionError> {
    open_envelope_in_memory(file.read_existing()?, provider, random)
}

/// The same of an envelope that lies in no file. Errors: as [`open`].
pub fn open_envelope_in_memory(
    envelope: Envelope,
    provider: &dyn KeyProvider,
    random: &dyn Randomness,
) -> Result<Arc<Sealer>, EncryptionError> {
    let keys = envelope.unlock(&provider.key()?, &provider.name())?;
    let mut drawn = [0; 8];
    random.fill(&mut drawn)?;
    // No opening has epoch 0.
    Ok(Arc::new(Sealer::new(keys, 0, u64::from_le_bytes(drawn)).with_envelope(envelope)))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::envelope::tests::Seeded;
    use crate::rotation::{rotate_data_key, rotate_key_encryption_key};
    use crate::sealer::SEAL_BYTES;
    use crate::secret::Secret;

    /// A provider of the key of these bytes.
    #[derive(Debug)]
    pub(crate) struct Given(pub(crate) u8);

    impl KeyProvider for Given {
        fn name(&self) -> String {
            format!("test {}", self.0)
        }

        fn key(&self) -> Result<Secret, EncryptionError> {
            Ok(Secret::new([self.0; 32]))
        }
    }

    fn sealed(sealer: &Sealer) -> Vec<u8> {
        let mut bytes = [&b"body"[..], &[0; SEAL_BYTES]].concat();
        sealer.seal(b"here", &mut bytes);
        bytes
    }

    #[test]
    fn each_opening_has_the_next_epoch_and_reads_what_earlier_ones_sealed() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, random) = (EnvelopeFile::of(folder.path()), Seeded::new(1));
        assert!(matches!(open(&file, &Given(1), &random), Err(EncryptionError::Missing(_))));
        create(&file, &Given(1), 7, &random).expect("it is made");
        assert!(matches!(create(&file, &Given(1), 7, &random), Err(EncryptionError::Exists(_))));
        let mut old: Vec<Vec<u8>> = Vec::new();
        for epoch in 1..=4 {
            // An opening that seals nothing, as after a crash right behind the flush of its epoch, is only a gap.
            let sealer = open(&file, &Given(1), &random).expect("the right key");
            assert_eq!((sealer.epoch(), file.read_existing().expect("it is whole").epoch()), (Some(epoch), epoch));
            old.iter_mut().for_each(|bytes| assert!(sealer.open(b"here", &mut bytes.clone()).is_ok()));
            if epoch != 2 {
                old.push(sealed(&sealer));
            }
        }
        let reading = open_to_read(&file, &Given(1)).expect("the right key");
        assert!(old.iter().all(|bytes| reading.open(b"here", &mut bytes.clone()).is_ok()));
        assert_eq!(file.read_existing().expect("it is whole").epoch(), 4, "reading takes no epoch");
    }

    #[test]
    fn a_wrong_key_is_refused_by_name_and_changes_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, random) = (EnvelopeFile::of(folder.path()), Seeded::new(1));
        create(&file, &Given(1), 7, &random).expect("it is made");
        let before = std::fs::read(file.path()).expect("it is there");
        let error = open(&file, &Given(2), &random).expect_err("the wrong key").to_string();
        assert!(error.contains("test 2"), "{error}");
        assert!(rotate_data_key(&file, &Given(2), 7, &random).is_err());
        assert!(rotate_key_encryption_key(&file, &Given(2), &Given(3), &random).is_err());
        assert!(open_to_read(&file, &Given(2)).is_err());
        assert_eq!(std::fs::read(file.path()).expect("it is there"), before);
    }

    #[test]
    fn after_each_rotation_old_bytes_can_be_read_and_new_ones_have_the_new_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, random) = (EnvelopeFile::of(folder.path()), Seeded::new(1));
        create(&file, &Given(1), 7, &random).expect("it is made");
        let first = sealed(&open(&file, &Given(1), &random).expect("the right key"));
        assert_eq!(rotate_data_key(&file, &Given(1), 8, &random).ok(), Some(2));
        rotate_key_encryption_key(&file, &Given(1), &Given(2), &random).expect("the right key");
        assert!(open(&file, &Given(1), &random).is_err(), "the old key-encryption key is of no use");
        let sealer = open(&file, &Given(2), &random).expect("the new key");
        assert!(sealer.open(b"here", &mut first.clone()).is_ok());
        assert_eq!(sealer.mark().id, 2);
        assert_eq!(
            file.read_existing().expect("whole").data_keys().iter().map(|key| key.made).collect::<Vec<_>>(),
            [7, 8]
        );
    }

    #[test]
    fn two_copies_of_a_directory_do_not_share_a_key_although_they_share_an_epoch() {
        let (one, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let (left, right, random) = (EnvelopeFile::of(one.path()), EnvelopeFile::of(other.path()), Seeded::new(1));
        create(&left, &Given(1), 7, &random).expect("it is made");
        std::fs::copy(left.path(), right.path()).expect("it is copied");
        let (a, b) = (open(&left, &Given(1), &random), open(&right, &Given(1), &random));
        let (a, b) = (a.expect("the right key"), b.expect("the right key"));
        assert_eq!(a.epoch(), b.epoch());
        assert_ne!(sealed(&a)[..4], sealed(&b)[..4], "another key stream");
    }

    #[test]
    fn a_changed_or_cut_envelope_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let (file, random) = (EnvelopeFile::of(folder.path()), Seeded::new(1));
        create(&file, &Given(1), 7, &random).expect("it is made");
        let whole = std::fs::read(file.path()).expect("it is there");
        for bytes in [&whole[..50], &[]] {
            std::fs::write(file.path(), bytes).expect("it is written");
            let error = open(&file, &Given(1), &random).expect_err("it is cut").to_string();
            assert!(error.contains(ENVELOPE_NAME) && error.contains("copy"), "{error}");
        }
    }
}
