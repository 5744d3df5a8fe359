//! Hashes of passwords that come as they are (HTTP, the command line): argon2id, in the PHC form that others read too,
//! `$argon2id$v=19$m=19456,t=2,p=1$SALT$HASH`.
//!
//! Parameters: 19 MiB of memory, two passes, one lane: the first choice of OWASP's Password Storage Cheat Sheet that
//! leaves room for many logins at once (read 2026-11). A stored hash is checked with its own parameters, within
//! bounds, so that these can be raised; a hash that is not of today's parameters is [`PasswordHash::is_outdated`].
//!
//! Invariant: unknown users cost as much as wrong passwords, when [`PasswordHash::dummy`] is checked for them.

use std::fmt;
use std::str::FromStr;

use argon2::{Algorithm, Argon2, Params, Version};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD as BASE64;
use serde::{Deserialize, Serialize};

use super::error::IdentityError;
use super::scram::{self, PASSWORD_BYTES_MAX};

/// Memory, in KiB.
const MEMORY_KIB: u32 = 19 * 1024;

/// Passes over it.
const PASSES: u32 = 2;

/// Lanes.
const LANES: u32 = 1;

/// Most memory, in KiB, that a stored hash may ask for: a row that was tampered with must not exhaust the machine.
const MEMORY_KIB_MAX: u32 = 64 * 1024;

/// Most passes that a stored hash may ask for.
const PASSES_MAX: u32 = 16;

const SALT_BYTES: usize = 16;
const HASH_BYTES: usize = 32;

/// The argon2id hash of a password.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PasswordHash {
    memory_kib: u32,
    passes: u32,
    lanes: u32,
    salt: Vec<u8>,
    hash: [u8; HASH_BYTES],
}

impl fmt::Debug for PasswordHash {
    /// Leaves out salt and hash: they do not belong in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash")
    }
}

impl PasswordHash {
    /// The hash of a password, with a new salt. Takes some 20 ms of a processor and 19 MiB.
    ///
    /// Errors: [`IdentityError::Randomness`], [`IdentityError::Memory`].
    pub fn of(password: &str) -> Result<PasswordHash, IdentityError> {
        let mut salt = vec![0; SALT_BYTES];
        scram::random(&mut salt).map_err(|_| IdentityError::Randomness)?;
        let mut made =
            PasswordHash { memory_kib: MEMORY_KIB, passes: PASSES, lanes: LANES, salt, hash: [0; HASH_BYTES] };
        made.hash = made.derived(password)?;
        Ok(made)
    }

    /// A hash that no password is known for.
    ///
    /// Errors: [`IdentityError::Randomness`].
    pub fn dummy() -> Result<PasswordHash, IdentityError> {
        let (mut salt, mut hash) = (vec![0; SALT_BYTES], [0; HASH_BYTES]);
        scram::random(&mut salt).and_then(|()| scram::random(&mut hash)).map_err(|_| IdentityError::Randomness)?;
        Ok(PasswordHash { memory_kib: MEMORY_KIB, passes: PASSES, lanes: LANES, salt, hash })
    }

    /// Whether this is the password. Hashes are compared in constant time. No password is longer than 1,024 bytes, so
    /// nothing is hashed for one that is.
    ///
    /// Errors: [`IdentityError::Memory`]: whether it is the password is not known.
    pub fn check(&self, password: &str) -> Result<bool, IdentityError> {
        if password.len() > PASSWORD_BYTES_MAX {
            return Ok(false);
        }
        Ok(scram::same(&self.derived(password)?, &self.hash))
    }

    /// Whether its parameters are not today's: it is made again at the next login.
    pub fn is_outdated(&self) -> bool {
        (self.memory_kib, self.passes, self.lanes) != (MEMORY_KIB, PASSES, LANES)
    }

    fn derived(&self, password: &str) -> Result<[u8; HASH_BYTES], IdentityError> {
        // Parameters are within bounds since they were read, so what fails is the memory.
        let params = Params::new(self.memory_kib, self.passes, self.lanes, Some(HASH_BYTES));
        let params = params.map_err(|_| IdentityError::Memory)?;
        let mut hash = [0; HASH_BYTES];
        let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        argon.hash_password_into(password.as_bytes(), &self.salt, &mut hash).map_err(|_| IdentityError::Memory)?;
        Ok(hash)
    }
}

impl fmt::Display for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (salt, hash) = (BASE64.encode(&self.salt), BASE64.encode(self.hash));
        write!(f, "$argon2id$v=19$m={},t={},p={}${salt}${hash}", self.memory_kib, self.passes, self.lanes)
    }
}

impl FromStr for PasswordHash {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<PasswordHash, IdentityError> {
        let read = || {
            let (params, rest) = text.strip_prefix("$argon2id$v=19$")?.split_once('$')?;
            let (salt, hash) = rest.split_once('$')?;
            let mut numbers = ["m=", "t=", "p="]
                .iter()
                .zip(params.split(','))
                .map(|(tag, given)| given.strip_prefix(tag)?.parse::<u32>().ok());
            let (memory_kib, passes, lanes) = (numbers.next()??, numbers.next()??, numbers.next()??);
            let within = (8..=MEMORY_KIB_MAX).contains(&memory_kib) && (1..=PASSES_MAX).contains(&passes) && lanes == 1;
            let salt = BASE64.decode(salt).ok().filter(|salt| (8..=64).contains(&salt.len()))?;
            let hash = BASE64.decode(hash).ok()?.try_into().ok()?;
            (within && params.split(',').count() == 3).then_some(PasswordHash { memory_kib, passes, lanes, salt, hash })
        };
        read().ok_or_else(|| {
            IdentityError::Unreadable("a hash of a password is not argon2id's, or beyond its bounds".into())
        })
    }
}

impl From<PasswordHash> for String {
    fn from(hash: PasswordHash) -> String {
        hash.to_string()
    }
}

impl TryFrom<String> for PasswordHash {
    type Error = IdentityError;

    fn try_from(text: String) -> Result<PasswordHash, IdentityError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(hash: &PasswordHash, password: &str) -> bool {
        hash.check(password).expect("there is memory")
    }

    #[test]
    fn what_cannot_be_hashed_is_an_error_and_no_wrong_password_and_long_passwords_are_not_hashed() {
        let broken = PasswordHash { memory_kib: 0, ..PasswordHash::dummy().expect("there is randomness") };
        assert!(matches!(broken.check("correct horse"), Err(IdentityError::Memory)));
        assert!(matches!(broken.check(&"x".repeat(1025)), Ok(false)), "it was not hashed");
    }

    // From the tests of the reference implementation (phc-winner-argon2, src/test.c).
    #[test]
    fn a_hash_of_the_reference_implementation_is_checked() {
        let text = "$argon2id$v=19$m=65536,t=2,p=1$c29tZXNhbHQ$CTFhFdXPJO1aFaMaO6Mm5c8y7cJHAph8ArZWb2GRPPc";
        let hash: PasswordHash = text.parse().expect("it is one");
        assert!(checked(&hash, "password") && !checked(&hash, "passwort") && hash.is_outdated());
        assert_eq!(hash.to_string(), text);
    }

    #[test]
    fn hashes_are_read_as_they_are_written_and_name_owasps_parameters() {
        let hash = PasswordHash::of("correct horse").expect("there is memory");
        let text = hash.to_string();
        assert!(text.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{text}");
        assert_eq!(text.parse::<PasswordHash>().expect("it is one"), hash);
        assert!(checked(&hash, "correct horse") && !checked(&hash, "correct hors") && !checked(&hash, ""));
        assert!(!hash.is_outdated());
        assert_ne!(PasswordHash::of("correct horse").expect("again"), hash, "each has its own salt");
    }

    #[test]
    fn hashes_that_would_exhaust_the_machine_or_are_others_are_refused() {
        let good = PasswordHash::dummy().expect("there is randomness").to_string();
        assert!(good.parse::<PasswordHash>().is_ok());
        for (from, to) in [
            ("m=19456", "m=65537"),
            ("m=19456", "m=4000000"),
            ("t=2", "t=1000"),
            ("t=2", "t=0"),
            ("argon2id", "argon2i"),
            ("p=1", "p=9"),
        ] {
            assert!(good.replace(from, to).parse::<PasswordHash>().is_err(), "{to}");
        }
        for broken in ["", "$argon2id$v=19$", "$argon2id$v=19$m=19456,t=2$AAAA$AAAA", &good[..good.len() - 3]] {
            assert!(broken.parse::<PasswordHash>().is_err(), "{broken}");
        }
    }
}
