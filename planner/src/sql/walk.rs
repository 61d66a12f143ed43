//! Walks over syntax trees.
//!
//! sqlparser's walk covers some three hundred types, and is compiled anew for each type of visitor:
//! a dozen visitors made two thirds of this crate's code. In this module, all visitors share one
//! compiled walk.

use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, ObjectName, Query, Select, Statement, TableFactor, ValueWithSpan, Visit, VisitMut,
    Visitor, VisitorMut,
};

use crate::error::{PlanError, Result};

/// Visits all parts of a tree.
///
/// # Errors
/// Returns the error with which the visitor ended the walk.
pub(super) fn walk(tree: &impl Visit, visitor: &mut dyn Visitor<Break = PlanError>) -> Result<()> {
    match tree.visit(&mut SharedVisitor(visitor)) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

/// Visits all parts of `tree`. The visitor may change these parts.
///
/// # Errors
/// Returns the error with which the visitor ended the walk.
pub(super) fn walk_mut(
    tree: &mut impl VisitMut,
    visitor: &mut dyn VisitorMut<Break = PlanError>,
) -> Result<()> {
    match VisitMut::visit(tree, &mut SharedMut(visitor)) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct SharedVisitor<'a>(&'a mut dyn Visitor<Break = PlanError>);

struct SharedMut<'a>(&'a mut dyn VisitorMut<Break = PlanError>);

macro_rules! pass_on {
    ($($method:ident: $part:ty),* $(,)?) => {
        // Every level of the recursion reserves space for an error, so the error is boxed.
        type Break = Box<PlanError>;

        $(fn $method(&mut self, part: $part) -> ControlFlow<Self::Break> {
            self.0.$method(part).map_break(Box::new)
        })*
    };
}

impl Visitor for SharedVisitor<'_> {
    pass_on! {
        pre_visit_query: &Query,
        post_visit_query: &Query,
        pre_visit_select: &Select,
        post_visit_select: &Select,
        pre_visit_relation: &ObjectName,
        post_visit_relation: &ObjectName,
        pre_visit_table_factor: &TableFactor,
        post_visit_table_factor: &TableFactor,
        pre_visit_expr: &Expr,
        post_visit_expr: &Expr,
        pre_visit_statement: &Statement,
        post_visit_statement: &Statement,
        pre_visit_value: &ValueWithSpan,
        post_visit_value: &ValueWithSpan,
    }
}

impl VisitorMut for SharedMut<'_> {
    pass_on! {
        pre_visit_query: &mut Query,
        post_visit_query: &mut Query,
        pre_visit_select: &mut Select,
        post_visit_select: &mut Select,
        pre_visit_relation: &mut ObjectName,
        post_visit_relation: &mut ObjectName,
        pre_visit_table_factor: &mut TableFactor,
        post_visit_table_factor: &mut TableFactor,
        pre_visit_expr: &mut Expr,
        post_visit_expr: &mut Expr,
        pre_visit_statement: &mut Statement,
        post_visit_statement: &mut Statement,
        pre_visit_value: &mut ValueWithSpan,
        post_visit_value: &mut ValueWithSpan,
    }
}
