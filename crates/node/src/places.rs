//! [`RolePlaces`]: places for costly work, of which all roles have a few, and each role fewer, so that one user does not keep out the others.
//!
//! Nobody waits for a place: who gets none is told so at once. A place is free again when its [`RolePlace`] is dropped.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::identity::RoleId;

/// See the module's text. Clones share their places.
#[derive(Clone, Debug)]
pub struct RolePlaces {
    all: usize,
    of_role: usize,
    taken: Arc<Mutex<HashMap<RoleId, usize>>>,
}

/// A place that is taken, until it is dropped.
#[derive(Debug)]
pub struct RolePlace {
    taken: Arc<Mutex<HashMap<RoleId, usize>>>,
    role: RoleId,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPlace {
    /// All are taken: so many.
    OfAll(usize),
    /// The role has as many as one may have: so many.
    OfRole(usize),
}

fn lock(taken: &Mutex<HashMap<RoleId, usize>>) -> MutexGuard<'_, HashMap<RoleId, usize>> {
    taken.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RolePlaces {
    /// So many for all roles together, and so many of them for one.
    pub fn new(all: usize, of_role: usize) -> RolePlaces {
        RolePlaces { all, of_role, taken: Arc::default() }
    }

    /// Takes a place for a role.
    ///
    /// # Errors
    /// There is none.
    pub fn take(&self, role: RoleId) -> Result<RolePlace, NoPlace> {
        let mut taken = lock(&self.taken);
        let own = taken.get(&role).copied().unwrap_or(0);
        if own >= self.of_role {
            return Err(NoPlace::OfRole(self.of_role));
        }
        if taken.values().sum::<usize>() >= self.all {
            return Err(NoPlace::OfAll(self.all));
        }
        taken.insert(role, own + 1);
        Ok(RolePlace { taken: Arc::clone(&self.taken), role })
    }
}

impl Drop for RolePlace {
    fn drop(&mut self) {
        let mut taken = lock(&self.taken);
        if let Some(own) = taken.get_mut(&self.role) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.role);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_role_leaves_places_to_others_and_a_place_that_is_dropped_is_free() {
        let places = RolePlaces::new(3, 2);
        let (one, other) = (RoleId(100), RoleId(101));
        let first = places.take(one).expect("it is free");
        let _second = places.take(one).expect("it is free");
        assert_eq!(places.take(one).err(), Some(NoPlace::OfRole(2)));
        let _third = places.clone().take(other).expect("one is left for others");
        assert_eq!(places.take(other).err(), Some(NoPlace::OfAll(3)));
        drop(first);
        let _again = places.take(other).expect("it is free again");
        assert_eq!(places.take(one).err(), Some(NoPlace::OfAll(3)));
    }
}
