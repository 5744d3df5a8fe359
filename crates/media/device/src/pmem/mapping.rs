//! A file in the address space: the instructions of persistent memory, applied to mapped pages.
//!
//! ```text
//!   address   2 MiB aligned, so that the kernel can use large pages
//!             |<------------------ the file ------------------>|
//!   access    only through the routines of `instructions`, watched by `guard`
//! ```
//!
//! There are two ways to map. *Synchronous* (`MAP_SHARED_VALIDATE | MAP_SYNC`) is granted by the kernel only for a file
//! whose pages are persistent memory. A write-back of lines is then sufficient for persistence, because a page becomes
//! writable only after the file system's own metadata for it is on the medium. With *shared*, pages belong to the page
//! cache, and only msync(2) makes them persistent.
//!
//! The first touch of a page includes the file system's work for it (with `MAP_SYNC` a commit of its metadata; measured
//! in a guest with XFS on an emulated module, 2026-11: 85 us against 11 us later), so every page is touched when the
//! file is mapped. A [`sync`](Lines::sync) reverts that for the pages that it has written: the kernel makes them fault
//! again to detect later stores.
//!
//! Invariants: `base` is mapped for `bytes` until drop, and no reference to it is ever created, because two processes
//! and any number of threads may store there at any time. `watch` ends before the mapping does (fields are dropped in
//! order).

use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::ptr;
use std::sync::Arc;

use super::guard::{Watch, while_injecting};
use super::instructions::Instructions;
use super::lines::{Lines, Lost};
use crate::Device;
use crate::file::FileDevice;

/// Address alignment: the large page of x86-64 and of aarch64 with 4 KiB pages.
const ALIGN_BYTES: usize = 2 << 20;

const PAGE_BYTES: usize = 4096;

/// madvise(2) advice that libc does not name everywhere: populate page tables, readable and writable (Linux 5.14).
const MADV_POPULATE_READ: i32 = 22;
const MADV_POPULATE_WRITE: i32 = 23;

/// madvise(2) advice: treat the page as if the hardware had reported it as broken.
const MADV_HWPOISON: i32 = 100;

/// How a file is mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// For reading.
    Read,
    /// For reading and writing; every page is made writable in advance.
    Write,
    /// For reading and writing; pages are only made readable in advance, because making a page writable makes it dirty,
    /// and all would be written.
    WriteByPage,
}

/// Pages in the address space; unmapped when dropped.
struct Pages {
    base: *mut u8,
    bytes: usize,
}

impl Pages {
    /// Maps a file; returns `Ok(None)` if it must be synchronous and the file system does not support that.
    fn map(file: &File, bytes: usize, access: Access, synchronous: bool) -> io::Result<Option<Pages>> {
        let reserved = bytes.checked_add(ALIGN_BYTES).ok_or(io::ErrorKind::FileTooLarge)?;
        let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe { libc::mmap(ptr::null_mut(), reserved, libc::PROT_NONE, anonymous, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let head = start.addr().next_multiple_of(ALIGN_BYTES) - start.addr();
        let base = start.cast::<u8>().wrapping_add(head);
        let whole = bytes.next_multiple_of(PAGE_BYTES);
        // SAFETY: the parts of the reservation before and after the file belong to this function alone. If the kernel
        // refuses, only addresses are wasted.
        unsafe {
            libc::munmap(start, head);
            libc::munmap(base.wrapping_add(whole).cast(), reserved - head - whole);
        }
        let protection = if access == Access::Read { libc::PROT_READ } else { libc::PROT_READ | libc::PROT_WRITE };
        let sharing = if synchronous { libc::MAP_SHARED_VALIDATE | libc::MAP_SYNC } else { libc::MAP_SHARED };
        // SAFETY: base..base+bytes is the rest of the reservation, and no other code has its address.
        let at = unsafe { libc::mmap(base.cast(), bytes, protection, sharing | libc::MAP_FIXED, file.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            // The rest of the reservation is not unmapped: the kernel may already have done that, and another mapping
            // may be there. It is address space without memory.
            let error = io::Error::last_os_error();
            // Both mean no: an old kernel or the file system does not support the flag.
            let is_no = matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL));
            return if synchronous && is_no { Ok(None) } else { Err(error) };
        }
        Ok(Some(Pages { base, bytes }))
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value, and every user of it borrowed the owner of this value.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

/// Whether a file of the file system can be mapped synchronously.
pub(super) fn is_synchronous(file: &File, access: Access) -> io::Result<bool> {
    Pages::map(file, PAGE_BYTES, access, true).map(|pages| pages.is_some())
}

/// A device's file, mapped.
pub(super) struct FileMapping {
    instructions: Instructions,
    watch: Watch,
    pages: Pages,
    /// Its file: used to rewrite lost ranges, and to hold the shelf's lock.
    file: Arc<FileDevice>,
}

// SAFETY: the pages may be accessed from any thread at any time, by the routines only, which need no exclusivity: torn
// accesses larger than a word are what the contract of a device allows. Everything else is Send and Sync of itself.
unsafe impl Send for FileMapping {}
// SAFETY: as above.
unsafe impl Sync for FileMapping {}

impl FileMapping {
    /// Maps the whole file and touches its pages; returns `Ok(None)` if it must be synchronous and cannot.
    pub(super) fn of(
        file: Arc<FileDevice>,
        instructions: Instructions,
        access: Access,
        synchronous: bool,
    ) -> io::Result<Option<FileMapping>> {
        let bytes = usize::try_from(file.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let Some(pages) = Pages::map(&file.file, bytes, access, synchronous)? else { return Ok(None) };
        let watch = Watch::over(pages.base.addr(), bytes)?;
        let mapping = FileMapping { instructions, watch, pages, file };
        mapping.warm(access);
        Ok(Some(mapping))
    }

    /// Touches every page in the way it will be used.
    pub(super) fn warm(&self, access: Access) {
        match access {
            Access::Read => {}
            Access::Write => self.make_writable(),
            // This only warms the pages: a failure occurs again, and is detected, when the page is used.
            Access::WriteByPage => drop(self.advise(0, self.pages.bytes, MADV_POPULATE_READ)),
        }
    }

    /// Whether it is that file, whatever its name is now, with the same length. The file exists as long as a mapping
    /// does, even without a name, so no other file can have its number.
    pub(super) fn is_of(&self, file: &File) -> io::Result<bool> {
        let (ours, theirs) = (self.file.file.metadata()?, file.metadata()?);
        let identity = |file: &Metadata| (file.dev(), file.ino(), file.len());
        Ok(identity(&ours) == identity(&theirs) && ours.len() == self.pages.bytes as u64)
    }

    /// Whether no loss is recorded.
    pub(super) fn is_whole(&self) -> bool {
        self.watch.is_whole()
    }

    fn advise(&self, offset: usize, bytes: usize, advice: i32) -> io::Result<()> {
        let at = self.at(offset as u64);
        // SAFETY: the range is mapped. No advice used here changes the content of the pages, except MADV_HWPOISON,
        // which loses one on purpose; the watch notices it.
        match unsafe { libc::madvise(at.cast(), bytes, advice) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Makes every page present and writable; records those that are lost.
    fn make_writable(&self) {
        if self.advise(0, self.pages.bytes, MADV_POPULATE_WRITE).is_ok() {
            return;
        }
        // An old kernel, or a lost page, which must not prevent the use of the others.
        let mut left = self.pages.bytes;
        while left > 0 {
            let at = self.at((self.pages.bytes - left) as u64);
            // SAFETY: whole pages of a mapping that can be written.
            left = unsafe { self.instructions.touch(at, left) }.saturating_sub(PAGE_BYTES);
        }
    }

    fn at(&self, offset: u64) -> *mut u8 {
        self.pages.base.wrapping_add(offset as usize)
    }

    /// Panics unless the range consists of words inside the mapping, on which the routines rely.
    #[inline]
    fn check(&self, offset: u64, bytes: usize) {
        let len = self.pages.bytes as u64;
        assert!((offset | bytes as u64).is_multiple_of(8) && offset <= len && bytes as u64 <= len - offset);
    }

    /// The lost part of a range: its first one, or the whole range if an access stopped for an unknown reason.
    #[cold]
    fn lost(&self, offset: u64, bytes: usize) -> Lost {
        let lost = self.watch.lost(offset, bytes as u64).into_iter().min_by_key(|lost| lost.offset);
        lost.unwrap_or(Lost { offset, bytes: bytes as u64 })
    }

    /// Rewrites lost ranges through the file, which makes the kernel and the module replace them; refuses if `data`
    /// does not cover a lost range completely.
    #[cold]
    fn repair(&self, offset: u64, data: &[u8]) -> Result<(), Lost> {
        let lost = self.watch.lost(offset, data.len() as u64);
        let is_covered = |lost: &Lost| offset <= lost.offset && lost.offset + lost.bytes <= offset + data.len() as u64;
        if let Some(partly) = lost.iter().find(|lost| !is_covered(lost)) {
            return Err(*partly);
        }
        for lost in lost {
            let piece = &data[(lost.offset - offset) as usize..][..lost.bytes as usize];
            // A range that cannot be written stays lost.
            self.file.write_flush(lost.offset, piece).map_err(|_| lost)?;
            self.watch.forget(lost);
        }
        Ok(())
    }

    /// Stores with a routine; a range that is lost, or is found to be lost now, is repaired first.
    #[inline]
    fn put(&self, offset: u64, data: &[u8], routine: impl Fn(*mut u8, *const u8, usize) -> usize) -> Result<(), Lost> {
        self.check(offset, data.len());
        if !self.watch.is_whole() {
            self.repair(offset, data)?;
        }
        if routine(self.at(offset), data.as_ptr(), data.len()) == 0 {
            return Ok(());
        }
        self.repair(offset, data)?;
        match routine(self.at(offset), data.as_ptr(), data.len()) {
            0 => Ok(()),
            _ => Err(self.lost(offset, data.len())),
        }
    }

    /// Makes the kernel treat a page as broken; see `PmemShelf::inject_poison`.
    pub(super) fn inject_poison(&self, offset: u64) -> io::Result<()> {
        self.check(offset, PAGE_BYTES);
        while_injecting(|| self.advise(offset as usize, PAGE_BYTES, MADV_HWPOISON))
    }
}

impl Lines for FileMapping {
    fn len(&self) -> u64 {
        self.pages.bytes as u64
    }

    #[inline]
    fn load(&self, offset: u64, buffer: &mut [u8]) -> Result<(), Lost> {
        self.check(offset, buffer.len());
        let bytes = buffer.len();
        if !self.watch.is_whole() && !self.watch.lost(offset, bytes as u64).is_empty() {
            return Err(self.lost(offset, bytes));
        }
        // SAFETY: the range is mapped and consists of words (checked above); the buffer is borrowed exclusively.
        match unsafe { self.instructions.load(buffer.as_mut_ptr(), self.at(offset), bytes) } {
            0 => Ok(()),
            _ => Err(self.lost(offset, bytes)),
        }
    }

    #[inline]
    fn store(&self, offset: u64, data: &[u8]) -> Result<(), Lost> {
        // SAFETY: put passes a range of words that is mapped, and borrowed data. A mapping opened to read is stored to
        // only through a device that was opened to read, and that refuses.
        self.put(offset, data, |to, from, bytes| unsafe { self.instructions.store(to, from, bytes) })
    }

    #[inline]
    fn store_past_cache(&self, offset: u64, data: &[u8]) -> Result<(), Lost> {
        // SAFETY: as for store.
        self.put(offset, data, |to, from, bytes| unsafe { self.instructions.store_past_cache(to, from, bytes) })
    }

    #[inline]
    fn write_back(&self, offset: u64, bytes: u64) -> Result<(), Lost> {
        self.check(offset, bytes as usize);
        // SAFETY: the range is mapped (checked above).
        match unsafe { self.instructions.write_back(self.at(offset), bytes as usize) } {
            0 => Ok(()),
            _ => Err(self.lost(offset, bytes as usize)),
        }
    }

    #[inline]
    fn fence(&self) {
        self.instructions.fence();
    }

    fn sync(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.check(offset, bytes as usize);
        // SAFETY: sysconf takes a number and answers one.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.max(1) as u64;
        let first = offset - offset % page;
        let bytes = (offset + bytes - first) as usize;
        // SAFETY: the range is mapped, and starts with a page.
        match unsafe { libc::msync(self.at(first).cast(), bytes, libc::MS_SYNC) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl fmt::Debug for FileMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileMapping {{ {} bytes, {:?} }}", self.pages.bytes, self.file)
    }
}
