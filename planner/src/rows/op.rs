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

/// A named output of a projection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedExpr {
    /// Slot name.
    pub name: String,
    /// The value, as an expression over the input's slots (and the hidden row column).
    pub expr: Expr,
}

/// A row operator.
#[derive(Clone)]
pub enum RowOp {
    /// Reads stored rows.
    Scan {
        /// Number of the scan in the plan, which is part of each row key.
        occurrence: u32,
        /// The table's name, for display.
        name: String,
        /// The table that is scanned.
        source: Arc<dyn TableSource>,
        /// The columns to read, as indices into the table's schema.
        projection: Vec<usize>,
        /// Conjuncts that a filter above repeats; the reader may skip rows that fail them.
        prune: Vec<Expr>,
    },
    /// Keeps the rows for which every conjunct is true.
    Filter {
        /// The conjuncts, in written order.
        conjuncts: Vec<Expr>,
    },
    /// Computes the output columns.
    Project {
        /// One expression per output column.
        exprs: Vec<NamedExpr>,
    },
    /// Concatenates the inputs: all rows of the first, then all of the second, and so on.
    Union,
    /// Mixes the rows of its inputs, the arms: for each position in the epoch's order an arm is
    /// drawn by weight, and yields its next row.
    ///
    /// Arms are drawn before any operator above is applied. So a filter above must never move
    /// below, not even as a hint to a scan: with fewer rows in one arm, the rows of all other arms
    /// would change position.
    Mix(Mix),
    /// Rows `skip .. skip + fetch` in stored order.
    Limit {
        /// Number of rows dropped at the start.
        skip: u64,
        /// Maximum number of rows kept; all if absent.
        fetch: Option<u64>,
    },
    /// Yields one row per list element; other columns are repeated.
    Unnest {
        /// For each output column, the index of the input column.
        columns: Vec<usize>,
        /// The input columns with the lists to expand. Several lists are zipped, and the shorter
        /// ones padded with null.
        lists: BTreeSet<usize>,
        /// True if an empty or null list yields one row of nulls.
        preserve_nulls: bool,
    },
    /// Adds the columns of the one matching row of the second input to each row of the first.
    Lookup {
        /// Equal pairs: an expression over the first input, and one over the second.
        on: Vec<(Expr, Expr)>,
        /// True if rows without a match are kept, with nulls (`LEFT JOIN`).
        keep_unmatched: bool,
    },
    /// Keeps the rows of its input from epoch to epoch, instead of computing them again.
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

    /// Maps each of the operator's expressions by `f`.
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

    /// True if each input row yields exactly one row.
    pub fn is_one_to_one(&self) -> bool {
        match self {
            Self::Scan { .. } | Self::Project { .. } | Self::Union | Self::Mix(_) | Self::Cache => {
                true
            }
            Self::Lookup { keep_unmatched, .. } => *keep_unmatched,
            Self::Filter { .. } | Self::Limit { .. } | Self::Unnest { .. } => false,
        }
    }

    /// True if an input row may yield several rows.
    pub fn multiplies(&self) -> bool {
        matches!(self, Self::Unnest { .. })
    }

    /// The number of inputs that stored rows flow through: all but the right side of a lookup.
    pub fn streamed_inputs(&self, inputs: usize) -> usize {
        match self {
            Self::Lookup { .. } => inputs.min(1),
            _ => inputs,
        }
    }

    /// Derives the output columns from the inputs' columns. A lookup and an unnest keep the names
    /// of their inputs.
    ///
    /// # Errors
    /// Fails if an expression has no type over the input's columns, or the operator does not fit
    /// its inputs.
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

    /// Returns the operator restricted to the columns of `schema` that are in `wanted`, with the
    /// columns that the restricted operator needs from its inputs.
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
            // The cached columns must not depend on the columns that are needed above, or the same
            // rows would be cached once for each set of columns.
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

/// An operator restricted to some of its columns.
pub(super) struct Needed {
    pub(super) op: RowOp,
    /// The remaining output columns, as indices into the output columns of the unrestricted
    /// operator.
    pub(super) columns: Vec<usize>,
    /// The columns needed from each input.
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

/// Splits the columns of a lookup that are wanted, or that its keys read, by input.
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

/// Returns the names of columns.
fn named(schema: &Schema, columns: impl IntoIterator<Item = usize>) -> Vec<String> {
    let names = columns.into_iter().map(|i| schema.field(i).name().clone());
    names.collect()
}

/// A column of a union, whose extension type survives only if every input has it.
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
    /// The output column of the expression over these columns.
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
