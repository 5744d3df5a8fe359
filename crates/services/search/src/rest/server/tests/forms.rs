//! Requests and responses in all forms.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use super::client::RawClient;
use super::*;

const JSON: &str = "Content-Type: application/json\r\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_serves_one_request_after_the_other_pipelined_or_not() {
    let server = started(options(), echo).await;
    let mut client = RawClient::connect(server.address());
    let reply = client.request("POST /a%2Fb/_doc?pretty", JSON, b"{}");
    assert_eq!((reply.status, reply.headers["x-elastic-product"].as_str()), (200, "Elasticsearch"));
    assert_eq!(reply.json()["path"], json!(["a/b", "_doc"]));
    assert!(reply.body.ends_with(b"\n}\n"), "pretty");
    // A body in chunks, and the next requests behind it at once.
    let chunked = "PUT /x/_doc/1 HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n\
                   2\r\n{ \r\n1\r\n}\r\n0\r\n\r\n";
    client.send(format!(
        "{chunked}GET /second HTTP/1.1\r\nHost: localhost\r\n\r\nGET /third HTTP/1.1\r\nHost: localhost\r\n\r\n"
    ));
    let refused = client.read(false).expect("a response");
    assert_eq!(refused.error(), (403, "security_exception".to_owned()), "the host is no name of this machine");
    assert_eq!(client.read(false).expect("a response").json()["path"], json!(["second"]));
    assert_eq!(client.read(false).expect("a response").json()["path"], json!(["third"]));
    client.send(chunked.replace("Host: a", "Host: localhost"));
    assert_eq!(client.read(false).expect("a response").json()["body"], "{ }");
    let closes = client.request("GET /x", "Connection: close\r\n", b"");
    assert_eq!(closes.status, 200);
    assert!(client.is_closed());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn head_has_the_length_and_no_body_and_other_methods_are_told() {
    let server = started(options(), echo).await;
    let mut client = RawClient::connect(server.address());
    let length = client.request("GET /x", "", b"").body.len();
    let head = client.request("HEAD /x", "", b"");
    assert_eq!(
        (head.status, head.headers["content-length"].parse()),
        (200, Ok(length + 1)),
        "one letter more: {head:?}"
    );
    assert_eq!(client.request("OPTIONS /x", "", b"").headers["allow"], "GET,HEAD,POST,PUT,DELETE,OPTIONS");
    let refused = client.request("PATCH /x", "", b"");
    assert_eq!((refused.status, refused.headers["allow"].contains("PUT")), (405, true));
    assert_eq!(client.request("HEAD /%ff", "", b"").status, 400);
    assert_eq!(client.request("GET /%ff", "", b"").error().0, 400, "the head's body was left out");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_and_responses_are_compressed_where_the_client_says_so() {
    let server = started(options(), |request| {
        RestResponse::json(200, json!({"length": request.body.len(), "filler": "x".repeat(request.body.len())}))
    })
    .await;
    let mut client = RawClient::connect(server.address());
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&[b'1'; 3000]).expect("memory");
    let packed = packed.finish().expect("memory");
    let headers = format!("{JSON}Content-Encoding: gzip\r\nAccept-Encoding: gzip\r\n");
    let reply = client.request("POST /x", &headers, &packed);
    assert_eq!(reply.headers["content-encoding"], "gzip");
    let mut text = String::new();
    GzDecoder::new(&reply.body[..]).read_to_string(&mut text).expect("gzip");
    assert!(text.contains("\"length\":3000"), "{text}");
    let small = client.request("POST /x", &format!("{JSON}Accept-Encoding: gzip\r\n"), b"1");
    assert!(!small.headers.contains_key("content-encoding"));
    let broken = client.request("POST /x", &headers, &packed[..packed.len() - 9]);
    assert_eq!(broken.error(), (400, "parse_exception".to_owned()));
    let unknown = client.request("POST /x", &format!("{JSON}Content-Encoding: br\r\n"), b"1");
    assert_eq!(unknown.status, 415);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn media_types_and_filters_are_those_that_were_asked_for() {
    let server = started(options(), |request| match request.path.first().map(String::as_str) {
        Some("_cat") => RestResponse::text(200, "green\n"),
        Some("raw") => RestResponse { body: RestBody::RawJson(b"{\"a\":1,\"b\":2}".to_vec()), ..echo(request) },
        _ => echo(request),
    })
    .await;
    let mut client = RawClient::connect(server.address());
    let versioned = "Content-Type: application/vnd.elasticsearch+json; compatible-with=8\r\n\
                     Accept: application/vnd.elasticsearch+json; compatible-with=8\r\n";
    let reply = client.request("POST /x?filter_path=body", versioned, b"{}");
    assert_eq!(reply.headers["content-type"], "application/vnd.elasticsearch+json;compatible-with=8");
    assert_eq!(reply.json(), json!({"body": "{}"}));
    assert_eq!(client.request("GET /raw?filter_path=-a", "", b"").json(), json!({"b": 2}));
    assert_eq!(client.request("GET /_cat/health", "", b"").headers["content-type"], "text/plain; charset=UTF-8");
    assert_eq!(client.request("GET /x?format=yaml", "", b"").status, 406);
    let refused = client.request("POST /x", "Content-Type: text/plain\r\n", b"{}");
    let expected = json!({"error": "Content-Type header [text/plain] is not supported", "status": 406});
    assert_eq!((refused.status, refused.json()), (406, expected));
    assert_eq!(
        client.request("POST /x", "Content-Type: text/plain\r\n", b"").status,
        200,
        "without a body it has no type"
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_ends_its_request_and_no_other() {
    let server = started(options(), |request| match request.path.is_empty() {
        true => echo(request),
        false => panic!("a fault"),
    })
    .await;
    let mut client = RawClient::connect(server.address());
    assert_eq!(client.request("GET /x", "", b"").error(), (500, "internal_server_error".to_owned()));
    assert_eq!(client.request("GET /", "", b"").status, 200);
    server.stop().await;
}
