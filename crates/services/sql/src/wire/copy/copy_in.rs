//! COPY .. FROM STDIN: splits the client's data into rows, and fills columns with them.

use std::sync::Arc;

use bytes::{Buf, BytesMut};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;

use super::{CopyLayout, Fields, binary, csv, text};
use crate::engine::CopyFormat;
use crate::wire::error_response::ErrorResponse;
use crate::wire::oid::Kind;
use crate::wire::value::ValueBuilder;

/// Rows of a batch.
const BATCH_ROWS: usize = 8192;

/// Bytes of a batch's rows, to bound the memory of long rows.
const BATCH_BYTES: usize = 4 << 20;

/// Most characters of a field that an error shows, as in PostgreSQL.
const SHOWN_MAX: usize = 100;

/// Splits data into rows.
#[derive(Debug)]
pub(crate) struct CopyReader {
    layout: CopyLayout,
    marks: csv::Marks,
    null: Vec<u8>,
    columns: usize,
    /// Most bytes of a row.
    limit: usize,
    bytes: BytesMut,
    /// How far the search for the row's end has come.
    scanned: usize,
    ends: csv::RecordEnds,
    /// Whether the first line, or the header of the binary layout, is still to come.
    head: bool,
    /// Whether the end of the data was seen; later data is ignored, and refused in the binary layout.
    ended: bool,
    /// Lines, or rows of the binary layout, that were read.
    line: u64,
    fields: Fields,
}

impl CopyReader {
    /// A reader of rows with this number of columns; no row may have more than `limit` bytes.
    pub(crate) fn new(format: &CopyFormat, columns: usize, limit: usize) -> Result<CopyReader, ErrorResponse> {
        let layout = layout(format)?;
        Ok(CopyReader {
            layout,
            marks: csv::Marks { delimiter: format.delimiter, quote: format.quote, escape: format.escape },
            null: format.null.clone().into_bytes(),
            columns,
            limit,
            bytes: BytesMut::new(),
            scanned: 0,
            ends: csv::RecordEnds::default(),
            head: format.header || layout == CopyLayout::Binary,
            ended: false,
            line: 0,
            fields: Fields::default(),
        })
    }

    /// Adds a chunk. Call [`row`](CopyReader::row) until it returns `None` before the next one.
    pub(crate) fn push(&mut self, chunk: &[u8]) {
        if !self.ended || self.layout == CopyLayout::Binary {
            self.bytes.extend_from_slice(chunk);
        }
    }

    /// Bytes that wait for the end of their row.
    pub(crate) fn waiting(&self) -> usize {
        self.bytes.len()
    }

    /// The number of the line, or of the row in the binary layout, that was read last, from 1.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// The next complete row; `last`: no chunk follows, so the remaining bytes are a row too.
    pub(crate) fn row(&mut self, last: bool) -> Result<Option<&Fields>, ErrorResponse> {
        self.fields.clear();
        let found = match self.layout {
            CopyLayout::Binary => self.binary_row(last)?,
            CopyLayout::Text | CopyLayout::Csv => self.line_row(last)?,
        };
        // The header of the binary layout has its own bound.
        let head = self.head && self.layout == CopyLayout::Binary;
        if !found && !self.ended && !head {
            self.bounded(self.bytes.len())?;
        }
        Ok(found.then_some(&self.fields))
    }

    /// Refuses a row that is too long. The same bound holds for a complete row and for the received part of one, so the
    /// chunk boundaries make no difference.
    fn bounded(&self, bytes: usize) -> Result<(), ErrorResponse> {
        if bytes <= self.limit {
            return Ok(());
        }
        Err(ErrorResponse::new("54000", format!("row is too long: it has more than {} bytes", self.limit)))
    }

    fn binary_row(&mut self, last: bool) -> Result<bool, ErrorResponse> {
        if self.head {
            if !binary::head(&mut self.bytes, self.limit)? {
                return if last {
                    Err(ErrorResponse::new("22P04", "invalid COPY file header (missing)"))
                } else {
                    Ok(false)
                };
            }
            self.head = false;
        }
        if self.ended {
            let after = !self.bytes.is_empty();
            return if after {
                Err(ErrorResponse::new("22P04", "received copy data after EOF marker"))
            } else {
                Ok(false)
            };
        }
        // The end marker may be missing after a complete row, as in PostgreSQL: pgx sends none.
        if last && self.bytes.is_empty() {
            return Ok(false);
        }
        self.line += 1;
        let before = self.bytes.len();
        match binary::row(&mut self.bytes, self.columns, self.limit, &mut self.fields)? {
            binary::Next::Row => return self.bounded(before - self.bytes.len()).map(|()| true),
            binary::Next::End => self.ended = true,
            binary::Next::More if last => return Err(ErrorResponse::new("22P04", "unexpected EOF in COPY data")),
            binary::Next::More => {}
        }
        self.line -= 1;
        if self.ended { self.binary_row(last) } else { Ok(false) }
    }

    fn end(&mut self) {
        self.ended = true;
        self.bytes.clear();
        self.scanned = 0;
    }

    fn line_row(&mut self, last: bool) -> Result<bool, ErrorResponse> {
        loop {
            let Some(mut row) = self.line_bytes(last)? else { return Ok(false) };
            self.bounded(row.len())?;
            if row.last() == Some(&b'\r') {
                row.truncate(row.len() - 1);
            }
            if &row[..] == b"\\." {
                self.end();
                return Ok(false);
            }
            self.line += 1;
            if std::mem::take(&mut self.head) {
                continue;
            }
            match self.layout {
                CopyLayout::Csv => csv::split(&row, self.marks, &self.null, &mut self.fields),
                _ => text::split(&row, self.marks.delimiter, &self.null, &mut self.fields),
            }
            return Ok(true);
        }
    }

    /// Removes a line from the front, without its end.
    fn line_bytes(&mut self, last: bool) -> Result<Option<BytesMut>, ErrorResponse> {
        if self.ended {
            return Ok(None);
        }
        let end = match self.layout {
            CopyLayout::Csv => self.ends.find(&self.bytes, self.scanned, self.marks).ok_or(self.bytes.len()),
            _ => text::line_end(&self.bytes, self.scanned),
        };
        match end {
            Ok(end) => {
                let line = self.bytes.split_to(end);
                self.bytes.advance(1);
                self.scanned = 0;
                self.ends = csv::RecordEnds::default();
                Ok(Some(line))
            }
            Err(_) if last && self.layout == CopyLayout::Csv && self.ends.is_open() => {
                self.line += 1;
                Err(ErrorResponse::new("22P04", "unterminated CSV quoted field"))
            }
            Err(_) if last && !self.bytes.is_empty() => {
                self.scanned = 0;
                Ok(Some(self.bytes.split()))
            }
            Err(at) => {
                self.scanned = at;
                Ok(None)
            }
        }
    }
}

pub(super) fn layout(format: &CopyFormat) -> Result<CopyLayout, ErrorResponse> {
    match format.name.as_str() {
        "text" => Ok(CopyLayout::Text),
        "csv" => Ok(CopyLayout::Csv),
        "binary" => Ok(CopyLayout::Binary),
        other => Err(ErrorResponse::new("22023", format!("COPY format \"{other}\" not recognized"))),
    }
}

/// Columns that are being filled.
#[derive(Debug)]
pub(crate) struct Batch {
    schema: SchemaRef,
    columns: Vec<ValueBuilder>,
    binary: bool,
    rows: usize,
    bytes: usize,
}

impl Batch {
    /// Empty columns of a table.
    pub(crate) fn new(schema: &SchemaRef, format: &CopyFormat) -> Result<Batch, ErrorResponse> {
        let columns = schema.fields().iter().map(|field| ValueBuilder::of(Kind::of_field(field)?, field.data_type()));
        let columns = columns.collect::<Result<_, ErrorResponse>>()?;
        let binary = layout(format)? == CopyLayout::Binary;
        Ok(Batch { schema: Arc::clone(schema), columns, binary, rows: 0, bytes: 0 })
    }

    /// Adds a row. `place` returns its position for errors: `COPY t, line 3`.
    pub(crate) fn push(&mut self, fields: &Fields, place: impl Fn() -> String) -> Result<(), ErrorResponse> {
        let names = || self.schema.fields().iter().map(|field| field.name().as_str());
        if fields.len() > self.columns.len() {
            return Err(ErrorResponse::new("22P04", "extra data after last expected column").with_context(place));
        }
        for (at, (column, name)) in self.columns.iter_mut().zip(names()).enumerate() {
            if at >= fields.len() {
                let response = ErrorResponse::new("22P04", format!("missing data for column \"{name}\""));
                return Err(response.with_context(place));
            }
            let Some(value) = fields.get(at) else {
                column.push_null();
                continue;
            };
            self.bytes += value.len();
            let pushed = if self.binary {
                column.push_binary(value)
            } else {
                let text = std::str::from_utf8(value);
                let text = text.map_err(|_| ErrorResponse::new("22021", "invalid byte sequence for encoding \"UTF8\""));
                text.and_then(|text| column.push_text(text))
            };
            pushed
                .map_err(|response| response.with_context(|| format!("{}, column {name}{}", place(), shown(value))))?;
        }
        self.rows += 1;
        Ok(())
    }

    /// Whether the batch is full.
    pub(crate) fn is_full(&self) -> bool {
        self.rows >= BATCH_ROWS || self.bytes >= BATCH_BYTES
    }

    /// The rows so far, if there are any; the columns are then empty again.
    pub(crate) fn take(&mut self) -> Result<Option<RecordBatch>, ErrorResponse> {
        if self.rows == 0 {
            return Ok(None);
        }
        let columns = self.columns.iter_mut().map(ValueBuilder::finish).collect::<Result<Vec<_>, ErrorResponse>>()?;
        let rows = std::mem::take(&mut self.rows);
        self.bytes = 0;
        // The table checks NOT NULL itself: its error names the row.
        let fields: Vec<_> =
            self.schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true)).collect();
        let schema = datafusion::arrow::datatypes::Schema::new_with_metadata(fields, self.schema.metadata().clone());
        let options = datafusion::arrow::record_batch::RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(Arc::new(schema), columns, &options);
        batch.map(Some).map_err(|error| ErrorResponse::new("XX000", error.to_string()))
    }
}

/// The text of a field in an error.
fn shown(value: &[u8]) -> String {
    let text = String::from_utf8_lossy(value);
    let short: String = text.chars().take(SHOWN_MAX).collect();
    let dots = if short.len() < text.len() { "..." } else { "" };
    format!(": \"{short}{dots}\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::datatypes::{DataType, Field, Schema};

    fn format(name: &str, header: bool) -> CopyFormat {
        let csv = name == "csv";
        let null = if csv { "" } else { "\\N" };
        let delimiter = if csv { b',' } else { b'\t' };
        CopyFormat { name: name.into(), delimiter, null: null.into(), header, quote: b'"', escape: b'"' }
    }

    type Rows = Vec<Vec<Option<Vec<u8>>>>;

    fn read(format: &CopyFormat, columns: usize, chunks: &[&[u8]]) -> Result<Rows, ErrorResponse> {
        let mut reader = CopyReader::new(format, columns, 1000)?;
        let mut rows = Vec::new();
        for chunk in chunks.iter().copied().chain([&b""[..]]) {
            let last = chunk.is_empty();
            reader.push(chunk);
            while let Some(fields) = reader.row(last)? {
                rows.push((0..fields.len()).map(|at| fields.get(at).map(<[u8]>::to_vec)).collect());
            }
        }
        Ok(rows)
    }

    #[test]
    fn rows_do_not_depend_on_how_the_data_is_cut() {
        let mut binary = binary::SIGNATURE.to_vec();
        binary.extend_from_slice(
            b"\0\0\0\0\0\0\0\x02ex\0\x02\0\0\0\x01a\xff\xff\xff\xff\0\x02\0\0\0\0\0\0\0\x01b\xff\xff",
        );
        let inputs: [(CopyFormat, &[u8]); 4] = [
            (format("text", false), b"a\t\\N\r\nb\\tc\t\\\\\nx\ty\n\\.\nignored"),
            (format("text", true), b"h1\th2\n1\t2\n3\t4"),
            (format("csv", true), b"h1,h2\n\"a\nb\",\n\"\"\"\",2\n"),
            (format("binary", false), &binary),
        ];
        for (format, input) in inputs {
            let whole = read(&format, 2, &[input]).expect("it is read");
            assert_eq!(whole.len(), if format.header { 2 } else { whole.len() });
            for cut in 1..input.len() {
                let (a, b) = input.split_at(cut);
                assert_eq!(read(&format, 2, &[a, b]).expect("it is read"), whole, "{} cut at {cut}", format.name);
            }
        }
    }

    /// Two rows of two columns without an end marker.
    fn binary_rows() -> Vec<u8> {
        let mut binary = binary::SIGNATURE.to_vec();
        binary.extend_from_slice(b"\0\0\0\0\0\0\0\x02ex");
        binary.extend_from_slice(b"\0\x02\0\0\0\x03a\xff\xff\xff\xff\xff\xff");
        binary.extend_from_slice(b"\0\x02\0\0\0\0\0\0\0\x01b");
        binary
    }

    #[test]
    fn a_binary_copy_is_whole_with_and_without_its_end_however_it_is_cut() {
        let format = format("binary", false);
        let rows = [vec![Some(b"a\xff\xff".to_vec()), None], vec![Some(Vec::new()), Some(b"b".to_vec())]];
        let without = binary_rows();
        let with = [&without[..], &binary::END].concat();
        for input in [&without, &with] {
            for first in 1..input.len() {
                for second in first..input.len() {
                    let chunks = [&input[..first], &input[first..second], &input[second..]];
                    let chunks: Vec<&[u8]> = chunks.into_iter().filter(|chunk| !chunk.is_empty()).collect();
                    assert_eq!(read(&format, 2, &chunks).expect("it is read"), rows, "cut at {first} and {second}");
                }
            }
            let bytes: Vec<&[u8]> = input.chunks(1).collect();
            assert_eq!(read(&format, 2, &bytes).expect("it is read"), rows, "byte by byte");
        }
    }

    #[test]
    fn a_binary_copy_that_ends_inside_of_a_row_or_goes_on_behind_its_end_is_refused() {
        let format = format("binary", false);
        let whole = binary_rows();
        let head = binary::SIGNATURE.len() + 10;
        let second = whole.len() - 11;
        for end in (head..whole.len()).filter(|end| ![head, second].contains(end)) {
            let response = read(&format, 2, &[&whole[..end]]).expect_err("it is cut off");
            assert_eq!((response.code, &*response.message), ("22P04", "unexpected EOF in COPY data"), "ends at {end}");
        }
        let after = [&whole[..], &binary::END, b"x"].concat();
        for cut in whole.len() + 1..after.len() {
            let (a, b) = after.split_at(cut);
            let response = read(&format, 2, &[a, b]).expect_err("something follows");
            assert_eq!(
                (response.code, &*response.message),
                ("22P04", "received copy data after EOF marker"),
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn broken_data_is_refused_with_its_place() {
        let schema: SchemaRef =
            Arc::new(Schema::new(vec![Field::new("a", DataType::Int32, false), Field::new("b", DataType::Utf8, true)]));
        let format = format("text", false);
        let examples: [(&[u8], &str, &str); 4] = [
            (b"1\tx\nzwei\ty\n", "22P02", "COPY t, line 2, column a: \"zwei\""),
            (b"1\n", "22P04", "COPY t, line 1"),
            (b"1\tx\ty\n", "22P04", "COPY t, line 1"),
            (b"1\t\xff\n", "22021", "COPY t, line 1, column b: \"\u{fffd}\""),
        ];
        for (data, code, context) in examples {
            let mut reader = CopyReader::new(&format, 2, 1000).expect("it is known");
            let mut batch = Batch::new(&schema, &format).expect("it is known");
            reader.push(data);
            let response = loop {
                let fields = reader.row(true).expect("rows are whole").expect("the error comes first").clone();
                let line = reader.line();
                if let Err(response) = batch.push(&fields, || format!("COPY t, line {line}")) {
                    break response;
                }
            };
            assert_eq!((response.code, response.context.as_deref()), (code, Some(context)));
        }
    }

    #[test]
    fn rows_and_heads_that_never_end_are_refused() {
        let long = vec![b'x'; 2000];
        assert_eq!(read(&format("text", false), 1, &[&long]).expect_err("too long").code, "54000");
        let ended = [&long[..], b"\n"].concat();
        assert_eq!(read(&format("text", false), 1, &[&ended]).expect_err("too long, in one piece").code, "54000");
        assert_eq!(read(&format("csv", true), 1, &[&ended]).expect_err("a head too long").code, "54000");
        assert_eq!(read(&format("csv", false), 1, &[b"\"abc"]).expect_err("open").code, "22P04");
        for broken in
            [&b"PGCOPY?"[..], b"PGCOPY\n\xff\r\n\0\0\x01\0\0\0\0\0\0", b"PGCOPY\n\xff\r\n\0\0\0\0\0\x7f\0\0\0", b""]
        {
            assert_eq!(read(&format("binary", false), 1, &[broken]).expect_err("no head").code, "22P04");
        }
        let mut short = binary::SIGNATURE.to_vec();
        short.extend_from_slice(b"\0\0\0\0\0\0\0\0\0\x01\0\0\0\x05ab");
        assert_eq!(read(&format("binary", false), 1, &[&short]).expect_err("cut").code, "22P04");
    }
}
