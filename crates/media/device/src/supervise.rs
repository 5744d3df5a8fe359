//! Threads and tasks that never end in silence: a panic is caught, and whoever must know is told what it said.
//!
//! A thread or a task that is gone leaves others waiting for it for ever, or a part of the program quietly undone. So each is
//! started through here, or watched by a guard of its own crate: its panic ends one session with an error, or fails the node with
//! a reason. What it held is left as a crash of the process would leave it, and nobody goes on with it.
//!
//! It deliberately does not start anything again: what panicked once on the same data will panic again.
//!
//! That all of it holds in a whole node is rehearsed: each such thread and task calls [`rehearse`] with its name before a piece of
//! work. In a build with debug assertions a test makes one of them panic there; in any other the call is nothing.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::task::Poll;
use std::thread::{Builder, JoinHandle};

/// Starts a thread; `panicked` hears, on that thread, what a panic of `work` said.
///
/// Errors: the system gives no thread.
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

/// Runs a future to its end; what its panic said, where it panics. It is dropped then.
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

/// Panics where a test asked for it: the file that the environment variable `TERRACE_PANIC` names holds this name. Only in builds
/// with debug assertions; nothing in a release.
#[inline]
pub fn rehearse(name: &str) {
    if cfg!(debug_assertions) && asked_to_panic(name) {
        panic!("rehearsed in {name}");
    }
}

fn asked_to_panic(name: &str) -> bool {
    static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let file = FILE.get_or_init(|| std::env::var_os("TERRACE_PANIC").map(PathBuf::from));
    file.as_ref().is_some_and(|file| std::fs::read_to_string(file).is_ok_and(|text| text.trim() == name))
}

/// What a panic said.
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
