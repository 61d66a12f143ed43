//! Plans the call of a MIX.

use std::sync::{Arc, LazyLock};

use datafusion::common::Result;
use datafusion::logical_expr::planner::{
    PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning,
};
use sqlparser::ast::{Expr, FunctionArg, FunctionArgExpr, Spanned, TableFactor, TableFunctionArgs};

use super::arguments::{number, stop};
use super::arm::{named, written};
use super::factor::{is_mix, place};
use super::weight::weighted;
use crate::error::Position;
use crate::mix::{MixInput, mixed};

/// Plans a MIX whose arms are subqueries.
#[derive(Debug)]
struct MixPlanner;

/// The relation planners that Forebay adds to DataFusion.
pub(in crate::sql) static PLANNERS: LazyLock<[Arc<dyn RelationPlanner>; 1]> =
    LazyLock::new(|| [Arc::new(MixPlanner)]);

impl RelationPlanner for MixPlanner {
    fn plan_relation(
        &self,
        relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        if !is_mix(&relation) {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        }
        let position = place(&relation);
        let TableFactor::Table {
            alias,
            args: Some(TableFunctionArgs { args, .. }),
            ..
        } = relation
        else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let stop = stop(&args)?;
        let mut arms = Vec::with_capacity(args.len());
        for argument in args {
            let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = argument else {
                continue;
            };
            if let Some((Expr::Subquery(query), weight)) = weighted(&expr) {
                let weight = number(weight)?;
                let (name, at, factor) = match written(query) {
                    Some(factor) => (named(factor), place(factor), factor.clone()),
                    None => {
                        let factor = TableFactor::Derived {
                            lateral: false,
                            subquery: query.clone(),
                            alias: None,
                            sample: None,
                        };
                        let name = format!("arm {}", arms.len() + 1);
                        (name, Position::of_span(query.span()), factor)
                    }
                };
                let plan = context.plan(factor)?;
                arms.push(MixInput {
                    name,
                    position: at,
                    plan,
                    weight,
                });
            }
        }
        let options = context.context_provider().options();
        let plan = mixed(arms, stop, position, options)?;
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(
            plan, alias,
        ))))
    }
}
