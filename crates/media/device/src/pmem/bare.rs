//! The simplest possible loop: stores into a mapping, and a fence. Everything else is measured against it.
//!
//! ```text
//!   PastCache      movntdq, movntdq, ...            then a fence
//!   WrittenBack    stores, then clwb line by line   then a fence
//!   Plain          stores                           nothing: persistent only on an eADR platform
//! ```
//!
//! No names, no errors, no poison, no signal handler: a lost page or a truncated file ends the process. The mapping is
//! an ordinary shared one, whatever the file system: it measures the cost of moving the bytes, not their survival. It
//! shares no code with the device that it is compared with.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr::NonNull;

/// How bytes are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stores {
    /// Non-temporal stores; a fence makes them persistent on a persistent medium.
    PastCache,
    /// Ordinary stores whose lines are written back; a fence makes them persistent on a persistent medium.
    WrittenBack,
    /// Ordinary stores, which stay in the caches until they are evicted.
    Plain,
}

/// A mapping to store into.
#[derive(Debug)]
pub struct Bare {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the mapping is plain memory that lives as long as the value, and only its owner stores to it.
unsafe impl Send for Bare {}

impl Bare {
    /// Creates a file of `bytes` zeros at `path`, which must not exist, maps it and makes all pages present.
    ///
    /// Errors: those of the system, and `Unsupported` on processors other than x86-64.
    pub fn on_file(path: &Path, bytes: usize) -> io::Result<Bare> {
        if cfg!(not(target_arch = "x86_64")) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the bare loop is written for x86-64"));
        }
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        crate::os::reserve(&file, bytes as u64)?;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: a new mapping of a file of that length, at an address the kernel chooses.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, file.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast::<u8>()).expect("the kernel maps nothing at address 0");
        // SAFETY: the whole mapping, and no other code has its address yet. Writing makes the file system allocate each
        // page.
        unsafe { base.as_ptr().write_bytes(0, bytes) };
        Ok(Bare { base, bytes })
    }

    /// Size in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a mapping is never empty")]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Stores `data` at `offset`. It neither fences nor waits. Each thread needs its own mapping.
    ///
    /// # Panics
    /// Unless the range lies inside, and offset, length and the address of `data` are multiples of 16.
    #[inline]
    pub fn store(&mut self, how: Stores, offset: usize, data: &[u8]) {
        assert!(offset <= self.bytes && data.len() <= self.bytes - offset);
        assert!((offset | data.len() | data.as_ptr().addr()).is_multiple_of(16));
        // SAFETY: the range lies in the mapping; both sides are aligned to 16 (asserted above).
        unsafe {
            let to = self.base.as_ptr().add(offset);
            match how {
                Stores::PastCache => stream(to, data),
                Stores::Plain => to.copy_from_nonoverlapping(data.as_ptr(), data.len()),
                Stores::WrittenBack => {
                    to.copy_from_nonoverlapping(data.as_ptr(), data.len());
                    write_back(to, data.len());
                }
            }
        }
    }

    /// Waits for this thread's stores past the cache and write-backs.
    #[inline]
    pub fn fence(&self) {
        fence();
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by on_file and is not used after this. munmap of it cannot fail.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// # Safety
/// `to` is mapped for the length of `data`; both are aligned to 16.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn stream(to: *mut u8, data: &[u8]) {
    use std::arch::x86_64::{__m128i, _mm_load_si128, _mm_stream_si128};
    for at in (0..data.len()).step_by(16) {
        // SAFETY: the caller's promise. The fence that non-temporal stores need before other threads may rely on their
        // order is the caller's to make; nothing reads the mapping here.
        unsafe { _mm_stream_si128(to.add(at).cast(), _mm_load_si128(data.as_ptr().add(at).cast::<__m128i>())) };
    }
}

/// # Safety
/// The range is mapped.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn write_back(at: *mut u8, bytes: usize) {
    for line in crate::pmem::lines::lines_of(at.addr() as u64, bytes as u64) {
        // SAFETY: flushing a mapped line changes nothing that a program sees. CLFLUSH is what every x86-64 CPU has.
        unsafe {
            if *HAS_CLWB {
                std::arch::asm!("clwb [{}]", in(reg) line, options(nostack, preserves_flags));
            } else {
                std::arch::x86_64::_mm_clflush(line as *const u8);
            }
        }
    }
}

/// CPUID leaf 7, EBX bit 24 (Intel 64 SDM vol. 2, CPUID).
#[cfg(target_arch = "x86_64")]
static HAS_CLWB: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ebx & (1 << 24) != 0
});

#[cfg(target_arch = "x86_64")]
#[inline]
fn fence() {
    // SAFETY: SSE is part of x86-64.
    unsafe { std::arch::x86_64::_mm_sfence() };
}

/// # Safety
/// None needed: there is no mapping to store into.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn stream(_to: *mut u8, _data: &[u8]) {
    unreachable!("on_file refuses other processors")
}

/// # Safety
/// None needed: there is no mapping to write back.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn write_back(_at: *mut u8, _bytes: usize) {
    unreachable!("on_file refuses other processors")
}

#[cfg(not(target_arch = "x86_64"))]
fn fence() {
    unreachable!("on_file refuses other processors")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_of_storing_stores_the_same_bytes() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let path = directory.path().join("bare");
        let mut bare = Bare::on_file(&path, 1 << 16).expect("maps");
        let data = crate::AlignedBuffer::from(&(0..4096).map(|at| (at % 251) as u8).collect::<Vec<u8>>()[..]);
        for (index, how) in [Stores::PastCache, Stores::WrittenBack, Stores::Plain].into_iter().enumerate() {
            bare.store(how, index * 8192 + 16, &data[..1040]);
            bare.fence();
            let found = std::fs::read(&path).expect("reads");
            assert_eq!(found[index * 8192 + 16..][..1040], data[..1040], "{how:?}");
            assert!(found[index * 8192 + 1056..(index + 1) * 8192].iter().all(|byte| *byte == 0), "{how:?}");
        }
    }
}
