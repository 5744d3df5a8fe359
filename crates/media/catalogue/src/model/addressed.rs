//! Media accessed by loads and stores: a table of bandwidth for each way of access, built from the medium's curves.

use super::grid::{Grid, Scaled};
use super::{Access, LINE_BYTES, needed};
use crate::CatalogueError;
use crate::medium::{Curve, Direction, Key, Medium, MediumKind, Pattern, Store, media};

#[derive(Clone, Debug)]
pub(super) struct Addressed {
    latency_random: f64,
    latency_sequential: f64,
    /// Additional nanoseconds for the line that was just written back.
    pub(super) reflush: f64,
    read: Way,
    cached: Way,
    nt: Way,
    clwb: Way,
}

/// One way of access, by pattern.
#[derive(Clone, Debug)]
struct Way {
    sequential: Grid,
    random: Grid,
}

impl Addressed {
    pub(super) fn of(medium: &Medium, modules: u32) -> Result<Addressed, CatalogueError> {
        let curves = Curves::of(medium, modules)?;
        let read = curves.way(Direction::Read, None)?;
        // Memory does not need the ways of persistent memory; if they were not measured, they cost as much as the
        // cached one.
        let volatile = medium.kind == MediumKind::Memory;
        let cached = curves.way(Direction::Write, Some(Store::Cached))?;
        let or_cached = |way: Result<Way, CatalogueError>| match way {
            Err(CatalogueError::Incomplete { .. }) if volatile => Ok(cached.clone()),
            way => way,
        };
        let nt = or_cached(curves.way(Direction::Write, Some(Store::Nt)))?;
        let clwb = or_cached(curves.random(Direction::Write, Some(Store::Clwb)).map(|clwb| nt.in_proportion(&clwb)))?;
        Ok(Addressed {
            latency_random: needed(medium, Key::ReadLatencyRandom)?,
            latency_sequential: needed(medium, Key::ReadLatencySequential)?,
            reflush: medium.figure(Key::ReflushPenalty).map_or(0.0, |figure| figure.value),
            read,
            cached,
            nt,
            clwb,
        })
    }

    pub(super) fn alone(&self, access: &Access) -> f64 {
        self.among(access, 1.0)
    }

    pub(super) fn among(&self, access: &Access, threads: f64) -> f64 {
        let latency = match (access.direction, access.pattern) {
            (Direction::Write, _) => 0.0,
            (Direction::Read, _) if access.overlapped => 0.0,
            (Direction::Read, Pattern::Sequential) => self.latency_sequential,
            (Direction::Read, Pattern::Random) => self.latency_random,
        };
        let bytes = whole_lines(access.bytes);
        (threads * bytes / self.grid(access).at(bytes, threads)).max(latency)
    }

    pub(super) fn at_least(&self, access: &Access) -> f64 {
        let bytes = whole_lines(access.bytes);
        bytes / self.grid(access).peak(bytes)
    }

    fn grid(&self, access: &Access) -> &Grid {
        let way = match (access.direction, access.store) {
            (Direction::Read, _) => &self.read,
            (Direction::Write, Store::Cached) => &self.cached,
            (Direction::Write, Store::Nt) => &self.nt,
            (Direction::Write, Store::Clwb) => &self.clwb,
        };
        match access.pattern {
            Pattern::Sequential => &way.sequential,
            Pattern::Random => &way.random,
        }
    }
}

/// Memory moves whole lines.
fn whole_lines(bytes: u64) -> f64 {
    (bytes.max(1).div_ceil(LINE_BYTES) * LINE_BYTES) as f64
}

impl Way {
    /// This way, scaled by the ratio of `random` to its own random accesses at sizes that both have (rule 3 of the
    /// model).
    fn in_proportion(&self, random: &Grid) -> Way {
        let scale = |grid: &Grid| {
            let threads = grid.threads().chain(random.threads()).collect();
            let sizes = grid.sizes().chain(random.sizes()).collect();
            Grid::sample(sizes, threads, |bytes, threads| {
                let known = bytes.min(random.largest());
                random.at(known, threads) / self.random.at(known, threads) * grid.at(bytes, threads)
            })
        };
        Way { sequential: scale(&self.sequential), random: scale(&self.random) }
    }
}

/// The curves that a medium has or takes from another, and the number of modules to which they are scaled.
struct Curves<'m> {
    medium: &'m str,
    curves: Vec<&'m Curve>,
    /// Modules of the curves' medium with the performance of this one: for reads, for writes.
    modules: (f64, f64),
}

impl<'m> Curves<'m> {
    fn of(medium: &'m Medium, modules: u32) -> Result<Curves<'m>, CatalogueError> {
        let modules = f64::from(modules);
        let Some(like) = &medium.like else {
            return Ok(Curves {
                medium: &medium.name,
                curves: medium.curves.iter().collect(),
                modules: (modules, modules),
            });
        };
        let other =
            media().iter().find(|other| other.name == like.medium).ok_or_else(|| CatalogueError::UnknownMedium {
                name: like.medium.clone(),
                known: media().iter().map(|medium| medium.name.as_str()).collect::<Vec<_>>().join(", "),
            })?;
        let modules = (modules * like.read, modules * like.write);
        Ok(Curves { medium: &medium.name, curves: other.curves.iter().collect(), modules })
    }

    /// The curves of one kind, scaled to the number of modules, by increasing size; from the nearest measured number.
    fn brought(&self, direction: Direction, pattern: Pattern, store: Option<Store>) -> Vec<(f64, Scaled)> {
        let wanted = if direction == Direction::Read { self.modules.0 } else { self.modules.1 };
        let is_it = |curve: &&&Curve| (curve.direction, curve.pattern, curve.store) == (direction, pattern, store);
        let distance = |measured: u32| (f64::from(measured) / wanted).ln().abs();
        let nearest = self.curves.iter().filter(is_it).map(|curve| curve.modules);
        let Some(nearest) = nearest.min_by(|a, b| distance(*a).total_cmp(&distance(*b))) else { return Vec::new() };
        let curves = self.curves.iter().filter(is_it).filter(|curve| curve.modules == nearest);
        let ratio = wanted / f64::from(nearest);
        let mut brought: Vec<(f64, Scaled)> =
            curves.map(|curve| (f64::from(curve.bytes), Scaled::new(curve, ratio))).collect();
        brought.sort_by(|a, b| a.0.total_cmp(&b.0));
        brought
    }

    fn missing(&self, direction: Direction, pattern: Pattern, store: Option<Store>) -> CatalogueError {
        let store = store.map_or(String::new(), |store| format!(" with store \"{store}\""));
        let missing = format!("curve of {pattern} {direction}s{store}");
        CatalogueError::Incomplete { medium: self.medium.into(), missing }
    }

    fn random(&self, direction: Direction, store: Option<Store>) -> Result<Grid, CatalogueError> {
        let random = self.brought(direction, Pattern::Random, store);
        if random.is_empty() {
            return Err(self.missing(direction, Pattern::Random, store));
        }
        Ok(Grid::of(&random))
    }

    /// Both patterns, by rules 2 and 4 of the model.
    fn way(&self, direction: Direction, store: Option<Store>) -> Result<Way, CatalogueError> {
        let sequential = self.brought(direction, Pattern::Sequential, store);
        if sequential.is_empty() {
            return Err(self.missing(direction, Pattern::Sequential, store));
        }
        let sequential = Grid::of(&sequential);
        let Ok(measured) = self.random(direction, store) else {
            return Ok(Way { random: sequential.clone(), sequential });
        };
        let threads = sequential.threads().chain(measured.threads()).collect();
        let sizes = measured.sizes().chain(sequential.sizes()).collect();
        let last = measured.largest();
        let random = Grid::sample(sizes, threads, |bytes, threads| {
            if bytes <= last {
                return measured.at(bytes, threads);
            }
            measured.at(last, threads) / sequential.at(last, threads) * sequential.at(bytes, threads)
        });
        Ok(Way { sequential, random })
    }
}
