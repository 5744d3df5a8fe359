//! No routines: for CPUs whose persistence rules are not implemented here. [`NoInstructions::find`] always fails.

use std::ffi::c_void;

/// There are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoInstructions {}

impl NoInstructions {
    /// Returns an error: there are none.
    pub(crate) fn find() -> Result<NoInstructions, String> {
        Err(format!("persistent stores are not implemented for {}; use files", std::env::consts::ARCH))
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

/// There is no routine that could be resumed.
///
/// # Safety
/// Touches nothing.
pub(crate) unsafe fn resume(_context: *mut c_void) -> bool {
    false
}
