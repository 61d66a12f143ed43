//! MIX in the logical plan: an extension node, made in the same way by SQL and by the builder.
//!
//! The arms are brought to the columns of the first one, by name; their types are the same but for how Arrow lays them
//! out, which is made one as UNION ALL does. So nothing that DataFusion does to the plan afterwards needs to know the node.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, DFSchemaRef, DataFusionError, internal_err};
use datafusion::logical_expr::type_coercion::binary::type_union_coercion;
use datafusion::logical_expr::{
    Expr, Extension, LogicalPlan, LogicalPlanBuilder, Union, UserDefinedLogicalNodeCore,
};
use datafusion::optimizer::analyzer::Analyzer;
use datafusion::optimizer::analyzer::type_coercion::TypeCoercion;

use forebay_udfs::tensor::named;
use sqlparser::ast::Ident;

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
/// Weights that are none, an arm without the columns of the first, or with other types.
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

/// Refuses a column whose type is another in another arm. A cast may lose what an arm holds, and which type all get would
/// depend on the other arms; so it is for the author to write.
fn check_types(arms: &[Arm], name: &str) -> Result<(), DataFusionError> {
    let mut typed: Option<(&Arm, &FieldRef)> = None;
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

/// The remedy for two types that have different values.
fn type_difference(name: &str, a: &Field, b: &Field) -> Option<String> {
    if a.extension_type_name() != b.extension_type_name()
        || a.extension_type_metadata() != b.extension_type_metadata()
    {
        return Some("give it the same shape, layout and element type in every arm".to_owned());
    }
    let (a, b) = (a.data_type(), b.data_type());
    if same_values(a, b) {
        return None;
    }
    let Some(common) = type_union_coercion(a, b) else {
        return Some("no type holds the values of both: give one another name".to_owned());
    };
    let column = quoted(name);
    Some(format!(
        "bring both to one type, such as {} AS {column}",
        cast_text(&column, &common)
    ))
}

/// True where two types have the same values: they may differ in the names and nulls of items, and in how Arrow lays out
/// texts, lists and repeated values.
fn same_values(a: &DataType, b: &DataType) -> bool {
    use DataType as T;
    let is_text = |t: &T| matches!(t, T::Utf8 | T::LargeUtf8 | T::Utf8View);
    let is_bytes = |t: &T| matches!(t, T::Binary | T::LargeBinary | T::BinaryView);
    let item = |t: &T| match t {
        T::List(item) | T::LargeList(item) | T::ListView(item) | T::LargeListView(item) => {
            Some(item.data_type().clone())
        }
        _ => None,
    };
    match (a, b) {
        (T::Dictionary(_, a), b) => same_values(a, b),
        (a, T::Dictionary(_, b)) => same_values(a, b),
        (T::RunEndEncoded(_, a), b) => same_values(a.data_type(), b),
        (a, T::RunEndEncoded(_, b)) => same_values(a, b.data_type()),
        (T::FixedSizeList(a, m), T::FixedSizeList(b, n)) => {
            m == n && same_values(a.data_type(), b.data_type())
        }
        (T::Struct(a), T::Struct(b)) => {
            let pairs = a.iter().zip(b);
            let same = |(a, b): (&FieldRef, &FieldRef)| {
                a.name() == b.name() && same_values(a.data_type(), b.data_type())
            };
            a.len() == b.len() && pairs.into_iter().all(same)
        }
        (T::Map(a, _), T::Map(b, _)) => match (a.data_type(), b.data_type()) {
            (T::Struct(a), T::Struct(b)) => {
                let mut pairs = a.iter().zip(b);
                pairs.all(|(a, b)| same_values(a.data_type(), b.data_type()))
            }
            _ => false,
        },
        _ if is_text(a) || is_bytes(a) => is_text(a) && is_text(b) || is_bytes(a) && is_bytes(b),
        _ => match (item(a), item(b)) {
            (Some(a), Some(b)) => same_values(&a, &b),
            _ => a == b,
        },
    }
}

/// A cast in SQL; types that SQL has no words for go by their Arrow names.
fn cast_text(value: &impl fmt::Display, to: &DataType) -> String {
    let word = match to {
        DataType::Boolean => "BOOLEAN",
        DataType::Int8 => "TINYINT",
        DataType::Int16 => "SMALLINT",
        DataType::Int32 => "INT",
        DataType::Int64 => "BIGINT",
        DataType::Float32 => "REAL",
        DataType::Float64 => "DOUBLE",
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "VARCHAR",
        DataType::Date32 => "DATE",
        DataType::Timestamp(TimeUnit::Nanosecond, None) => "TIMESTAMP",
        DataType::Decimal128(digits, scale) => {
            return format!("CAST({value} AS DECIMAL({digits}, {scale}))");
        }
        other => return format!("arrow_cast({value}, '{other}')"),
    };
    format!("CAST({value} AS {word})")
}

/// A name as SQL text has it.
fn quoted(name: &str) -> Ident {
    let mut letters = name.chars();
    let begins = letters
        .next()
        .is_some_and(|c| c.is_ascii_lowercase() || c == '_');
    match begins && letters.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_') {
        true => Ident::new(name),
        false => Ident::with_quote('"', name),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_no_other_types_and_widths_and_zones_are() {
        let list = |item: &str, of: DataType| DataType::List(Arc::new(Field::new(item, of, true)));
        let large = DataType::LargeList(Arc::new(Field::new("element", DataType::Utf8View, false)));
        let words = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::LargeUtf8));
        let time = |zone: Option<&str>| DataType::Timestamp(TimeUnit::Second, zone.map(Into::into));
        let fixed = |size| DataType::new_fixed_size_list(DataType::Int8, size, true);
        for (a, b, same) in [
            (list("item", DataType::Utf8), large, true),
            (
                list("item", DataType::Int8),
                list("item", DataType::Int16),
                false,
            ),
            (words, DataType::Utf8, true),
            (DataType::Utf8, DataType::Binary, false),
            (time(None), time(Some("UTC")), false),
            (
                DataType::Decimal128(5, 2),
                DataType::Decimal128(6, 2),
                false,
            ),
            (fixed(2), fixed(3), false),
            (fixed(2), list("item", DataType::Int8), false),
        ] {
            assert_eq!(same_values(&a, &b), same, "{a}, {b}");
            assert_eq!(same_values(&b, &a), same, "{b}, {a}");
        }
    }
}
