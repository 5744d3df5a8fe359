//! Files of messages for the console and its API, as pages of the requests that the command line sends: see `admin`, whose invariant
//! counts here.

use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use interop::history::{ExportPage, ExportRequest};
use interop::running::{ImportMessage, ImportPage, ImportRequest, RunningProduction};
use interop::timestamp::hl7_timestamp;
use interop::transfer::{CheckedImport, ExportFormat, ExportWriter, ImportItem, ImportReader, TransferHead};
use node::clock::monotonic;
use node::identity::Caller;
use serde_json::json;
use web_console::AdminError;
use web_console::transfer_admin::{ExportOrder, ExportStream, ImportLine, ImportOrder, ImportReport, TransferAdmin};

use super::admin::{NodeAdmin, PORT, blocking, filter_of, refused};

/// Messages and bytes of bodies of one request to import.
const MESSAGES_AT_A_TIME: usize = 100;
const BYTES_AT_A_TIME: usize = 256 << 10;

/// Messages of a file at most: the smallest ones have a few bytes, and each takes some hundred in memory.
const MESSAGES_MAX: u64 = 20_000;

/// How long an import of the API goes on; a request of the console has a minute.
const IMPORT_TIME: Duration = Duration::from_secs(40);

/// Why a file of messages alone is not made.
const UNREADABLE: &str = "a message is damaged, and may belong to the file: the formats batch and terrace say so";

/// A file that is being made.
struct NodeExport {
    node: Arc<RunningProduction>,
    caller: Caller,
    request: ExportRequest,
    format: ExportFormat,
    /// The page that is not written yet.
    page: Option<ExportPage>,
    /// None once the end is written.
    writer: Option<ExportWriter<Vec<u8>>>,
}

async fn page(
    node: &Arc<RunningProduction>,
    caller: &Caller,
    request: &ExportRequest,
) -> Result<ExportPage, AdminError> {
    let answer = node.request_of(caller, PORT, &format!("export {}", json!(request))).await.map_err(refused)?;
    serde_json::from_value(answer).map_err(unreadable)
}

fn unreadable(error: impl std::fmt::Display) -> AdminError {
    AdminError::Unavailable(format!("the file cannot be made: {error}"))
}

/// Adds a page to a file.
fn add(writer: &mut ExportWriter<Vec<u8>>, format: ExportFormat, page: &ExportPage) -> Result<(), AdminError> {
    if let Some((id, why)) = page.damaged.first() {
        return Err(AdminError::Unavailable(format!("message {id} is damaged: {why}")));
    }
    // Of whose service it was is not known: the end of the file says it, where it has a place for that.
    match (format, page.unreadable) {
        (_, 0) => {}
        (ExportFormat::Hl7, _) => return Err(AdminError::Unavailable(UNREADABLE.to_owned())),
        (_, messages) => writer.unreadable(messages),
    }
    for one in &page.messages {
        let body = one.body().ok_or_else(|| unreadable("a body is no bytes"))?;
        writer.message(&one.message, &body).map_err(unreadable)?;
    }
    Ok(())
}

#[async_trait]
impl ExportStream for NodeExport {
    async fn next(&mut self) -> Result<Option<Bytes>, AdminError> {
        loop {
            let Some(writer) = &mut self.writer else { return Ok(None) };
            if let Some(page) = self.page.take() {
                add(writer, self.format, &page)?;
                (self.request.upto, self.request.after) = (Some(page.upto), page.next);
            } else if self.request.after.is_none() {
                let Some(writer) = self.writer.take() else { return Ok(None) };
                // A batch says it in its trailer; a file of messages alone has no place for it.
                if let (ExportFormat::Hl7, (_, left_out @ 1..)) = (self.format, writer.counts()) {
                    let text = format!("{left_out} are no single HL7 message: the formats batch and terrace say so");
                    return Err(AdminError::Unavailable(text));
                }
                return Ok(Some(Bytes::from(writer.end().map_err(unreadable)?)));
            } else {
                self.page = Some(page(&self.node, &self.caller, &self.request).await?);
                continue;
            }
            let bytes = std::mem::take(writer.inner());
            if !bytes.is_empty() {
                return Ok(Some(Bytes::from(bytes)));
            }
        }
    }
}

/// Messages of one request, in their order.
type Group = Vec<ImportItem>;

/// The messages of a file, in groups of one request each.
fn groups_of(file: Bytes) -> Result<(CheckedImport, Vec<Group>), AdminError> {
    let wrong = |error: interop::InteropError| AdminError::Refused(error.to_string());
    let (mut reader, checked) = ImportReader::open(Cursor::new(file)).map_err(wrong)?;
    if checked.messages > MESSAGES_MAX {
        let text = format!(
            "it has {} messages, and {MESSAGES_MAX} at most are taken here: `terrace message import` takes more",
            checked.messages
        );
        return Err(AdminError::Refused(text));
    }
    let (mut groups, mut group, mut bytes) = (Vec::new(), Group::new(), 0);
    while let Some(item) = reader.next().map_err(wrong)? {
        if !group.is_empty() && (group.len() >= MESSAGES_AT_A_TIME || bytes + item.body.len() > BYTES_AT_A_TIME) {
            groups.push(std::mem::take(&mut group));
            bytes = 0;
        }
        bytes += item.body.len();
        group.push(item);
    }
    groups.extend((!group.is_empty()).then_some(group));
    Ok((checked, groups))
}

fn message_of(item: &ImportItem) -> ImportMessage {
    let (source, charset) = (item.source.clone(), item.charset.clone());
    let message = ImportMessage { number: item.number, source, charset, ..ImportMessage::default() };
    ImportMessage { received_us: item.received_us, ..message }.with_body(&item.body)
}

#[async_trait]
impl TransferAdmin for NodeAdmin {
    async fn export(&self, caller: &Caller, order: &ExportOrder) -> Result<Box<dyn ExportStream>, AdminError> {
        let format = ExportFormat::named(&order.format)
            .ok_or_else(|| AdminError::Refused("format is terrace, hl7 or batch".to_owned()))?;
        let filter = filter_of(&order.query)?;
        let request = ExportRequest { filter, masked: order.masked, ..ExportRequest::default() };
        let first = page(&self.node, caller, &request).await?;
        let clock = &self.node.engine().clock;
        let now_us = clock.now_us();
        let head = TransferHead {
            source: first.source.clone(),
            made_us: now_us,
            masked: first.masked,
            filter: "of the console".to_owned(),
            release: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let writer =
            ExportWriter::begin(format, Vec::new(), &head, &hl7_timestamp(clock, now_us)).map_err(unreadable)?;
        Ok(Box::new(NodeExport {
            node: Arc::clone(&self.node),
            caller: caller.clone(),
            request,
            format,
            page: Some(first),
            writer: Some(writer),
        }))
    }

    async fn import(&self, caller: &Caller, order: &ImportOrder) -> Result<ImportReport, AdminError> {
        let file = order.file.clone();
        let (checked, groups) = blocking(move || groups_of(file)).await?;
        let is_masked = checked.masked;
        if is_masked && !order.allow_masked {
            let text =
                "its bodies are masked, and no patient of them is one: with allow_masked it is imported nevertheless";
            return Err(AdminError::Refused(text.to_owned()));
        }
        let until = monotonic() + IMPORT_TIME;
        let mut report = ImportReport { source: checked.source, messages: checked.messages, ..ImportReport::default() };
        report.left_out = checked.left_out.into_iter().map(|left| left.why).collect();
        for group in groups {
            let mut at = 0;
            while at < group.len() {
                if monotonic() > until {
                    report.stopped = Some("it took too long for one request".to_owned());
                    return Ok(report);
                }
                let request = ImportRequest {
                    service: order.service.clone(),
                    replay: order.replay,
                    dry_run: order.dry_run,
                    masked: is_masked,
                    messages: group[at..].iter().map(message_of).collect(),
                };
                let page: ImportPage = self.read(caller, &format!("import {}", json!(request))).await?;
                let lines = group[at..].iter().zip(&page.results).map(|(item, result)| ImportLine {
                    number: item.number,
                    at: item.at,
                    outcome: result.outcome.name().to_owned(),
                    id: result.id,
                    reason: result.reason.clone(),
                });
                report.results.extend(lines);
                at += page.results.len();
                if page.stopped.is_some() {
                    report.stopped = page.stopped;
                    return Ok(report);
                }
            }
        }
        Ok(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_goes_on_behind_a_message_that_cannot_be_read_and_is_of_an_unknown_service_and_says_so_at_its_end() {
        let head = TransferHead { source: "store-1".to_owned(), ..TransferHead::default() };
        let made = |format, page: &ExportPage| {
            let mut writer = ExportWriter::begin(format, Vec::new(), &head, "20260101").expect("memory");
            add(&mut writer, format, page).map(|()| writer.end().expect("memory"))
        };
        let page = ExportPage { unreadable: 2, ..ExportPage::default() };
        let file = made(ExportFormat::Terrace, &page).expect("it goes on");
        let (_, checked) = ImportReader::open(Cursor::new(file)).expect("it is whole");
        assert!(checked.left_out.iter().any(|left| left.why.starts_with("2 could not be read")), "{checked:?}");
        let batch = made(ExportFormat::Batch, &page).expect("it goes on");
        assert!(String::from_utf8_lossy(&batch).contains("BTS|0|2 could not be read"), "{batch:?}");
        let Err(AdminError::Unavailable(why)) = made(ExportFormat::Hl7, &page) else { panic!("it has no end") };
        assert_eq!(why, UNREADABLE);
        // Who sees all services is told which one.
        let page = ExportPage { damaged: vec![(7, "cut".to_owned())], ..ExportPage::default() };
        let Err(AdminError::Unavailable(why)) = made(ExportFormat::Terrace, &page) else { panic!("it is damaged") };
        assert!(why.contains("message 7 is damaged"), "{why}");
    }

    #[test]
    fn a_file_of_many_small_messages_is_refused_before_each_takes_memory() {
        let of = |count: usize| groups_of(Bytes::from(b"MSH|\r".repeat(count)));
        let (checked, groups) = of(250).expect("few");
        assert_eq!((checked.messages, groups.iter().map(Vec::len).collect::<Vec<_>>()), (250, vec![100, 100, 50]));
        let Err(AdminError::Refused(why)) = of(20_001) else { panic!("too many") };
        assert!(why.contains("20001 messages"), "{why}");
        assert!(groups_of(Bytes::from_static(b"no message")).is_err());
    }
}
