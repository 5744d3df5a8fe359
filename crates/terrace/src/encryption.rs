//! `terrace encryption`: makes a data directory whose store is encrypted, shows its keys and changes them, while no node runs there.
//!
//! The key-encryption key is where `TERRACE_KEY` says. No key is printed or written anywhere in clear.

use std::path::Path;
use std::process::ExitCode;

use ::encryption::{EnvelopeFile, SystemRandomness, create, rotate_data_key, rotate_key_encryption_key};
use anyhow::Context;
use clap::Subcommand;
use node::encryption::{COVERED, NOT_COVERED, provider, provider_of};
use node::{Clock, DirectoryLock, NodeFolder};

use crate::place::Place;
use crate::show::{TextTable, time};

/// `terrace encryption ...`
#[derive(Debug, Subcommand)]
pub enum EncryptionCommand {
    /// Make a new data directory whose store will be encrypted
    ///
    /// A directory with data in clear cannot be made so. TERRACE_KEY says where the key-encryption key is, here and for every later
    /// command on the directory: file:PATH (mode 0600), env:NAME, or command:PROGRAM ARGUMENTS. It is 32 random bytes, raw or as
    /// hexadecimal or base64 text:
    ///
    ///   head -c 32 /dev/urandom > /etc/terrace/key; chmod 600 /etc/terrace/key
    ///   TERRACE_KEY=file:/etc/terrace/key terrace encryption init --data /var/lib/terrace
    ///   TERRACE_KEY=file:/etc/terrace/key terrace serve --data /var/lib/terrace
    ///
    /// Who loses the key, or all copies of encryption.envelope, has lost the data.
    #[command(verbatim_doc_comment)]
    Init(Place),
    /// Show whether a data directory or a backup is encrypted, with which keys, and what that covers; needs no key
    Status(Place),
    /// Make a new data key: what is written from the next start on is encrypted with it
    ///
    /// What was written before stays readable, and is not written again.
    RotateDataKey(Place),
    /// Wrap the data keys with another key-encryption key
    ///
    /// TERRACE_KEY is the old one, --new says where the new one is. Backups keep the envelope of their time: they need the old one.
    RotateKeyEncryptionKey {
        /// Where the new key-encryption key is, as in TERRACE_KEY
        #[arg(long, value_name = "PLACE")]
        new: String,
        #[command(flatten)]
        place: Place,
    },
}

/// Runs one of the commands.
pub fn run(command: EncryptionCommand) -> anyhow::Result<ExitCode> {
    match command {
        EncryptionCommand::Init(place) => init(&place.data)?,
        EncryptionCommand::Status(place) => status(&place.data)?,
        EncryptionCommand::RotateDataKey(place) => {
            let (file, _lock) = unused(&place.data)?;
            let number = rotate_data_key(&file, provider(&place.data)?, now(), &SystemRandomness::default())?;
            println!(
                "data key {number} is used from the next start on; older ones stay, what they encrypted is readable"
            );
        }
        EncryptionCommand::RotateKeyEncryptionKey { new, place } => {
            let new = provider_of(&new)?;
            let (file, _lock) = unused(&place.data)?;
            let envelope =
                rotate_key_encryption_key(&file, provider(&place.data)?, &*new, &SystemRandomness::default())?;
            println!("the data keys are wrapped with {} from {} now", envelope.wrapped_with(), new.name());
            println!("backups that were made before need the old key");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Microseconds since 1970.
fn now() -> u64 {
    u64::try_from(Clock::system().now_us()).unwrap_or_default()
}

/// The envelope of a directory that no node uses.
fn unused(data: &Path) -> anyhow::Result<(EnvelopeFile, DirectoryLock)> {
    let file = EnvelopeFile::of(data);
    file.read_existing()?;
    let lock = DirectoryLock::acquire(data).context("`terrace stop` the node first")?;
    Ok((file, lock))
}

fn init(data: &Path) -> anyhow::Result<()> {
    let provider = provider(data)?;
    anyhow::ensure!(
        NodeFolder::find(data).is_err(),
        "{} has data already, in clear: data is encrypted from its beginning or not at all",
        data.display()
    );
    let _lock = DirectoryLock::acquire(data)?;
    let file = EnvelopeFile::of(data);
    let envelope = create(&file, provider, now(), &SystemRandomness::default())?;
    println!(
        "{} is made: its data key is wrapped with {} from {}",
        file.path().display(),
        envelope.wrapped_with(),
        provider.name()
    );
    println!("encrypted: {COVERED}\nnot encrypted: {NOT_COVERED}");
    println!("keep the key, and a copy of the envelope, elsewhere: without both the data cannot be read by anyone");
    Ok(())
}

fn status(data: &Path) -> anyhow::Result<()> {
    let Some(envelope) = EnvelopeFile::of(data).read()? else {
        println!("{} is not encrypted", data.display());
        return Ok(());
    };
    println!("encrypted: {COVERED}\nnot encrypted: {NOT_COVERED}\n");
    println!("wrapped with {}; opened {} times", envelope.wrapped_with(), envelope.epoch());
    let mut table = TextTable::new(&["data key", "made"]);
    for key in envelope.data_keys() {
        table.row(&[&key.id.to_string(), &time(i64::try_from(key.made).unwrap_or(i64::MAX))]);
    }
    print!("{table}");
    Ok(())
}
