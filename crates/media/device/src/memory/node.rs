//! Mapped memory, usually of one NUMA node of the machine: DRAM beside a CPU, or memory behind a link (CXL, persistent
//! memory used as system RAM), which Linux shows as a separate NUMA node, usually without CPUs.
//!
//! ```text
//!   /sys/devices/system/node/node0    cpulist 0-15    MemTotal  64 GiB     near
//!   /sys/devices/system/node/node1    cpulist         MemTotal 256 GiB     far
//! ```
//!
//! An allocation is reserved, bound to the node by mbind(2) (`MPOL_BIND`: never from another one), and then touched, so
//! that a full node is an error here and does not end the process later. Addresses are aligned to 2 MiB and the kernel
//! is advised to use large pages: far memory is slow enough without TLB misses.
//!
//! Pages are not moved later, neither by this module nor, because they are bound, by the kernel's tiering. The free
//! memory of a node is checked but not reserved: another process may take it in between, and then the kernel may kill a
//! process.

use std::fs;
use std::io;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::ptr::{self, NonNull};

/// Where the kernel describes nodes.
const SYSFS: &str = "/sys/devices/system/node";

/// The large page of x86-64, and of aarch64 with pages of 4 KiB.
const LARGE_PAGE_BYTES: usize = 2 << 20;

/// Policy of mbind(2): these nodes and no other (Linux, include/uapi/linux/mempolicy.h).
const MPOL_BIND: usize = 2;

/// Number of nodes in a mask here; Linux has at most 1024 (`CONFIG_NODES_SHIFT` up to 10).
const NODES_MAX: usize = 1024;

/// madvise(2) advice: populate page tables, writable (Linux 5.14).
const MADV_POPULATE_WRITE: i32 = 23;

/// A node of the machine that has memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number, as numactl(8) shows it.
    pub number: u32,
    /// Whether CPUs belong to it; memory without CPUs is far from all of them.
    pub has_cpus: bool,
    /// All of its memory, in bytes.
    pub bytes: u64,
    /// The part that is free or contains only copies of files, which the kernel can drop; in bytes.
    pub free_bytes: u64,
}

/// The nodes that have memory, by number; empty if the kernel was built without NUMA.
///
/// Errors: those of reading `/sys/devices/system/node`.
pub fn nodes() -> io::Result<Vec<Node>> {
    nodes_below(Path::new(SYSFS))
}

fn nodes_below(root: &Path) -> io::Result<Vec<Node>> {
    let entries = match fs::read_dir(root) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut nodes = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let Some(number) = name.to_str().and_then(|name| name.strip_prefix("node")?.parse().ok()) else { continue };
        let meminfo = fs::read_to_string(entry.path().join("meminfo"))?;
        let cpus = fs::read_to_string(entry.path().join("cpulist"))?;
        let of = |field| meminfo_bytes(&meminfo, field).ok_or(io::ErrorKind::InvalidData);
        let free_bytes = of("MemFree:")? + of("Active(file):")? + of("Inactive(file):")?;
        let node = Node { number, has_cpus: !cpus.trim().is_empty(), bytes: of("MemTotal:")?, free_bytes };
        nodes.extend((node.bytes > 0).then_some(node));
    }
    nodes.sort_unstable_by_key(|node| node.number);
    Ok(nodes)
}

/// A field of a node's meminfo, `Node 0 MemFree:  123 kB`, in bytes.
fn meminfo_bytes(meminfo: &str, field: &str) -> Option<u64> {
    // The space prevents "Inactive(file):" from matching "Active(file):".
    let field = format!(" {field}");
    let mut words = meminfo.lines().find_map(|line| line.split_once(&field))?.1.split_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    (words.next() == Some("kB")).then(|| number.saturating_mul(1024))
}

/// Returns the node with that number, or why there is none.
pub(super) fn find(number: u32) -> io::Result<Node> {
    let nodes = nodes()?;
    if let Some(node) = nodes.iter().find(|node| node.number == number) {
        return Ok(node.clone());
    }
    let numbers: Vec<String> = nodes.iter().map(|node| node.number.to_string()).collect();
    let there = if numbers.is_empty() { "none".into() } else { numbers.join(", ") };
    let text = format!("no node {number} has memory; nodes with memory: {there} (see numactl --hardware)");
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

/// Zeroed memory on one node.
pub(crate) struct NodeMemory {
    base: NonNull<u8>,
    bytes: usize,
    /// The whole mapping; the bytes are its aligned part.
    mapped: (NonNull<u8>, usize),
}

// SAFETY: plain memory that the value owns, handed out by the rules of borrowing.
unsafe impl Send for NodeMemory {}
// SAFETY: as above.
unsafe impl Sync for NodeMemory {}

impl NodeMemory {
    /// Allocates on a node, with all pages present; `OutOfMemory` if the node has not enough free memory.
    pub(crate) fn zeroed(number: u32, bytes: usize) -> io::Result<NodeMemory> {
        let node = find(number)?;
        if node.free_bytes < bytes as u64 {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let memory = NodeMemory::reserved(bytes)?;
        memory.bind(number)?;
        memory.advise();
        memory.populate()?;
        Ok(memory)
    }

    /// Allocates from any node that the kernel chooses, each page when it is first touched.
    pub(crate) fn anywhere(bytes: usize) -> io::Result<NodeMemory> {
        let memory = NodeMemory::reserved(bytes)?;
        memory.advise();
        Ok(memory)
    }

    /// The first byte, aligned to [`LARGE_PAGE_BYTES`].
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Reserves address space; no page is present.
    fn reserved(bytes: usize) -> io::Result<NodeMemory> {
        let reserved = bytes.checked_add(LARGE_PAGE_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a fresh mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe { libc::mmap(ptr::null_mut(), reserved, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let head = start.addr().get().next_multiple_of(LARGE_PAGE_BYTES) - start.addr().get();
        // SAFETY: at most LARGE_PAGE_BYTES into the mapping, which has that many more than the bytes.
        let base = unsafe { start.add(head) };
        // From here on drop unmaps it.
        Ok(NodeMemory { base, bytes, mapped: (start, reserved) })
    }

    fn advise(&self) {
        // SAFETY: advice about a range that belongs to this value. Large pages are optional: a kernel without them
        // refuses, without another effect.
        unsafe { libc::madvise(self.base.as_ptr().cast(), self.bytes, libc::MADV_HUGEPAGE) };
    }

    fn bind(&self, number: u32) -> io::Result<()> {
        let mut mask = [0u64; NODES_MAX / 64];
        let word = mask.get_mut(number as usize / 64).ok_or(io::ErrorKind::InvalidInput)?;
        *word = 1 << (number % 64);
        // SAFETY: the range belongs to this value. The mask lives until the call returns and has as many bits as the
        // call gives (the kernel reads one less than the given number).
        let result = unsafe {
            libc::syscall(libc::SYS_mbind, self.base.as_ptr(), self.bytes, MPOL_BIND, mask.as_ptr(), NODES_MAX + 1, 0)
        };
        if result == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        Err(match error.raw_os_error() {
            Some(libc::ENOSYS | libc::EPERM) => {
                let text = format!("this kernel or container does not let memory be bound to a node (mbind: {error})");
                io::Error::new(io::ErrorKind::Unsupported, text)
            }
            _ => error,
        })
    }

    fn populate(&self) -> io::Result<()> {
        // SAFETY: advice about a range that belongs to this value. No other code has its address yet, and populating
        // does not change its content.
        if unsafe { libc::madvise(self.base.as_ptr().cast(), self.bytes, MADV_POPULATE_WRITE) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            // An old kernel: pages are allocated at their first use.
            Some(libc::EINVAL) => Ok(()),
            Some(libc::ENOMEM | libc::EFAULT) => Err(io::ErrorKind::OutOfMemory.into()),
            _ => Err(error),
        }
    }
}

impl Deref for NodeMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `bytes` zeroed bytes from `base` on are mapped and belong to this value until drop. The borrow of
        // self prevents changes.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.bytes) }
    }
}

impl DerefMut for NodeMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in deref; and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.bytes) }
    }
}

impl Drop for NodeMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and no borrow of it is left.
        unsafe { libc::munmap(self.mapped.0.as_ptr().cast(), self.mapped.1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The nodes of the pages of a range: move_pages(2) without destinations.
    fn nodes_of(memory: &[u8]) -> Vec<i32> {
        let pages: Vec<*const u8> = memory.chunks(4096).map(<[u8]>::as_ptr).collect();
        let mut found = vec![-1i32; pages.len()];
        let none = ptr::null::<i32>();
        // SAFETY: both arrays have as many entries as the call gives, and live until it returns.
        let result =
            unsafe { libc::syscall(libc::SYS_move_pages, 0, pages.len(), pages.as_ptr(), none, found.as_mut_ptr(), 0) };
        assert_eq!(result, 0, "{}", io::Error::last_os_error());
        found
    }

    #[test]
    fn every_page_lies_on_the_node_that_was_asked_for_and_is_zero() {
        for node in nodes().expect("nodes") {
            if let Err(error) = NodeMemory::zeroed(node.number, 4096)
                && error.kind() == io::ErrorKind::Unsupported
            {
                println!("skipped: {error}");
                return;
            }
            for bytes in [4096, 5 * 4096, (4 << 20) + 4096] {
                let mut memory = NodeMemory::zeroed(node.number, bytes).expect("allocate");
                assert_eq!(memory.len(), bytes);
                assert!(memory.iter().all(|byte| *byte == 0));
                assert!(nodes_of(&memory).iter().all(|found| *found == node.number as i32), "{node:?}");
                memory.fill(7);
                assert!(memory.iter().all(|byte| *byte == 7));
            }
        }
    }

    #[test]
    fn a_node_that_is_not_there_or_has_not_as_much_free_is_an_error() {
        let missing = find(4_000_000).expect_err("no such node").to_string();
        assert!(missing.contains("no node 4000000 has memory; nodes with memory: "), "{missing}");
        for node in nodes().expect("nodes") {
            let full = NodeMemory::zeroed(node.number, node.bytes as usize + 4096).err();
            assert_eq!(full.map(|error| error.kind()), Some(io::ErrorKind::OutOfMemory), "{node:?}");
        }
    }

    #[test]
    fn nodes_are_read_as_the_kernel_tells_them_and_those_without_memory_left_out() {
        let root = tempfile::tempdir().expect("temporary directory");
        let make = |name: &str, cpus: &str, kilobytes: u64| {
            let node = root.path().join(name);
            fs::create_dir(&node).expect("make");
            let number = name.trim_start_matches("node");
            let (half, quarter, eighth) = (kilobytes / 2, kilobytes / 4, kilobytes / 8);
            let fields = [
                ("MemTotal", kilobytes),
                ("MemFree", half),
                ("Active(anon)", 1),
                ("Active(file)", quarter),
                ("Inactive(file)", eighth),
            ];
            let meminfo: String =
                fields.iter().map(|(field, size)| format!("Node {number} {field}:      {size} kB\n")).collect();
            fs::write(node.join("meminfo"), meminfo).expect("write");
            fs::write(node.join("cpulist"), cpus).expect("write");
        };
        make("node10", "\n", 1 << 20);
        make("node0", "0-7\n", 8192);
        make("node2", "8-15\n", 0);
        fs::write(root.path().join("online"), "0,2,10").expect("write");
        let far = Node { number: 10, has_cpus: false, bytes: 1 << 30, free_bytes: 7 << 27 };
        let near = Node { number: 0, has_cpus: true, bytes: 8 << 20, free_bytes: 7 << 20 };
        assert_eq!(nodes_below(root.path()).expect("nodes"), [near, far]);
        assert_eq!(nodes_below(&root.path().join("missing")).expect("no NUMA"), []);
    }
}
