//! The state of the contract: Open until a write, a flush or a discard fails, then Poisoned.
//!
//! One flag per handle, set once and never cleared; a new handle starts Open. It guards every change of the device.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::DeviceError;

/// Open or Poisoned, for one handle.
#[derive(Debug, Default)]
pub(crate) struct Poison {
    poisoned: AtomicBool,
}

impl Poison {
    /// Runs `change` unless poisoned; poisons if it fails in a way that leaves the medium's content unknown.
    #[inline]
    pub(crate) fn guard(
        &self,
        name: &str,
        change: impl FnOnce() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        self.check(name)?;
        // A new `Ok` is returned instead of the result of `change`: copying the whole result right after the fence of a
        // write to persistent memory waits until all stores before the fence have left the core.
        match change() {
            Ok(()) => Ok(()),
            Err(error) => Err(self.note(error)),
        }
    }

    /// As [`Poison::guard`], for a discard: where it needed space and there was none, nothing has become unknown.
    pub(crate) fn guard_discard(
        &self,
        name: &str,
        discard: impl FnOnce() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        self.check(name)?;
        discard().map_err(|error| if matches!(error, DeviceError::Full { .. }) { error } else { self.note(error) })
    }

    /// Errors: [`DeviceError::Poisoned`].
    #[inline]
    pub(crate) fn check(&self, name: &str) -> Result<(), DeviceError> {
        // Acquire and release: a thread that sees the flag also sees that the failure came before.
        if self.poisoned.load(Ordering::Acquire) {
            return Err(DeviceError::Poisoned { name: name.into() });
        }
        Ok(())
    }

    /// Poisons after the error of a change, if that leaves the medium's content unknown; returns the error.
    #[cold]
    pub(crate) fn note(&self, error: DeviceError) -> DeviceError {
        match error {
            DeviceError::ReadOnly { .. } | DeviceError::Unsupported { .. } => {}
            // A simulated machine without power continues to return this.
            DeviceError::PowerLost => {}
            _ => self.poisoned.store(true, Ordering::Release),
        }
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Operation;

    #[test]
    fn one_failure_refuses_everything_after_it_and_a_refusal_is_no_failure() {
        let poison = Poison::default();
        let unsupported = || Err(DeviceError::Unsupported { operation: Operation::Discard, name: "a".into() });
        assert!(matches!(poison.guard("a", unsupported), Err(DeviceError::Unsupported { .. })));
        assert!(poison.guard("a", || Ok(())).is_ok());
        let full = || Err(DeviceError::Full { name: "a".into(), bytes: 1 });
        assert!(matches!(poison.guard_discard("a", full), Err(DeviceError::Full { .. })));
        assert!(poison.guard("a", || Ok(())).is_ok(), "a discard that had no space made nothing unknown");
        assert!(matches!(poison.guard("a", full), Err(DeviceError::Full { .. })));
        assert!(matches!(poison.guard("a", || Ok(())), Err(DeviceError::Poisoned { .. })));
    }
}
