//! Converts `SIGBUS` for a page of a mapping into an error for that page.
//!
//! ```text
//!   routine touches a page       kernel: poison there, or the file ends before the page
//!        |                            |
//!        |                         SIGBUS, si_addr
//!        |                            |
//!        |                       on_bus_error
//!        |                            |   is si_addr in a watched mapping?   no: calls the previous handler
//!        |                            |   record the lost range there
//!        |                            |   is the interrupted code a routine? no: as above
//!        v                            v
//!   returns early  <----------  resume at the fixup
//!   Err(Lost), and every later access to that range too, until the whole range is written
//! ```
//!
//! The handler can interrupt any code, so it only reads and writes atomics. The registry of mappings is a list of nodes
//! that are never freed: when a mapping ends, its node is reused by the next one.
//!
//! Invariants:
//! 1. A node's `start` is 0 unless its mapping is mapped. It is set last and cleared first: a reader that finds the
//!    same `start` before and after reading `end` has a consistent pair.
//! 2. Only the routines of `instructions` touch a watched mapping.
//! 3. A lost range stays recorded until the whole range has been written, or the mapping ends. More than [`RANGES_MAX`]
//!    lost ranges make the whole mapping lost.
//!
//! The guard does not search for poison before it is read. It does not work if other code later installs a handler for
//! `SIGBUS` that does not pass on foreign signals.

use std::ffi::c_void;
use std::io;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::instructions;
use super::lines::Lost;

/// The largest number of lost ranges that are recorded individually for one mapping.
const RANGES_MAX: usize = 64;

/// `si_code` of a fault after the end of a file, of consumed poison, and of poison found in the background
/// (sigaction(2)).
const BUS_ADRERR: i32 = 2;
const BUS_MCEERR_AR: i32 = 4;
const BUS_MCEERR_AO: i32 = 5;

/// The smallest unit that the kernel removes, as a logarithm: a page.
static PAGE_SHIFT: AtomicU32 = AtomicU32::new(12);

/// How many threads are injecting poison at the moment, as a test does.
static INJECTING: AtomicUsize = AtomicUsize::new(0);

/// The previous handler of the signal; leaked, so that the handler may always read it. Null before installation.
static PREVIOUS: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());

/// The first node of the registry.
static NODES: AtomicPtr<Node> = AtomicPtr::new(ptr::null_mut());

/// A mapping, as the handler sees it.
struct Node {
    is_taken: AtomicBool,
    start: AtomicUsize,
    end: AtomicUsize,
    /// Offset of a lost range (a multiple of a page) and, in the low bits, the logarithm of its length; 0 is free.
    ranges: [AtomicU64; RANGES_MAX],
    /// How many ranges are in use; one more if `is_lost_whole`.
    held: AtomicUsize,
    is_lost_whole: AtomicBool,
    next: *const Node,
}

// SAFETY: `next` is written before the node is published and never again; everything else is atomic.
unsafe impl Sync for Node {}

/// Decodes a node's range.
fn range_of(entry: u64) -> Lost {
    Lost { offset: entry & !0xfff, bytes: 1 << (entry & 63) }
}

impl Node {
    /// All nodes. They are leaked, hence static.
    fn all() -> impl Iterator<Item = &'static Node> {
        let mut next = NODES.load(Ordering::Acquire).cast_const();
        std::iter::from_fn(move || {
            // SAFETY: nodes are made from leaked boxes and published with release.
            let node: &'static Node = unsafe { next.as_ref() }?;
            next = node.next;
            Some(node)
        })
    }

    /// Takes a node without an owner.
    fn take() -> &'static Node {
        let free =
            |node: &&Node| node.is_taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if let Some(node) = Node::all().find(free) {
            return node;
        }
        let node = Box::into_raw(Box::new(Node {
            is_taken: AtomicBool::new(true),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            ranges: [const { AtomicU64::new(0) }; RANGES_MAX],
            held: AtomicUsize::new(0),
            is_lost_whole: AtomicBool::new(false),
            next: NODES.load(Ordering::Acquire),
        }));
        loop {
            // SAFETY: no other thread has the node before it is published below.
            let next = unsafe { (*node).next };
            match NODES.compare_exchange(next.cast_mut(), node, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: leaked, and from now on only shared.
                Ok(_) => return unsafe { &*node },
                // SAFETY: not published yet.
                Err(other) => unsafe { (*node).next = other },
            }
        }
    }

    /// Returns the node whose mapping contains the address, and the offset there. Runs in the handler.
    fn find(address: usize) -> Option<(&'static Node, u64)> {
        Node::all().find_map(|node| {
            let start = node.start.load(Ordering::SeqCst);
            let end = node.end.load(Ordering::SeqCst);
            let is_pair = start != 0 && start == node.start.load(Ordering::SeqCst);
            (is_pair && (start..end).contains(&address)).then(|| (node, (address - start) as u64))
        })
    }

    /// Records that the unit of `1 << shift` bytes around `offset` is lost. Runs in the handler.
    fn note(&self, offset: u64, shift: u32) {
        let entry = offset & !((1u64 << shift) - 1) | u64::from(shift);
        for range in &self.ranges {
            match range.compare_exchange(0, entry, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => {
                    self.held.fetch_add(1, Ordering::SeqCst);
                    return;
                }
                Err(held) if held == entry => return,
                Err(_) => {}
            }
        }
        if !self.is_lost_whole.swap(true, Ordering::SeqCst) {
            self.held.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Watches one mapping while it lives; it must be dropped before the mapping is unmapped.
pub(super) struct Watch {
    node: &'static Node,
    bytes: u64,
}

impl Watch {
    /// Watches the mapping at `start`; installs the handler if it is not installed yet.
    pub(super) fn over(start: usize, bytes: usize) -> io::Result<Watch> {
        install()?;
        let node = Node::take();
        node.end.store(start + bytes, Ordering::SeqCst);
        node.start.store(start, Ordering::SeqCst);
        Ok(Watch { node, bytes: bytes as u64 })
    }

    /// Whether nothing is lost: the only check on the path of every access.
    #[inline]
    pub(super) fn is_whole(&self) -> bool {
        self.node.held.load(Ordering::Acquire) == 0
    }

    /// The lost parts of a range, in no order.
    pub(super) fn lost(&self, offset: u64, bytes: u64) -> Vec<Lost> {
        if self.node.is_lost_whole.load(Ordering::SeqCst) {
            return vec![Lost { offset: 0, bytes: self.bytes }];
        }
        let entries = self.node.ranges.iter().map(|range| range.load(Ordering::SeqCst)).filter(|entry| *entry != 0);
        let lost = entries.map(|entry| {
            let Lost { offset, bytes } = range_of(entry);
            Lost { offset, bytes: bytes.min(self.bytes - offset) }
        });
        lost.filter(|lost| lost.offset < offset + bytes && offset < lost.offset + lost.bytes).collect()
    }

    /// Removes a range that [`lost`](Watch::lost) returned and that has been written completely since.
    pub(super) fn forget(&self, lost: Lost) {
        for range in &self.node.ranges {
            let entry = range.load(Ordering::SeqCst);
            let is_it = entry != 0 && range_of(entry).offset == lost.offset;
            if is_it && range.compare_exchange(entry, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
                self.node.held.fetch_sub(1, Ordering::SeqCst);
            }
        }
        if lost == (Lost { offset: 0, bytes: self.bytes }) && self.node.is_lost_whole.swap(false, Ordering::SeqCst) {
            self.node.held.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.node.start.store(0, Ordering::SeqCst);
        self.node.ranges.iter().for_each(|range| range.store(0, Ordering::SeqCst));
        self.node.is_lost_whole.store(false, Ordering::SeqCst);
        self.node.held.store(0, Ordering::SeqCst);
        self.node.is_taken.store(false, Ordering::Release);
    }
}

/// Runs a call during which the kernel reports poison, outside any routine.
pub(super) fn while_injecting<T>(call: impl FnOnce() -> T) -> T {
    INJECTING.fetch_add(1, Ordering::SeqCst);
    let result = call();
    INJECTING.fetch_sub(1, Ordering::SeqCst);
    result
}

/// Installs the handler, once for the process; keeps the previous handler.
fn install() -> io::Result<()> {
    static INSTALLED: OnceLock<Result<(), i32>> = OnceLock::new();
    let install = || {
        let code = || io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL);
        // SAFETY: sysconf takes a number and answers one.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        PAGE_SHIFT.store(page.max(4096).trailing_zeros(), Ordering::SeqCst);
        // SAFETY: an all-zero sigaction is a valid one; the kernel fills it.
        let mut previous: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: a query into a structure that lives until the call returns.
        if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut previous) } != 0 {
            return Err(code());
        }
        // Before the handler can run, so that it always finds the previous handler.
        PREVIOUS.store(Box::leak(Box::new(previous)), Ordering::SeqCst);
        // SAFETY: as above.
        let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
        let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void) = on_bus_error;
        ours.sa_sigaction = handler as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the handler has the signature that SA_SIGINFO asks for, and does only what a handler may do.
        if unsafe { libc::sigaction(libc::SIGBUS, &raw const ours, ptr::null_mut()) } != 0 {
            return Err(code());
        }
        Ok(())
    };
    INSTALLED.get_or_init(install).map_err(io::Error::from_raw_os_error)
}

extern "C" fn on_bus_error(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes the siginfo_t and the context of this signal to a handler installed with SA_SIGINFO.
    if !unsafe { is_ours(info, context) } {
        // SAFETY: as above.
        unsafe { pass_on(signal, info, context) }
    }
}

/// Handles a signal about a watched mapping; returns whether it was handled.
///
/// # Safety
/// The arguments are those of a signal handler that is running.
unsafe fn is_ours(info: *mut libc::siginfo_t, context: *mut c_void) -> bool {
    // SAFETY: a siginfo_t of the kernel; si_addr is set for the codes that are asked for below.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    if !matches!(code, BUS_ADRERR | BUS_MCEERR_AR | BUS_MCEERR_AO) {
        return false;
    }
    let Some((node, offset)) = Node::find(address) else { return false };
    let shift = match code {
        // SAFETY: si_addr_lsb, which the kernel sets for these codes, follows si_addr; libc has no name for it. A siginfo_t
        // has 128 bytes.
        BUS_MCEERR_AR | BUS_MCEERR_AO => unsafe { info.cast::<u8>().add(SI_ADDR_LSB).cast::<i16>().read() },
        _ => 0,
    };
    let shift = u32::try_from(shift).unwrap_or(0).clamp(PAGE_SHIFT.load(Ordering::SeqCst), 40);
    node.note(offset, shift);
    // SAFETY: the context of the running handler.
    code == BUS_MCEERR_AO || unsafe { instructions::resume(context) } || INJECTING.load(Ordering::SeqCst) > 0
}

/// The offset of `si_addr_lsb` in a siginfo_t of a 64-bit Linux: three ints, padding, the address.
const SI_ADDR_LSB: usize = 24;

/// Does what would have happened without this handler.
///
/// # Safety
/// The arguments are those of a signal handler that is running.
unsafe fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    let previous = PREVIOUS.load(Ordering::SeqCst);
    // SAFETY: set before the handler was installed, to a leaked box that is never written again.
    let previous = unsafe { &*previous };
    match previous.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: a handler may call both. After the return a fault happens again, and a sent signal is sent again:
            // then without this handler.
            unsafe {
                libc::sigaction(signal, previous, ptr::null_mut());
                if (*info).si_code <= 0 {
                    libc::raise(signal);
                }
            }
        }
        handler if previous.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: installed with SA_SIGINFO, so it has this signature.
            let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void) =
                unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: installed without SA_SIGINFO, so it has this signature.
            let handler: extern "C" fn(i32) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}

#[cfg(all(test, any(target_arch = "x86_64", target_arch = "aarch64")))]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    /// Set in the process that a test starts to observe how it dies.
    const DIES: &str = "DEVICE_TEST_DIES";

    #[test]
    fn a_mapping_that_ends_forgets_its_losses_and_its_place_is_found_no_more() {
        let watch = Watch::over(0x7000_0000, 0x10000).expect("watch");
        assert!(watch.is_whole());
        let (node, offset) = Node::find(0x7000_5008).expect("watched");
        assert_eq!(offset, 0x5008);
        node.note(offset, 12);
        node.note(0x5ff8, 12);
        assert!(!watch.is_whole());
        let page = Lost { offset: 0x5000, bytes: 0x1000 };
        assert_eq!(watch.lost(0, 0x10000), [page]);
        assert_eq!(watch.lost(0x5ff8, 8), [page]);
        assert_eq!(watch.lost(0x4000, 0x1000), []);
        assert_eq!(watch.lost(0x6000, 0x1000), []);
        assert!(Node::find(0x7001_0000).is_none() && Node::find(0x6fff_ffff).is_none());
        drop(watch);
        assert!(Node::find(0x7000_5008).is_none());
    }

    #[test]
    fn what_is_written_whole_is_forgotten_and_a_large_unit_ends_with_the_mapping() {
        let watch = Watch::over(0x6000_0000, 0x30_0000).expect("watch");
        watch.node.note(0x20_1000, 21);
        watch.node.note(0, 12);
        let large = Lost { offset: 0x20_0000, bytes: 0x10_0000 };
        assert_eq!(watch.lost(0x2f_fff8, 8), [large]);
        watch.forget(large);
        assert_eq!(watch.lost(0, 0x30_0000), [Lost { offset: 0, bytes: 0x1000 }]);
        watch.forget(Lost { offset: 0, bytes: 0x1000 });
        assert!(watch.is_whole());
    }

    #[test]
    fn more_losses_than_there_is_room_for_make_everything_lost() {
        let bytes = (RANGES_MAX + 2) << 12;
        let watch = Watch::over(0x5000_0000, bytes).expect("watch");
        (0..RANGES_MAX as u64).for_each(|page| watch.node.note(page << 12, 12));
        assert_eq!(watch.lost(0, bytes as u64).len(), RANGES_MAX);
        assert_eq!(watch.lost((RANGES_MAX as u64) << 12, 0x1000), []);
        (0..3).for_each(|_| watch.node.note((RANGES_MAX as u64) << 12, 12));
        let whole = Lost { offset: 0, bytes: bytes as u64 };
        assert_eq!(watch.lost((RANGES_MAX as u64 + 1) << 12, 8), [whole]);
        watch.forget(whole);
        (0..RANGES_MAX as u64).for_each(|page| watch.forget(Lost { offset: page << 12, bytes: 0x1000 }));
        assert!(watch.is_whole());
    }

    #[test]
    fn many_mappings_come_and_go_on_many_threads_and_each_finds_itself() {
        std::thread::scope(|scope| {
            for thread in 1..=4usize {
                scope.spawn(move || {
                    for turn in 0..500usize {
                        let start = thread << 40 | (turn % 7) << 20;
                        let watch = Watch::over(start, 0x2000).expect("watch");
                        let (node, offset) = Node::find(start + 0x1008).expect("watched");
                        assert!(ptr::eq(node, watch.node) && offset == 0x1008);
                    }
                });
            }
        });
    }

    /// Sends this thread the signal that the kernel sends for poison; a process may forge that for itself
    /// (rt_tgsigqueueinfo(2)).
    fn report_poison(code: i32, address: usize, shift: i16) {
        let mut info = [0u8; 128];
        info[0..4].copy_from_slice(&libc::SIGBUS.to_ne_bytes());
        info[8..12].copy_from_slice(&code.to_ne_bytes());
        info[16..24].copy_from_slice(&address.to_ne_bytes());
        info[SI_ADDR_LSB..SI_ADDR_LSB + 2].copy_from_slice(&shift.to_ne_bytes());
        // SAFETY: gettid takes and touches nothing.
        let thread = unsafe { libc::gettid() };
        let process = std::process::id();
        // SAFETY: info has the 128 bytes of a siginfo_t and lives until the call returns.
        let sent = unsafe { libc::syscall(libc::SYS_rt_tgsigqueueinfo, process, thread, libc::SIGBUS, info.as_ptr()) };
        assert_eq!(sent, 0, "{}", io::Error::last_os_error());
    }

    #[test]
    fn poison_that_is_asked_for_or_found_in_the_background_is_noted_in_the_unit_the_kernel_says() {
        const START: usize = 0x3000_0000;
        let watch = Watch::over(START, 4 << 20).expect("watch");
        while_injecting(|| report_poison(BUS_MCEERR_AR, START + 0x5123, 12));
        report_poison(BUS_MCEERR_AO, START + 0x9000, 12);
        // As for a page that is mapped by a large page-table entry.
        report_poison(BUS_MCEERR_AO, START + 0x20_3000, 21);
        let mut lost = watch.lost(0, 4 << 20);
        lost.sort_unstable_by_key(|lost| lost.offset);
        let page = |offset| Lost { offset, bytes: 0x1000 };
        assert_eq!(lost, [page(0x5000), page(0x9000), Lost { offset: 0x20_0000, bytes: 0x20_0000 }]);
    }

    /// Reads after the end of a mapped file, in code outside the routines.
    fn fault_elsewhere() {
        let file = tempfile::tempfile().expect("temporary file");
        file.set_len(4096).expect("set length");
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let at = unsafe { libc::mmap(ptr::null_mut(), 4096, libc::PROT_READ, libc::MAP_SHARED, fd, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        file.set_len(0).expect("set length");
        // SAFETY: mapped; the process is meant to die here.
        println!("{}", unsafe { at.cast::<u8>().read_volatile() });
    }

    #[test]
    fn a_bus_error_that_is_not_about_a_mapping_of_ours_still_kills() {
        let _watch = Watch::over(0x4000_0000, 0x1000).expect("watch");
        match std::env::var(DIES).as_deref() {
            Ok("fault") => fault_elsewhere(),
            // In a watched mapping, but neither caused by a routine nor injected.
            Ok("poison") => (0..2).for_each(|_| report_poison(BUS_MCEERR_AR, 0x4000_0000, 12)),
            // Rust's own handler, which ours calls, expects that the fault of the first signal occurs again: it only
            // restores the default.
            // SAFETY: a signal to ourselves, which we are meant to die of.
            Ok(_) => assert!((0..2).all(|_| unsafe { libc::raise(libc::SIGBUS) } == 0)),
            Err(_) => {
                for how in ["fault", "poison", "sent"] {
                    let name = "pmem::guard::tests::a_bus_error_that_is_not_about_a_mapping_of_ours_still_kills";
                    let child = Command::new(std::env::current_exe().expect("our own path"))
                        .args(["--exact", name, "--nocapture"])
                        .env(DIES, how)
                        .output()
                        .expect("run ourselves");
                    assert_eq!(child.status.signal(), Some(libc::SIGBUS), "{how}: {child:?}");
                }
            }
        }
    }
}
