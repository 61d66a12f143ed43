//! MIX in the logical plan: an extension node, made in the same way by SQL and by the builder.
//!
//! The arms are brought to the columns of the first one, by name, and to common types, as UNION ALL does;
//! so nothing that DataFusion does to the plan afterwards needs to know the node.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, DFSchemaRef, DataFusionError, internal_err};
use datafusion::logical_expr::type_coercion::binary::type_union_coercion;
use datafusion::logical_expr::{
    Expr, Extension, LogicalPlan, LogicalPlanBuilder, Union, UserDefinedLogicalNodeCore,
};
use datafusion::optimizer::analyzer::Analyzer;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercion;

use crate::error::{PlanError, Position};
use crate::rows::lower::lower;
use crate::rows::mix::{Mix, MixStop, is_weight};
use crate::sql::{duplicate, own};

/// The rows of several plans, mixed by weight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MixNode {
    /// The plans, of the same columns.
    pub arms: Vec<LogicalPlan>,
    /// How they are mixed.
    pub mix: Mix,
    /// The columns, which no table qualifies.
    pub schema: DFSchemaRef,
}

/// A plan to be mixed.
pub(crate) struct Arm {
    /// What errors call it.
    pub(crate) name: String,
    /// Where it is written, if it came from text.
    pub(crate) position: Option<Position>,
    /// Its rows.
    pub(crate) plan: LogicalPlan,
    /// How often it is drawn, beside the others.
    pub(crate) weight: f64,
}

/// The plan of a MIX that is written at `position`. Mistakes are [`PlanError`]s within the error.
///
/// # Errors
/// Weights that are none, an arm without the columns of the first, types that have none in common.
pub(crate) fn mixed(
    arms: Vec<Arm>,
    stop: MixStop,
    position: Option<Position>,
    options: &ConfigOptions,
) -> Result<LogicalPlan, DataFusionError> {
    for arm in &arms {
        check_columns(&arms[0], arm)?;
        if !is_weight(arm.weight) {
            let message = format!("WEIGHT expects a number above 0, found {}", arm.weight);
            return Err(PlanError::at(arm.position, message).into());
        }
    }
    let weights: Vec<f64> = arms.iter().map(|arm| arm.weight).collect();
    let mix = Mix::new(&weights, stop).map_err(|error| match position {
        Some(position) => error.or_at(position),
        None => error,
    })?;
    let names: Vec<String> = names(&arms[0].plan).map(str::to_owned).collect();
    for name in &names {
        check_types(&arms, name)?;
    }
    let plans = arms
        .into_iter()
        .map(|arm| Ok(Arc::new(ordered(arm.plan, &names)?)));
    let plans = plans.collect::<Result<Vec<_>, DataFusionError>>()?;
    let (arms, schema) = match plans.as_slice() {
        [only] => (vec![only.as_ref().clone()], Arc::clone(only.schema())),
        _ => {
            let union = LogicalPlan::Union(Union::try_new_with_loose_types(plans)?);
            let analyzer = Analyzer::with_rules(vec![Arc::new(TypeCoercion::new())]);
            let LogicalPlan::Union(union) =
                analyzer.execute_and_check(union, options, |_, _| {})?
            else {
                return internal_err!("a union that is none when its types are coerced");
            };
            let arms = union.inputs.into_iter().map(Arc::unwrap_or_clone);
            (arms.collect(), union.schema)
        }
    };
    let fields = schema
        .fields()
        .iter()
        .map(|field| (None, Arc::clone(field)));
    let schema = DFSchema::new_with_metadata(fields.collect(), schema.metadata().clone())?;
    Ok(LogicalPlan::Extension(Extension {
        node: Arc::new(MixNode {
            arms,
            mix,
            schema: Arc::new(schema),
        }),
    }))
}

fn names(plan: &LogicalPlan) -> impl Iterator<Item = &str> {
    plan.schema()
        .fields()
        .iter()
        .map(|field| field.name().as_str())
}

fn check_columns(first: &Arm, arm: &Arm) -> Result<(), PlanError> {
    if let Some((name, _)) = duplicate(arm.plan.schema()) {
        let message = format!("MIX: two columns of {} are named \"{name}\"", arm.name);
        return Err(PlanError::at(arm.position, message).with_hint("give one another name with AS"));
    }
    let lacking = |of: &Arm, name: &str| !names(&of.plan).any(|other| other == name);
    let hint = "the arms of a MIX have the same columns; choose them with (SELECT ..)";
    let message = if let Some(name) = names(&first.plan).find(|name| lacking(arm, name)) {
        format!(
            "MIX: {} has no column \"{name}\", which {} has",
            arm.name, first.name
        )
    } else if let Some(name) = names(&arm.plan).find(|name| lacking(first, name)) {
        format!(
            "MIX: {} has the column \"{name}\", which {} does not have",
            arm.name, first.name
        )
    } else {
        return Ok(());
    };
    Err(PlanError::at(arm.position, message).with_hint(hint))
}

/// Refuses a column whose types in the arms have none in common.
fn check_types(arms: &[Arm], name: &str) -> Result<(), DataFusionError> {
    let mut common: Option<DataType> = None;
    for arm in arms {
        let field = arm.plan.schema().field_with_unqualified_name(name)?;
        let found = field.data_type();
        common = match common {
            None => Some(found.clone()),
            Some(common) => match type_union_coercion(&common, found) {
                Some(common) => Some(common),
                None => {
                    let message = format!(
                        "MIX: column \"{name}\" of {} is {found}, which has no type in common with {common}",
                        arm.name
                    );
                    return Err(PlanError::at(arm.position, message).into());
                }
            },
        };
    }
    Ok(())
}

/// The plan with its columns in this order.
fn ordered(plan: LogicalPlan, order: &[String]) -> Result<LogicalPlan, DataFusionError> {
    if names(&plan).eq(order.iter().map(String::as_str)) {
        return Ok(plan);
    }
    let columns = order.iter().map(|name| {
        let field = plan.schema().qualified_field_with_unqualified_name(name)?;
        Ok(Expr::Column(Column::from(field)))
    });
    let columns = columns.collect::<Result<Vec<_>, DataFusionError>>()?;
    LogicalPlanBuilder::from(plan).project(columns)?.build()
}

/// Refuses a plan with a MIX where there cannot be one; whatever else is wrong with it is found when it is
/// compiled.
///
/// # Errors
/// The mistake, without a place.
pub(crate) fn check(plan: &LogicalPlan) -> Result<(), PlanError> {
    if !has_mix(plan).unwrap_or(true) {
        return Ok(());
    }
    match lower(plan) {
        Ok(_) => Ok(()),
        Err(error) => match own(&error) {
            Some(mistake) => Err(PlanError::Mistake(Box::new(mistake.clone()))),
            None => Ok(()),
        },
    }
}

fn has_mix(plan: &LogicalPlan) -> Result<bool, DataFusionError> {
    let mut found = false;
    plan.apply(|node| {
        found |= match node {
            LogicalPlan::Extension(Extension { node }) => node.as_any().is::<MixNode>(),
            LogicalPlan::TableScan(scan) => match scan.source.get_logical_plan() {
                Some(view) => has_mix(&view)?,
                None => false,
            },
            _ => false,
        };
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

impl Hash for MixNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.arms, &self.mix).hash(state);
    }
}

impl PartialOrd for MixNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match self.mix.cmp(&other.mix) {
            Ordering::Equal => self.arms.partial_cmp(&other.arms),
            unequal => Some(unequal),
        }
    }
}

impl UserDefinedLogicalNodeCore for MixNode {
    fn name(&self) -> &'static str {
        "Mix"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        self.arms.iter().collect()
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mix: {}", self.mix)
    }

    fn with_exprs_and_inputs(
        &self,
        _exprs: Vec<Expr>,
        inputs: Vec<LogicalPlan>,
    ) -> Result<Self, DataFusionError> {
        let width = self.schema.fields().len();
        let fits = inputs
            .iter()
            .all(|arm| arm.schema().fields().len() == width);
        if inputs.len() != self.arms.len() || !fits {
            return internal_err!("other arms of a MIX");
        }
        Ok(Self {
            arms: inputs,
            mix: self.mix.clone(),
            schema: Arc::clone(&self.schema),
        })
    }
}
