//! The text of a mail about an alert (RFC 5322, 2045, 2047). Pure.
//!
//! Invariants: every line is ASCII and at most 76 characters long but for addresses; what comes from names and figures is never a line of the
//! head by itself: the subject is an encoded word, the body is Base64.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;

use super::book::{AlertNotice, NoticeKind};
use super::channel::Mailbox;

/// Characters of the subject that are one encoded word: with four bytes each a word stays below 75 characters.
const WORD_CHARS: usize = 10;

/// Most characters of a subject.
const SUBJECT_MAX: usize = 120;

/// A text as encoded words, each on a line of its own.
fn encoded_words(text: &str) -> String {
    let text: Vec<char> = text.chars().filter(|c| !c.is_control()).take(SUBJECT_MAX).collect();
    let word = |part: &[char]| format!("=?UTF-8?B?{}?=", STANDARD.encode(part.iter().collect::<String>()));
    text.chunks(WORD_CHARS).map(word).collect::<Vec<_>>().join("\r\n ")
}

/// What a message says, in one line.
pub(super) fn headline(notice: &AlertNotice, node: &str) -> String {
    let what = match notice.kind {
        NoticeKind::On => "alert",
        NoticeKind::Escalated => "alert, still on",
        NoticeKind::Off => "over",
        NoticeKind::Test => "test",
    };
    format!("[{node}] {what}: {} ({})", notice.key.rule, notice.key.subject)
}

fn at(us: i64) -> String {
    Timestamp::from_microsecond(us).unwrap_or(Timestamp::UNIX_EPOCH).strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

fn body(notice: &AlertNotice, node: &str) -> String {
    let AlertNotice { kind, key, when, text, since_us, at_us, id } = notice;
    let next = match kind {
        NoticeKind::On | NoticeKind::Escalated => {
            "`terrace alert list` shows what is on, `terrace status` what is the matter;\r\n`terrace alert silence` tells nobody for a time.\r\n"
        }
        NoticeKind::Off | NoticeKind::Test => "",
    };
    format!(
        "{}\r\n\r\n{text}\r\n\r\nnode      {node}\r\nrule      {}\r\nwhen      {when}\r\nabout     {}\r\nsince     {}\r\nnow       {}\r\nmessage   {id}\r\n\r\n{next}",
        headline(notice, node),
        key.rule,
        key.subject,
        at(*since_us),
        at(*at_us),
    )
}

/// The mail, as it stands between DATA and the final dot: no line begins with a dot.
pub(super) fn compose(mail: &Mailbox, notice: &AlertNotice, node: &str) -> String {
    let date = Timestamp::from_microsecond(notice.at_us).unwrap_or(Timestamp::UNIX_EPOCH);
    let domain = mail.from.rsplit_once('@').map_or("localhost", |(_, domain)| domain);
    let encoded = STANDARD.encode(body(notice, node));
    let lines: Vec<&str> = encoded.as_bytes().chunks(76).map(|line| std::str::from_utf8(line).unwrap_or("")).collect();
    format!(
        "From: <{}>\r\nTo: {}\r\nSubject: {}\r\nDate: {}\r\nMessage-ID: <{}.{}.terrace@{domain}>\r\nAuto-Submitted: auto-generated\r\n\
         MIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\n{}\r\n",
        mail.from,
        mail.to.iter().map(|to| format!("<{to}>")).collect::<Vec<_>>().join(",\r\n "),
        encoded_words(&headline(notice, node)),
        date.strftime("%a, %d %b %Y %H:%M:%S +0000"),
        notice.at_us,
        notice.id,
        lines.join("\r\n"),
    )
}

#[cfg(test)]
mod tests {
    use super::super::book::AlertKey;
    use super::super::channel::MailSecurity;
    use super::*;

    #[test]
    fn a_mail_has_what_it_needs_and_no_text_becomes_a_line_of_its_head() {
        let mail = Mailbox {
            host: "m".to_owned(),
            port: 25,
            security: MailSecurity::None,
            from: "node@hospital.example".to_owned(),
            to: vec!["a@b.c".to_owned(), "d@e.f".to_owned()],
            login: None,
            authority: None,
        };
        let subject = "lab\r\nBcc: x@y.z\r\n\r\n.\r\nQUIT \u{fc}ber \u{1f4a1}".to_owned();
        let notice = AlertNotice {
            id: 7,
            kind: NoticeKind::On,
            key: AlertKey { rule: "old".to_owned(), subject },
            when: "queue_age > 5m".to_owned(),
            text: "the oldest message has waited 6 min".to_owned(),
            since_us: 0,
            at_us: 1_000_000,
        };
        let text = compose(&mail, &notice, "node-1");
        let (head, body) = text.split_once("\r\n\r\n").expect("head and body");
        assert!(text.is_ascii() && text.lines().all(|line| line.len() <= 78 && !line.starts_with('.')), "{text}");
        let names: Vec<&str> = head
            .split("\r\n")
            .filter(|line| !line.starts_with(' '))
            .filter_map(|line| line.split(':').next())
            .collect();
        let expected =
            ["From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted", "MIME-Version", "Content-Type"];
        assert_eq!(names, [&expected[..], &["Content-Transfer-Encoding"]].concat());
        assert!(
            head.contains("Date: Thu, 01 Jan 1970 00:00:01 +0000\r\nMessage-ID: <1000000.7.terrace@hospital.example>")
        );
        let body = STANDARD.decode(body.replace("\r\n", "")).expect("Base64");
        let body = String::from_utf8(body).expect("text");
        assert!(body.contains("has waited 6 min") && body.contains("rule      old"), "{body}");
    }
}
