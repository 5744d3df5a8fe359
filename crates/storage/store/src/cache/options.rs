//! The size of a cache, its memory, and the policy that moves pages between its tiers.

use std::sync::Arc;

use catalogue::ModelMemory;

use crate::StoreError;
use crate::page::is_page_bytes;

/// Largest near or far memory of a cache, bytes: frames are counted in 32 bits, and the smallest has 4 KiB.
pub const MEMORY_BYTES_MAX: u64 = 8 << 40;

/// Smallest near memory of a cache, bytes.
pub const NEAR_BYTES_MIN: u64 = 4 << 20;

/// The policy that decides where a page lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Policy {
    /// Software: new pages go to near memory; pages that leave it go to far memory if there is any, and come back with
    /// a probability when they are used.
    Managed {
        /// The probability, 0 to 1.
        promote: f64,
    },
    /// Memory Mode as the hardware implements it: all frames are in far memory, and near memory is a direct-mapped
    /// cache of them. Requires a model of far memory; on the real hardware configure all memory as near memory.
    DirectMapped,
}

/// The size of a cache, and its memory.
#[derive(Clone, Debug)]
pub struct CacheOptions {
    /// Size of a page, bytes. Default 8 KiB.
    pub page_bytes: usize,
    /// Near memory, bytes; at least [`NEAR_BYTES_MIN`]. Default 256 MiB. A sixteenth of it is for inner pages. While
    /// everything in it is dirty or in use, the cache uses up to a quarter more.
    pub near_bytes: u64,
    /// The NUMA node of near memory; then all of it, and the quarter beyond it, is allocated at once. `None`: the
    /// kernel selects the place, and allocates as memory is used. Default none.
    pub near_node: Option<u32>,
    /// Far memory, bytes; 0 for none. Default 0.
    pub far_bytes: u64,
    /// The NUMA node of far memory. Default none.
    pub far_node: Option<u32>,
    /// The policy that decides where a page lies. Default managed; a tenth of the uses in far memory promote.
    pub policy: Policy,
    /// The timing model of far memory, if it is not real. Default none.
    pub far_model: Option<Arc<ModelMemory>>,
    /// The name of near memory in errors, with the tier and the setting of its size. Default "near memory of the page
    /// cache".
    pub near_name: String,
    /// The name of far memory in errors. Default "far memory of the page cache".
    pub far_name: String,
    /// The seed of promotions. Default 1.
    pub seed: u64,
}

impl Default for CacheOptions {
    fn default() -> CacheOptions {
        CacheOptions {
            page_bytes: 8192,
            near_bytes: 256 << 20,
            near_node: None,
            far_bytes: 0,
            far_node: None,
            policy: Policy::Managed { promote: 0.1 },
            far_model: None,
            near_name: "near memory of the page cache".to_owned(),
            far_name: "far memory of the page cache".to_owned(),
            seed: 1,
        }
    }
}

impl CacheOptions {
    /// Errors: [`StoreError::Refused`], with the impossible value and what to do.
    pub fn check(&self) -> Result<(), StoreError> {
        let refuse = |text: String| Err(StoreError::Refused(text.into()));
        if !is_page_bytes(self.page_bytes) {
            return refuse(format!("pages of {} bytes are impossible", self.page_bytes));
        }
        if self.near_bytes < NEAR_BYTES_MIN {
            return refuse(format!("a page cache has at least {NEAR_BYTES_MIN} bytes, not {}", self.near_bytes));
        }
        for (name, bytes) in [(&self.near_name, self.near_bytes), (&self.far_name, self.far_bytes)] {
            if bytes > MEMORY_BYTES_MAX {
                return refuse(format!("{name} has at most {MEMORY_BYTES_MAX} bytes, not {bytes}"));
            }
        }
        if self.far_bytes > 0 && self.far_bytes < NEAR_BYTES_MIN {
            return refuse(format!("far memory has at least {NEAR_BYTES_MIN} bytes, not {}", self.far_bytes));
        }
        match self.policy {
            Policy::Managed { promote } if !(0.0..=1.0).contains(&promote) => {
                refuse(format!("a probability of promotion is 0 to 1, not {promote}"))
            }
            Policy::DirectMapped if self.far_model.is_none() => refuse(
                "a direct map needs a model of far memory; where the hardware is in Memory Mode, give all of it as near \
                 memory"
                    .into(),
            ),
            Policy::DirectMapped if self.far_bytes < self.near_bytes => {
                let (far, near) = (self.far_bytes, self.near_bytes);
                refuse(format!("Memory Mode: {far} bytes of far memory are less than {near} bytes of near memory"))
            }
            _ if self.far_model.is_some() && self.far_bytes == 0 => {
                refuse("there is a model of far memory, but no far memory".into())
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused_with_what_to_do() {
        let good = CacheOptions::default();
        good.check().expect("the default");
        let cases = [
            (CacheOptions { page_bytes: 5000, ..good.clone() }, "pages of 5000 bytes"),
            (CacheOptions { near_bytes: 1 << 20, ..good.clone() }, "at least 4194304"),
            (CacheOptions { far_bytes: 1, ..good.clone() }, "far memory has at least"),
            (CacheOptions { near_bytes: 1 << 60, ..good.clone() }, "near memory of the page cache has at most"),
            (CacheOptions { far_bytes: 1 << 60, ..good.clone() }, "far memory of the page cache has at most"),
            (CacheOptions { policy: Policy::Managed { promote: 1.5 }, ..good.clone() }, "0 to 1, not 1.5"),
            (CacheOptions { policy: Policy::DirectMapped, far_bytes: 1 << 30, ..good }, "needs a model"),
        ];
        for (options, text) in cases {
            let found = options.check().expect_err(text).to_string();
            assert!(found.contains(text), "{found}");
        }
    }
}
