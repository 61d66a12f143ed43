//! Encodes expressions.

use std::borrow::Cow;

use datafusion::common::metadata::FieldMetadata;
use datafusion::logical_expr::Expr;
use datafusion_proto::logical_plan::DefaultLogicalExtensionCodec;
use datafusion_proto::logical_plan::to_proto::serialize_expr;
use prost::Message;

use super::error::WireError;
use super::form::ExprForm;
use super::frame::{put_number, put_part};
use super::literal::Literal;
use super::node::{MAX_DEPTH, MAX_NODE, children, shallow};

/// A node of an expression, whose children are written before it.
struct Node<'a> {
    expr: Cow<'a, Expr>,
    form: ExprForm,
    children: usize,
    /// The bytes of a text or binary literal.
    bytes: Vec<u8>,
}

/// Appends an expression: the number of its nodes, and its nodes, the children of each node before
/// the node. Nothing here recurses, so that an expression of any depth is either written or
/// refused.
pub(super) fn write_expr(expr: &Expr, bytes: &mut Vec<u8>) -> Result<(), WireError> {
    let nodes = nodes(expr)?;
    put_number(bytes, nodes.len())?;
    for Node {
        expr,
        form,
        children,
        bytes: literal,
    } in nodes
    {
        let encoded = match &form {
            ExprForm::Literal { .. } | ExprForm::Host { .. } => literal,
            ExprForm::Proto { .. } => {
                let unsupported = || WireError::Unsupported(format!("the expression {expr}"));
                let node = serialize_expr(&shallow(&expr)?, &DefaultLogicalExtensionCodec {});
                let node = node.map_err(|_| unsupported())?.encode_to_vec();
                if node.len() > MAX_NODE {
                    return Err(unsupported());
                }
                node
            }
        };
        let form = serde_json::to_vec(&form);
        put_part(
            bytes,
            &form.map_err(|why| WireError::Lost(why.to_string()))?,
        )?;
        put_number(bytes, children)?;
        put_part(bytes, &encoded)?;
    }
    Ok(())
}

/// Returns the nodes of an expression, the children of each node before the node.
fn nodes(expr: &Expr) -> Result<Vec<Node<'_>>, WireError> {
    // Nodes in the order node, last child, .., first child. The reverse order has the children of
    // each node before the node, the first child first.
    let (mut nodes, mut open) = (Vec::new(), vec![(Cow::Borrowed(expr), 1)]);
    while let Some((expr, depth)) = open.pop() {
        if depth > MAX_DEPTH {
            let what = format!("an expression of more than {MAX_DEPTH} nested operators");
            return Err(WireError::Unsupported(what));
        }
        let mut below: Vec<Cow<'_, Expr>> = Vec::new();
        let mut bytes = Vec::new();
        let form = match expr.as_ref() {
            Expr::Literal(value, metadata) => match Literal::of(value)? {
                None => proto_form(metadata.as_ref()),
                Some(literal) => {
                    let elements = literal.elements.into_iter();
                    below.extend(elements.map(|value| Cow::Owned(Expr::Literal(value, None))));
                    bytes = literal.bytes;
                    ExprForm::Literal {
                        value: literal.form,
                        metadata: metadata.as_ref().map(|of| of.inner().clone()),
                    }
                }
            },
            _ => form(&expr),
        };
        if let Cow::Borrowed(expr) = expr
            && !matches!(expr, Expr::Literal(..))
        {
            below.extend(children(expr).into_iter().map(Cow::Borrowed));
        }
        nodes.push(Node {
            expr,
            form,
            children: below.len(),
            bytes,
        });
        open.extend(below.into_iter().map(|expr| (expr, depth + 1)));
    }
    nodes.reverse();
    Ok(nodes)
}

/// Returns the form of a node that is not a literal.
fn form(expr: &Expr) -> ExprForm {
    if let Expr::ScalarFunction(call) = expr
        && let Some(function) = forebay_udfs::declared(&call.func)
    {
        return ExprForm::Host {
            function: function.name().to_owned(),
        };
    }
    let mut form = proto_form(match expr {
        Expr::Alias(alias) => alias.metadata.as_ref(),
        _ => None,
    });
    if let ExprForm::Proto {
        field,
        escape,
        case_insensitive,
        ..
    } = &mut form
    {
        match expr {
            Expr::Cast(cast) => *field = Some(cast.field.as_ref().clone()),
            Expr::TryCast(cast) => *field = Some(cast.field.as_ref().clone()),
            Expr::LambdaVariable(of) => *field = of.field.as_ref().map(|of| of.as_ref().clone()),
            Expr::Like(like) => *escape = like.escape_char,
            Expr::SimilarTo(like) => {
                *escape = like.escape_char;
                *case_insensitive = like.case_insensitive;
            }
            _ => {}
        }
    }
    form
}

fn proto_form(metadata: Option<&FieldMetadata>) -> ExprForm {
    ExprForm::Proto {
        field: None,
        escape: None,
        case_insensitive: false,
        metadata: metadata.map(|of| of.inner().clone()),
    }
}
