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

/// Lowers an analysed, unoptimised plan.
///
/// # Errors
/// Fails with "not supported yet" on operators whose output has no row keys (aggregates, general
/// joins, DISTINCT, window functions, ORDER BY), and on a MIX in the wrong place.
pub fn lower(plan: &LogicalPlan) -> Result<RowPlan> {
    let lowered = RowLowering::default().plan(plan)?;
    mix_place::check(&lowered)?;
    named_as(lowered, plan.schema())
}

/// Renames the output columns to those of the query's own schema.
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

/// Maximum number of scans of a pipeline; more are refused. A pipeline that reads another pipeline
/// twice duplicates the scans of that pipeline, so thirty such levels would have a billion scans.
const MAX_SCANS: u32 = 1024;

/// Maximum number of operators on a path from the output to a scan; a deeper plan is refused. Every
/// rewrite recurses over the plan, and 2 MiB of stack hold some hundred levels.
const MAX_DEPTH: usize = 256;

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
                "the pipeline is nested more than {MAX_DEPTH} operators deep, with all pipelines that it reads: \
                 write what one of them makes to a file, and read that"
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
                    // Nested unions are flattened.
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
                "{} is not supported yet in a pipeline: its rows have no keys of their own. Run it \
                 once (forebay sql --out rows.parquet), and read the pipeline from what it wrote",
                operator_name(other)
            ),
        }
    }

    fn scan(&mut self, scan: &TableScan) -> Result<RowPlan> {
        // A pipeline after FROM is a view. Its plan is lowered once per use, so each use draws
        // independently.
        if let Some(view) = scan.source.get_logical_plan() {
            return self.plan(&view);
        }
        let occurrence = self.occurrences;
        self.occurrences += 1;
        if self.occurrences > MAX_SCANS {
            return plan_err!(
                "the pipeline reads more than {MAX_SCANS} tables, with all pipelines that it reads: write \
                 what one of them makes to a file, and read that"
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
            return not_impl_err!("a join in which nulls match is not supported yet");
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

    /// Rewrites `expr` from logical columns to slots, and binds its random calls.
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
                    plan_err!("{}() would not be the same every time", call.func.name())
                }
                Expr::OuterReferenceColumn(..) => {
                    not_impl_err!("a correlated subquery is not supported yet in a pipeline")
                }
                other => Ok(Transformed::no(other)),
            })?;
        self.streams.bind(resolved.data)
    }
}

/// The columns of a logical plan, and their slots.
struct Resolved<'a> {
    logical: &'a DFSchema,
    slots: &'a Schema,
    qualified: HashMap<(&'a TableReference, &'a str), usize>,
    /// Indices of the columns by name, regardless of the table that qualifies the column.
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

    /// Returns the slot of a column.
    fn slot(&self, column: &Column) -> Result<&'a String> {
        let name = column.name.as_str();
        let found = match &column.relation {
            Some(table) => self.qualified.get(&(table, name)),
            None => self.by_name.get(name),
        };
        let index = match found {
            Some(&index) => index,
            // The name has another form, or does not exist.
            None => self.logical.index_of_column(column)?,
        };
        Ok(self.slots.field(index).name())
    }
}

/// The columns of a union or a mix of these inputs.
fn united(inputs: &[RowPlan], schema: &DFSchema, what: &str) -> Result<SchemaRef> {
    let names = unique_names(schema);
    let fields = names.into_iter().enumerate().map(|(i, name)| {
        // An extension type survives only if every input has it.
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
                    "{what}: column \"{}\" is {} in one query and {} in another",
                    want.name(),
                    want.data_type(),
                    have.data_type()
                );
            }
        }
    }
    Ok(schema)
}

/// Splits `l = r` into the expressions over the left and the right input.
fn equal_pair(conjunct: Expr, join: &Join) -> Result<(Expr, Expr)> {
    let not_equal = |e: &Expr| -> Result<(Expr, Expr)> {
        not_impl_err!(
            "the join condition {e} is not supported yet; only equalities of both sides are"
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

/// Names slots after the columns of a logical schema, qualified or numbered if two columns share a
/// name.
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

/// Returns a readable name for a column that DataFusion generated.
fn slot_name(name: &str) -> &str {
    // Below an unnest, the generated column holds lists. Above the unnest, the name has a depth,
    // and the column holds the elements of the lists.
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
