//! What stored bytes must be: [`Core`]'s look at blocks, by their sum, and by their seal where they are encrypted.
//!
//! ```text
//!   in clear     the sum is all there is
//!   encrypted    bytes do not match the sum                  a medium has damaged them, or it is no key's business
//!                bytes match the sum, and not the seal       somebody has: reported with volume, copy and block
//! ```

use std::fmt;
use std::sync::atomic::Ordering;

use crate::checksum::Sum;
use crate::copy::VolumeCopy;
use crate::core::Core;
use crate::mark::{BlockMark, BlockSeal};

/// The identity of a volume in logs.
struct LoggedVolume([u8; 16]);

impl fmt::Display for LoggedVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl Core {
    /// Whether its blocks are encrypted.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.sealer.is_some()
    }

    /// Its identity, for logs.
    pub(crate) fn name(&self) -> impl fmt::Display {
        LoggedVolume(self.volume)
    }

    /// Makes the content of a block what is stored, in place, and returns what is known of it.
    pub(crate) fn seal(&self, block: u64, bytes: &mut [u8]) -> BlockMark {
        let seal = self.sealer.as_ref().map_or(BlockSeal::NONE, |sealer| sealer.seal(block, bytes));
        BlockMark { sum: Sum::of(bytes), seal }
    }

    /// Makes the stored bytes of a block its content, in place. Returns whether they have this seal; true if they have none.
    #[must_use]
    pub(crate) fn opens(&self, block: u64, bytes: &mut [u8], seal: &BlockSeal) -> bool {
        self.sealer.as_ref().is_none_or(|sealer| sealer.open(block, bytes, seal))
    }

    /// The same for bytes that were read from a copy: they are verified by their seal, or by their sum if they have none.
    #[must_use]
    pub(crate) fn opens_as(&self, block: u64, bytes: &mut [u8], mark: &BlockMark) -> bool {
        match &self.sealer {
            Some(sealer) => sealer.open(block, bytes, &mark.seal),
            None => Sum::of(bytes) == mark.sum,
        }
    }

    /// Whether stored bytes are those that were written: they have this sum, and this seal if they are encrypted.
    pub(crate) fn matches(&self, block: u64, bytes: &[u8], mark: &BlockMark) -> bool {
        Sum::of(bytes) == mark.sum
            && self.sealer.as_ref().is_none_or(|sealer| sealer.verifies(block, bytes, &mark.seal))
    }

    /// The same for bytes of a copy; those that have the sum and not the seal are reported: no medium does that.
    pub(crate) fn is_as_stored(&self, copy: &VolumeCopy, block: u64, bytes: &[u8], mark: &BlockMark) -> bool {
        let is_right = self.matches(block, bytes, mark);
        if !is_right && Sum::of(bytes) == mark.sum {
            self.metrics.forged.fetch_add(1, Ordering::Relaxed);
            tracing::error!(
                volume = %self.name(),
                copy = copy.number,
                block,
                "a block was changed, or moved from another place: its checksum matches and its seal does not"
            );
        }
        is_right
    }
}
