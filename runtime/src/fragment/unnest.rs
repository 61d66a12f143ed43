//! Unnest: one row per list element.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, ListArray, UInt32Array, UInt64Array};
use arrow::compute::{cast, take};
use arrow::datatypes::DataType;
use datafusion::common::{Result, exec_err};
use forebay_udfs::hash::combine;
use forebay_udfs::row::RowColumn;

use super::exec::{RowOperator, only};
use super::row_batch::{RowBatch, RowErrors, SlotError};

/// Operator that emits one row (a child) per list element. The key of a child is the key of its
/// parent row and the index of the list element.
#[derive(Debug)]
pub struct Unnest {
    /// Index of the input column from which each output column is computed.
    pub columns: Vec<usize>,
    /// Indices of the input columns whose lists are expanded.
    pub lists: BTreeSet<usize>,
    /// True if a row with an empty or null list gives one row, with null as the element.
    pub preserve_nulls: bool,
    /// True if the input rows are already children of another `unnest`.
    pub nested: bool,
}

impl RowOperator for Unnest {
    fn name(&self) -> &'static str {
        "UnnestExec"
    }

    fn apply(&self, inputs: Vec<RowBatch>) -> Result<RowBatch> {
        let batch = only(inputs)?;
        let lists = self.lists.iter();
        let lists = lists.map(|&column| Ok((column, as_list(&batch.columns[column])?)));
        let lists = lists.collect::<Result<Vec<_>>>()?;
        let in_error = |row: usize| {
            let list = |e: &SlotError| e.column.is_some_and(|c| self.lists.contains(&c));
            let row_errors = batch.errors.get(&row);
            row_errors.is_some_and(|errors| errors.iter().any(list))
        };
        let (mut parents, mut children, mut errors) = (Vec::new(), Vec::new(), RowErrors::new());
        for row in 0..batch.len() {
            let lengths = lists.iter().map(|(_, list)| length(list, row));
            let longest = lengths.max().unwrap_or(0);
            // A row whose list has an error gives one child, which carries the error.
            let kept = self.preserve_nulls || in_error(row);
            for child in 0..longest.max(usize::from(kept)) {
                if let Some(row_errors) = batch.errors.get(&row) {
                    errors.insert(parents.len(), self.errors_of_child(row_errors));
                }
                parents.push(row as u64);
                children.push(child as u32);
            }
        }
        let parents = UInt64Array::from(parents);
        let columns = self.columns.iter().map(|from| {
            let Some((_, list)) = lists.iter().find(|(column, _)| column == from) else {
                return Ok(take(&batch.columns[*from], &parents, None)?);
            };
            let places = parents.values().iter().zip(&children);
            let elements = places.map(|(&row, &child)| {
                let (row, child) = (row as usize, child as usize);
                let start = list.value_offsets()[row] as usize;
                (child < length(list, row)).then_some((start + child) as u64)
            });
            Ok(take(
                list.values(),
                &elements.collect::<UInt64Array>(),
                None,
            )?)
        });
        let columns = columns.collect::<Result<Vec<ArrayRef>>>()?;
        let mut ids = RowColumn::try_from_array(&take(&batch.rows, &parents, None)?)?;
        if self.nested {
            let keys = ids.hash.values().iter().zip(ids.child.values());
            ids.hash = keys
                .map(|(&hash, &child)| combine(hash, u64::from(child)))
                .collect();
        }
        ids.child = UInt32Array::from(children);
        Ok(RowBatch {
            columns,
            rows: ids.to_array()?,
            errors,
        })
    }
}

impl Unnest {
    fn errors_of_child(&self, of_parent: &[SlotError]) -> Vec<SlotError> {
        let mut errors = Vec::new();
        for error in of_parent {
            let Some(column) = error.column else {
                errors.push(error.clone());
                continue;
            };
            let outputs = self.columns.iter().enumerate();
            let outputs = outputs.filter(|(_, from)| **from == column);
            errors.extend(outputs.map(|(to, _)| SlotError {
                column: Some(to),
                ..error.clone()
            }));
        }
        errors
    }
}

fn length(list: &ListArray, row: usize) -> usize {
    if list.is_null(row) {
        0
    } else {
        list.value_length(row) as usize
    }
}

fn as_list(array: &ArrayRef) -> Result<ListArray> {
    let item = match array.data_type() {
        DataType::List(_) => return Ok(array.as_list::<i32>().clone()),
        DataType::LargeList(item) | DataType::FixedSizeList(item, _) => Arc::clone(item),
        other => return exec_err!("unnest: expected a list, found {other}"),
    };
    let list = cast(array, &DataType::List(item))?;
    Ok(list.as_list::<i32>().clone())
}
