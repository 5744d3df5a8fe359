//! The behaviour of pgwire's own loop over a socket and of its portals, which is why they are not used
//! (docs/adr/0014-sql.md). If one of these tests fails, it may be time to use them.

use std::sync::Arc;

use async_trait::async_trait;
use futures::{FutureExt, Sink, stream};
use parking_lot::Mutex;
use pgwire::api::auth::sasl::SASLAuthStartupHandler;
use pgwire::api::auth::sasl::scram::{SCRAM_ITERATIONS, ScramAuth, gen_salted_password};
use pgwire::api::auth::{AuthSource, DefaultServerParameterProvider, LoginInfo, Password, StartupHandler};
use pgwire::api::portal::Portal;
use pgwire::api::query::SimpleQueryHandler;
use pgwire::api::results::{QueryResponse, Response, Tag};
use pgwire::api::stmt::StoredStatement;
use pgwire::api::{ClientInfo, ClientPortalStore, PgWireServerHandlers};
use pgwire::error::{PgWireError, PgWireResult};
use tokio::net::TcpListener;

use super::super::Reply;
use super::client::{Client, client_final, start};

/// Handlers that record what they are asked to run.
#[derive(Clone, Default)]
struct Handlers(Arc<Mutex<Vec<String>>>);

#[derive(Debug)]
struct Passwords;

#[async_trait]
impl AuthSource for Passwords {
    async fn get_password(&self, _: &LoginInfo) -> PgWireResult<Password> {
        Ok(Password::new(Some(b"salt".to_vec()), gen_salted_password("secret", b"salt", SCRAM_ITERATIONS)))
    }
}

#[async_trait]
impl SimpleQueryHandler for Handlers {
    async fn do_query<C>(&self, _: &mut C, query: &str) -> PgWireResult<Vec<Response>>
    where
        C: ClientInfo + ClientPortalStore + Sink<Reply> + Unpin + Send + Sync,
        PgWireError: From<<C as Sink<Reply>>::Error>,
    {
        self.0.lock().push(query.to_owned());
        Ok(vec![Response::Execution(Tag::new("DONE"))])
    }
}

impl PgWireServerHandlers for Handlers {
    fn simple_query_handler(&self) -> Arc<impl SimpleQueryHandler> {
        Arc::new(self.clone())
    }

    fn startup_handler(&self) -> Arc<impl StartupHandler> {
        let handler = SASLAuthStartupHandler::new(Arc::new(DefaultServerParameterProvider::default()));
        Arc::new(handler.with_scram(ScramAuth::new(Arc::new(Passwords))))
    }
}

#[tokio::test]
async fn pgwires_loop_carries_out_what_is_sent_behind_a_wrong_password() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a port");
    let address = listener.local_addr().expect("it has one");
    let handlers = Handlers::default();
    let theirs = handlers.clone();
    let server = tokio::spawn(async move {
        let (socket, _) = listener.accept().await.expect("the client comes");
        // The way it ends does not matter: only what it ran before does.
        let _ = pgwire::tokio::process_socket(socket, None, theirs).await;
    });
    let mut client = Client::to(address).await;
    client.send(&start(3 << 16, &[("user", "ann")])).await;
    assert_eq!(client.reply().await.kind, 'R');
    client.message(b'p', b"SCRAM-SHA-256\0\0\0\0\x08n,,n=,r=x").await;
    let question = client.reply().await.body;
    let question = std::str::from_utf8(&question[4..]).expect("it is text");
    let last = client_final("a wrong one", "n=,r=x", question);
    client.message(b'p', last.as_bytes()).await;
    client.message(b'Q', b"drop table t\0").await;
    assert_eq!(client.reply().await.error().0, "28P01");
    drop(client);
    server.await.expect("it ends");
    assert_eq!(*handlers.0.lock(), ["drop table t"], "pgwire refuses it now");
}

#[tokio::test]
async fn pgwires_portals_set_aside_what_the_row_limit_says() {
    let statement = Arc::new(StoredStatement::new("s".into(), "select 1".to_owned(), Vec::new()));
    let portal = Portal::new_cursor("p".into(), statement);
    portal.start(QueryResponse::new(Arc::new(Vec::new()), stream::empty())).await;
    // -1, which means "all" in PostgreSQL, as pgwire converts it.
    let fetched = std::panic::AssertUnwindSafe(portal.fetch(-1i32 as usize)).catch_unwind().await;
    assert!(fetched.is_err(), "pgwire bounds it now");
}
