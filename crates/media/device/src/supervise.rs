//! Threads and tasks that never end unnoticed: a panic is caught, and its text is reported to the parts that depend on
//! the thread.
//!
//! If a thread or a task ends unnoticed, others wait for it for ever, or a part of the program's work is not done. So
//! each is started through this module, or watched by a guard of its own crate: its panic ends one session with an
//! error, or fails the node with a reason. Its state is left as a crash of the process would leave it, and no other
//! thread continues with it.
//!
//! The module restarts nothing: code that panicked on some data will panic on it again.
//!
//! Tests rehearse this in a whole node: each such thread and task calls [`rehearse`] with its name before a piece of
//! work. In a build with debug assertions a test makes one of them panic there; in any other build the call does
//! nothing.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::task::Poll;
use std::thread::{Builder, JoinHandle};

/// Nice value of threads whose work may come later.
const LOW_PRIORITY: libc::c_int = 10;

/// Starts a thread; `panicked` is called on that thread with the text of a panic of `work`.
///
/// Errors: the system cannot start a thread.
pub fn thread(
    name: &str,
    work: impl FnOnce() + Send + 'static,
    panicked: impl FnOnce(&str) + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let told = name.to_owned();
    Builder::new().name(name.to_owned()).spawn(move || {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(work)) {
            panicked(&format!("the thread {told} panicked: {}", said(&*payload)));
        }
    })
}

/// From now on the calling thread, and the threads that it starts, get processor time only where others leave it (nice 10, which is a
/// ninth of their share): for work that may come later. Where the system refuses, it stays as it was.
pub fn lower_priority() {
    // SAFETY: takes and returns plain numbers. With 0 Linux means the calling thread, not the process.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, LOW_PRIORITY);
    }
}

/// Runs a future to its end, or returns the text of its panic. It is dropped then.
///
/// Errors: the text of the panic.
pub async fn caught<T>(work: impl Future<Output = T>) -> Result<T, String> {
    let mut work = Box::pin(work);
    std::future::poll_fn(move |context| match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
        Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
        Ok(Poll::Pending) => Poll::Pending,
        Err(payload) => Poll::Ready(Err(said(&*payload))),
    })
    .await
}

/// Panics if a test requested it: the file named by the environment variable `TERRACE_PANIC` contains this name. Only
/// in builds with debug assertions; a release build does nothing.
#[inline]
pub fn rehearse(name: &str) {
    if cfg!(debug_assertions) && must_panic(name) {
        panic!("rehearsed in {name}");
    }
}

fn must_panic(name: &str) -> bool {
    static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let file = FILE.get_or_init(|| std::env::var_os("TERRACE_PANIC").map(PathBuf::from));
    file.as_ref().is_some_and(|file| std::fs::read_to_string(file).is_ok_and(|text| text.trim() == name))
}

/// The text of a panic.
pub fn said(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no text".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::task::{Context, Waker};

    #[test]
    fn a_panic_of_a_thread_is_told_with_its_name_and_its_text() {
        let (tell, told) = mpsc::channel();
        let panicked = move |why: &str| tell.send(why.to_owned()).expect("the test waits");
        let thread = thread("worker", || panic!("number {}", 7), panicked).expect("a thread");
        assert_eq!(told.recv().expect("it is told"), "the thread worker panicked: number 7");
        thread.join().expect("the panic was caught");
    }

    #[test]
    fn a_panic_of_a_future_is_an_error_at_whichever_poll_it_comes() {
        let context = &mut Context::from_waker(Waker::noop());
        let mut polls = 0;
        let works = std::future::poll_fn(|_| {
            polls += 1;
            if polls == 2 { panic!("at the second poll") } else { Poll::<()>::Pending }
        });
        let mut works = Box::pin(caught(works));
        assert!(works.as_mut().poll(context).is_pending());
        assert_eq!(works.as_mut().poll(context), Poll::Ready(Err("at the second poll".to_owned())));
        assert_eq!(Box::pin(caught(async { 5 })).as_mut().poll(context), Poll::Ready(Ok(5)));
    }
}
