//! The cost of a write to mapped memory, compared with the simplest loop:
//! `cargo run --release -p device --example pmem_cost [-- DIRECTORY]`.
//!
//! It measures on a device of the given directory (default: `/dev/shm` if it exists, else the temporary directory):
//!
//! * `write`: [`Device::write_flush`] by one thread, and the same stores and one fence in a bare loop over a mapping of
//!   the same kind: 8-byte stores and `clwb` below 256 bytes, 16-byte non-temporal stores from there on
//! * `read`: [`Device::read`], and a plain copy
//!
//! The two take turns in short rounds and walk through their files in the same way, so that slow periods of the machine
//! affect both. The whole run takes about 5 seconds. Figures are nanoseconds for one call without the cost of reading the
//! clock, which is printed; `middle` is the mean of the middle four fifths, finer than the clock's steps. The first line
//! reports whether the medium is persistent memory or emulated. The bare loop exists only for x86-64.

#[cfg(not(target_arch = "x86_64"))]
fn main() {
    eprintln!("the bare loop is written for x86-64");
    std::process::exit(1);
}

#[cfg(target_arch = "x86_64")]
fn main() {
    measured::main().expect("standard output");
}

#[cfg(target_arch = "x86_64")]
mod measured {
    use std::arch::asm;
    use std::arch::x86_64::{
        __cpuid_count, __m128i, _mm_lfence, _mm_loadu_si128, _mm_sfence, _mm_stream_si128, _rdtsc,
    };
    use std::fs;
    use std::hint::black_box;
    use std::io::{self, Write};
    use std::os::fd::AsRawFd;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use device::pmem::{Absent, PmemOptions, PmemShelf};
    use device::{AlignedBuffer, Device, Shelf};

    const FILE_BYTES: usize = 64 << 20;
    const ALIGN: usize = 2 << 20;
    const SIZES: [usize; 6] = [8, 64, 256, 1024, 1280, 4096];
    const ROUNDS: usize = 1500;
    const CALLS: usize = 64;

    /// The bare mapping.
    struct Raw {
        base: *mut u8,
        has_clwb: bool,
    }

    impl Raw {
        fn map(path: &Path) -> Raw {
            let file = fs::File::options().read(true).write(true).open(path).expect("open");
            let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
            let anonymous = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // SAFETY: fresh mappings: an address of the kernel's choice, and a place in the middle of it.
            let base = unsafe {
                let start = libc::mmap(std::ptr::null_mut(), FILE_BYTES + ALIGN, libc::PROT_NONE, anonymous, -1, 0);
                assert_ne!(start, libc::MAP_FAILED);
                // Large pages, as the device uses: otherwise TLB misses would hide the difference.
                let aligned = start.wrapping_byte_add(start.addr().next_multiple_of(ALIGN) - start.addr());
                libc::mmap(aligned, FILE_BYTES, protection, flags | libc::MAP_FIXED, file.as_raw_fd(), 0)
            };
            assert_ne!(base, libc::MAP_FAILED);
            let base = base.cast::<u8>();
            // SAFETY: all of the mapping, and no other code has its address.
            unsafe { base.write_bytes(0, FILE_BYTES) };
            Raw { base, has_clwb: __cpuid_count(7, 0).ebx >> 24 & 1 == 1 }
        }

        #[inline(never)]
        fn write(&self, offset: usize, data: &[u8]) {
            assert!(offset + data.len() <= FILE_BYTES && offset.is_multiple_of(64));
            // SAFETY: the range lies in the mapping and starts with a line; data is borrowed. clwb runs where CPUID has it.
            unsafe {
                let to = self.base.add(offset);
                if data.len() >= 256 {
                    for at in (0..data.len()).step_by(16) {
                        _mm_stream_si128(to.add(at).cast(), _mm_loadu_si128(data.as_ptr().add(at).cast::<__m128i>()));
                    }
                } else {
                    for at in (0..data.len()).step_by(8) {
                        to.add(at).cast::<u64>().write_volatile(data.as_ptr().add(at).cast::<u64>().read_unaligned());
                    }
                    for at in (0..data.len()).step_by(64) {
                        if self.has_clwb {
                            asm!("clwb [{}]", in(reg) to.add(at), options(nostack, preserves_flags));
                        }
                    }
                }
                _mm_sfence();
            }
        }

        #[inline(never)]
        fn read(&self, offset: usize, buffer: &mut [u8]) {
            assert!(offset + buffer.len() <= FILE_BYTES);
            // SAFETY: the range lies in the mapping; the buffer is borrowed exclusively.
            unsafe { buffer.as_mut_ptr().copy_from_nonoverlapping(self.base.add(offset), buffer.len()) };
        }
    }

    /// The nanoseconds in a tick, and the cost of reading the clock.
    #[derive(Clone, Copy)]
    struct Clock {
        tick: f64,
        cost: f64,
    }

    impl Clock {
        fn nanoseconds(self, ticks: u64) -> f64 {
            (ticks as f64 - self.cost).max(0.0) * self.tick
        }
    }

    pub(crate) fn main() -> io::Result<()> {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let parent = std::env::args_os().nth(1).map_or(parent, PathBuf::from);
        let directory = parent.join(format!("pmem_cost-{}", std::process::id()));
        let shelf = PmemShelf::open(&directory, PmemOptions { absent: Absent::Emulate }).expect("open a shelf");
        let mut out = io::stdout().lock();
        let mapping = shelf.mapping();
        let medium = if mapping.synchronous { "persistent memory" } else { "EMULATED: not persistent memory" };
        writeln!(out, "{medium}\n{mapping}")?;
        let device = shelf.create("device", FILE_BYTES as u64).expect("create a device");
        drop(shelf.create("raw", FILE_BYTES as u64).expect("create a device"));
        let raw = Raw::map(&directory.join("raw"));
        let tick = tick();
        let mut nothing: Vec<u64> = (0..100_000).map(|_| timed(|| ())).collect();
        let clock = Clock { tick, cost: middle(&mut nothing) };
        writeln!(out, "asking the clock twice: {:.1} ns, taken off\n", tick * clock.cost)?;
        writeln!(
            out,
            "          bytes   raw p50    p99   p999   middle   device p50    p99   p999   middle   device/raw"
        )?;
        for bytes in SIZES {
            measure(&mut out, "write", bytes, &raw, &device, clock)?;
        }
        for bytes in SIZES {
            measure(&mut out, "read", bytes, &raw, &device, clock)?;
        }
        fs::remove_dir_all(&directory)
    }

    /// Nanoseconds in one tick of the time stamp counter, measured with the system's clock.
    fn tick() -> f64 {
        let (start, first) = (Instant::now(), ticks());
        while start.elapsed() < Duration::from_millis(100) {}
        start.elapsed().as_nanos() as f64 / (ticks() - first) as f64
    }

    #[inline]
    fn ticks() -> u64 {
        // SAFETY: every x86-64 has both; neither touches memory.
        unsafe {
            _mm_lfence();
            _rdtsc()
        }
    }

    /// Ticks of one call.
    #[inline]
    fn timed(call: impl FnOnce()) -> u64 {
        let start = ticks();
        call();
        ticks() - start
    }

    fn measure(
        out: &mut impl Write,
        what: &str,
        bytes: usize,
        raw: &Raw,
        device: &Arc<dyn Device>,
        clock: Clock,
    ) -> io::Result<()> {
        let mut data = AlignedBuffer::zeroed(bytes);
        data.fill(7);
        let stride = bytes.next_multiple_of(256);
        let (mut of_raw, mut of_device) = (Vec::new(), Vec::new());
        let mut offset = 0;
        for _ in 0..ROUNDS {
            if offset + CALLS * stride > FILE_BYTES {
                offset = 0;
            }
            let offsets = (0..CALLS).map(|call| offset + call * stride);
            if what == "write" {
                of_raw.extend(offsets.clone().map(|at| timed(|| raw.write(at, &data))));
                of_device.extend(offsets.map(|at| timed(|| device.write_flush(at as u64, &data).expect("write"))));
            } else {
                of_raw.extend(offsets.clone().map(|at| timed(|| raw.read(at, black_box(&mut data)))));
                of_device.extend(offsets.map(|at| timed(|| device.read(at as u64, &mut data).expect("read"))));
            }
            offset += CALLS * stride;
        }
        let [r50, r99, r999] = [0.5, 0.99, 0.999].map(|p| clock.nanoseconds(percentile(&mut of_raw, p)));
        let [d50, d99, d999] = [0.5, 0.99, 0.999].map(|p| clock.nanoseconds(percentile(&mut of_device, p)));
        let middles = [&mut of_raw, &mut of_device].map(|times| (middle(times) - clock.cost) * clock.tick);
        writeln!(
            out,
            "{what:5}  {bytes:8}  {r50:8.0} {r99:6.0} {r999:6.0} {:8.1}     {d50:8.0} {d99:6.0} {d999:6.0} {:8.1}   {:8.2}",
            middles[0],
            middles[1],
            middles[1] / middles[0].max(0.1)
        )
    }

    /// The mean of the middle four fifths: finer than the steps of the clock, and without interrupted calls.
    fn middle(times: &mut [u64]) -> f64 {
        times.sort_unstable();
        let middle = &times[times.len() / 10..times.len() * 9 / 10];
        middle.iter().sum::<u64>() as f64 / middle.len() as f64
    }

    /// A percentile (nearest rank).
    fn percentile(times: &mut [u64], p: f64) -> u64 {
        times.sort_unstable();
        let rank = (p * times.len() as f64).ceil() as usize;
        times[rank.clamp(1, times.len()) - 1]
    }
}
