//! Queries that are read in part are bounded over all sessions, also those of portals.

use std::sync::Arc;

use store::{Options, Store};

use super::client::Client;
use super::guard_with_ann;
use crate::wire::{Server, WireOptions};
use crate::{Engine, EngineOptions};

#[tokio::test]
async fn a_portal_that_is_read_in_part_has_a_place_until_its_end() {
    let store = Store::in_memory(Options::default()).expect("memory is enough");
    let engine = Engine::new(store, EngineOptions { threads: 2, ..EngineOptions::default() }).expect("it starts");
    let options = WireOptions { listen: ([127, 0, 0, 1], 0).into(), trust: true, ..WireOptions::default() };
    let guard = guard_with_ann(engine.store());
    let server = Server::start(Arc::clone(&engine), guard, options).await.expect("it listens");
    let mut client = Client::trusted(&server).await;
    let mut places: Vec<_> = std::iter::from_fn(|| engine.teams.keep("ann").ok()).collect();
    for (is_full, rows, errors) in [(true, 2, &["53300"][..]), (true, 0, &[]), (false, 2, &[])] {
        if !is_full {
            places.pop();
        }
        client.query("begin").await;
        client.parse("", "select x from generate_series(1, 10) s(x)", &[]).await;
        client.message(b'B', b"p\0\0\0\0\0\0\0\0").await;
        client.message(b'E', &[&b"p\0\0\0\0"[..], &[rows]].concat()).await;
        client.message(b'S', b"").await;
        let outcome = client.outcome().await;
        assert_eq!(outcome.errors(), errors, "{rows} rows");
        assert_eq!(outcome.has('s'), rows > 0 && errors.is_empty());
        assert!(engine.teams.keep("ann").is_err(), "{rows} rows");
        if !is_full {
            client.message(b'E', b"p\0\0\0\0\0").await;
            client.message(b'S', b"").await;
            assert!(client.outcome().await.has('C'));
            client.query("rollback").await;
            assert!(engine.teams.keep("ann").is_ok(), "it was read to its end");
        }
        client.query("rollback").await;
    }
    server.stop().await;
}
