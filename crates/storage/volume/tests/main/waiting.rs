//! A shelf whose devices wait by themselves, as drives behind a ring do: submitted requests are completed by a thread of the shelf, or are
//! held until a test releases them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use device::{Device, DeviceError, Durability, IoRequest, IoSink, Shelf};

/// A request that was submitted, and is not complete.
struct Submitted {
    device: Arc<dyn Device>,
    request: IoRequest,
    sink: Arc<dyn IoSink>,
}

#[derive(Default)]
struct DriveState {
    queue: VecDeque<Submitted>,
    /// How many further requests are held.
    holds: u64,
    held: Vec<Submitted>,
    is_over: bool,
}

/// The thread of a shelf, as the test sees it.
#[derive(Default)]
pub(crate) struct Drive {
    state: Mutex<DriveState>,
    arrived: Condvar,
    submitted: AtomicU64,
}

impl Drive {
    /// The next so many requests that are submitted are not completed.
    pub(crate) fn hold(&self, count: u64) {
        self.state.lock().expect("no panic").holds = count;
    }

    pub(crate) fn held(&self) -> usize {
        self.state.lock().expect("no panic").held.len()
    }

    /// Completes all requests from now on, and those that were held.
    pub(crate) fn release(&self) {
        let mut state = self.state.lock().expect("no panic");
        state.holds = 0;
        let held = std::mem::take(&mut state.held);
        state.queue.extend(held);
        self.arrived.notify_all();
    }

    /// How many requests were submitted.
    pub(crate) fn submitted(&self) -> u64 {
        self.submitted.load(Ordering::Relaxed)
    }

    fn work(&self) {
        let mut state = self.state.lock().expect("no panic");
        loop {
            while let Some(Submitted { device, mut request, sink }) = state.queue.pop_front() {
                drop(state);
                let result = request.perform(&*device);
                sink.complete(request, result);
                drop((device, sink));
                state = self.state.lock().expect("no panic");
            }
            if state.is_over {
                return;
            }
            state = self.arrived.wait(state).expect("no panic");
        }
    }
}

pub(crate) struct WaitingShelf {
    inner: Arc<dyn Shelf>,
    pub(crate) drive: Arc<Drive>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl WaitingShelf {
    pub(crate) fn new(inner: Arc<dyn Shelf>) -> WaitingShelf {
        let drive = Arc::new(Drive::default());
        let working = drive.clone();
        let thread = std::thread::spawn(move || working.work());
        WaitingShelf { inner, drive, thread: Some(thread) }
    }

    fn wrap(&self, inner: Arc<dyn Device>) -> Arc<dyn Device> {
        Arc::new(WaitingDevice { inner, drive: self.drive.clone() })
    }
}

impl Drop for WaitingShelf {
    fn drop(&mut self) {
        self.drive.release();
        self.drive.state.lock().expect("no panic").is_over = true;
        self.drive.arrived.notify_all();
        // The last handle may be that of a request which this thread has completed.
        if let Some(thread) = self.thread.take().filter(|thread| thread.thread().id() != std::thread::current().id()) {
            thread.join().expect("no panic");
        }
    }
}

impl fmt::Debug for WaitingShelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WaitingShelf").field(&self.inner).finish()
    }
}

impl Shelf for WaitingShelf {
    fn create(&self, name: &str, bytes: u64) -> Result<Arc<dyn Device>, DeviceError> {
        Ok(self.wrap(self.inner.create(name, bytes)?))
    }

    fn open(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        Ok(self.wrap(self.inner.open(name)?))
    }

    fn open_read_only(&self, name: &str) -> Result<Arc<dyn Device>, DeviceError> {
        self.inner.open_read_only(name)
    }

    fn list(&self) -> Result<Vec<String>, DeviceError> {
        self.inner.list()
    }

    fn remove(&self, name: &str) -> Result<(), DeviceError> {
        self.inner.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DeviceError> {
        self.inner.rename(from, to)
    }
}

struct WaitingDevice {
    inner: Arc<dyn Device>,
    drive: Arc<Drive>,
}

impl fmt::Debug for WaitingDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WaitingDevice").field(&self.inner).finish()
    }
}

impl Device for WaitingDevice {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.inner.write(offset, data)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush()
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.inner.discard(offset, bytes)
    }

    fn submit(&self, batch: &mut Vec<IoRequest>, sink: &Arc<dyn IoSink>) {
        self.drive.submitted.fetch_add(batch.len() as u64, Ordering::Relaxed);
        let mut state = self.drive.state.lock().expect("no panic");
        for request in batch.drain(..) {
            let submitted = Submitted { device: self.inner.clone(), request, sink: sink.clone() };
            if state.holds > 0 {
                state.holds -= 1;
                state.held.push(submitted);
            } else {
                state.queue.push_back(submitted);
            }
        }
        self.drive.arrived.notify_all();
    }

    fn waits_by_itself(&self) -> bool {
        true
    }

    fn durability(&self) -> Durability {
        Durability::Emulated
    }
}
