//! Checks what a statement contains: it is walked once when it is prepared, before any part of it is planned.
//!
//! ```text
//!   text --tokens: how deep?--> parse --statement: only supported parts?--> plan
//! ```
//!
//! The parser accepts more SQL than the engine and DataFusion support, and DataFusion silently ignores parts that it
//! does not plan. This file refuses them by name: locks of rows, samples of tables, lengths in casts. It checks only
//! expressions and queries. Parts that belong to one statement, such as the options of CREATE TABLE, are refused where
//! that statement runs. Names and types are not checked here: planning finds them.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CharacterLength, DataType, Expr, Function, FunctionArg, FunctionArguments, Ident, JoinConstraint,
    JoinOperator, ObjectName, ObjectNamePart, Query, Select, SelectItem, SetExpr, SetOperator, SetQuantifier,
    Statement, TableFactor, UnaryOperator, Visit, Visitor, visit_expressions,
};

use super::ast::{IDENTITY_VALUE, folded};
use crate::SqlError;

/// Refuses parts that would be accepted and ignored. Errors: 0A000.
pub(crate) fn check(statement: &Statement) -> Result<(), SqlError> {
    match statement.visit(&mut StatementCheck) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct StatementCheck;

fn refuse(what: impl std::fmt::Display) -> ControlFlow<Box<SqlError>> {
    ControlFlow::Break(Box::new(SqlError::unsupported(what)))
}

fn refuse_with(what: impl std::fmt::Display, hint: &str) -> ControlFlow<Box<SqlError>> {
    ControlFlow::Break(Box::new(SqlError::unsupported(what).with_hint(hint)))
}

/// Refuses the first part that is present.
fn refuse_any(found: &[(bool, &str)]) -> ControlFlow<Box<SqlError>> {
    match found.iter().find(|(is, _)| *is) {
        Some((_, what)) => refuse(what),
        None => ControlFlow::Continue(()),
    }
}

impl Visitor for StatementCheck {
    type Break = Box<SqlError>;

    fn pre_visit_relation(&mut self, name: &ObjectName) -> ControlFlow<Self::Break> {
        // The engine's own schemas: rights are asked for the names of users.
        let is_own = |part: &ObjectNamePart| part.as_ident().is_some_and(|ident| ident.value.starts_with('$'));
        if name.0.len() > 1 && name.0.iter().any(is_own) {
            let missing = SqlError::statement("42P01", format!("relation {name} does not exist"));
            return ControlFlow::Break(Box::new(missing));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Self::Break> {
        if let Some(lock) = query.locks.first() {
            return refuse_with(format!("{lock} in a subquery"), "It locks the rows of a query of one table.");
        }
        set_operation(&query.body)?;
        refuse_any(&[
            (query.for_clause.is_some(), "FOR XML, JSON or BROWSE"),
            (query.settings.is_some(), "SETTINGS"),
            (query.format_clause.is_some(), "FORMAT"),
        ])
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Self::Break> {
        for join in select.from.iter().flat_map(|table| &table.joins) {
            use JoinConstraint::{Natural, Using};
            if let JoinOperator::FullOuter(Using(_) | Natural)
            | JoinOperator::Right(Using(_) | Natural)
            | JoinOperator::RightOuter(Using(_) | Natural) = join.join_operator
            {
                let hint = "Use ON, and coalesce(a.x, b.x) for the common column.";
                return refuse_with("FULL or RIGHT JOIN with USING or NATURAL", hint);
            }
        }
        for item in &select.projection {
            if let SelectItem::ExprWithAlias { alias, .. } = item
                && alias.quote_style.is_none()
                && (alias.value.eq_ignore_ascii_case("isnull") || alias.value.eq_ignore_ascii_case("notnull"))
            {
                return refuse_with(
                    "ISNULL and NOTNULL",
                    "Write IS NULL or IS NOT NULL; if it is a name, put it in quotes.",
                );
            }
        }
        refuse_any(&[
            (select.into.is_some(), "SELECT INTO"),
            (select.prewhere.is_some(), "PREWHERE"),
            (!select.connect_by.is_empty(), "CONNECT BY"),
            (!select.distribute_by.is_empty(), "DISTRIBUTE BY"),
            (select.value_table_mode.is_some(), "SELECT AS VALUE or STRUCT"),
            (select.select_modifiers.is_some(), "a modifier of SELECT"),
        ])
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<Self::Break> {
        match factor {
            TableFactor::Table {
                with_hints,
                version,
                with_ordinality,
                partitions,
                json_path,
                sample,
                index_hints,
                ..
            } => refuse_any(&[
                (sample.is_some(), "TABLESAMPLE"),
                (*with_ordinality, "WITH ORDINALITY"),
                (version.is_some(), "a version of a table"),
                (!with_hints.is_empty() || !index_hints.is_empty(), "a hint on a table"),
                (!partitions.is_empty(), "PARTITION at a table"),
                (json_path.is_some(), "a path on a table"),
            ]),
            TableFactor::Derived { sample: Some(_), .. } => refuse("TABLESAMPLE"),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Self::Break> {
        match expr {
            // Where a row lies, which contains its key, is a column of the engine alone: no right is asked for it.
            Expr::Identifier(name) => own_column(name),
            Expr::CompoundIdentifier(names) => names.iter().try_for_each(own_column),
            Expr::Cast { data_type, .. } => cast(data_type),
            Expr::TypedString(typed) => cast(&typed.data_type),
            Expr::BinaryOp { left, op, right } => rows(left, op, right),
            Expr::UnaryOp { op: UnaryOperator::Minus, expr }
                if matches!(**expr, Expr::BinaryOp { op: BinaryOperator::PGExp, .. }) =>
            {
                refuse_with("- a ^ b", "Write (-a) ^ b, which PostgreSQL takes it for, or -(a ^ b).")
            }
            Expr::InList { expr, list, .. } if matches!(**expr, Expr::Tuple(_)) => row_in_list(expr, list),
            Expr::InSubquery { expr, .. } => {
                no_rows_within(expr)?;
                few_copies(expr.as_ref())
            }
            Expr::AnyOp { left, right, .. } | Expr::AllOp { left, right, .. } => match right.as_ref() {
                Expr::Subquery(_) => few_copies(left.as_ref()),
                right => {
                    few_copies(left.as_ref())?;
                    few_copies(right)
                }
            },
            Expr::Function(function) => {
                names_once(function)?;
                copied_values(function)?;
                call(function)
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Refuses a column of the engine's own.
fn own_column(name: &Ident) -> ControlFlow<Box<SqlError>> {
    if name.value.starts_with('$') {
        let missing = SqlError::statement("42703", format!("column {name} does not exist"));
        return ControlFlow::Break(Box::new(missing));
    }
    ControlFlow::Continue(())
}

/// Refuses INTERSECT and EXCEPT with ALL: they do not count rows here, so their result would be wrong.
fn set_operation(body: &SetExpr) -> ControlFlow<Box<SqlError>> {
    let SetExpr::SetOperation { op, set_quantifier, left, right } = body else { return ControlFlow::Continue(()) };
    if *op != SetOperator::Union && *set_quantifier == SetQuantifier::All {
        let hint = "Number equal rows with row_number() over (partition by ..), and leave out ALL.";
        return refuse_with(format!("{op} ALL"), hint);
    }
    set_operation(left)?;
    set_operation(right)
}

/// Rows are compared with rows of the same size, in order too; none may be within another one, since values of rows are copied.
fn rows(left: &Expr, op: &BinaryOperator, right: &Expr) -> ControlFlow<Box<SqlError>> {
    use BinaryOperator as B;
    let size = |expr: &Expr| if let Expr::Tuple(values) = expr { values.len() } else { 0 };
    if size(left) == 0 && size(right) == 0 {
        return ControlFlow::Continue(());
    }
    let known =
        matches!(op, B::Eq | B::NotEq | B::Lt | B::LtEq | B::Gt | B::GtEq) || *op == B::Overlaps && size(left) == 2;
    if !known || size(left) != size(right) {
        return refuse_with(format!("a row of values with {op}"), "Compare the values one by one.");
    }
    no_rows_within(left)?;
    no_rows_within(right)
}

fn row_in_list(row: &Expr, list: &[Expr]) -> ControlFlow<Box<SqlError>> {
    let size = |expr: &Expr| if let Expr::Tuple(values) = expr { values.len() } else { 0 };
    if list.iter().any(|other| size(other) != size(row)) {
        return refuse_with("IN with rows of values of other sizes", "Write (a = 1 AND b = 2) OR .., or use EXISTS.");
    }
    no_rows_within(row)?;
    list.iter().try_for_each(no_rows_within)
}

/// Refuses a row of values within the values of a row.
fn no_rows_within(row: &Expr) -> ControlFlow<Box<SqlError>> {
    let Expr::Tuple(values) = row else { return ControlFlow::Continue(()) };
    let is_row = |expr: &Expr| match expr {
        Expr::Tuple(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    match values.iter().any(|value| visit_expressions(value, is_row).is_break()) {
        true => refuse("a row of values within a row of values"),
        false => ControlFlow::Continue(()),
    }
}

/// How deep values that are copied may be within values that are copied, up to four times each.
const COPIES_MAX: usize = 2;

/// Whether the values of an expression are copied: of comparisons with ANY, ALL and IN (SELECT ..), and of some aggregates.
fn copies(expr: &Expr) -> bool {
    match expr {
        Expr::AnyOp { .. } | Expr::AllOp { .. } | Expr::InSubquery { .. } => true,
        Expr::Function(function) => is_copying(function),
        _ => false,
    }
}

fn is_copying(function: &Function) -> bool {
    let name = function.name.to_string().to_lowercase();
    match name.rsplit('.').next() {
        Some("mode" | "percentile_disc") => true,
        Some("array_agg") => {
            matches!(&function.args, FunctionArguments::List(list) if list.duplicate_treatment.is_some())
        }
        _ => false,
    }
}

/// Refuses a value that would be copied too often. Errors: 54001.
fn few_copies(value: &impl Visit) -> ControlFlow<Box<SqlError>> {
    match value.visit(&mut Copies { depth: 0 }) {
        ControlFlow::Continue(()) => ControlFlow::Continue(()),
        ControlFlow::Break(()) => {
            let message = "comparisons with ANY, ALL and IN nest too deeply in the values of such comparisons";
            ControlFlow::Break(Box::new(SqlError::statement("54001", message)))
        }
    }
}

struct Copies {
    depth: usize,
}

impl Visitor for Copies {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        self.depth += usize::from(copies(expr));
        if self.depth > COPIES_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn post_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        self.depth -= usize::from(copies(expr));
        ControlFlow::Continue(())
    }
}

/// Refuses aggregates whose values are copied within one another. Errors: 42803, 54001.
fn copied_values(function: &Function) -> ControlFlow<Box<SqlError>> {
    if !is_copying(function) {
        return ControlFlow::Continue(());
    }
    let mut aggregates = Aggregates { queries: 0 };
    if function.args.visit(&mut aggregates).is_break() || function.within_group.visit(&mut aggregates).is_break() {
        let nested = SqlError::statement("42803", "aggregate function calls cannot be nested");
        return ControlFlow::Break(Box::new(nested));
    }
    few_copies(&function.args)?;
    few_copies(&function.within_group)
}

/// Finds such an aggregate outside of subqueries.
struct Aggregates {
    queries: usize,
}

impl Visitor for Aggregates {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(function) if self.queries == 0 && is_copying(function) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Refuses functions that differ from PostgreSQL's of the same name.
fn call(function: &Function) -> ControlFlow<Box<SqlError>> {
    // As the planner finds it: without quotes, and folded only where there are none.
    let name = function.name.0.last().and_then(ObjectNamePart::as_ident).map(folded).unwrap_or_default();
    match name.as_str() {
        "generate_series" | "range" => {
            refuse_with(format!("{name} among the columns of SELECT"), "Put it into FROM, or use LATERAL there.")
        }
        // The engine alone calls it: it asks for no right on the sequence.
        IDENTITY_VALUE => {
            let missing = SqlError::statement("42883", format!("function {name} does not exist"));
            ControlFlow::Break(Box::new(missing))
        }
        "to_time" => refuse_with(format!("function {name}"), "Cast to time."),
        _ => ControlFlow::Continue(()),
    }
}

fn some_length(kind: &str, length: &CharacterLength) -> ControlFlow<Box<SqlError>> {
    match length {
        CharacterLength::IntegerLength { length: 0, .. } => {
            let message = format!("length for type {kind} must be at least 1");
            ControlFlow::Break(Box::new(SqlError::statement("22023", message)))
        }
        _ => ControlFlow::Continue(()),
    }
}

/// Refuses arguments of one name.
fn names_once(function: &Function) -> ControlFlow<Box<SqlError>> {
    let FunctionArguments::List(list) = &function.args else { return ControlFlow::Continue(()) };
    let names = list.args.iter().filter_map(|arg| match arg {
        FunctionArg::Named { name, .. } => Some(name.value.to_lowercase()),
        FunctionArg::ExprNamed { name, .. } => Some(name.to_string().to_lowercase()),
        FunctionArg::Unnamed(_) => None,
    });
    let mut known = HashSet::new();
    for name in names {
        if known.contains(&name) {
            let message = format!("argument name \"{name}\" used more than once");
            return ControlFlow::Break(Box::new(SqlError::statement("42601", message)));
        }
        known.insert(name);
    }
    ControlFlow::Continue(())
}

/// Refuses a cast to a type with a precision that has no meaning here.
fn cast(kind: &DataType) -> ControlFlow<Box<SqlError>> {
    use DataType as T;
    match kind {
        T::Varchar(Some(length)) | T::CharacterVarying(Some(length)) | T::CharVarying(Some(length)) => {
            some_length("varchar", length)
        }
        T::Char(Some(length)) | T::Character(Some(length)) => some_length("char", length),
        T::Interval { precision: Some(_), .. } => refuse(format!("a cast to {kind}")),
        _ => ControlFlow::Continue(()),
    }
}
