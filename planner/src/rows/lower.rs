//! Lowers DataFusion's analysed logical plan to the row plan.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{
    Column, DFSchema, JoinType, NullEquality, Result, TableReference, not_impl_err, plan_err,
};
use datafusion::logical_expr::utils::split_conjunction_owned;
use datafusion::logical_expr::{
    Expr, Extension, FetchType, Join, LogicalPlan, Operator, SkipType, TableScan, Unnest,
};
use datafusion::sql::utils::UNNEST_PLACEHOLDER;

use super::bind::Streams;
use super::mix_place;
use super::{NamedExpr, RowOp, RowPlan, slot};
use crate::functions::is_repeatable;
use crate::mix::MixNode;

/// Lowers `plan`, which DataFusion has analysed but not optimised.
///
/// # Errors
/// Fails with "not supported yet" on an operator whose output rows have no keys (aggregates,
/// general joins, DISTINCT, window functions, ORDER BY). Also fails on a MIX at a position where a
/// MIX is not allowed.
pub fn lower(plan: &LogicalPlan) -> Result<RowPlan> {
    let lowered = RowLowering::default().plan(plan)?;
    mix_place::check(&lowered)?;
    named_as(lowered, plan.schema())
}

/// Renames the output columns of `plan` to the names in `schema`, the query's output schema.
fn named_as(plan: RowPlan, schema: &DFSchema) -> Result<RowPlan> {
    let mut seen = BTreeSet::new();
    for field in schema.fields() {
        if !seen.insert(field.name()) {
            return plan_err!(
                "two output columns are named \"{}\"; give one another name with AS",
                field.name()
            );
        }
    }
    let same = plan
        .schema
        .fields()
        .iter()
        .zip(schema.fields())
        .all(|(a, b)| a.name() == b.name());
    if same {
        return Ok(plan);
    }
    let exprs = plan
        .schema
        .fields()
        .iter()
        .zip(schema.fields())
        .map(|(from, to)| NamedExpr {
            name: to.name().clone(),
            expr: slot(from.name()),
        });
    let exprs = exprs.collect();
    RowPlan::project(plan, exprs)
}

/// Maximum number of scans of a pipeline. A pipeline that reads another pipeline twice has all
/// scans of that pipeline twice, so thirty such levels would have a billion scans.
pub(crate) const MAX_SCANS: u32 = 1024;

/// Maximum number of operators on a path from the output to a scan. Every rewrite recurses over the
/// plan, and a stack of 2 MiB is enough for only a few hundred levels.
pub(crate) const MAX_DEPTH: usize = 256;

#[derive(Default)]
struct RowLowering {
    occurrences: u32,
    streams: Streams,
    depth: usize,
}

impl RowLowering {
    fn plan(&mut self, plan: &LogicalPlan) -> Result<RowPlan> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return plan_err!(
                "the pipeline is nested more than {MAX_DEPTH} operators deep, counting the pipelines that it \
                 reads: write the rows of one of these pipelines to a file, and read that file"
            );
        }
        let lowered = self.operator(plan);
        self.depth -= 1;
        lowered
    }

    fn operator(&mut self, plan: &LogicalPlan) -> Result<RowPlan> {
        match plan {
            LogicalPlan::TableScan(scan) => self.scan(scan),
            LogicalPlan::SubqueryAlias(alias) => self.plan(&alias.input),
            LogicalPlan::Projection(projection) => {
                let input = self.plan(&projection.input)?;
                let names = unique_names(&projection.schema);
                let mut exprs = Vec::with_capacity(names.len());
                let over = Resolved::of(projection.input.schema(), &input);
                for (name, expr) in names.into_iter().zip(&projection.expr) {
                    let expr = self.expr(expr, &over)?;
                    exprs.push(NamedExpr { name, expr });
                }
                RowPlan::project(input, exprs)
            }
            LogicalPlan::Filter(filter) => {
                let input = self.plan(&filter.input)?;
                let over = Resolved::of(filter.input.schema(), &input);
                let predicate = self.expr(&filter.predicate, &over)?;
                Ok(RowPlan::filter(input, split_conjunction_owned(predicate)))
            }
            LogicalPlan::Union(union) => {
                let mut inputs = Vec::new();
                for input in &union.inputs {
                    let input = self.plan(input)?;
                    // A union directly below this union is merged into this union.
                    match input.op {
                        RowOp::Union => inputs.extend(input.inputs),
                        _ => inputs.push(input),
                    }
                }
                let schema = united(&inputs, &union.schema, "UNION ALL")?;
                Ok(RowPlan {
                    op: RowOp::Union,
                    inputs,
                    schema,
                })
            }
            LogicalPlan::Extension(Extension { node }) => {
                let Some(MixNode { arms, mix, schema }) = node.as_any().downcast_ref() else {
                    return not_impl_err!("{} is not supported yet in a pipeline", node.name());
                };
                let inputs = arms.iter().map(|arm| self.plan(arm));
                let inputs = inputs.collect::<Result<Vec<_>>>()?;
                Ok(RowPlan {
                    op: RowOp::Mix(mix.clone()),
                    schema: united(&inputs, schema, "MIX")?,
                    inputs,
                })
            }
            LogicalPlan::Limit(limit) => {
                let SkipType::Literal(skip) = limit.get_skip_type()? else {
                    return plan_err!("OFFSET must be a constant");
                };
                let FetchType::Literal(fetch) = limit.get_fetch_type()? else {
                    return plan_err!("LIMIT must be a constant");
                };
                let input = self.plan(&limit.input)?;
                let op = RowOp::Limit {
                    skip: skip as u64,
                    fetch: fetch.map(|n| n as u64),
                };
                RowPlan::over(op, vec![input])
            }
            LogicalPlan::Unnest(unnest) => self.unnest(unnest),
            LogicalPlan::Join(join) => self.lookup(join),
            LogicalPlan::EmptyRelation(_) | LogicalPlan::Values(_) => {
                not_impl_err!("a pipeline needs a source: SELECT without FROM is not supported yet")
            }
            other => not_impl_err!(
                "{} is not supported yet in a pipeline: its output rows have no keys. Run the query \
                 once (forebay sql --out rows.parquet), and let the pipeline read that file",
                operator_name(other)
            ),
        }
    }

    fn scan(&mut self, scan: &TableScan) -> Result<RowPlan> {
        // A pipeline that a query reads by name is a view. The view's plan is lowered once per use,
        // so each use has independent random draws.
        if let Some(view) = scan.source.get_logical_plan() {
            return self.plan(&view);
        }
        let occurrence = self.occurrences;
        self.occurrences += 1;
        if self.occurrences > MAX_SCANS {
            return plan_err!(
                "the pipeline reads more than {MAX_SCANS} tables, counting those of the pipelines that it \
                 reads: write the rows of one of these pipelines to a file, and read that file"
            );
        }
        let table = scan.source.schema();
        let projection = scan
            .projection
            .clone()
            .unwrap_or_else(|| (0..table.fields().len()).collect());
        let op = RowOp::Scan {
            occurrence,
            name: scan.table_name.table().to_owned(),
            source: Arc::clone(&scan.source),
            projection,
            prune: Vec::new(),
        };
        RowPlan::over(op, Vec::new())
    }

    fn unnest(&mut self, unnest: &Unnest) -> Result<RowPlan> {
        if !unnest.struct_type_columns.is_empty() {
            return not_impl_err!("unnest of a struct is not supported yet; select its fields");
        }
        if unnest
            .list_type_columns
            .iter()
            .any(|(_, list)| list.depth != 1)
        {
            return not_impl_err!("unnest of more than one level at once is not supported yet");
        }
        let input = self.plan(&unnest.input)?;
        let names = unique_names(&unnest.schema);
        let fields = names
            .iter()
            .zip(unnest.schema.fields())
            .map(|(name, field)| field.as_ref().clone().with_name(name).with_nullable(true));
        let schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let op = RowOp::Unnest {
            columns: unnest.dependency_indices.clone(),
            lists: unnest
                .list_type_columns
                .iter()
                .map(|(index, _)| *index)
                .collect(),
            preserve_nulls: unnest.options.preserve_nulls(),
        };
        Ok(RowPlan {
            op,
            inputs: vec![input],
            schema,
        })
    }

    fn lookup(&mut self, join: &Join) -> Result<RowPlan> {
        let keep_unmatched = match join.join_type {
            JoinType::Inner => false,
            JoinType::Left => true,
            other => {
                return not_impl_err!(
                    "{other} JOIN is not supported yet in a pipeline; many-to-one JOIN and LEFT JOIN are"
                );
            }
        };
        if join.null_equality == NullEquality::NullEqualsNull {
            return not_impl_err!("a join in which NULL equals NULL is not supported yet");
        }
        let left = self.plan(&join.left)?;
        let right = self.plan(&join.right)?;
        let mut pairs = join.on.clone();
        for conjunct in join
            .filter
            .iter()
            .cloned()
            .flat_map(split_conjunction_owned)
        {
            pairs.push(equal_pair(conjunct, join)?);
        }
        if pairs.is_empty() {
            return not_impl_err!(
                "a join without an equality (JOIN .. ON a = b) is not supported yet"
            );
        }
        let mut on = Vec::with_capacity(pairs.len());
        let over_left = Resolved::of(join.left.schema(), &left);
        let over_right = Resolved::of(join.right.schema(), &right);
        for (l, r) in pairs {
            let l = self.expr(&l, &over_left)?;
            on.push((l, self.expr(&r, &over_right)?));
        }
        let op = RowOp::Lookup { on, keep_unmatched };
        Ok(RowPlan::over(op, vec![left, right])?.named(unique_names(&join.schema)))
    }

    /// Replaces the logical columns in `expr` by slots, and binds the random calls in `expr` to
    /// random streams.
    fn expr(&mut self, expr: &Expr, over: &Resolved<'_>) -> Result<Expr> {
        let resolved = expr
            .clone()
            .unalias_nested()
            .data
            .transform_up(|e| match e {
                Expr::Column(column) => {
                    let name = over.slot(&column)?;
                    Ok(Transformed::yes(Expr::Column(Column::new_unqualified(
                        name,
                    ))))
                }
                Expr::ScalarSubquery(_) | Expr::InSubquery(_) | Expr::Exists(_) => {
                    not_impl_err!(
                        "a subquery inside an expression is not supported yet in a pipeline"
                    )
                }
                Expr::ScalarFunction(call) if !is_repeatable(&call.func) => {
                    plan_err!(
                        "{}() is not supported in a pipeline: its value would differ from run to run",
                        call.func.name()
                    )
                }
                Expr::OuterReferenceColumn(..) => {
                    not_impl_err!("a correlated subquery is not supported yet in a pipeline")
                }
                other => Ok(Transformed::no(other)),
            })?;
        self.streams.bind(resolved.data)
    }
}

/// The columns of a logical plan, and the slots of the row plan that hold these columns.
struct Resolved<'a> {
    logical: &'a DFSchema,
    slots: &'a Schema,
    qualified: HashMap<(&'a TableReference, &'a str), usize>,
    /// Index of the first column with each name, whichever table qualifies the column.
    by_name: HashMap<&'a str, usize>,
}

impl<'a> Resolved<'a> {
    fn of(logical: &'a DFSchema, input: &'a RowPlan) -> Self {
        let mut qualified = HashMap::new();
        let mut by_name = HashMap::with_capacity(logical.fields().len());
        for (index, (qualifier, field)) in logical.iter().enumerate() {
            let name = field.name().as_str();
            if let Some(qualifier) = qualifier {
                qualified.entry((qualifier, name)).or_insert(index);
            }
            by_name.entry(name).or_insert(index);
        }
        Self {
            logical,
            slots: &input.schema,
            qualified,
            by_name,
        }
    }

    /// Returns the name of the slot that holds `column`.
    fn slot(&self, column: &Column) -> Result<&'a String> {
        let name = column.name.as_str();
        let found = match &column.relation {
            Some(table) => self.qualified.get(&(table, name)),
            None => self.by_name.get(name),
        };
        let index = match found {
            Some(&index) => index,
            // The two maps lack the column: either its table is qualified in another form, or the
            // column does not exist. DataFusion finds the column or returns an error.
            None => self.logical.index_of_column(column)?,
        };
        Ok(self.slots.field(index).name())
    }
}

/// The output columns of a union or a mix of `inputs`, with the names in `schema`. `what` names the
/// operator in messages.
fn united(inputs: &[RowPlan], schema: &DFSchema, what: &str) -> Result<SchemaRef> {
    let names = unique_names(schema);
    let fields = names.into_iter().enumerate().map(|(i, name)| {
        // The Arrow extension of a column is kept only if the column has the same extension in
        // every input.
        let first = inputs[0].schema.field(i);
        let agree = inputs
            .iter()
            .all(|p| p.schema.field(i).metadata() == first.metadata());
        let field = Field::new(name, schema.field(i).data_type().clone(), true);
        if agree {
            field.with_metadata(first.metadata().clone())
        } else {
            field
        }
    });
    let schema: SchemaRef = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    for input in inputs {
        for (have, want) in input.schema.fields().iter().zip(schema.fields()) {
            if have.data_type() != want.data_type() {
                return plan_err!(
                    "{what}: column \"{}\" has the type {} in one query, but {} in another",
                    want.name(),
                    want.data_type(),
                    have.data_type()
                );
            }
        }
    }
    Ok(schema)
}

/// Splits the join condition `l = r` into an expression over the left input and an expression over
/// the right input.
fn equal_pair(conjunct: Expr, join: &Join) -> Result<(Expr, Expr)> {
    let not_equal = |e: &Expr| -> Result<(Expr, Expr)> {
        not_impl_err!(
            "the join condition {e} is not supported yet; use equalities between a column of the \
             left side and a column of the right side"
        )
    };
    let Expr::BinaryExpr(binary) = &conjunct else {
        return not_equal(&conjunct);
    };
    if binary.op != Operator::Eq {
        return not_equal(&conjunct);
    }
    let within = |e: &Expr, schema: &DFSchema| e.column_refs().iter().all(|c| schema.has_column(c));
    let (l, r) = (binary.left.as_ref(), binary.right.as_ref());
    let (left, right) = (join.left.schema(), join.right.schema());
    if within(l, left) && within(r, right) {
        Ok((l.clone(), r.clone()))
    } else if within(r, left) && within(l, right) {
        Ok((r.clone(), l.clone()))
    } else {
        not_equal(&conjunct)
    }
}

/// Returns a unique slot name for each column of `schema`: the column's name, or `table.column` or
/// a numbered name if an earlier column has that name.
fn unique_names(schema: &DFSchema) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let mut names = Vec::with_capacity(schema.fields().len());
    for (qualifier, field) in schema.iter() {
        let own = slot_name(field.name());
        let mut name = own.to_owned();
        if taken.contains(&name) {
            name = qualifier.map_or(name, |q| format!("{q}.{own}"));
        }
        let mut number = 2;
        while !taken.insert(name.clone()) {
            name = format!("{own}:{number}");
            number += 1;
        }
        names.push(name);
    }
    names
}

/// Returns a readable name for a column whose name DataFusion generated for an unnest; any other
/// name is returned unchanged.
fn slot_name(name: &str) -> &str {
    // Below an unnest, the column with the generated name holds lists. Above the unnest, the name
    // ends with a depth, and the column holds the elements of the lists.
    match name.strip_prefix(UNNEST_PLACEHOLDER) {
        Some(rest) if rest.ends_with(",depth=1)") => "element",
        Some(_) => "list",
        None => name,
    }
}

fn operator_name(plan: &LogicalPlan) -> &'static str {
    match plan {
        LogicalPlan::Aggregate(_) => "GROUP BY or an aggregate",
        LogicalPlan::Sort(_) => "ORDER BY",
        LogicalPlan::Distinct(_) => "DISTINCT",
        LogicalPlan::Window(_) => "a window function",
        LogicalPlan::RecursiveQuery(_) => "WITH RECURSIVE",
        LogicalPlan::Subquery(_) => "a subquery of this kind",
        _ => "this operator",
    }
}
