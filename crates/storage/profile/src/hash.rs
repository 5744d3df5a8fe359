//! Hashes of page numbers and keys with a secret salt: what a profile has in their place.
//!
//! The hash is SipHash-2-4, which is keyed: without the salt nobody finds out which page or key a hash stands for, however few there are.
//! The salt is drawn for each profile and stored nowhere. The same hash decides what is sampled.

#![expect(deprecated, reason = "the only keyed SipHash of the standard library that takes its key")]

use std::hash::{Hasher, SipHasher};
use std::io::{self, Read};

/// The secret of a profile.
#[derive(Clone, Copy)]
pub struct Salt(u64, u64);

impl Salt {
    /// A salt that nobody knows.
    ///
    /// # Errors
    /// Those of reading the system's random numbers.
    pub fn secret() -> io::Result<Salt> {
        let mut bytes = [0; 16];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        let (low, high) = bytes.split_at(8);
        let number = |half: &[u8]| half.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        Ok(Salt(number(low), number(high)))
    }

    /// The salt of a seed, so that a run can be repeated: not secret.
    pub fn of_seed(seed: u64) -> Salt {
        let mut random = fastrand::Rng::with_seed(seed);
        Salt(random.u64(..), random.u64(..))
    }

    /// Its two keys, for whoever hashes elsewhere. They must not be stored, nor printed.
    pub fn keys(self) -> (u64, u64) {
        (self.0, self.1)
    }

    /// The salt of these [keys](Salt::keys).
    pub fn of_keys((first, second): (u64, u64)) -> Salt {
        Salt(first, second)
    }

    /// The hash of a number.
    #[inline]
    pub fn hash(self, number: u64) -> u64 {
        let mut hasher = SipHasher::new_with_keys(self.0, self.1);
        hasher.write_u64(number);
        hasher.finish()
    }
}

impl std::fmt::Debug for Salt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Salt")
    }
}

/// A number for a name or a key of a trace, before it is salted: not secret.
pub fn number_of(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher::new_with_keys(0, 0);
    hasher.write(bytes);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_depend_on_number_and_salt_alone() {
        let (one, two) = (Salt::of_seed(1), Salt::of_seed(2));
        assert_eq!(one.hash(5), Salt::of_seed(1).hash(5));
        assert_ne!(one.hash(5), one.hash(6));
        assert_ne!(one.hash(5), two.hash(5));
        let (a, b) = (Salt::secret().expect("random"), Salt::secret().expect("random"));
        assert_ne!(a.hash(5), b.hash(5), "drawn anew each time");
    }
}
