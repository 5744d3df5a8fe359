//! Work that a key does once: whoever sends the same form or request again gets the first answer, and nothing is done twice.

use std::sync::Arc;

use node::identity::Caller;
use tokio::sync::oneshot;

use crate::admin::AdminError;
use crate::resends::KeyAnswer;
use crate::secret;
use crate::state::ConsoleState;

/// Does `work`, which makes a message, under a key of the caller; the message. `request` is all that the work depends on: a key is of
/// one request only. The work goes on to its end, though who asked may be gone.
pub(crate) async fn once<F>(
    state: &Arc<ConsoleState>,
    caller: &Caller,
    (key, request): (&str, &[u8]),
    work: F,
) -> Result<u64, AdminError>
where
    F: Future<Output = Result<u64, AdminError>> + Send + 'static,
{
    let (key, request) = (secret::sha256(key.as_bytes()), secret::sha256(request));
    let answer = state.resends.lock().begin(caller.session(), (key, request), state.now_ms());
    match answer {
        KeyAnswer::Done(new) => Ok(new),
        KeyAnswer::Running => Err(AdminError::Refused("it is being sent: look at it in a moment".to_owned())),
        KeyAnswer::Other => Err(AdminError::Refused("the key was used for something else: begin anew".to_owned())),
        KeyAnswer::New => {
            let (state, session) = (Arc::clone(state), caller.session());
            let (tell, told) = oneshot::channel();
            node::task::session("console-resend", async move {
                let sent = work.await;
                state.resends.lock().end(session, key, sent.as_ref().ok().copied());
                // Nobody may wait any more.
                let _ = tell.send(sent);
            });
            told.await.unwrap_or_else(|_| {
                Err(AdminError::Unavailable("the resend ended by a fault of the program".to_owned()))
            })
        }
    }
}
