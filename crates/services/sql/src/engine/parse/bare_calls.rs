//! A SELECT whose items are calls of functions, and which has nothing else: the engine runs some functions itself, without a plan.

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, SelectItem, SetExpr, Statement,
};

use super::ast;

/// The names and arguments of the calls that a statement consists of; `None` if it is another statement, or calls another function.
pub(crate) fn bare_calls(statement: &Statement, is_known: impl Fn(&str) -> bool) -> Option<Vec<(String, Vec<Expr>)>> {
    let Statement::Query(query) = statement else { return None };
    let SetExpr::Select(select) = query.body.as_ref() else { return None };
    let calls = select.projection.iter().map(|item| call(item, &is_known)).collect::<Option<Vec<_>>>()?;
    let mut bare = select.as_ref().clone();
    bare.projection.clear();
    let Ok(Statement::Query(nothing)) = ast::select(Vec::new(), Vec::new(), None) else { return None };
    let mut outer = query.as_ref().clone();
    *outer.body = SetExpr::Select(Box::new(bare));
    (outer == *nothing && !calls.is_empty()).then_some(calls)
}

/// The arguments of the calls of one function, each with so many, that a statement consists of; `None` if it is another statement.
pub(crate) fn calls_of(statement: &Statement, function: &str, arguments: usize) -> Option<Vec<Vec<Expr>>> {
    let calls = bare_calls(statement, |name| name == function)?;
    let calls: Vec<Vec<Expr>> = calls.into_iter().map(|(_, arguments)| arguments).collect();
    calls.iter().all(|call| call.len() == arguments).then_some(calls)
}

fn call(item: &SelectItem, is_known: impl Fn(&str) -> bool) -> Option<(String, Vec<Expr>)> {
    let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else { return None };
    let Expr::Function(Function { name, args: FunctionArguments::List(list), over: None, filter: None, .. }) = expr
    else {
        return None;
    };
    let name = name.0.last()?.as_ident().map(ast::folded).filter(|name| is_known(name))?;
    let argument = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
        _ => None,
    };
    let arguments = list.args.iter().map(argument).collect::<Option<Vec<_>>>()?;
    Some((name, arguments))
}
