//! The errors of identities, named by what the caller can do about them.

/// Why a role or a right was not changed, or cannot be read. None contains a secret.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// The name cannot be used: choose another.
    #[error("`{name}` cannot be a name here: {why}")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// There is no such role: see the list.
    #[error("role \"{0}\" does not exist")]
    NoRole(String),
    /// The role exists: choose another name.
    #[error("role \"{0}\" already exists")]
    RoleExists(String),
    /// A role would contain itself.
    #[error("role \"{member}\" cannot become a member of \"{role}\", which is a member of it")]
    Cycle {
        /// The role.
        role: String,
        /// The new member.
        member: String,
    },
    /// The change would leave no administrator who can log in: give another role the attribute first.
    #[error(
        "this would leave no administrator who can log in: make another one first (`terrace user add NAME --administrator`)"
    )]
    LastAdministrator,
    /// The node's own role cannot be changed.
    #[error("\"{0}\" is the node's own role: it cannot be changed or dropped")]
    Builtin(String),
    /// Other rights depend on it: revoke those first, or all of them with CASCADE.
    #[error("{count} other grants depend on this one: revoke them first, or use CASCADE")]
    Dependents {
        /// How many.
        count: usize,
    },
    /// The role owns objects: drop them, or give them to another role.
    #[error("role \"{role}\" owns {count} objects, among them {first}: drop them or reassign them first")]
    Owner {
        /// The role.
        role: String,
        /// How many objects.
        count: usize,
        /// One of them.
        first: String,
    },
    /// The action cannot be granted on that object.
    #[error("{0}")]
    Ungrantable(String),
    /// The password is not allowed: choose another.
    #[error("the password is not allowed: {0}")]
    Password(&'static str),
    /// The value is not allowed: correct it.
    #[error("{0}")]
    Invalid(String),
    /// Whoever asks has no right to change this.
    #[error("permission denied: {0}")]
    Denied(String),
    /// Other users of the settings were imported before: use the commands.
    #[error(
        "[sql.users] was imported before and has been changed since: users are now in the store; `terrace user add NAME`, \
         `terrace user password NAME` and `terrace user drop NAME` change them; remove [sql.users] from the settings"
    )]
    Imported,
    /// Others change roles at the same time, again and again: try again.
    #[error("roles and rights are being changed by others: try again")]
    Busy,
    /// Stored rows cannot be read: see `terrace verify`.
    #[error("the stored roles and rights cannot be read: {0}")]
    Unreadable(String),
    /// There is no memory to hash a password: try again.
    #[error("there is no memory to hash a password: try again")]
    Memory,
    /// The system returned no random bytes.
    #[error("the system returned no random bytes")]
    Randomness,
    /// The store failed.
    #[error("store: {0}")]
    Store(#[from] store::StoreError),
}
