//! The payload's document: everything but the expressions, as JSON.
//!
//! Types of columns are written by Arrow's own serde implementation. Arrow's IPC format is not used
//! here: its reader panics on types that it does not know.

use std::collections::{BTreeMap, BTreeSet};

use arrow::datatypes::{DataType, Field, Schema};
use serde::{Deserialize, Serialize};

use crate::clauses::Clauses;
use crate::rows::mix::MixStop;
use crate::saved::SavedPlan;

/// A compiled pipeline without its expressions.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Document {
    /// The chosen plan's hashes and texts, and the facts by which the plan was chosen.
    pub(super) chosen: SavedPlan,
    /// Hash of the sender's functions.
    pub(super) functions: String,
    /// The training clauses.
    pub(super) clauses: Clauses,
    /// The distinct sources, in the order of their first scan.
    pub(super) sources: Vec<SourceForm>,
    /// The nodes of the written plan, the inputs of each node before the node.
    pub(super) nodes: Vec<NodeForm>,
}

/// A source.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SourceForm {
    /// The user's description.
    pub(super) spec: SpecForm,
    /// Hash of the files that the source has on the sender.
    pub(super) files: String,
    /// The columns that the source has on the sender.
    pub(super) schema: Schema,
}

/// A user's description of a source.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SpecForm {
    /// Name of the format.
    pub(super) format: String,
    /// Location, as the user wrote it.
    pub(super) location: String,
    /// Options of the format.
    pub(super) options: BTreeMap<String, String>,
    /// Declared columns.
    pub(super) columns: Option<Schema>,
}

/// A node of the written plan.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeForm {
    /// The operator.
    pub(super) op: OpForm,
    /// Number of inputs, which are the last nodes that are no other node's input.
    pub(super) inputs: usize,
    /// The output columns, if they differ from the columns that the operator derives.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) schema: Option<Schema>,
}

/// An operator of the written plan. A number stands for that many expressions, which follow the
/// document in the order of the nodes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(super) enum OpForm {
    Scan {
        occurrence: u32,
        name: String,
        source: usize,
        projection: Vec<usize>,
    },
    Filter {
        conjuncts: usize,
    },
    Project {
        names: Vec<String>,
    },
    Union,
    Mix {
        weights: Vec<u64>,
        stop: MixStop,
    },
    Limit {
        skip: u64,
        fetch: Option<u64>,
    },
    Unnest {
        columns: Vec<usize>,
        lists: BTreeSet<usize>,
        preserve_nulls: bool,
    },
    Lookup {
        pairs: usize,
        keep_unmatched: bool,
    },
    Cache,
}

/// A node of an expression.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
pub(super) enum ExprForm {
    /// A node that datafusion-proto encodes, and what datafusion-proto loses or reads without
    /// checks.
    Proto {
        /// Type of a cast or of a lambda's variable.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        field: Option<Field>,
        /// Escape character of LIKE, of which datafusion-proto reads only ASCII.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        escape: Option<char>,
        /// True for SIMILAR TO that ignores case.
        #[serde(skip_serializing_if = "std::ops::Not::not", default)]
        case_insensitive: bool,
        /// Metadata of a literal or an alias.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        metadata: Option<BTreeMap<String, String>>,
    },
    /// A call of a function of the host program, by the function's name.
    Host { function: String },
    /// A literal that datafusion-proto does not keep, or reads without checks.
    Literal {
        /// Its value.
        value: LiteralForm,
        /// Its metadata.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        metadata: Option<BTreeMap<String, String>>,
    },
}

/// The value of a literal that Forebay encodes itself.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LiteralForm {
    /// A null of a type.
    Null(DataType),
    /// The bits of a half float. datafusion-proto makes it a float.
    Half(u16),
    /// A text or binary value, whose bytes stand in the place of the encoding by datafusion-proto.
    Bytes(DataType),
    /// A list, structure or dictionary value, whose elements are the node's children.
    Nested(DataType),
}
