//! Checks of a query's output columns.

use std::collections::BTreeSet;

use datafusion::common::DFSchema;

use crate::error::{PlanError, Position, Result};

/// Returns a name that a schema has more than once, and the index of the second column with this
/// name. `None` if all names differ.
pub(crate) fn duplicate(schema: &DFSchema) -> Option<(String, usize)> {
    let mut seen = BTreeSet::new();
    schema
        .fields()
        .iter()
        .enumerate()
        .find(|(_, field)| !seen.insert(field.name()))
        .map(|(at, field)| (field.name().clone(), at))
}

pub(crate) fn two_columns(name: &str, position: Option<Position>) -> PlanError {
    PlanError::at(position, format!("two columns are named \"{name}\""))
        .with_hint("give one of them another name with AS")
}

/// Refuses to batch tensors whose shape may differ between rows.
pub(crate) fn check_batch(schema: &DFSchema, position: Option<Position>) -> Result<()> {
    let variable = schema
        .fields()
        .iter()
        .find(|field| field.extension_type_name() == Some("arrow.variable_shape_tensor"));
    match variable {
        None => Ok(()),
        Some(field) => Err(PlanError::at(
            position,
            format!(
                "BATCH needs rows of one shape, but the shape of \"{}\" varies",
                field.name()
            ),
        )
        .with_hint("bring it to a fixed size with resize, center_crop or random_resized_crop")),
    }
}
