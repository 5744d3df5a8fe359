//! No routines: a CPU whose rules of persistence nobody here has written down. What cannot be found cannot be used.

use std::ffi::c_void;

/// There are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Instructions {}

impl Instructions {
    /// Says that there are none.
    pub(crate) fn find() -> Result<Instructions, String> {
        Err(format!("nobody has said how {} makes a store persistent; use files", std::env::consts::ARCH))
    }

    /// See x86_64.rs.
    pub(crate) fn write_back_name(self) -> &'static str {
        match self {}
    }

    /// # Safety
    /// None to keep: there is no value to call it on.
    pub(crate) unsafe fn load(self, _to: *mut u8, _from: *const u8, _bytes: usize) -> usize {
        match self {}
    }

    /// # Safety
    /// As above.
    pub(crate) unsafe fn store(self, _to: *mut u8, _from: *const u8, _bytes: usize) -> usize {
        match self {}
    }

    /// # Safety
    /// As above.
    pub(crate) unsafe fn store_past_cache(self, _to: *mut u8, _from: *const u8, _bytes: usize) -> usize {
        match self {}
    }

    /// # Safety
    /// As above.
    pub(crate) unsafe fn write_back(self, _at: *const u8, _bytes: usize) -> usize {
        match self {}
    }

    /// # Safety
    /// As above.
    pub(crate) unsafe fn touch(self, _at: *mut u8, _bytes: usize) -> usize {
        match self {}
    }

    /// See x86_64.rs.
    pub(crate) fn fence(self) {
        match self {}
    }
}

/// Nothing that could be resumed was ever running.
///
/// # Safety
/// Touches nothing.
pub(crate) unsafe fn resume(_context: *mut c_void) -> bool {
    false
}
