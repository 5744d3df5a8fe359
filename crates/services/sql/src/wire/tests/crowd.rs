//! Connections that do not log in: silent, slow, or endlessly requesting encryption. Others can log in, and cancel,
//! nevertheless.

use std::time::Duration;

use super::client::{Client, start};
use super::{Server, WireOptions, server};

/// Opens `count` connections that send these bytes and nothing more.
async fn crowd(server: &Server, count: usize, bytes: &[u8]) -> Vec<Client> {
    let mut all = Vec::new();
    for _ in 0..count {
        let mut client = Client::connect(server).await;
        client.send(bytes).await;
        all.push(client);
    }
    all
}

/// A client that tries until it is accepted.
async fn insists(server: &Server) -> Client {
    for _ in 0..600 {
        let mut client = Client::connect(server).await;
        if client.tries("ann").await {
            return client;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("nobody gets in");
}

fn few(options: &mut WireOptions) {
    (options.connections_max, options.connections_per_address) = (3, Some(3));
}

#[tokio::test]
async fn silent_connections_are_bounded_and_make_room_for_a_login_and_a_cancel_and_sessions_stay() {
    let server = server(few).await;
    let mut session = Client::trusted(&server).await;
    // A request for TLS, and nothing after it.
    let mut silent = crowd(&server, 20, &[0, 0, 0, 8, 4, 210, 22, 47]).await;
    silent.extend(crowd(&server, 20, b"").await);
    let door = server.door();
    assert!(door.open <= 3 + 8, "three and half of those to spare: {door:?}");
    let mut second = insists(&server).await;
    assert!(second.query("select 2").await.errors().is_empty());
    let (process, secret) = session.key.clone();
    let endless =
        "select count(*) from generate_series(1, 100000000) a(x) cross join generate_series(1, 100000000) b(y)";
    session.send_query(endless).await;
    let cancelling = async {
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            Client::connect(&server).await.cancel(process, &secret).await;
        }
    };
    let outcome = tokio::select! {
        outcome = session.outcome() => outcome,
        () = cancelling => unreachable!("it goes on for ever"),
        () = tokio::time::sleep(Duration::from_secs(60)) => panic!("a cancel request comes through"),
    };
    assert_eq!(outcome.errors(), ["57014"]);
    let door = server.door();
    assert!(door.refused["address_full"] >= 1 && door.ended["newcomer"] >= 1 && door.proven == 2, "{door:?}");
    let mut told = false;
    for client in &mut silent {
        let said = client.unread().await;
        told |= said.starts_with(b"E") && said.windows(5).any(|code| code == b"53300");
    }
    assert!(told, "who finds no place is told why");
    drop(silent);
    server.stop().await;
}

#[tokio::test]
async fn a_login_that_takes_too_long_ends_wherever_it_is() {
    let server = server(|options| (options.trust, options.login) = (false, Duration::from_millis(200))).await;
    for bytes in [&b""[..], &[0, 0, 0, 8, 4, 210, 22, 47], &start(3 << 16, &[("user", "ann")])] {
        let mut client = Client::connect(&server).await;
        client.send(bytes).await;
        assert!(client.ends().await, "{bytes:?}");
    }
    assert_eq!(server.door().ended, [("handshake".to_owned(), 3)].into());
    server.stop().await;
}

#[tokio::test]
async fn wishes_for_encryption_are_answered_a_few_times_and_not_for_ever() {
    let server = server(|_| {}).await;
    let mut client = Client::connect(&server).await;
    for _ in 0..10 {
        client.send(&[0, 0, 0, 8, 4, 210, 22, 47]).await;
    }
    assert!(client.ends().await);
    server.stop().await;
}

#[tokio::test]
async fn a_stop_does_not_wait_for_those_that_never_log_in() {
    let server = server(|_| {}).await;
    let mut silent = crowd(&server, 10, b"").await;
    silent.extend(crowd(&server, 10, &start(3 << 16, &[])[..8]).await);
    while server.door().open < 20 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (admission, stopped) = (std::sync::Arc::clone(server.admission()), server.stop());
    // Connections that do not end by themselves are cut off after ten seconds.
    tokio::time::timeout(Duration::from_secs(8), stopped).await.expect("nobody is waited for");
    assert!(admission.status().doors.is_empty());
    drop(silent);
}
