//! The data of TPC-H: generated once, written as Parquet for plain DataFusion and into row groups for Terrace.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use datafusion::arrow::record_batch::RecordBatchReader;
use datafusion::parquet::arrow::ArrowWriter;
use datafusion::parquet::basic::Compression;
use datafusion::parquet::file::properties::WriterProperties;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use indicatif::{ProgressBar, ProgressStyle};
use sql::column::{RowGroupStore, RowGroupTable};
use sql::table::{Column, SqlType};
use store::Store;
use tpchgen::generators as rows;
use tpchgen_arrow as arrow;

use workload::interrupt;

/// Rows of a generated batch.
const BATCH_ROWS: usize = 8192;
/// Segments of one transaction of the load: about 40 MB of lineitem.
const ROW_GROUPS_AT_ONCE: usize = 4;

/// A table and the positions of its primary key (TPC-H 3.0.1, clause 1.4).
pub(crate) struct Source {
    pub(crate) name: &'static str,
    key: &'static [usize],
}

/// The tables, the small ones first.
pub(crate) const TABLES: [Source; 8] = [
    Source { name: "region", key: &[0] },
    Source { name: "nation", key: &[0] },
    Source { name: "supplier", key: &[0] },
    Source { name: "customer", key: &[0] },
    Source { name: "part", key: &[0] },
    Source { name: "partsupp", key: &[0, 1] },
    Source { name: "orders", key: &[0] },
    Source { name: "lineitem", key: &[0, 3] },
];

type Batches = Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>>>;

impl Source {
    fn generate(&self, scale: f64) -> (SchemaRef, Batches) {
        fn both<R: RecordBatchReader + 'static>(reader: R) -> (SchemaRef, Batches) {
            (reader.schema(), Box::new(reader))
        }
        match self.name {
            "region" => {
                both(arrow::RegionArrow::new(rows::RegionGenerator::new(scale, 1, 1)).with_batch_size(BATCH_ROWS))
            }
            "nation" => {
                both(arrow::NationArrow::new(rows::NationGenerator::new(scale, 1, 1)).with_batch_size(BATCH_ROWS))
            }
            "supplier" => {
                both(arrow::SupplierArrow::new(rows::SupplierGenerator::new(scale, 1, 1)).with_batch_size(BATCH_ROWS))
            }
            "customer" => {
                both(arrow::CustomerArrow::new(rows::CustomerGenerator::new(scale, 1, 1)).with_batch_size(BATCH_ROWS))
            }
            "part" => both(arrow::PartArrow::new(rows::PartGenerator::new(scale, 1, 1)).with_batch_size(BATCH_ROWS)),
            "partsupp" => {
                both(arrow::PartSuppArrow::new(rows::PartSuppGenerator::new(scale, 1, 1)).with_batch_size(BATCH_ROWS))
            }
            "orders" => {
                both(arrow::OrderArrow::new(rows::OrderGenerator::new(scale, 1, 1)).with_batch_size(BATCH_ROWS))
            }
            _ => both(arrow::LineItemArrow::new(rows::LineItemGenerator::new(scale, 1, 1)).with_batch_size(BATCH_ROWS)),
        }
    }

    fn file(&self, folder: &Path) -> std::path::PathBuf {
        folder.join(format!("{}.parquet", self.name))
    }
}

/// Generates every table once, into Parquet files and into the store. Returns the bytes of the files.
pub(crate) fn load(scale: f64, folder: &Path, store: &Store) -> anyhow::Result<u64> {
    let columns = Arc::new(RowGroupStore::new());
    // Rows of all tables at scale 1, from clause 4.2.5.
    let bar = ProgressBar::new((8_661_245.0 * scale) as u64);
    let style = "{msg:12} {wide_bar} {human_pos} of about {human_len} rows, {elapsed}";
    bar.set_style(ProgressStyle::with_template(style)?);
    for (number, source) in TABLES.iter().enumerate() {
        bar.set_message(source.name);
        let (schema, batches) = source.generate(scale);
        let table = open(store, &columns, number, source, &schema)?;
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let file = File::create(source.file(folder))?;
        let mut writer = ArrowWriter::try_new(file, schema, Some(properties))?;
        let mut waiting = Vec::new();
        for batch in batches {
            interrupt::check()?;
            let batch = batch?;
            writer.write(&batch)?;
            bar.inc(batch.num_rows() as u64);
            waiting.push(batch);
            if waiting.len() * BATCH_ROWS >= ROW_GROUPS_AT_ONCE * sql::column::ROW_GROUP_ROWS {
                table.append(waiting.drain(..)).with_context(|| format!("loading {}", source.name))?;
            }
        }
        table.append(waiting).with_context(|| format!("loading {}", source.name))?;
        writer.close()?;
    }
    bar.finish_and_clear();
    let size = |source: &Source| source.file(folder).metadata().map_or(0, |file| file.len());
    Ok(TABLES.iter().map(size).sum())
}

fn open(
    store: &Store,
    columns: &Arc<RowGroupStore>,
    number: usize,
    source: &Source,
    schema: &SchemaRef,
) -> anyhow::Result<RowGroupTable> {
    let mut definition = Vec::new();
    for field in schema.fields() {
        let kind = SqlType::from_arrow(field)?;
        let (name, not_null) = (field.name().clone(), !field.is_nullable());
        definition.push(Column { not_null, ..Column::new(name, kind) });
    }
    Ok(RowGroupTable::open(store, columns, source.name, number as u64 + 1, definition, source.key.to_vec())?)
}

/// Makes the tables in row groups known to a session.
pub(crate) fn register_segments(
    context: &SessionContext,
    store: &Store,
    columns: &Arc<RowGroupStore>,
) -> anyhow::Result<()> {
    for (number, source) in TABLES.iter().enumerate() {
        let (schema, _) = source.generate(0.001);
        let table = open(store, columns, number, source, &schema)?;
        context.register_table(source.name, Arc::new(table))?;
    }
    Ok(())
}

/// Makes the Parquet files known to a session.
pub(crate) async fn register_parquet(context: &SessionContext, folder: &Path) -> anyhow::Result<()> {
    for source in &TABLES {
        let file = source.file(folder);
        let file = file.to_str().context("the folder's name is not UTF-8")?;
        context.register_parquet(source.name, file, ParquetReadOptions::default()).await?;
    }
    Ok(())
}
