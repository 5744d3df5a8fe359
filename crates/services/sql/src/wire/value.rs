//! Values between PostgreSQL's layouts and Arrow's arrays.
//!
//! ```text
//!   out   array, row  --write-->  text or binary             rows of results, COPY TO
//!   in    text or binary  --build::ValueBuilder-->  array    parameters, COPY FROM
//! ```
//!
//! pgwire and arrow-pg have values too. They are not used, because their output differs from PostgreSQL's: the test
//! below has examples in which arrow-pg 0.16 differs. OIDs of types are pgwire's (`oid`), the calendar is chrono's.

mod array;
pub(crate) mod build;
mod write;

pub(crate) use array::parse as items_of;
pub(crate) use build::ValueBuilder;
pub(crate) use write::{write, write_sized};

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::BytesMut;
    use chrono::{NaiveDate, NaiveTime};
    use datafusion::arrow::array::{
        ArrayRef, Date32Array, Decimal128Array, Float64Array, IntervalMonthDayNanoArray, Time64MicrosecondArray,
    };
    use datafusion::arrow::datatypes::IntervalMonthDayNano;

    use crate::wire::Format;
    use crate::wire::oid::Kind;

    fn written(array: &ArrayRef) -> Option<String> {
        let mut out = BytesMut::new();
        let kind = Kind::of(array.data_type()).expect("it is sent");
        let there = super::write(array, 0, kind, Format::Text, &mut out).expect("it is written");
        there.then(|| String::from_utf8(out.to_vec()).expect("it is text"))
    }

    #[test]
    fn values_are_written_as_postgresql_writes_them() {
        let day = |year, month, day| NaiveDate::from_ymd_opt(year, month, day).expect("it is a day");
        let since = |date: NaiveDate| (date - NaiveDate::default()).num_days() as i32;
        let noon = (NaiveTime::from_hms_opt(12, 0, 0).expect("it is") - NaiveTime::default()).num_microseconds();
        let digits = 10i128.pow(37) + 1;
        let numeric = Decimal128Array::from(vec![digits]).with_precision_and_scale(38, 0).expect("it has 38");
        let examples: [(ArrayRef, Option<&str>); 9] = [
            (Arc::new(Float64Array::from(vec![1.0])), Some("1")),
            (Arc::new(Float64Array::from(vec![1e16])), Some("1e+16")),
            (Arc::new(Float64Array::from(vec![-0.0])), Some("-0")),
            (Arc::new(Float64Array::from(vec![f64::INFINITY])), Some("Infinity")),
            (Arc::new(Time64MicrosecondArray::from(vec![noon.expect("it is small")])), Some("12:00:00")),
            (Arc::new(Date32Array::from(vec![since(day(-43, 3, 15))])), Some("0044-03-15 BC")),
            (Arc::new(Date32Array::from(vec![i32::MAX / 8])), Some("736921-04-25")),
            (Arc::new(numeric), Some("10000000000000000000000000000000000001")),
            (Arc::new(IntervalMonthDayNanoArray::from(vec![None::<IntervalMonthDayNano>])), None),
        ];
        for (array, postgresql) in examples {
            assert_eq!(written(&array).as_deref(), postgresql);
        }
    }
}
