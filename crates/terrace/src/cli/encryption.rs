//! The arguments of `terrace encryption`.

use clap::Subcommand;

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
    /// What was written before stays readable, and is not written again.
    RotateDataKey(Place),
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
    /// All that is stored is read first. What old blocks and backups still have of it cannot be read with this envelope; older copies of
    /// the envelope have the key: wrap the data keys with a new key-encryption key, and destroy the old one.
    RetireDataKey {
        /// Its number
        number: u32,
        #[command(flatten)]
        place: Place,
    },
}
