//! The arguments of `terrace encryption`.

use clap::{Args, Subcommand};
use interop::production::units::Bytes;

use crate::place::Place;

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
    Status {
        /// Read all that is stored, which needs the key, and show which data keys it is encrypted with
        #[arg(long)]
        in_use: bool,
        #[command(flatten)]
        place: Place,
    },
    /// Make a new data key; a node that runs encrypts with it from now on, a stopped one from its next start on
    ///
    /// What was written before stays readable with its key, until `terrace encryption rewrite` writes it anew.
    RotateDataKey(Place),
    /// Have a node that runs write anew, with the newest data key, what older ones have encrypted
    ///
    /// Pages, values, index files and the journal, in the background and at a limited rate, while messages, SQL and search go on. What a
    /// crash or a restart interrupts goes on at the next start. The command shows how far it is; if it is ended, the node goes on, and
    /// `terrace encryption status` shows it too. Then nothing needs an older data key:
    ///
    ///   terrace encryption rotate-data-key
    ///   terrace encryption rewrite --rate 100MiB
    ///   terrace stop
    ///   terrace encryption retire-data-key 1
    ///
    /// It takes as much more space, for a while, as values have that were rewritten since the last checkpoint and that open snapshots see.
    /// Volumes have keys of their own (`terrace volume rekey`); backups stay as they are.
    #[command(verbatim_doc_comment)]
    Rewrite(RewriteArgs),
    /// Wrap the data keys with another key-encryption key, also of a node that runs
    ///
    /// TERRACE_KEY is the old one, --new says where the new one is: for the node, if one runs. Set TERRACE_KEY to that place before its
    /// next start. Backups keep the envelope of their time: they need the old one.
    RotateKeyEncryptionKey {
        /// Where the new key-encryption key is, as in TERRACE_KEY
        #[arg(long, value_name = "PLACE")]
        new: String,
        #[command(flatten)]
        place: Place,
    },
    /// Remove a data key that nothing is encrypted with any more, of a stopped node
    ///
    /// All that is stored is read first; `terrace encryption rewrite` writes anew what still needs it. What old blocks and backups still have of it cannot be read with this envelope; older copies of
    /// the envelope have the key: wrap the data keys with a new key-encryption key, and destroy the old one.
    RetireDataKey {
        /// Its number
        number: u32,
        #[command(flatten)]
        place: Place,
    },
}

/// `terrace encryption rewrite`
#[derive(Debug, Args)]
pub struct RewriteArgs {
    /// Bytes a second that are read and written for it at most; also of one that runs
    #[arg(long, value_name = "SIZE", default_value = "32MiB")]
    pub rate: Bytes,
    /// Give up journal of older keys that only `[journal] keep` still holds: backups cannot be brought up to moments in it any more.
    /// Without it, rewriting waits until so much journal was written after it
    #[arg(long)]
    pub drop_kept_journal: bool,
    /// End the one that runs: what was written anew stays, and the next one goes on there
    #[arg(long, conflicts_with_all = ["rate", "detach", "drop_kept_journal"])]
    pub stop: bool,
    /// Return at once, and do not show how far it is
    #[arg(long)]
    pub detach: bool,
    #[command(flatten)]
    pub place: Place,
}
