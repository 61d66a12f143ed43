//! The extension node of MIX.
//!
//! The columns of every arm are brought into the order of the first arm's columns, by name. The
//! types of a column in two arms may differ only in Arrow's layout (such as Utf8 and LargeUtf8),
//! and are coerced to one layout as in a UNION ALL. DataFusion's later rules therefore need no
//! knowledge of the node.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::FieldRef;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{Column, DFSchema, DFSchemaRef, DataFusionError, internal_err};
use datafusion::logical_expr::{
    Expr, Extension, LogicalPlan, LogicalPlanBuilder, Union, UserDefinedLogicalNodeCore,
};
use datafusion::optimizer::analyzer::Analyzer;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercion;

use forebay_udfs::tensor::named;

use super::types::type_difference;
use crate::error::{PlanError, Position};
use crate::output::duplicate;
use crate::rows::mix::{Mix, MixStop, is_weight};

/// The rows of several plans, mixed by weight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MixNode {
    /// The plans of the arms, which have the same columns.
    pub arms: Vec<LogicalPlan>,
    /// The weights and the stop condition.
    pub mix: Mix,
    /// The columns of the mixed rows, unqualified.
    pub schema: DFSchemaRef,
}

/// An arm of a MIX.
pub(crate) struct MixInput {
    /// The arm's name in error messages.
    pub(crate) name: String,
    /// The arm's position, if it came from text.
    pub(crate) position: Option<Position>,
    /// The plan of the arm's rows.
    pub(crate) plan: LogicalPlan,
    /// The arm's weight relative to the weights of the other arms.
    pub(crate) weight: f64,
}

/// Plans a MIX that is written at `position`. An error caused by the author is a [`PlanError`]
/// inside the DataFusion error.
///
/// # Errors
/// Fails if a weight is invalid, or an arm has other columns or types than the first arm.
pub(crate) fn mixed(
    arms: Vec<MixInput>,
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
                return internal_err!("coercing the types of a union returned another operator");
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

fn check_columns(first: &MixInput, arm: &MixInput) -> Result<(), PlanError> {
    if let Some((name, _)) = duplicate(arm.plan.schema()) {
        let message = format!("MIX: two columns of {} are named \"{name}\"", arm.name);
        return Err(
            PlanError::at(arm.position, message).with_hint("give one of them another name with AS")
        );
    }
    let lacking = |of: &MixInput, name: &str| !names(&of.plan).any(|other| other == name);
    let hint = "all arms of a MIX need the same columns; choose them with (SELECT ..)";
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

/// Refuses a column whose type differs between arms. A cast may lose values, and the common type
/// would depend on the other arms, so the author must write the cast.
fn check_types(arms: &[MixInput], name: &str) -> Result<(), DataFusionError> {
    let mut typed: Option<(&MixInput, &FieldRef)> = None;
    for arm in arms {
        let field = arm.plan.schema().field_with_unqualified_name(name)?;
        match typed {
            _ if field.data_type().is_null() => {}
            None => typed = Some((arm, field)),
            Some((first, of_first)) => {
                if let Some(hint) = type_difference(name, of_first, field) {
                    let message = format!(
                        "MIX: column \"{name}\" is {} in {} and {} in {}",
                        named(of_first),
                        first.name,
                        named(field),
                        arm.name
                    );
                    return Err(PlanError::at(arm.position, message).with_hint(hint).into());
                }
            }
        }
    }
    Ok(())
}

/// Selects the columns of `plan` in the order of the names in `order`.
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
            return internal_err!(
                "the new inputs of a MIX differ from its arms in number or columns"
            );
        }
        Ok(Self {
            arms: inputs,
            mix: self.mix.clone(),
            schema: Arc::clone(&self.schema),
        })
    }
}
