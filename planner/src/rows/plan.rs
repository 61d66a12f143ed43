//! The type of row plans: trees of row operators.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::Result;
use datafusion::logical_expr::Expr;
use forebay_udfs::DeclaredFunction;
use forebay_udfs::image::decodes_regions;

use super::expr::slot;
use super::mix::Mix;
use super::op::{NamedExpr, RowOp};

/// A plan: its topmost operator with the operator's inputs and output columns.
#[derive(Clone)]
pub struct RowPlan {
    /// The topmost operator of the plan.
    pub op: RowOp,
    /// The operator's inputs, in the order of the query: for a lookup, the left input and then the
    /// right.
    pub inputs: Vec<Self>,
    /// The output columns, each with a unique name, without the hidden row column.
    pub schema: SchemaRef,
}

impl RowPlan {
    /// Applies the operator `op` to `inputs`. If `op` is a filter and the topmost operator of its
    /// input is a filter, the two become one filter.
    ///
    /// # Errors
    /// Fails if an expression of `op` has no type over the input's columns, or if `inputs` has too
    /// few plans or plans of the wrong types for `op`.
    pub fn over(op: RowOp, mut inputs: Vec<Self>) -> Result<Self> {
        if let (RowOp::Filter { conjuncts }, [input]) = (&op, inputs.as_mut_slice())
            && let RowOp::Filter { conjuncts: below } = &mut input.op
        {
            below.extend_from_slice(conjuncts);
            return Ok(inputs.swap_remove(0));
        }
        let schemas: Vec<&SchemaRef> = inputs.iter().map(|input| &input.schema).collect();
        let schema = op.output_schema(&schemas)?;
        Ok(Self { op, inputs, schema })
    }

    /// Applies a projection to `input`, with one output column per expression in `exprs`.
    pub fn project(input: Self, exprs: Vec<NamedExpr>) -> Result<Self> {
        Self::over(RowOp::Project { exprs }, vec![input])
    }

    /// Applies a filter with these conjuncts to `input`. If the topmost operator of `input` is a
    /// filter, the conjuncts are added to that filter.
    pub fn filter(mut input: Self, conjuncts: Vec<Expr>) -> Self {
        if conjuncts.is_empty() {
            return input;
        }
        if let RowOp::Filter { conjuncts: below } = &mut input.op {
            below.extend(conjuncts);
            return input;
        }
        let schema = Arc::clone(&input.schema);
        Self {
            op: RowOp::Filter { conjuncts },
            inputs: vec![input],
            schema,
        }
    }

    /// Renames the output columns, in order, to `names`.
    #[must_use]
    pub(crate) fn named(mut self, names: impl IntoIterator<Item = String>) -> Self {
        let fields = self.schema.fields().iter().zip(names);
        let fields = fields.map(|(field, name)| field.as_ref().clone().with_name(name));
        self.schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        self
    }

    /// The names of the output columns.
    pub fn names(&self) -> Vec<String> {
        let fields = self.schema.fields().iter();
        fields.map(|f| f.name().clone()).collect()
    }

    /// Adds a projection to exactly the columns `wanted`, in this order, unless these already are
    /// the plan's output columns.
    pub fn exactly(self, wanted: &[String]) -> Result<Self> {
        if self.schema.fields().iter().map(|f| f.name()).eq(wanted) {
            return Ok(self);
        }
        let exprs = wanted.iter().map(|name| NamedExpr {
            name: name.clone(),
            expr: slot(name),
        });
        Self::project(self, exprs.collect())
    }

    /// The scans of the plan, in ascending order of `occurrence`.
    pub fn scans(&self) -> Vec<&Self> {
        let mut scans = Vec::new();
        self.visit(&mut |node| {
            if matches!(node.op, RowOp::Scan { .. }) {
                scans.push(node);
            }
        });
        scans
    }

    /// Calls `f` on each node of the plan. `f` sees the inputs of a node before the node.
    pub fn visit<'a>(&'a self, f: &mut impl FnMut(&'a Self)) {
        for input in &self.inputs {
            input.visit(f);
        }
        f(self);
    }

    /// Replaces each node `n` of the plan by `f(n)`. The inputs of a node are replaced before the
    /// node.
    pub fn rewrite(mut self, f: &mut impl FnMut(Self) -> Result<Self>) -> Result<Self> {
        let inputs = std::mem::take(&mut self.inputs);
        self.inputs = inputs
            .into_iter()
            .map(|i| i.rewrite(f))
            .collect::<Result<_>>()?;
        f(self)
    }

    /// The weights of the plan's MIX; `None` if the plan has no MIX.
    pub fn mix(&self) -> Option<&Mix> {
        match &self.mixed()?.op {
            RowOp::Mix(mix) => Some(mix),
            _ => None,
        }
    }

    /// The arms of the plan's MIX; `None` if the plan has no MIX.
    pub fn arms(&self) -> Option<&[Self]> {
        self.mixed().map(|node| node.inputs.as_slice())
    }

    /// The node of the plan's MIX; `None` if the plan has no MIX. A plan has at most one MIX, and
    /// never on the right side of a lookup (a JOIN).
    pub fn mixed(&self) -> Option<&Self> {
        let mut found = None;
        visit_stream(self, &mut |node| {
            if matches!(node.op, RowOp::Mix(_)) {
                found = Some(node);
            }
        });
        found
    }

    /// Removes the markers of PINNED expressions, which only the optimiser needs.
    pub fn without_pins(self) -> Result<Self> {
        self.rewrite(&mut |mut node| {
            let plain = |expr| Ok(forebay_udfs::without_pins(expr)?.data);
            node.op = node.op.map_exprs(&mut { plain })?;
            Ok(node)
        })
    }

    /// The functions of the host program that the plan calls, one for each call. Functions of Forebay
    /// and DataFusion are left out.
    pub fn host_calls(&self) -> Vec<Arc<dyn DeclaredFunction>> {
        let mut calls: Vec<_> = self.inputs.iter().flat_map(Self::host_calls).collect();
        calls.extend(
            self.op
                .exprs()
                .into_iter()
                .flat_map(forebay_udfs::declared_functions),
        );
        calls
    }

    /// True if each epoch decodes regions of JPEG files, so that [seek
    /// indexes](forebay_udfs::seek_index_store) are of use. Below a cache point, few epochs decode.
    pub fn decodes_regions(&self) -> bool {
        let decodes = || self.op.exprs().into_iter().any(decodes_regions);
        !matches!(self.op, RowOp::Cache)
            && (decodes() || self.inputs.iter().any(Self::decodes_regions))
    }

    fn fmt_tree(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        writeln!(f, "{:indent$}{}", "", self.op, indent = depth * 2)?;
        self.inputs
            .iter()
            .try_for_each(|input| input.fmt_tree(f, depth + 1))
    }
}

impl fmt::Display for RowPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_tree(f, 0)
    }
}

impl fmt::Debug for RowPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_tree(f, 0)
    }
}

/// Calls `f` on each node of `plan` that is not on the right side of a lookup. The rows of these
/// nodes become output rows.
pub fn visit_stream<'a>(plan: &'a RowPlan, f: &mut impl FnMut(&'a RowPlan)) {
    let streamed = plan.op.streamed_inputs(plan.inputs.len());
    for input in &plan.inputs[..streamed] {
        visit_stream(input, f);
    }
    f(plan);
}
