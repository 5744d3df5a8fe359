//! A webhook: one POST of JSON on a connection of its own (RFC 9112), of whose answer only the status counts.
//!
//! Invariants: no more than a head of [`HEAD_MAX`] bytes is read; redirects are not followed; errors name the host and no path.

use std::path::Path;

use hyper::Uri;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::channel::Webhook;
use super::connect::{Wire, connect, secured};
use super::files::{bytes_of, reading};
use super::untaken::UntakenMessage;

/// Most bytes of an answer's head.
const HEAD_MAX: usize = 16 << 10;

/// Most bytes of a file with a secret.
const SECRET_MAX: usize = 4_096;

/// The one line of a file with a secret. Errors: it cannot be read, or is no line.
pub(super) async fn secret(file: &Path) -> Result<String, String> {
    reading(file, secret_in).await
}

fn secret_in(file: &Path) -> Result<String, String> {
    let text = String::from_utf8(bytes_of(file, SECRET_MAX)?).unwrap_or_default();
    let line = text.trim_end_matches(['\r', '\n']);
    match line.is_empty() || line.chars().any(char::is_control) {
        true => Err(format!("{}: it is not one line with a secret", file.display())),
        false => Ok(line.to_owned()),
    }
}

/// Posts it. Errors: why it was not taken. The caller bounds the time.
pub(super) async fn post(webhook: &Webhook, json: &[u8]) -> Result<(), UntakenMessage> {
    let url = &webhook.url;
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let is_secure = url.scheme_str() == Some("https");
    let port = url.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
    let token = match &webhook.token_file {
        Some(file) => Some(secret(file).await?),
        None => None,
    };
    let failed = |error: std::io::Error| error.to_string();
    let mut wire = connect(host, port, !is_secure).await.map_err(failed)?;
    if is_secure {
        wire = secured(wire, host, webhook.authority.as_deref()).await?;
    }
    wire.write_all(&request(url, token.as_deref(), json)).await.map_err(failed)?;
    wire.flush().await.map_err(failed)?;
    match answered(&mut *wire).await? {
        200..=299 => Ok(()),
        status => {
            // 408: it was too slow; 429: there were too many (RFC 9110, RFC 6585).
            let is_final = (400..=499).contains(&status) && !matches!(status, 408 | 429);
            Err(UntakenMessage { why: format!("it answered {status}"), is_final })
        }
    }
}

/// The bytes of a request. A [`Uri`] has no blank and no control character, nor has a secret.
fn request(url: &Uri, token: Option<&str>, json: &[u8]) -> Vec<u8> {
    let target = url.path_and_query().map_or("/", |target| target.as_str());
    let host = url.authority().map_or("", |authority| authority.as_str());
    let mut head = format!(
        "POST {target} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: terrace\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n",
        json.len()
    );
    if let Some(token) = token {
        head.push_str(&format!("Authorization: Bearer {token}\r\n"));
    }
    head.push_str("\r\n");
    [head.as_bytes(), json].concat()
}

/// The status of an answer. Errors: it is none.
async fn answered(wire: &mut dyn Wire) -> Result<u16, String> {
    let mut head = Vec::new();
    loop {
        if let Some(status) = status_of(&head)? {
            return Ok(status);
        }
        let mut chunk = [0; 1024];
        let read = wire.read(&mut chunk).await.map_err(|error| error.to_string())?;
        if read == 0 {
            return Err("it ended the connection without an answer".to_owned());
        }
        head.extend_from_slice(&chunk[..read]);
    }
}

/// The status in the bytes of an answer, once its first line that is no interim answer is there. Errors: they are no answer.
pub(super) fn status_of(bytes: &[u8]) -> Result<Option<u16>, String> {
    if bytes.len() > HEAD_MAX {
        return Err("its answer has no end".to_owned());
    }
    let mut rest = bytes;
    loop {
        let Some(end) = rest.windows(2).position(|end| end == b"\r\n") else { return Ok(None) };
        let line = std::str::from_utf8(&rest[..end]).unwrap_or_default();
        let status = line.strip_prefix("HTTP/1.").and_then(|line| line.get(2..5)?.parse::<u16>().ok());
        match status {
            None => return Err("it does not speak HTTP/1.1".to_owned()),
            Some(100..=199) => {
                let Some(end) = rest.windows(4).position(|end| end == b"\r\n\r\n") else { return Ok(None) };
                rest = &rest[end + 4..];
            }
            Some(status) => return Ok(Some(status)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_of_an_answer_is_found_and_what_is_no_answer_is_refused() {
        for (answer, status) in [
            ("HTTP/1.1 204 No Content\r\n\r\n", Ok(Some(204))),
            ("HTTP/1.0 500\r\n", Ok(Some(500))),
            ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Made\r\n", Ok(Some(201))),
            ("HTTP/1.1 100 Continue\r\n", Ok(None)),
            ("HTTP/1.1 2", Ok(None)),
            ("SSH-2.0-x\r\n", Err("it does not speak HTTP/1.1".to_owned())),
            ("HTTP/1.1\r\n", Err("it does not speak HTTP/1.1".to_owned())),
        ] {
            assert_eq!(status_of(answer.as_bytes()), status, "{answer}");
        }
        assert!(status_of(&vec![b'x'; HEAD_MAX + 1]).is_err());
    }

    #[test]
    fn a_secret_is_one_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("token");
        for (text, is_right) in [("abc\n", true), ("abc\r\n", true), ("", false), ("a\r\nX: y\n", false)] {
            std::fs::write(&file, text).expect("a file");
            assert_eq!(secret_in(&file).is_ok(), is_right, "{text:?}");
        }
    }
}
