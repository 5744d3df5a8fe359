//! What is bounded: bodies, heads, times, requests at a time; and requests that nobody waits for.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use flate2::Compression;
use flate2::write::GzEncoder;
use parking_lot::Mutex;

use super::client::RawClient;
use super::*;

const JSON: &str = "Content-Type: application/json\r\n";

#[tokio::test(flavor = "multi_thread")]
async fn large_bodies_are_refused_declared_or_in_chunks_or_unpacked() {
    let small = HttpOptions { body_bytes_max: 100_000, bodies_bytes: 400_000, ..options() };
    let server = started(small, echo).await;
    let too_large = (413, "content_too_long_exception".to_owned());
    let mut client = RawClient::connect(server.address());
    // The response is there before the body, and the connection is still of use behind it.
    client.send(format!("POST /x HTTP/1.1\r\nHost: localhost\r\n{JSON}Content-Length: 100001\r\n\r\n"));
    assert_eq!(client.read(false).expect("a response").error(), too_large);
    let mut client = RawClient::connect(server.address());
    assert_eq!(client.request("POST /x", JSON, &[b' '; 100_000]).status, 200);
    client.send(format!("POST /x HTTP/1.1\r\nHost: localhost\r\n{JSON}Transfer-Encoding: chunked\r\n\r\n"));
    for _ in 0..11 {
        client.send(format!("2710\r\n{}\r\n", " ".repeat(10_000)));
    }
    assert_eq!(client.read(false).expect("a response").error(), too_large);
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&[b' '; 1_000_000]).expect("memory");
    let packed = packed.finish().expect("memory");
    let mut client = RawClient::connect(server.address());
    assert_eq!(client.request("POST /x", &format!("{JSON}Content-Encoding: gzip\r\n"), &packed).error(), too_large);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_of_all_requests_share_their_memory() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let tight = HttpOptions { body_bytes_max: 100_000, bodies_bytes: 150_000, ..options() };
    let runs = Arc::new(AtomicBool::new(false));
    let began = Arc::clone(&runs);
    let server = started(tight, move |request| {
        began.store(true, Ordering::Relaxed);
        if request.path.first().is_some_and(|first| first == "slow") {
            let _ = wait.lock().recv();
        }
        RestResponse::json(200, json!({}))
    })
    .await;
    let mut slow = RawClient::connect(server.address());
    slow.send(format!(
        "POST /slow HTTP/1.1\r\nHost: localhost\r\n{JSON}Content-Length: 90000\r\n\r\n{}",
        " ".repeat(90_000)
    ));
    until("it runs", || runs.load(Ordering::Relaxed));
    let mut other = RawClient::connect(server.address());
    assert_eq!(other.request("POST /x", JSON, &[b' '; 90_000]).error(), (429, "circuit_breaking_exception".to_owned()));
    go.send(()).expect("it waits");
    assert_eq!(slow.read(false).expect("a response").status, 200);
    assert_eq!(other.request("POST /x", JSON, &[b' '; 90_000]).status, 200);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_heads_bodies_and_silence_have_their_own_times() {
    let ms = Duration::from_millis;
    let times = HttpTimes { head: ms(200), idle: ms(900), silence: ms(200), ..HttpTimes::default() };
    let server = started(HttpOptions { times, ..options() }, echo).await;
    let mut slow_head = RawClient::connect(server.address());
    let began = Instant::now();
    slow_head.send("GET / HTTP/1.1\r\nHost: loc");
    assert!(slow_head.is_closed() && began.elapsed() < ms(800), "{:?}", began.elapsed());
    let mut slow_body = RawClient::connect(server.address());
    slow_body.send(format!("POST /x HTTP/1.1\r\nHost: localhost\r\n{JSON}Content-Length: 10\r\n\r\n12"));
    assert_eq!(slow_body.read(false).expect("a response").status, 408);
    let mut silent = RawClient::connect(server.address());
    let began = Instant::now();
    assert_eq!(silent.request("GET /", "", b"").status, 200);
    assert!(silent.is_closed() && began.elapsed() > ms(800), "{:?}", began.elapsed());
    let status = server.admission().status();
    let ended: u64 = status.doors[0].ended.values().sum();
    assert!(ended >= 2, "{status:?}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_and_targets_are_bounded() {
    let server = started(options(), echo).await;
    let long = format!("GET /{}", "x".repeat(5000));
    let refused = RawClient::connect(server.address()).request(&long, "", b"");
    assert_eq!(refused.error(), (400, "too_long_http_line_exception".to_owned()));
    for bytes in [66_000, 300_000] {
        let mut client = RawClient::connect(server.address());
        client.send(format!("GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: {}\r\n\r\n", "x".repeat(bytes)));
        // The connection may be closed with bytes that nobody reads, and the system drop the response.
        assert!(client.read(false).is_none_or(|reply| [400, 431].contains(&reply.status)), "{bytes}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_cancels_its_request() {
    let (ran, cancelled) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (began, heard) = (Arc::clone(&ran), Arc::clone(&cancelled));
    let server = started(options(), move |request| {
        began.store(true, Ordering::Relaxed);
        until("it is cancelled", || request.is_cancelled());
        heard.store(true, Ordering::Relaxed);
        RestResponse::json(200, json!({}))
    })
    .await;
    let request = "GET /x/_search HTTP/1.1\r\nHost: localhost\r\n\r\n";
    // The last one has sent more requests than the server reads ahead.
    for behind in [0, 1, 2_000] {
        ran.store(false, Ordering::Relaxed);
        cancelled.store(false, Ordering::Relaxed);
        let mut client = RawClient::connect(server.address());
        client.send(request);
        until("it runs", || ran.load(Ordering::Relaxed));
        client.send(request.repeat(behind));
        assert!(!cancelled.load(Ordering::Relaxed));
        let left = Instant::now();
        drop(client);
        until("it is cancelled", || cancelled.load(Ordering::Relaxed));
        assert!(left.elapsed() < Duration::from_secs(1), "{behind} requests behind it");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_class_refuses_and_the_others_go_on() {
    let lane = LaneBounds { running: 1, waiting: 1 };
    let times = HttpTimes { grace: Duration::from_millis(100), ..HttpTimes::default() };
    let bounded = HttpOptions { reads: lane, writes: lane, times, ..options() };
    let (runs, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (began, done) = (Arc::clone(&runs), Arc::clone(&ended));
    let server = started(bounded, move |request| {
        if request.path.first().is_some_and(|first| first == "slow") {
            began.fetch_add(1, Ordering::Relaxed);
            until("it is cancelled", || request.is_cancelled());
            done.fetch_add(1, Ordering::Relaxed);
        }
        RestResponse::json(200, json!({}))
    })
    .await;
    let search = "GET /slow/_search HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut clients: Vec<RawClient> = (0..2).map(|_| RawClient::connect(server.address())).collect();
    clients.iter_mut().for_each(|client| client.send(search));
    until("one runs", || runs.load(Ordering::Relaxed) == 1);
    let mut other = RawClient::connect(server.address());
    // The second one may be on its way to the queue.
    until("the class is full", || {
        let mut probe = RawClient::connect(server.address());
        probe.send("GET /x/_search HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        std::thread::sleep(Duration::from_millis(50));
        probe.read(false).is_some_and(|reply| reply.status == 429)
    });
    let refused = other.request("POST /x/_search", "", b"").error();
    assert_eq!(refused, (429, "es_rejected_execution_exception".to_owned()));
    assert_eq!(other.request("GET /", "", b"").status, 200, "the node is observable");
    assert_eq!(other.request("PUT /x", "", b"").status, 200, "writes have turns of their own");
    // The server ends: what runs is cancelled, and has ended when the server has.
    server.stop().await;
    assert_eq!(ended.load(Ordering::Relaxed), runs.load(Ordering::Relaxed));
}
