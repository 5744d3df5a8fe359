//! Parses a medium's file: the structure with serde, which refuses unknown keys, then the remaining rules.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::{Confidence, Curve, Direction, Figure, Key, Like, Medium, MediumKind, Pattern, Store};
use crate::CatalogueError;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMedium {
    name: String,
    title: String,
    kind: MediumKind,
    capacity_gb: f64,
    modules: u32,
    #[serde(default)]
    figure: Vec<RawFigure>,
    #[serde(default)]
    curve: Vec<RawCurve>,
    like: Option<RawLike>,
    source: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFigure {
    key: Key,
    value: f64,
    unit: String,
    low: Option<f64>,
    high: Option<f64>,
    modules: Option<u32>,
    source: String,
    confidence: Confidence,
    how: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCurve {
    operation: Direction,
    pattern: Pattern,
    store: Option<Store>,
    bytes: u32,
    modules: u32,
    threads: Vec<u32>,
    gb_per_s: Vec<f64>,
    source: String,
    confidence: Confidence,
    how: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLike {
    medium: String,
    read: f64,
    write: f64,
    how: String,
    source: String,
    confidence: Confidence,
}

/// The sources of a file, and which of them are used.
struct Sources {
    listed: BTreeMap<String, String>,
    used: BTreeSet<String>,
}

impl Sources {
    fn text(&mut self, name: &str) -> Result<String, String> {
        let text = self.listed.get(name).ok_or_else(|| format!("source = \"{name}\" is not listed under [source]"))?;
        if text.trim().is_empty() {
            return Err(format!("source.{name} says nothing"));
        }
        self.used.insert(name.to_owned());
        Ok(text.clone())
    }
}

pub(super) fn parse(file: &str, text: &str) -> Result<Medium, CatalogueError> {
    let invalid = |what: String| CatalogueError::Invalid { file: file.into(), what };
    let raw: RawMedium = toml::from_str(text).map_err(|error| invalid(error.to_string().trim_end().to_owned()))?;
    medium(raw).map_err(invalid)
}

fn medium(raw: RawMedium) -> Result<Medium, String> {
    let mut sources = Sources { listed: raw.source, used: BTreeSet::new() };
    if raw.name.is_empty() || raw.title.is_empty() {
        return Err("name and title must not be empty".into());
    }
    positive("capacity_gb", raw.capacity_gb)?;
    positive("modules", raw.modules.into())?;
    let mut figures = Vec::new();
    for (index, raw) in raw.figure.into_iter().enumerate() {
        let figure = figure(raw, &mut sources).map_err(|what| format!("figure {}: {what}", index + 1))?;
        if figure.key.is_modelled() && figures.iter().any(|other: &Figure| other.key == figure.key) {
            return Err(format!("figure {}: {} stands twice, and the model reads it", index + 1, figure.key));
        }
        figures.push(figure);
    }
    let mut curves = Vec::new();
    for (index, raw) in raw.curve.into_iter().enumerate() {
        curves.push(curve(raw, &mut sources).map_err(|what| format!("curve {}: {what}", index + 1))?);
    }
    let like = raw.like.map(|raw| like(raw, &mut sources).map_err(|what| format!("like: {what}"))).transpose()?;
    if let Some(unused) = sources.listed.keys().find(|name| !sources.used.contains(*name)) {
        return Err(format!("source.{unused} is not used by any figure or curve"));
    }
    let (name, title, kind) = (raw.name, raw.title, raw.kind);
    Ok(Medium { name, title, kind, capacity_gb: raw.capacity_gb, modules: raw.modules, figures, curves, like })
}

fn positive(key: &str, value: f64) -> Result<(), String> {
    if value.is_finite() && value > 0.0 { Ok(()) } else { Err(format!("{key} = {value} is not a positive number")) }
}

fn figure(raw: RawFigure, sources: &mut Sources) -> Result<Figure, String> {
    let (key, value) = (raw.key, raw.value);
    if raw.unit != key.unit() {
        return Err(format!("unit = \"{}\", but {key} is in {}", raw.unit, key.unit()));
    }
    if !(value.is_finite() && value >= 0.0) {
        return Err(format!("value = {value} is not a number of 0 or more"));
    }
    let range = match (raw.low, raw.high) {
        (None, None) => None,
        (Some(low), Some(high)) if low <= value && value <= high => Some((low, high)),
        _ => return Err("low and high stand together, around value".into()),
    };
    let source = sources.text(&raw.source)?;
    let (modules, confidence, how) = (raw.modules, raw.confidence, raw.how);
    Ok(Figure { key, value, range, modules, source, confidence, how })
}

fn curve(raw: RawCurve, sources: &mut Sources) -> Result<Curve, String> {
    if (raw.operation == Direction::Write) != raw.store.is_some() {
        return Err("store belongs to a write, and a write needs it".into());
    }
    positive("bytes", raw.bytes.into())?;
    positive("modules", raw.modules.into())?;
    if raw.threads.is_empty() || raw.threads.len() != raw.gb_per_s.len() {
        return Err("threads and gb_per_s need the same number of values, at least one".into());
    }
    if raw.threads[0] != 1 || raw.threads.windows(2).any(|pair| pair[0] >= pair[1]) {
        return Err("threads must rise from 1".into());
    }
    for value in &raw.gb_per_s {
        positive("gb_per_s", *value)?;
    }
    let points = raw.threads.iter().map(|threads| f64::from(*threads)).zip(raw.gb_per_s).collect();
    let source = sources.text(&raw.source)?;
    let (direction, pattern, store, bytes, modules) = (raw.operation, raw.pattern, raw.store, raw.bytes, raw.modules);
    Ok(Curve { direction, pattern, store, bytes, modules, points, source, confidence: raw.confidence, how: raw.how })
}

fn like(raw: RawLike, sources: &mut Sources) -> Result<Like, String> {
    positive("read", raw.read)?;
    positive("write", raw.write)?;
    let source = sources.text(&raw.source)?;
    let (medium, read, write, how, confidence) = (raw.medium, raw.read, raw.write, raw.how, raw.confidence);
    Ok(Like { medium, read, write, how, source, confidence })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        name = "x"
        title = "X"
        kind = "pmem"
        capacity_gb = 1
        modules = 1
        figure = [ { key = "read_latency_random", value = 300, unit = "ns", source = "a", confidence = "S" } ]
        curve = [ { operation = "write", pattern = "random", store = "nt", bytes = 64, modules = 1,
                    threads = [1, 2], gb_per_s = [0.5, 0.9], source = "a", confidence = "M" } ]
        [source]
        a = "somewhere"
    "#;

    #[test]
    fn a_file_that_breaks_a_rule_is_refused_with_its_name_and_the_key() {
        assert!(parse("x.toml", GOOD).is_ok());
        let cases = [
            ("unit = \"ns\"", "unit = \"us\"", "unit = \"us\", but read_latency_random is in ns"),
            ("value = 300", "value = -1", "value = -1"),
            ("key = \"read_latency_random\"", "key = \"speed\"", "unknown variant `speed`"),
            ("confidence = \"S\"", "confidence = \"S\", colour = 1", "unknown field `colour`"),
            ("title = \"X\"", "title = \"X\"\nspeed = 1", "unknown field `speed`"),
            ("source = \"a\", confidence = \"S\"", "confidence = \"S\"", "missing field `source`"),
            (
                "source = \"a\", confidence = \"S\"",
                "source = \"b\", confidence = \"S\"",
                "source = \"b\" is not listed",
            ),
            ("a = \"somewhere\"", "a = \"somewhere\"\nb = \"else\"", "source.b is not used"),
            ("a = \"somewhere\"", "a = \"\"", "source.a says nothing"),
            ("store = \"nt\", ", "", "store belongs to a write"),
            ("[1, 2]", "[1, 1]", "threads must rise from 1"),
            ("[1, 2]", "[1]", "the same number of values"),
            ("[0.5, 0.9]", "[0.5, 0]", "gb_per_s = 0"),
            ("modules = 1\n", "modules = 0\n", "modules = 0"),
            ("kind = \"pmem\"", "kind = \"tape\"", "unknown variant `tape`"),
            ("confidence = \"M\"", "confidence = \"X\"", "unknown variant `X`"),
        ];
        for (was, is, says) in cases {
            let text = GOOD.replacen(was, is, 1);
            assert_ne!(text, GOOD, "{was} does not occur");
            let error = parse("x.toml", &text).expect_err(is).to_string();
            assert!(error.starts_with("x.toml: ") && error.contains(says), "{is}: {error}");
        }
    }

    #[test]
    fn a_price_is_no_figure_and_a_figure_of_the_model_stands_once() {
        let price = "{ key = \"price\", value = 3, unit = \"USD/GB\", source = \"a\", confidence = \"S\" }";
        let again = "{ key = \"read_latency_random\", value = 1, unit = \"ns\", source = \"a\", confidence = \"S\" }";
        for (added, says) in [(price, "unknown variant `price`"), (again, "stands twice")] {
            let text = GOOD.replacen("figure = [", &format!("figure = [ {added},"), 1);
            let error = parse("x.toml", &text).expect_err(added).to_string();
            assert!(error.contains(says), "{error}");
        }
    }
}
