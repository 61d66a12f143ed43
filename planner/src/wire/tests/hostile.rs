//! Damaged and hostile bytes, which are refused without a panic.

use arrow::datatypes::{DataType, Field};
use datafusion::logical_expr::{Expr, lit};
use datafusion_proto::generated::datafusion_common::scalar_value::Value as ProtoScalar;
use datafusion_proto::generated::datafusion_common::{
    Column, Decimal128, ScalarNestedValue, ScalarValue as ProtoValue,
};
use datafusion_proto::protobuf::logical_expr_node::ExprType;
use datafusion_proto::protobuf::{
    BinaryExprNode, LogicalExprNode, ScalarSubqueryExprNode, ScalarUdfExprNode,
};
use prost::Message;

use super::*;
use crate::wire::form::{ExprForm, LiteralForm};
use crate::wire::frame::{Reader, framed, payload, put_number, put_part};
use crate::wire::guard::check_node;
use crate::wire::read_expr::read_exprs;

const SQL: &str = "SELECT CASE WHEN id IN (1, 2) THEN name LIKE 'a%' ELSE false END AS c,
                          normalize(resize(decode_image(image), 8, 8), 'imagenet') AS x, [0.5, 2] AS l,
                          CAST(id AS DECIMAL(9, 2)) * 1.5 AS d
                   FROM t JOIN photos ON label = id WHERE random_bool(0.5) BATCH 2";

#[tokio::test]
async fn a_cut_message_is_refused_at_every_length() {
    let bytes = encoded(&compiled(SQL).await);
    for length in 0..bytes.len() {
        assert!(
            PlanMessage::decode(&bytes[..length], MAX_BYTES, &[]).is_err(),
            "{length}"
        );
    }
}

#[tokio::test]
async fn a_flipped_bit_is_refused_wherever_it_is() {
    let mut bytes = encoded(&compiled(SQL).await);
    for place in 0..bytes.len() {
        for bit in [1, 0x10, 0x80] {
            bytes[place] ^= bit;
            assert!(
                PlanMessage::decode(&bytes, MAX_BYTES, &[]).is_err(),
                "{place}"
            );
            bytes[place] ^= bit;
        }
    }
}

#[tokio::test]
async fn damage_under_a_right_checksum_never_panics() {
    let bytes = encoded(&compiled(SQL).await);
    let sent = payload(&bytes, MAX_BYTES).unwrap().to_vec();
    let mut reader = Reader(&sent);
    reader.part().unwrap();
    let exprs = sent.len() - reader.0.len();
    let mut refused = 0;
    // Bits of each byte of the expressions, and some bits of the document.
    let document = (0..exprs)
        .step_by(29)
        .map(|place| (place, 1_u8 << (place % 8)));
    let exprs = (exprs..sent.len()).flat_map(|place| [0, 3, 7].map(|bit| (place, 1 << bit)));
    for (place, bit) in document.chain(exprs) {
        let mut damaged = sent.clone();
        damaged[place] ^= bit;
        let Ok(message) = PlanMessage::decode(&framed(&damaged), MAX_BYTES, &[]) else {
            refused += 1;
            continue;
        };
        let sources = message.sources().iter().map(|source| {
            let table = datafusion::datasource::MemTable::try_new(
                Arc::clone(&source.schema),
                vec![Vec::new()],
            );
            provider_as_source(Arc::new(table.unwrap()))
        });
        let sources: Vec<_> = sources.collect();
        refused += u32::from(message.compile(&sources).is_err());
    }
    assert!(refused > 1000);
}

fn node(expr: ExprType) -> LogicalExprNode {
    LogicalExprNode {
        expr_type: Some(expr),
    }
}

fn column(name: &str) -> LogicalExprNode {
    node(ExprType::Column(Column {
        name: name.to_owned(),
        relation: None,
    }))
}

#[test]
fn nodes_that_are_dangerous_to_read_are_refused() {
    let scalar = |value| node(ExprType::Literal(ProtoValue { value: Some(value) }));
    let decimal =
        |value: Vec<u8>, p, s| scalar(ProtoScalar::Decimal128Value(Decimal128 { value, p, s }));
    let call = |name: &str, args| {
        node(ExprType::ScalarUdfExpr(ScalarUdfExprNode {
            fun_name: name.to_owned(),
            args,
            fun_definition: None,
        }))
    };
    let chain = |operands| {
        node(ExprType::BinaryExpr(BinaryExprNode {
            operands,
            op: "Plus".to_owned(),
        }))
    };
    assert!(check_node(&decimal(vec![0; 16], 38, 2)).is_ok());
    assert!(check_node(&call("abs", vec![])).is_ok());
    assert!(check_node(&chain(vec![column(""), column("")])).is_ok());
    let dangerous = [
        LogicalExprNode { expr_type: None },
        decimal(vec![0; 15], 38, 2),
        decimal(vec![0; 16], 300, 2),
        decimal(vec![0; 16], 38, 300),
        scalar(ProtoScalar::ListValue(ScalarNestedValue::default())),
        node(ExprType::Literal(ProtoValue { value: None })),
        call("now", vec![]),
        call("random", vec![]),
        call("nothing", vec![]),
        call("abs", vec![column("")]),
        chain(vec![column(""); 3]),
        chain(vec![column("x"); 2]),
        chain(vec![]),
        node(ExprType::ScalarSubqueryExpr(
            Box::<ScalarSubqueryExprNode>::default(),
        )),
    ];
    for node in dangerous {
        assert!(check_node(&node).is_err(), "{node:?}");
    }
}

/// Returns the bytes of an expression of one node.
fn single(count: usize, form: &ExprForm, children: usize, proto: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_number(&mut bytes, count).unwrap();
    put_part(&mut bytes, &serde_json::to_vec(form).unwrap()).unwrap();
    put_number(&mut bytes, children).unwrap();
    put_part(&mut bytes, proto).unwrap();
    bytes
}

#[test]
fn lists_of_nodes_that_are_no_expression_are_refused() {
    let plain = || ExprForm::Proto {
        field: None,
        escape: None,
        case_insensitive: false,
        metadata: None,
    };
    let column = column("x").encode_to_vec();
    let read = |bytes: &[u8]| read_exprs(Reader(bytes), &[]);
    assert_eq!(
        read(&single(1, &plain(), 0, &column)).unwrap(),
        [crate::rows::slot("x")]
    );
    assert!(read(&single(0, &plain(), 0, &column)).is_err());
    assert!(read(&single(2, &plain(), 0, &column)).is_err());
    assert!(read(&single(u32::MAX as usize, &plain(), 0, &column)).is_err());
    assert!(read(&single(1, &plain(), 1, &column)).is_err());
    assert!(read(&single(1, &plain(), u32::MAX as usize, &column)).is_err());
    let escaped = ExprForm::Proto {
        field: None,
        escape: Some('!'),
        case_insensitive: false,
        metadata: None,
    };
    assert!(read(&single(1, &escaped, 0, &column)).is_err());
    let null = |of| {
        let value = LiteralForm::Null(of);
        single(
            1,
            &ExprForm::Literal {
                value,
                metadata: None,
            },
            0,
            &[],
        )
    };
    assert_eq!(
        read(&null(DataType::Null)).unwrap(),
        [lit(datafusion::common::ScalarValue::Null)]
    );
    let wide = |item: DataType| DataType::new_fixed_size_list(item, i32::MAX, true);
    assert!(read(&null(wide(DataType::Int64))).is_err());
    assert!(read(&null(wide(wide(wide(DataType::Int64))))).is_err());
    assert!(read(&null(DataType::FixedSizeBinary(-1))).is_err());
    assert!(read(&null(DataType::FixedSizeBinary(i32::MAX))).is_err());
    let rows = DataType::Struct(vec![Field::new("a", wide(DataType::Int8), true)].into());
    assert!(read(&null(rows)).is_err());
    let nested = |of| {
        let value = LiteralForm::Nested(of);
        single(
            1,
            &ExprForm::Literal {
                value,
                metadata: None,
            },
            0,
            &[],
        )
    };
    assert!(matches!(
        read(&nested(DataType::new_list(DataType::Int8, true))).as_deref(),
        Ok([Expr::Literal(..)])
    ));
    assert!(read(&nested(wide(DataType::Int8))).is_err());
    let bytes = |of, bytes: &[u8]| {
        let value = LiteralForm::Bytes(of);
        single(
            1,
            &ExprForm::Literal {
                value,
                metadata: None,
            },
            0,
            bytes,
        )
    };
    assert_eq!(read(&bytes(DataType::Utf8, b"x")).unwrap(), [lit("x")]);
    assert!(read(&bytes(DataType::Utf8, &[255])).is_err());
    assert!(read(&bytes(DataType::Int8, &[1])).is_err());
    assert!(read(&bytes(DataType::FixedSizeBinary(2), &[1])).is_err());
    let long = vec![0; crate::wire::node::MAX_NODE + 1];
    assert!(read(&single(1, &plain(), 0, &long)).is_err());
    assert!(read(&nested(DataType::Int8)).is_err());
}
