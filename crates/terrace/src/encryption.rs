//! `terrace encryption`: makes a data directory whose store is encrypted, shows its keys and changes them: by the node that runs there,
//! or by itself.
//!
//! The key-encryption key is where `TERRACE_KEY` says; a node that runs asks the provider of its own. No key is printed or written
//! anywhere in clear.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use ::encryption::{
    EnvelopeFile, SystemRandomness, create, retire_data_key, rotate_data_key, rotate_key_encryption_key,
};
use anyhow::Context;
use node::audit::{AuditEntry, AuditOutcome, pending};
use node::control::LocalPeer;
use node::encryption::{COVERED, KeyChange, NOT_COVERED, provider, provider_of};
use node::{Clock, DirectoryLock, NodeFolder, control};

use crate::cli::EncryptionCommand;
use crate::rewrite_command;
use crate::show::{TextTable, time};

/// Runs one of the commands.
pub fn run(command: EncryptionCommand) -> anyhow::Result<ExitCode> {
    match command {
        EncryptionCommand::Init(place) => init(&place.data)?,
        EncryptionCommand::Status { in_use, place } => status(&place.data, in_use)?,
        EncryptionCommand::RotateDataKey(place) if control::is_running(&place.data) => {
            let answer = control::request(&place.data, &KeyChange::request(None))?;
            println!(
                "the node encrypts with data key {} from now on; older ones stay, what they encrypted is readable",
                answer["data_key"]
            );
        }
        EncryptionCommand::RotateDataKey(place) => {
            let (file, _lock) = unused(&place.data)?;
            let provider = provider(&place.data)?;
            let number = noted(&place.data, AuditEntry::of_keys(&KeyChange::DataKey), || {
                Ok(rotate_data_key(&file, &*provider, now(), &SystemRandomness::default())?)
            })?;
            println!(
                "data key {number} is used from the next start on; older ones stay, what they encrypted is readable"
            );
        }
        EncryptionCommand::Rewrite(args) => return rewrite_command::run(&args),
        EncryptionCommand::RotateKeyEncryptionKey { new, place } => rotate_key(&new, &place.data)?,
        EncryptionCommand::RetireDataKey { number, place } => retire(number, &place.data)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn rotate_key(new: &str, data: &Path) -> anyhow::Result<()> {
    let provider_of_new = provider_of(new)?;
    let (wrapped_with, from) = if control::is_running(data) {
        // The node is in another folder.
        let place = match new.split_once(':') {
            Some(("file", path)) => format!("file:{}", std::path::absolute(path)?.display()),
            _ => new.to_owned(),
        };
        let answer = control::request(data, &KeyChange::request(Some(&place)))?;
        let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
        (text("wrapped_with"), text("from"))
    } else {
        let (file, _lock) = unused(data)?;
        let (random, old) = (SystemRandomness::default(), provider(data)?);
        let entry = AuditEntry::of_keys(&KeyChange::KeyEncryptionKey(Arc::clone(&provider_of_new)));
        let envelope = noted(data, entry, || Ok(rotate_key_encryption_key(&file, &*old, &*provider_of_new, &random)?))?;
        (envelope.wrapped_with().to_string(), provider_of_new.name())
    };
    println!("the data keys are wrapped with {wrapped_with} from {from} now");
    println!("TERRACE_KEY has to name that place at the next start; backups that were made before need the old key");
    Ok(())
}

fn retire(number: u32, data: &Path) -> anyhow::Result<()> {
    let envelope = EnvelopeFile::of(data).read_existing()?;
    anyhow::ensure!(
        envelope.data_keys().iter().any(|key| key.id == number),
        "{} has no data key {number}; `terrace encryption status` shows those that it has",
        data.display()
    );
    let used = in_use(data)?;
    anyhow::ensure!(
        !used.contains(&number),
        "data key {number} is needed: something that is stored is encrypted with it. `terrace encryption rewrite` writes it anew while \
         the node runs; `terrace encryption status --in-use` shows which data keys are needed"
    );
    // A node cannot have started between the two with anything older than its newest key.
    let (file, _lock) = unused(data)?;
    let provider = provider(data)?;
    let entry = AuditEntry::new("encryption.retire-data-key", "").with("data_key", number.to_string());
    noted(data, entry, || Ok(retire_data_key(&file, &*provider, number)?))?;
    println!("data key {number} is removed from {}", file.path().display());
    println!(
        "older copies of the envelope, in backups and on old blocks, still have it, wrapped with the key-encryption key of their time"
    );
    Ok(())
}

/// The numbers of the data keys that something is encrypted with.
fn in_use(data: &Path) -> anyhow::Result<Vec<u32>> {
    let used = NodeFolder::find(data)?.data_keys_in_use(&mut |_| ())?;
    let used = used.with_context(|| format!("{} is not encrypted", data.display()))?;
    // Index files lie outside the store, and their seals in it.
    let (store, _lock) = interop::history::open_stopped(data)?;
    let mut all = crate::search::data_keys_in_use(&store)?;
    all.extend(used);
    Ok(all.into_iter().collect())
}

/// Does something to the keys of a stopped node, whose lock the caller has. It is noted before, and if it fails after: the next start of
/// the node enters that into its audit.
fn noted<T>(data: &Path, entry: AuditEntry, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let entry = entry.by(&LocalPeer::this_process());
    let note = |entry: &AuditEntry| pending::note(data, Clock::system().now_us(), entry);
    note(&entry).context("nothing was changed: it cannot be noted for the audit")?;
    let done = work();
    if let Err(error) = &done
        && let Err(why) = note(&entry.ended(AuditOutcome::Failed, format!("{error:#}")))
    {
        eprintln!("warning: that it failed cannot be noted for the audit: {why}");
    }
    done
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
    let provider = &*provider(data)?;
    anyhow::ensure!(
        EnvelopeFile::of(data).read()?.is_none(),
        "{} is encrypted already: `terrace encryption status` shows its keys",
        data.display()
    );
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

fn status(data: &Path, shows_use: bool) -> anyhow::Result<()> {
    let Some(envelope) = EnvelopeFile::of(data).read()? else {
        println!("{} is not encrypted", data.display());
        return Ok(());
    };
    println!("encrypted: {COVERED}\nnot encrypted: {NOT_COVERED}\n");
    println!("wrapped with {}; {} openings", envelope.wrapped_with(), envelope.epoch());
    let used = shows_use.then(|| in_use(data)).transpose()?;
    let mut table = TextTable::new(&["data key", "made", "in use"]);
    for key in envelope.data_keys() {
        let is_used = match &used {
            None => "not looked for",
            Some(used) if used.contains(&key.id) => "yes",
            Some(_) => "no",
        };
        table.row(&[&key.id.to_string(), &time(i64::try_from(key.made).unwrap_or(i64::MAX)), is_used]);
    }
    print!("{table}");
    if let Some(last) = rewrite_command::last(data)? {
        println!("{}", rewrite_command::line(&last));
    }
    Ok(())
}
