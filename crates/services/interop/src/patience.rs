//! Work in folders of others that may hang for ever, as a share of a network whose server is gone: on threads that may wait, and with an
//! end to the waiting. What is not waited for any more goes on, and ends when the folder answers.

use std::io;
use std::time::Duration;

use tokio::task::{JoinError, spawn_blocking};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};

/// How long a start, a reload or a look at a folder waits for it before it goes on, or says so.
pub(crate) const FOLDER_PATIENCE: Duration = Duration::from_secs(5);

/// Does work, and waits so long for it. A panic of it is one of the caller.
///
/// # Errors
/// `TimedOut` where it has not ended by then; `Other` where the runtime ends.
pub(crate) async fn within<T, W>(patience: Duration, work: W) -> io::Result<T>
where
    T: Send + 'static,
    W: FnOnce() -> T + Send + 'static,
{
    ended(timeout(patience, spawn_blocking(work)).await, patience)
}

/// Does all of the work at the same time, and waits so long for all of it: a piece that hangs holds up no other one. What each came to
/// stands behind its name, in the order of the work; errors as of [`within`].
pub(crate) async fn all_within<N, T, W>(patience: Duration, works: Vec<(N, W)>) -> Vec<(N, io::Result<T>)>
where
    T: Send + 'static,
    W: FnOnce() -> T + Send + 'static,
{
    let until = Instant::now() + patience;
    let begun: Vec<_> = works.into_iter().map(|(name, work)| (name, spawn_blocking(work))).collect();
    let mut all = Vec::with_capacity(begun.len());
    for (name, work) in begun {
        all.push((name, ended(timeout_at(until, work).await, patience)));
    }
    all
}

fn ended<T>(waited: Result<Result<T, JoinError>, Elapsed>, patience: Duration) -> io::Result<T> {
    match waited {
        Ok(Ok(done)) => Ok(done),
        Ok(Err(failed)) if failed.is_panic() => std::panic::resume_unwind(failed.into_panic()),
        Ok(Err(_)) => Err(io::Error::other("the node is stopping")),
        Err(_) => Err(no_answer(patience)),
    }
}

/// The error of a folder that is silent.
pub(crate) fn no_answer(patience: Duration) -> io::Error {
    let text = format!("its file system has not answered for {} s; it is waited for", patience.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, text)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_folder_that_hangs_is_given_up_in_time_and_its_work_goes_on() {
        let (answer, answers) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let hangs = move || {
            let _ = answers.recv();
            tell.send("made").expect("the test waits");
        };
        let error = within(Duration::from_millis(50), hangs).await.expect_err("it hangs");
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(told.try_recv().is_err(), "it is still at it");
        answer.send(()).expect("it waits");
        let made = spawn_blocking(move || told.recv()).await.expect("no panic");
        assert_eq!(made, Ok("made"));
    }

    #[tokio::test]
    async fn a_folder_that_hangs_holds_up_no_other_one() {
        let (answer, answers) = mpsc::channel::<()>();
        let mut answers = Some(answers);
        let works: Vec<_> = (0..4)
            .map(|number| {
                let hangs = if number == 1 { answers.take() } else { None };
                let work = move || {
                    if let Some(answers) = hangs {
                        let _ = answers.recv();
                    }
                    number * 10
                };
                (number, work)
            })
            .collect();
        let all = all_within(Duration::from_millis(200), works).await;
        drop(answer);
        let all: Vec<_> = all.into_iter().map(|(name, came)| (name, came.map_err(|error| error.kind()))).collect();
        assert_eq!(all, [(0, Ok(0)), (1, Err(io::ErrorKind::TimedOut)), (2, Ok(20)), (3, Ok(30))]);
    }
}
