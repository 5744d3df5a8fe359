//! Sends a mail (RFC 5321, 3207, 4954): one connection, one message, then it ends.
//!
//! ```text
//!   220 <- | EHLO -> 250 | STARTTLS -> 220, TLS, EHLO -> 250 | AUTH PLAIN -> 235 | MAIL -> 250 | RCPT -> 250 ... | DATA -> 354 | text -> 250
//! ```
//!
//! Invariants: no password goes out without TLS but to this machine; what a server says before TLS does not count after it, and bytes that it
//! sends ahead of TLS end the connection; a reply has at most [`REPLY_MAX`] bytes. A server that has the whole mail
//! has [`TAKING`] to take it: who ends earlier sends it a second time.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::channel::{MailSecurity, Mailbox};
use super::connect::{Wire, connect, secured};
use super::untaken::{UntakenMessage, within};
use super::webhook::secret;

/// How long a server may take to take a mail (RFC 5321, 4.5.3.2.6).
const TAKING: Duration = Duration::from_secs(600);

/// Most bytes of a reply, all of its lines together.
const REPLY_MAX: usize = 16 << 10;

/// Most characters of a server's words that are repeated in an error.
const SAID_MAX: usize = 200;

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reply {
    code: u16,
    /// Its lines without their codes.
    lines: Vec<String>,
}

/// The first reply in these bytes and its length, once it is there whole. Errors: they are no reply.
pub(super) fn reply_in(bytes: &[u8]) -> Result<Option<(Reply, usize)>, String> {
    let (mut lines, mut at, mut code) = (Vec::new(), 0, None);
    loop {
        let Some(length) = bytes[at..].iter().position(|byte| *byte == b'\n') else {
            return if bytes.len() > REPLY_MAX { Err("its reply has no end".to_owned()) } else { Ok(None) };
        };
        let line = String::from_utf8_lossy(&bytes[at..at + length]).trim_end_matches('\r').to_owned();
        at += length + 1;
        let number = line.get(..3).filter(|number| number.bytes().all(|byte| byte.is_ascii_digit()));
        let number = number.and_then(|number| number.parse::<u16>().ok());
        let (Some(number), true) = (number, at <= REPLY_MAX) else {
            return Err("it does not speak SMTP".to_owned());
        };
        if code.is_some_and(|code| code != number) {
            return Err("it does not speak SMTP".to_owned());
        }
        code = Some(number);
        let said: String = line.chars().skip(4).filter(|c| !c.is_control()).collect();
        lines.push(said);
        match line.as_bytes().get(3) {
            Some(b'-') => {}
            None | Some(b' ') => return Ok(Some((Reply { code: number, lines }, at))),
            Some(_) => return Err("it does not speak SMTP".to_owned()),
        }
    }
}

struct Conversation {
    wire: Box<dyn Wire>,
    read: Vec<u8>,
}

impl Conversation {
    async fn reply(&mut self) -> Result<Reply, String> {
        loop {
            if let Some((reply, length)) = reply_in(&self.read)? {
                self.read.drain(..length);
                return Ok(reply);
            }
            let mut chunk = [0; 1024];
            match self.wire.read(&mut chunk).await.map_err(|error| error.to_string())? {
                0 => return Err("it ended the connection".to_owned()),
                length => self.read.extend_from_slice(&chunk[..length]),
            }
        }
    }

    async fn write(&mut self, text: &str) -> Result<(), String> {
        self.wire.write_all(text.as_bytes()).await.map_err(|error| error.to_string())?;
        self.wire.flush().await.map_err(|error| error.to_string())
    }

    /// Says a line and expects one of these codes. `shown` stands for the line in an error.
    async fn send_line(&mut self, line: &str, shown: &str, codes: &[u16]) -> Result<Reply, UntakenMessage> {
        self.write(&format!("{line}\r\n")).await?;
        self.expect(shown, codes).await
    }

    async fn expect(&mut self, shown: &str, codes: &[u16]) -> Result<Reply, UntakenMessage> {
        let reply = self.reply().await?;
        match codes.contains(&reply.code) {
            true => Ok(reply),
            false => {
                let said: String = reply.lines.join(" ").chars().take(SAID_MAX).collect();
                let why = format!("{shown} was answered with {} {said}", reply.code);
                // 5yz: the same command is refused again (RFC 5321, 4.2.1).
                Err(UntakenMessage { why, is_final: (500..=599).contains(&reply.code) })
            }
        }
    }

    async fn hello(&mut self) -> Result<Vec<String>, UntakenMessage> {
        // An address literal: a node may have no name that others know.
        let reply = self.send_line("EHLO [127.0.0.1]", "EHLO", &[250]).await?;
        Ok(reply.lines.into_iter().skip(1).map(|line| line.to_ascii_uppercase()).collect())
    }
}

/// Sends the text to a mailbox: up to its end within this time, and then it is waited for as long as a server may take to take it.
///
/// Errors: why the server did not take it, without secrets.
pub(super) async fn send(mail: &Mailbox, text: &str, timeout: Duration) -> Result<(), UntakenMessage> {
    let mut with = within(timeout, hand_over(mail, text)).await?;
    within(TAKING, with.expect("the mail", &[250])).await?;
    // It was taken. Whether the farewell arrives does not matter.
    let _ = within(timeout, async { Ok(with.write("QUIT\r\n").await?) }).await;
    Ok(())
}

/// Everything up to the dot behind the text.
async fn hand_over(mail: &Mailbox, text: &str) -> Result<Conversation, UntakenMessage> {
    let login = match &mail.login {
        Some((user, file)) => Some((user, secret(file).await?)),
        None => None,
    };
    let is_clear = mail.security == MailSecurity::None;
    let mut wire = connect(&mail.host, mail.port, is_clear).await.map_err(|error| error.to_string())?;
    if mail.security == MailSecurity::Implicit {
        wire = secured(wire, &mail.host, mail.authority.as_deref()).await?;
    }
    let mut with = Conversation { wire, read: Vec::new() };
    with.expect("the connection", &[220]).await?;
    let mut offers = with.hello().await?;
    if mail.security == MailSecurity::Starttls {
        if !offers.iter().any(|offer| offer == "STARTTLS") {
            let why =
                "it does not offer STARTTLS, so no mail goes to it (tls = \"implicit\" if it has a port for that)";
            return Err(why.to_owned().into());
        }
        with.send_line("STARTTLS", "STARTTLS", &[220]).await?;
        if !with.read.is_empty() {
            let why = "it sent something between STARTTLS and TLS, which may be of somebody else";
            return Err(why.to_owned().into());
        }
        let wire = secured(with.wire, &mail.host, mail.authority.as_deref()).await?;
        with = Conversation { wire, read: Vec::new() };
        offers = with.hello().await?;
    }
    if let Some((user, password)) = login {
        let plain =
            |offer: &String| offer.strip_prefix("AUTH ").is_some_and(|ways| ways.split(' ').any(|way| way == "PLAIN"));
        if !offers.iter().any(plain) {
            return Err("it does not offer AUTH PLAIN".to_owned().into());
        }
        let proof = STANDARD.encode(format!("\0{user}\0{password}"));
        with.send_line(&format!("AUTH PLAIN {proof}"), "the login", &[235]).await?;
    }
    with.send_line(&format!("MAIL FROM:<{}>", mail.from), "MAIL", &[250]).await?;
    let mut refused = Vec::new();
    for to in &mail.to {
        if let Err(why) = with.send_line(&format!("RCPT TO:<{to}>"), &format!("RCPT {to}"), &[250, 251]).await {
            refused.push(why);
        }
    }
    if refused.len() == mail.to.len() {
        let whys: Vec<&str> = refused.iter().map(|untaken| untaken.why.as_str()).collect();
        let is_final = refused.iter().all(|untaken| untaken.is_final);
        return Err(UntakenMessage { why: whys.join("; "), is_final });
    }
    // The others get it; asked once more, they would get it twice.
    refused.iter().for_each(|UntakenMessage { why, .. }| tracing::warn!(why, "a receiver of a mail was refused"));
    with.send_line("DATA", "DATA", &[354]).await?;
    // No line of it begins with a dot: see `mail`.
    with.write(text).await?;
    with.write(".\r\n").await?;
    Ok(with)
}

#[cfg(test)]
mod tests;
