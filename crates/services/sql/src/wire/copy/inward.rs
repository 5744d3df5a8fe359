//! COPY .. FROM STDIN: rows cut out of the chunks of a client, and columns filled with them.

use std::sync::Arc;

use bytes::{Buf, BytesMut};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;

use super::{Fields, Layout, binary, csv, text};
use crate::engine::CopyFormat;
use crate::wire::fault::Fault;
use crate::wire::oid::Kind;
use crate::wire::value::Column;

/// Rows that are handed on together.
const BATCH_ROWS: usize = 8192;

/// Bytes of rows that are handed on together, so that long rows do not pile up.
const BATCH_BYTES: usize = 4 << 20;

/// Most letters of a field that an error shows, as in PostgreSQL.
const SHOWN_MAX: usize = 100;

/// Cuts rows out of chunks.
#[derive(Debug)]
pub(crate) struct Reader {
    layout: Layout,
    marks: csv::Marks,
    null: Vec<u8>,
    columns: usize,
    /// Most bytes of a row.
    limit: usize,
    bytes: BytesMut,
    /// How far the search for the row's end came.
    scanned: usize,
    ends: csv::Ends,
    /// The first line, or the head of the binary layout, is still to come.
    head: bool,
    /// The end of the data was seen; what follows is left out, and refused in the binary layout.
    ended: bool,
    /// Lines, or rows of the binary layout, that were taken.
    line: u64,
    fields: Fields,
}

impl Reader {
    /// A reader of rows of so many columns; no row may have more than `limit` bytes.
    pub(crate) fn new(format: &CopyFormat, columns: usize, limit: usize) -> Result<Reader, Fault> {
        let layout = layout(format)?;
        Ok(Reader {
            layout,
            marks: csv::Marks { delimiter: format.delimiter, quote: format.quote, escape: format.escape },
            null: format.null.clone().into_bytes(),
            columns,
            limit,
            bytes: BytesMut::new(),
            scanned: 0,
            ends: csv::Ends::default(),
            head: format.header || layout == Layout::Binary,
            ended: false,
            line: 0,
            fields: Fields::default(),
        })
    }

    /// Takes a chunk. Call [`row`](Reader::row) until it answers none before the next one.
    pub(crate) fn push(&mut self, chunk: &[u8]) {
        if !self.ended || self.layout == Layout::Binary {
            self.bytes.extend_from_slice(chunk);
        }
    }

    /// Bytes that wait for the end of their row.
    pub(crate) fn waiting(&self) -> usize {
        self.bytes.len()
    }

    /// The number of the line, or of the row in the binary layout, that was taken last, from 1.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// The next whole row; `last`: no chunk follows, so that what is left is a row too.
    pub(crate) fn row(&mut self, last: bool) -> Result<Option<&Fields>, Fault> {
        self.fields.clear();
        let found = match self.layout {
            Layout::Binary => self.binary_row(last)?,
            Layout::Text | Layout::Csv => self.line_row(last)?,
        };
        // The head of the binary layout has its own bound.
        let head = self.head && self.layout == Layout::Binary;
        if !found && !self.ended && !head {
            self.bounded(self.bytes.len())?;
        }
        Ok(found.then_some(&self.fields))
    }

    /// A row of so many bytes is not too long: whole, or what is there of it, so that cuts make no difference.
    fn bounded(&self, bytes: usize) -> Result<(), Fault> {
        if bytes <= self.limit {
            return Ok(());
        }
        Err(Fault::new("54000", format!("row is too long: it has more than {} bytes", self.limit)))
    }

    fn binary_row(&mut self, last: bool) -> Result<bool, Fault> {
        if self.head {
            if !binary::head(&mut self.bytes, self.limit)? {
                return if last { Err(Fault::new("22P04", "invalid COPY file header (missing)")) } else { Ok(false) };
            }
            self.head = false;
        }
        if self.ended {
            let after = !self.bytes.is_empty();
            return if after { Err(Fault::new("22P04", "received copy data after EOF marker")) } else { Ok(false) };
        }
        // The mark of the end may be missing behind a whole row, as in PostgreSQL: pgx sends none.
        if last && self.bytes.is_empty() {
            return Ok(false);
        }
        self.line += 1;
        let before = self.bytes.len();
        match binary::row(&mut self.bytes, self.columns, self.limit, &mut self.fields)? {
            binary::Next::Row => return self.bounded(before - self.bytes.len()).map(|()| true),
            binary::Next::End => self.ended = true,
            binary::Next::More if last => return Err(Fault::new("22P04", "unexpected EOF in COPY data")),
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

    fn line_row(&mut self, last: bool) -> Result<bool, Fault> {
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
                Layout::Csv => csv::split(&row, self.marks, &self.null, &mut self.fields),
                _ => text::split(&row, self.marks.delimiter, &self.null, &mut self.fields),
            }
            return Ok(true);
        }
    }

    /// Takes a line off the front, without its end.
    fn line_bytes(&mut self, last: bool) -> Result<Option<BytesMut>, Fault> {
        if self.ended {
            return Ok(None);
        }
        let end = match self.layout {
            Layout::Csv => self.ends.find(&self.bytes, self.scanned, self.marks).ok_or(self.bytes.len()),
            _ => text::line_end(&self.bytes, self.scanned),
        };
        match end {
            Ok(end) => {
                let line = self.bytes.split_to(end);
                self.bytes.advance(1);
                self.scanned = 0;
                self.ends = csv::Ends::default();
                Ok(Some(line))
            }
            Err(_) if last && self.layout == Layout::Csv && self.ends.is_open() => {
                self.line += 1;
                Err(Fault::new("22P04", "unterminated CSV quoted field"))
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

pub(super) fn layout(format: &CopyFormat) -> Result<Layout, Fault> {
    match format.name.as_str() {
        "text" => Ok(Layout::Text),
        "csv" => Ok(Layout::Csv),
        "binary" => Ok(Layout::Binary),
        other => Err(Fault::new("22023", format!("COPY format \"{other}\" not recognized"))),
    }
}

/// Columns that are being filled.
#[derive(Debug)]
pub(crate) struct Batch {
    schema: SchemaRef,
    columns: Vec<Column>,
    binary: bool,
    rows: usize,
    bytes: usize,
}

impl Batch {
    /// Empty columns of a table.
    pub(crate) fn new(schema: &SchemaRef, format: &CopyFormat) -> Result<Batch, Fault> {
        let columns = schema.fields().iter().map(|field| Column::of(Kind::of_field(field)?, field.data_type()));
        let columns = columns.collect::<Result<_, Fault>>()?;
        let binary = layout(format)? == Layout::Binary;
        Ok(Batch { schema: Arc::clone(schema), columns, binary, rows: 0, bytes: 0 })
    }

    /// Adds a row. `place` tells where it is, for errors: `COPY t, line 3`.
    pub(crate) fn push(&mut self, fields: &Fields, place: impl Fn() -> String) -> Result<(), Fault> {
        let names = || self.schema.fields().iter().map(|field| field.name().as_str());
        if fields.len() > self.columns.len() {
            return Err(Fault::new("22P04", "extra data after last expected column").with_context(place));
        }
        for (at, (column, name)) in self.columns.iter_mut().zip(names()).enumerate() {
            if at >= fields.len() {
                let fault = Fault::new("22P04", format!("missing data for column \"{name}\""));
                return Err(fault.with_context(place));
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
                let text = text.map_err(|_| Fault::new("22021", "invalid byte sequence for encoding \"UTF8\""));
                text.and_then(|text| column.push_text(text))
            };
            pushed.map_err(|fault| fault.with_context(|| format!("{}, column {name}{}", place(), shown(value))))?;
        }
        self.rows += 1;
        Ok(())
    }

    /// Whether it is time to hand it on.
    pub(crate) fn is_full(&self) -> bool {
        self.rows >= BATCH_ROWS || self.bytes >= BATCH_BYTES
    }

    /// The rows so far, if there are any; the columns are empty then.
    pub(crate) fn take(&mut self) -> Result<Option<RecordBatch>, Fault> {
        if self.rows == 0 {
            return Ok(None);
        }
        let columns = self.columns.iter_mut().map(Column::finish).collect::<Result<Vec<_>, Fault>>()?;
        let rows = std::mem::take(&mut self.rows);
        self.bytes = 0;
        // NOT NULL is the table's to check: in its own words, with the row.
        let fields: Vec<_> =
            self.schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true)).collect();
        let schema = datafusion::arrow::datatypes::Schema::new_with_metadata(fields, self.schema.metadata().clone());
        let options = datafusion::arrow::record_batch::RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(Arc::new(schema), columns, &options);
        batch.map(Some).map_err(|error| Fault::new("XX000", error.to_string()))
    }
}

/// A field's text for an error.
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

    fn read(format: &CopyFormat, columns: usize, chunks: &[&[u8]]) -> Result<Rows, Fault> {
        let mut reader = Reader::new(format, columns, 1000)?;
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

    /// Two rows of two columns and no mark of the end.
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
            let fault = read(&format, 2, &[&whole[..end]]).expect_err("it is cut off");
            assert_eq!((fault.code, &*fault.message), ("22P04", "unexpected EOF in COPY data"), "ends at {end}");
        }
        let after = [&whole[..], &binary::END, b"x"].concat();
        for cut in whole.len() + 1..after.len() {
            let (a, b) = after.split_at(cut);
            let fault = read(&format, 2, &[a, b]).expect_err("something follows");
            assert_eq!((fault.code, &*fault.message), ("22P04", "received copy data after EOF marker"), "cut at {cut}");
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
            let mut reader = Reader::new(&format, 2, 1000).expect("it is known");
            let mut batch = Batch::new(&schema, &format).expect("it is known");
            reader.push(data);
            let fault = loop {
                let fields = reader.row(true).expect("rows are whole").expect("the error comes first").clone();
                let line = reader.line();
                if let Err(fault) = batch.push(&fields, || format!("COPY t, line {line}")) {
                    break fault;
                }
            };
            assert_eq!((fault.code, fault.context.as_deref()), (code, Some(context)));
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
