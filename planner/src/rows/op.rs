//! Row operators: their expressions, inputs and output columns.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use datafusion::common::{Result, internal_err};
use datafusion::logical_expr::{Expr, TableSource};

use super::columns::ColumnIndex;
use super::expr::{human, reads};
use super::mix::Mix;

/// An output column of a projection: its name and its expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedExpr {
    /// The name of the output slot.
    pub name: String,
    /// The expression that computes the output, over the input's slots and the hidden row column.
    pub expr: Expr,
}

/// A row operator.
#[derive(Clone)]
pub enum RowOp {
    /// Reads the stored rows of a table.
    Scan {
        /// Number of the scan in the plan, which is part of the key of each row that the scan
        /// reads.
        occurrence: u32,
        /// The table's name, for display.
        name: String,
        /// The table that is scanned.
        source: Arc<dyn TableSource>,
        /// The columns to read, as indices into the table's schema.
        projection: Vec<usize>,
        /// Conjuncts of the filter directly above the scan. The reader may skip rows for which a
        /// conjunct is not true.
        prune: Vec<Expr>,
    },
    /// Keeps the rows for which every conjunct is true.
    Filter {
        /// The conjuncts, in written order.
        conjuncts: Vec<Expr>,
    },
    /// Computes each output column by an expression over the input's columns.
    Project {
        /// The name and the expression of each output column, in order.
        exprs: Vec<NamedExpr>,
    },
    /// Concatenates the inputs: all rows of the first input, then all rows of the second, and so
    /// on.
    Union,
    /// Mixes the rows of its inputs, the arms. For each position in the epoch's order, an arm is
    /// drawn by weight, and the arm's next row takes this position.
    ///
    /// Arms are drawn before any operator above the MIX is applied. So a filter above the MIX must
    /// never be moved into the arms, not even as a hint to a scan: with fewer rows in one arm, the
    /// rows of all other arms would have other positions.
    Mix(Mix),
    /// Keeps rows `skip .. skip + fetch` in stored order (`LIMIT` and `OFFSET`).
    Limit {
        /// Number of rows dropped at the start of the stored order.
        skip: u64,
        /// Maximum number of rows kept; `None` to keep all rows after `skip`.
        fetch: Option<u64>,
    },
    /// Yields one row per element of a list, and repeats the values of the other columns.
    Unnest {
        /// For each output column, the index of the input column whose values are repeated or
        /// expanded.
        columns: Vec<usize>,
        /// Indices of the input columns whose lists are expanded. If a row has several such lists,
        /// element `i` of each list goes to output row `i`, and shorter lists are padded with null.
        lists: BTreeSet<usize>,
        /// True if an empty or null list yields one row, whose element is null.
        preserve_nulls: bool,
    },
    /// Joins each row of the first input with the one matching row of the second input, and yields
    /// the columns of both.
    Lookup {
        /// The join condition: pairs of an expression over the first input and an expression over
        /// the second input, which must be equal.
        on: Vec<(Expr, Expr)>,
        /// True if a row of the first input without a match is kept, with nulls for the second
        /// input's columns (`LEFT JOIN`).
        keep_unmatched: bool,
    },
    /// Caches the rows of the input, so that later epochs do not compute these rows again.
    Cache,
}

impl RowOp {
    /// Returns the operator's expressions.
    pub fn exprs(&self) -> Vec<&Expr> {
        match self {
            Self::Filter { conjuncts } => conjuncts.iter().collect(),
            Self::Project { exprs } => exprs.iter().map(|e| &e.expr).collect(),
            Self::Lookup { on, .. } => on.iter().flat_map(|(l, r)| [l, r]).collect(),
            _ => Vec::new(),
        }
    }

    /// Replaces each expression `e` of the operator by `f(e)`.
    ///
    /// # Errors
    /// Returns the first error of `f`.
    pub fn map_exprs(mut self, f: &mut impl FnMut(Expr) -> Result<Expr>) -> Result<Self> {
        let exprs: Vec<&mut Expr> = match &mut self {
            Self::Filter { conjuncts } => conjuncts.iter_mut().collect(),
            Self::Project { exprs } => exprs.iter_mut().map(|e| &mut e.expr).collect(),
            Self::Lookup { on, .. } => on.iter_mut().flat_map(|(l, r)| [l, r]).collect(),
            _ => Vec::new(),
        };
        for expr in exprs {
            *expr = f(std::mem::take(expr))?;
        }
        Ok(self)
    }

    /// True if each row of an input yields exactly one output row.
    pub fn is_one_to_one(&self) -> bool {
        match self {
            Self::Scan { .. } | Self::Project { .. } | Self::Union | Self::Mix(_) | Self::Cache => {
                true
            }
            Self::Lookup { keep_unmatched, .. } => *keep_unmatched,
            Self::Filter { .. } | Self::Limit { .. } | Self::Unnest { .. } => false,
        }
    }

    /// True if a row of an input may yield several output rows.
    pub fn multiplies(&self) -> bool {
        matches!(self, Self::Unnest { .. })
    }

    /// The number of inputs whose rows become output rows: all `inputs`, except the right side of a
    /// lookup.
    pub fn streamed_inputs(&self, inputs: usize) -> usize {
        match self {
            Self::Lookup { .. } => inputs.min(1),
            _ => inputs,
        }
    }

    /// Derives the output columns from the columns of the inputs. The output columns of a lookup or
    /// an unnest have the same names as in its inputs.
    ///
    /// # Errors
    /// Fails if an expression has no type over the input's columns, or if the operator needs more
    /// inputs or inputs of other types.
    pub fn output_schema(&self, inputs: &[&SchemaRef]) -> Result<SchemaRef> {
        let input = || match inputs.first() {
            Some(&schema) => Ok(schema),
            None => internal_err!("{self} without an input"),
        };
        let fields: Vec<FieldRef> = match self {
            Self::Scan {
                source, projection, ..
            } => return Ok(Arc::new(source.schema().project(projection)?)),
            Self::Filter { .. } | Self::Limit { .. } | Self::Cache => {
                return Ok(Arc::clone(input()?));
            }
            Self::Project { exprs } => {
                let columns = ColumnIndex::of(input()?);
                let fields = exprs.iter().map(|named| named.field(&columns));
                fields.collect::<Result<_>>()?
            }
            Self::Union | Self::Mix(_) => {
                let fields = input()?.fields().iter().enumerate();
                let fields = fields.map(|(index, first)| united(inputs, index, first));
                fields.collect()
            }
            Self::Unnest { columns, lists, .. } => {
                let input = input()?;
                let fields = columns.iter().map(|from| {
                    let field = input.field(*from);
                    let name = field.name().clone();
                    let held = match field.data_type() {
                        _ if !lists.contains(from) => field,
                        DataType::List(item)
                        | DataType::LargeList(item)
                        | DataType::FixedSizeList(item, _) => item.as_ref(),
                        other => return internal_err!("unnest of {other}"),
                    };
                    Ok(Arc::new(held.clone().with_name(name).with_nullable(true)))
                });
                fields.collect::<Result<_>>()?
            }
            Self::Lookup { .. } => {
                let fields = inputs.iter().flat_map(|schema| schema.fields());
                let fields = fields.map(|f| Arc::new(f.as_ref().clone().with_nullable(true)));
                fields.collect()
            }
        };
        Ok(Arc::new(Schema::new(fields)))
    }

    /// Restricts the operator, whose output columns are `schema`, to the output columns in
    /// `wanted`. Also returns the columns that the restricted operator needs from each input.
    pub(super) fn needed(
        &self,
        schema: &Schema,
        inputs: &[&SchemaRef],
        wanted: &BTreeSet<String>,
    ) -> Needed {
        let kept = || -> Vec<usize> {
            let fields = schema.fields().iter().enumerate();
            let kept = fields.filter(|(_, field)| wanted.contains(field.name()));
            kept.map(|(index, _)| index).collect()
        };
        match self {
            Self::Scan {
                occurrence,
                name,
                source,
                projection,
                prune,
            } => {
                let columns = kept();
                let op = Self::Scan {
                    occurrence: *occurrence,
                    name: name.clone(),
                    source: Arc::clone(source),
                    projection: columns.iter().map(|&i| projection[i]).collect(),
                    prune: prune.clone(),
                };
                Needed::at_least(op, columns, Vec::new())
            }
            Self::Project { exprs } => {
                let columns = kept();
                let exprs: Vec<NamedExpr> = columns.iter().map(|&i| exprs[i].clone()).collect();
                let read = exprs.iter().flat_map(|e| reads(&e.expr)).collect();
                Needed::at_least(Self::Project { exprs }, columns, vec![read])
            }
            Self::Filter { conjuncts } => {
                let read = conjuncts.iter().flat_map(reads);
                let below = wanted.iter().cloned().chain(read).collect();
                Needed::at_least(self.clone(), kept(), vec![below])
            }
            Self::Limit { .. } => Needed::at_least(self.clone(), kept(), vec![wanted.clone()]),
            // All cached columns stay, even if the operators above need only some of these columns.
            // Otherwise, the same rows would be cached once for each set of needed columns.
            Self::Cache => {
                let all = 0..schema.fields().len();
                let below = named(schema, all.clone());
                Needed::exactly(self.clone(), all.collect(), vec![below])
            }
            Self::Union | Self::Mix(_) => {
                let of = |input: &&SchemaRef| named(input, kept());
                Needed::exactly(self.clone(), kept(), inputs.iter().map(of).collect())
            }
            Self::Unnest {
                columns,
                lists,
                preserve_nulls,
            } => {
                let kept = kept();
                let from: BTreeSet<usize> = kept
                    .iter()
                    .map(|&i| columns[i])
                    .chain(lists.iter().copied())
                    .collect();
                let place: BTreeMap<usize, usize> =
                    from.iter().enumerate().map(|(to, &f)| (f, to)).collect();
                let op = Self::Unnest {
                    columns: kept.iter().map(|&i| place[&columns[i]]).collect(),
                    lists: lists.iter().map(|i| place[i]).collect(),
                    preserve_nulls: *preserve_nulls,
                };
                let below = named(inputs[0], from);
                Needed::exactly(op, kept, vec![below])
            }
            Self::Lookup { on, .. } => {
                let (columns, sides) = needed_sides(on, schema, inputs, wanted);
                Needed::exactly(self.clone(), columns, sides)
            }
        }
    }
}

/// An operator restricted to some of its output columns.
pub(super) struct Needed {
    pub(super) op: RowOp,
    /// The output columns of the restricted operator, as indices into the output columns of the
    /// unrestricted operator.
    pub(super) columns: Vec<usize>,
    /// The columns that the restricted operator needs from each input.
    pub(super) inputs: Vec<Columns>,
}

/// The columns that an operator needs from an input.
pub(super) enum Columns {
    /// These columns, and possibly others.
    AtLeast(BTreeSet<String>),
    /// Exactly these columns, in this order.
    Exactly(Vec<String>),
}

impl Needed {
    fn at_least(op: RowOp, columns: Vec<usize>, inputs: Vec<BTreeSet<String>>) -> Self {
        let inputs = inputs.into_iter().map(Columns::AtLeast).collect();
        Self {
            op,
            columns,
            inputs,
        }
    }

    fn exactly(op: RowOp, columns: Vec<usize>, inputs: Vec<Vec<String>>) -> Self {
        let inputs = inputs.into_iter().map(Columns::Exactly).collect();
        Self {
            op,
            columns,
            inputs,
        }
    }
}

/// Returns, for a lookup with the output columns `schema`, the indices of the output columns that
/// are in `wanted` or that the join condition `on` reads. Also returns these columns' names in each
/// input.
fn needed_sides(
    on: &[(Expr, Expr)],
    schema: &Schema,
    inputs: &[&SchemaRef],
    wanted: &BTreeSet<String>,
) -> (Vec<usize>, Vec<Vec<String>>) {
    let mut read = [BTreeSet::new(), BTreeSet::new()];
    for (l, r) in on {
        read[0].extend(reads(l));
        read[1].extend(reads(r));
    }
    let (mut columns, mut sides) = (Vec::new(), Vec::new());
    let mut begin = 0;
    for (input, read) in inputs.iter().zip(&read) {
        let own = begin..begin + input.fields().len();
        let needed = own.clone().filter(|&i| {
            let below = input.field(i - begin).name();
            wanted.contains(schema.field(i).name()) || read.contains(below)
        });
        let needed: Vec<usize> = needed.collect();
        sides.push(named(input, needed.iter().map(|i| i - begin)));
        columns.extend(needed);
        begin = own.end;
    }
    (columns, sides)
}

/// Returns the names of the columns of `schema` with the indices `columns`.
fn named(schema: &Schema, columns: impl IntoIterator<Item = usize>) -> Vec<String> {
    let names = columns.into_iter().map(|i| schema.field(i).name().clone());
    names.collect()
}

/// The output column `index` of a union of `inputs`. `first` is this column of the first input. The
/// column's Arrow extension is kept only if the column has the same extension in every input.
fn united(inputs: &[&SchemaRef], index: usize, first: &FieldRef) -> FieldRef {
    let metadata = |schema: &SchemaRef| schema.field(index).metadata() == first.metadata();
    let field = first.as_ref().clone().with_nullable(true);
    Arc::new(if inputs.iter().all(|schema| metadata(schema)) {
        field
    } else {
        field.with_metadata(HashMap::new())
    })
}

impl NamedExpr {
    /// The output column that the expression computes over `columns`.
    fn field(&self, columns: &ColumnIndex<'_>) -> Result<FieldRef> {
        let field = columns.field_of(&self.expr)?;
        Ok(if *field.name() == self.name {
            field
        } else {
            Arc::new(field.as_ref().clone().with_name(&self.name))
        })
    }
}

impl fmt::Debug for RowOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

fn list<T: fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    items
        .into_iter()
        .map(|i| i.to_string())
        .collect::<Vec<_>>()
        .join(", ")
}

impl fmt::Display for RowOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scan {
                occurrence,
                name,
                source,
                projection,
                prune,
            } => {
                let schema = source.schema();
                let columns = list(projection.iter().map(|&i| schema.field(i).name()));
                write!(f, "Scan #{occurrence} {name} [{columns}]")?;
                if !prune.is_empty() {
                    write!(
                        f,
                        " prune: {}",
                        prune.iter().map(human).collect::<Vec<_>>().join(" AND ")
                    )?;
                }
                Ok(())
            }
            Self::Filter { conjuncts } => {
                write!(
                    f,
                    "Filter {}",
                    conjuncts
                        .iter()
                        .map(human)
                        .collect::<Vec<_>>()
                        .join(" AND ")
                )
            }
            Self::Project { exprs } => {
                let shown = exprs.iter().map(|e| match &e.expr {
                    Expr::Column(c) if c.name == e.name => e.name.clone(),
                    expr => format!("{} = {}", e.name, human(expr)),
                });
                write!(f, "Project {}", list(shown))
            }
            Self::Union => write!(f, "Union"),
            Self::Mix(mix) => write!(f, "Mix {mix}"),
            Self::Cache => write!(f, "Cache"),
            Self::Limit { skip, fetch } => {
                write!(f, "Limit")?;
                if *skip > 0 {
                    write!(f, " skip {skip}")?;
                }
                fetch.iter().try_for_each(|n| write!(f, " fetch {n}"))
            }
            Self::Unnest { lists, .. } => write!(f, "Unnest columns {}", list(lists)),
            Self::Lookup { on, keep_unmatched } => {
                let pairs = list(
                    on.iter()
                        .map(|(l, r)| format!("{} = {}", human(l), human(r))),
                );
                write!(
                    f,
                    "Lookup{} {pairs}",
                    if *keep_unmatched { " left" } else { "" }
                )
            }
        }
    }
}
