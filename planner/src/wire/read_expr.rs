//! Decodes expressions.

use std::sync::Arc;

use datafusion::common::metadata::FieldMetadata;
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::expr::{Cast, TryCast};
use datafusion_proto::logical_plan::DefaultLogicalExtensionCodec;
use datafusion_proto::logical_plan::from_proto::parse_expr;
use datafusion_proto::protobuf::LogicalExprNode;
use forebay_udfs::DeclaredFunction;
use prost::Message;

use super::error::WireError;
use super::form::ExprForm;
use super::frame::Reader;
use super::guard::check_node;
use super::literal::Literal;
use super::node::{MAX_DEPTH, MAX_NODE, filled};
use super::registry::registry;

/// Reads all expressions to the end of a message, which may call `functions` of the host program.
pub(super) fn read_exprs(
    mut reader: Reader<'_>,
    functions: &[Arc<dyn DeclaredFunction>],
) -> Result<Vec<Expr>, WireError> {
    let mut exprs = Vec::new();
    while !reader.0.is_empty() {
        exprs.push(read_expr(&mut reader, functions)?);
    }
    Ok(exprs)
}

/// Reads the next expression.
fn read_expr(
    reader: &mut Reader<'_>,
    functions: &[Arc<dyn DeclaredFunction>],
) -> Result<Expr, WireError> {
    let count = reader.number()?;
    // The nodes that are no other node's child yet, with their depths.
    let mut open: Vec<(Expr, usize)> = Vec::new();
    for _ in 0..count {
        let form: ExprForm = serde_json::from_slice(reader.part()?)
            .map_err(|why| WireError::malformed(why.to_string()))?;
        let children = reader.number()? as usize;
        let encoded = reader.part()?;
        let Some(first) = open.len().checked_sub(children) else {
            return Err(WireError::malformed("an expression with too few nodes"));
        };
        let (children, depths): (Vec<_>, Vec<_>) = open.drain(first..).unzip();
        let depth = 1 + depths.into_iter().max().unwrap_or(0);
        if depth > MAX_DEPTH {
            return Err(WireError::malformed("an expression that is too deep"));
        }
        let node = match form {
            ExprForm::Host { function } => host_call(&function, children, functions)?,
            form => node(form, children, encoded)?,
        };
        open.push((node, depth));
    }
    match (open.pop(), open.pop()) {
        (Some((expr, _)), None) => Ok(expr),
        _ => Err(WireError::malformed("an expression with too many nodes")),
    }
}

/// Returns a call of the function `name` of the host program.
fn host_call(
    name: &str,
    arguments: Vec<Expr>,
    functions: &[Arc<dyn DeclaredFunction>],
) -> Result<Expr, WireError> {
    let Some(function) = functions.iter().find(|function| function.name() == name) else {
        return Err(WireError::HostFunction(name.to_owned()));
    };
    Ok(forebay_udfs::declare(Arc::clone(function)).call(arguments))
}

/// Returns the node of a form, with these children. `encoded` is the encoding by datafusion-proto,
/// or the bytes of a literal.
fn node(form: ExprForm, children: Vec<Expr>, encoded: &[u8]) -> Result<Expr, WireError> {
    let unexpected = || WireError::malformed("an expression with unexpected parts");
    match form {
        ExprForm::Host { .. } => Err(unexpected()),
        ExprForm::Literal {
            value: form,
            metadata,
        } => {
            let elements = children.into_iter().map(|child| match child {
                Expr::Literal(value, None) => Ok(value),
                _ => Err(unexpected()),
            });
            let literal = Literal {
                form,
                elements: elements.collect::<Result<_, _>>()?,
                bytes: encoded.to_vec(),
            };
            let metadata = metadata.map(FieldMetadata::new);
            Ok(Expr::Literal(literal.value()?, metadata))
        }
        ExprForm::Proto {
            mut field,
            mut escape,
            mut case_insensitive,
            mut metadata,
        } => {
            if encoded.len() > MAX_NODE {
                return Err(unexpected());
            }
            let node = LogicalExprNode::decode(encoded);
            let node = node.map_err(|why| WireError::malformed(why.to_string()))?;
            check_node(&node)?;
            let mut node = parse_expr(&node, registry(), &DefaultLogicalExtensionCodec {})
                .map_err(|why| WireError::malformed(why.to_string()))?;
            match &mut node {
                Expr::Cast(Cast { field: of, .. }) | Expr::TryCast(TryCast { field: of, .. }) => {
                    *of = Arc::new(field.take().ok_or_else(unexpected)?);
                }
                Expr::LambdaVariable(variable) => variable.field = field.take().map(Arc::new),
                Expr::Like(like) => like.escape_char = escape.take(),
                Expr::SimilarTo(like) => {
                    like.escape_char = escape.take();
                    like.case_insensitive = std::mem::take(&mut case_insensitive);
                }
                Expr::Alias(alias) => alias.metadata = metadata.take().map(FieldMetadata::new),
                Expr::Literal(_, of) => *of = metadata.take().map(FieldMetadata::new),
                _ => {}
            }
            if field.is_some() || escape.is_some() || case_insensitive || metadata.is_some() {
                return Err(unexpected());
            }
            filled(node, children)
        }
    }
}
