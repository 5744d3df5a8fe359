//! The transforms of a production: compiled together, because they may call each other.

use std::sync::Arc;

use hl7::Draft;

use super::compile::{self, Compiled, Known};
use super::context::{Context, Outcome, RunError};
use super::diagnostic::{Diagnostic, Fault, Source, SourceSpan};
use super::machine::Machine;
use super::parse;
use super::program::Program;
use super::table::Tables;

/// A transform's place in its [`Transforms`]; valid for those only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransformId(u32);

/// All transforms of a production, compiled.
#[derive(Debug)]
pub struct Transforms {
    names: Vec<String>,
    programs: Vec<Program>,
    tables: Arc<Tables>,
}

/// Deepest chain of calls: each uses stack when run, and a longer chain would be hard to follow.
const MAX_CALLS: usize = 32;

impl Transforms {
    /// Compiles transforms given by name and source.
    ///
    /// # Errors
    /// Every fault found in every file, in the order of the files. A cycle of calls is reported once all files are
    /// without other faults.
    pub fn compile(sources: &[(String, Source<'_>)], tables: &Arc<Tables>) -> Result<Transforms, Vec<Diagnostic>> {
        let names: Vec<&str> = sources.iter().map(|(name, _)| name.as_str()).collect();
        let known = Known { tables, transforms: &names };
        let mut compiled = Vec::with_capacity(sources.len());
        let mut diagnostics = Vec::new();
        for (at, (name, source)) in sources.iter().enumerate() {
            if names[..at].contains(&name.as_str()) {
                let fault = Fault::new(SourceSpan::default(), format!("there are two transforms named `{name}`"));
                diagnostics.push(source.diagnostic(fault));
            }
            match compile::transform(source, parse::transform(source), known) {
                Ok(done) => compiled.push(done),
                Err(faults) => diagnostics.extend(faults.into_iter().map(|fault| source.diagnostic(fault))),
            }
        }
        if diagnostics.is_empty() {
            check_calls(sources, &compiled, &mut diagnostics);
        }
        if !diagnostics.is_empty() {
            return Err(diagnostics);
        }
        Ok(Transforms {
            names: names.into_iter().map(str::to_owned).collect(),
            programs: compiled.into_iter().map(|done| done.program).collect(),
            tables: Arc::clone(tables),
        })
    }

    /// The transform of a name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<TransformId> {
        self.names.iter().position(|known| known == name).map(|at| TransformId(at as u32))
    }

    /// The name of a transform.
    ///
    /// # Panics
    /// If `id` comes from other [`Transforms`] and is not below their number.
    #[must_use]
    pub fn name(&self, id: TransformId) -> &str {
        &self.names[id.0 as usize]
    }

    /// All names, in the order they were given.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Edits a draft as the transform specifies. The tables are those given when compiled.
    ///
    /// # Errors
    /// Why it could not; the draft then holds the edits made before, and must not be sent.
    ///
    /// # Panics
    /// If `id` comes from other [`Transforms`] and is not below their number.
    pub fn run(&self, id: TransformId, draft: &mut Draft<'_>, context: &Context<'_>) -> Result<Outcome, RunError> {
        Machine::edit(&self.programs, &self.tables, draft, context).transform(id.0 as usize)
    }
}

/// How far a transform's calls have been followed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    New,
    Open,
    /// Followed to the end: the calls below it are this deep.
    Done(usize),
}

/// Refuses calls that come back to where they started, and chains too long to run.
fn check_calls(sources: &[(String, Source<'_>)], compiled: &[Compiled], diagnostics: &mut Vec<Diagnostic>) {
    let mut marks = vec![Mark::New; compiled.len()];
    for root in 0..compiled.len() {
        // Depth first without recursion: a transform, and how many of its calls have been followed.
        let mut path = if marks[root] == Mark::New { vec![(root, 0)] } else { Vec::new() };
        while let Some(&(at, followed)) = path.last() {
            marks[at] = Mark::Open;
            let Some(&(callee, span)) = compiled[at].calls.get(followed) else {
                let below = compiled[at].calls.iter().map(|(callee, _)| match marks[*callee] {
                    Mark::Done(depth) => depth + 1,
                    Mark::New | Mark::Open => 0,
                });
                marks[at] = Mark::Done(below.max().unwrap_or(0));
                path.pop();
                continue;
            };
            path.last_mut().expect("it was just looked at").1 += 1;
            let fault = match marks[callee] {
                Mark::New if path.len() < MAX_CALLS => {
                    path.push((callee, 0));
                    continue;
                }
                Mark::New => too_deep(span),
                Mark::Open => {
                    let start = path.iter().position(|(open, _)| *open == callee).unwrap_or(0);
                    let mut round: Vec<&str> =
                        path[start..].iter().map(|(open, _)| sources[*open].0.as_str()).collect();
                    round.push(&sources[callee].0);
                    Fault::new(span, "this call comes back to where it started").hint(round.join(" -> "))
                }
                Mark::Done(depth) if depth + path.len() >= MAX_CALLS => too_deep(span),
                Mark::Done(_) => continue,
            };
            diagnostics.push(sources[at].1.diagnostic(fault));
        }
    }
}

fn too_deep(span: SourceSpan) -> Fault {
    Fault::new(span, format!("transforms call each other more than {MAX_CALLS} deep"))
}
