//! Statements as syntax trees.

use std::collections::BTreeSet;

use sqlparser::ast::{Expr, Query};

use crate::clauses::{ClausePositions, Clauses};
use crate::error::Position;
use crate::source::SourceSpec;

/// A name in a statement, folded to lower case unless it was quoted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// The name.
    pub value: String,
    /// The name's position.
    pub position: Position,
}

/// A query followed by training clauses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PipelineQuery {
    /// The query, without its clauses.
    pub query: Box<Query>,
    /// The clauses after the query.
    pub clauses: Clauses,
    /// The expression of `BUCKET BY`.
    pub bucket_by: Option<Expr>,
    /// Positions of the clauses in the text.
    pub positions: ClausePositions,
    /// Columns that the clauses name without quotes, as written.
    pub unquoted: BTreeSet<String>,
    /// Query and clauses as written.
    pub text: String,
    /// Position at which the query starts.
    pub start: Position,
}

/// The variants of `EXPLAIN`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExplainMode {
    /// `EXPLAIN`.
    Plain,
    /// `EXPLAIN VERBOSE`.
    Verbose,
    /// `EXPLAIN ANALYZE`: runs the pipeline.
    Analyze,
    /// `EXPLAIN WHY NOT rule`.
    WhyNot(String),
}

/// The subject of an `EXPLAIN`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExplainTarget {
    /// A registered pipeline.
    Pipeline(Name),
    /// A query with or without clauses.
    Query(Box<PipelineQuery>),
}

/// A statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statement {
    /// `CREATE [OR REPLACE] EXTERNAL TABLE ..`.
    CreateSource {
        /// Name of the source.
        name: Name,
        /// True for `OR REPLACE`: replaces a source of the same name.
        or_replace: bool,
        /// True for `IF NOT EXISTS`: an existing source is not an error.
        if_not_exists: bool,
        /// The source to open.
        spec: SourceSpec,
    },
    /// `CREATE [OR REPLACE] PIPELINE .. AS ..`.
    CreatePipeline {
        /// Name of the pipeline.
        name: Name,
        /// True for `OR REPLACE`: replaces a pipeline of the same name.
        or_replace: bool,
        /// True for `IF NOT EXISTS`: an existing pipeline is not an error.
        if_not_exists: bool,
        /// The pipeline's query and clauses.
        query: PipelineQuery,
    },
    /// `DROP TABLE ..`.
    DropSource {
        /// Name of the source.
        name: Name,
        /// True for `IF EXISTS`: a missing source is not an error.
        if_exists: bool,
    },
    /// `DROP PIPELINE ..`.
    DropPipeline {
        /// Name of the pipeline.
        name: Name,
        /// True for `IF EXISTS`: a missing pipeline is not an error.
        if_exists: bool,
    },
    /// `SHOW PIPELINES`.
    ShowPipelines,
    /// `SHOW TABLES`.
    ShowSources,
    /// `DESCRIBE name`: the columns of a source or a pipeline.
    Describe {
        /// Name of the source or pipeline.
        name: Name,
    },
    /// `EXPLAIN ..`.
    Explain {
        /// The variant.
        mode: ExplainMode,
        /// The subject.
        target: ExplainTarget,
    },
    /// A query with or without clauses.
    Query(PipelineQuery),
}
