//! Messages that carry a compiled pipeline.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::DFSchema;
use datafusion::logical_expr::{Expr, TableSource};
use forebay_udfs::DeclaredFunction;

use super::error::WireError;
use super::form::{Document, NodeForm};
use super::frame::{Reader, framed, payload, put_part};
use super::read_expr::read_exprs;
use super::read_plan::PlanReader;
use super::registry::functions_hash;
use super::source::{DescribeTable, SourceMessage};
use super::write_plan::PlanWriter;
use crate::clauses::{ClausePositions, Clauses};
use crate::compile::Compiled;
use crate::error::PlanError;
use crate::groups::check_groups;
use crate::key_columns::{BUCKET_COLUMN, LENGTH_COLUMN, is_hidden};
use crate::rows::RowPlan;
use crate::rows::fingerprint::plan_text;
use crate::saved::SavedPlan;
use crate::saved::error::SavedPlanError;

/// A decoded message with a compiled pipeline, before its sources are opened.
#[derive(Debug)]
pub struct PlanMessage {
    chosen: SavedPlan,
    clauses: Clauses,
    sources: Vec<SourceMessage>,
    nodes: Vec<NodeForm>,
    exprs: Vec<Expr>,
}

impl PlanMessage {
    /// Encodes a compiled pipeline. `describe` describes its tables. The receiver needs the functions
    /// of the host program besides: those of [`host_functions`](Self::host_functions).
    ///
    /// # Errors
    /// Fails if a part of the plan cannot be sent, such as a table that was not opened from a
    /// description.
    pub fn encode(compiled: &Compiled, describe: &DescribeTable) -> Result<Vec<u8>, WireError> {
        let mut writer = PlanWriter::new(describe);
        writer.add(&compiled.written)?;
        let document = Document {
            chosen: SavedPlan::of(compiled, None)?,
            functions: functions_hash(),
            clauses: compiled.clauses.clone(),
            sources: writer.sources.iter().map(SourceMessage::form).collect(),
            nodes: writer.nodes,
        };
        let document = serde_json::to_vec(&document);
        let document = document.map_err(|why| WireError::Lost(why.to_string()))?;
        let mut payload = Vec::new();
        put_part(&mut payload, &document)?;
        payload.extend(writer.exprs);
        let bytes = framed(&payload);
        check_kept(&bytes, compiled, &writer.tables)?;
        Ok(bytes)
    }

    /// Returns the functions of the host program that a compiled pipeline calls.
    ///
    /// # Errors
    /// Fails if two of them have the same name, since calls are sent by name.
    pub fn host_functions(
        compiled: &Compiled,
    ) -> Result<Vec<Arc<dyn DeclaredFunction>>, WireError> {
        let mut found: Vec<Arc<dyn DeclaredFunction>> = Vec::new();
        for function in compiled.written.host_calls() {
            match { found.iter() }.find(|known| known.name() == function.name()) {
                Some(known) if Arc::ptr_eq(known, &function) => {}
                Some(known) => return Err(WireError::SameName(known.name().to_owned())),
                None => found.push(function),
            }
        }
        Ok(found)
    }

    /// Decodes a message of at most `max_bytes` bytes, whose plan calls no other functions of the
    /// host program than `functions`.
    ///
    /// # Errors
    /// Fails if the bytes are not a message, or if the sender is another release or has other
    /// functions.
    pub fn decode(
        bytes: &[u8],
        max_bytes: usize,
        functions: &[Arc<dyn DeclaredFunction>],
    ) -> Result<Self, WireError> {
        let mut reader = Reader(payload(bytes, max_bytes)?);
        let document = serde_json::from_slice(reader.part()?);
        let document: Document = document.map_err(|why| WireError::malformed(why.to_string()))?;
        if document.functions != functions_hash() {
            return Err(WireError::Functions);
        }
        let sources = document.sources.into_iter().map(SourceMessage::of_form);
        Ok(Self {
            chosen: document.chosen,
            clauses: document.clauses,
            sources: sources.collect::<Result<_, _>>()?,
            nodes: document.nodes,
            exprs: read_exprs(reader, functions)?,
        })
    }

    /// The distinct sources of the plan, in the order of their first scan. The receiver opens each
    /// and passes them to [`compile`](Self::compile) in this order.
    pub fn sources(&self) -> &[SourceMessage] {
        &self.sources
    }

    /// The training clauses.
    pub fn clauses(&self) -> &Clauses {
        &self.clauses
    }

    /// Compiles the pipeline over its opened sources: searches again by the facts that the plan was
    /// chosen by.
    ///
    /// # Errors
    /// Fails if a source has other columns than on the sender, or if the semantic hash or the plan
    /// hash differs from the sender's.
    pub fn compile(self, sources: &[Arc<dyn TableSource>]) -> Result<Compiled, WireError> {
        let (chosen, clauses) = (self.chosen.clone(), self.clauses.clone());
        let written = self.written(sources)?;
        check_clauses(&written, &clauses)?;
        match chosen.compile_written(written, clauses) {
            Ok((compiled, None)) => Ok(compiled),
            Ok((_, Some(difference))) => Err(WireError::Plan(difference)),
            Err(PlanError::Saved(SavedPlanError::Meaning(difference))) => {
                Err(WireError::Meaning(difference))
            }
            Err(PlanError::Saved(SavedPlanError::Plan(difference))) => {
                Err(WireError::Plan(difference))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the written plan over its opened sources.
    fn written(self, sources: &[Arc<dyn TableSource>]) -> Result<RowPlan, WireError> {
        if self.sources.len() != sources.len() {
            return Err(WireError::SourceCount {
                sent: self.sources.len(),
                opened: sources.len(),
            });
        }
        for (sent, opened) in self.sources.iter().zip(sources) {
            sent.check(opened.as_ref())?;
        }
        PlanReader::new(sources, self.exprs).plan(self.nodes)
    }
}

/// Checks that a message keeps the written plan and the clauses of a pipeline whose sources are
/// `tables`. The receiver would notice a loss too, but only after it opened the sources.
fn check_kept(
    bytes: &[u8],
    compiled: &Compiled,
    tables: &[Arc<dyn TableSource>],
) -> Result<(), WireError> {
    let lost = |what: &str| Err(WireError::Lost(what.to_owned()));
    let functions = PlanMessage::host_functions(compiled)?;
    let message = match PlanMessage::decode(bytes, usize::MAX, &functions) {
        // The message nests types more deeply than its reader accepts.
        Err(WireError::Malformed(why)) => return Err(WireError::Lost(why)),
        decoded => decoded?,
    };
    if message.clauses != compiled.clauses {
        return lost("a clause");
    }
    let kept = message.written(tables)?;
    let text = |plan| plan_text(plan).map_err(PlanError::from);
    if text(&kept)? != text(&compiled.written)? || !is_same(&kept, &compiled.written) {
        return lost("an expression or a column");
    }
    Ok(())
}

/// True if two plans of the same text have equal expressions and columns.
fn is_same(a: &RowPlan, b: &RowPlan) -> bool {
    let inputs = || a.inputs.iter().zip(&b.inputs);
    a.schema == b.schema && a.op.exprs() == b.op.exprs() && inputs().all(|(a, b)| is_same(a, b))
}

/// Checks that the clauses fit the columns of the written plan, as planning a query does.
fn check_clauses(written: &RowPlan, clauses: &Clauses) -> Result<(), WireError> {
    let fields = written.schema.fields().iter();
    let (keys, visible): (Vec<_>, Vec<_>) = fields.cloned().partition(|f| is_hidden(f.name()));
    let visible = DFSchema::try_from(Schema::new(visible)).map_err(PlanError::from)?;
    check_groups(&visible, clauses, &ClausePositions::default())?;
    let bucket = clauses.bucket.as_ref().map(|_| BUCKET_COLUMN);
    let length = clauses.length_of().map(|_| LENGTH_COLUMN);
    let needed = bucket.into_iter().chain(length);
    if keys.iter().map(|field| field.name().as_str()).eq(needed) {
        Ok(())
    } else {
        Err(WireError::malformed(
            "a plan without the columns that its clauses need",
        ))
    }
}
